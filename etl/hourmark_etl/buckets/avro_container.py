"""Reader and writer for Avro object container files of datums that are already encoded.

The format is Avro specification 1.12, "Object Container Files": a header (magic, metadata map,
16-byte sync marker), then blocks of count, size, compressed datums and sync marker. A block's
content is the concatenation of its datums, so datums of one writer schema are copied without
decoding. Blocks are compressed with `deflate`, which every Avro reader supports, or with
`zstandard`. Memory: one block, or one datum if that is larger. The digest covers the bytes that are
passed to the file, so reading the file back verifies all layers below.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import zstandard
from isal import isal_zlib

from hourmark.avro.framing import encode_long
from hourmark.config.groups import AvroCodec
from hourmark_etl.arrow import Int64s

MAGIC: Final = b"Obj\x01"
SYNC_SIZE: Final = 16
BLOCK_BYTES: Final = (
    1 << 20
)  # before compression: large enough to compress well, small enough to split and to hold
_ZSTANDARD_LEVEL: Final = 3  # the default: above it, time grows faster than files shrink
_DEFLATE_LEVEL: Final = (
    1  # of 0 to 3 in ISA-L: the others take more time or give larger files; zlib reads them all
)
_RAW: Final = -15  # RFC 1951 without a header or checksum, as the Avro specification requires
_DIGEST_SIZE: Final = 16


class ContainerStats(NamedTuple):
    """Number of records, size and digest of a complete Avro container file.

    Attributes:
        records: Number of records.
        bytes: Size of the file in bytes.
        blake2b: BLAKE2b digest of the whole file, 16 bytes in hex.
    """

    records: int
    bytes: int
    blake2b: str


class ContainerWriter:
    """Writer that appends encoded records to a compressed Avro container file.

    The caller opens and closes the file. If a method raises an exception, the file is incomplete
    and must be discarded.

    Args:
        file: A buffered binary file, positioned at its start.
        schema_json: The writer schema as JSON. It is embedded unchanged.
        codec: Codec of the blocks.
        block_bytes: Size of a block in bytes before compression.
    """

    def __init__(
        self,
        file: BinaryIO,
        schema_json: str,
        *,
        codec: AvroCodec = "deflate",
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        assert block_bytes > 0, block_bytes
        self._file = file
        self._block_bytes = block_bytes
        self._sync = os.urandom(SYNC_SIZE)
        self._compress = _COMPRESSORS[codec]()
        self._digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        self._bytes = 0
        self._records = 0
        self._block = bytearray()
        self._block_records = 0
        self._closed = False
        self._write(_header({"avro.schema": schema_json, "avro.codec": codec}, self._sync))

    def append_run(self, data: memoryview, offsets: Int64s) -> None:
        """Append consecutive Avro-encoded records from a buffer, without decoding them.

        Args:
            data: Buffer that contains the records.
            offsets: Byte offsets into `data`, one more than the number of records. Record i is
                `data[offsets[i]:offsets[i + 1]]`.

        Raises:
            ValueError: `close` has already been called.
        """
        if self._closed:
            raise ValueError("the container is closed")
        at, end = 0, len(offsets) - 1
        while at < end:
            room = self._block_bytes - len(self._block)
            until = int(np.searchsorted(offsets, offsets[at] + room, "right")) - 1
            if until <= at:
                if self._block_records:
                    self._flush_block()
                    continue
                until = at + 1  # a single datum larger than a block
            until = min(until, end)
            self._block += data[int(offsets[at]) : int(offsets[until])]
            self._block_records += until - at
            at = until

    @property
    def size(self) -> int:
        """Return the number of bytes written to the file so far.

        Records in the current, incomplete block are not included.
        """
        return self._bytes

    def close(self) -> ContainerStats:
        """Write the last block and return the statistics of the file.

        The underlying file remains open. The caller must close it.

        Returns:
            Number of records, size in bytes, and digest of the complete file.

        Raises:
            ValueError: `close` has already been called.
        """
        if self._closed:
            raise ValueError("the container is closed")
        self._flush_block()
        self._closed = True
        return ContainerStats(self._records, self._bytes, self._digest.hexdigest())

    def _flush_block(self) -> None:
        if not self._block_records:
            return
        data = self._compress(self._block)
        self._write(
            b"".join((encode_long(self._block_records), encode_long(len(data)), data, self._sync))
        )
        self._records += self._block_records
        self._block.clear()
        self._block_records = 0

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        written = self._file.write(data)
        assert written == len(data), "an unbuffered file accepts only parts; open it with a buffer"
        self._bytes += len(data)


class Block(NamedTuple):
    """Compressed block of an Avro container file.

    Attributes:
        records: Number of records.
        data: Content of the block, compressed with the codec of the container.
    """

    records: int
    data: bytes


class ContainerReader:
    """Iterator over the blocks of an Avro container file. Records are not decoded.

    The constructor and the iterator raise ValueError or EOFError if the file is not a valid
    container.

    Args:
        file: A binary file, positioned at its start.

    Attributes:
        metadata: The metadata in the file's header.
        sync: The 16-byte sync marker.
        header: All bytes before the first block. Together with any one block they form a valid
            container.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._taken = bytearray()
        if self._read(len(MAGIC)) != MAGIC:
            raise ValueError("the file does not begin with the header of an Avro container")
        self.metadata: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                self._long()  # bytes of the map's block
            for _ in range(abs(count)):
                name = self._read(self._long()).decode()
                self.metadata[name] = self._read(self._long())
        self.sync = self._read(SYNC_SIZE)
        self.header = bytes(self._taken)

    @property
    def codec(self) -> str:
        """Return the name of the codec in the file's header; `null` if there is none."""
        return self.metadata.get("avro.codec", b"null").decode(errors="replace")

    def __iter__(self) -> Iterator[Block]:
        while (first := self._file.read(1)) != b"":
            self._taken = bytearray()
            records = self._long(first)
            data = self._read(self._long())
            if self._read(SYNC_SIZE) != self.sync:
                raise ValueError("a block does not end with the container's sync marker")
            yield Block(records, data)

    def content(self, block: Block) -> bytes:
        """Return the decompressed content of a block.

        Args:
            block: Block of this container.

        Returns:
            Avro-encoded records, concatenated without separators.

        Raises:
            ValueError: The codec is not `deflate`, `zstandard` or `null`, or the data is damaged.
        """
        if self.codec not in _DECOMPRESSORS:
            raise ValueError(f"codec {self.codec} is not used in buckets")
        try:
            return _DECOMPRESSORS[self.codec](block.data)
        except (zlib.error, zstandard.ZstdError) as error:
            raise ValueError(f"a block cannot be decompressed: {error}") from error

    def single_block_container(self, block: Block) -> bytes:
        """Return a complete Avro container file that contains only the given block.

        Any Avro library can decode the records of this file.

        Args:
            block: Block of this container.

        Returns:
            Content of the file.
        """
        return b"".join(
            (
                self.header,
                encode_long(block.records),
                encode_long(len(block.data)),
                block.data,
                self.sync,
            )
        )

    def _long(self, first: bytes = b"") -> int:
        value, shift = 0, 0
        while True:
            byte = (first or self._read(1))[0]
            first = b""
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise ValueError("an integer is longer than 64 bits")

    def _read(self, size: int) -> bytes:
        found = self._file.read(size) if size >= 0 else b""
        if size < 0 or len(found) != size:
            raise EOFError("the container is truncated")
        self._taken += found
        return found


