"""Determines whether the content of a compressed file was read before, as another file. Pure.

Content that was read is identified by its first bytes and by the bytes before the offset up to
which it was read. A compressed file that contains both is the same file or a copy of it. If so few
bytes are known that a match may be a coincidence, the result is undecided.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from hourmark_producer.files.fingerprints import (
    ANCHOR_BYTES,
    HEAD_BYTES,
    IDENTIFYING_BYTES,
    are_lines_equal,
)
from hourmark_producer.files.tracked_file import FilePosition, TrackedFile, TrackedFiles

_BLOCK_BYTES: Final = 1 << 16


class ReadState(enum.Enum):
    """Result of checking whether the content of a compressed file was read before.

    Attributes:
        READ: All or part of the content was read.
        UNREAD: The content was not read.
        UNDECIDED: There is too little information to decide. A retry does not help.
        NOT_YET: The decision is not possible yet. Try again later.
    """

    READ = "read"
    UNREAD = "unread"
    UNDECIDED = "untold"
    NOT_YET = "not yet"


class ContentHistory(NamedTuple):
    """The first bytes of a log file's content, and the offset up to which it was read.

    `determine_read_state` compares a compressed file with these entries. If both the first bytes
    and the bytes before the offset match, the content up to the offset was read before.

    Attributes:
        head: First bytes of the content.
        offset: Offset in bytes up to which the content was read; 0 if nothing was read.
        anchor: The bytes just before `offset`.
        awaited: Whether the log file may contain more of this content but was not examined yet.
        is_over: Whether no more of this content is read from the log file, for example because it
            was deleted. Later bytes can then only be read from the compressed file.
        settles: Whether the log file shrank, and it is not known yet whether this content was
            replaced.
        counted_to: Offset in bytes up to which all content was either read or counted as lost.
    """

    head: bytes
    offset: int
    anchor: bytes
    awaited: bool = False
    is_over: bool = False
    settles: bool = False
    counted_to: int = 0

    @property
    def is_identifying(self) -> bool:
        """Return whether the known bytes are sufficient to recognize the content in another file.

        False if fewer than `IDENTIFYING_BYTES` (64) are known, or if all known lines are equal.
        """
        enough = (
            len(self.head or self.anchor) >= IDENTIFYING_BYTES
            and not 0 < self.offset < IDENTIFYING_BYTES
        )
        return enough and not are_lines_equal(self.head, self.anchor)


class ReadStateResult(NamedTuple):
    """The result of `determine_read_state`.

    Attributes:
        state: Whether the content was read before.
        history: How far the content was read before. Later bytes must be read from the compressed
            file. None if `state` is not READ, or if the later bytes are read from another tracked
            file.
    """

    state: ReadState
    history: ContentHistory | None = None


class ContentStream(Protocol):
    """Sequential source of decompressed content, from its start to its end."""

    def read(self, count: int, /) -> bytes: ...


def list_known_contents(
    files: TrackedFiles, departed: Iterable[FilePosition], excluded: TrackedFile
) -> list[ContentHistory]:
    """List the contents with which a compressed file is compared.

    Pass the list to `determine_read_state`.

    Args:
        files: All tracked files.
        departed: Positions of files that no longer exist.
        excluded: The compressed file itself, which is not included in the list.

    Returns:
        The first bytes and the read position of each content, including content from before a
        truncation. Files without known bytes are omitted.
    """
    made = [
        ContentHistory(
            position.head,
            position.offset,
            position.anchor,
            is_over=True,
            counted_to=position.size_seen,
        )
        for position in departed
    ]
    for file in files:
        if file is not excluded and not file.suspected:
            made += _of_file(file)
    return [past for past in made if past.head or past.offset]


def _of_file(file: TrackedFile) -> list[ContentHistory]:
    progress = file.progress  # one consistent moment
    position, account = progress.position, file.observed.account_since(progress)
    awaited = not file.is_gone and (file.descriptor is None or progress.examined_at_s < 0)
    settles = bool(account.shrinks) and not file.is_gone
    ends = [(position, awaited, file.retired), (file.earlier.latest, False, True)]
    made = [
        ContentHistory(known.head, known.offset, known.anchor, more, is_over, settles)
        for known, more, is_over in ends
        if known and known.offset
    ]
    is_small = len(account.head) < IDENTIFYING_BYTES and not (
        account.shrinks or file.deleted or file.unfound
    )  # and here, as itself
    if not (file.is_gone or is_small) and (
        account.shrinks or not position.offset
    ):  # what it holds now will be read in its place
        made.append(
            ContentHistory(account.head, 0, b"", awaited=True if account.shrinks else awaited)
        )
    return made


def determine_read_state(
    content: ContentStream, known: Iterable[ContentHistory], pause: Callable[[], object]
) -> ReadStateResult:
    """Determine whether the content of a compressed file was read before.

    Reading stops as soon as the result is known.

    Args:
        content: The decompressed content, from its start. Exceptions raised by its `read` method
            are propagated.
        known: Contents to compare with, from `list_known_contents`.
        pause: Function that is called after each block. It may raise an exception to stop.

    Returns:
        The result. If part of the content may be unread, it includes the position at which to
        continue.
    """
    window, start = b"", 0
    while len(window) < HEAD_BYTES and (block := content.read(_BLOCK_BYTES)):
        window += block
    left = sorted(
        (past for past in known if window.startswith(past.head)), key=lambda past: past.offset
    )
    found = list[ContentHistory]()
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


def _answer(found: list[ContentHistory], is_beginning: bool, size: int) -> ReadStateResult:
    telling = [past for past in found if past.is_identifying and (past.offset or not past.awaited)]
    is_over = all(past.is_over for past in telling)
    if any(past.settles for past in telling) or (is_over and any(past.awaited for past in found)):
        return ReadStateResult(
            ReadState.NOT_YET
        )  # of two that begin so, the other may be the one that was packed
    if telling:
        return ReadStateResult(
            ReadState.READ,
            max(telling, key=lambda past: (past.offset, past.counted_to)) if is_over else None,
        )
    if (
        any(size in (past.offset, len(past.head)) for past in found) and size < HEAD_BYTES
    ):  # equal to the byte
        return ReadStateResult(ReadState.READ)
    return ReadStateResult(ReadState.UNDECIDED if found or is_beginning else ReadState.UNREAD)
