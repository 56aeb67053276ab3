"""One look at both clusters, in the order that makes it true: positions, the edge's log starts and
ends, then the target.

It costs a handful of requests, whatever the number of partitions. Records are read of few: the
first that is not copied, where a partition was behind at the look before already; what blocks one
that stands still; and the beginning of a target that has moved. Where those are many, what a look
does not come to is the next one's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from confluent_kafka import Message

from hourmark.clock import Clock
from hourmark.kafka.clients import Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.compacted_topic import TopicFollower
from hourmark.kafka.mirror import recreated, workers
from hourmark_mirror.record_digests import RecordDigest, digests_since, open_reader, read_digests
from hourmark_mirror.run.task_status import TaskFailure, TaskStates, status_topic
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.watch.alarms import (
    partitions_trimmed_on_target,
    stalled_partitions,
    unsampled_ranges,
)
from hourmark_mirror.watch.observation import (
    Observation,
    OversizedRecord,
    TruncatedRecord,
    WatchState,
)
from hourmark_mirror.watch.sampling import RecordSampler

PARTITIONS_READ_MAX: Final = 100  # records of a look


class UncopiedTimestamps:
    """What was read of which partition: offset and time (Unix ms; None where no record stands
    there), the oldest first.
    """

    def __init__(self) -> None:
        self._read: dict[Partition, tuple[int, int | None]] = {}

    def select_reads(self, behind: Mapping[Partition, int]) -> dict[Partition, int]:
        """Of which to read now: partition → offset.

        `behind`: the first offset that is not copied, the most urgent first.

        What is not behind is forgotten. Those never read come first, then those that moved, the one
        read longest ago before.
        """
        self._read = {p: read for p, read in self._read.items() if p in behind}
        new = [p for p in behind if p not in self._read]
        moved = [p for p, (offset, _) in self._read.items() if offset != behind[p]]
        return {p: behind[p] for p in [*new, *moved][:PARTITIONS_READ_MAX]}

    def record_reads(
        self, asked: Mapping[Partition, int], times_ms: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """The times of all partitions that are behind, as far as they were ever read.

        `times_ms`: what was read now.
        """
        for p, offset in asked.items():
            self._read.pop(p, None)
            self._read[p] = offset, times_ms.get(p)
        return {p: time_ms for p, (_, time_ms) in self._read.items() if time_ms is not None}


BLOCKING_MAX: Final = (
    5000  # records looked through for one that blocks: as many as a transaction of the mirror holds
)
# records of the target among which one of the edge is looked for, whose timestamps are not in order
NEIGHBOURS: Final = 200
CLOCKS_APART_MS: Final = 300_000  # between this machine's clock and a broker's, by which it deletes


class MirrorObserver:
    """Looks again and again. Every look may raise Unavailable. Not thread-safe."""

    def __init__(
        self,
        sites: MirrorSites,
        clock: Clock,
        *,
        max_message_bytes: int,
        expected: Sequence[str],
        counts_workers: bool = False,
    ) -> None:
        self._sites, self._clock = sites, clock
        self._max_bytes, self._expected, self._counts_workers = (
            max_message_bytes,
            expected,
            counts_workers,
        )
        self._positions = sites.positions()
        self._uncopied = UncopiedTimestamps()
        self._states = TaskStates("")
        self._status = TopicFollower(sites.central.settings, status_topic(sites.alias))
        # which records are looked at
        self._sampler = RecordSampler(sites, max_message_bytes, random.Random())  # noqa: S311

    def close(self) -> None:
        """Leave the clusters."""
        self._positions.close()
        self._status.close()
        self._sampler.close()

    def observe(self, before: WatchState) -> Observation:
        """What there is now.

        `before`: what is remembered tells of which partitions records are read.
        """
        sites = self._sites
        topics = sites.topics()
        partitions = [Partition(t.name, p) for t in topics for p in t.partitions]
        positions = self._positions.refresh()
        starts, ends = sites.edge.starts(partitions), sites.edge.ends(partitions)
        remotes = sites.existing_remotes(partitions)
        there = list(remotes.values())
        remote_starts, remote_ends = (
            sites.central.starts(there),
            sites.central.ends(there, committed=False),
        )
        ids = sites.central.topics({r.topic for r in there})
        configs = sites.edge.topic_configs(t.name for t in topics)
        seen = Observation(
            now_ms=self._clock.now_ms(),
            ids={t.name: t.topic_id for t in topics},
            remote_ids={
                p.topic: ids[r.topic].topic_id for p, r in remotes.items() if r.topic in ids
            },
            starts=starts,
            ends=ends,
            positions=positions,
            remote_starts={p: remote_starts[r] for p, r in remotes.items()},
            remote_ends={p: remote_ends[r] for p, r in remotes.items()},
            retention_ms={
                name: int(settings["retention.ms"]) for name, settings in configs.items()
            },
            failures=self._failures(),
            newest_ms=self._newest(partitions),
            workers=len(workers(sites.central, sites.alias).hosts)
            if self._counts_workers
            else None,
        )
        samples = self._sampler.sample(unsampled_ranges(seen, before), remotes)
        return self._read(dataclasses.replace(seen, samples=samples), before, remotes)

    def _failures(self) -> tuple[TaskFailure, ...]:
        anew, records = self._status.poll()
        if anew:
            self._states = TaskStates("")
        self._states.update(records)
        return tuple(self._states.failures)

    def _newest(self, partitions: Sequence[Partition]) -> dict[str, int | None]:
        told = self._sites.edge.newest_ms([p for p in partitions if p.topic in self._expected])
        return {
            topic: max((ms for p, ms in told.items() if p.topic == topic), default=None)
            for topic in self._expected
        }

    def _read(
        self, seen: Observation, before: WatchState, remotes: Mapping[Partition, Partition]
    ) -> Observation:
        if recreated({name: known.topic_id for name, known in before.topics.items()}, seen.ids):
            self._uncopied = (
                UncopiedTimestamps()
            )  # what stood at an offset may be another record now
        behind = {
            p: _next(seen, p)
            for p, end in seen.ends.items()
            if end > _next(seen, p) and _was_behind(seen, before, p)
        }
        first = self._uncopied.select_reads(
            dict(sorted(behind.items(), key=lambda entry: entry[1] - seen.ends[entry[0]]))
        )
        moved = partitions_trimmed_on_target(seen, before)
        still = stalled_partitions(seen, before)[:PARTITIONS_READ_MAX]
        if not (first or moved or still):
            return dataclasses.replace(seen, uncopied_ms=self._uncopied.record_reads({}, {}))
        with (
            contextlib.closing(open_reader(self._sites.edge, self._max_bytes)) as edge,
            contextlib.closing(open_reader(self._sites.central, self._max_bytes)) as central,
        ):
            return dataclasses.replace(
                seen,
                uncopied_ms=self._uncopied.record_reads(first, _first_times(edge, first)),
                blocking=self._blocking(edge, seen, remotes, still),
                cut_off=self._cut_off(
                    edge, central, seen, {p: remotes[p] for p in moved[:PARTITIONS_READ_MAX]}
                ),
                unread=frozenset(moved[PARTITIONS_READ_MAX:]),
            )

    def _blocking(
        self,
        edge: CommittedReader,
        seen: Observation,
        remotes: Mapping[Partition, Partition],
        still: Sequence[Partition],
    ) -> dict[Partition, OversizedRecord]:
        there = [p for p in still if p in remotes]
        configs = self._sites.central.topic_configs({remotes[p].topic for p in there})
        found = {}
        for p in there:
            limit = min(int(configs[remotes[p].topic]["max.message.bytes"]), 2 * self._max_bytes)
            for message in itertools.islice(
                _messages(edge, p, _next(seen, p), seen.ends[p]), BLOCKING_MAX
            ):
                size, offset = (
                    len(message.key() or b"") + len(message.value() or b""),
                    message.offset(),
                )
                if size > limit and offset is not None:
                    found[p] = OversizedRecord(offset, size, limit)
                    break
        return found

    def _cut_off(
        self,
        edge: CommittedReader,
        central: CommittedReader,
        seen: Observation,
        moved: Mapping[Partition, Partition],
    ) -> dict[Partition, TruncatedRecord]:
        """The edge's first record that is copied, and too young for the target's retention, must be
        on the target.
        """
        configs = self._sites.central.topic_configs({r.topic for r in moved.values()})
        found = {}
        for p, remote in moved.items():
            kept_ms = int(configs[remote.topic]["retention.ms"])
            if int(configs[remote.topic].get("retention.bytes", "-1")) >= 0:
                continue  # what it deletes by size may be of any age
            young_ms = seen.now_ms - kept_ms + CLOCKS_APART_MS if kept_ms >= 0 else 0
            at_edge = self._sites.edge.at_time([p], young_ms)[p]
            copied = min(seen.positions.get(p, 0), seen.ends[p])
            first = _first_since(edge, p, at_edge, copied, young_ms)
            if first is None:
                continue
            since_ms, end = first.timestamp_ms - 1, seen.remote_ends[p]
            with digests_since(self._sites.central, central, remote, since_ms, end) as there:
                missing = all(
                    record.digest != first.digest for record in itertools.islice(there, NEIGHBOURS)
                )
            if missing:
                found[p] = TruncatedRecord(first.offset, first.timestamp_ms, seen.remote_starts[p])
        return found


def _next(seen: Observation, p: Partition) -> int:
    """The first offset that is not copied, of those that the edge still has."""
    return max(seen.positions.get(p, 0), seen.starts[p])


def _was_behind(seen: Observation, before: WatchState, p: Partition) -> bool:
    """Whether it has not yet come to where the edge's end was at the look before."""
    known = before.partition_state(p)
    return known is None or _next(seen, p) < known.end


def _first_times(reader: CommittedReader, begins: Mapping[Partition, int]) -> dict[Partition, int]:
    """The timestamps of the records that stand there; a partition whose record went meanwhile is
    left out.
    """
    found: dict[Partition, int] = {}
    for runs in reader.read({p: (at, at + 1) for p, at in begins.items()}):
        found |= {run.partition: run.records[0].timestamp()[1] for run in runs if run.records}
    return found


def _messages(
    reader: CommittedReader, p: Partition, start: int, end: int
) -> Generator[Message, None, None]:
    with contextlib.closing(reader.read({p: (start, end)})) as batches:
        for runs in batches:
            yield from (message for run in runs for message in run.records)


def _first_since(
    reader: CommittedReader, p: Partition, start: int, end: int, time_ms: int
) -> RecordDigest | None:
    with contextlib.closing(read_digests(reader, p, start, end)) as records:
        return next((record for record in records if record.timestamp_ms >= time_ms), None)
