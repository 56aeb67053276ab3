"""Which ids closed buckets hold: what decides whether a late event stands in one already.

Exact at any lateness.

The containers of a bucket are the truth, as far as their digests are those of its manifest. An
index, one file of ids a write task, is an exact cache of them: blocks of at most `_ROWS_IN_BLOCK`
ids of one bucket, ascending, 16 bytes each, in a row; then a table that tells of each block its
bucket, its rows, its first and last id and its digest; then 8 bytes, the number of blocks. The
file's name ends in the digest of table and number (`<stem>-<digest>.ids`), so no flipped bit is
believed. A bucket whose index is not whole, or not as it was written, is read itself.

Little is read of an index for few late events: only blocks between whose first and last id one of
them lies. Of a container few blocks are decoded. Containers are sorted by id, which is part of
their format.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hourmark.avro.framing import ENVELOPE
from hourmark.errors import Finding
from hourmark.records.event_id import SIZE
from hourmark.records.hours import Hour
from hourmark_etl.arrow import Bools, UInt8s, in_one
from hourmark_etl.buckets.avro_container import Block, ContainerReader, Digesting
from hourmark_etl.ledger.closed import ClosedBucket, IdRun
from hourmark_etl.staging.verified import digest_of
from hourmark_etl.storage import ContentLost, Storage, StorageError

_ROWS_IN_BLOCK: Final = 65_536  # 1 MiB of ids: what is read at least
_BLOCK: Final = np.dtype(
    [("bucket", "S16"), ("rows", "<i8"), ("first", "S16"), ("last", "S16"), ("digest", "V16")]
)
_NUMBER_BYTES: Final = 8
_TAIL_BYTES: Final = 65_536  # read at first
_LOG = logging.getLogger(__name__)

Ids = npt.NDArray[np.bytes_]  # of width 16: numpy sorts and compares them as ids


def as_ids(column: pa.ChunkedArray | pa.Array) -> Ids:
    """A column of fixed 16-byte values, not copied where it stands in one piece."""
    whole = in_one(column)
    if not len(whole):
        return np.empty(0, f"S{SIZE}")
    return np.frombuffer(whole.buffers()[1], f"S{SIZE}", len(whole), whole.offset * SIZE)


class Asked(NamedTuple):
    """Whether one of these closed buckets holds the ids."""

    buckets: Sequence[ClosedBucket]
    ids: Ids


def held(storage: Storage, asked: Sequence[Asked]) -> list[Bools | Finding]:
    """Of each, which ids a bucket holds; or the Finding of one that cannot be read: nothing is
    guessed.

    An index holds what one task wrote of many types: each is opened once, whatever it is asked of.
    """
    lookups = [_lookups(of) for of in asked]
    _ask_indexes(storage, itertools.chain.from_iterable(lookups))
    return [_told(storage, of.ids, own) for of, own in zip(asked, lookups, strict=True)]


class IndexWriter:
    """Writes the index of one task; `digest` is what its name must end in, once it is finished."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.path, self.digest = path, ""
        self._file = file
        self._blocks: list[tuple[bytes, int, bytes, bytes, bytes]] = []
        self._rows = 0

    def write(self, event_type: str, hour_s: int, ids: UInt8s) -> int:
        """Add ids of a bucket (rows x 16), ascending; the row of the first."""
        first = self._rows
        for start in range(0, len(ids), _ROWS_IN_BLOCK):
            block = ids[start : start + _ROWS_IN_BLOCK]
            content = block.tobytes()
            self._file.write(content)
            self._blocks.append(
                (
                    mark_of(event_type, hour_s),
                    len(block),
                    content[:SIZE],
                    content[-SIZE:],
                    digest_of(content),
                )
            )
        self._rows += len(ids)
        return first

    def finish(self) -> None:
        """All is written."""
        table = np.array(self._blocks, _BLOCK).tobytes() + len(self._blocks).to_bytes(
            _NUMBER_BYTES, "little"
        )
        self._file.write(table)
        self.digest = digest_of(table).hex()


class WrittenRun(NamedTuple):
    """Rows [first_row, first_row + rows) of an index, of the bucket with this `mark`."""

    mark: bytes
    first_row: int
    rows: int


def runs_in(storage: Storage, path: str) -> list[WrittenRun]:
    """What an index speaks of, by its table.

    StorageError, ValueError or EOFError where it cannot be read, or is not whole.
    """
    with storage.open(path) as file:
        blocks = _blocks(file, path)
    ends = np.cumsum(blocks["rows"]).tolist()
    marks = [
        block["bucket"].ljust(SIZE, b"\0") for block in blocks
    ]  # numpy takes zeros off a text's end
    written = [
        (mark, end - rows, rows)
        for mark, end, rows in zip(marks, ends, blocks["rows"].tolist(), strict=True)
    ]
    return [
        WrittenRun(mark, own[0][1], sum(rows for _, _, rows in own))
        for mark, own in (
            (mark, list(of)) for mark, of in itertools.groupby(written, lambda of: of[0])
        )
    ]


