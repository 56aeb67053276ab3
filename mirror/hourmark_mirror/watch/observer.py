"""Observes both clusters of a mirror with a few requests, regardless of the number of partitions.

The order of reads makes an observation consistent: positions, the edge's log starts and ends, then
the target. Records are only read at the first uncopied offset of partitions that were also behind
before, in stalled partitions, and at the beginning of a trimmed target log. If there are too many,
the rest is left to the next observation.
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
from hourmark.kafka.mirror import read_workers, recreated_topics
from hourmark_mirror.record_digests import RecordDigest, digests_since, open_reader, read_digests
from hourmark_mirror.run.task_status import ConnectorTaskFailure, TaskStates, status_topic
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.watch.alarms import (
    partitions_trimmed_on_target,
    stalled_partitions,
    unsampled_ranges,
)
from hourmark_mirror.watch.observation import (
    MirrorObservation,
    OversizedRecord,
    TruncatedRecord,
    WatchState,
)
from hourmark_mirror.watch.sampling import RecordSampler

PARTITIONS_READ_MAX: Final = 100  # partitions read per observation


class UncopiedTimestamps:
    """Cache for the timestamp of the first uncopied record in each topic-partition.

    Reading a timestamp requires a fetch from Kafka, so each observation reads a limited number of
    them. Topic-partitions that have not been read yet come first, followed by those read least
    recently.
    """

    def __init__(self) -> None:
        self._read: dict[Partition, tuple[int, int | None]] = {}

    def select_reads(self, behind: Mapping[Partition, int]) -> dict[Partition, int]:
        """Select up to 100 topic-partitions whose first uncopied record must be read now.

        Topic-partitions that have never been read come first. Those whose first uncopied offset has
        changed follow, least recently read first. Topic-partitions that are no longer behind are
        removed from the cache.

        Args:
            behind: First uncopied offset of each topic-partition that is behind, most urgent first.

        Returns:
            The offset to read for each selected topic-partition; empty if all timestamps are known.
        """
        self._read = {p: read for p, read in self._read.items() if p in behind}
        new = [p for p in behind if p not in self._read]
        moved = [p for p, (offset, _) in self._read.items() if offset != behind[p]]
        return {p: behind[p] for p in [*new, *moved][:PARTITIONS_READ_MAX]}

    def record_reads(
        self, offsets: Mapping[Partition, int], times_ms: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Store the timestamps that were read, and return all cached timestamps.

        Args:
            offsets: Topic-partitions and offsets from `select_reads`.
            times_ms: For each topic-partition, the timestamp of the record, in Unix milliseconds. A
                topic-partition is absent if no record was found.

        Returns:
            For each topic-partition, the timestamp of the first uncopied record in Unix
            milliseconds. Topic-partitions without a known timestamp are absent.
        """
        for p, offset in offsets.items():
            self._read.pop(p, None)
            self._read[p] = offset, times_ms.get(p)
        return {p: time_ms for p, (_, time_ms) in self._read.items() if time_ms is not None}


# Records searched for an oversized one: as many as a transaction of the mirror holds.
BLOCKING_MAX: Final = 5000
# target records searched for one of the edge, because timestamps are not strictly in order
NEIGHBOURS: Final = 200
CLOCK_SKEW_MAX_MS: Final = 300_000  # maximum difference between this clock and that of a broker


