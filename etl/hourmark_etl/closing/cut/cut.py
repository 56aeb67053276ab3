"""The cut: in offsets and not in times, what must be on the central cluster, and staged, before an
hour may freeze.

Five phases, each waiting for one thing:

    reports   every live source is past the hour's end, by reports that are staged already, or the hour's deadline is
    control   the edge's ends of hosts, then of audit, are taken; the mirror reaches them
    promises  the central ends of both are taken; the ledger reaches them; nobody new has appeared in the reports, and whoever
              is to be waived is still behind by the reports of now
    events    the edge's ends of the types' topics are taken; the mirror reaches them
    arrival   the central ends of those are taken; the ledger reaches them

Audit offsets are compared on the central cluster only: the promises that count are those below the
central audit end taken in `promises`. Every one of them was at the edge before, and its events
before it, so the events' edge ends, taken afterwards, lie past them: no promise that counts can
have an event beyond the cut, and the offsets of the two clusters need no translation.

With several sites each phase waits for all of them: a cut has an audit end of every site
(`AuditOffsets`). A site that is cut off keeps every type open, as nobody can say what its hosts
were promised.
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
    Readiness,
    Reports,
    carries,
    clocks_apart,
    newly_seen,
    ready,
    still_waived,
    without_newly_seen,
)
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap
from hourmark_etl.model import NONE_MEANT, AuditOffsets, Frontier, Phase, Reporter

EdgeEnds = Mapping[
    str, Mapping[Partition, int]
]  # by site, of its edge's topics by their names there
OVERDUE_MS: Final = 30_000  # after its end, an hour that waits for somebody says for whom
NAMED_MAX: Final = 20
LAGGARD_SECONDS: Final = (
    10.0  # how long a topic that the mirror lags on may hold up the types beside it
)
# the same of one of which nothing is staged; or so many times as long as its last batch took:
STANDING_SECONDS: Final = 120.0
_BATCHES: Final = 3


class Sites(Protocol):
    """What a cut asks of the clusters: of all sites at once.

    Edge names throughout; offsets are the next to read.
    """

    def check(self, types: Collection[str]) -> None:
        """Look for gaps in the topics of these types, and of promises and reports; remember where
        the mirror stands.
        """

    def edge_ends(self, topics: Sequence[str]) -> EdgeEnds:
        """End offsets at each edge, topic by topic in this order: those of control topics at every
        edge before the next's.
        """

    def not_mirrored(self, cut: EdgeEnds) -> dict[str, str]:
        """Topics of which a mirror has yet to copy something below the cut, and what,
        human-readable; empty: all have reached it.
        """

    def gaps(self) -> dict[str, str]:
        """Topics of which records may never arrive (retention, a topic recreated), and why: nothing
        of them may freeze.
        """

    def acceptable(self, topics: Collection[str]) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """Offset gaps of these topics that an override may accept, and checks from where the edge's
        topics are watched again with it.
        """

    def central_ends(self, topics: Collection[str]) -> Mapping[Partition, int]:
        """High watermarks, on the central cluster, of the topics mirrored from these, of every
        site. Where a log of promises ends before what was staged of it, that is a gap from then on.
        """

    def close(self) -> None:
        """Leave the clusters."""


class StagingProgress(Protocol):
    """What a cut asks of the ledger."""

    def reporters(self) -> list[Reporter]:
        """Latest staged reports."""

    def not_staged(self, ends: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Of which something is below these central ends and not yet staged: the next offset to
        stage; empty: all is there.
        """

    def staged_next(self, partition: Partition) -> int:
        """The next offset to stage of a partition of the central cluster; 0 where nothing was
        staged of it.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """A finished cut: the hours of these types that end at or before their watermark may freeze.

    `waived`: by type, the sources that its hours go without. `unverified`: by type, what a cut by
    an operator's override skipped.
    """

    taken_at_ms: int
    watermarks_ms: Mapping[str, int]
    audit_next: AuditOffsets  # promises below count
    waived: Mapping[str, tuple[Reporter, ...]] = dataclasses.field(default_factory=dict)
    unverified: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def without(self, types: Collection[str]) -> Cut:
        """The same cut, of which these types take no part."""
        return dataclasses.replace(
            self, watermarks_ms={t: h for t, h in self.watermarks_ms.items() if t not in types}
        )


What = tuple[str, ...]


class Waiting(NamedTuple):
    """What a cut waits for now, human-readable; `by_type` says it of every type that waits for more
    than time.
    """

    phase: Phase
    what: What = ()
    by_type: Mapping[str, tuple[Phase, What]] = {}


class CutTaker:
    """Takes one cut after another; `poll` goes on as far as it can and never blocks on a
    condition.
    """

    def __init__(
        self,
        sites: Sites,
        progress: StagingProgress,
        audits: Mapping[str, str],
        clock: Clock,
        deadline_seconds: float,
    ) -> None:
        """`audits`: the central audit topics, and whose each is."""
        self._sites, self._progress, self._clock = sites, progress, clock
        self._audits = audits
        self._deadline_ms = round(deadline_seconds * 1000)
        self._events_since_s = 0.0
        self._staged: Mapping[
            Partition, tuple[int, float]
        ] = {}  # of what was awaited last: the next to stage, and since when
        self._paces_s: dict[
            Partition, float
        ] = {}  # how long what was awaited stood before it moved last
        self._steps: Mapping[Phase, Callable[[Collection[Frontier]], Cut | Phase | Waiting]] = {
            Phase.REPORTS: self._reports,
            Phase.CONTROL: self._control,
            Phase.PROMISES: self._promises,
            Phase.EVENTS: self._events,
            Phase.ARRIVAL: self._arrival,
        }
        self._phase = Phase.REPORTS
        self._begin_anew()

    def poll(self, frontiers: Collection[Frontier]) -> Cut | Waiting:
        """One poll.

        Each phase hands over to the next until one has to wait; a finished cut makes room for a new
        one.
        """
        while True:
            step = self._steps[self._phase](frontiers)
            if isinstance(step, Phase):
                self._phase = step
                continue
            if isinstance(step, Cut):
                self._begin_anew()
            return step

    def _begin_anew(self) -> None:
        self._phase = Phase.REPORTS
        self._taken_at_ms = 0
        self._seen: list[Reporter] = []
        self._not_ready: dict[str, What] = {}
        self._chosen: dict[str, Readiness] = {}
        self._edge: EdgeEnds = {}
        self._central: Mapping[Partition, int] = {}  # of these topics, asked at this time
        self._topics: Sequence[str] = ()
        self._asked_s = 0.0
        self._audit_next = NONE_MEANT

    def _reports(self, frontiers: Collection[Frontier]) -> Phase | Waiting:
        self._taken_at_ms = now_ms = self._clock.now_ms()
        if not any(f.hour.end_ms <= now_ms for f in frontiers):
            return Waiting(Phase.REPORTS)
        self._seen = self._progress.reporters()
        reports, gaps = Reports(self._seen), self._sites.gaps()
        asked = ready(frontiers, reports, now_ms, self._deadline_ms)
        if for_all := [
            why for why in (clocks_apart(reports, now_ms), *map(gaps.get, CONTROL)) if why
        ]:
            return self._waiting(Phase.REPORTS, for_all, dict.fromkeys(asked, tuple(for_all)))
        ends_ms = {f.event_type: f.hour.end_ms for f in frontiers}
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
            return self._waiting(Phase.REPORTS, self._overdue(frontiers), {})
        self._edge, self._asked_s = self._sites.edge_ends(CONTROL), self._clock.monotonic_s()
        return Phase.CONTROL

    def _overdue(self, frontiers: Collection[Frontier]) -> list[str]:
        """What the oldest hour waits for, once it is overdue."""
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

    def _control(self, _: Collection[Frontier]) -> Phase | Waiting:
        if behind := self._sites.not_mirrored(self._edge):
            if self._clock.monotonic_s() - self._asked_s >= LAGGARD_SECONDS:
                self._asked_s = self._clock.monotonic_s()
                if _is_shorter(self._sites.edge_ends(CONTROL), self._edge):
                    self._begin_anew()
                    return Phase.REPORTS
            return self._waiting(Phase.CONTROL, list(behind.values()))
        self._ask_centre(CONTROL)
        if self._sites.gaps().keys() & CONTROL:
            self._begin_anew()
            return Phase.REPORTS
        self._audit_next = AuditOffsets.of(
            {site: self._end_of(topic) for topic, site in self._audits.items()}
        )
        return Phase.PROMISES

    def _ask_centre(self, topics: Sequence[str]) -> None:
        self._topics, self._central, self._asked_s = (
            topics,
            self._sites.central_ends(topics),
            self._clock.monotonic_s(),
        )

    def _not_staged(self) -> Phase | Waiting | None:
        """What is to be staged first; a log that has lost records since may never reach to the cut,
        which then begins anew.
        """
        behind, now_s = self._progress.not_staged(self._central), self._clock.monotonic_s()
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
            self._ask_centre(self._topics)
            if any(self._central.get(p, 0) < end for p, end in awaited.items()):
                self._begin_anew()
                return Phase.REPORTS
            self._central = awaited
        return self._waiting(self._phase, readable(behind, self._central))

    def _end_of(self, audit: str) -> int:
        ends = [end for p, end in self._central.items() if p.topic == audit]
        if len(ends) != 1:
            raise Finding(
                f"topic {audit} has {len(ends)} partitions; closing needs one order of "
                "promises. Recreate it with one partition"
            )
        return ends[0]

    def _promises(self, frontiers: Collection[Frontier]) -> Phase | Waiting:
        if waiting := self._not_staged():
            return waiting
        self._leave_out(frontiers)
        known = self._progress.reporters()
        later, new = Reports(known), newly_seen(self._seen, known)
        # what a newly seen source promises may lie past the audit cut: the next cut will know it
        for f in frontiers:
            if chosen := self._chosen.pop(f.event_type, None):
                carried = [r for r in new if carries(f, r)]
                kept = without_newly_seen(f, chosen, carried, self._taken_at_ms, self._deadline_ms)
                if kept and still_waived(f, chosen.waived, later):
                    self._chosen[f.event_type] = kept
                else:
                    appeared = tuple(f"{r.name} ({r.host_id}): has just appeared" for r in carried)
                    self._not_ready[f.event_type] = appeared or (
                        "a source that was behind has caught up",
                    )
        if not self._chosen:
            return self._given_up()
        self._edge = self._sites.edge_ends([events_topic(t) for t in sorted(self._chosen)])
        self._events_since_s = self._clock.monotonic_s()
        return Phase.EVENTS

    def _events(self, _: Collection[Frontier]) -> Phase | Waiting:
        if behind := self._sites.not_mirrored(self._edge):
            what = list(behind.values())
            if self._clock.monotonic_s() - self._events_since_s < LAGGARD_SECONDS:
                return self._waiting(Phase.EVENTS, what)
            self._drop_topics(behind)
            if not self._chosen:
                return self._given_up()
        self._ask_centre(sorted(events_topic(t) for t in self._chosen))
        return Phase.ARRIVAL

    def _leave_out(self, frontiers: Collection[Frontier]) -> None:
        """Types that were set back, or have a partition that cannot be read, or of whose topic a
        gap was found.
        """
        still, gaps = {f.event_type for f in frontiers}, self._sites.gaps()
        for event_type in list(self._chosen):
            if event_type not in still:
                del self._chosen[event_type]
            elif why := gaps.get(events_topic(event_type)):
                del self._chosen[event_type]
                self._not_ready[event_type] = (why,)

    def _given_up(self) -> Waiting:
        """No type is left in the cut; the next one begins anew, and until then each waits for what
        put it out of this one.
        """
        waiting = self._waiting(
            Phase.REPORTS,
            [f"{t}: {w}" for t, what in sorted(self._not_ready.items()) for w in what],
        )
        self._begin_anew()
        return waiting

    def _drop_topics(self, behind: Mapping[str, str]) -> None:
        """Leave laggards to the next cut, so that they hold up nobody else."""
        for event_type in [t for t in self._chosen if events_topic(t) in behind]:
            del self._chosen[event_type]
            self._not_ready[event_type] = (behind[events_topic(event_type)],)
        self._edge = {
            site: {p: end for p, end in ends.items() if p.topic not in behind}
            for site, ends in self._edge.items()
        }

    def _arrival(self, frontiers: Collection[Frontier]) -> Phase | Cut | Waiting:
        if gone := self._chosen.keys() - {
            f.event_type for f in frontiers
        }:  # of which nothing more arrives for now
            self._leave_to_the_next(gone)
            if not self._chosen:
                self._begin_anew()
                return Phase.REPORTS
        if waiting := self._not_staged():
            if not isinstance(waiting, Waiting) or not (standing := self._standing()):
                return waiting
            if (
                standing == self._chosen.keys()
            ):  # it waits for nothing else: others whose hour has ended may join
                return self._left_standing(waiting)
            self._leave_to_the_next(standing)
            return Phase.ARRIVAL
        return Cut(
            taken_at_ms=self._taken_at_ms,
            watermarks_ms={t: r.watermark_ms for t, r in self._chosen.items()},
            audit_next=self._audit_next,
            waived={t: r.waived for t, r in self._chosen.items() if r.waived},
        )

    def _leave_to_the_next(self, types: Collection[str]) -> None:
        for event_type in types:
            del self._chosen[event_type]
        topics = tuple(map(events_topic, types))
        self._central = {p: end for p, end in self._central.items() if not p.topic.endswith(topics)}
        self._topics = [t for t in self._topics if t not in topics]

    def _standing(self) -> set[str]:
        """Types of which nothing was staged for long: their shard's query may hang.

        None while any other is being staged.
        """
        awaited = {
            t: [p for p in self._staged if p in self._central and p.topic.endswith(events_topic(t))]
            for t in self._chosen
        }
        standing = {t for t, of in awaited.items() if of and all(map(self._stands, of))}
        return standing if not any(of for t, of in awaited.items() if t not in standing) else set()

    def _stands(self, p: Partition) -> bool:
        """With batches that take long, the second one after a cut was taken has what it awaits:
        that is none that hangs.
        """
        stood_s = self._clock.monotonic_s() - self._staged[p][1]
        return stood_s >= max(STANDING_SECONDS, _BATCHES * self._paces_s.get(p, 0.0))

    def _left_standing(self, waiting: Waiting) -> Waiting:
        """It says what it waits for, and once it is as old begins anew; what stands now then leaves
        at once, beside others.
        """
        if self._clock.now_ms() - self._taken_at_ms >= STANDING_SECONDS * 1000:
            self._begin_anew()
        return waiting

    def _waiting(
        self, phase: Phase, what: Sequence[str], by_type: Mapping[str, What] | None = None
    ) -> Waiting:
        """Types that are in the cut wait for `what`; those that are not, for what keeps them out of
        it.
        """
        said = shortened(what)
        in_cut = (
            dict.fromkeys(self._chosen, (phase, said))
            if by_type is None
            else {t: (phase, w) for t, w in by_type.items()}
        )
        out = {t: (Phase.REPORTS, shortened(w)) for t, w in self._not_ready.items() if w}
        return Waiting(phase, said, out | in_cut)


def _is_shorter(now: EdgeEnds, before: EdgeEnds) -> bool:
    """Whether a log of an edge ends before where it did: it has lost records, and nobody can copy
    them.
    """
    return any(
        now.get(site, {}).get(p, 0) < end
        for site, ends in before.items()
        for p, end in ends.items()
    )


def readable(behind: Mapping[Partition, int], ends: Mapping[Partition, int]) -> list[str]:
    """What `not_staged` says of these ends."""
    return [
        f"staging: {p} is staged up to {at}, the cut is {ends[p]}"
        for p, at in sorted(behind.items())
    ]


def shortened(what: Sequence[str]) -> What:
    """As much of it as a person reads."""
    return (
        tuple(what)
        if len(what) <= NAMED_MAX
        else (*what[:NAMED_MAX], f"and {len(what) - NAMED_MAX} more")
    )
