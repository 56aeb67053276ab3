"""Whether the content of a packed file was read already, as another file: told by what is known of
files at both ends. Pure.

What was read of a file is known by its first bytes, and by those before the place up to which it
was read. An archive that holds both is that file, packed, or a copy of it. Where so little is known
that it may be equal by chance, nothing is told.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES, are_alike
from hourmark_producer.files.tracked_file import Files, Position, TrackedFile
from hourmark_producer.history.copies import OFFSET_MIN

_BLOCK_BYTES: Final = 1 << 16


class Answer(enum.Enum):
    """Whether it was read."""

    READ = "read"
    UNREAD = "unread"
    UNTOLD = "untold"  # nothing tells
    NOT_YET = "not yet"  # something will


class Past(NamedTuple):
    """What was read, or will be.

    `awaited`: another moment tells more. `is_over`: what comes behind it nobody else reads.

    `settles`: it was truncated, and a copy of it is looked for. `counted_to`: up to there its bytes
    are accounted for.
    """

    head: bytes
    offset: int
    anchor: bytes
    awaited: bool = False
    is_over: bool = False
    settles: bool = False
    counted_to: int = 0

    @property
    def is_telling(self) -> bool:
        """Whether another file does not hold this by chance."""
        enough = len(self.head or self.anchor) >= OFFSET_MIN and not 0 < self.offset < OFFSET_MIN
        return enough and not are_alike(self.head, self.anchor)


class Told(NamedTuple):
    """An answer. `past`: READ up to there, and what comes behind it is not, if anything does."""

    answer: Answer
    past: Past | None = None


class Stream(Protocol):
    """Plain content, from its start on."""

    def read(self, count: int, /) -> bytes: ...


def pasts(files: Files, departed: Iterable[Position], of: TrackedFile) -> list[Past]:
    """All that is known, but for the file that it is asked of."""
    made = [
        Past(
            position.head,
            position.offset,
            position.anchor,
            is_over=True,
            counted_to=position.size_seen,
        )
        for position in departed
    ]
    for file in files:
        if file is not of and not file.suspected:
            made += _of_file(file)
    return [past for past in made if past.head or past.offset]


def _of_file(file: TrackedFile) -> list[Past]:
    progress = file.progress  # one consistent moment
    position, account = progress.position, file.observed.of(progress)
    awaited = not file.is_gone and (file.descriptor is None or progress.examined_at_s < 0)
    settles = bool(account.shrinks) and not file.is_gone
    ends = [(position, awaited, file.retired), (file.former, False, True)]
    made = [
        Past(known.head, known.offset, known.anchor, more, is_over, settles)
        for known, more, is_over in ends
        if known and known.offset
    ]
    is_small = len(account.head) < OFFSET_MIN and not (
        account.shrinks or file.deleted or file.unfound
    )  # and here, as itself
    if not (file.is_gone or is_small) and (
        account.shrinks or not position.offset
    ):  # what it holds now will be read in its place
        made.append(Past(account.head, 0, b"", awaited=True if account.shrinks else awaited))
    return made


def ask(content: Stream, known: Iterable[Past], pause: Callable[[], object]) -> Told:
    """Read as much of it as tells.

    `pause` is called now and then, and may raise. Raises as `content` does.
    """
    window, start = b"", 0
    while len(window) < HEAD_BYTES and (block := content.read(_BLOCK_BYTES)):
        window += block
    left = sorted(
        (past for past in known if window.startswith(past.head)), key=lambda past: past.offset
    )
    found = list[Past]()
    while left:
        while left and left[0].offset <= start + len(window):
            past = left.pop(0)
            if window[: past.offset - start].endswith(past.anchor):
                found.append(past)
        if not left or not (block := content.read(_BLOCK_BYTES)):
            break  # what is left may go on where this ends
        passed = max(0, len(window) - ANCHOR_BYTES)
        start, window = start + passed, window[passed:] + block
        pause()
    return _answer(found, any(past.head for past in left), start + len(window))


def _answer(found: list[Past], is_beginning: bool, size: int) -> Told:
    """`is_beginning`: it may be that of something longer.

    `size`: of the content, where it is small.
    """
    telling = [past for past in found if past.is_telling and (past.offset or not past.awaited)]
    is_over = all(past.is_over for past in telling)
    if any(past.settles for past in telling) or (is_over and any(past.awaited for past in found)):
        return Told(
            Answer.NOT_YET
        )  # of two that begin so, the other may be the one that was packed
    if telling:
        return Told(
            Answer.READ,
            max(telling, key=lambda past: (past.offset, past.counted_to)) if is_over else None,
        )
    if (
        any(size in (past.offset, len(past.head)) for past in found) and size < HEAD_BYTES
    ):  # equal to the byte
        return Told(Answer.READ)
    return Told(Answer.UNTOLD if found or is_beginning else Answer.UNREAD)
