"""What is left of a file that vanished, or was truncated: looked for in packed files and copies,
then read from one of them.

A position is an offset into plain content, so a packed file is inflated once to compare it and to
learn its size, and once more while the rest is read: forward only, and with no more in memory than
the longest line.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hourmark_producer.files.compressed import CutOff, Damaged, Plain
from hourmark_producer.files.examination import read_at
from hourmark_producer.files.fingerprints import ANCHOR_BYTES

_BLOCK_BYTES: Final = 1 << 16


class Stage(enum.Enum):
    """How far it came."""

    LOOKING = "looking"
    READING = "reading"
    FINISHED = "finished"
    NOWHERE = "nowhere"


class Known(NamedTuple):
    """What is known of the content that is looked for."""

    head: bytes
    offset: int
    anchor: bytes
    high: int  # the largest size that was seen


class Content(NamedTuple):
    """What was found in place of it.

    `readable`: its size, as far as it can be had; NOTHING: nothing of it.
    """

    readable: int
    flaw: str = ""  # why it is not whole
    grows: bool = False  # its end is not there, or not there yet


NOTHING: Final = -1


def compare(plain: Plain, known: Known, pause: Callable[[], object]) -> Content | None:
    """Read all of it; None where it is something else.

    `pause` is called now and then, and may raise. OSError.
    """
    size, end, head, before, flaw, grows, damaged = (
        0,
        0,
        b"",
        b"",
        "",
        False,
        False,
    )  # `end`: without NULs behind
    try:
        while block := plain.read(_BLOCK_BYTES):
            head += block[: len(known.head) - len(head)]
            if not known.head.startswith(head):
                return None
            if size < known.offset:
                before = (before + block[: known.offset - size])[-ANCHOR_BYTES:]
                if size + len(block) >= known.offset and not before.endswith(known.anchor):
                    return None
            if left := block.rstrip(b"\0"):
                end = size + len(left)
            size += len(block)
            pause()
    except CutOff as error:
        flaw, grows = str(error), True
    except Damaged as error:
        flaw, damaged = str(error), True
    is_it = head == known.head and size >= known.offset
    if not is_it and not flaw:
        return None
    if not flaw and size < known.high:
        flaw = f"it holds {size} bytes, and {known.high} had been seen"
    return Content(max(end, known.offset) if is_it and not damaged else NOTHING, flaw, grows)


class Unpacked:
    """An open plain file, read on from `start`; as `Plain`, which it stands in for.

    Owns the descriptor.
    """

    def __init__(self, descriptor: int, start: int) -> None:
        self._descriptor, self._at = descriptor, start

    def read(self, count: int) -> bytes:
        block = os.pread(self._descriptor, count, self._at)
        self._at += len(block)
        return block

    def holds(self, known: Known) -> Content | None:
        """As `compare`; a plain file need not be read for that."""
        size, length = os.fstat(self._descriptor).st_size, len(known.anchor)
        if (
            size < known.offset
            or read_at(self._descriptor, 0, len(known.head)) != known.head
            or read_at(self._descriptor, known.offset - length, length) != known.anchor
        ):
            return None
        return Content(size)

    def close(self) -> None:
        os.close(self._descriptor)


class Rest:
    """One file's. Its stage is moved by the file's worker; the scanner reads it."""

    def __init__(
        self, candidates: Mapping[str, int], *, truncated_at: int | None = None, head: bytes = b""
    ) -> None:
        """`candidates`: inodes of packed files and copies, by path, the likeliest first: a rotation
        gives paths to others.

        `truncated_at`, `head`: what it was before, where the file is still there.
        """
        self.candidates = candidates
        self.truncated_at = truncated_at
        self.head = head
        self.stage = Stage.LOOKING
        self.found_in = ""
        self.flaw = ""  # why not all of it, or nothing, can be had
        self._plain: Plain | Unpacked | None = None
        self._readable = 0
        self._start, self._window = 0, b""  # of plain content

    @property
    def reads_in(self) -> int | None:
        """The inode of what it is read from."""
        return self.candidates.get(self.found_in) if self.stage is Stage.READING else None

    @property
    def readable(self) -> int:
        """How far it is read there."""
        return self._readable

    def begin(
        self, found_in: str, plain: Plain | Unpacked, content: Content, start: int = 0
    ) -> None:
        """It is found. `plain`: from `start` on."""
        self.close()
        self.found_in, self.flaw = found_in, content.flaw
        self._plain, self._readable, self._start, self._window = plain, content.readable, start, b""
        self.stage = Stage.READING

    def end(self, stage: Stage, flaw: str = "") -> None:
        """Nothing more is read from it."""
        self.flaw = flaw or self.flaw
        self.close()
        self.stage = stage

    def read_at(self, offset: int, count: int, pause: Callable[[], object]) -> bytes:
        """Plain bytes; never from before an offset that was asked for earlier.

        OSError where it is not what it was.
        """
        assert self._plain is not None and offset >= self._start, "it is read forward only"
        end = min(offset + count, self._readable)
        try:
            while self._start + len(self._window) < end:
                block = self._plain.read(
                    min(_BLOCK_BYTES, self._readable - self._start - len(self._window))
                )
                if not block:
                    raise CutOff("it ends before its end")
                self._window += block
                self._forget(min(offset, self._start + len(self._window)))
                pause()
        except (CutOff, Damaged) as error:
            raise OSError(f"{self.found_in} was changed while it was read: {error}") from error
        return self._window[offset - self._start : max(offset, end) - self._start]

    def forget_before(self, offset: int) -> None:
        """What lies before is not asked for again."""
        self._forget(min(offset, self._start + len(self._window)))

    def _forget(self, offset: int) -> None:
        if offset > self._start:
            self._window = self._window[offset - self._start :]
            self._start = offset

    def close(self) -> None:
        """Let go of the packed file."""
        if self._plain is not None:
            self._plain.close()
            self._plain = None
