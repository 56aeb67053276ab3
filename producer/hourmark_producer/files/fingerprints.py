"""What the sizes and a few bytes of a file reveal about truncation and replacement. Pure functions.

A size alone proves nothing: a file that was truncated and has grown again may be as long as before,
and without a birth time an inode may belong to another file. So two fingerprints are kept: the
*head*, the first bytes of the file, and the *anchor*, the bytes just before the position. If one of
them has changed, the content is not a continuation of what was read.

Each scan is compared with the one before. The loss of a *shrink* is the largest size that was seen
before it, minus what was read. Bytes that were written between the last scan and the truncation are
an unknown loss.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

# a line or two, with its time: enough to tell, small enough to keep for each of 10,000 files
ANCHOR_BYTES: Final = 256
HEAD_BYTES: Final = 256
IDENTIFYING_BYTES: Final = 64  # less content than this could be equal by chance
# Of content that begins so, and was read here to there: how many of its bytes were read elsewhere,
# or will be.
FindElsewhere = Callable[[bytes, int], int]


class Shrink(NamedTuple):
    """A truncation or replacement of a file's content, detected between two scans.

    Attributes:
        high: Largest content size seen before it, in bytes.
        low: Content size at the scan that detected it, in bytes.
        other: Whether a fingerprint changed: then none of the former content is left.
        head: First bytes of the former content.
    """

    high: int
    low: int
    other: bool  # a fingerprint is gone: nothing of before is left, whatever the size
    head: bytes = b""  # what began it until then


class ShrinkVerdict(enum.Enum):
    """What happened to a file's content since the file was last examined.

    SAME: it only grew. SHORTENED: unread bytes were lost, the position is still valid. REPLACED:
    the position is invalid, and a new generation of the file begins at offset 0.
    """

    SAME = "same"
    SHORTENED = "shortened"  # lost unread bytes, but not the position
    REPLACED = "replaced"  # the position is void: a new generation begins at 0


class ShrinkJudgement(NamedTuple):
    """A verdict, and the number of unread bytes that are known to be destroyed."""

    verdict: ShrinkVerdict
    lost_bytes: int


def find_nothing(_head: bytes, _read_to: int) -> int:
    """Return 0: no content of the file is read from another file."""
    return 0


def judge_shrinks(
    offset: int, shrinks: Sequence[Shrink], find: FindElsewhere = find_nothing, kept_to: int = 0
) -> ShrinkJudgement:
    """Return what shrinks mean for a file's position, and how many unread bytes they destroyed.

    Args:
        offset: Offset up to which the file was read before the first shrink.
        shrinks: The shrinks in order of time.
        find: Called with the head of lost content and the offset up to which it was read; returns
            how many of its bytes are read from other files.
        kept_to: Offset up to which the file holds bytes that were read in its former generation.
            They do not count as lost.

    Returns:
        The verdict and the number of bytes; `ShrinkVerdict.SAME` and 0 if there are no shrinks.
    """
    verdict, lost, read_to = ShrinkVerdict.SAME, 0, offset
    for high, low, other, head in shrinks:
        if other or low < read_to:
            lost += count_unread_bytes(high, read_to, head, find, kept_to)
            verdict, read_to, kept_to = ShrinkVerdict.REPLACED, 0, 0
        else:
            lost += min(high - low, count_unread_bytes(high, read_to, head, find, kept_to))
            verdict = (
                ShrinkVerdict.REPLACED
                if verdict is ShrinkVerdict.REPLACED
                else ShrinkVerdict.SHORTENED
            )
    return ShrinkJudgement(verdict, lost)


def count_unread_bytes(
    high: int, read_to: int, head: bytes, find: FindElsewhere, kept_to: int = 0
) -> int:
    """Return how many bytes of some content were read neither here nor in another file.

    Args:
        high: Size of the content in bytes.
        read_to: Offset up to which it was read.
        head: Its first bytes.
        find: Returns how many of its bytes are read from other files, as for `judge_shrinks`.
        kept_to: Offset up to which it holds bytes that were read in the former generation.
    """
    if high <= max(read_to, kept_to):
        return 0
    return max(0, high - max(read_to, kept_to, find(head, read_to)))


def next_anchor(anchor: bytes, body: bytes | memoryview) -> bytes:
    """Return the anchor after reading `body`, given the anchor before it."""
    return (anchor + bytes(body[-ANCHOR_BYTES:]))[-ANCHOR_BYTES:]


def are_lines_equal(head: bytes, anchor: bytes) -> bool:
    """Return whether the lines in these two pieces of a file are more than two and all equal.

    Fingerprints cannot distinguish a truncation of such a file from growth.
    """
    lines = [*head.split(b"\n")[:-1], *anchor.split(b"\n")[1:-1]]
    return len(lines) > 2 and len(set(lines)) == 1


def begins_alike(one: bytes, other: bytes) -> bool:
    """Return whether two heads are equal in their common length and sufficient as identification.

    Heads whose common length is less than `IDENTIFYING_BYTES` bytes, or whose lines are all equal, are
    not.
    """
    length = min(len(one), len(other))
    return (
        length >= IDENTIFYING_BYTES
        and one[:length] == other[:length]
        and not are_lines_equal(one, b"")
    )
