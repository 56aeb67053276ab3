"""Examination of an open file: its fingerprints first, then its size.

This order matters: if the file is truncated in between, the size is too small for the fingerprints,
and the truncation is detected. In the reverse order, it could be missed. The first bytes are read
again after the size. Otherwise, if a file was truncated and has grown beyond its former size, it
could be mistaken for its former content, and too many bytes would be counted as lost.

The content of a file ends before its trailing NUL bytes. A writer that preallocates its file
(fallocate, or a memory-mapped file such as log4j2's MemoryMappedFileAppender) replaces the NULs
with lines later. Neither the size nor the modification time shows when (a mapped page changes the
time once, not with each write), so each scan reads such a file from its first trailing NUL on. NULs
that are followed by other bytes are content.
"""

from __future__ import annotations

import errno
import os
from typing import Final, NamedTuple

from hourmark_producer.files.fingerprints import HEAD_BYTES
from hourmark_producer.files.tracked_file import FilePosition, Fingerprints

_NUL: Final = b"\0"
_BLOCK_BYTES: Final = 1 << 16
_NULS: Final = bytes(
    _BLOCK_BYTES
)  # compared as a whole: to strip NULs takes a hundred times as long


class Examination(NamedTuple):
    """Fingerprints, status and content size of an open file, all read at about the same time.

    Attributes:
        found: Fingerprints of the content: its first bytes, and whether the bytes before the read
            position are unchanged.
        status: Result of `os.fstat`, taken after the fingerprints.
        size: Size of the content in bytes, without trailing NUL bytes.
    """

    found: Fingerprints
    status: os.stat_result
    size: int


def examine(descriptor: int, position: FilePosition) -> Examination:
    """Read the current fingerprints, status and content size of an open file.

    The fingerprints show whether the content was replaced. NUL bytes at the end of the file do not
    count as content, but bytes before the read position do unless they have changed. If the first
    bytes change during the examination, it is repeated.

    Args:
        descriptor: File descriptor, open for reading.
        position: Position up to which the file was read, with its fingerprints.

    Returns:
        The result of the examination.

    Raises:
        OSError: The file cannot be read.
    """
    while True:
        anchored = is_anchored(descriptor, position)
        head = read_at(descriptor, 0, HEAD_BYTES)
        status = os.fstat(descriptor)
        size = content_end(descriptor, status.st_size, position.offset if anchored else 0)
        found = Fingerprints(head[:size], anchored)
        # else the size is not that of the content with this head, or a line replaced NULs meanwhile
        if read_at(descriptor, 0, len(found.head)) == found.head:
            return Examination(found, status, size)


def content_end(descriptor: int, size: int, start: int) -> int:
    """Return the size of a file without the NUL bytes at its end.

    Some programs preallocate a file. It then ends with NUL bytes until lines replace them.

    Args:
        descriptor: File descriptor, open for reading.
        size: Size of the file in bytes.
        start: Lowest offset to search. NUL bytes before it count as content.

    Returns:
        Offset after the last byte that is not NUL, or `start` if only NUL bytes follow `start`. If
        `start` is not less than `size`, `size` is returned.

    Raises:
        OSError: The file cannot be read.
    """
    if size <= start or os.pread(descriptor, 1, size - 1) != _NUL:
        return size
    end = size
    while end > start:
        begin = max(start, end - _BLOCK_BYTES)
        block = read_at(descriptor, begin, end - begin)
        if block != _NULS[: len(block)] and (left := block.rstrip(_NUL)):
            return begin + len(left)
        end = _hole_begin(descriptor, start, begin)
    return start


def _hole_begin(descriptor: int, start: int, end: int) -> int:
    # `end` if there is no hole before it, or if the file system does not report holes
    at = start
    try:
        while at < end:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
            if data >= end:
                return at
            at = os.lseek(descriptor, data, os.SEEK_HOLE)
    except OSError as error:
        return at if error.errno == errno.ENXIO else end
    return end


def is_anchored(descriptor: int, position: FilePosition) -> bool:
    """Return whether a file still contains the bytes that were read just before a position.

    If not, the content was replaced, and the position is invalid.

    Args:
        descriptor: File descriptor, open for reading.
        position: Position in the file. Its `anchor` holds the expected bytes.

    Raises:
        OSError: The file cannot be read.
    """
    length = len(position.anchor)
    return read_at(descriptor, position.offset - length, length) == position.anchor


def read_into(descriptor: int, offset: int, buffer: memoryview) -> memoryview:
    """Read from an offset into a buffer until the buffer is full or the file ends.

    Args:
        descriptor: File descriptor, open for reading.
        offset: Offset of the first byte in the file.
        buffer: Buffer to fill. Its length is the number of bytes to read.

    Returns:
        A view of the filled part of the buffer. Empty if `offset` is at or after the end of the
        file.

    Raises:
        OSError: The file cannot be read.
    """
    done = 0
    while done < len(buffer) and (count := os.preadv(descriptor, [buffer[done:]], offset + done)):
        done += count
    return buffer[:done]


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """Read bytes of a file from an offset.

    Unlike pread(2), this function continues after a short read, which can occur on signals and
    above 2 GiB.

    Args:
        descriptor: File descriptor, open for reading.
        offset: Offset of the first byte in the file.
        count: Number of bytes.

    Returns:
        The bytes. Fewer than `count` are returned only at the end of the file; none if `offset` is
        at or after the end.

    Raises:
        OSError: The file cannot be read.
    """
    blocks: list[bytes] = []
    while count and (block := os.pread(descriptor, count, offset)):
        blocks.append(block)
        offset += len(block)
        count -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)
