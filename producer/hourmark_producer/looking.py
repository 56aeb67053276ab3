"""A look into an open file: its fingerprints, then its size.

In this order: what is truncated in between is then shorter than it was, and never longer than what the fingerprints are of.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from hourmark_producer.files import Fingerprints, Position
from hourmark_producer.truncation import HEAD_BYTES


class Look(NamedTuple):
    """What was found."""

    found: Fingerprints
    status: os.stat_result


def look_into(descriptor: int, position: Position) -> Look:
    """Of a file that was read up to `position`; OSError as of pread(2)."""
    anchored = is_anchored(descriptor, position)
    head = read_at(descriptor, 0, HEAD_BYTES)
    return Look(Fingerprints(head, anchored), os.fstat(descriptor))


def is_anchored(descriptor: int, position: Position) -> bool:
    """Whether the bytes before the position still stand."""
    length = len(position.anchor)
    return read_at(descriptor, position.offset - length, length) == position.anchor


def read_into(descriptor: int, offset: int, room: memoryview) -> memoryview:
    """As much as there is room for, from `offset`; less only at the end of the file. What comes back is the room's."""
    done = 0
    while done < len(room) and (count := os.preadv(descriptor, [room[done:]], offset + done)):
        done += count
    return room[:done]


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """`count` bytes from `offset`, fewer only at the end of the file: pread may stop early, at 2 GiB and on signals."""
    blocks: list[bytes] = []
    while count and (block := os.pread(descriptor, count, offset)):
        blocks.append(block)
        offset += len(block)
        count -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)
