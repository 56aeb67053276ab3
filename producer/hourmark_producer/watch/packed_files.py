"""Detection and examination of new compressed files.

A new compressed file contains a tracked file, or a file that was created, rotated and compressed
between two scans. The following compressed files are old and are not read:

- files that exist at the first scan of a source
- files whose content was last written before the latest scan, because the original was tracked
  (compressors preserve the modification time)

A worker examines every other file (`hourmark_producer.history.match`). If its content was not read
before, it is read as a separate file with the identity of the compressed file. If this cannot be
determined, a loss of unknown size is reported. Until the examination ends, the source is not
reported as caught up.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from typing import Final

from hourmark.clock import Clock
from hourmark.process.file_identity import FileIdentity, open_without_waiting
from hourmark.records.ranges import file_id
from hourmark_producer.checkpoint import archives
from hourmark_producer.checkpoint.archives import ArchiveStamp
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.files import waits
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
)
from hourmark_producer.files.patterns import PACKED
from hourmark_producer.files.remainder import RemainderSearch, RemainderStage
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import FileLocation, TrackedFile, TrackedFiles
from hourmark_producer.history.beginnings import StartPositions
from hourmark_producer.history.rotated_names import former_names
from hourmark_producer.watch.retirement import FileRetirement

AT_ONCE_MAX: Final = 2  # fewer than files whose rest is looked for may be: these are waited for
_EMPTY_MAX: Final = 256  # bytes of a packed file that holds nothing; its name may be in it
_LATER_MS: Final = 1000  # clocks of file systems are some milliseconds behind


class NewCompressedFiles:
    """Detects new compressed log files, and schedules workers to check them for unread lines.

    If a log file is rotated and compressed between two scans, it may contain unread lines. For each
    scan, call `begin`, then `process_scan` for each source, then `end`. Not thread-safe.

    Args:
        files: All tracked files. New compressed files are added to them.
        checkpoint: Database that records which compressed files were examined.
        schedule: Queue of files for the workers.
        retirement: Used to stop tracking compressed files and to record losses.
        start_positions: Decides which files the settings exclude.
        clock: Clock of this host.
        identify: Function that returns the identity of an open file.

    Attributes:
        scanned_ms: Start time of the latest scan of each source, in Unix milliseconds.

    Raises:
        CheckpointFailed: The checkpoint cannot be read.
    """

    def __init__(
        self,
        files: TrackedFiles,
        checkpoint: Checkpoint,
        schedule: Schedule,
        retirement: FileRetirement,
        start_positions: StartPositions,
        clock: Clock,
        identify: Callable[[int], FileIdentity],
    ) -> None:
        self._files, self._checkpoint, self._schedule, self._clock = (
            files,
            checkpoint,
            schedule,
            clock,
        )
        self._retirement, self._start_positions, self._identify = (
            retirement,
            start_positions,
            identify,
        )
        self._known = checkpoint.read(archives.read_archives)
        reading = ((id_, stamp.inode) for stamp, id_ in self._known.items() if id_ is not None)
        self._inodes = {id_: inode for id_, inode in reading if files.has(id_)}
        self.scanned_ms = checkpoint.read(archives.read_scan_times)
        self._saved_s = clock.monotonic_s()
        self._began_ms = 0
        self._here: dict[ArchiveStamp, str] = {}  # found by this scan, with their paths
        self._complete = True
        self._changed = False
        self._stood = set[ArchiveStamp]()  # for files that were last seen empty
        self._holding = [
            file for file in files if file.is_compressed
        ]  # what files held that were last seen empty, perhaps

    def begin(self) -> int:
        """Begin a scan of all sources.

        Returns:
            Start time of the scan in Unix milliseconds.
        """
        self._began_ms, self._here, self._complete = self._clock.now_ms(), {}, True
        return self._began_ms

    def is_reading(self, source: str) -> bool:
        """Return whether a compressed file of a source is being read or examined.

        Args:
            source: Name of the source.
        """
        return any(file.place.source == source for file in self._files.compressed)

    def process_scan(self, source: str, paths: Iterable[str], *, is_complete: bool) -> bool:
        """Process the compressed files that a scan of one source found.

        Files that are already known or older than the previous scan are ignored. Workers examine
        the new files during the following scans.

        Args:
            source: Name of the source.
            paths: Paths of the compressed files.
            is_complete: Whether the scan had no errors and no folder changed meanwhile. If False,
                no file is processed.

        Returns:
            Whether all files were processed. If False, try again at the next scan.

        Raises:
            CheckpointFailed: The result cannot be saved.
        """
        here = _stamps(paths)
        self._here |= here
        self._complete &= is_complete
        if not is_complete:
            return False
        scanned_ms = self.scanned_ms.get(source)
        if scanned_ms is None:
            self._know([stamp for stamp in here if stamp not in self._known])
        reading = set(self._inodes.values())
        new = [stamp for stamp in here if stamp not in self._known and stamp.inode not in reading]
        told = True
        for stamp in new:
            told &= self._start_examination(source, stamp, here[stamp], scanned_ms or 0)
        self._changed |= scanned_ms is None
        if told and not any(
            file.suspected and file.place.source == source for file in self._holding
        ):
            self.scanned_ms[source] = (
                self._began_ms
            )  # not while one is looked into: a run that follows must find it new, too
        return told

    def end(self) -> None:
        """End a scan of all sources, and update the checkpoint.

        Records of compressed files that no longer exist are deleted. The times of the scans are
        saved at intervals, and immediately after the first scan of a source.

        Raises:
            CheckpointFailed: The checkpoint cannot be updated.
        """
        if self._complete and self._here:
            self._drop([stamp for stamp in self._known if stamp not in self._here])
        now_s = self._clock.monotonic_s()
        if self._changed or now_s - self._saved_s >= archives.EVERY_S:
            self._checkpoint.commit(archives.save_scan_times(self.scanned_ms))
            self._saved_s, self._changed = now_s, False

    def continue_examination(self, file: TrackedFile) -> bool:
        """Continue the examination of a compressed file. Call it once per scan.

        Args:
            file: A compressed file that is being examined or read.

        Returns:
            True once the examination is finished. Until then, the source is not reported as caught
            up.

        Raises:
            CheckpointFailed: The result cannot be saved.
        """
        inode = self._inodes.get(file.file_id)
        stamp = next((stamp for stamp in self._here if stamp.inode == inode), None)
        if stamp is None and (file.rest is None or file.rest.stage is RemainderStage.LOOKING):
            return self._complete and self._vanished(file)
        if stamp is not None and self._here[stamp] != file.place.seen_at:
            file.place = file.place._replace(seen_at=self._here[stamp])
        rest = file.rest
        if rest is None:
            file.unfound += 1
            if (
                stamp is not None
                and file.unfound >= waits.COMPRESSED_SCANS
                and self._at_work() < AT_ONCE_MAX
            ):
                file.rest = RemainderSearch({file.place.seen_at: stamp.inode % (1 << 64)})
                self._schedule.add(file)
            return False
        if rest.stage in (
            RemainderStage.LOOKING,
            RemainderStage.READING,
        ) or not self._schedule.is_idle(file):
            return False
        self._decided(file, rest, stamp)
        return True

    def may_be_under_examination(self, file: TrackedFile) -> bool:
        """Return whether a file under examination may be the compressed copy of a vanished file.

        The vanished file was empty at every scan, but may have been written to and compressed after
        the last one. If so, wait for the result of the examination before you stop tracking it.

        Args:
            file: A file that is no longer at its path.

        Returns:
            True if a compressed file of the same source is being examined. False if none is, or if
            the vanished file had content at any scan. Such a file is identified by its content
            instead.
        """
        return file.never_had_content and any(
            other.suspected and other.place.source == file.place.source
            for other in self._files.compressed
        )

    def find_compressed_form(self, file: TrackedFile) -> str | None:
        """Find the compressed copy of a file that vanished and was empty at every scan.

        Such a file has no known content, so the copy is found by its name. A compressed file is
        returned only once, so that it is not matched with two files.

        Args:
            file: A file that is no longer at its path.

        Returns:
            Path of the compressed file. None if there is none, or if the vanished file had content
            at any scan.
        """
        if not file.never_had_content:
            return None
        for other in self._holding:
            if not other.suspected and _is_akin(other.place.path, file):
                self._holding.remove(other)
                return other.place.seen_at
        for stamp, path in sorted(
            self._here.items(), key=lambda found: found[0].mtime_ns
        ):  # a later one may be another file's
            is_later = stamp.mtime_ns >= file.identity.birth_ns - _LATER_MS * 1_000_000
            if (
                is_later
                and stamp not in self._stood
                and _is_akin(path, file)
                and _is_empty(path, stamp)
            ):
                self._stood.add(stamp)
                return path
        return None

    def _start_examination(
        self, source: str, stamp: ArchiveStamp, path: str, scanned_ms: int
    ) -> bool:
        # False if the file could not be opened, so that the next scan must try again
        was_set_back = scanned_ms > self._began_ms  # the clock: then times tell nothing
        is_old = stamp.mtime_ns // 1_000_000 < scanned_ms - _LATER_MS and not was_set_back
        if is_old:
            self._know([stamp])
            return True
        try:
            if os.path.lexists(path.rpartition(".")[0]):  # it is being packed, and is read as it is
                return True
            with open(path, "rb", opener=open_without_waiting) as opened:
                status, identity = os.fstat(opened.fileno()), self._identify(opened.fileno())
        except PermissionError as error:
            self._retirement.report_unreadable(
                source, path, str(error.strerror), [archives.save_archive(stamp)]
            )
            self._known[stamp] = None
            return True
        except OSError:  # renamed by now, or no room
            return False
        if any(
            self._start_positions.should_exclude(source, name, status)
            for name in (path, *former_names(path))
        ):
            self._know([stamp])
            return True
        known_as = file_id(identity.device, identity.inode, identity.birth_ns or stamp.mtime_ns)
        if not self._files.has(known_as):
            self._inodes[known_as] = stamp.inode
            place = FileLocation(source, path, path)
            file = TrackedFile(
                file_id=known_as, identity=FileIdentity(0, 0, 0), place=place, suspected=True
            )
            self._files.add(file)
            self._holding.append(file)
        return True

    def _decided(
        self, file: TrackedFile, rest: RemainderSearch, stamp: ArchiveStamp | None
    ) -> None:
        if not file.suspected:
            self._retirement.retire_compressed(file, rest)
            self._know([stamp] if stamp else [])
        else:
            self._let_go(file, rest.flaw, stamp)
        self._inodes.pop(file.file_id, None)

    def _vanished(self, file: TrackedFile) -> bool:
        file.unfound += 1
        if file.unfound < 2 * waits.COMPRESSED_SCANS or not self._schedule.run_unless_busy(
            file, file.drop_remainder
        ):
            return False
        if file.suspected:
            self._let_go(file, "it vanished before it was looked into")
        else:
            self._retirement.mark_missing(file)
        self._inodes.pop(file.file_id, None)
        return True

    def _let_go(self, file: TrackedFile, doubt: str, stamp: ArchiveStamp | None = None) -> None:
        if doubt:
            know = [archives.save_archive(stamp)] if stamp else []
            self._retirement.report_unreadable(file.place.source, file.place.seen_at, doubt, know)
        self._know([stamp] if stamp else [])
        file.close()
        self._files.remove(file)
        self._holding.remove(file)

    def _at_work(self) -> int:
        return sum(file.rest is not None for file in self._files.compressed)

    def _know(self, stamps: list[ArchiveStamp]) -> None:
        if stamps:
            self._checkpoint.commit([archives.save_archive(stamp) for stamp in stamps])
            self._known |= dict.fromkeys(stamps)

    def _drop(self, gone: list[ArchiveStamp]) -> None:
        if gone:
            self._checkpoint.commit(archives.delete_archives(gone))
            for stamp in gone:
                del self._known[stamp]


def _stamps(paths: Iterable[str]) -> dict[ArchiveStamp, str]:
    found = dict[ArchiveStamp, str]()
    for path in paths:
        if path.endswith(PACKED):
            with contextlib.suppress(OSError):
                status = os.stat(path)  # noqa: PTH116  # each look, and there may be thousands
                if stat.S_ISREG(status.st_mode):  # a socket cannot be opened
                    found[ArchiveStamp.of(status)] = path
    return found


def _is_empty(path: str, stamp: ArchiveStamp) -> bool:
    if stamp.size > _EMPTY_MAX:
        return False
    try:
        with contextlib.closing(DecompressedReader(open_without_waiting(path), path)) as plain:
            return not plain.read(1)
    except (CompressedFileIncomplete, CompressedFileDamaged, OSError):
        return False


def _is_akin(path: str, file: TrackedFile) -> bool:
    (folder, name), (other_folder, other_name) = os.path.split(path), os.path.split(file.place.path)
    return folder == other_folder and name.partition(".")[0] == other_name.partition(".")[0]
