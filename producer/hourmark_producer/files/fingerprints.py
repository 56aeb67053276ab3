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

from hourmark.records import named_files

# a line or two, with its time: enough to tell, small enough to keep for each of 10,000 files
ANCHOR_BYTES: Final = 256
HEAD_BYTES: Final = named_files.HEAD_BYTES  # `hourmark init` records as many
IDENTIFYING_BYTES: Final = 64  # less content than this could be equal by chance
# Of content that begins so, and was read here to there: how many of its bytes were read elsewhere,
# or will be.
FindElsewhere = Callable[[bytes, int], int]


class Truncation(NamedTuple):
    """One truncation or replacement of a file's content, detected by comparing two scans.

    Attributes:
        high: Largest content size observed before the truncation, in bytes.
        low: Content size at the scan that detected the truncation, in bytes.
        is_replaced: Whether the file now has entirely different content, so that none of the
            earlier content is left.
        head: First bytes of the earlier content.
    """

    high: int
    low: int
    is_replaced: bool
    head: bytes = b""


class TruncationVerdict(enum.Enum):
    """Effect of truncations on the position up to which a file was read.

    Attributes:
        SAME: The content only grew. The position is valid.
        SHORTENED: Unread bytes were destroyed. The position is still valid.
        REPLACED: The position is invalid. Reading begins again at offset 0, as a new generation of
            the file.
    """

    SAME = "same"
    SHORTENED = "shortened"  # lost unread bytes, but not the position
    REPLACED = "replaced"  # the position is void: a new generation begins at 0


class TruncationEffect(NamedTuple):
    """The effect of truncations on a file: whether its position is valid, and how much was lost.

    Attributes:
        verdict: Whether the position is still valid.
        lost_bytes: Number of unread bytes that are known to be destroyed; 0 if none.
    """

    verdict: TruncationVerdict
    lost_bytes: int


def find_no_copies(_head: bytes, _read_to: int) -> int:
    """Return 0, which means that no other file contains the content.

    Pass this function as the argument `find` of `assess_truncations` to count lost bytes without
    searching other files.
    """
    return 0


def assess_truncations(
    offset: int,
    truncations: Sequence[Truncation],
    find: FindElsewhere = find_no_copies,
    kept_to: int = 0,
) -> TruncationEffect:
    """Determine how truncations affect the read position of a file, and how many bytes were lost.

    Args:
        offset: Offset up to which the file was read before the first truncation.
        truncations: The observed truncations and replacements, in chronological order.
        find: Function that takes the first bytes of the lost content and the offset up to which it
            was read. Returns how many bytes of this content other files contain.
        kept_to: Offset up to which the file contains bytes that were read before an earlier
            truncation. They do not count as lost.

    Returns:
        The verdict and the number of lost bytes. Without truncations, the verdict is
        `TruncationVerdict.SAME` and the number is 0.
    """
    verdict, lost, read_to = TruncationVerdict.SAME, 0, offset
    for high, low, other, head in truncations:
        if other or low < read_to:
            lost += count_unread_bytes(high, read_to, head, find, kept_to)
            verdict, read_to, kept_to = TruncationVerdict.REPLACED, 0, 0
        else:
            lost += min(high - low, count_unread_bytes(high, read_to, head, find, kept_to))
            verdict = (
                TruncationVerdict.REPLACED
                if verdict is TruncationVerdict.REPLACED
                else TruncationVerdict.SHORTENED
            )
    return TruncationEffect(verdict, lost)


def count_unread_bytes(
    high: int, read_to: int, head: bytes, find: FindElsewhere, kept_to: int = 0
) -> int:
    """Return the number of unread bytes of a file that no other file contains.

    Args:
        high: Size of the content in bytes.
        read_to: Offset up to which this file was read.
        head: First bytes of the content.
        find: Function that returns how many bytes of the content other files contain, as for
            `assess_truncations`.
        kept_to: Offset up to which the file contains bytes that were read before an earlier
            truncation.

    Returns:
        Number of bytes; 0 if all of them were read or are in other files.
    """
    if high <= max(read_to, kept_to):
        return 0
    return max(0, high - max(read_to, kept_to, find(head, read_to)))


def extend_anchor(anchor: bytes, body: bytes | memoryview) -> bytes:
    """Return the anchor of a file after more bytes were read from it.

    The anchor is the last `ANCHOR_BYTES` bytes before the read position. It identifies the position
    when the file is opened again.

    Args:
        anchor: The previous anchor.
        body: The bytes that were read after it.
    """
    return (anchor + bytes(body[-ANCHOR_BYTES:]))[-ANCHOR_BYTES:]


def are_lines_equal(head: bytes, anchor: bytes) -> bool:
    """Return whether all known lines of a file are equal.

    At least three complete lines must be known; otherwise, the result is False. A file whose lines
    are all equal cannot be identified by its bytes.

    Args:
        head: First bytes of the file.
        anchor: Bytes just before the read position.
    """
    lines = [*head.split(b"\n")[:-1], *anchor.split(b"\n")[1:-1]]
    return len(lines) > 2 and len(set(lines)) == 1


def begins_alike(one: bytes, other: bytes) -> bool:
    """Return whether two files begin with the same bytes, so that one may be a copy of the other.

    The result is also False if fewer than `IDENTIFYING_BYTES` (64) bytes of either file are known,
    or if all known lines are equal. In these cases, a match would prove nothing.

    Args:
        one: First bytes of one file.
        other: First bytes of the other file.
    """
    length = min(len(one), len(other))
    return (
        length >= IDENTIFYING_BYTES
        and one[:length] == other[:length]
        and not are_lines_equal(one, b"")
    )
