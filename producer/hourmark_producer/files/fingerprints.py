"""What sizes and a few bytes of a file say about its past. Pure.

A size alone is no proof: a file truncated and grown again between two looks is as long as before,
and where no birth time is known an inode may be another file's by now. So two fingerprints are
kept: the *head*, the first bytes as they were found, and with the position its *anchor*, the bytes
just before it. Where one is no longer there, what follows is not the continuation of what was
known.

Each look compares with the one before. What a *shrink* destroyed is known as far as it had been
seen: the largest size seen before it, less what was read. What was written between that look and
the truncation is unknown, and said to be.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

# a line or two, with its time: enough to tell, small enough to keep for each of 10,000 files
ANCHOR_BYTES: Final = 256
HEAD_BYTES: Final = 256
# Of content that begins so, and was read here to there: how many of its bytes were read elsewhere,
# or will be.
Find = Callable[[bytes, int], int]


class Shrink(NamedTuple):
    """Bytes that were seen are not there any more.

    Sizes: the largest seen before it, and the one that the next look found.
    """

    high: int
    low: int
    other: bool  # a fingerprint is gone: nothing of before is left, whatever the size
    head: bytes = b""  # what began it until then


class Verdict(enum.Enum):
    """What happened to a file since it was last examined."""

    SAME = "same"
    SHORTENED = "shortened"  # lost unread bytes, but not the position
    REPLACED = "replaced"  # the position is void: a new generation begins at 0


class Judgement(NamedTuple):
    """A verdict, and how many unread bytes are known to have been destroyed."""

    verdict: Verdict
    lost_bytes: int


def nowhere(_head: bytes, _read_to: int) -> int:
    """Nothing is elsewhere, or nobody looks."""
    return 0


def judge(
    offset: int, shrinks: Sequence[Shrink], find: Find = nowhere, kept_to: int = 0
) -> Judgement:
    """Return what these shrinks mean.

    What came after one that voids the position is unread from its start.

    Args: offset: Up to where the file was read before the first of the shrinks. shrinks: In their
        order. find: Returns how much of some content is read elsewhere. kept_to: Up to there the
        file holds what was left of the generation before, all of which was read: it is not lost.
    """
    verdict, lost, read_to = Verdict.SAME, 0, offset
    for high, low, other, head in shrinks:
        if other or low < read_to:
            lost += unread(high, read_to, head, find, kept_to)
            verdict, read_to, kept_to = Verdict.REPLACED, 0, 0
        else:
            lost += min(high - low, unread(high, read_to, head, find, kept_to))
            verdict = Verdict.REPLACED if verdict is Verdict.REPLACED else Verdict.SHORTENED
    return Judgement(verdict, lost)


def unread(high: int, read_to: int, head: bytes, find: Find, kept_to: int = 0) -> int:
    """Return how many bytes of content of this size are read nowhere. `kept_to`: as `judge`
    has it.
    """
    if high <= max(read_to, kept_to):
        return 0
    return max(0, high - max(read_to, kept_to, find(head, read_to)))


def next_anchor(anchor: bytes, body: bytes | memoryview) -> bytes:
    """The anchor after `body` was read on from `anchor`."""
    return (anchor + bytes(body[-ANCHOR_BYTES:]))[-ANCHOR_BYTES:]


def are_alike(head: bytes, anchor: bytes) -> bool:
    """Whether a file's lines are one line over and over: then no fingerprint tells a truncation
    from growth.
    """
    lines = [*head.split(b"\n")[:-1], *anchor.split(b"\n")[1:-1]]
    return len(lines) > 2 and len(set(lines)) == 1
