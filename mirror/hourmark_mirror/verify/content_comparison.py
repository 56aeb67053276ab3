"""Compares the contents of topic-partitions on both clusters while retention and commits continue."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark_mirror.record_digests import open_reader, read_digests
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify.comparison import RecordComparison, compare_records
from hourmark_mirror.watch.observer import CLOCK_SKEW_MAX_MS

_LOG: Final = logging.getLogger(__name__)
COMMIT_S: Final = 90.0  # time for a transaction to end: brokers abort it after a minute
POLL_S: Final = 0.2
ATTEMPTS_MAX: Final = 3  # comparisons of a partition whose log start moves meanwhile


class ComparedPartition(NamedTuple):
    """Result of comparing one edge topic-partition with its copy on the central cluster.

    Attributes:
        partition: Topic-partition at the edge.
        cut: Log end offset at the edge (exclusive) when the verification began.
        position: Edge offset of the next record to copy; None if the mirror has no position.
        comparison: Numbers of equal and faulty records, and the spans of faulty records.
        settled: Whether the result is reliable. False if retention moved a log start during every
            attempt.
    """

    partition: Partition
    cut: int
    position: int | None
    comparison: RecordComparison
    settled: bool = True


class ContentComparer:
    """Compares edge topic-partitions with their copies on the central cluster, record by record.

    Each comparison opens Kafka consumers and closes them afterwards.
    """

    def __init__(
        self,
        sites: MirrorSites,
        clock: Clock,
        max_message_bytes: int,
        remotes: Mapping[Partition, Partition],
        recreated: Collection[str] = (),
    ) -> None:
        """Create a comparer for a fixed set of topic-partitions.

        Args:
            sites: Clients of both clusters.
            clock: Source of time and sleep.
            max_message_bytes: Maximum size of a record in bytes.
            remotes: Maps each edge topic-partition to compare to its remote topic-partition.
            recreated: Edge topics that were deleted and recreated. The target may have records of
                the deleted topic before those of the new one.
        """
        self._sites = sites
        self._clock = clock
        self._max_bytes = max_message_bytes
        self._remotes = remotes
        self._recreated = recreated

    def compare(
        self, cut: Mapping[Partition, int], positions: Mapping[Partition, int]
    ) -> list[ComparedPartition]:
        """Compare the records of each topic-partition on both clusters.

        Records are compared up to the offset in `cut`, or up to the mirror's position if it is
        lower. If a log start moves during the comparison, the topic-partition is compared again, up
        to 3 times in total.

        Args:
            cut: Maps each edge topic-partition to its log end offset when the verification began.
            positions: Maps each edge topic-partition to the offset of the next record to copy.

        Returns:
            One result for each topic-partition of this comparer.

        Raises:
            Unavailable: A cluster does not respond, or a transaction on the target does not end
                within 90 seconds.
        """
        remote_ends = self._committed_ends()
        ends = self._sites.edge.ends(list(self._remotes))
        found: dict[Partition, ComparedPartition] = {}
        left = list(self._remotes)
        for _ in range(ATTEMPTS_MAX):
            starts = self._starts(left)
            for p, comparison in self._compared(left, starts, ends, remote_ends, cut, positions):
                found[p] = ComparedPartition(p, cut[p], positions.get(p), comparison)
            now = self._starts(left)
            left = [p for p in left if now[p] != starts[p]]
            if not left:
                break
        return [compared._replace(settled=p not in left) for p, compared in found.items()]

    def _committed_ends(self) -> Mapping[Partition, int]:
        # The mirror's position may become visible before the records of its transaction, so wait
        # until no transaction below the target's end offsets is open.
        remotes, central = list(self._remotes.values()), self._sites.central
        ends, give_up_s = (
            central.ends(remotes, committed=False),
            self._clock.monotonic_s() + COMMIT_S,
        )
        while open_ := [p for p, end in central.ends(remotes).items() if end < ends[p]]:
            if self._clock.monotonic_s() >= give_up_s:
                raise Unavailable(
                    f"a transaction on {open_[0]} of the central cluster did not end within "
                    f"{COMMIT_S:.0f} s; check which other client writes there"
                )
            self._clock.sleep(POLL_S)
        return ends

    def _starts(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        edge = self._sites.edge.starts(partitions)
        central = self._sites.central.starts([self._remotes[p] for p in partitions])
        return {p: (edge[p], central[self._remotes[p]]) for p in partitions}

    def _compared(
        self,
        partitions: Sequence[Partition],
        starts: Mapping[Partition, tuple[int, int]],
        ends: Mapping[Partition, int],
        remote_ends: Mapping[Partition, int],
        cut: Mapping[Partition, int],
        positions: Mapping[Partition, int],
    ) -> list[tuple[Partition, RecordComparison]]:
        # Read after the log starts: what the target lacks had expired by then.
        now_ms = self._clock.now_ms()
        at_edge = self._sites.edge.topic_configs({p.topic for p in partitions})
        on_target = self._sites.central.topic_configs({self._remotes[p].topic for p in partitions})
        compared = []
        with (
            contextlib.closing(open_reader(self._sites.edge, self._max_bytes)) as source,
            contextlib.closing(open_reader(self._sites.central, self._max_bytes)) as target,
        ):
            for p in partitions:
                _LOG.info("comparing %s", p)
                remote, (edge_start, central_start) = self._remotes[p], starts[p]
                kept_ms = [
                    int(settings["retention.ms"])
                    for settings in (at_edge[p.topic], on_target[remote.topic])
                ]
                result = compare_records(
                    read_digests(source, p, edge_start, ends[p]),
                    read_digests(target, remote, central_start, remote_ends[remote]),
                    min(cut[p], positions.get(p, 0)),
                    allow_older=edge_start > 0 or p.topic in self._recreated,
                    target_was_trimmed=central_start > 0,
                    expired_before_ms=_expired_before_ms(now_ms, kept_ms),
                )
                compared.append((p, result))
        return compared


def _expired_before_ms(now_ms: int, kept_ms: Sequence[int]) -> int:
    # The longer retention of the two topics applies, because the target must keep a record at least as
    # long as the edge does. A negative retention is unlimited.
    return 0 if min(kept_ms) < 0 else now_ms - max(kept_ms) + CLOCK_SKEW_MAX_MS