def _header(metadata: Mapping[str, str], sync: bytes) -> bytes:
    entries = [_sized(name.encode()) + _sized(value.encode()) for name, value in metadata.items()]
    return b"".join((MAGIC, encode_long(len(entries)), *entries, encode_long(0), sync))


def _sized(value: bytes) -> bytes:
    return encode_long(len(value)) + value


def _deflate() -> Callable[[bytearray], bytes]:
    return lambda block: isal_zlib.compress(block, _DEFLATE_LEVEL, _RAW)


def _zstandard() -> Callable[[bytearray], bytes]:
    return zstandard.ZstdCompressor(level=_ZSTANDARD_LEVEL).compress


def _decompress(stream: Any, data: bytes) -> bytes:
    content: bytes = stream.decompress(data)
    if not stream.eof or stream.unused_data:
        raise ValueError("a block cannot be decompressed: it is incomplete, or too long")
    return content


_COMPRESSORS: Final[Mapping[AvroCodec, Callable[[], Callable[[bytearray], bytes]]]] = {
    "deflate": _deflate,
    "zstandard": _zstandard,
}
_DECOMPRESSORS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda data: _decompress(zlib.decompressobj(_RAW), data),
    "zstandard": lambda data: _decompress(zstandard.ZstdDecompressor().decompressobj(), data),
}
