"""Records of both sides compared all the time, a few of each stretch that the mirror has copied: what `verify` does in full.

Of a stretch, from where the last look ended to where the mirror stands now, two windows of neighbouring records are read at the
edge: its end, and one from a random place. The target's are found by the first one's timestamp, which the mirror keeps; from
there on they must be the same, in the same order, with nothing between. What it can miss: one record wrong in a stretch of n is
seen with chance `WINDOW` / n, a run of r wrong ones with (WINDOW + r) / n.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final

from hourmark.committed_reader import CommittedReader
from hourmark.errors import Unavailable
from hourmark.kafka import Partition
from hourmark_mirror.observed import Sample, Stretch
from hourmark_mirror.reading import Record, read_span, span_reader
from hourmark_mirror.sites import Sites

WINDOW: Final = 20  # records of each of the two
AT_ONCE: Final = 4  # partitions of a look: with looks each ten seconds, some sixteen records a second are read at each side
BEFORE: Final = 200  # records of the target among which the first is looked for, where several have its timestamp


def difference(edge: Sequence[Record], target: Sequence[Record]) -> int | None:
    """The first edge offset of the window that the target does not have in its place; None: it has all.

    The target's records begin at or before the window's first. Where that is there several times, each may be meant.
    """
    best = 0
    for at, record in enumerate(target):
        if record.digest == edge[0].digest:
            pairs = itertools.zip_longest(edge, target[at : at + len(edge)])
            same = sum(1 for _ in itertools.takewhile(lambda two: two[1] is not None and two[0].digest == two[1].digest, pairs))
            if same == len(edge):
                return None
            best = max(best, same)
    return edge[best].offset


class Sampler:
    """Chooses by `rng`, reads, compares. Unavailable where a cluster does not answer.

    Its two consumers are kept: making them anew for each look would cost more than what they read.
    """

    def __init__(self, sites: Sites, max_message_bytes: int, rng: random.Random) -> None:
        self._sites, self._max_bytes, self._rng = sites, max_message_bytes, rng
        self._readers: tuple[CommittedReader, CommittedReader] | None = None

    def close(self) -> None:
        """Leave the clusters; a later sample comes back to them."""
        readers, self._readers = self._readers, None
        for reader in readers or ():
            reader.close()

    def sample(self, stretches: Mapping[Partition, Stretch], remotes: Mapping[Partition, Partition]) -> dict[Partition, Sample]:
        """Of some of them, chosen at random."""
        there = sorted(p for p in stretches if p in remotes)
        chosen = self._rng.sample(there, min(AT_ONCE, len(there)))
        if not chosen:
            return {}
        ends = self._sites.central.ends([remotes[p] for p in chosen], committed=False)
        if self._readers is None:
            edge_reader = span_reader(self._sites.edge, self._max_bytes)
            self._readers = edge_reader, span_reader(self._sites.central, self._max_bytes)
        edge, central = self._readers
        try:
            found = {p: self._of(edge, central, p, remotes[p], stretches[p], ends[remotes[p]]) for p in chosen}
        except Unavailable:
            self.close()
            raise
        return {p: sample for p, sample in found.items() if sample is not None}

    def _of(
        self, edge: CommittedReader, central: CommittedReader, p: Partition, remote: Partition, stretch: Stretch, end: int
    ) -> Sample | None:
        """None: retention has deleted what was to be read."""
        tail = max(stretch.first, stretch.end - WINDOW)
        starts = [self._rng.randrange(stretch.first, tail)] if tail > stretch.first else []
        windows = [_read(edge, p, start, min(start + WINDOW, stretch.end)) for start in [*starts, tail]]
        if not all(windows):
            return None
        differs = [self._differs(central, remote, window, end) for window in windows]
        compared = len({record.offset for window in windows for record in window})
        return Sample(stretch, compared, windows[-1][-1].timestamp_ms, next((o for o in differs if o is not None), None))

    def _differs(self, central: CommittedReader, remote: Partition, window: Sequence[Record], end: int) -> int | None:
        first = self._sites.central.at_time([remote], window[0].timestamp_ms)[remote]
        return difference(window, _read(central, remote, first, end, BEFORE + len(window)))


def _read(reader: CommittedReader, p: Partition, start: int, end: int, count: int = WINDOW) -> list[Record]:
    with contextlib.closing(read_span(reader, p, start, end)) as records:
        return list(itertools.islice(records, count))
