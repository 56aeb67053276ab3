"""A look into an open file: its fingerprints, then its size.

In this order: what is truncated in between is then shorter than it was, and never longer than what
the fingerprints are of.

The size of a file's *content* does not count the NULs that it ends with: a writer that allocates
its file ahead (fallocate, or a memory-mapped file, as log4j2's MemoryMappedFileAppender) writes
lines in their place later. Neither size nor time of the file tells when (a mapped page changes the
time once, not with each write), so each scan reads such a file again from the first of these NULs
on. NULs that are followed by other bytes are content.
"""

from __future__ import annotations

import errno
import os
from typing import Final, NamedTuple

from hourmark_producer.files.fingerprints import HEAD_BYTES
from hourmark_producer.files.tracked_file import Fingerprints, Position

_NUL: Final = b"\0"
_BLOCK_BYTES: Final = 1 << 16
_NULS: Final = bytes(
    _BLOCK_BYTES
)  # compared as a whole: to strip NULs takes a hundred times as long


class Look(NamedTuple):
    """What was found. `size`: of the content, in bytes, without the NULs at the end."""

    found: Fingerprints
    status: os.stat_result
    size: int


def look_into(descriptor: int, position: Position) -> Look:
    """Return what an open file that was read up to `position` holds now; raise OSError as pread(2).

    Where the bytes before the position are no longer there, nothing of the file is known, and its
    content is searched for from its start.
    """
    while True:
        anchored = is_anchored(descriptor, position)
        head = read_at(descriptor, 0, HEAD_BYTES)
        status = os.fstat(descriptor)
        size = content_end(descriptor, status.st_size, position.offset if anchored else 0)
        found = Fingerprints(head[:size], anchored)
        # NULs in the head may have been read before a line was written in their place
        if not found.head.endswith(_NUL) or read_at(descriptor, 0, len(found.head)) == found.head:
            return Look(found, status, size)


def content_end(descriptor: int, size: int, start: int) -> int:
    """Return where the NULs begin that a file ends with; `size` where it ends with none.

    Args: descriptor: The open file. Raises OSError as pread(2). size: The file's size in bytes.
        start: Not searched before this offset; returned where all bytes behind it are NULs. Nothing
        is read where `size` is
            not beyond it.
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
    """Return the end of the last data before `end` as far as the file system knows it, else `end`:
    holes need not be read.
    """
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


def is_anchored(descriptor: int, position: Position) -> bool:
    """Whether the bytes before the position still stand."""
    length = len(position.anchor)
    return read_at(descriptor, position.offset - length, length) == position.anchor


def read_into(descriptor: int, offset: int, room: memoryview) -> memoryview:
    """As much as there is room for, from `offset`; less only at the end of the file.

    What comes back is the room's.
    """
    done = 0
    while done < len(room) and (count := os.preadv(descriptor, [room[done:]], offset + done)):
        done += count
    return room[:done]


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """`count` bytes from `offset`, fewer only at the end of the file: pread may stop early, at 2
    GiB and on signals.
    """
    blocks: list[bytes] = []
    while count and (block := os.pread(descriptor, count, offset)):
        blocks.append(block)
        offset += len(block)
        count -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)
