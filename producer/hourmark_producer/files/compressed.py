"""Streaming decompression of log files in gzip, bzip2, xz and zstd format.

Memory is bounded: content is decompressed in blocks of 64 KiB, with dictionaries of at most
`WINDOW_BYTES_MAX`. The decompressed size is limited by the size of the file
(`decompressed_bytes_max`), which stops decompression bombs. Nothing is written to disk.

If a compressed file ends prematurely, a program may still be writing it, or it may have been
truncated. To distinguish the two, `IncompleteFileTimer` measures for how long a file has not
changed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from typing import IO, Final, Protocol

import zstandard

from hourmark.clock import Clock

WINDOW_BYTES_MAX: Final = 128 << 20  # the largest of `zstd --long`; xz -9 needs 64 MiB
RATIO_MAX: Final = 1000  # logs shrink to a tenth or a thirtieth
_FREE_BYTES: Final = 64 << 20  # so much in any case
_BLOCK_BYTES: Final = 1 << 16
_SKIPPABLE: Final = (
    0x184D2A5  # of zstd: a frame's magic number without its last 4 bits, which are free
)
_RUN_LENGTH: Final = 1  # of zstd: a block that is one byte, repeated
_FRAME_HEADER_MAX: Final = 18  # of zstd, with its magic number


class CompressedFileIncomplete(Exception):
    """Raised when a compressed file ends prematurely.

    Either a program is still writing the file, or the file was truncated. If the file has not
    changed for some time, treat it as truncated.
    """


class CompressedFileDamaged(Exception):
    """Raised when a compressed file cannot be decompressed. Do not retry.

    The file is corrupt, its format does not match the suffix of its name, or its content is larger
    than `decompressed_bytes_max` permits.
    """


class _Stream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class DecompressedReader:
    """Sequential reader of the decompressed content of a gzip, bzip2, xz or zstd file.

    The reader owns the file descriptor and closes it in `close`. Not thread-safe.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        """Take ownership of an open file, and select the decompressor by the file name.

        Args:
            descriptor: File descriptor, open for reading. `close` closes it.
            name: File name or path. Its suffix selects the format: `.gz`, `.bz2`, `.xz` or `.zst`.

        Raises:
            ValueError: The name has another suffix. The descriptor is closed.
            OSError: The file cannot be accessed.
        """
        self._file = os.fdopen(descriptor, "rb")
        self._left = decompressed_bytes_max(os.fstat(descriptor).st_size)
        try:
            self._stream = _stream(self._file, name)
        except ValueError:
            self._file.close()
            raise

    def read(self, count: int) -> bytes:
        """Return the next decompressed bytes, or `b""` at the end of the content.

        At the end of the content, the checksums of the format have been verified.

        Args:
            count: Maximum number of bytes. Fewer bytes may be returned even if more content
                follows.

        Raises:
            CompressedFileIncomplete: The file ends prematurely.
            CompressedFileDamaged: The content is corrupt or exceeds the allowed size.
            OSError: The file cannot be read.
        """
        try:
            block = self._stream.read1(min(count, _BLOCK_BYTES))
        except EOFError as error:
            raise CompressedFileIncomplete("it ends before its end") from error
        except (
            zlib.error,
            gzip.BadGzipFile,
            lzma.LZMAError,
            zstandard.ZstdError,
            ValueError,
        ) as error:
            raise CompressedFileDamaged(str(error)) from error
        except OSError as error:
            if error.errno is None:  # bz2's way to say that the content is wrong
                raise CompressedFileDamaged(str(error)) from error
            raise
        self._left -= len(block)
        if self._left < 0:
            raise CompressedFileDamaged(f"it holds more than {RATIO_MAX} times its size")
        return block

    def close(self) -> None:
        self._file.close()


def decompressed_bytes_max(size: int) -> int:
    """Return the maximum decompressed size of a compressed file, in bytes.

    The limit protects against decompression bombs. If the content exceeds it,
    `DecompressedReader.read` raises `CompressedFileDamaged`.

    Args:
        size: Size of the compressed file in bytes.
    """
    return _FREE_BYTES + RATIO_MAX * size


