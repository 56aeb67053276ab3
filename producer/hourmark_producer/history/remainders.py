"""Search for the remainders (unread content) of files that vanished or were truncated.

The remainder of a vanished file is searched for in compressed files, in the former folders of the
file and where the patterns of its source match. The remainder of a truncated file is searched for
in copies. `hourmark_producer.history.match` decides which candidate contains it. The byte ranges of
a remainder have the file id, generation and offsets of the original file, as if it had never been
compressed. Until it is read, the source is not reported as caught up.

A new compressed file passes through the same stages, with itself as the only candidate.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark_producer.checkpoint import archives, books
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.cut.lines import RangeCut
from hourmark_producer.cut.range_sizes import AdaptiveRangeLimits
from hourmark_producer.cut.sources import cut_for_source
from hourmark_producer.files.fingerprints import are_lines_equal
from hourmark_producer.files.remainder import PlainFileReader, RemainderSearch, RemainderStage
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import TrackedFile
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.holders import CandidateRenamed, ContentHolder, is_search_active
from hourmark_producer.history.match import (
    AlreadyRead,
    ContentMatcher,
    CopyOf,
    FoundInFile,
    LostContent,
    NewCompressedFile,
    ReadFrom,
    Undecidable,
    skip_copied_bytes,
)
from hourmark_producer.history.rotated_names import (
    find_compressed_candidates,
    find_copy_candidates,
)

AT_ONCE_MAX: Final = 4  # each holds a descriptor and a window
TRUNCATED_MAX: Final = 16
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(kw_only=True)
class RemainderFinder:
    """Finds and reads the unread content of files that vanished or were truncated.

    This content is called the remainder. It may be in a compressed file or in a copy. The scanning
    thread calls `is_remainder_pending`. The worker thread to which a file is assigned calls
    `next_cut` and `next_cut_of_truncated`.

    Attributes:
        matcher: Decides which file contains the remainder.
        checkpoint: Database in which new positions are saved.
        schedule: Queue to which a file is added when the search for its remainder begins.
        clock: Clock of this host.
        sizes: Size limits of byte ranges.
        sources: Configurations of the sources by name.
    """

    matcher: ContentMatcher
    checkpoint: Checkpoint
    schedule: Schedule
    clock: Clock
    sizes: AdaptiveRangeLimits
    sources: Mapping[str, TailedSource]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._of_truncated: set[TrackedFile] = set()  # whose copies are open

    def is_remainder_pending(self, file: TrackedFile, paths: Iterable[str]) -> bool:
        """Return whether the unread content of a vanished file may still be found and read.

        Call this method at each scan. The first call starts the search. If `AT_ONCE_MAX` (4)
        searches are already active, a later call starts it.

        Args:
            file: The vanished file.
            paths: Paths of files that may contain its content.

        Returns:
            True while the search is pending or running, or its result is being read. False if there
            is no candidate file, or once the search has ended.
        """
        if file.rest is None:
            shrinks = file.observed.account_since(file.progress).shrinks
            search = _rest_of_truncated(file, shrinks[0].high) if shrinks else _rest_of(file, paths)
            if search is None:
                return False
            if sum(_counts_as_active(other.rest) for other in self.matcher.files) < AT_ONCE_MAX:
                file.rest = search
                self.schedule.add(file)
            return True
        return is_search_active(file.rest)

    def next_cut(self, file: TrackedFile, search: RemainderSearch) -> RangeCut | None:
        """Return the next byte range of the unread content of a file.

        The first call compares the candidate files and opens the one that contains the content.

        Args:
            file: The file that vanished or was truncated.
            search: The search for its unread content.

        Returns:
            The range, or None if there is no more content or no candidate contains it.

        Raises:
            RetryLater: It is not known yet which file contains the content, or the tailer is
                stopping. Call again after a pause.
            OSError: A candidate file cannot be read.
            CheckpointFailed: The new position cannot be saved.
        """
        if search.stage is RemainderStage.LOOKING:
            self._search(file, search)
        if search.stage is not RemainderStage.READING:
            return None
        position = file.progress.position

        def read(skip: int, count: int) -> bytes:
            return search.read_at(position.offset + skip, count, self.matcher.check_stopping)

        try:
            found = cut_for_source(
                self.sources[file.place.source], read, self.sizes.limits, position, flush=True
            )
        except RetryLater:
            raise
        except OSError:
            search.end(RemainderStage.LOOKING)
            raise
        if isinstance(found, RangeCut):
            return found
        search.end(RemainderStage.FINISHED)
        return None

    def next_cut_of_truncated(self, file: TrackedFile, high: int) -> RangeCut | None:
        """Return the next byte range of content that was truncated before it was read.

        The range is read from a copy of the file. Call this method until it returns None before you
        read the new content of the file.

        Args:
            file: The truncated file.
            high: Largest content size observed before the truncation, in bytes.

        Returns:
            The range, or None if no copy contains more of the content.

        Raises:
            RetryLater: It is not known yet which file contains the content, or too many other
                searches are active. Call again after a pause.
            OSError: A candidate file cannot be read.
            CheckpointFailed: The position before the truncation cannot be saved.
        """
        if file.rest is None:
            if (search := _rest_of_truncated(file, high)) is None:
                return None
            self._make_room()
            file.rest = search
        found = self.next_cut(file, file.rest)
        if found is None:
            file.drop_remainder()
        with self._lock:
            (self._of_truncated.discard if found is None else self._of_truncated.add)(file)
        return found

    def _make_room(self) -> None:
        with self._lock:
            self._of_truncated = {
                file for file in self._of_truncated if is_search_active(file.rest)
            }
            if len(self._of_truncated) >= TRUNCATED_MAX:
                raise RetryLater(
                    f"the copies of {TRUNCATED_MAX} other truncated files are read first"
                )

    def _search(self, file: TrackedFile, search: RemainderSearch) -> None:
        asked = NewCompressedFile(file, search) if file.suspected else LostContent(file, search)
        try:
            found = self.matcher.match(asked)
        except CandidateRenamed:
            file.drop_remainder()
            file.unfound = 1  # it is not where it was, so the count starts again
            raise
        match found:
            case FoundInFile():
                if found.copy is not None:
                    self._skip(file, found.copy)
                self._begin(file, search, found.holder)
            case ReadFrom():
                self._admit(file, found)
                self._begin(file, search, found.holder)
            case AlreadyRead():
                search.end(RemainderStage.NOWHERE)
            case Undecidable():
                search.end(RemainderStage.NOWHERE, found.reason)

    def _skip(self, file: TrackedFile, copy: CopyOf) -> None:
        position = skip_copied_bytes(self.checkpoint, file, copy)
        file.progress = dataclasses.replace(file.progress, position=position, quiet_to=copy.end)

    def _admit(self, file: TrackedFile, found: ReadFrom) -> None:
        # its position is at its first unread byte
        known = found.history
        position = dataclasses.replace(
            file.progress.position,
            offset=known.offset,
            head=known.head,
            anchor=known.anchor,
            size_seen=found.holder.content.readable,
        )
        progress = dataclasses.replace(
            file.progress,
            position=position,
            quiet_to=known.offset,
            examined_at_s=self.clock.monotonic_s(),
        )
        file.progress = progress
        changed = [
            changes.save_account(file.file_id, position),
            archives.save_archive(found.stamp, file.file_id),
        ]
        changed += [books.count_skipped(file.place.source, known.offset)] if known.offset else []
        self.checkpoint.commit([changes.insert_file(file), *changed])
        file.suspected = False

    def _begin(self, file: TrackedFile, search: RemainderSearch, found: ContentHolder) -> None:
        path, content = found
        plain = self.matcher.open_and_reserve(file, search, path)
        try:
            if search.truncated_at is None:
                self._keep_size(file, content.readable)
            else:
                position = dataclasses.replace(file.progress.position, head=search.head)
                self.checkpoint.commit(
                    [changes.save_pre_truncation_position(file.file_id, position)]
                )  # looks know only its new head
        except BaseException:
            plain.close()
            raise
        offset = file.progress.position.offset
        search.begin(path, plain, content, offset if isinstance(plain, PlainFileReader) else 0)
        _LOG.info(
            "%s (file %s) %s; its content is in %s (%d bytes), and reading continues there at "
            "byte %d%s",
            file.place.seen_at,
            file.file_id,
            "vanished" if search.truncated_at is None else "was truncated",
            path,
            content.readable,
            offset,
            f"; incomplete: {content.flaw}" if content.flaw else "",
        )

    def _keep_size(self, file: TrackedFile, size: int) -> None:
        progress = file.progress
        account = file.observed.account_since(progress)
        position = dataclasses.replace(
            progress.position, size_seen=max(account.high, size), head=account.head
        )
        self.checkpoint.commit(
            [
                changes.save_position(file.file_id, position),
                changes.save_account(file.file_id, position),
            ]
        )
        file.progress = dataclasses.replace(
            progress, position=position, examined_at_s=self.clock.monotonic_s()
        )


def _counts_as_active(search: RemainderSearch | None) -> bool:
    return search is not None and (
        search.stage is RemainderStage.READING
        or (search.stage is RemainderStage.LOOKING and search.truncated_at is None)
    )


def _rest_of(file: TrackedFile, paths: Iterable[str]) -> RemainderSearch | None:
    account, candidates = (
        file.observed.account_since(file.progress),
        find_compressed_candidates(file, paths),
    )
    is_telling_at_all = bool(account.head) and not are_lines_equal(
        account.head, file.progress.position.anchor
    )
    return RemainderSearch(candidates) if candidates and is_telling_at_all else None


def _rest_of_truncated(file: TrackedFile, high: int) -> RemainderSearch | None:
    position = file.progress.position
    return (
        RemainderSearch(find_copy_candidates(file), truncated_at=high, head=position.head)
        if position.is_identifying
        else None
    )
