"""Parquet files whose content is verified by digests: name → footer → column chunks.

A file's name ends in the digest of its footer (`<stem>-<digest>.parquet`), and the footer holds the
digest of every column chunk, by row group and column. No byte reaches the Parquet decoder before
its digest was verified, and only the name has to be trusted. Page checksums cover pages only: a
flipped bit in a footer can hide rows or crash the process. Digests are 16-byte BLAKE2b (RFC 7693).
Other readers see an ordinary Parquet file.

Reading takes few requests: a small file is fetched whole, a larger one by footer and requested
chunks.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

SUFFIX: Final = ".parquet"
SMALL_FILE_BYTES: Final = 4 << 20  # fetched whole
TAIL_BYTES: Final = 64 << 10  # of a larger file: most footers
GAP_BYTES_MAX: Final = 64 << 10  # between chunks that are fetched together
_DIGEST_BYTES: Final = 16
_END_BYTES: Final = 8  # the footer's length and Parquet's magic number
_DICTIONARY: Final = (
    "type",
    "hour",
    "schema_id",
    "range_id",
    "partition",
    "origin",
)  # columns that repeat themselves
_DIGESTS: Final = b"hourmark.digests"
_NOTE: Final = b"hourmark.note"
# What a file that is not as it was written may raise, here and in the decoder.
DAMAGE: Final = (pa.ArrowException, OSError, EOFError, ValueError, LookupError, struct.error)


def compute_digest(content: bytes | memoryview) -> bytes:
    """Compute the BLAKE2b digest of a byte string.

    Args:
        content: Bytes to hash.

    Returns:
        16 bytes.
    """
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def encode_verified(table: pa.Table, note: bytes, rows_in_group: int) -> tuple[memoryview, str]:
    """Encode a table as a Parquet file whose content can be verified when it is read.

    The footer contains a digest of each column chunk, and the file's name contains a digest of the
    footer.

    Args:
        table: Rows to write.
        note: Bytes to store in the footer's metadata.
        rows_in_group: Maximum number of rows per row group.

    Returns:
        A pair of the file's content and the hex digest with which the file's name must end.
    """
    sink = pa.BufferOutputStream()
    # Where chunks stand is known when the footer is finished; so their digests take the place of as
    # many bytes that stood there.
    groups = max(1, -(-len(table) // rows_in_group))
    blank = b"." * (_DIGEST_BYTES * groups * table.num_columns)
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in table.column_names if name in _DICTIONARY],
        write_statistics=["event_id"] if "event_id" in table.column_names else False,
    ) as writer:
        writer.write_table(table, row_group_size=rows_in_group)
        writer.add_key_value_metadata({_DIGESTS: blank, _NOTE: note})
    content = memoryview(sink.getvalue()).cast("B")
    start = _footer_start(content, len(content))
    chunks = _chunks(pq.read_metadata(pa.BufferReader(content)), range(groups))
    footer = bytes(content[start:])
    assert footer.count(blank) == 1, "the note holds the place of the digests"
    content[start:] = footer.replace(
        blank, b"".join(compute_digest(content[at : at + size]) for at, size in chunks)
    )
    return content, compute_digest(content[start:]).hex()


class VerifiedFile:
    """An open Parquet file whose content is verified against digests when it is read.

    The footer is verified when an instance is created, and column chunks when they are read. If the
    content does not match its digest, one of the exceptions in `DAMAGE` is raised.

    Args:
        file: The open file. The caller must close it.
        path: Path of the file. Its name ends with the digest of the footer.
        tail_bytes: Size of the first read, in bytes, at the end of a large file. It should include
            the footer.
        gap_bytes_max: Maximum gap in bytes between column chunks that are read together.

    Attributes:
        metadata: Parquet metadata from the footer.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        tail_bytes: int = TAIL_BYTES,
        gap_bytes_max: int = GAP_BYTES_MAX,
    ) -> None:
        self._file, self._gap_bytes_max = file, gap_bytes_max
        size = file.seek(0, io.SEEK_END)
        if size < _END_BYTES:
            raise EOFError(f"it has {size} bytes")
        self._content: bytes | mmap.mmap
        if size <= SMALL_FILE_BYTES:
            self._content = self._fetched(0, size)
            start = _footer_start(self._content, size)
        else:
            self._content = mmap.mmap(-1, size)  # pages that nothing is written to take no memory
            tail = max(0, size - tail_bytes)
            self._fill(tail, size)
            start = _footer_start(self._content, size)
            if start < tail:
                self._fill(start, tail)
        footer = self._content[start:]
        if not path.endswith(f"-{compute_digest(footer).hex()}{SUFFIX}"):
            raise ValueError("its footer does not match the digest in its name")
        self.metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(footer))

    @property
    def names(self) -> list[str]:
        """Return the names of the file's columns, in the order of the file."""
        return [self.metadata.schema.column(i).name for i in range(self.metadata.num_columns)]

    @property
    def note(self) -> bytes:
        """Return the bytes that were stored in the footer's metadata when the file was written."""
        note: bytes = self.metadata.metadata[_NOTE]
        return note

    def read(self, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> pa.Table:
        """Read columns of row groups, after verifying their digests.

        Args:
            columns: Names of the columns to read.
            row_groups: Indexes of the row groups; None for all.

        Returns:
            A table with the columns in the given order.

        Raises:
            ValueError: A column chunk differs from its digest, or a column does not exist.
            EOFError: The file is shorter than its footer states.
        """
        groups = range(self.metadata.num_row_groups) if row_groups is None else row_groups
        names = self.names
        wanted = [names.index(name) for name in columns]
        chunks = list(_chunks(self.metadata, groups, wanted))
        if isinstance(self._content, mmap.mmap):
            for start, end in _together(chunks, self._gap_bytes_max):
                self._fill(start, end)
        digests = self.metadata.metadata[_DIGESTS]
        places = [g * len(names) + i for g in groups for i in wanted]
        for place, (at, size) in zip(places, chunks, strict=True):
            digest = digests[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES]
            if compute_digest(memoryview(self._content)[at : at + size]) != digest:
                raise ValueError(f"bytes [{at}, {at + size}) differ from those that were written")
        parquet = pq.ParquetFile(pa.BufferReader(self._content), metadata=self.metadata)
        return parquet.read_row_groups(
            list(groups), columns=list(columns)
        ).replace_schema_metadata()

    def _fill(self, start: int, end: int) -> None:
        # of a large file
        self._content[start:end] = self._fetched(start, end)  # type: ignore[index]

    def _fetched(self, start: int, end: int) -> bytes:
        self._file.seek(start)
        found = self._file.read(end - start)
        if len(found) != end - start:
            raise EOFError(f"it ends at {start + len(found)}, before {end}")
        return found


def _footer_start(content: bytes | memoryview | mmap.mmap, size: int) -> int:
    start = size - _END_BYTES - int.from_bytes(content[size - _END_BYTES : size - 4], "little")
    if start < 0:
        raise EOFError("its footer is longer than the file")
    return start


def _chunks(
    metadata: pq.FileMetaData, row_groups: Collection[int], columns: Collection[int] | None = None
) -> Iterator[tuple[int, int]]:
    for group in row_groups:
        for column in range(metadata.num_columns) if columns is None else columns:
            chunk = metadata.row_group(group).column(column)
            yield (
                chunk.dictionary_page_offset or chunk.data_page_offset,
                chunk.total_compressed_size,
            )


def _together(chunks: Collection[tuple[int, int]], gap_bytes_max: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for at, size in sorted(chunks):
        if ranges and at - ranges[-1][1] <= gap_bytes_max:
            ranges[-1] = ranges[-1][0], at + size
        else:
            ranges.append((at, at + size))
    return ranges