def mark_of(event_type: str, hour_s: int) -> bytes:
    """By which an index names a bucket."""
    return digest_of(f"{event_type} {hour_s}".encode())


@dataclasses.dataclass
class _Lookup:
    """One bucket, asked for these ids, ascending. `found`: those that its index has; None where
    that cannot be used.
    """

    bucket: ClosedBucket
    ordered: Ids
    found: list[Ids] | None = None

    def answer(self, storage: Storage) -> Ids:
        """Those of the ids that the bucket holds."""
        if self.found is not None:
            return _joined(self.found)
        return _joined(
            [
                part
                for path, digest in self.bucket.files
                for part in _in_container(storage, path, digest, self.ordered)
            ]
        )


def _lookups(asked: Asked) -> list[_Lookup]:
    """Of the buckets that may hold one of the ids."""
    ordered = np.sort(asked.ids)
    lookups = (_Lookup(bucket, _of_hours(ordered, bucket.holds)) for bucket in asked.buckets)
    return [lookup for lookup in lookups if len(lookup.ordered)]


def _of_hours(ordered: Ids, hours: Iterable[Hour]) -> Ids:
    """Those of events of these hours, ascending: an id begins with its event's time
    (`hourmark.records.event_id`).
    """
    bounds = [
        [of_ms.to_bytes(SIZE, "big") for of_ms in (h.start_s * 1000 << 80, h.end_ms << 80)]
        for h in sorted(hours)
    ]
    spans = np.searchsorted(ordered, np.array(bounds, f"S{SIZE}")).reshape(-1, 2)
    return _joined([ordered[start:end] for start, end in spans.tolist()])


def _told(storage: Storage, ids: Ids, lookups: Sequence[_Lookup]) -> Bools | Finding:
    try:
        return np.isin(ids, _joined([lookup.answer(storage) for lookup in lookups]))
    except Finding as error:
        return Finding(str(error))  # without what its frames hold


def _ask_indexes(storage: Storage, lookups: Iterable[_Lookup]) -> None:
    by_path = defaultdict[str, list[tuple[IdRun, _Lookup]]](list)
    for lookup in lookups:
        if lookup.bucket.is_indexed:
            lookup.found = []
            for run in lookup.bucket.index:
                by_path[run.path].append((run, lookup))
    for path, asked in sorted(by_path.items()):
        try:
            with storage.open(path) as file:
                _ask_index(_Index(file, path), asked)
        except (StorageError, OSError, EOFError, ValueError) as error:
            _give_up([lookup for _, lookup in asked], error)


def _ask_index(index: _Index, asked: Sequence[tuple[IdRun, _Lookup]]) -> None:
    """In the order in which it is read.

    What one place of it does concerns those alone who ask for that; a server that is away, all who
    are left.
    """
    ordered = sorted(asked, key=lambda of: of[0].first_row)
    for at, (run, lookup) in enumerate(ordered):
        if lookup.found is not None:
            try:
                lookup.found += index.among(lookup.bucket, run, lookup.ordered)
            except (ContentLost, OSError, EOFError, ValueError) as error:
                _give_up([lookup], error)
            except StorageError as error:
                return _give_up([of for _, of in ordered[at:]], error)
    return None


def _give_up(lookups: Sequence[_Lookup], error: Exception) -> None:
    """What an index says of them is not to be believed."""
    named = f"{lookups[0].bucket.event_type}, from Unix second {lookups[0].bucket.hour_s}"
    more = f", and {len(lookups) - 1} more" if len(lookups) > 1 else ""
    _LOG.warning(
        "an index of ids cannot be used (%s: %s); the bucket itself is read (%s%s)",
        type(error).__name__,
        error,
        named,
        more,
    )
    for lookup in lookups:
        lookup.found = None


def _joined(parts: Sequence[Ids]) -> Ids:
    return np.concatenate(parts) if parts else np.empty(0, f"S{SIZE}")


def _between(ordered: Ids, first: bytes, last: bytes) -> Ids:
    return ordered[
        np.searchsorted(ordered, np.bytes_(first)) : np.searchsorted(
            ordered, np.bytes_(last), "right"
        )
    ]


