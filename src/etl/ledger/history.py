"""Which batches a lost ledger had committed, and how far: told from batch files and markers alone. Pure.

A batch file is written before its commit, so it may speak of a batch that never was one. What tells them apart: a ledger's
positions move by whole batches only, and whoever plans a batch begins at the ledger's positions. So every start of a batch, and
every offset in a marker (taken in the transaction of a freeze), is a place where the ledger's position *stood*. A batch was never
committed if the position stood within it, between its start and its end; or if a batch planned later (by its order) begins where
it does. The last batch of all cannot be told from one that was about to be committed; it is whole, and taken.

The position is the end of the last batch that was committed, or a marker's offset, whatever is furthest. Offsets before it that
neither a batch that is known nor a bucket covers are *gaps*: their batch file was deleted with its last staged file, all of it
in closed buckets or settled, or it held no rows.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Final

Key = tuple[str, int]  # topic id, partition
Offsets = Mapping[Key, int]

_WITHIN: Final = "the ledger stood within it"
_AGAIN: Final = "a later batch begins where it does"


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """A batch as far as offsets go. `order` as in `batch_file`; `starts` and `ends` of the same partitions."""

    folder: str
    order: tuple[int, int]
    starts: Offsets
    ends: Offsets

    @property
    def moved(self) -> list[Key]:
        """Partitions that its commit moves."""
        return [key for key, start in self.starts.items() if self.ends[key] > start]


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [start, end) of a partition that no known batch and no bucket covers."""

    key: Key
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class History:
    """What was committed. `committed` and `given_up` (with the reason) are folders of batches, the first in order."""

    committed: tuple[str, ...]
    given_up: Mapping[str, str]
    positions: Offsets
    gaps: tuple[Gap, ...]


def history(batches: Collection[Moves], marked: Mapping[Key, Sequence[int]], stood: Offsets | None = None) -> History:
    """`marked`: by partition, the offsets of freezes in markers, ascending; what lies below is in buckets.

    `stood`: where else the ledger's position is known to have stood, which says nothing of what lies below.
    """
    stands = {key: set(offsets) for key, offsets in marked.items()}
    latest: dict[tuple[Key, int], tuple[int, int]] = {}  # of the batches that begin there
    for batch in batches:
        for key, start in batch.starts.items():
            stands.setdefault(key, set()).add(start)
            latest[key, start] = max(batch.order, latest.get((key, start), batch.order))
    ordered = {key: sorted(offsets) for key, offsets in stands.items()}
    committed: list[Moves] = []
    given_up: dict[str, str] = {}
    for batch in sorted(batches, key=lambda b: b.order):
        if why := _never_committed(batch, ordered, latest):
            given_up[batch.folder] = why
        else:
            committed.append(batch)
    # Where any batch was planned to begin, the ledger's position stood, whether that batch was committed or not.
    places = [*(b.starts for b in batches), stood or {}]
    gaps, positions = _walk(committed, [item for place in places for item in place.items()], marked)
    return History(tuple(b.folder for b in committed), given_up, positions, gaps)


def _never_committed(batch: Moves, stood: Mapping[Key, Sequence[int]], latest: Mapping[tuple[Key, int], tuple[int, int]]) -> str:
    for key in batch.moved:
        start, end = batch.starts[key], batch.ends[key]
        above = bisect.bisect_right(stood[key], start)
        if above < len(stood[key]) and stood[key][above] < end:
            return _WITHIN
        if latest[key, start] > batch.order:
            return _AGAIN
    return ""


def _walk(
    committed: Sequence[Moves], stood: Collection[tuple[Key, int]], marked: Mapping[Key, Sequence[int]]
) -> tuple[tuple[Gap, ...], dict[Key, int]]:
    positions = {key: offsets[-1] for key, offsets in marked.items() if offsets}
    gaps: list[Gap] = []
    spans = [(key, b.starts[key], b.ends[key]) for b in committed for key in b.moved]
    spans += [(key, offset, offset) for key, offset in stood]
    for key, start, end in sorted(spans):
        reached = positions.get(key, 0)
        if start > reached:
            gaps.append(Gap(key, reached, start))
        positions[key] = max(reached, end)
    return tuple(gaps), positions


@dataclasses.dataclass(frozen=True, slots=True)
class ClosedHour:
    """A closed bucket as far as offsets go: `next` is the first offset not in it or before."""

    hour_s: int
    next: Offsets


def bucket_of(hour_s: int, ends: Offsets, closed: Sequence[ClosedHour]) -> int | None:
    """The hour of the bucket that holds a group of this hour, from a batch that ends there; None: it stands in none yet.

    `ends`: of the type's partitions that the batch moved. `closed`: the type's buckets, in turn. A batch is committed whole and a
    freeze lists all that is committed, so it is the first bucket of that hour or a later one whose freeze lies past the batch.
    """
    assert ends, "a group's rows come from a partition"
    first = bisect.bisect_left(closed, hour_s, key=lambda c: c.hour_s)
    for bucket in closed[first:]:
        if all(bucket.next.get(key, 0) >= end for key, end in ends.items()):
            return bucket.hour_s
    return None
