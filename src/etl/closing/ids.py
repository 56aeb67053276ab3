"""Which ids closed buckets hold: what decides whether a late event stands in one already. Exact at any lateness.

The containers of a bucket are the truth. An index, one Parquet file of ids a write task, is an exact cache of them: each
container's ids are some runs of its rows, every run sorted. A bucket whose index is not whole, or cannot be read, is read
itself.

Either way little is read for few late events: only row groups, or blocks, between whose first and last id one of them lies.
Containers are sorted by id, which is part of their format; those that are not are decoded whole.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, BinaryIO, Final

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from etl.avro_container import Block, ContainerReader
from etl.ledger.id_indexes import ClosedBucket, IdRun
from etl.staging.columns import fixed_array
from etl.storage import NotFound, Storage, StorageError
from hourmark.avro import ENVELOPE
from hourmark.errors import Finding
from hourmark.event_id import SIZE

INDEX_SCHEMA: Final = pa.schema([("event_id", pa.binary(SIZE))])
_ROWS_IN_GROUP: Final = 65_536  # 1 MiB of ids: what is read at least
_LOG = logging.getLogger(__name__)

Ids = npt.NDArray[np.bytes_]  # of width 16: numpy sorts and compares them as ids


def as_ids(column: pa.ChunkedArray | pa.Array) -> Ids:
    """A column of fixed 16-byte values, not copied where it stands in one piece."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # of no rows
        return np.empty(0, f"S{SIZE}")
    return (
        np.frombuffer(whole.buffers()[1], f"S{SIZE}", len(whole), whole.offset * SIZE) if len(whole) else np.empty(0, f"S{SIZE}")
    )


def held(storage: Storage, buckets: Sequence[ClosedBucket], ids: Ids) -> npt.NDArray[np.bool_]:
    """Which of these ids one of the buckets holds. Finding if a bucket cannot be read: nothing is guessed."""
    ordered = np.sort(ids)
    found = np.zeros(len(ids), bool)
    for bucket in buckets:
        if len(ordered):
            found |= np.isin(ids, _among(storage, bucket, ordered))
    return found


class IndexWriter:
    """Writes the index of one task; the file's content is finished when the block ends."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.path = path
        self._writer = pq.ParquetWriter(
            file, INDEX_SCHEMA, compression="none", use_dictionary=False, write_statistics=True, write_page_checksum=True
        )  # ids do not compress
        self._rows = 0

    def write(self, ids: npt.NDArray[np.uint8]) -> int:
        """Add ids (rows x 16), runs of them in turn; the row of the first."""
        first = self._rows
        self._writer.write_table(pa.table([fixed_array(ids)], schema=INDEX_SCHEMA), row_group_size=_ROWS_IN_GROUP)
        self._rows += len(ids)
        return first

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._writer.close()
        else:  # the file is given up; the first error is the one to tell
            with suppress(StorageError, OSError, pa.ArrowException):
                self._writer.close()


def _among(storage: Storage, bucket: ClosedBucket, ordered: Ids) -> Ids:
    """Those of the ids that the bucket holds."""
    if bucket.is_indexed:
        try:
            return _joined([part for run in bucket.index for part in _in_run(storage, run, ordered)])
        except (StorageError, pa.ArrowException, OSError, EOFError) as error:
            _LOG.warning("an index of ids cannot be read (%s: %s); the bucket itself is read", type(error).__name__, error)
    return _joined([part for path in bucket.files for part in _in_container(storage, path, ordered)])


def _joined(parts: Sequence[Ids]) -> Ids:
    return np.concatenate(parts) if parts else np.empty(0, f"S{SIZE}")


def _between(ordered: Ids, first: bytes, last: bytes) -> Ids:
    low, high = np.searchsorted(ordered, [np.bytes_(first)], "left")[0], np.searchsorted(ordered, [np.bytes_(last)], "right")[0]
    return ordered[low:high]


def _in_run(storage: Storage, run: IdRun, ordered: Ids) -> Iterator[Ids]:
    with storage.open(run.path) as file:
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        start, end = 0, run.first_row + run.rows
        if end > parquet.metadata.num_rows:
            raise EOFError(f"it holds {parquet.metadata.num_rows} ids, the ledger says {end}")
        for at in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(at)
            first, start = start, start + group.num_rows
            if first >= end or start <= run.first_row:
                continue
            told = group.column(0).statistics
            candidates = _between(ordered, told.min, told.max)
            if len(candidates):
                ids = as_ids(parquet.read_row_group(at).column("event_id"))
                yield np.intersect1d(candidates, ids[max(0, run.first_row - first) : end - first])


def _in_container(storage: Storage, path: str, ordered: Ids) -> Iterator[Ids]:
    """Block by block; one is decoded where an id lies between its first id and that of the next."""
    try:
        with storage.open(path) as file:
            yield from _in_blocks(ContainerReader(file), ordered)
    except StorageError as error:
        if isinstance(error, NotFound):
            raise Finding(f"{error}; it is listed by a closed bucket, and late events cannot be told from its own") from error
        raise
    except (ValueError, EOFError, IndexError) as error:
        raise Finding(
            f"{storage.url(path)} of a closed bucket is damaged ({error}), and late events cannot be told from its own; "
            "`hourmark bucket verify` names all that is wrong. Restore it, and closing goes on"
        ) from error


def _in_blocks(container: ContainerReader, ordered: Ids) -> Iterator[Ids]:
    held_back: tuple[bytes, Block] | None = None
    for block in container:
        first = container.content(block)[:SIZE]
        if held_back is not None:
            yield from _in_block(container, *held_back, first, ordered)
        held_back = first, block
    if held_back is not None:
        yield from _in_block(container, *held_back, b"\xff" * SIZE, ordered)


def _in_block(container: ContainerReader, first: bytes, block: Block, after: bytes, ordered: Ids) -> Iterator[Ids]:
    """Ids of the block, if it is to be decoded at all. One whose successor begins before it shows that nothing is sorted."""
    candidates = _between(ordered, first, after) if first <= after else ordered
    if len(candidates):
        yield np.intersect1d(candidates, np.array(list(_ids_of(container.container(block))), f"S{SIZE}"))


def _ids_of(container: bytes) -> Iterator[bytes]:
    for record in fastavro.reader(io.BytesIO(container), _id_schema(container)):
        assert isinstance(record, dict)
        yield record["event_id"]


def _id_schema(container: bytes) -> dict[str, Any]:
    """The record of the container, of which nothing but the id is read."""
    writer = json.loads(ContainerReader(io.BytesIO(container)).metadata["avro.schema"])
    return {"type": "record", "name": writer["name"], "namespace": writer.get("namespace", ""), "fields": [ENVELOPE[0]]}
