"""What a file's size and its last bytes say about its past. Pure.

A size alone is no proof: a file truncated and grown again between two looks is as long as before, and where no birth time
is known an inode may be another file's by now. So the position is kept with its *anchor*, the bytes just before it;
where they are no longer there, what follows is not the continuation of what was sent.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

ANCHOR_BYTES: Final = 256  # a line or two, with its time: enough to tell, small enough to keep for each of 10,000 files


class Verdict(enum.Enum):
    """What happened to a file since it was last looked at."""

    SAME = "same"
    SHORTENED = "shortened"  # lost unread bytes, but not the position
    REPLACED = "replaced"  # the position is void: a new generation begins at 0


class Judgement(NamedTuple):
    """A verdict, and how many unread bytes are known to have been destroyed."""

    verdict: Verdict
    lost_bytes: int


def judge(*, offset: int, size_seen: int, size: int, anchored: bool) -> Judgement:
    """`offset`: read so far. `size_seen`: the largest size known. `size`: now. `anchored`: the bytes before it still stand."""
    assert 0 <= offset <= size_seen, "nothing can be read past the largest size known"
    if size < offset or not anchored:
        return Judgement(Verdict.REPLACED, size_seen - offset)
    if size < size_seen:
        return Judgement(Verdict.SHORTENED, size_seen - size)
    return Judgement(Verdict.SAME, 0)


def next_anchor(anchor: bytes, body: bytes) -> bytes:
    """The anchor after `body` was read on from `anchor`."""
    return (anchor + body[-ANCHOR_BYTES:])[-ANCHOR_BYTES:]