class MirrorObserver:
    """Reads the state of both clusters of a mirror, and compares samples of records.

    The state includes topics, offsets and positions. Kafka clients stay open between observations.
    The caller must close the observer. Not thread-safe.
    """

    def __init__(
        self,
        sites: MirrorSites,
        clock: Clock,
        *,
        max_message_bytes: int,
        expected: Sequence[str],
        counts_workers: bool = False,
    ) -> None:
        """Create the Kafka clients that observe both clusters.

        Args:
            sites: Clients of both clusters.
            clock: Source of time.
            max_message_bytes: Maximum size of a record in bytes.
            expected: Edge topics that should receive records regularly. The timestamp of the newest
                record is read for each of them.
            counts_workers: Whether to read the number of running MirrorMaker 2 workers.
        """
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
        self._sampler = RecordSampler(sites, max_message_bytes, random.Random())  # noqa: S311

    def close(self) -> None:
        """Close the connections to both clusters.

        The observer cannot be used afterwards.
        """
        self._positions.close()
        self._status.close()
        self._sampler.close()

    def observe(self, before: WatchState) -> MirrorObservation:
        """Read the current state of both clusters, and compare a sample of records.

        Args:
            before: Stored state after the previous observation, which determines the records to
                read.

        Returns:
            The state of both clusters, with the results of the comparison.

        Raises:
            Unavailable: A cluster does not respond. The call can be repeated later.
        """
        sites = self._sites
        topics = sites.topics()
        partitions = [Partition(t.name, p) for t in topics for p in t.partitions]
        positions = self._positions.refresh()
        starts, ends = sites.edge.starts(partitions), sites.edge.ends(partitions)
        remotes = sites.existing_remotes(partitions)
        remote_partitions = list(remotes.values())
        remote_starts, remote_ends = (
            sites.central.starts(remote_partitions),
            sites.central.ends(remote_partitions, committed=False),
        )
        ids = sites.central.topics({r.topic for r in remote_partitions})
        configs = sites.edge.topic_configs(t.name for t in topics)
        observation = MirrorObservation(
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
            workers=len(read_workers(sites.central, sites.alias).hosts)
            if self._counts_workers
            else None,
        )
        samples = self._sampler.sample(unsampled_ranges(observation, before), remotes)
        return self._read(dataclasses.replace(observation, samples=samples), before, remotes)

    def _failures(self) -> tuple[ConnectorTaskFailure, ...]:
        reset, records = self._status.poll()
        if reset:
            self._states = TaskStates("")
        self._states.update(records)
        return tuple(self._states.failures)

    def _newest(self, partitions: Sequence[Partition]) -> dict[str, int | None]:
        newest = self._sites.edge.newest_ms([p for p in partitions if p.topic in self._expected])
        return {
            topic: max((ms for p, ms in newest.items() if p.topic == topic), default=None)
            for topic in self._expected
        }

    def _read(
        self,
        observation: MirrorObservation,
        before: WatchState,
        remotes: Mapping[Partition, Partition],
    ) -> MirrorObservation:
        if recreated_topics(
            {name: known.topic_id for name, known in before.topics.items()}, observation.ids
        ):
            self._uncopied = UncopiedTimestamps()  # an offset may hold another record now
        behind = {
            p: _next_uncopied(observation, p)
            for p, end in observation.ends.items()
            if end > _next_uncopied(observation, p) and _was_behind(observation, before, p)
        }
        first = self._uncopied.select_reads(
            dict(sorted(behind.items(), key=lambda entry: entry[1] - observation.ends[entry[0]]))
        )
        moved = partitions_trimmed_on_target(observation, before)
        still = stalled_partitions(observation, before)[:PARTITIONS_READ_MAX]
        if not (first or moved or still):
            return dataclasses.replace(observation, uncopied_ms=self._uncopied.record_reads({}, {}))
        with (
            contextlib.closing(open_reader(self._sites.edge, self._max_bytes)) as edge,
            contextlib.closing(open_reader(self._sites.central, self._max_bytes)) as central,
        ):
            return dataclasses.replace(
                observation,
                uncopied_ms=self._uncopied.record_reads(first, _first_times(edge, first)),
                blocking=self._find_oversized(edge, observation, remotes, still),
                cut_off=self._find_truncated(
                    edge, central, observation, {p: remotes[p] for p in moved[:PARTITIONS_READ_MAX]}
                ),
                unread=frozenset(moved[PARTITIONS_READ_MAX:]),
            )

    def _find_oversized(
        self,
        edge: CommittedReader,
        observation: MirrorObservation,
        remotes: Mapping[Partition, Partition],
        still: Sequence[Partition],
    ) -> dict[Partition, OversizedRecord]:
        there = [p for p in still if p in remotes]
        configs = self._sites.central.topic_configs({remotes[p].topic for p in there})
        found = {}
        for p in there:
            limit = min(int(configs[remotes[p].topic]["max.message.bytes"]), 2 * self._max_bytes)
            for message in itertools.islice(
                _messages(edge, p, _next_uncopied(observation, p), observation.ends[p]),
                BLOCKING_MAX,
            ):
                size, offset = (
                    len(message.key() or b"") + len(message.value() or b""),
                    message.offset(),
                )
                if size > limit and offset is not None:
                    found[p] = OversizedRecord(offset, size, limit)
                    break
        return found

    def _find_truncated(
        self,
        edge: CommittedReader,
        central: CommittedReader,
        observation: MirrorObservation,
        moved: Mapping[Partition, Partition],
    ) -> dict[Partition, TruncatedRecord]:
        configs = self._sites.central.topic_configs({r.topic for r in moved.values()})
        found = {}
        for p, remote in moved.items():
            kept_ms = int(configs[remote.topic]["retention.ms"])
            if int(configs[remote.topic].get("retention.bytes", "-1")) >= 0:
                continue  # deletion by size may affect records of any age
            young_ms = observation.now_ms - kept_ms + CLOCK_SKEW_MAX_MS if kept_ms >= 0 else 0
            at_edge = self._sites.edge.at_time([p], young_ms)[p]
            copied = min(observation.positions.get(p, 0), observation.ends[p])
            first = _first_since(edge, p, at_edge, copied, young_ms)
            if first is None:
                continue
            since_ms, end = first.timestamp_ms - 1, observation.remote_ends[p]
            with digests_since(self._sites.central, central, remote, since_ms, end) as there:
                missing = all(
                    record.digest != first.digest for record in itertools.islice(there, NEIGHBOURS)
                )
            if missing:
                found[p] = TruncatedRecord(
                    first.offset, first.timestamp_ms, observation.remote_starts[p]
                )
        return found


def _next_uncopied(observation: MirrorObservation, p: Partition) -> int:
    return max(observation.positions.get(p, 0), observation.starts[p])


def _was_behind(observation: MirrorObservation, before: WatchState, p: Partition) -> bool:
    known = before.partition_state(p)
    return known is None or _next_uncopied(observation, p) < known.end


def _first_times(reader: CommittedReader, begins: Mapping[Partition, int]) -> dict[Partition, int]:
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
