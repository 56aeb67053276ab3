"""Compressed files: their plain content as a stream, and files that end too early.

The plain content of a packed file, in a stream: gzip, bzip2, xz, zstd, of one part or several.

Memory is bounded whatever is in the file: a block at a time, and no dictionary over
`WINDOW_BYTES_MAX`. What a stream gives is bounded by the file's size (`plain_max`), so that a bomb
ends it. Nothing is written anywhere.

Packed files without an end: still being written, or cut off. Which one, only time tells; whoever
asks next goes on waiting.
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


class CutOff(Exception):
    """It ends before its end: still being written, or never finished."""


class Damaged(Exception):
    """It is no file of this form, or not as it was written; or what it holds is out of all
    proportion.
    """


class _Stream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class Plain:
    """The plain content of an open file, from its start on. Owns the descriptor."""

    def __init__(self, descriptor: int, name: str) -> None:
        """`name` tells the form by its end. Damaged, CutOff, OSError: as `read`."""
        self._file = os.fdopen(descriptor, "rb")
        self._left = plain_max(os.fstat(descriptor).st_size)
        self._stream = _stream(self._file, name)

    def read(self, count: int) -> bytes:
        """The next bytes, `count` at most; none at the end, where checksums were compared.

        CutOff, Damaged, OSError.
        """
        try:
            block = self._stream.read1(min(count, _BLOCK_BYTES))
        except EOFError as error:
            raise CutOff("it ends before its end") from error
        except (
            zlib.error,
            gzip.BadGzipFile,
            lzma.LZMAError,
            zstandard.ZstdError,
            ValueError,
        ) as error:
            raise Damaged(str(error)) from error
        except OSError as error:
            if error.errno is None:  # bz2's way to say that the content is wrong
                raise Damaged(str(error)) from error
            raise
        self._left -= len(block)
        if self._left < 0:
            raise Damaged(f"it holds more than {RATIO_MAX} times its size")
        return block

    def close(self) -> None:
        self._file.close()


def plain_max(size: int) -> int:
    """How many bytes a packed file of this size may hold."""
    return _FREE_BYTES + RATIO_MAX * size


def _stream(file: IO[bytes], name: str) -> _Stream:
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if name.endswith(".bz2"):
        return bz2.BZ2File(file, "rb")
    return _Zstd(file) if name.endswith(".zst") else _Xz(file)


class _Zstd:
    """Of several frames."""

    def __init__(self, file: IO[bytes]) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        self._file, self._reader = file, decompressor.stream_reader(file, read_across_frames=True)

    def read1(self, size: int, /) -> bytes:
        block = self._reader.read(size)
        if not block:
            _check_frames(self._file.fileno())
        return block


class _Xz:
    """As lzma.LZMAFile, with a limit for memory."""

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
        """The next part, where there is one; padding between parts is zeros."""
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
    """EOFError if the last frame of zstd is not finished: the reader ends there as if it were."""
    at, size = 0, os.fstat(descriptor).st_size
    if not size:
        raise EOFError
    while at < size:
        at = _end_of_frame(descriptor, at, size)
    if at > size:
        raise EOFError


def _end_of_frame(descriptor: int, at: int, size: int) -> int:
    """Where the frame ends that begins there (RFC 8878, 3.1); after the file if it is not
    finished.
    """
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


_KNOWN_MAX: Final = 256


class Unfinished:
    """By inode: how it was when it was looked at first, and since when it is so.

    Safe to use from several threads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[int, int], tuple[tuple[int, int], float]] = {}

    def unchanged_s(self, status: os.stat_result) -> float:
        """How long it has been as it is, as far as anybody looked."""
        now_s, key, stamp = (
            self._clock.monotonic_s(),
            (status.st_dev, status.st_ino),
            (status.st_size, status.st_mtime_ns),
        )
        before, since_s = self._known.pop(key, (stamp, now_s))
        since_s = since_s if before == stamp else now_s
        self._known[key] = stamp, since_s
        for oldest in list(self._known)[:-_KNOWN_MAX]:
            self._known.pop(oldest, None)
        return now_s - since_s
