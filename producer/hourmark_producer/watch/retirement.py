"""The end of a file: deleted, replaced by another file with its inode, or missing.

Unread bytes are counted as lost.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence

from hourmark.clock import Clock
from hourmark_producer.checkpoint import archives, forgotten
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.checkpoint.delivered import DeliveredFiles
from hourmark_producer.counters import Counters, Loss
from hourmark_producer.files import waits
from hourmark_producer.files.remainder import RemainderSearch
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import (
    NEVER,
    FileAccount,
    FilePosition,
    FileProgress,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.history.match import ContentMatcher

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileRetirement:
    """Stops tracking files, and records their unread bytes as lost.

    Changes are saved in the checkpoint first. If that fails, the method raises `CheckpointFailed`
    and changes nothing. Not thread-safe.

    Attributes:
        files: All tracked files.
        checkpoint: Database in which changes and losses are saved.
        schedule: Queue of files, which shows whether a file is idle.
        counters: Counters of this run, to which losses are added.
        matcher: Counts the unread bytes that no other file contains.
        clock: Clock of this host.
        delivered: Files that the previous run delivered completely. If they were deleted since
            then, nothing was lost.
    """

    files: TrackedFiles
    checkpoint: Checkpoint
    schedule: Schedule
    counters: Counters
    matcher: ContentMatcher
    clock: Clock
    delivered: DeliveredFiles

    def retire_deleted(self, file: TrackedFile) -> None:
        """Stop tracking a deleted file once it is completely read and acknowledged.

        Call this method at each scan. It does nothing while the file has unread bytes, or if the
        file changed within the last `waits.DELETED_LINGER_S` (5) seconds.

        Args:
            file: An open file without a name.

        Raises:
            CheckpointFailed: The change cannot be saved.
        """
        if self._is_still_needed(file, file.progress.quiet_to, waits.DELETED_LINGER_S):
            return
        if file.identity.birth_ns:
            self._end(file, "was deleted")
        else:
            self._retire_without_birth_time(file)

    def retire_unmatched(self, file: TrackedFile) -> None:
        """Close a file that no pattern matches any longer, and mark it as missing.

        Call this method at each scan. It does nothing while the file has unread bytes, or if the
        file changed within the last `waits.UNMATCHED_LINGER_S` (600) seconds.

        Args:
            file: The open file.

        Raises:
            CheckpointFailed: The change cannot be saved.
        """
        if not self._is_still_needed(file, file.progress.position.offset, waits.UNMATCHED_LINGER_S):
            self.mark_missing(file)
            file.close()

    def _is_still_needed(self, file: TrackedFile, read_to: int, linger_s: float) -> bool:
        at_work = not (file.is_settled and self.schedule.is_idle(file))
        return (
            at_work
            or read_to < file.observed.size
            or self.clock.monotonic_s() - file.changed_at_s < linger_s
        )

    def retire_replaced(self, file: TrackedFile) -> None:
        """Stop tracking a deleted file whose inode now belongs to another file.

        Unread bytes are recorded as lost.

        Args:
            file: The deleted file.

        Raises:
            CheckpointFailed: The change cannot be saved.
        """
        self._end(file, f"is gone, its inode is another file's now{_why_no_rest(file)}")

    def mark_missing(self, file: TrackedFile) -> None:
        """Mark a file as missing because it was not found, or because no pattern matches it.

        Unread bytes are recorded as lost. If the file is found again, reading continues at its
        saved position.

        Args:
            file: The file.

        Raises:
            CheckpointFailed: The change cannot be saved.
        """
        place = file.place._replace(missing=True)
        self._count(
            file,
            f"is not followed any more{_why_no_rest(file)}",
            [changes.save_location(file, place)],
        )
        file.place = place

    def retire_empty(self, file: TrackedFile, path: str) -> None:
        """Stop tracking a file that was empty at the last scan and was then compressed.

        Args:
            file: The empty file.
            path: Path of the compressed file that replaced it.

        Raises:
            CheckpointFailed: The change cannot be saved.
        """
        self._end(
            file, f"was empty when it was last seen, and was packed into {path}", known_to_end=True
        )

    def retire_compressed(self, file: TrackedFile, search: RemainderSearch) -> None:
        """Stop tracking a file whose unread content was read from a compressed file.

        Args:
            file: The vanished original, or the compressed file if the original was not tracked.
            search: The finished search for the unread content. If the content was incomplete, the
                reason (`search.flaw`) is logged.

        Raises:
            CheckpointFailed: The change cannot be saved.
        """
        flaw = f", which is not whole: {search.flaw}" if search.flaw else ""
        what = (
            f"was read as it was packed{flaw}"
            if file.is_compressed
            else f"was packed into {search.found_in}{flaw}"
        )
        account = file.observed.account_since(file.progress)
        unread = account.head, account.high
        if file.identity.birth_ns or file.is_compressed:
            self._end(file, what, known_to_end=not search.flaw, unread=unread)
        else:
            self._retire_without_birth_time(file, what, known_to_end=not search.flaw, unread=unread)

    def _retire_without_birth_time(
        self,
        file: TrackedFile,
        what: str = "was deleted",
        *,
        known_to_end: bool = False,
        unread: tuple[bytes, int] = (b"", 0),
    ) -> None:
        # A later file with the same inode gets the same file id. Therefore the position is set to the
        # start of the next generation.
        position = FilePosition(
            generation=file.progress.position.generation + 1,
            settled=file.progress.position.settled + 1,
        )
        place = file.place._replace(missing=True)
        end = [changes.save_location(file, place), changes.save_position(file.file_id, position)]
        end += archives.save_departed(file.progress.position, unread, high=self._account(file).high)
        self._count(file, what, end, known_to_end=known_to_end)
        file.close()
        file.place, file.progress, file.observed, file.deleted = (
            place,
            FileProgress(position=position),
            NEVER,
            False,
        )

    def report_unreadable(self, source: str, path: str, why: str, also: Iterable[Change]) -> None:
        """Record a loss of unknown size for a compressed file that is not read, and log a warning.

        Args:
            source: Name of the source.
            path: Path of the compressed file.
            why: Why the file cannot be read, or why it is unknown whether it was read before.
            also: SQL statements to commit in the same transaction.

        Raises:
            CheckpointFailed: The loss cannot be saved.
        """
        self._doubt(source, path, f"appeared packed, and is not read: {why}", also)

    def report_undecided(
        self, source: str, paths: Sequence[str], scanned_ms: Mapping[str, int]
    ) -> None:
        """Record a loss of unknown size for files that are not read, and log a warning.

        Call this method if the clock was set back and it is therefore unknown whether files were
        created after the latest scan.

        Args:
            source: Name of the source.
            paths: Paths of the files, at least one.
            scanned_ms: Maps each source to the time of its latest scan in Unix milliseconds. The
                times are saved in the same transaction.

        Raises:
            CheckpointFailed: The loss cannot be saved.
        """
        others = f", nor are {len(paths) - 1} others" if len(paths) > 1 else ""
        why = (
            f"is not read{others}: the clock was set back, and whether it was made since the "
            "latest look cannot be told"
        )
        self._doubt(source, paths[0], why, archives.save_scan_times(scanned_ms), unknown=len(paths))

    def _doubt(
        self, source: str, path: str, what: str, also: Iterable[Change], *, unknown: int = 1
    ) -> None:
        loss = Loss(
            source=source,
            path=path,
            at_ms=self.clock.now_ms(),
            bytes=0,
            unknown=unknown,
            what=f"it {what}",
        )
        self.checkpoint.commit([*also, *changes.add_loss(loss)])
        self.counters.add_loss(loss)
        _LOG.warning("%s %s; loss is unknown", path, what)

    def remove_if_acknowledged(self, file: TrackedFile) -> None:
        """Remove a retired file from the tracked files once all its ranges are acknowledged.

        A retired file is one from which nothing more is read. Call this method at each scan. It
        does nothing if the file is not retired, or while a range is unacknowledged.

        Args:
            file: A tracked file.
        """
        if file.retired and not file.progress.in_flight and self.schedule.is_idle(file):
            self.files.remove(file)

    def forget(self, file: TrackedFile) -> None:
        """Stop tracking a missing file that is no longer in its folder, and save its position.

        If the file is found again, reading continues at this position. Its unread bytes were
        already recorded as lost when it was marked as missing.

        Args:
            file: A file for which `place.missing` is True.

        Raises:
            CheckpointFailed: The position cannot be saved.
        """
        assert file.place.missing, "what is not missing may be read"
        end = [
            *changes.delete_file(file.file_id),
            *archives.save_departed(file.progress.position),
            *forgotten.save_forgotten(file),
        ]
        self.checkpoint.commit(end)
        _LOG.info(
            "%s (file %s) is not in its folder any more, and is forgotten",
            file.place.seen_at,
            file.file_id,
        )
        self.files.retire(file)
        self.files.remove(file)

    def _end(
        self,
        file: TrackedFile,
        what: str,
        *,
        known_to_end: bool = False,
        unread: tuple[bytes, int] = (b"", 0),
    ) -> None:
        high = 0 if file.place.missing else self._account(file).high
        end = [
            *changes.delete_file(file.file_id),
            *archives.save_departed(file.progress.position, unread, high=high),
        ]
        self._count(file, what, end, known_to_end=known_to_end)
        self.files.retire(file)
        self.remove_if_acknowledged(file)

    def _count(
        self, file: TrackedFile, what: str, end: list[Change], *, known_to_end: bool = False
    ) -> None:
        # If the file was not open, a loss of unknown size is recorded, too, because the file may have
        # grown after the last scan, unless nothing more was to be written to it.
        position = file.progress.position
        lost = 0 if file.place.missing else self.matcher.count_lost_bytes(file)
        if file in self.delivered and not (file.rest and file.rest.flaw):
            known_to_end = True
        unseen = file.descriptor is None and not (file.place.missing or known_to_end)
        unknown = int(unseen) + len(self._account(file).shrinks)
        loss = Loss(
            source=file.place.source,
            path=file.place.seen_at,
            at_ms=self.clock.now_ms(),
            bytes=lost,
            unknown=unknown,
            what=f"{what}: what was written after the last look is unknown" if unknown else what,
        )
        self.checkpoint.commit([*end, *(changes.add_loss(loss) if lost or unknown else [])])
        self.counters.add_loss(loss)
        _LOG.log(
            logging.WARNING if lost or unknown else logging.INFO,
            "%s (file %s) %s; it was read up to byte %d of generation %d, %d bytes are "
            "known to be lost%s",
            file.place.seen_at,
            file.file_id,
            what,
            position.offset,
            position.generation,
            lost,
            ", and what was written to it after the last look, if anything" if unknown else "",
        )

    def _account(self, file: TrackedFile) -> FileAccount:
        return file.observed.account_since(file.progress)


def _why_no_rest(file: TrackedFile) -> str:
    return f" ({file.rest.flaw})" if file.rest is not None and file.rest.flaw else ""
