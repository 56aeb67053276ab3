"""The cut: the offsets that must be on the central cluster and staged before an hour may freeze.

A cut has five phases:

    reports   every live source has reported past the hour's end, or the hour's deadline has passed
    control   the edge's end offsets of host reports, then of audit records, are taken; the mirror reaches them
    promises  the central end offsets of both are taken; the ledger reaches them; no new source has appeared in the
              reports, and sources to be waived are still behind
    events    the edge's end offsets of the types' topics are taken; the mirror reaches them
    arrival   the central end offsets of those are taken; the ledger reaches them

Audit offsets are compared on the central cluster only: promises count if they are below the central
audit end taken in `promises`. Each of these promises was written to the edge before it was
mirrored, and its events were written before it. The events' end offsets at the edge are taken
later, so they are past these events. Offsets of the two clusters need no translation.

With several sites each phase waits for all of them: a cut has an audit end for every site
(`AuditOffsets`). A disconnected site keeps every type open, because its promises are unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from hourmark.clock import Clock
from hourmark.errors import Finding
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import CONTROL, events_topic
from hourmark_etl.closing.cut.readiness import (
    LatestReports,
    Readiness,
    adjust_for_new_sources,
    are_still_behind,
    compute_readiness_by_type,
    describe_clock_difference,
    find_new_sources,
    may_deliver,
)
from hourmark_etl.ledger.partitions.offset_gaps import EdgeCheck, OffsetGap
from hourmark_etl.model import (
    NO_AUDIT_OFFSETS,
    AuditOffsets,
    ClosingPhase,
    Frontier,
    ReportedSource,
)

EdgeEnds = Mapping[str, Mapping[Partition, int]]  # end offsets by site and edge partition
OVERDUE_MS: Final = 30_000  # an hour that waits longer than this reports what it waits for
NAMED_MAX: Final = 20
LAGGARD_SECONDS: Final = 10.0  # how long a topic that the mirror lags on may delay other types
# the same for a topic without staging progress, or this many times its last batch's duration:
STANDING_SECONDS: Final = 120.0
_BATCHES: Final = 3


class SiteClusters(Protocol):
    """Interface for querying the Kafka clusters of all sites.

    The results determine whether an hourly bucket may be closed. Each site has an edge cluster, and
    a mirror copies its topics to the central cluster. Topic names are those at the edge. An offset
    is always the next offset to read. `KafkaSiteClusters` is the implementation.
    """

    def check(self, types: Collection[str]) -> None:
        """Check all sites for records that may have been lost before they were staged.

        The check covers the topics of the given event types and the control topics (audit records
        and host reports). `gaps` returns the result.

        Args:
            types: Event types to check.

        Raises:
            Unavailable: A cluster does not answer or lacks a required topic.
        """

    def edge_ends(self, topics: Sequence[str]) -> EdgeEnds:
        """Return the end offsets of topics on the edge cluster of each site.

        Control topics (audit records, host reports) are queried first, one at a time at all sites.

        Args:
            topics: Topic names at the edge. Control topics are queried in this order.

        Returns:
            End offsets by site id and edge partition.
        """

    def find_unmirrored_topics(self, cut: EdgeEnds) -> dict[str, str]:
        """Return the topics that the mirrors have not yet copied up to the given end offsets.

        Args:
            cut: End offsets from `edge_ends`.

        Returns:
            Human-readable reasons, keyed by topic name at the edge; empty if everything was copied.
        """

    def gaps(self) -> dict[str, str]:
        """Return the topics that may have lost records, according to the last `check`.

        Records are lost if retention deletes them before they are mirrored, or if a topic is
        recreated. Hours that depend on such a topic must not be closed.

        Returns:
            Human-readable reasons, keyed by topic name at the edge; empty if no loss is known.
        """

    def find_acceptable_gaps(
        self, topics: Collection[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Return the gaps (possibly lost records) that an operator's override may accept.

        Args:
            topics: Topic names at the edge.

        Returns:
            A pair of the gaps and the edge checks, which contain positions from which later checks
            start. Store the edge checks when the gaps are accepted, so that the gaps are no longer
            reported. Both lists are empty if there is no gap.

        Raises:
            Unavailable: A cluster does not answer.
        """

    def central_ends(self, topics: Collection[str]) -> Mapping[Partition, int]:
        """Return the high watermarks of the topics of all sites on the central cluster.

        The method also detects audit topics that have lost records. If such a topic ends before the
        next offset to stage (copy to storage), the missing offsets are recorded in the ledger (the
        ETL's state database) as a gap, and hours stay open until an operator accepts it.

        Args:
            topics: Topic names at the edge.

        Returns:
            High watermark of each partition on the central cluster.
        """

    def close(self) -> None:
        """Close the connections to the clusters."""