def _stream(file: IO[bytes], name: str) -> _Stream:
    # the suffixes are those of `patterns.PACKED`
    match name.rpartition(".")[2]:
        case "gz":
            return gzip.GzipFile(fileobj=file, mode="rb")
        case "bz2":
            return bz2.BZ2File(file, "rb")
        case "zst":
            return _Zstd(file)
        case "xz":
            return _Xz(file)
        case suffix:
            raise ValueError(f"no reader for compressed files with the suffix .{suffix}: {name}")


class _Zstd:
    def __init__(self, file: IO[bytes]) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        self._file, self._reader = file, decompressor.stream_reader(file, read_across_frames=True)

    def read1(self, size: int, /) -> bytes:
        block = self._reader.read(size)
        if not block:
            _check_frames(self._file.fileno())
        return block


class _Xz:
    # `lzma.LZMAFile` has no limit on memory
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decompressor: lzma.LZMADecompressor | None = None
        self._rest = b""

    def read1(self, size: int, /) -> bytes:
        while True:
            if (self._decompressor is None or self._decompressor.eof) and not self._begin():
                return b""
            assert self._decompressor is not None
            fed = self._rest
            if self._decompressor.needs_input and not fed:
                fed = self._file.read(_BLOCK_BYTES)
                if not fed:
                    raise EOFError
            self._rest = b""
            if block := self._decompressor.decompress(fed, size):
                return block

    def _begin(self) -> bool:
        rest = self._rest if self._decompressor is None else self._decompressor.unused_data
        while not (rest := rest.lstrip(b"\0")):
            rest = self._file.read(_BLOCK_BYTES)
            if not rest:
                if self._decompressor is None:
                    raise EOFError
                return False
        self._decompressor, self._rest = (
            lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=WINDOW_BYTES_MAX),
            rest,
        )
        return True


def _check_frames(descriptor: int) -> None:
    # the zstd reader does not report an incomplete last frame
    at, size = 0, os.fstat(descriptor).st_size
    if not size:
        raise EOFError
    while at < size:
        at = _end_of_frame(descriptor, at, size)
    if at > size:
        raise EOFError


def _end_of_frame(descriptor: int, at: int, size: int) -> int:
    # RFC 8878 section 3.1; more than `size` if the frame is incomplete
    header = os.pread(descriptor, _FRAME_HEADER_MAX, at)
    if len(header) < 8:
        return size + 1
    if int.from_bytes(header[:4], "little") >> 4 == _SKIPPABLE:
        return at + 8 + int.from_bytes(header[4:8], "little")
    checksum_size = 4 if zstandard.get_frame_parameters(header).has_checksum else 0
    at += zstandard.frame_header_size(header)
    last = 0
    while not last:
        if at >= size:
            return size + 1
        block = int.from_bytes(os.pread(descriptor, 3, at), "little")
        last, kind, length = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == _RUN_LENGTH else length)
    return at + checksum_size


UNFINISHED_FILES_MAX: Final = 256


class IncompleteFileTimer:
    """Measures for how long incomplete compressed files have not changed.

    If a file does not change for some time, no program is writing it any longer. Thread-safe.

    Args:
        clock: Clock of this host.
        files_max: Maximum number of files to remember. The least recently checked files are
            dropped first.
    """

    def __init__(self, clock: Clock, files_max: int = UNFINISHED_FILES_MAX) -> None:
        self._clock, self._files_max = clock, files_max
        self._known: dict[tuple[int, int], tuple[tuple[int, int], float]] = {}

    def unchanged_s(self, status: os.stat_result) -> float:
        """Return for how many seconds a file has not changed.

        Returns 0 at the first call for a file, and at the first call after its size or modification
        time has changed. Files are identified by device and inode.

        Args:
            status: Result of `os.fstat` for the file.
        """
        now_s, key, stamp = (
            self._clock.monotonic_s(),
            (status.st_dev, status.st_ino),
            (status.st_size, status.st_mtime_ns),
        )
        before, since_s = self._known.pop(key, (stamp, now_s))
        since_s = since_s if before == stamp else now_s
        self._known[key] = stamp, since_s
        for oldest in list(self._known)[: -self._files_max]:
            self._known.pop(oldest, None)
        return now_s - since_s
