"""Where staging begins again with a rebuilt ledger, which staged files count beside it, and which
offsets are gaps.

Nothing is concluded about which batches had been committed. Staging begins

- of events, where the type's markers say that every record below stands in a closed bucket, or at
  the log start;
- of promises and reports, at the log start. What is staged twice is dropped by its id; a promise,
  by its range.

What Kafka no longer holds, at either end of its logs, is listed from staged files: each says what
it holds, and its name that it says so truly. What neither has is a gap. Of promises, back to the
first that may count for an hour that is open: they hold every type until an override accepts that.
Of events, it is only named: promises tell whether anything is missing, and then the hour is forced.

A log that ends before what was staged, settled or closed of it has lost records, and others take
their offsets: it counts as in `batches.restart_truncated_logs`. Staged files of such promises are listed as if
Kafka held none of them. Once the log has grown again the recorded gap alone tells of it: of such a
log of events no offset in markers means anything, and all staged files count.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection

from hourmark.errors import Finding
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark_etl.ledger.batches import expired_gap, put_positions, truncated_gap
from hourmark_etl.ledger.offset_gaps import OffsetGap, has_lost_end, put_checks, put_gaps
from hourmark_etl.model import DEFAULT_SHARD, FIRST_SITE, NONE_MEANT, AuditOffsets, Position, Span
from hourmark_etl.recovery.offset_records import KnownOffsets, read_offset_records
from hourmark_etl.recovery.rebuilt import Outside, Rebuilt
from hourmark_etl.recovery.relisting import Relisting
from hourmark_etl.recovery.storage_scan import Chain, Key, uncovered
from hourmark_etl.topics import CentralTopics


@dataclasses.dataclass(frozen=True)
class Logs:
    """Partitions on the central cluster that stand, and where their logs begin and end."""

    live: Mapping[Key, Partition]
    starts: Mapping[Key, int]
    ends: Mapping[Key, int]
    epochs: Mapping[Key, int]  # of their leaders; 0, the first one, where brokers do not say


@dataclasses.dataclass(kw_only=True)
class OffsetsRebuild:
    """`promised`: the first promises that may count for an open hour. What is found is told in
    `done`.
    """

    connection: Connection
    outside: Outside
    done: Rebuilt
    topics: CentralTopics
    chains: Mapping[str, Chain]
    shards: Mapping[str, str]  # by type
    promised: AuditOffsets
    changed: set[str] = dataclasses.field(
        default_factory=set
    )  # topics (edge names) of which the lost ledger knew a lost end

    def run(self) -> tuple[KnownOffsets, list[OffsetGap]]:
        """Puts positions, staged files, checks and gaps.

        What the lost ledger's records told; and lost ends that none did.
        """
        known, logs = self._put_known(), self._logs()
        self.changed = {gap.topic for gap in known.gaps if has_lost_end(gap)}
        closed = self._closed_next(self.changed)
        staged = Relisting(
            connection=self.connection, storage=self.outside.storage, ledger=self.done.ledger
        )
        shorter = self._put_staged(logs, closed, staged, known)
        positions = self._put_positions(logs, closed, shorter)
        ends = self._lost_ends(positions, shorter, known.gaps)
        recorded = {(gap.topic, gap.what) for gap in known.gaps}
        found = [
            *ends,
            *(
                gap
                for gap in self._not_held(positions, staged)
                if (gap.topic, gap.what) not in recorded
            ),
        ]
        found += [
            gap
            for gap in self._unproven(logs, staged, known, shorter)
            if (gap.topic, gap.what) not in recorded
        ]
        put_gaps(self.connection, found)
        self.done.lost += [gap.what for gap in (*known.gaps, *found) if gap.accepted_at_ms is None]
        return known, [gap for gap in ends if (gap.topic, gap.what) not in recorded]

    def _put_known(self) -> KnownOffsets:
        found = read_offset_records(self.outside.storage, self.done.ledger)
        self.done.notes += found.notes
        if found.checks is None:
            self.done.notes.append("nothing tells which gaps the lost ledger knew")
            if self.outside.kafka.mirrored:
                self.done.notes[-1] += (
                    ", nor what the mirror had copied: types of whose topics an edge has "
                    "deleted records stay open, whether "
                    "these were copied or not, until `hourmark bucket force` accepts it"
                )
        put_checks(self.connection, found.checks or ())
        put_gaps(self.connection, found.gaps)
        return found

    def _logs(self) -> Logs:
        central = self.outside.central
        live = {
            (info.topic_id, n): Partition(info.name, n)
            for info in central.topics(self.topics.all).values()
            for n in info.partitions
        }
        starts, ends = central.starts([*live.values()]), central.ends([*live.values()])
        epochs = {key: getattr(ends[p], "leader_epoch", None) or 0 for key, p in live.items()}
        return Logs(
            live,
            {key: starts[p] for key, p in live.items()},
            {key: ends[p] for key, p in live.items()},
            epochs,
        )

    def _closed_next(self, changed: Collection[str] = ()) -> dict[Key, int]:
        """Below which all events stand in closed buckets; of no topic that changed: its offsets
        mean others now.
        """
        sure = [chain for t, chain in self.chains.items() if events_topic(t) not in changed]
        return {key: offset for chain in sure for key, offset in chain.closed_next.items()}

    def _put_staged(
        self, logs: Logs, closed: Mapping[Key, int], staged: Relisting, known: KnownOffsets
    ) -> dict[Key, int]:
        """Lists files; returns logs that end before this offset was known.

        Finding for promises of a topic that is not there.
        """
        audits = self.topics.audits

        def counts_from(s: Span) -> int:
            return (
                self.promised.at(audits[s.topic])
                if s.topic in audits
                else closed.get((s.topic_id, s.partition), 0)
            )

        def is_needed(s: Span) -> bool:
            key = s.topic_id, s.partition
            if key not in logs.live and s.topic in audits:
                raise Finding(
                    f"topic {s.topic} partition {s.partition} is not the one whose promises "
                    f"were staged (of id {s.topic_id}): "
                    "offsets in markers mean others there. Bring that topic back, or begin a "
                    "new ledger and root"
                )
            if not (counts_from(s) < s.end and key in logs.live):
                return False
            is_there = logs.starts[key] <= s.start and s.end <= logs.ends[key]
            return not is_there or (
                s.topic not in audits and self.topics.at_edge(s.topic) in self.changed
            )

        staged.put(is_needed)
        if shorter := self._find_shorter(logs, staged, known):
            staged.put(lambda s: (s.topic_id, s.partition) in shorter and counts_from(s) < s.end)
        self.done.staged_files = len(staged.listed)
        self.done.notes += [
            f"{path} is not to be read ({error.why})" for path, error in staged.unreadable.items()
        ]
        return shorter

    def _find_shorter(self, logs: Logs, staged: Relisting, offsets: KnownOffsets) -> dict[Key, int]:
        settled = functools.reduce(
            AuditOffsets.joined, (c.settled_next for c in self.chains.values()), NONE_MEANT
        )
        self._refuse_other_sites(settled)
        audits = {
            key: site
            for key, p in logs.live.items()
            if (site := self.topics.audits.get(p.topic)) is not None
        }
        known = {
            (o.topic_id, o.partition): o.next
            for chain in self.chains.values()
            for o in chain.last.offsets
        }
        known |= {key: settled.at(site) for key, site in audits.items()}
        reached = {key: max(known.get(key, 0), staged.ends[key]) for key in logs.live}
        truncated = self._truncated(logs, staged, offsets)
        return {key: to for key, to in reached.items() if logs.ends[key] < to or key in truncated}

    def _evidence(self, staged: Relisting, known: KnownOffsets) -> dict[Key, dict[int, int]]:
        """By partition and leader epoch, the offset after the last record of that epoch that was
        staged.
        """
        found = {key: dict(epochs) for key, epochs in staged.epochs.items()}
        for at in known.staged:
            epochs = found.setdefault((at.topic_id, at.partition), {})
            epochs[at.leader_epoch] = max(at.epoch_next, epochs.get(at.leader_epoch, 0))
        return found

    def _truncated(self, logs: Logs, staged: Relisting, known: KnownOffsets) -> set[Key]:
        """Logs that lost records which were staged, by their leader epochs, however long these logs
        are now.

        A record of the leader that still leads cannot be lost.
        """
        by_epoch = defaultdict[int, dict[Partition, tuple[int, int]]](dict)
        keys = {p: key for key, p in logs.live.items()}
        for key, epochs in self._evidence(staged, known).items():
            for epoch, after in epochs.items() if key in logs.live else ():
                if epoch < logs.epochs[key] and logs.starts[key] <= after:
                    by_epoch[epoch][logs.live[key]] = (after, epoch)
        found = (p for begins in by_epoch.values() for p in self.outside.central.truncated(begins))
        return {keys[p] for p in found}

    def _unproven(
        self, logs: Logs, staged: Relisting, known: KnownOffsets, shorter: Mapping[Key, int]
    ) -> list[OffsetGap]:
        """Logs of promises that were led by others since the last record that is known to have been
        staged.

        A leader that began without the log's end has lost it, and nothing that is left tells
        whether one did.
        """
        evidence, gaps = self._evidence(staged, known), []
        for key, p in sorted(logs.live.items()):
            last = max(evidence.get(key, {}), default=0)
            if p.topic in self.topics.audits and key not in shorter and logs.epochs[key] > last:
                what = (
                    f"topic {p.topic} partition {p.partition}: its leader epoch is "
                    f"{logs.epochs[key]}, and the last record known "
                    f"to be staged has {last}: nothing shows that no promises were lost between"
                )
                gaps.append(OffsetGap(topic=AUDIT, accepted_at_ms=None, what=what, lost_end=False))
        return gaps

    def _refuse_other_sites(self, settled: AuditOffsets) -> None:
        """Finding where a marker speaks of a site that is not configured: its promises would be
        left out for ever.
        """
        if gone := sorted(settled.further.keys() - set(self.topics.audits.values())):
            raise Finding(
                f"markers name the sites {', '.join(gone)}, which kafka.further_edges "
                "does not; name them as before"
            )
        first = self.topics.aliases[FIRST_SITE]
        for event_type, chain in self.chains.items() if len(self.topics.aliases) > 1 else ():
            own = central_topic(events_topic(event_type), first)
            if chain.last.offsets and own not in {o.topic for o in chain.last.offsets}:
                raise Finding(
                    f"the last bucket of {event_type} holds nothing of {own}: let "
                    "kafka.edge be the site that it was"
                )

    def _put_positions(
        self, logs: Logs, closed: Mapping[Key, int], shorter: Mapping[Key, int]
    ) -> dict[Key, Position]:
        begins = {key: max(start, closed.get(key, 0)) for key, start in logs.starts.items()}
        for key, to in shorter.items():
            begins[key] = to if logs.live[key].topic in self.topics.audits else logs.starts[key]
        gone = {  # of topics that are gone too: the driver says so
            (o.topic_id, o.partition): Partition(o.topic, o.partition)
            for chain in self.chains.values()
            for o in chain.last.offsets
        }
        cluster_id = self.outside.central.cluster_id()
        shards = {topic: self.shards[event_type] for topic, event_type in self.topics.types.items()}
        positions = {
            key: Position(
                cluster_id=cluster_id,
                topic_id=key[0],
                topic=p.topic,
                partition=p.partition,
                next_offset=begins.get(key, closed.get(key, 0)),
                shard=shards.get(p.topic, DEFAULT_SHARD),
            )
            for key, p in {**gone, **logs.live}.items()
        }
        put_positions(self.connection, positions.values())
        return positions

    def _lost_ends(
        self,
        positions: Mapping[Key, Position],
        shorter: Mapping[Key, int],
        known: Sequence[OffsetGap],
    ) -> list[OffsetGap]:
        held = {(gap.topic, gap.what) for gap in known if gap.accepted_at_ms is None}
        moved = [dataclasses.replace(positions[key], next_offset=to) for key, to in shorter.items()]
        gaps = [
            truncated_gap(self.topics.at_edge(p.topic), p)
            for p in moved
            if p.topic not in self.topics.hosts
        ]
        self.done.notes += [
            f"{gap.what}: it is staged again from its start" for gap in gaps if gap.topic != AUDIT
        ]
        return [self._named(gap) for gap in gaps if (gap.topic, gap.what) not in held]

    def _not_held(
        self, positions: Mapping[Key, Position], staged: Relisting
    ) -> Iterator[OffsetGap]:
        """Below the positions, what neither Kafka nor a file has."""
        closed = self._closed_next()
        for key, p in sorted(positions.items()):
            if p.topic in self.topics.hosts:
                continue  # later reports say what the lost ones said, or their host is silent
            site = self.topics.audits.get(p.topic)
            needed = closed.get(key, 0) if site is None else self.promised.at(site)
            for first, end in uncovered(needed, p.next_offset, staged.spans.get(key, ())):
                yield self._named(
                    expired_gap(
                        self.topics.at_edge(p.topic), dataclasses.replace(p, next_offset=first), end
                    )
                )

    def _named(self, gap: OffsetGap) -> OffsetGap:
        """Of events, a gap holds nothing."""
        if gap.topic == AUDIT:
            return gap
        return dataclasses.replace(
            gap, accepted_at_ms=self.outside.now_ms, reason="the ledger was rebuilt"
        )