class StagingProgress(Protocol):
    """Interface that reports how far the topics of the central Kafka cluster have been staged.

    Staging copies records from Kafka to files on storage. An hour is closed only after all records
    that may belong to it have been staged. `LedgerProgress` is the implementation. Its methods
    raise `Unavailable` if the ETL's state database does not respond.
    """

    def reporters(self) -> list[ReportedSource]:
        """Return the latest report of each log source on each host and delivery service.

        A report states the time up to which all data of the source has been delivered.

        Returns:
            The reports that have been staged, in no particular order.
        """

    def find_unstaged_partitions(self, ends: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Return the partitions that have not been staged up to the given end offsets.

        Args:
            ends: End offset of each partition on the central cluster.

        Returns:
            The next offset to stage for each such partition; empty if everything is staged.
        """

    def next_offset_to_stage(self, partition: Partition) -> int:
        """Return the next offset of a partition that staging will read.

        Args:
            partition: Topic-partition on the central cluster.

        Returns:
            The next offset to stage; 0 if nothing has been staged.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosingCut:
    """A consistent set of Kafka offsets, and the hourly buckets that may be closed with it.

    In a regular cut, all records below the offsets have been staged (copied to storage). In a cut
    for an operator's override, records may be missing.

    Attributes:
        taken_at_ms: Time at which the cut was started, in Unix milliseconds.
        watermarks_ms: Maps each event type to a time in Unix milliseconds. Hours that end at or
            before this time may be closed.
        audit_next: Maps each site to the end offset (exclusive) of the audit records that are
            taken into account.
        waived: Maps each event type to the latest reports of the log sources that its buckets no
            longer wait for, because the deadline has passed.
        unverified: Maps each event type to human-readable descriptions of the checks that were not
            possible or failed when an operator's override was applied.
    """

    taken_at_ms: int
    watermarks_ms: Mapping[str, int]
    audit_next: AuditOffsets  # audit records below count
    waived: Mapping[str, tuple[ReportedSource, ...]] = dataclasses.field(default_factory=dict)
    unverified: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def without_types(self, types: Collection[str]) -> ClosingCut:
        """Return a copy of the cut in which no bucket of the given event types may be closed.

        Args:
            types: Event types to remove. Types that are not in the cut are ignored.

        Returns:
            A new cut. This one is unchanged.
        """
        return dataclasses.replace(
            self, watermarks_ms={t: h for t, h in self.watermarks_ms.items() if t not in types}
        )


What = tuple[str, ...]


class Waiting(NamedTuple):
    """Reasons why no hourly bucket can be closed at present.

    Attributes:
        phase: The step of closing that has not completed.
        what: Human-readable descriptions of what the step waits for.
        by_type: Step and descriptions for each event type whose next hour has ended but cannot be
            closed.
    """

    phase: ClosingPhase
    what: What = ()
    by_type: Mapping[str, tuple[ClosingPhase, What]] = {}


class CutTaker:
    """Determines which hourly buckets are complete, by comparing offsets of all Kafka clusters.

    A cut is a set of end offsets of all topics, requested at about the same time. When all records
    below them have been mirrored and staged (copied to storage), every hour that all log sources
    had finished by then may be closed. Call `poll` repeatedly: each call advances the current cut
    without blocking. Not thread-safe.

    Args:
        sites: Interface to the Kafka clusters of all sites.
        progress: Interface to the progress of staging.
        audits: Maps the name of each central audit topic to its site id.
        clock: Clock for the current time.
        deadline_seconds: Time from the end of an hour to its deadline, in seconds. After the
            deadline, the hour no longer waits for log sources that have not delivered all data.
    """

    def __init__(
        self,
        sites: SiteClusters,
        progress: StagingProgress,
        audits: Mapping[str, str],
        clock: Clock,
        deadline_seconds: float,
    ) -> None:
        self._sites, self._progress, self._clock = sites, progress, clock
        self._audits = audits
        self._deadline_ms = round(deadline_seconds * 1000)
        self._events_since_s = 0.0
        self._staged: Mapping[
            Partition, tuple[int, float]
        ] = {}  # by awaited partition: next offset to stage, and since when
        self._paces_s: dict[
            Partition, float
        ] = {}  # how long each partition stood still before its last progress
        self._steps: Mapping[
            ClosingPhase, Callable[[Collection[Frontier]], ClosingCut | ClosingPhase | Waiting]
        ] = {
            ClosingPhase.REPORTS: self._reports,
            ClosingPhase.CONTROL: self._control,
            ClosingPhase.PROMISES: self._promises,
            ClosingPhase.EVENTS: self._events,
            ClosingPhase.ARRIVAL: self._arrival,
        }
        self._phase = ClosingPhase.REPORTS
        self._restart()

    def poll(self, frontiers: Collection[Frontier]) -> ClosingCut | Waiting:
        """Advance the current cut as far as possible without blocking.

        A cut is a set of end offsets of all topics. It is complete when all records below these
        offsets have been staged (copied to storage). Call this method repeatedly.

        Args:
            frontiers: The next hour to close for each event type that takes part.

        Returns:
            The cut if it is complete; the next call then starts a new one. Otherwise, a description
            of what the cut waits for.

        Raises:
            Unavailable: A cluster does not answer.
            Finding: An audit topic does not have exactly one partition.
        """
        while True:
            step = self._steps[self._phase](frontiers)
            if isinstance(step, ClosingPhase):
                self._phase = step
                continue
            if isinstance(step, ClosingCut):
                self._restart()
            return step

    def _restart(self) -> None:
        self._phase = ClosingPhase.REPORTS
        self._taken_at_ms = 0
        self._seen: list[ReportedSource] = []
        self._not_ready: dict[str, What] = {}
        self._chosen: dict[str, Readiness] = {}
        self._edge: EdgeEnds = {}
        self._central: Mapping[Partition, int] = {}  # ends of `_topics`, queried at `_asked_s`
        self._topics: Sequence[str] = ()
        self._asked_s = 0.0
        self._audit_next = NO_AUDIT_OFFSETS

    def _reports(self, frontiers: Collection[Frontier]) -> ClosingPhase | Waiting:
        self._taken_at_ms = now_ms = self._clock.now_ms()
        if not any(f.hour.end_ms <= now_ms for f in frontiers):
            return Waiting(ClosingPhase.REPORTS)
        self._seen = self._progress.reporters()
        reports, gaps = LatestReports(self._seen), self._sites.gaps()
        asked = compute_readiness_by_type(frontiers, reports, now_ms, self._deadline_ms)
        if for_all := [
            why
            for why in (describe_clock_difference(reports, now_ms), *map(gaps.get, CONTROL))
            if why
        ]:
            return self._waiting(
                ClosingPhase.REPORTS, for_all, dict.fromkeys(asked, tuple(for_all))
            )
        ends_ms = {f.event_type: f.awaited_ms for f in frontiers}
        self._chosen = {
            t: r
            for t, r in asked.items()
            if r.watermark_ms >= ends_ms[t] and events_topic(t) not in gaps
        }
        self._not_ready = {
            t: (why,) if (why := gaps.get(events_topic(t))) else r.waits_for
            for t, r in asked.items()
            if t not in self._chosen
        }
        if not self._chosen:
            return self._waiting(ClosingPhase.REPORTS, self._describe_overdue(frontiers), {})
        self._edge, self._asked_s = self._sites.edge_ends(CONTROL), self._clock.monotonic_s()
        return ClosingPhase.CONTROL

    def _describe_overdue(self, frontiers: Collection[Frontier]) -> list[str]:
        # Return what the oldest overdue hour waits for; empty if no hour is overdue by 30 s.
        waiting = [
            f
            for f in frontiers
            if f.event_type in self._not_ready and f.hour.end_ms + OVERDUE_MS <= self._taken_at_ms
        ]
        oldest = sorted(waiting, key=lambda f: (f.hour, f.event_type))[:1]
        return [
            f"{f.event_type} {f.hour} waits for {who}"
            for f in oldest
            for who in self._not_ready[f.event_type]
        ]

    def _control(self, _: Collection[Frontier]) -> ClosingPhase | Waiting:
        if behind := self._sites.find_unmirrored_topics(self._edge):
            if self._clock.monotonic_s() - self._asked_s >= LAGGARD_SECONDS:
                self._asked_s = self._clock.monotonic_s()
                if _is_shorter(self._sites.edge_ends(CONTROL), self._edge):
                    self._restart()
                    return ClosingPhase.REPORTS
            return self._waiting(ClosingPhase.CONTROL, list(behind.values()))
        self._query_central(CONTROL)
        if self._sites.gaps().keys() & CONTROL:
            self._restart()
            return ClosingPhase.REPORTS
        self._audit_next = AuditOffsets.from_offsets(
            {site: self._audit_end(topic) for topic, site in self._audits.items()}
        )
        return ClosingPhase.PROMISES

    def _query_central(self, topics: Sequence[str]) -> None:
        self._topics, self._central, self._asked_s = (
            topics,
            self._sites.central_ends(topics),
            self._clock.monotonic_s(),
        )

    def _not_staged(self) -> ClosingPhase | Waiting | None:
        # Return None if everything is staged, else what is missing. If a log has become shorter
        # than the cut, the cut can never be reached and starts again.
        behind, now_s = (
            self._progress.find_unstaged_partitions(self._central),
            self._clock.monotonic_s(),
        )
        for p, (at, since_s) in self._staged.items():
            if p in self._central and behind.get(p) != at:
                self._paces_s[p] = now_s - since_s
        since = {
            p: self._staged[p] if self._staged.get(p, (-1,))[0] == at else (at, now_s)
            for p, at in behind.items()
        }
        self._staged = {
            p: known for p, known in self._staged.items() if p not in self._central
        } | since
        if not behind:
            return None
        if now_s - self._asked_s >= LAGGARD_SECONDS:
            awaited, self._asked_s = self._central, now_s
            self._query_central(self._topics)
            if any(self._central.get(p, 0) < end for p, end in awaited.items()):
                self._restart()
                return ClosingPhase.REPORTS
            self._central = awaited
        return self._waiting(self._phase, describe_not_staged(behind, self._central))

    def _audit_end(self, audit: str) -> int:
        ends = [end for p, end in self._central.items() if p.topic == audit]
        if len(ends) != 1:
            raise Finding(
                f"topic {audit} has {len(ends)} partitions; but closing requires audit records "
                "in a single order. Recreate the topic with one partition"
            )
        return ends[0]

    def _promises(self, frontiers: Collection[Frontier]) -> ClosingPhase | Waiting:
        if waiting := self._not_staged():
            return waiting
        self._drop_unavailable_types(frontiers)
        known = self._progress.reporters()
        later, new = LatestReports(known), find_new_sources(self._seen, known)
        # promises of a new source may lie past the audit cut; the next cut includes them
        for f in frontiers:
            if chosen := self._chosen.pop(f.event_type, None):
                carried = [r for r in new if may_deliver(f, r)]
                kept = adjust_for_new_sources(
                    f, chosen, carried, self._taken_at_ms, self._deadline_ms
                )
                if kept and are_still_behind(f, chosen.waived, later):
                    self._chosen[f.event_type] = kept
                else:
                    appeared = tuple(f"{r.name} ({r.host_id}): has just appeared" for r in carried)
                    self._not_ready[f.event_type] = appeared or (
                        "a source that was behind has caught up",
                    )
        if not self._chosen:
            return self._abandon_cut()
        self._edge = self._sites.edge_ends([events_topic(t) for t in sorted(self._chosen)])
        self._events_since_s = self._clock.monotonic_s()
        return ClosingPhase.EVENTS

    def _events(self, _: Collection[Frontier]) -> ClosingPhase | Waiting:
        if behind := self._sites.find_unmirrored_topics(self._edge):
            what = list(behind.values())
            if self._clock.monotonic_s() - self._events_since_s < LAGGARD_SECONDS:
                return self._waiting(ClosingPhase.EVENTS, what)
            self._drop_lagging_types(behind)
            if not self._chosen:
                return self._abandon_cut()
        self._query_central(sorted(events_topic(t) for t in self._chosen))
        return ClosingPhase.ARRIVAL

    def _drop_unavailable_types(self, frontiers: Collection[Frontier]) -> None:
        # Remove types that are no longer open or readable, or whose topic has a gap.
        still, gaps = {f.event_type for f in frontiers}, self._sites.gaps()
        for event_type in list(self._chosen):
            if event_type not in still:
                del self._chosen[event_type]
            elif why := gaps.get(events_topic(event_type)):
                del self._chosen[event_type]
                self._not_ready[event_type] = (why,)

    def _abandon_cut(self) -> Waiting:
        # End a cut that has no types left, and return why each type left it.
        waiting = self._waiting(
            ClosingPhase.REPORTS,
            [f"{t}: {w}" for t, what in sorted(self._not_ready.items()) for w in what],
        )
        self._restart()
        return waiting

    def _drop_lagging_types(self, behind: Mapping[str, str]) -> None:
        # Move types whose topics lag behind to the next cut, so that they do not delay others.
        for event_type in [t for t in self._chosen if events_topic(t) in behind]:
            del self._chosen[event_type]
            self._not_ready[event_type] = (behind[events_topic(event_type)],)
        self._edge = {
            site: {p: end for p, end in ends.items() if p.topic not in behind}
            for site, ends in self._edge.items()
        }

    def _arrival(self, frontiers: Collection[Frontier]) -> ClosingPhase | ClosingCut | Waiting:
        if gone := self._chosen.keys() - {
            f.event_type for f in frontiers
        }:  # nothing more arrives for these types now
            self._postpone_types(gone)
            if not self._chosen:
                self._restart()
                return ClosingPhase.REPORTS
        if waiting := self._not_staged():
            if not isinstance(waiting, Waiting) or not (standing := self._stalled_types()):
                return waiting
            if (
                standing == self._chosen.keys()
            ):  # nothing else is awaited; other types whose hour has ended may join
                return self._wait_for_stalled(waiting)
            self._postpone_types(standing)
            return ClosingPhase.ARRIVAL
        return ClosingCut(
            taken_at_ms=self._taken_at_ms,
            watermarks_ms={t: r.watermark_ms for t, r in self._chosen.items()},
            audit_next=self._audit_next,
            waived={t: r.waived for t, r in self._chosen.items() if r.waived},
        )

    def _postpone_types(self, types: Collection[str]) -> None:
        for event_type in types:
            del self._chosen[event_type]
        topics = tuple(map(events_topic, types))
        self._central = {p: end for p, end in self._central.items() if not p.topic.endswith(topics)}
        self._topics = [t for t in self._topics if t not in topics]

    def _stalled_types(self) -> set[str]:
        # Return the types without staging progress for a long time; their shard's query may hang.
        # It is empty while any other awaited type is being staged.
        awaited = {
            t: [p for p in self._staged if p in self._central and p.topic.endswith(events_topic(t))]
            for t in self._chosen
        }
        standing = {t for t, of in awaited.items() if of and all(map(self._is_stalled, of))}
        return standing if not any(of for t, of in awaited.items() if t not in standing) else set()

    def _is_stalled(self, p: Partition) -> bool:
        # Return whether a partition's staging has stopped, given how long its batches take. The
        # second batch after a cut contains everything that the cut awaits.
        stood_s = self._clock.monotonic_s() - self._staged[p][1]
        return stood_s >= max(STANDING_SECONDS, _BATCHES * self._paces_s.get(p, 0.0))

    def _wait_for_stalled(self, waiting: Waiting) -> Waiting:
        # Keep waiting for stalled types, but restart the cut once it is 120 s old. The stalled
        # types then leave the new cut immediately.
        if self._clock.now_ms() - self._taken_at_ms >= STANDING_SECONDS * 1000:
            self._restart()
        return waiting

    def _waiting(
        self, phase: ClosingPhase, what: Sequence[str], by_type: Mapping[str, What] | None = None
    ) -> Waiting:
        lines = limit_lines(what)
        in_cut = (
            dict.fromkeys(self._chosen, (phase, lines))
            if by_type is None
            else {t: (phase, w) for t, w in by_type.items()}
        )
        out = {t: (ClosingPhase.REPORTS, limit_lines(w)) for t, w in self._not_ready.items() if w}
        return Waiting(phase, lines, out | in_cut)


def _is_shorter(now: EdgeEnds, before: EdgeEnds) -> bool:
    return any(
        now.get(site, {}).get(p, 0) < end
        for site, ends in before.items()
        for p, end in ends.items()
    )


def describe_not_staged(
    behind: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> list[str]:
    """Describe each partition that has not been staged up to the required offset.

    Staging copies records from the central Kafka cluster to files on storage.

    Args:
        behind: Next offset to stage for each partition, from
            `StagingProgress.find_unstaged_partitions`.
        ends: Required end offset of each partition.

    Returns:
        One human-readable line per partition, in the order of the partitions; empty if `behind` is
        empty.
    """
    return [
        f"staging: {p} is staged up to offset {at}, but the cut is {ends[p]}"
        for p, at in sorted(behind.items())
    ]


def limit_lines(lines: Sequence[str]) -> What:
    """Truncate a list of human-readable lines to the first 20.

    Args:
        lines: The lines.

    Returns:
        All lines if there are at most 20. Otherwise the first 20, followed by "and N more".
    """
    return (
        tuple(lines)
        if len(lines) <= NAMED_MAX
        else (*lines[:NAMED_MAX], f"and {len(lines) - NAMED_MAX} more")
    )