class _Index:
    """An index file; ValueError where its end is not the one of its name."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._blocks = file, _blocks(file, path)
        self._ends = np.cumsum(self._blocks["rows"])

    def among(self, bucket: ClosedBucket, run: IdRun, ordered: Ids) -> Iterator[Ids]:
        """Those of the ids that the run has.

        ValueError where it is not of the bucket, or not as it was written.
        """
        first, end = np.searchsorted(
            self._ends, [run.first_row, run.first_row + run.rows], "right"
        ).tolist()
        own, starts = self._blocks[first:end], (self._ends - self._blocks["rows"])[first:end]
        begins = not run.rows or (len(own) and starts[0] == run.first_row)
        if (
            not begins
            or own["rows"].sum() != run.rows
            or (own["bucket"] != mark_of(bucket.event_type, bucket.hour_s)).any()
        ):
            raise ValueError(
                f"rows [{run.first_row}, {run.first_row + run.rows}) are not those of the bucket"
            )
        for start, block in zip(starts.tolist(), own, strict=True):
            candidates = _between(ordered, block["first"], block["last"])
            if len(candidates):
                content = _read_at(self._file, start * SIZE, int(block["rows"]) * SIZE)
                if (
                    digest_of(content) != block["digest"].tobytes()
                ):  # a text of numpy would lose zeros at its end
                    raise ValueError(f"the ids from row {start} on are not those that were written")
                ids = np.frombuffer(content, f"S{SIZE}")
                at = np.searchsorted(ids, candidates)  # far cheaper than sorting them again
                yield candidates[ids[np.minimum(at, len(ids) - 1)] == candidates]


def _blocks(file: BinaryIO, path: str) -> npt.NDArray[np.void]:
    """Its table. Of most files the whole is read at once, as each reading is two requests on
    HDFS.
    """
    size = file.seek(0, io.SEEK_END)
    end = _read_at(file, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    length = int.from_bytes(end[-_NUMBER_BYTES:], "little") * _BLOCK.itemsize + _NUMBER_BYTES
    if length > len(end):
        end = _read_at(file, size - length, length) if length <= size else b""
    table = end[-length:]
    if not path.endswith(f"-{digest_of(table).hex()}.ids"):
        raise ValueError("its end is not the one of its name")
    return np.frombuffer(table[:-_NUMBER_BYTES], _BLOCK)


def _read_at(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    found = file.read(size)
    if len(found) != size:
        raise EOFError(f"it ends at {start + len(found)}, before {start + size}")
    return found


def _in_container(storage: Storage, path: str, digest: str, ordered: Ids) -> list[Ids]:
    """Block by block; one is decoded where an id lies between its first id and that of the next.

    All of the file is read, and what was found counts if its digest is the one of the manifest.
    """
    try:
        with storage.open(path) as file:
            seen = Digesting(file)
            # it reads, and nothing else
            found = list(_in_blocks(ContainerReader(seen), ordered))  # type: ignore[arg-type]
        if seen.digest.hexdigest() != digest:
            raise ValueError("it is not as its manifest says")
    except ContentLost as error:
        raise Finding(
            f"{storage.url(path)}: {error.what}; it is listed by a closed bucket, and late "
            "events cannot be told from its own. "
            "Restore it, and closing goes on"
        ) from error
    except (MemoryError, StorageError):
        raise
    except Exception as error:  # damaged bytes make a decoder raise anything
        raise Finding(
            f"{storage.url(path)} of a closed bucket is damaged ({error}), and late events "
            "cannot be told from its own; "
            "`hourmark bucket verify` names all that is wrong. Restore it, and closing goes on"
        ) from error
    return found


def _in_blocks(container: ContainerReader, ordered: Ids) -> Iterator[Ids]:
    begun = ((container.content(block)[:SIZE], block) for block in container)
    for (first, block), (after, _) in itertools.pairwise(
        itertools.chain(begun, [(b"\xff" * SIZE, None)])
    ):
        assert block is not None, "only the last has none"
        yield from _in_block(container, first, block, after, ordered)


def _in_block(
    container: ContainerReader, first: bytes, block: Block, after: bytes, ordered: Ids
) -> Iterator[Ids]:
    """Ids of the block, if it is to be decoded at all.

    One whose successor begins before it shows that nothing is sorted.
    """
    candidates = _between(ordered, first, after) if first <= after else ordered
    if len(candidates):
        yield _common(candidates, np.array(sorted(_ids_of(container.container(block))), f"S{SIZE}"))


def _common(ordered: Ids, own: Ids) -> Ids:
    """What both have.

    Of `ordered` only what lies between the first and the last of `own`: no block bounds the last
    one.
    """
    return np.intersect1d(_between(ordered, own[0], own[-1]), own) if len(own) else own


def _ids_of(container: bytes) -> Iterator[bytes]:
    for record in fastavro.reader(io.BytesIO(container), _id_schema(container)):
        assert isinstance(record, dict)
        yield record["event_id"]


def _id_schema(container: bytes) -> dict[str, Any]:
    """The record of the container, of which nothing but the id is read."""
    writer = json.loads(ContainerReader(io.BytesIO(container)).metadata["avro.schema"])
    return {
        "type": "record",
        "name": writer["name"],
        "namespace": writer.get("namespace", ""),
        "fields": [ENVELOPE[0]],
    }
