"""Records of both sides compared all the time, a few of each stretch that the mirror has copied:
what `verify` does in full.

Of a stretch, from where the last look ended to where the mirror stands now, two windows of
neighbouring records are read at the edge: its end, and one from a random place. The target's are
found by the first one's timestamp, which the mirror keeps; from there on they must be the same, in
the same order, with nothing between. What it can miss: one record wrong in a stretch of n is seen
with chance `WINDOW` / n, a run of r wrong ones with (WINDOW + r) / n; and what lies behind more
than `BEFORE_MAX` records of its time or a later one is not compared.

The target is read since a millisecond before the window's first record, of which some may be passed
over (`reading_since`), and the edge is asked for two before: from what it answers to the window are
at least as many records as the target has before it.
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

WINDOW: Final = 20  # records of each of the two
# partitions of a look: with looks each ten seconds, some sixteen records a second are read at each
# side
AT_ONCE: Final = 4
BEFORE_MAX: Final = 5000  # records of the target that are read to find the window's first


def first_difference(edge: Sequence[RecordDigest], target: Sequence[RecordDigest]) -> int | None:
    """The first edge offset of the window that the target does not have in its place; None: it has
    all.

    The target's records begin at or before the window's first. Where that is there several times,
    each may be meant.
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
    """Neighbouring records of the edge.

    `before`: at most so many are at the target between where it is read and them.
    """

    records: Sequence[RecordDigest]
    before: int


class RecordSampler:
    """Chooses by `rng`, reads, compares. Unavailable where a cluster does not answer.

    Its two consumers are kept: making them anew for each look would cost more than what they read.
    """

    def __init__(self, sites: MirrorSites, max_message_bytes: int, rng: random.Random) -> None:
        self._sites, self._max_bytes, self._rng = sites, max_message_bytes, rng
        self._readers: tuple[CommittedReader, CommittedReader] | None = None

    def close(self) -> None:
        """Leave the clusters; a later sample comes back to them."""
        readers, self._readers = self._readers, None
        for reader in readers or ():
            reader.close()

    def sample(
        self, stretches: Mapping[Partition, UnsampledRange], remotes: Mapping[Partition, Partition]
    ) -> dict[Partition, SampleResult]:
        """Of some of them, chosen at random."""
        there = sorted(p for p in stretches if p in remotes)
        chosen = self._rng.sample(there, min(AT_ONCE, len(there)))
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
                p: self._of(edge, central, p, remotes[p], stretches[p], begins[p], ends[remotes[p]])
                for p in chosen
            }
        except Unavailable:
            self.close()
            raise
        return {p: sample for p, sample in found.items() if sample is not None}

    def _of(
        self,
        edge: CommittedReader,
        central: CommittedReader,
        p: Partition,
        remote: Partition,
        stretch: UnsampledRange,
        begin: int,
        end: int,
    ) -> SampleResult | None:
        """None: nothing can be compared, as retention has deleted what was to be read, or no window
        can be placed.

        `begin`: of the edge's log; `end`: of the target's.
        """
        tail = max(stretch.first, stretch.end - WINDOW)
        starts = [self._rng.randrange(stretch.first, tail)] if tail > stretch.first else []
        windows = [
            _read(edge, p, start, min(start + WINDOW, stretch.end)) for start in [*starts, tail]
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
            stretch,
            compared,
            windows[-1][-1].timestamp_ms,
            next((o for o in differs if o is not None), None),
        )

    def _placed(self, p: Partition, window: Sequence[RecordDigest], begin: int) -> _Window | None:
        """None: it cannot be found, as it lies too far behind, or as the edge may have deleted what
        is before.
        """
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
