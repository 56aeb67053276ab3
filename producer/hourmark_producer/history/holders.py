"""Comparison of the content that a file lost with files that may hold it.

A candidate must have a related name (`rotated_names`), must not be older than the file, and must
contain the known head and the bytes before the position. Each candidate holds the remainder of one
file only: `CandidateComparer` records which file claimed it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from hourmark.clock import Clock
from hourmark_producer.files import waits
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
    IncompleteFileTimer,
)
from hourmark_producer.files.identity import FileIdentity, identify
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
    """Raised when a candidate file is no longer at its path.

    The caller must list the candidates again.
    """


class ContentHolder(NamedTuple):
    """A file that holds the content that is searched for.

    Attributes:
        path: Path of the file.
        content: How much of the content it holds.
    """

    path: str
    content: CandidateContent


class Claim(NamedTuple):
    """The assignment of a candidate file to the one file whose remainder is read from it.

    Attributes:
        file_id: Id of the file whose remainder is read.
        offset: Offset from which the remainder is read.
        of_truncated: Whether that file was truncated; otherwise it vanished.
    """

    file_id: str
    offset: int
    of_truncated: bool


class OpenedCandidate(NamedTuple):
    """A candidate file that was opened for comparison.

    Attributes:
        plain: Reader of its content.
        status: Result of `os.fstat`.
        claim: The assignment of the candidate to a file, or None.
    """

    plain: DecompressedReader | PlainFileReader
    status: os.stat_result
    claim: Claim | None


class CandidateRejected(OSError):
    """Raised when a candidate file cannot hold the remainder of a file."""


class CandidateComparer:
    """Compares content that a file lost with candidate files that may still hold it.

    Safe to use from several threads.

    Args:
        files: All tracked files.
        clock: Clock that measures for how long candidates have not changed.
        pause: Called after each block that is read; it may raise an exception to stop the
            comparison.
    """

    def __init__(self, files: TrackedFiles, clock: Clock, pause: Callable[[], object]) -> None:
        self._files, self._pause = files, pause
        self._taken: dict[FileIdentity, Claim] = {}  # compressed files and copies
        self._unfinished = IncompleteFileTimer(clock)

    def compare(
        self, file: TrackedFile, path: str, known: KnownContent, rest: RemainderSearch
    ) -> ContentHolder | None:
        """Compare lost content with a candidate file.

        Args:
            file: The file that lost the content.
            path: Path of the candidate.
            known: What is known of the lost content.
            rest: The search, which has the inode of the candidate.

        Returns:
            The candidate and how much of the content it holds, or None if it does not match.

        Raises:
            CandidateRenamed: The candidate is no longer at this path.
            RetryLater: The candidate is still being written, or the result depends on another
                search.
            OSError: The candidate cannot be read.
        """
        try:
            opened = self.open(file, path, rest)
        except FileNotFoundError as error:  # the next scans of its folder find its new name
            raise CandidateRenamed(f"{path} was there, and is looked for again") from error
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
                    f"{path} has no end yet; perhaps {file.place.seen_at} is being packed"
                )
            if rest.truncated_at is not None and (skipped := self._skipped_bytes(file, opened)):
                # the copy itself sends what is behind that
                content = content._replace(readable=min(content.readable, skipped))
        return ContentHolder(path, content)

    def open(
        self, file: TrackedFile, path: str, rest: RemainderSearch, *, take: bool = False
    ) -> OpenedCandidate:
        """Open a candidate file for reading.

        Args:
            file: The file that lost content.
            path: Path of the candidate.
            rest: The search, which has the inode of the candidate.
            take: Whether to assign the candidate to this file, so that no other file uses it.

        Returns:
            The open candidate. Its reader begins at the start of a compressed file, or at the
            position of `file` in an uncompressed one. The caller closes the reader.

        Raises:
            FileNotFoundError: There is no file at this path, or one with another inode.
            CandidateRejected: The candidate is not a regular file, is older than `file`, is `file`
                itself, or is assigned to another file.
            OSError: The candidate cannot be opened.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status, identity = os.fstat(descriptor), identify(descriptor)
            older = 0 < identity.birth_ns < file.identity.birth_ns
            if status.st_ino != rest.candidates[path]:
                raise FileNotFoundError(errno.ENOENT, "it is another file by now", path)
            own = Claim(file.file_id, file.progress.position.offset, rest.truncated_at is not None)
            claim = self._taken.setdefault(identity, own) if take else self._taken.get(identity)
            is_others = (
                claim is not None
                and claim.file_id != own.file_id
                and (file.suspected or claim.of_truncated == own.of_truncated)
            )
            if not stat.S_ISREG(status.st_mode) or older or is_others or identity == file.identity:
                raise CandidateRejected(path)
            if path.endswith(PACKED):
                return OpenedCandidate(DecompressedReader(descriptor, path), status, claim)
            return OpenedCandidate(PlainFileReader(descriptor, own.offset), status, claim)
        except BaseException:
            os.close(descriptor)
            raise

    def _skipped_bytes(self, file: TrackedFile, opened: OpenedCandidate) -> int:
        # the offset up to which the candidate was skipped as a copy; 0 if it was not
        plain, status, claim = opened
        if isinstance(plain, PlainFileReader):
            copy = self._files.at_inode(status.st_dev, status.st_ino)
            return 0 if copy is None else copy.progress.position.offset
        if claim is not None:
            return 0 if claim.file_id == file.file_id else claim.offset
        if any(
            may_be_found_compressed(other) and not other.progress.is_untouched
            for other in self._files
            if other is not file
        ):
            raise RetryLater(
                "what is packed may be a copy that was passed over, which is looked for first"
            )
        return 0


def is_search_active(rest: RemainderSearch | None) -> bool:
    """Return whether the unread content of a file is being searched for or read."""
    return rest is not None and rest.stage in (RemainderStage.LOOKING, RemainderStage.READING)


def may_be_found_compressed(file: TrackedFile) -> bool:
    """Return whether a file vanished and its content may still be found in a compressed file."""
    is_elsewhere = file.descriptor is None and not (file.is_gone or file.is_packed or file.is_blank)
    return is_elsewhere and (file.unfound > 0 or is_search_active(file.rest))
