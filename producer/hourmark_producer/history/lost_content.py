"""Search for content that was removed from a file before it was read, but is still in another file.

While the service is down, files are not read. If copytruncate empties a file every hour meanwhile,
the truncated content is in copies, which are tracked as separate files. Content therefore counts as
lost only if no other file of the source begins with the same bytes.

- Each content that is found in another file is used only once, and only if its first bytes identify
  it.
- If the content was partly read, the first bytes of an open copy and the bytes before the position
  are compared. The copy is then read from this position, even if it was deleted meanwhile.
- A later scan may find a copy. Therefore, nothing counts as lost until three more scans have
  completed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator

from hourmark.process.file_identity import open_without_waiting
from hourmark_producer.checkpoint import archives
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.files import waits
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
)
from hourmark_producer.files.fingerprints import (
    IDENTIFYING_BYTES,
    TruncationEffect,
    TruncationVerdict,
    are_lines_equal,
    assess_truncations,
    begins_alike,
    count_unread_bytes,
    find_no_copies,
)
from hourmark_producer.files.remainder import (
    NOTHING,
    KnownContent,
    RemainderStage,
    compare_content,
)
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FilePosition,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.copies import largest_unread_copy

_Begun = Callable[[bytes], int]  # its bytes, if it begins so


@dataclasses.dataclass(frozen=True, slots=True)
class LostContentFinder:
    """Counts the lost bytes of truncated and deleted files.

    Unread bytes are lost only if no other file contains them. Otherwise, the tailer reads them from
    the other file. Thread-safe.

    Attributes:
        files: All tracked files.
        checkpoint: The tailer's database, which holds the positions of files that no longer exist.
    """

    files: TrackedFiles
    checkpoint: Checkpoint

    def search_for(self, file: TrackedFile) -> LostContentSearch:
        """Return a new search for the lost content of a file.

        Use a new search each time you count lost bytes, because a search does not use the same
        unread content twice.

        Args:
            file: The file that was truncated or deleted.

        Returns:
            The search. No file is read until it is called.
        """
        return LostContentSearch(
            lambda: [*_followed(self.files, file), *self._over()],
            lambda: largest_unread_copy(self.files, file),
        )

    def may_be_found_later(self, file: TrackedFile) -> bool:
        """Return whether the next scans may still find a copy of truncated content.

        If so, it is too early to count the content as lost.

        Args:
            file: The truncated file.

        Returns:
            True until `waits.TRUNCATED_SCANS` (3) scans have completed since the first call for
            this truncation, then False.
        """
        if file.sender.counted_from is None:
            file.sender.counted_from = self.files.scans_completed
        return self.files.scans_completed < file.sender.counted_from + waits.TRUNCATED_SCANS

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
        search = self.search_for(file)
        judgement = assess_truncations(position.offset, account.shrinks, search, file.kept_to)
        if judgement.lost_bytes and search.was_used and self.may_be_found_later(file):
            raise RetryLater("the truncated bytes may be in a copy that the next scans will find")
        file.sender.counted_from = None
        return judgement

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
        account, offset, rest = (
            file.observed.account_since(file.progress),
            file.progress.position.offset,
            file.rest,
        )
        # to its end: what is left of it is no line
        is_read = (
            rest is not None and rest.stage is RemainderStage.FINISHED and rest.truncated_at is None
        )
        find = find_no_copies if is_read else self.search_for(file)
        judgement = assess_truncations(offset, account.shrinks, find, file.kept_to)
        read_to, kept_to = (
            (0, 0) if judgement.verdict is TruncationVerdict.REPLACED else (offset, file.kept_to)
        )
        return judgement.lost_bytes + count_unread_bytes(
            account.high, read_to, account.head, find, kept_to
        )

    def _over(self) -> Iterator[_Begun]:
        departed = self.checkpoint.read(archives.read_departed)
        return (
            functools.partial(_read, past.head, past.offset) for past in departed if past.anchor
        )  # else nothing was read


class LostContentSearch:
    """A callable that searches other files for content that was removed from a file.

    Bytes that it finds are not lost, because the tailer reads them from the other files. Create it
    with `LostContentFinder.search_for`, and call it once for each truncation of the file.

    Attributes:
        was_used: Whether the search was called at least once.
    """

    def __init__(self, begin: Callable[[], list[_Begun]], copied: Callable[[], int]) -> None:
        self._begin, self._copied = begin, copied
        self._left: list[_Begun] | None = None
        self.was_used = False

    def __call__(self, head: bytes, read_to: int) -> int:
        """Return how many bytes of removed content another file contains.

        If part of the content was read, only open copies of the file are searched. Otherwise, all
        files of the source are searched for content that begins with the same bytes. The largest
        one is used, and later calls do not use it again.

        Args:
            head: First bytes of the removed content. They identify it in other files.
            read_to: Offset in bytes up to which the content was read before the truncation; 0 if
                nothing was read.

        Returns:
            Number of bytes, counted from the start of the content; 0 if no other file contains it.
            For unread content, also 0 if `head` is too short or consists of equal lines, because a
            match would prove nothing.

        Raises:
            CheckpointFailed: The positions of files that no longer exist cannot be read.
        """
        self.was_used = True
        if read_to:
            return self._copied()
        if self._left is None:
            self._left = self._begin()
        if len(head) < IDENTIFYING_BYTES or are_lines_equal(head, b""):  # anything may begin so
            return 0
        sizes = [one(head) for one in self._left]
        most = max(sizes, default=0)
        if most:
            del self._left[sizes.index(most)]
        return most


def _followed(files: TrackedFiles, file: TrackedFile) -> Iterator[_Begun]:
    for other in files:
        if other is file or other.place.source != file.place.source:
            continue
        if other.suspected:  # it will be examined, and read if its content is unread
            yield functools.partial(_packed, other.place.seen_at)
            continue
        progress = other.progress  # one consistent moment
        position, account, rest = (
            progress.position,
            other.observed.account_since(progress),
            other.rest,
        )
        size = position.offset
        if rest is not None:
            size = max(size, rest.readable)
        elif not (other.is_gone or account.shrinks):
            size = max(size, account.high)
        yield functools.partial(_read, position.head or account.head, size)
        yield from (
            functools.partial(_read, past.head, past.offset) for past in other.earlier.positions
        )


def _read(known: bytes, size: int, head: bytes) -> int:
    return size if begins_alike(known, head) else 0


def _packed(path: str, head: bytes) -> int:
    with contextlib.suppress(OSError, CompressedFileIncomplete, CompressedFileDamaged):
        descriptor = open_without_waiting(path)
        with contextlib.closing(DecompressedReader(descriptor, path)) as plain:
            content = compare_content(plain, KnownContent(head, 0, b"", 0), lambda: None)
            return 0 if content is None or content.readable == NOTHING else content.readable
    return 0
