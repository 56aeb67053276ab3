"""Decides whether content was read before, and which file contains lost content.

`ContentMatcher.match` takes the content and returns a decision. It reads files and the checkpoint,
and changes neither. The caller makes the decision durable (`skip_copied_bytes`,
`hourmark_producer.history.remainders`).

| content | decisions |
|---|---|
| `UnreadFile`: an open plain file that has not been read yet | `NewContent`, `CopyOf` |
| `NewCompressedFile`: a compressed file that no scan has seen as a plain file | `ReadFrom`, `AlreadyRead`, `Undecidable` |
| `LostContent`: the unread content of a file that vanished or was truncated | `FoundInFile`, `Undecidable` |

`match` raises `RetryLater` if the decision depends on something that is still changing. A wrong
`NewContent` sends lines twice, and a wrong `AlreadyRead` loses them.

The steps, in this order:

1. Names (`rotated_names`) limit which files are compared with a plain file or with lost content.
   Otherwise each new file would be compared with every tracked file, and the logs of two programs
   with the same banner would match. A new compressed file is compared with all content that was
   read, because the name of its original may be unknown.
2. Reservations (`holders`). A candidate that is reserved for one file is not compared for another:
   each of two equal files must find a candidate of its own. This check costs nothing, so it comes
   before any content is read.
3. Content (`copies` for plain files, `read_state` for compressed ones, `holders` for lost content):
   the first bytes, and the bytes before the offset up to which the content was read. Fewer than 64
   bytes, or lines that are all equal, prove nothing.
4. Completeness. If a candidate matches so far but is still being copied or compressed, the decision
   waits. This comes after the content, so that no file waits for an unrelated one.
5. Other searches. If an active search may contradict the decision, the decision waits for it. This
   comes last, because most decisions do not depend on a search, and a search may take minutes.

Bytes that no file contains are lost. After `match` has found no candidate,
`ContentMatcher.assess_truncation` and `count_lost_bytes` count them (`lost_content`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import Final, overload

from hourmark.clock import Clock
from hourmark_producer.checkpoint import archives
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.archives import ArchiveStamp
from hourmark_producer.checkpoint.books import count_skipped
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
)
from hourmark_producer.files.fingerprints import (
    ANCHOR_BYTES,
    HEAD_BYTES,
    IDENTIFYING_BYTES,
    TruncationEffect,
)
from hourmark_producer.files.remainder import (
    NOTHING,
    KnownContent,
    PlainFileReader,
    RemainderSearch,
)
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FilePosition,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.copies import (
    CopyCandidate,
    CopyOrigin,
    describe_candidate,
    find_origin,
    first_new_offset,
    possible_origins,
)
from hourmark_producer.history.holders import (
    CandidateComparer,
    ContentHolder,
    may_be_found_compressed,
)
from hourmark_producer.history.lost_content import LostContentFinder
from hourmark_producer.history.read_state import (
    ContentHistory,
    ReadState,
    determine_read_state,
    list_known_contents,
)

_UNSUCCESSFUL_MAX: Final = 64
_BLOCK_BYTES: Final = 1 << 16
_LOG = logging.getLogger(__name__)
NEVER_READ: Final = ContentHistory(b"", 0, b"")


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadFile:
    """An open uncompressed file of which nothing has been read since it was last truncated.

    Pass it to `ContentMatcher.match`, which decides whether the file is a copy of another file.

    Attributes:
        file: The file.
        descriptor: Its file descriptor, open for reading.
    """

    file: TrackedFile
    descriptor: int


@dataclasses.dataclass(frozen=True, slots=True)
class NewCompressedFile:
    """A new compressed file whose original is unknown.

    Pass it to `ContentMatcher.match`, which decides whether its content was read before it was
    compressed.

    Attributes:
        file: The compressed file.
        search: State of the examination. It contains the compressed file as its only candidate.
    """

    file: TrackedFile
    search: RemainderSearch


@dataclasses.dataclass(frozen=True, slots=True)
class LostContent:
    """The unread content of a file that vanished or was truncated.

    Pass it to `ContentMatcher.match`, which searches other files for the content.

    Attributes:
        file: The file that lost the content.
        search: The search, with the files that may contain the content. For a truncated file, it
            also contains the size and the first bytes before the truncation.
    """

    file: TrackedFile
    search: RemainderSearch


@dataclasses.dataclass(frozen=True, slots=True)
class NewContent:
    """The decision to read an uncompressed file from its start.

    `ContentMatcher.match` returns it for an `UnreadFile` that is not a copy, or of which no bytes
    can be skipped. It has no attributes.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class CopyOf:
    """The decision to skip the first bytes of a file, because it is a copy of another file.

    The tailer reads these bytes from the original, or has already read them. `ContentMatcher.match`
    returns this decision for an `UnreadFile`. Apply it with `skip_copied_bytes`.

    Attributes:
        origin: The original file, and the position up to which it was read.
        end: Offset of the first byte to read from the copy.
        read: Function that takes an offset and a number of bytes, and returns these bytes of the
            copy.
    """

    origin: CopyOrigin
    end: int
    read: Callable[[int, int], bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadFrom:
    """The decision to read a compressed file from a given offset.

    `ContentMatcher.match` returns it for a `NewCompressedFile` that contains unread lines. Offsets
    refer to the decompressed content.

    Attributes:
        history: First bytes of the content, and the offset up to which it was read before, at which
            reading continues; `NEVER_READ` (offset 0) if nothing was read.
        holder: The compressed file and the size of its content.
        stamp: Inode, size and modification time of the compressed file when it was compared.
    """

    history: ContentHistory
    holder: ContentHolder
    stamp: ArchiveStamp


@dataclasses.dataclass(frozen=True, slots=True)
class AlreadyRead:
    """The decision not to read a compressed file, because it contains no unread lines.

    Its content was read before it was compressed, is read from another tracked file, or is empty.
    `ContentMatcher.match` returns this decision for a `NewCompressedFile`. It has no attributes.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class FoundInFile:
    """The decision to read the unread content of a vanished or truncated file from another file.

    `ContentMatcher.match` returns it for a `LostContent`.

    Attributes:
        holder: The file that contains the content, and the size of the content.
        copy: The bytes of the content to skip, if the vanished file was itself a copy of another
            tracked file; otherwise None.
    """

    holder: ContentHolder
    copy: CopyOf | None


@dataclasses.dataclass(frozen=True, slots=True)
class Undecidable:
    """The decision not to read content, because too little is known about it.

    It is unknown whether the content was read before, or which file contains it.
    `ContentMatcher.match` returns this decision for a `NewCompressedFile` or a `LostContent`.

    Attributes:
        reason: Explanation, which may be empty. For a `NewCompressedFile`, the caller reports a
            loss of unknown size with this explanation, or no loss if it is empty.
    """

    reason: str = ""


class ContentMatcher:
    """Decides whether content was read before, and finds lost content in other files.

    Files are compared by their first bytes and by the bytes just before the read position.
    Thread-safe.

    Args:
        files: All tracked files.
        checkpoint: The tailer's database, which holds the positions of files that no longer exist.
        clock: Clock that measures the age of files.

    Attributes:
        files: All tracked files.
        stopping: Event that stops all comparisons. Once it is set, they raise `RetryLater`.
    """

    def __init__(self, files: TrackedFiles, checkpoint: Checkpoint, clock: Clock) -> None:
        self.files = files
        self.stopping = threading.Event()
        self._checkpoint, self._clock = checkpoint, clock
        self._holders = CandidateComparer(files, clock, self.check_stopping)
        self._lost = LostContentFinder(files, checkpoint)
        self._lock = threading.Lock()
        # the inodes of the candidates, per search that ended without a result
        self._unsuccessful: list[set[int]] = []

    @overload
    def match(self, content: UnreadFile) -> NewContent | CopyOf: ...
    @overload
    def match(self, content: NewCompressedFile) -> ReadFrom | AlreadyRead | Undecidable: ...
    @overload
    def match(self, content: LostContent) -> FoundInFile | Undecidable: ...

    def match(
        self, content: UnreadFile | NewCompressedFile | LostContent
    ) -> NewContent | CopyOf | ReadFrom | AlreadyRead | FoundInFile | Undecidable:
        """Decide whether content was read before, or find the file that contains lost content.

        Args:
            content: The content to examine. Only one thread may pass the same file at a time.

        Returns:
            The decision:

            - for an `UnreadFile`: `NewContent` or `CopyOf`
            - for a `NewCompressedFile`: `ReadFrom`, `AlreadyRead` or `Undecidable`
            - for a `LostContent`: `FoundInFile` or `Undecidable`

        Raises:
            CandidateRenamed: A candidate file is no longer at its path. List the candidates again.
            RetryLater: The decision is not possible yet. Call again after a pause.
            OSError: A file cannot be read.
            CheckpointFailed: The positions of files that no longer exist cannot be read.
        """
        match content:
            case UnreadFile():
                return self._match_unread(content.file, content.descriptor)
            case NewCompressedFile():
                return self._match_compressed(content.file, content.search)
            case LostContent():
                return self._match_lost(content.file, content.search)

    def open_and_reserve(
        self, file: TrackedFile, search: RemainderSearch, path: str
    ) -> DecompressedReader | PlainFileReader:
        """Open the file that `match` found, and reserve it for the file that lost its content.

        While a file is reserved, no other lost content is read from it.

        Args:
            file: The file that lost its content.
            search: The search that was passed to `match`.
            path: Path of the file that `match` found.

        Returns:
            A reader that begins at the start of a compressed file, or at the read position of
            `file` in an uncompressed file. The caller must close it.

        Raises:
            OSError: The file is no longer at this path, has since been reserved for another file,
                or cannot be opened.
        """
        return self._holders.open(file, path, search, reserve=True).plain

    def assess_truncation(
        self, file: TrackedFile, position: FilePosition, account: FileAccount
    ) -> TruncationEffect:
        """Determine how truncations affect the read position of an open file.

        Args:
            file: The file.
            position: Position up to which the file was read.
            account: Sizes and truncations that scans observed after `position` was determined.

        Returns:
            Whether the position is still valid, and the number of lost bytes. Unread bytes are lost
            if they were destroyed and no other file contains them.

        Raises:
            RetryLater: The next scans may still find a copy that contains the bytes. Call again
                after a pause.
            CheckpointFailed: The positions of files that no longer exist cannot be read.
        """
        return self._lost.assess_truncation(file, position, account)

    def count_lost_bytes(self, file: TrackedFile) -> int:
        """Return the number of lost bytes of a deleted or vanished file.

        Unread bytes are lost if no other file contains them.

        Args:
            file: The file that no longer exists.

        Returns:
            Number of bytes, based on the sizes that scans observed; 0 if nothing is lost. Bytes
            that were written after the last scan are not counted.

        Raises:
            CheckpointFailed: The positions of files that no longer exist cannot be read.
        """
        return self._lost.count_lost_bytes(file)

    def possible_origins(self) -> set[TrackedFile]:
        """Return the tracked files of which unread files may be copies, judging by their names.

        Keep tracking these files until the contents have been compared. Otherwise, the tailer
        cannot recognize the copies and sends their lines again.

        Returns:
            The possible originals; an empty set if there are none.
        """
        return possible_origins(self.files)

    def check_stopping(self) -> None:
        """Raise an exception if the tailer is stopping, to interrupt a long comparison.

        Comparisons call this method after each block that they read.

        Raises:
            RetryLater: The event `stopping` is set. The next run repeats the comparison.
        """
        if self.stopping.is_set():
            raise RetryLater("the tailer is stopping")

    def _match_unread(self, file: TrackedFile, descriptor: int) -> NewContent | CopyOf:
        now_s = self._clock.monotonic_s()
        candidate = describe_candidate(
            descriptor,
            self._clock.now_ms() / 1000,
            now_s - file.opened_at_s,
            now_s - file.changed_at_s,
        )
        origin = find_origin(self.files, file, candidate)
        if origin is None or not (end := first_new_offset(origin, descriptor)):
            return NewContent()
        return CopyOf(origin, end, candidate.read)

    def _match_lost(self, file: TrackedFile, search: RemainderSearch) -> FoundInFile | Undecidable:
        position, account = file.progress.position, file.observed.account_since(file.progress)
        if search.truncated_at is not None:
            known = KnownContent(search.head, position.offset, position.anchor, search.truncated_at)
        else:
            known = KnownContent(account.head, position.offset, position.anchor, account.high)
        found = [
            one
            for path in search.candidates
            if (one := self._holders.compare(file, path, known, search)) is not None
        ]
        few = min(len(known.head), max(known.offset, known.high)) < IDENTIFYING_BYTES
        readable = [one for one in found if one.content.readable != NOTHING]
        if not readable or (few and len(found) > 1):
            self._note_unsuccessful(search)
            return Undecidable(
                "; ".join(f"{one.path}: {one.content.flaw or 'perhaps'}" for one in found[:3])
            )
        whole = (one for one in readable if not one.content.flaw)
        chosen = next(whole, max(readable, key=lambda one: one.content.readable))
        is_unread = search.truncated_at is None and file.progress.is_untouched
        return FoundInFile(
            chosen, self._find_origin_of(file, search, chosen) if is_unread else None
        )

    def _find_origin_of(
        self, file: TrackedFile, search: RemainderSearch, holder: ContentHolder
    ) -> CopyOf | None:
        # for a file that vanished before anything was read from it
        size = holder.content.readable

        def read(offset: int, count: int) -> bytes:
            try:
                plain = self._holders.open(file, holder.path, search).plain
                with contextlib.closing(plain):
                    return _read_between(
                        plain, offset, min(offset + count, size), self.check_stopping
                    )
            except (CompressedFileIncomplete, CompressedFileDamaged) as error:
                raise RetryLater(
                    f"{holder.path} changed while it was being read: {error}"
                ) from error

        origin = find_origin(self.files, file, CopyCandidate(size, read))
        if origin is None:
            return None
        # no process writes to it any more
        end = size if origin.is_still_read else min(size, origin.known.offset)
        return CopyOf(origin, end, read)

    def _match_compressed(
        self, file: TrackedFile, search: RemainderSearch
    ) -> ReadFrom | AlreadyRead | Undecidable:
        path = next(iter(search.candidates))
        anything = KnownContent(b"", 0, b"", 0)
        if (holder := self._holders.compare(file, path, anything, search)) is None:
            return AlreadyRead()  # it holds the remainder of a tracked file
        content = holder.content
        plain, status, _ = self._holders.open(file, path, search)
        assert isinstance(plain, DecompressedReader), "it was found by its packed name"
        try:
            with contextlib.closing(plain):
                departed = self._checkpoint.read(archives.read_departed)
                state, past = determine_read_state(
                    plain, list_known_contents(self.files, departed, file), self.check_stopping
                )
        except (CompressedFileIncomplete, CompressedFileDamaged):
            state, past = ReadState.UNDECIDED, None
        if state is ReadState.NOT_YET:
            raise RetryLater(
                f"{path} may contain the content of another file, which is examined first"
            )
        # than was read of it before it was over, or counted as lost
        has_more = past is not None and content.readable > max(past.offset, past.counted_to)
        if (state is ReadState.READ and not has_more) or content.readable == 0:
            return AlreadyRead()
        if state is ReadState.UNDECIDED or content.flaw:
            if any(may_be_found_compressed(other) for other in self.files):
                raise RetryLater(f"{path} may be the compressed copy of a file that vanished")
            if self._remove_unsuccessful_search(search.candidates[path]):
                return Undecidable()  # an unknown loss was reported for the file that vanished
            return Undecidable(
                content.flaw
                or "there is not enough information to decide whether it was read before"
            )
        return ReadFrom(past or NEVER_READ, holder, ArchiveStamp.of(status))

    def _note_unsuccessful(self, search: RemainderSearch) -> None:
        inodes = set(search.candidates.values())
        with self._lock:
            self._unsuccessful = [*self._unsuccessful[-_UNSUCCESSFUL_MAX:], inodes]

    def _remove_unsuccessful_search(self, inode: int) -> bool:
        # removed, so that it is reported only once
        with self._lock:
            found = next((inodes for inodes in self._unsuccessful if inode in inodes), None)
            if found is not None:
                self._unsuccessful.remove(found)
            return found is not None


def _read_between(
    plain: DecompressedReader | PlainFileReader, start: int, end: int, pause: Callable[[], object]
) -> bytes:
    # the content can only be read from its beginning
    at, found = 0, b""
    while at < end and (block := plain.read(min(_BLOCK_BYTES, end - at))):
        found += block[max(0, start - at) :]
        at += len(block)
        pause()
    return found


def skip_copied_bytes(checkpoint: Checkpoint, file: TrackedFile, copy: CopyOf) -> FilePosition:
    """Skip the bytes of a copy that are read from its original.

    The new position of the copy and the number of skipped bytes are saved in the checkpoint. A
    warning is logged.

    Args:
        checkpoint: The tailer's database.
        file: The copy.
        copy: The original, and the offset up to which the copy is skipped.

    Returns:
        The new position of the copy. `file` is not changed.

    Raises:
        CheckpointFailed: The position cannot be saved.
    """
    origin, end = copy.origin, copy.end
    start = max(0, end - ANCHOR_BYTES)
    position = dataclasses.replace(
        file.progress.position,
        offset=end,
        in_line=origin.known.in_line and not origin.is_still_read,
        head=copy.read(0, HEAD_BYTES),
        anchor=copy.read(start, end - start),
        size_seen=end,
    )
    moved = [
        changes.save_position(file.file_id, position),
        changes.save_account(file.file_id, position),
    ]
    checkpoint.commit([*moved, count_skipped(file.place.source, end)])
    _LOG.warning(
        "%s is a copy of %s: its %d bytes are skipped; rotate by rename, or change the pattern "
        "so that it does not match copies",
        file.place.seen_at,
        origin.file.place.seen_at,
        end,
    )
    return position
