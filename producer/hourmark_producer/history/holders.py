"""Comparison of lost content with candidates: files that may contain it.

A candidate must have a related name (`rotated_names`), must not be older than the file, and must
contain the known first bytes and the bytes before the position. Each candidate is used for one file
only. `CandidateComparer` reserves it for this file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark.process.file_identity import FileIdentity, identify, open_without_waiting
from hourmark_producer.files import waits
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
    IncompleteFileTimer,
)
from hourmark_producer.files.patterns import PACKED
from hourmark_producer.files.remainder import (
    CandidateContent,
    KnownContent,
    PlainFileReader,
    RemainderSearch,
    RemainderStage,
    compare_content,
)
from hourmark_producer.files.tracked_file import TrackedFile, TrackedFiles
from hourmark_producer.files.waits import RetryLater


class CandidateRenamed(RetryLater):
    """Raised when a candidate file is no longer at its path, usually because it was rotated.

    List the candidate files again, and repeat the search.
    """


class ContentHolder(NamedTuple):
    """A file that contains the unread content of a vanished or truncated file.

    Attributes:
        path: Path of this file, which is a compressed file or an uncompressed copy.
        content: Size of the content in this file, and whether it is complete.
    """

    path: str
    content: CandidateContent


class CandidateReservation(NamedTuple):
    """The reservation of a candidate file for the tracked file whose content is read from it.

    If a tracked file vanishes or is truncated before it is read, the tailer searches candidate
    files, such as compressed copies, for the lost content. A reserved candidate is not used for
    another file that lost content in the same way.

    Attributes:
        file_id: Id of the file that lost the content.
        offset: Offset at which reading of the content begins.
        of_truncated: True if the file was truncated, False if it vanished.
    """

    file_id: str
    offset: int
    of_truncated: bool


class OpenedCandidate(NamedTuple):
    """A candidate file that is open for comparison.

    Attributes:
        plain: Reader of its uncompressed content.
        status: Result of `os.fstat`.
        reservation: Reservation of the candidate for one file; None if it is not reserved.
    """

    plain: DecompressedReader | PlainFileReader
    status: os.stat_result
    reservation: CandidateReservation | None


class CandidateRejected(OSError):
    """Raised when a candidate file cannot contain the unread content of a given file.

    Skip the candidate and continue with the next one.
    """


class CandidateComparer:
    """Compares candidate files with the content that a vanished or truncated file lost.

    The content is lost if it was not read in time. Candidates are compressed files and copies that
    may contain it, such as `app.log.1.gz` for `app.log`. Thread-safe.

    Args:
        files: All tracked files.
        clock: Clock that measures for how long a candidate has not changed.
        pause: Function that is called after each block. It may raise an exception to stop the
            comparison.
    """

    def __init__(self, files: TrackedFiles, clock: Clock, pause: Callable[[], object]) -> None:
        self._files, self._pause = files, pause
        self._taken: dict[FileIdentity, CandidateReservation] = {}  # compressed files and copies
        self._unfinished = IncompleteFileTimer(clock)

    def compare(
        self, file: TrackedFile, path: str, known: KnownContent, search: RemainderSearch
    ) -> ContentHolder | None:
        """Compare the lost content of a file with one candidate file.

        Args:
            file: The file that lost content before it was read.
            path: Path of the candidate.
            known: First bytes, read position and size of the lost content.
            search: The search for the content. It contains the expected inode of the candidate.

        Returns:
            The candidate and the size of the content in it, or None if it does not match.

        Raises:
            CandidateRenamed: The candidate is no longer at this path. List the candidates again.
            RetryLater: The candidate is still being written, or the result depends on a search that
                is still running. Call again after a pause.
            OSError: The candidate cannot be read.
        """
        try:
            opened = self.open(file, path, search)
        except FileNotFoundError as error:  # the next scans of its folder find its new name
            raise CandidateRenamed(f"{path} no longer exists and is searched for again") from error
        except (CompressedFileIncomplete, CompressedFileDamaged, CandidateRejected):
            return None
        plain, status, _ = opened
        with contextlib.closing(plain):
            content = (
                plain.compare(known)
                if isinstance(plain, PlainFileReader)
                else compare_content(plain, known, self._pause)
            )
            if content is None:
                return None
            if content.grows and self._unfinished.unchanged_s(status) < waits.PACKING_S:
                raise RetryLater(
                    f"{path} is incomplete; {file.place.seen_at} may still be being compressed"
                )
            if search.truncated_at is not None and (skipped := self._skipped_bytes(file, opened)):
                # the copy itself sends what is behind that
                content = content._replace(readable=min(content.readable, skipped))
        return ContentHolder(path, content)

    def open(
        self, file: TrackedFile, path: str, search: RemainderSearch, *, reserve: bool = False
    ) -> OpenedCandidate:
        """Open a candidate file for reading, and optionally reserve it.

        Args:
            file: The file that lost content before it was read.
            path: Path of the candidate.
            search: The search for the content. It contains the expected inode of the candidate.
            reserve: Whether to reserve the candidate for `file`.

        Returns:
            The open candidate. Its reader begins at the start of a compressed file, or at the read
            position of `file` in an uncompressed file. The caller must close the reader.

        Raises:
            FileNotFoundError: The path does not exist, or its inode differs from the expected one.
            CandidateRejected: The candidate is not a regular file, was created before `file`, is
                `file` itself, or is reserved for another file.
            OSError: The candidate cannot be opened.
        """
        descriptor = open_without_waiting(path)
        try:
            status, identity = os.fstat(descriptor), identify(descriptor)
            older = 0 < identity.birth_ns < file.identity.birth_ns
            if status.st_ino != search.candidates[path]:
                raise FileNotFoundError(errno.ENOENT, "the path refers to another file now", path)
            own = CandidateReservation(
                file.file_id, file.progress.position.offset, search.truncated_at is not None
            )
            reservation = (
                self._taken.setdefault(identity, own) if reserve else self._taken.get(identity)
            )
            is_others = (
                reservation is not None
                and reservation.file_id != own.file_id
                and (file.suspected or reservation.of_truncated == own.of_truncated)
            )
            if not stat.S_ISREG(status.st_mode) or older or is_others or identity == file.identity:
                raise CandidateRejected(path)
            if path.endswith(PACKED):
                return OpenedCandidate(DecompressedReader(descriptor, path), status, reservation)
            return OpenedCandidate(PlainFileReader(descriptor, own.offset), status, reservation)
        except BaseException:
            os.close(descriptor)
            raise

    def _skipped_bytes(self, file: TrackedFile, opened: OpenedCandidate) -> int:
        # the offset up to which the candidate was skipped as a copy; 0 if it was not
        plain, status, reservation = opened
        if isinstance(plain, PlainFileReader):
            copy = self._files.at_inode(status.st_dev, status.st_ino)
            return 0 if copy is None else copy.progress.position.offset
        if reservation is not None:
            return 0 if reservation.file_id == file.file_id else reservation.offset
        if any(
            may_be_found_compressed(other) and not other.progress.is_untouched
            for other in self._files
            if other is not file
        ):
            raise RetryLater(
                "the compressed file may be a skipped copy, which is searched for first"
            )
        return 0


def is_search_active(search: RemainderSearch | None) -> bool:
    """Return whether a search for unread content is running, or its result is being read.

    Args:
        search: The search; None if no search was started.

    Returns:
        False if `search` is None, or if the search has ended.
    """
    return search is not None and search.stage in (RemainderStage.LOOKING, RemainderStage.READING)


def may_be_found_compressed(file: TrackedFile) -> bool:
    """Return whether the content of a vanished file may still be found in a compressed file.

    While this is so, it is too early to decide about compressed files of unknown origin: one of
    them may belong to this file.

    Args:
        file: A tracked file.

    Returns:
        True while the file is not found or its content is being searched for. False if the file is
        open, is itself compressed, or was always empty.
    """
    is_elsewhere = file.descriptor is None and not (
        file.is_gone or file.is_compressed or file.never_had_content
    )
    return is_elsewhere and (file.unfound > 0 or is_search_active(file.rest))
