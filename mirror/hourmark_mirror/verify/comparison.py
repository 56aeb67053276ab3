"""Compares what the source holds with what the target holds of one topic-partition: the same
records, in the same order.

Pure: two iterators in, findings out. A mirror keeps the order within a partition, so both sides are
walked in step; where they differ, a window of records ahead on each side tells what happened.
Memory is bounded by the windows; whatever their size, two sides that differ are never called equal;
a smaller window only names a difference less exactly.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Final, Literal, get_args

from hourmark_mirror.record_digests import RecordDigest

WINDOW: Final = 20_000  # records looked ahead, once the sides differ
RUN: Final = (
    32  # records in a row by which the target's beginning is found of an edge whose own was deleted
)
RECENT: Final = 100_000  # matched records remembered, to tell doubled from foreign
SPANS_MAX: Final = 100  # spans named for each partition; all are counted

FaultKind = Literal["missing", "doubled", "foreign", "altered"]
FAULT_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)


@dataclasses.dataclass(slots=True, kw_only=True)
class FaultSpan:
    """`count` neighbouring records with one fault. Offsets are inclusive.

    `edge_first..edge_last`: the records at the edge; of foreign ones the next edge record that was
    expected there. `central_first..central_last`: where on the target; of missing ones None.
    """

    kind: FaultKind
    edge_first: int | None
    edge_last: int | None
    central_first: int | None
    central_last: int | None
    count: int = 1

    def continues_with(self, kind: FaultKind, edge: int | None, central: int | None) -> bool:
        """Whether this record is its next neighbour."""
        last, now = (self.edge_last, edge) if kind == "missing" else (self.central_last, central)
        return kind == self.kind and last is not None and now == last + 1


@dataclasses.dataclass(slots=True, kw_only=True)
class RecordComparison:
    """What was found. `expired`: deleted by the target's retention, from its beginning on; `older`:
    no longer at the edge.
    """

    matched: int = 0
    expired: int = 0
    older: int = 0
    faults: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    spans: list[FaultSpan] = dataclasses.field(default_factory=list)

    def add(self, kind: FaultKind, edge: int | None, central: int | None) -> None:
        """Count one record's fault, and name it."""
        self.faults[kind] += 1
        if self.spans and (last := self.spans[-1]).continues_with(kind, edge, central):
            last.count += 1
            last.edge_last, last.central_last = edge, central
        elif len(self.spans) < SPANS_MAX:
            self.spans.append(
                FaultSpan(
                    kind=kind,
                    edge_first=edge,
                    edge_last=edge,
                    central_first=central,
                    central_last=central,
                )
            )


class _Side:
    """One side with a look ahead."""

    def __init__(self, records: Iterator[RecordDigest], window: int) -> None:
        self._records = records
        self._window = window
        self._ahead: collections.deque[RecordDigest] = collections.deque()
        self._digests: collections.Counter[bytes] = collections.Counter()

    def head(self) -> RecordDigest | None:
        if not self._ahead:
            self._take(1)
        return self._ahead[0] if self._ahead else None

    def pop(self) -> None:
        record = self._ahead.popleft()
        self._digests[record.digest] -= 1
        if not self._digests[record.digest]:
            del self._digests[record.digest]

    def sees(self, digest: bytes) -> bool:
        """Whether a record of this content is within the window."""
        self._take(self._window)
        return digest in self._digests

    def first(self, count: int, below: int) -> list[bytes]:
        """Digests of the next records, of those with a lower offset than this."""
        self._take(count)
        return [
            record.digest
            for record in itertools.islice(self._ahead, count)
            if record.offset < below
        ]

    def find(self, run: list[bytes]) -> int | None:
        """How many records come before this run of them, as far as the window goes."""
        self._take(self._window)
        digests = [record.digest for record in self._ahead]
        starts = (at for at, digest in enumerate(digests) if run and digest == run[0])
        return next((at for at in starts if digests[at : at + len(run)] == run), None)

    def _take(self, count: int) -> None:
        while len(self._ahead) < count:
            record = next(self._records, None)
            if record is None:
                return
            self._ahead.append(record)
            self._digests[record.digest] += 1


def compare_records(
    edge: Iterator[RecordDigest],
    central: Iterator[RecordDigest],
    cut: int,
    *,
    edge_was_trimmed: bool = False,
    target_was_trimmed: bool = False,
    expired_before_ms: int = 0,
    window: int = WINDOW,
) -> RecordComparison:
    """Every edge record below `cut` must be on the target, once and unaltered, and nothing else may
    be there.

    `edge` may go on past the cut, and must where records were produced since: those need not have
    arrived, but may have. `edge_was_trimmed`: its log start is past 0, so the target may begin with
    records that are no longer at the edge; whether those were right, nothing tells any more.
    `target_was_trimmed`: so is the target's, so that what is missing before its first record, and
    older than `expired_before_ms`, was deleted by its retention. Retention leaves no holes: others
    are missing, and so is whatever is missing after a record that is no longer at the edge.
    """
    result = RecordComparison()
    source, target = _Side(edge, window), _Side(central, window)
    recent: collections.OrderedDict[bytes, int] = collections.OrderedDict()
    if edge_was_trimmed:
        result.older = _skip_older(source, target, cut, begins_later=target_was_trimmed)
    at_beginning = target_was_trimmed and not result.older
    while True:
        a, b = source.head(), target.head()
        if a is None and b is None:
            return result
        if a is not None and b is not None and a.digest == b.digest:
            source.pop()
            target.pop()
            at_beginning = False
            result.matched += 1
            recent[a.digest] = a.offset
            if len(recent) > RECENT:
                recent.popitem(last=False)
        elif a is None or (b is not None and target.sees(a.digest)):
            assert b is not None, "one of both has a record"
            target.pop()
            at_beginning = False
            if b.digest in recent:
                result.add("doubled", recent[b.digest], b.offset)
            else:
                result.add("foreign", None if a is None else a.offset, b.offset)
        elif b is not None and a.key is not None and a.key == b.key and not source.sees(b.digest):
            source.pop()
            target.pop()
            at_beginning = False
            result.add("altered", a.offset, b.offset)
        else:
            source.pop()
            if at_beginning and a.timestamp_ms < expired_before_ms:
                result.expired += 1
            elif a.offset < cut:
                result.add("missing", a.offset, None)


def _skip_older(source: _Side, target: _Side, cut: int, *, begins_later: bool) -> int:
    """Pass over what the target has from before the edge's first record; how many.

    A record that is at the edge twice, once deleted, once not, is no beginning: where several in a
    row are found, they are. `begins_later`: the target may itself begin after the edge's first
    record, and further on than a window. Times tell: they are the same on both sides, and in order
    but for less than that.
    """
    older, begin = 0, source.head()
    while (first := target.head()) is not None and not source.sees(first.digest):
        if begins_later and begin is not None and first.timestamp_ms > begin.timestamp_ms:
            break
        older += 1
        target.pop()
    more = target.find(source.first(RUN, cut)) or 0
    for _ in range(more):
        target.pop()
    return older + more
