"""What was really written, and what became of it.

It knows nothing of tailers: it is what they are measured by.

A *file* is one inode under changing names; a *body* is what it held between two truncations. Every
line has a number of its own, so it is told from every other wherever it turns up.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Final

from tests.support.tailer_model.forms import line_of, numbers_of
from tests.support.tailer_model.packing import suffix_of

TELLING_BYTES: Final = 64  # less than this is not told from what is equal by chance
_SMALL_BYTES: Final = 256
_FILLER: Final = b"abcdefghijklmnopqrstuvwxyz" * 8


@dataclasses.dataclass(slots=True, kw_only=True)
class Line:
    """One line. `written_ms`: when its end was there for all to read; None: it has none yet.
    `unwritten_ms`: when it was not.
    """

    number: int
    content: bytes
    written_ms: int | None = None
    unwritten_ms: int = 0


@dataclasses.dataclass(slots=True, eq=False)
class Body:
    """What a file held until it was truncated or deleted."""

    content: bytearray = dataclasses.field(default_factory=bytearray)
    lines: list[Line] = dataclasses.field(default_factory=list)
    destroyed: bool = False
    looked_at: bool = (
        False  # the tailer has said that it looked at all sources when something was in it
    )

    @property
    def missing(self) -> bytes:
        """What its last line lacks."""
        last = self.lines[-1] if self.lines else None
        if last is None or last.written_ms is not None:
            return b""
        begun = len(self.content) - (self.content.rfind(b"\n") + 1)
        return last.content[begun:]


@dataclasses.dataclass(slots=True, eq=False)
class File:
    """One inode. `name`: its path now; None once it has none. `is_followed`: its name is, or was
    when looked at, a source's.
    """

    name: str | None
    source: str
    bodies: list[Body]
    is_followed: bool = True
    looked_at: bool = False
    is_copy: bool = False
    is_nobodys: bool = False  # nothing that the tailer knows leads to it any more
    links: list[str] = dataclasses.field(default_factory=list)  # its other names

    @property
    def body(self) -> Body:
        """What it holds now."""
        return self.bodies[-1]


class Truth:
    """All files that ever were, and the lines that nobody was sent yet."""

    def __init__(self) -> None:
        self.files: list[File] = []
        self.undelivered: dict[int, tuple[Line, File, Body]] = {}
        self._numbers = 0

    def create(self, name: str, source: str) -> File:
        """A new file of this name."""
        file = File(name, source, [Body()])
        self.files.append(file)
        return file

    def at(self, name: str) -> File | None:
        """The file of this name."""
        return next((file for file in self.files if file.name == name), None)

    def named(self) -> Iterator[File]:
        """Those that have a name."""
        return (file for file in self.files if file.name is not None)

    def new_lines(self, count: int, size: int, source: str) -> list[Line]:
        """Lines as no other is; none of them is anywhere yet."""
        numbers = range(self._numbers, self._numbers + count)
        self._numbers += count
        return [
            Line(number=n, content=line_of(source, n, _FILLER[: n * 37 % size])) for n in numbers
        ]

    def wrote(self, file: File, content: bytes, lines: list[Line], since_ms: int) -> None:
        """`content` was added since then: it ends what was begun, then come these lines, the last
        perhaps without its end.
        """
        body, at_ms = file.body, now_ms()
        body.lines += lines
        body.content += content
        whole = body.content.count(b"\n")
        for line in body.lines[:whole]:
            if line.written_ms is None:
                line.written_ms, line.unwritten_ms = at_ms, since_ms
                self.undelivered[line.number] = (line, file, body)

    def is_begun(self, body: Body) -> bool:
        """Whether some of it is delivered."""
        return any(self._delivered(body))

    def _delivered(self, body: Body) -> Iterator[int]:
        """The sizes of its lines that are."""
        written = (line for line in body.lines if line.written_ms is not None)
        return (len(line.content) for line in written if line.number not in self.undelivered)

    def is_told(self, file: File) -> bool:
        """Whether the beginning of what it holds was delivered, and tells it from others."""
        return (
            len(file.bodies) == 1
            and not file.is_copy
            and sum(self._delivered(file.body)) >= 2 * TELLING_BYTES
        )

    def may_be_another(self, file: File) -> bool:
        """Whether too little of a packed file was delivered to tell it: the copy of a log that goes
        on from one that was read before, or a small one from another that was cut off.
        """
        if not suffix_of(file.name):
            return False
        delivered = sum(self._delivered(file.body))
        cut_off = any(
            suffix_of(other.name) and other.body.destroyed
            for other in self.named()
            if other is not file
        )
        is_small = len(file.body.content) < _SMALL_BYTES
        return delivered < TELLING_BYTES and (
            (file.is_copy and delivered > 0) or (is_small and cut_off)
        )

    def delivered(self, content: bytes) -> None:
        """A service has these lines."""
        for number in numbers_of(content):
            self.undelivered.pop(number, None)

    def copied(self, origin: File, name: str) -> File:
        """All of it is there a second time, under this name."""
        copy = self.create(name, origin.source)
        copy.is_copy = True
        copy.body.content = bytearray(origin.body.content)
        begun = (
            dataclasses.replace(line) if line.written_ms is None else line
            for line in origin.body.lines
        )
        copy.body.lines = list(begun)  # a line without its end may get it in one of both
        return copy

    def left_in(self, copy: File, origin: File) -> None:
        """What stood in both stands in the copy alone from now on."""
        copied = {line.number for line in copy.body.lines if line.written_ms is not None}
        for number, (_, file, body) in list(self.undelivered.items()):
            if file is origin and body is origin.body and number in copied:
                self.undelivered[number] = (self.undelivered[number][0], copy, copy.body)

    def destroyed(self, file: File) -> None:
        """What it held is nowhere any more; it holds nothing now."""
        file.body.destroyed = True
        file.bodies.append(Body())


def now_ms() -> int:
    """Unix milliseconds of this machine."""
    return time.time_ns() // 1_000_000
