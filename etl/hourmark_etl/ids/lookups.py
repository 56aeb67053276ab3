"""Finds which event ids closed buckets contain, to detect late duplicates; exact at any lateness.

A bucket's containers are the truth if their digests match the manifest. An index, one file of ids
per write task, is an exact cache of them. Its format: blocks of at most `ROWS_IN_BLOCK` ids of one
bucket, ascending, 16 bytes each; a table with the bucket, number of rows, first id, last id and
digest of each block; 8 bytes with the number of blocks. The file's name ends in the digest of table
and number (`<stem>-<digest>.ids`), so corruption is detected. If a bucket's index is incomplete or
damaged, the bucket itself is read.

A lookup of few ids reads little: of an index only blocks whose id range contains one of the ids,
and of a container it decodes only such blocks. Containers are sorted by id as part of their format.
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
from hourmark_etl.arrow import Bools, UInt8s, to_single_array
from hourmark_etl.buckets.avro_container import Block, ContainerReader
from hourmark_etl.buckets.digesting_reader import DigestingReader
from hourmark_etl.ledger.closed import ClosedBucket, IdIndexSegment
from hourmark_etl.staging.verified import compute_digest
from hourmark_etl.storage import ContentLost, Storage, StorageError

ROWS_IN_BLOCK: Final = 65_536  # 1 MiB of ids, the smallest read
_BLOCK: Final = np.dtype(
    [("bucket", "S16"), ("rows", "<i8"), ("first", "S16"), ("last", "S16"), ("digest", "V16")]
)
_NUMBER_BYTES: Final = 8
_TAIL_BYTES: Final = 65_536  # size of the first read
_LOG = logging.getLogger(__name__)

Ids = npt.NDArray[np.bytes_]  # of width 16: numpy sorts and compares them as ids


def to_id_array(column: pa.ChunkedArray | pa.Array) -> Ids:
    """Convert a column of 16-byte event ids to a numpy array.

    The data is copied only if the column has several chunks.

    Args:
        column: Arrow column of type `fixed_size_binary(16)` without nulls.

    Returns:
        An array with elements of 16 bytes; empty if the column is empty.
    """
    whole = to_single_array(column)
    if not len(whole):
        return np.empty(0, f"S{SIZE}")
    return np.frombuffer(whole.buffers()[1], f"S{SIZE}", len(whole), whole.offset * SIZE)


class IdQuery(NamedTuple):
    """A query for event ids in a set of closed buckets.

    Attributes:
        buckets: The closed buckets to search.
        ids: The event ids to find, in any order.
    """

    buckets: Sequence[ClosedBucket]
    ids: Ids


def find_contained_ids(storage: Storage, queries: Sequence[IdQuery]) -> list[Bools | Finding]:
    """Determine which event ids closed buckets already contain.

    Buckets with an index are searched in the index, the others in their container files. Each index
    file is opened once for all queries.

    Args:
        storage: The storage with buckets and indexes.
        queries: Sets of ids to find, each with the buckets to search.

    Returns:
        One result per query: an array with one boolean per id, which is true if at least one of the
        buckets contains the id. If a bucket that must be searched cannot be read, the result is a
        `Finding` with the reason, which is returned and not raised.

    Raises:
        StorageError: Storage is unavailable.
    """
    lookups = [_create_lookups(of) for of in queries]
    _search_indexes(storage, itertools.chain.from_iterable(lookups))
    return [
        _combine_answers(storage, of.ids, own) for of, own in zip(queries, lookups, strict=True)
    ]


class IndexWriter:
    """Writes an index file with the event ids of the buckets that one task has written.

    The file consists of blocks, each with ids of one bucket, and a table of the blocks at the end.
    Call `write` for each bucket, then `finish`.

    Args:
        file: A binary file, positioned at its start. The caller closes it.
        path: Path of the file.
        rows_in_block: Maximum number of ids in a block. Readers need not know it, because the table
            contains the size of each block.

    Attributes:
        path: Path of the file.
        digest: Digest in hex with which the file's final name must end; empty until `finish` is
            called.
    """

    def __init__(self, file: BinaryIO, path: str, rows_in_block: int = ROWS_IN_BLOCK) -> None:
        self.path, self.digest = path, ""
        self._rows_in_block = rows_in_block
        self._file = file
        self._blocks: list[tuple[bytes, int, bytes, bytes, bytes]] = []
        self._rows = 0

    def write(self, event_type: str, hour_s: int, ids: UInt8s) -> int:
        """Append event ids of one bucket.

        Args:
            event_type: The bucket's event type.
            hour_s: Unix seconds at the start of the bucket's hour.
            ids: Ids in ascending order, rows x 16 bytes.

        Returns:
            The row of the first id in the index.
        """
        first = self._rows
        for start in range(0, len(ids), self._rows_in_block):
            block = ids[start : start + self._rows_in_block]
            content = block.tobytes()
            self._file.write(content)
            self._blocks.append(
                (
                    bucket_key(event_type, hour_s),
                    len(block),
                    content[:SIZE],
                    content[-SIZE:],
                    compute_digest(content),
                )
            )
        self._rows += len(ids)
        return first

    def finish(self) -> None:
        """Write the table of contents at the end of the file, and set `digest`.

        Call it once, after the last `write`. The caller closes the file.
        """
        table = np.array(self._blocks, _BLOCK).tobytes() + len(self._blocks).to_bytes(
            _NUMBER_BYTES, "little"
        )
        self._file.write(table)
        self.digest = compute_digest(table).hex()


class IndexedBucketRows(NamedTuple):
    """The consecutive rows of an index file that contain the event ids of one bucket.

    Attributes:
        mark: The bucket's key in the index, from `bucket_key`.
        first_row: Index of the first row.
        rows: Number of rows.
    """

    mark: bytes
    first_row: int
    rows: int


def read_index_runs(storage: Storage, path: str) -> list[IndexedBucketRows]:
    """Read the row range of each bucket from an index file of event ids.

    Only the table of contents at the end of the file is read.

    Args:
        storage: The storage.
        path: HDFS path of the index file.

    Returns:
        One entry per bucket, in the order of the rows.

    Raises:
        StorageError: The file is missing, or storage is unavailable.
        ValueError: The table does not match the digest in the file's name.
        EOFError: The file is truncated.
    """
    with storage.open(path) as file:
        blocks = _blocks(file, path)
    ends = np.cumsum(blocks["rows"]).tolist()
    marks = [
        block["bucket"].ljust(SIZE, b"\0") for block in blocks
    ]  # numpy strips trailing zero bytes
    written = [
        (mark, end - rows, rows)
        for mark, end, rows in zip(marks, ends, blocks["rows"].tolist(), strict=True)
    ]
    return [
        IndexedBucketRows(mark, own[0][1], sum(rows for _, _, rows in own))
        for mark, own in (
            (mark, list(of)) for mark, of in itertools.groupby(written, lambda of: of[0])
        )
    ]


def bucket_key(event_type: str, hour_s: int) -> bytes:
    """Return the key that identifies a bucket in an index file of event ids.

    Args:
        event_type: The bucket's event type.
        hour_s: Unix seconds at the start of the bucket's hour.

    Returns:
        A digest of 16 bytes.
    """
    return compute_digest(f"{event_type} {hour_s}".encode())


@dataclasses.dataclass
class _BucketSearch:
    bucket: ClosedBucket
    ordered: Ids  # the ids to find, ascending
    found: list[Ids] | None = None  # None if the bucket has no usable index

    def find_ids(self, storage: Storage) -> Ids:
        if self.found is not None:
            return _concatenate(self.found)
        return _concatenate(
            [
                part
                for path, digest in self.bucket.files
                for part in _find_ids_in_container(storage, path, digest, self.ordered)
            ]
        )


def _create_lookups(asked: IdQuery) -> list[_BucketSearch]:
    ordered = np.sort(asked.ids)
    lookups = (
        _BucketSearch(bucket, _ids_of_hours(ordered, bucket.origin_hours))
        for bucket in asked.buckets
    )
    return [lookup for lookup in lookups if len(lookup.ordered)]


def _ids_of_hours(ordered: Ids, hours: Iterable[Hour]) -> Ids:
    # Return the ids of events of the given hours, ascending. An id begins with its event's time
    # (`hourmark.records.event_id`), so each hour is one range.
    bounds = [
        [of_ms.to_bytes(SIZE, "big") for of_ms in (h.start_s * 1000 << 80, h.end_ms << 80)]
        for h in sorted(hours)
    ]
    spans = np.searchsorted(ordered, np.array(bounds, f"S{SIZE}")).reshape(-1, 2)
    return _concatenate([ordered[start:end] for start, end in spans.tolist()])


def _combine_answers(
    storage: Storage, ids: Ids, lookups: Sequence[_BucketSearch]
) -> Bools | Finding:
    try:
        return np.isin(ids, _concatenate([lookup.find_ids(storage) for lookup in lookups]))
    except Finding as error:
        return Finding(str(error))  # without the traceback, whose frames hold large arrays


def _search_indexes(storage: Storage, lookups: Iterable[_BucketSearch]) -> None:
    by_path = defaultdict[str, list[tuple[IdIndexSegment, _BucketSearch]]](list)
    for lookup in lookups:
        if lookup.bucket.is_indexed:
            lookup.found = []
            for run in lookup.bucket.index:
                by_path[run.path].append((run, lookup))
    for path, asked in sorted(by_path.items()):
        try:
            with storage.open(path) as file:
                _search_index(_Index(file, path), asked)
        except (StorageError, OSError, EOFError, ValueError) as error:
            _discard_index([lookup for _, lookup in asked], error)


def _search_index(index: _Index, asked: Sequence[tuple[IdIndexSegment, _BucketSearch]]) -> None:
    # Search one index in the order of its rows. A damaged block affects only the buckets that need
    # it. If storage becomes unavailable, all remaining buckets are read from their containers.
    ordered = sorted(asked, key=lambda of: of[0].first_row)
    for at, (run, lookup) in enumerate(ordered):
        if lookup.found is not None:
            try:
                lookup.found += index.find_in_rows(lookup.bucket, run, lookup.ordered)
            except (ContentLost, OSError, EOFError, ValueError) as error:
                _discard_index([lookup], error)
            except StorageError as error:
                return _discard_index([of for _, of in ordered[at:]], error)
    return None


def _discard_index(lookups: Sequence[_BucketSearch], error: Exception) -> None:
    named = f"{lookups[0].bucket.event_type}, from Unix second {lookups[0].bucket.hour_s}"
    more = f", and {len(lookups) - 1} more" if len(lookups) > 1 else ""
    _LOG.warning(
        "an event id index cannot be used (%s: %s); reading the bucket instead (%s%s)",
        type(error).__name__,
        error,
        named,
        more,
    )
    for lookup in lookups:
        lookup.found = None


def _concatenate(parts: Sequence[Ids]) -> Ids:
    return np.concatenate(parts) if parts else np.empty(0, f"S{SIZE}")


def _between(ordered: Ids, first: bytes, last: bytes) -> Ids:
    return ordered[
        np.searchsorted(ordered, np.bytes_(first)) : np.searchsorted(
            ordered, np.bytes_(last), "right"
        )
    ]


class _Index:
    # raises ValueError if the table does not match the digest in the name, EOFError if truncated
    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._blocks = file, _blocks(file, path)
        self._ends = np.cumsum(self._blocks["rows"])

    def find_in_rows(
        self, bucket: ClosedBucket, run: IdIndexSegment, ordered: Ids
    ) -> Iterator[Ids]:
        first, end = np.searchsorted(
            self._ends, [run.first_row, run.first_row + run.rows], "right"
        ).tolist()
        own, starts = self._blocks[first:end], (self._ends - self._blocks["rows"])[first:end]
        begins = not run.rows or (len(own) and starts[0] == run.first_row)
        if (
            not begins
            or own["rows"].sum() != run.rows
            or (own["bucket"] != bucket_key(bucket.event_type, bucket.hour_s)).any()
        ):
            raise ValueError(
                f"rows [{run.first_row}, {run.first_row + run.rows}) do not belong to the bucket"
            )
        for start, block in zip(starts.tolist(), own, strict=True):
            candidates = _between(ordered, block["first"], block["last"])
            if len(candidates):
                content = _read_at(self._file, start * SIZE, int(block["rows"]) * SIZE)
                if (
                    compute_digest(content) != block["digest"].tobytes()
                ):  # numpy would strip trailing zero bytes of a string
                    raise ValueError(
                        f"the ids from row {start} differ from those that were written"
                    )
                ids = np.frombuffer(content, f"S{SIZE}")
                at = np.searchsorted(ids, candidates)  # far cheaper than sorting them again
                yield candidates[ids[np.minimum(at, len(ids) - 1)] == candidates]


def _blocks(file: BinaryIO, path: str) -> npt.NDArray[np.void]:
    # Read the table of blocks at the end of an index file. The table of most files fits into the
    # first read; each read costs two requests on HDFS.
    size = file.seek(0, io.SEEK_END)
    end = _read_at(file, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    length = int.from_bytes(end[-_NUMBER_BYTES:], "little") * _BLOCK.itemsize + _NUMBER_BYTES
    if length > len(end):
        end = _read_at(file, size - length, length) if length <= size else b""
    table = end[-length:]
    if not path.endswith(f"-{compute_digest(table).hex()}.ids"):
        raise ValueError("its end does not match the digest in its name")
    return np.frombuffer(table[:-_NUMBER_BYTES], _BLOCK)


def _read_at(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    found = file.read(size)
    if len(found) != size:
        raise EOFError(f"it ends at {start + len(found)}, before {start + size}")
    return found


def _find_ids_in_container(storage: Storage, path: str, digest: str, ordered: Ids) -> list[Ids]:
    # The whole file is read, and its ids count only if its digest matches the manifest's.
    try:
        with storage.open(path) as file:
            seen = DigestingReader(file)
            # only its `read` method is needed
            found = list(_in_blocks(ContainerReader(seen), ordered))  # type: ignore[arg-type]
        if seen.digest.hexdigest() != digest:
            raise ValueError("its content does not match the digest in its manifest")
    except ContentLost as error:
        raise Finding(
            f"{storage.url(path)}: {error.what}; a closed bucket lists the file, so it is "
            "unknown which late events the bucket already contains. Restore the file; closing "
            "then continues automatically"
        ) from error
    except (MemoryError, StorageError):
        raise
    except Exception as error:  # damaged bytes make a decoder raise anything
        raise Finding(
            f"{storage.url(path)} of a closed bucket is damaged ({error}), so it is unknown "
            "which late events the bucket already contains. `hourmark bucket verify` lists all "
            "problems. Restore the file; closing then continues automatically"
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
    candidates = _between(ordered, first, after) if first <= after else ordered
    if len(candidates):
        yield _intersect(
            candidates,
            np.array(sorted(_ids_of(container.single_block_container(block))), f"S{SIZE}"),
        )


def _intersect(ordered: Ids, own: Ids) -> Ids:
    return np.intersect1d(_between(ordered, own[0], own[-1]), own) if len(own) else own


def _ids_of(container: bytes) -> Iterator[bytes]:
    for record in fastavro.reader(io.BytesIO(container), _id_schema(container)):
        assert isinstance(record, dict)
        yield record["event_id"]


def _id_schema(container: bytes) -> dict[str, Any]:
    writer = json.loads(ContainerReader(io.BytesIO(container)).metadata["avro.schema"])
    return {
        "type": "record",
        "name": writer["name"],
        "namespace": writer.get("namespace", ""),
        "fields": [ENVELOPE[0]],
    }
