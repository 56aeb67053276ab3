"""Compares samples of copied records on both clusters continuously; `verify` compares all of them.

Two windows of adjacent records are read at the edge, from the range that was copied since the last
observation: one at the end, and one at a random place. The first record is located on the target by
its timestamp, which the mirror preserves. From there on, the target must contain the same records
in the same order, with no others in between.

Detection is probabilistic. In a range of n records, a single wrong record is detected with
probability `WINDOW` / n, a run of r wrong records with (`WINDOW` + r) / n. A window is not compared
if more than `BEFORE_MAX` records of its timestamp or later precede it.

The target is read from one millisecond before the first record, where some records may be skipped
(`digests_since`), and the edge from two milliseconds before, so that the distance at the edge is
never smaller than on the target.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark_mirror.record_digests import RecordDigest, digests_since, open_reader, read_digests
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.watch.observation import SampleResult, UnsampledRange

WINDOW: Final = 20  # records in each of the two windows
# partitions sampled per observation: with one every ten seconds, about sixteen records a second
# are read on each side
PARTITIONS_SAMPLED_MAX: Final = 4
BEFORE_MAX: Final = 5000  # target records read to find the first one of the window


def first_difference(edge: Sequence[RecordDigest], target: Sequence[RecordDigest]) -> int | None:
    """Compare consecutive edge records with the target, and return the first offset that differs.

    Args:
        edge: Consecutive records of the edge in offset order; not empty.
        target: Records of the target in offset order, beginning at or before the copy of the first
            edge record. If that record occurs several times, the occurrence followed by the most
            matches is used.

    Returns:
        Edge offset of the first record that is missing or out of order on the target. None if the
        target contains all records of `edge` in order, with no other records in between.
    """
    best = 0
    for at, record in enumerate(target):
        if record.digest == edge[0].digest:
            pairs = itertools.zip_longest(edge, target[at : at + len(edge)])
            same = sum(
                1
                for _ in itertools.takewhile(
                    lambda two: two[1] is not None and two[0].digest == two[1].digest, pairs
                )
            )
            if same == len(edge):
                return None
            best = max(best, same)
    return edge[best].offset


class _Window(NamedTuple):
    records: Sequence[RecordDigest]
    before: int


class RecordSampler:
    """Compares randomly chosen edge records with their copies on the central cluster.

    Two Kafka consumers stay open between samples, because opening them costs more than reading. The
    caller must close the sampler.

    Args:
        sites: Clients of both clusters.
        max_message_bytes: Maximum size of a record in bytes.
        rng: Random number generator for choosing topic-partitions and records.
    """

    def __init__(self, sites: MirrorSites, max_message_bytes: int, rng: random.Random) -> None:
        self._sites, self._max_bytes, self._rng = sites, max_message_bytes, rng
        self._readers: tuple[CommittedReader, CommittedReader] | None = None

    def close(self) -> None:
        """Close the Kafka consumers of both clusters.

        A later call of `sample` opens them again.
        """
        readers, self._readers = self._readers, None
        for reader in readers or ():
            reader.close()

    def sample(
        self, ranges: Mapping[Partition, UnsampledRange], remotes: Mapping[Partition, Partition]
    ) -> dict[Partition, SampleResult]:
        """Compare a sample of records in up to 4 randomly chosen topic-partitions.

        Args:
            ranges: For each edge topic-partition, the offset range that was copied but not sampled
                yet.
            remotes: Remote topic-partition for each edge topic-partition. An edge topic-partition
                without an entry is not sampled.

        Returns:
            The result for each compared topic-partition; empty if there is nothing to compare.

        Raises:
            Unavailable: A cluster does not respond. The consumers are closed, and the call can be
                repeated.
        """
        there = sorted(p for p in ranges if p in remotes)
        chosen = self._rng.sample(there, min(PARTITIONS_SAMPLED_MAX, len(there)))
        if not chosen:
            return {}
        ends = self._sites.central.ends([remotes[p] for p in chosen], committed=False)
        if self._readers is None:
            edge_reader = open_reader(self._sites.edge, self._max_bytes)
            self._readers = edge_reader, open_reader(self._sites.central, self._max_bytes)
        edge, central = self._readers
        begins = self._sites.edge.starts(chosen)
        try:
            found = {
                p: self._sample_partition(
                    edge, central, p, remotes[p], ranges[p], begins[p], ends[remotes[p]]
                )
                for p in chosen
            }
        except Unavailable:
            self.close()
            raise
        return {p: sample for p, sample in found.items() if sample is not None}

    def _sample_partition(
        self,
        edge: CommittedReader,
        central: CommittedReader,
        p: Partition,
        remote: Partition,
        unsampled: UnsampledRange,
        begin: int,
        end: int,
    ) -> SampleResult | None:
        tail = max(unsampled.first, unsampled.end - WINDOW)
        starts = [self._rng.randrange(unsampled.first, tail)] if tail > unsampled.first else []
        windows = [
            _read(edge, p, start, min(start + WINDOW, unsampled.end)) for start in [*starts, tail]
        ]
        if not all(windows):
            return None
        placed = [
            found for window in windows if (found := self._placed(p, window, begin)) is not None
        ]
        if not placed:
            return None
        differs = [self._differs(central, remote, one, end) for one in placed]
        compared = len({record.offset for one in placed for record in one.records})
        return SampleResult(
            unsampled,
            compared,
            windows[-1][-1].timestamp_ms,
            next((o for o in differs if o is not None), None),
        )

    def _placed(self, p: Partition, window: Sequence[RecordDigest], begin: int) -> _Window | None:
        first = self._sites.edge.at_time([p], window[0].timestamp_ms - 2)[p]
        before = window[0].offset - first
        return None if first == begin > 0 or before > BEFORE_MAX else _Window(window, before)

    def _differs(
        self, central: CommittedReader, remote: Partition, window: _Window, end: int
    ) -> int | None:
        since_ms, count = window.records[0].timestamp_ms - 1, window.before + len(window.records)
        with digests_since(self._sites.central, central, remote, since_ms, end) as there:
            return first_difference(window.records, list(itertools.islice(there, count)))


def _read(reader: CommittedReader, p: Partition, start: int, end: int) -> list[RecordDigest]:
    with contextlib.closing(read_digests(reader, p, start, end)) as records:
        return list(itertools.islice(records, WINDOW))
