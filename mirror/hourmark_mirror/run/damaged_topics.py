"""Excludes topics with a damaged record batch from the mirror, so that all others are copied.

MirrorMaker 2 checks CRCs. If a batch is damaged, the consumer fails on every poll: the task stops
copying all of its partitions, uses a full core and does not fail (`MirrorSourceTask.poll` logs the
error and continues). No setting skips or isolates the partition.

This module therefore reads stalled partitions from the mirror's position. A topic with a damaged
batch there is added to `topics.exclude`, and MirrorMaker 2 is restarted. Only the event type of
that topic has to wait. The topic is retried and included again once it is readable: after another
replica has become leader, or after an operator has deleted the records up to the damage
(`kafka-delete-records`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.mirror import PartitionBehind
from hourmark.kafka.partitions_reader import DamagedBatch, PartitionError
from hourmark_mirror.run.stalls import StallTracker
from hourmark_mirror.run.task_status import ConnectorTaskFailure
from hourmark_mirror.settings.mirror_sites import MirrorSites

_LOG = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 5.0
STILL_S: Final = 15.0  # time without progress until a partition that is behind is read
AGAIN_S: Final = 60.0  # between retries of an excluded topic
_READ_MAX: Final = 100  # partitions at once: after an outage of the mirror, all are stalled
_STALL_S: Final = 10.0
_FETCH_BYTES: Final = 64 * 1024  # a broker returns a larger first batch nevertheless (KIP-74)


class DamagedTopics:
    """Failure detector that excludes topics with damaged record batches from replication.

    A MirrorMaker 2 task that reads a damaged batch stops copying all of its partitions. Therefore,
    the topic is excluded until its next batch can be read. Each change is reported as a failure, so
    that the caller restarts MirrorMaker 2 with the new list. Call `start_run` when MirrorMaker 2
    starts, then `failures` repeatedly. Not thread-safe.

    Args:
        sites: Clients of both clusters.
        clock: Source of monotonic time.

    Attributes:
        excluded: Maps each excluded edge topic to the damaged partition and the reason why it
            cannot be read.
    """

    def __init__(self, sites: MirrorSites, clock: Clock) -> None:
        self.excluded: dict[str, tuple[Partition, str]] = {}
        self._sites, self._clock = sites, clock
        self._positions = sites.positions()

    def start_run(self) -> None:
        """Reset the detector for a new run of MirrorMaker 2.

        The reported changes of the previous run are discarded. Excluded topics stay excluded.
        """
        self._progress, self._changes = StallTracker(STILL_S), list[ConnectorTaskFailure]()
        self._polled_s = self._tried_s = self._clock.monotonic_s()

    def failures(self) -> list[ConnectorTaskFailure]:
        """Return one failure for each topic that was excluded or included again in this run.

        The supervisor restarts MirrorMaker 2 if there is a failure. The method reads the clusters
        at most once every 5 seconds. After a change, it does not read them again until the next
        run.

        Returns:
            The changes of this run; empty if there are none.

        Raises:
            Unavailable: A cluster cannot be read.
        """
        now_s = self._clock.monotonic_s()
        if not self._changes and now_s - self._polled_s >= POLL_INTERVAL_S:
            self._polled_s = now_s
            self._poll(now_s)
        return self._changes

    def _poll(self, now_s: float) -> None:
        positions, partitions = self._positions.refresh(), self._sites.partitions()
        ends, starts = self._sites.edge.ends(partitions), self._sites.edge.starts(partitions)
        still = [
            entry
            for entry in self._progress.stalled_partitions(now_s, ends, starts, positions)
            if entry.partition.topic not in self.excluded
        ]
        for error in find_damaged_batches(self._sites.edge.settings, _sample(still), starts):
            self.excluded[error.partition.topic] = error.partition, str(error)
            why = f"{error}; the topic is excluded, all others are copied: docs/mirror.md"
            self._changes.append(ConnectorTaskFailure(error.partition.topic, why))
        if self.excluded and now_s - self._tried_s >= AGAIN_S:
            self._tried_s = now_s
            self._include_repaired(
                [*_excluded_partitions(self.excluded, ends, positions)], starts, partitions
            )

    def _include_repaired(
        self,
        excluded: list[PartitionBehind],
        starts: Mapping[Partition, int],
        existing: Collection[Partition],
    ) -> None:
        bad = {
            error.partition.topic
            for error in find_damaged_batches(self._sites.edge.settings, excluded, starts)
        }
        for topic in sorted(self.excluded.keys() - bad):
            partition, _ = self.excluded.pop(topic)
            gone = "" if partition in existing else " (the partition no longer exists)"
            self._changes.append(
                ConnectorTaskFailure(
                    topic, f"the topic can be read again{gone} and is copied again"
                )
            )


def _excluded_partitions(
    excluded: Mapping[str, tuple[Partition, str]],
    ends: Mapping[Partition, int],
    positions: Mapping[Partition, int],
) -> Iterator[PartitionBehind]:
    for partition, _ in excluded.values():
        if partition in ends:
            yield PartitionBehind(partition, ends[partition], positions.get(partition))


def _sample(still: list[PartitionBehind]) -> list[PartitionBehind]:
    return random.sample(still, _READ_MAX) if len(still) > _READ_MAX else still


def find_damaged_batches(
    edge: KafkaCluster, behind: Collection[PartitionBehind], starts: Mapping[Partition, int]
) -> list[PartitionError]:
    """Read the next uncopied record batch of each topic-partition, to detect damaged batches.

    Args:
        edge: Settings of the edge cluster.
        behind: Topic-partitions to read, each with the mirror's position.
        starts: Log start offsets at the edge. If a position is lower, the batch at the log start is
            read.

    Returns:
        One error for each topic-partition with a damaged batch; empty if there are none.

    Raises:
        Unavailable: The edge cluster does not respond.
    """
    found: list[PartitionError] = []
    spans = {}
    for entry in behind:
        start = max(entry.position or 0, starts.get(entry.partition, 0))
        if start < entry.cut:
            spans[entry.partition] = (start, start + 1)
    if spans:
        with _reader(edge) as reader:
            for _ in reader.read(spans, on_error=found.append):
                pass
    return [error for error in found if isinstance(error, DamagedBatch)]


@contextmanager
def _reader(edge: KafkaCluster) -> Iterator[CommittedReader]:
    settings = {
        "max_partition_fetch_bytes": _FETCH_BYTES,
        "message_max_bytes": _FETCH_BYTES,
        "fetch_max_bytes": _FETCH_BYTES,
    }
    reader = CommittedReader(edge, "edge", stall_s=_STALL_S, **settings)
    try:
        yield reader
    finally:
        reader.close()
