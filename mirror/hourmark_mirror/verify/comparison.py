"""Compares the records of one topic-partition on source and target: same contents, same order.

Pure functions from two iterators to findings. A mirror keeps the order within a partition, so both
sides advance together. Where they differ, a look-ahead window on each side determines what
happened. The windows bound the memory. A smaller window may classify a difference less precisely,
but sides that differ are never reported as equal.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Final, Literal, get_args

from hourmark_mirror.record_digests import RecordDigest

WINDOW: Final = 20_000  # records read ahead once the sides differ
RUN: Final = 32  # consecutive records that locate the start of a trimmed edge on the target
RECENT: Final = 100_000  # matched records kept to distinguish doubled from foreign
SPANS_MAX: Final = 100  # spans listed for each partition; all faults are counted

FaultKind = Literal["missing", "doubled", "foreign", "altered"]
FAULT_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)


@dataclasses.dataclass(slots=True, kw_only=True)
class FaultSpan:
    """Group of adjacent records of one topic-partition that have the same fault.

    All offsets are inclusive.

    Attributes:
        kind: `missing`: the record exists only at the edge. `doubled`: the target has a second
            copy. `foreign`: the record exists only on the target. `altered`: the key is equal, but
            the content differs.
        edge_first: Edge offset of the first record. For foreign records, the offset of the edge
            record that was expected instead; None if the edge has no more records.
        edge_last: Edge offset of the last record, with the same exceptions as `edge_first`.
        central_first: Target offset of the first record; None for missing records.
        central_last: Target offset of the last record; None for missing records.
        count: Number of records.
    """

    kind: FaultKind
    edge_first: int | None
    edge_last: int | None
    central_first: int | None
    central_last: int | None
    count: int = 1

    def continues_with(self, kind: FaultKind, edge: int | None, central: int | None) -> bool:
        """Return whether a faulty record extends this span of adjacent records with the same fault.

        Args:
            kind: Kind of fault of the record.
            edge: Edge offset of the record, which is compared if the kind is `missing`.
            central: Target offset of the record, which is compared for all other kinds; None if the
                record is missing.

        Returns:
            True if the kinds are equal, and the compared offset is one greater than the last offset
            of the span.
        """
        last, now = (self.edge_last, edge) if kind == "missing" else (self.central_last, central)
        return kind == self.kind and last is not None and now == last + 1


@dataclasses.dataclass(slots=True, kw_only=True)
class RecordComparison:
    """Result of comparing the records of one topic-partition on both clusters.

    Attributes:
        matched: Number of records that are equal on both clusters.
        expired: Number of edge records that are missing on the target because its retention has
            deleted them.
        older: Number of target records that are missing at the edge because its retention has
            deleted them, or because the topic was deleted and recreated.
        faults: Number of faulty records of each kind.
        spans: First 100 groups of adjacent records with the same kind of fault.
    """

    matched: int = 0
    expired: int = 0
    older: int = 0
    faults: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    spans: list[FaultSpan] = dataclasses.field(default_factory=list)

    def add(self, kind: FaultKind, edge: int | None, central: int | None) -> None:
        """Count a faulty record, and add it to the last span or to a new span.

        After 100 spans, records that do not extend the last span are only counted.

        Args:
            kind: Kind of fault.
            edge: Offset of the record at the edge; None if there is none.
            central: Offset of the record on the target; None if it is missing there.
        """
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


class _LookaheadReader:
    # An iterator over the records of one cluster with a window of the next records.

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

    def contains(self, digest: bytes) -> bool:
        self._take(self._window)
        return digest in self._digests

    def next_digests(self, count: int, end: int) -> list[bytes]:
        self._take(count)
        return [
            record.digest for record in itertools.islice(self._ahead, count) if record.offset < end
        ]

    def find_run(self, digests: list[bytes]) -> int | None:
        # Returns the number of records before the first match, which begins in the window and may end
        # after it. An empty list never matches.
        self._take(self._window + len(digests))
        window = [record.digest for record in self._ahead]
        starts = (at for at, digest in enumerate(window) if digests and digest == digests[0])
        return next((at for at in starts if window[at : at + len(digests)] == digests), None)

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
    allow_older: bool = False,
    target_was_trimmed: bool = False,
    expired_before_ms: int = 0,
    window: int = WINDOW,
) -> RecordComparison:
    """Compare the records of an edge topic-partition with its copy on the target cluster.

    The target must contain every edge record below `cut` exactly once, unaltered and in the same
    order, and no other records. Edge records at or after `cut` are optional.

    Args:
        edge: Edge records in offset order.
        central: Target records in offset order.
        cut: Edge offset (exclusive) up to which records must have been copied.
        allow_older: Whether the target may begin with records that the edge no longer has: because
            the edge's log start is above 0, or because the topic was deleted and recreated.
        target_was_trimmed: Whether the target's log start is above 0. The first records may then be
            missing.
        expired_before_ms: Unix milliseconds. Missing first records count as expired if their
            timestamp is earlier; otherwise as missing.
        window: Maximum number of records to read ahead on each side.

    Returns:
        The numbers of equal, expired, older and faulty records, and the spans of faulty records.
    """
    result = RecordComparison()
    source, target = _LookaheadReader(edge, window), _LookaheadReader(central, window)
    recent: collections.OrderedDict[bytes, int] = collections.OrderedDict()
    if allow_older:
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
        elif a is None or (b is not None and target.contains(a.digest)):
            assert b is not None, "one of both has a record"
            target.pop()
            at_beginning = False
            if b.digest in recent:
                result.add("doubled", recent[b.digest], b.offset)
            else:
                result.add("foreign", None if a is None else a.offset, b.offset)
        elif (
            b is not None and a.key is not None and a.key == b.key and not source.contains(b.digest)
        ):
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


def _skip_older(
    source: _LookaheadReader, target: _LookaheadReader, cut: int, *, begins_later: bool
) -> int:
    # Several consecutive matches locate the beginning. A single match is not sufficient, because the
    # edge may contain a record twice and may have deleted the first one. If the target's retention
    # deleted records too (`begins_later`), records are skipped only up to the timestamp of the edge's
    # first record.
    older, begin = 0, source.head()
    while (first := target.head()) is not None and not source.contains(first.digest):
        if begins_later and begin is not None and first.timestamp_ms > begin.timestamp_ms:
            break
        older += 1
        target.pop()
    more = target.find_run(source.next_digests(RUN, cut)) or 0
    for _ in range(more):
        target.pop()
    return older + more
