"""Scans of all sources: which files are new, renamed, grown, truncated, deleted or missing.

Files are followed by their open descriptors, so a rename or a deletion interrupts nothing. A file
whose name no longer matches is searched for by its identity in its former folder, as after a
restart, when nothing is open. A file belongs to the first source that found it. If something is
renamed during a scan, the scan is repeated, because an entry may have been missed. A source that
was not scanned completely is not reported as caught up.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import COMPRESSED_SUFFIXES, TailedSource
from hourmark.process.file_identity import FileIdentity, open_without_waiting
from hourmark.records.ranges import file_id
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint import forgotten
from hourmark_producer.checkpoint.accounts import save_changed_accounts
from hourmark_producer.checkpoint.database import Checkpoint, CheckpointFailed
from hourmark_producer.checkpoint.generations import Generations
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.files import waits
from hourmark_producer.files.examination import examine, is_anchored, read_at
from hourmark_producer.files.fingerprints import HEAD_BYTES
from hourmark_producer.files.patterns import (
    PathPattern,
    PatternFindings,
    check_mounted,
    scan_patterns,
)
from hourmark_producer.files.remainder import RemainderStage
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import (
    FileLocation,
    FilePosition,
    FileProgress,
    ScanResult,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.history.beginnings import StartPositions
from hourmark_producer.history.match import ContentMatcher
from hourmark_producer.history.remainders import RemainderFinder
from hourmark_producer.history.rotated_names import find_compressed_candidates, former_names
from hourmark_producer.watch.descriptors import DescriptorBudget
from hourmark_producer.watch.packed_files import NewCompressedFiles
from hourmark_producer.watch.retirement import FileRetirement
from hourmark_producer.watch.rotated import RotatedFileSearch


def resolve_links(path: str) -> str:
    """Resolve the symbolic links in a path.

    Args:
        path: Absolute path.

    Returns:
        The resolved path, or an empty string if `path` contains no symbolic links.
    """
    real = os.path.realpath(path)
    return real if real != path else ""


def is_unchanged(file: TrackedFile, source: str, path: str, status: os.stat_result) -> bool:
    """Return whether a file is unchanged and completely acknowledged, so that a scan can skip it.

    Compares the size, modification time, path and source with the previous scan.

    Args:
        file: The tracked file.
        source: Name of the source whose pattern found the file.
        path: Path at which the file was found.
        status: Result of `os.stat` for this path.
    """
    is_unchanged = file.observed.stamp == (status.st_size, status.st_mtime_ns)
    return (
        is_unchanged
        and file.place.seen_at == path
        and file.place.source == source
        and file.is_up_to_date
    )


def is_still_at(file: TrackedFile, findings: PatternFindings) -> bool:
    """Return whether the current scan found a file at the same path as the previous scan.

    Args:
        file: The tracked file.
        findings: Findings of the current scan.

    Returns:
        False if the path was not found, or if its device or inode number differs.
    """
    status = findings.files.get(file.place.seen_at)
    return status is not None and (status.st_dev, status.st_ino) == (
        file.identity.device,
        file.identity.inode,
    )


LOOKS_MAX: Final = 3  # at a folder that keeps changing, before the next scan has to do
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(kw_only=True)
class FileScanner:
    """Scans all sources for new, renamed, grown, deleted and missing files.

    Updates the tracked files, and adds changed files to the queue of the workers. Not thread-safe.

    Attributes:
        sources: Configurations of the sources.
        files: All tracked files, which scans modify.
        checkpoint: Database in which new files and their paths are saved.
        schedule: Queue to which changed files are added.
        retirement: Stops tracking files.
        matcher: Determines which files must stay tracked because copies of them may exist.
        remainders: Searches for the unread content of files that vanished.
        generations: Records how often each file was truncated, for files that are not in the
            checkpoint.
        throttle: Logs each lasting problem once when it begins and once when it ends.
        clock: Clock of this host.
        identify: Function that returns the identity of an open file.
        may_be_copied_up: Function that returns whether the birth time of an open file may change,
            as on overlayfs.
        descriptors: Limits the number of open files.
        start_positions: Decides where reading of new files begins, and which files are excluded.
        scans: Number of full and partial scans that have begun.
    """

    sources: Sequence[TailedSource]
    files: TrackedFiles
    checkpoint: Checkpoint
    schedule: Schedule
    retirement: FileRetirement
    matcher: ContentMatcher
    remainders: RemainderFinder
    generations: Generations
    throttle: ConditionLog
    clock: Clock
    identify: Callable[[int], FileIdentity]
    may_be_copied_up: Callable[[int], bool]
    descriptors: DescriptorBudget
    start_positions: StartPositions

    def __post_init__(self) -> None:
        self.scans = 0
        self._patterns = {
            source.name: [PathPattern(path) for path in source.paths] for source in self.sources
        }
        self._found: set[TrackedFile] = set()  # by this scan
        self._added: set[TrackedFile] = set()  # by this look, not yet in the checkpoint
        self._moved: set[TrackedFile] = set()  # their place is not yet in the checkpoint
        self._packed: dict[str, set[str]] = {}  # by source
        self._empty: set[str] = set()  # sources of which it was said that nothing matches
        self._waiting: list[TrackedFile] = []  # at the latest scan, for a free descriptor
        self._awaited: set[TrackedFile] | None = None  # of this scan, once somebody asks
        self._forgot_s = self.clock.monotonic_s()
        self._receiving = {source.name for source in self.sources if source.input is not None}
        self._unseen = NewCompressedFiles(
            self.files,
            self.checkpoint,
            self.schedule,
            self.retirement,
            self.start_positions,
            self.clock,
            self.identify,
        )
        self._rotated = RotatedFileSearch(self.sources, self._unseen.scanned_ms, self.identify)

    def scan(self) -> ScanResult:
        """Scan all sources, then search for the tracked files that were not found.

        File system errors are part of the result. They are not raised.

        Returns:
            The files that are not completely acknowledged, the sources that were scanned
            completely, and the errors of each source.

        Raises:
            CheckpointFailed: The result cannot be saved. New files are not tracked. Scan again.
        """
        seen = ScanResult()
        self.scans += 1
        self._found, self._awaited = set(), None
        self.descriptors.begin()
        self.start_positions.begin_scan()
        began_ms = self._unseen.begin()
        for source in self._patterns:
            findings = self._look_until_settled(source, began_ms)
            seen.problems[source] = findings.problems
            seen.folders |= findings.folders
            settled = not (findings.unsettled or findings.problems)
            if settled:
                self._name_empty(source, findings)
            if self._unseen.process_scan(source, findings.compressed, is_complete=settled):
                seen.complete.add(source)
                doubted = self._rotated.complete_search(
                    source, began_ms, repeat=self._unseen.is_reading(source)
                )
                untold = [
                    path
                    for path, at in doubted.items()
                    if self.files.at_inode(at.st_dev, at.st_ino) is None
                ]
                if untold:
                    self.retirement.report_undecided(source, untold, self._unseen.scanned_ms)
        seen.active_files = [
            file for file in self.files if file not in self._found or not file.is_up_to_date
        ]
        self._follow_unfound(seen)
        self._unseen.end()
        self._forget_departed()
        self._waiting = self._open_some(seen.active_files)
        save_changed_accounts(self.checkpoint, seen.active_files)
        self.files.scans_completed += 1
        return seen

    def check_files(self, files: Iterable[TrackedFile]) -> bool:
        """Check given files for changes between two full scans, and open waiting files.

        A file waits if it has unread bytes, but the limit of open files was reached.

        Args:
            files: The files to check.

        Returns:
            Whether a full scan is needed. This is the case if one of the files is closed, deleted
            or unreadable, or if the last waiting file was opened.

        Raises:
            CheckpointFailed: The observations cannot be saved.
        """
        self.scans += 1
        changed, unsettled = list[TrackedFile](), False
        for file in files:
            if file.descriptor is None:
                unsettled = True
                continue
            at_s = self.clock.monotonic_s()
            try:
                status = os.fstat(file.descriptor)
                if (
                    status.st_size,
                    status.st_mtime_ns,
                ) != file.observed.stamp or file.observed.ends_with_nuls:
                    self._observe(file, status, at_s)
                    changed.append(file)
                unsettled |= status.st_nlink == 0
            except OSError:  # the full look says what it is
                unsettled = True
        save_changed_accounts(self.checkpoint, changed)
        if self._waiting:
            self.descriptors.begin()
            self._waiting = self._open_some(self._waiting)
            unsettled |= not self._waiting
        return unsettled

    def _look_until_settled(self, source: str, began_ms: int) -> PatternFindings:
        for _ in range(LOOKS_MAX):
            at_s = self.clock.monotonic_s()
            findings = scan_patterns(self._patterns[source])
            self._rotated.add_rotated_files(source, findings, began_ms)
            self._name_packed(source, findings)
            self.start_positions.record_scan(source, findings)
            for path, status in findings.files.items():
                try:
                    self._meet(source, path, status, at_s, findings)
                except FileNotFoundError:
                    findings.unsettled = True
                except OSError as error:
                    findings.problems[path] = error
            findings.unsettled |= self._commit()
            if not findings.unsettled:
                break
        return findings

    def _meet(
        self, source: str, path: str, status: os.stat_result, at_s: float, findings: PatternFindings
    ) -> None:
        file = self.files.at_inode(status.st_dev, status.st_ino)
        if file is not None and is_unchanged(file, source, path, status):
            self._found.add(file)
            return
        if file is None and self.start_positions.is_known_excluded(source, path, status):
            return
        changed = (
            file is None
            or file.observed.ends_with_nuls
            or file.observed.stamp != (status.st_size, status.st_mtime_ns)
        )
        if file is None or (file.descriptor is None and (changed or path not in file.names)):
            opened = self._open(source, path, at_s)
            if opened is None:
                return
            file, status = opened
        if (
            file.place.source != source
            and file.place.source in self._patterns
            and not self.start_positions.excludes(source, path)
        ):
            self.throttle.warn(
                f"twice {path}",
                f"{path} matches source {source} too, but is followed as "
                f"{file.place.source}; narrow one of the patterns",
            )
        is_here = file.place.seen_at == path or is_still_at(file, findings)
        if is_here and file.place.seen_at != path:
            self.files.add_other_name(file, path)
        if file in self._found:
            return
        self._found.add(file)
        if not is_here:
            findings.unsettled = True
            self._move(file, source, path)
        elif file.place.missing or file.place.source not in self._patterns:
            self._move(file, source, file.place.seen_at)
        self._observe(file, status, at_s)

    def _open(
        self, source: str, path: str, at_s: float
    ) -> tuple[TrackedFile, os.stat_result] | None:
        # None if it is not a regular file or is excluded
        room = self.descriptors.can_open_another()
        descriptor = open_without_waiting(path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                os.close(descriptor)
                return None
            identity = self.identify(descriptor)
            known = self._match(descriptor, identity, found_at=path)
            if known is None and self.start_positions.should_exclude(source, path, status):
                self.start_positions.record_excluded(source, path, status)
                os.close(descriptor)
                return None
            file = self._adopt(source, path, descriptor, identity, known)
        except (OSError, CheckpointFailed):
            os.close(descriptor)
            raise
        if file.descriptor == descriptor:
            if not room:
                # While it is open: what it begins with tells it from others once it is packed.
                # `_meet` observes it again, and an older status would look like a truncation.
                status = self._observe(file, status, at_s)
                self.descriptors.close_excess(file)
            elif file not in self._added:
                self.schedule.add(file)
        return file, status

    def _match(
        self, descriptor: int, identity: FileIdentity, found_at: str = ""
    ) -> TrackedFile | None:
        # The birth time changes when overlayfs copies a file up. Then the inode, the first bytes and
        # the bytes before the position decide, and the path if a pattern found it: two programs may
        # write the same lines, and a new file may get the inode of a deleted one.
        if (file := self.files.match(identity)) is not None:
            return file
        here = self.files.at_inode(identity.device, identity.inode)
        if here is None or here.descriptor is not None or not here.progress.position.is_identifying:
            return None
        if not self.may_be_copied_up(descriptor):
            return None
        if found_at and here.names.isdisjoint((found_at, *former_names(found_at))):
            return None
        position = here.progress.position
        is_it = read_at(descriptor, 0, len(position.head)) == position.head and is_anchored(
            descriptor, position
        )
        return here if is_it else None

    def _adopt(
        self,
        source: str,
        path: str,
        descriptor: int,
        identity: FileIdentity,
        file: TrackedFile | None,
    ) -> TrackedFile:
        if file is None:
            known_as, position = self._beginning(source, descriptor, identity)
            file = TrackedFile(
                file_id=known_as,
                identity=identity,
                place=FileLocation(source, path, path),
                progress=FileProgress(position=position, quiet_to=position.offset),
            )
            file.target = resolve_links(path)
            self.descriptors.assign(file, descriptor)
            self.files.add(file)
            self._added.add(file)
            return file
        if file.descriptor is None:
            self.descriptors.assign(file, descriptor)
        else:
            os.close(descriptor)
        if file.identity != identity and identity.birth_ns:
            self.files.update_identity(file, identity)
            self._move(file, file.place.source, path)
        return file

    def _beginning(
        self, source: str, descriptor: int, identity: FileIdentity
    ) -> tuple[str, FilePosition]:
        # a file that was tracked before gets its earlier id and position
        if (
            known := self.checkpoint.read(lambda db: forgotten.find_forgotten(db, identity))
        ) is not None:
            return known
        known_as = file_id(*identity)
        generation = self.generations.find_generation(known_as, read_at(descriptor, 0, HEAD_BYTES))
        return known_as, self.start_positions.start_position(source, descriptor, generation)

    def _move(self, file: TrackedFile, source: str, path: str) -> None:
        if file.place.seen_at != path:
            _LOG.info("%s is now %s, and still followed", file.place.seen_at, path)
        owner = file.place.source if file.place.source in self._patterns else source
        file.place, file.target = (
            file.place._replace(source=owner, seen_at=path, missing=False),
            resolve_links(path),
        )
        self._moved.add(file)

    def _observe(self, file: TrackedFile, status: os.stat_result, at_s: float) -> os.stat_result:
        # The recorded status, which is later than `status` if the open file was examined.
        self.retirement.delivered.discard(file)
        before, progress, found, size = file.observed, file.progress, None, None
        may_differ = before.ends_with_nuls or (status.st_size, status.st_mtime_ns) != before.stamp
        if file.descriptor is not None and may_differ:
            found, status, size = examine(file.descriptor, progress.position)
        file.observed = before.after_scan(status, at_s, progress, found, size)
        if len(file.observed.account.shrinks) > max(
            progress.position.offset > 0, len(before.account.shrinks)
        ):
            self._rotated.search_for_truncated(file)
        changed = (file.observed.stamp, file.observed.size) != (before.stamp, before.size)
        if changed:
            file.changed_at_s = at_s
        if changed or (file.observed.ends_with_nuls and file.descriptor is not None):
            file.due = self.scans
            if file not in self._added:
                self.schedule.add(file)
        return status

    def _commit(self) -> bool:
        # whether there are new files
        added, self._added = self._added, set()
        pending = [
            *map(changes.insert_file, added),
            *(changes.save_location(file, file.place) for file in self._moved),
        ]
        pending += [
            changes.save_link_target(file.file_id, file.target)
            for file in (*added, *self._moved)
            if file.target
        ]
        pending += self.start_positions.changes_for(added)
        try:
            if pending:
                self.checkpoint.commit(pending)
        except CheckpointFailed:
            for file in added:
                file.close()
                self.files.remove(file)
            raise
        self._moved = set()
        self.start_positions.record_commit(added)
        self._rotated.search_for_new(added)
        for file in added:
            _LOG.info(
                "%s is followed as source %s, file %s",
                file.place.path,
                file.place.source,
                file.file_id,
            )
            self.schedule.add(file)
        return bool(added)

    def _follow_unfound(self, seen: ScanResult) -> None:
        listings: dict[str, dict[int, str]] = {}
        unfound = list[TrackedFile]()
        for file in seen.active_files:
            if not (file in self._found or file.is_gone):
                unfound.append(file)
                continue
            file.unfound = 0
            self.retirement.remove_if_acknowledged(file)
            if file.rest is not None and file.rest.truncated_at is None:
                self.schedule.run_unless_busy(file, file.drop_remainder)
        seen.complete -= self._rotated.search_for_unfound(set(unfound))
        for file in unfound:
            if file.descriptor is None and seen.problems.get(file.place.source):
                continue  # the folder where it may be could not be scanned
            try:
                if file.is_compressed:
                    known = self._unseen.continue_examination(file)
                else:
                    known = file.descriptor is not None or self._look_for(file, listings)
                if file.descriptor is not None:
                    self._look_at_open(file, file.descriptor)
            except OSError as error:
                known = False
                seen.problems.setdefault(file.place.source, {})[file.place.seen_at] = error
            if not known:
                seen.complete.discard(file.place.source)
        self._commit()

    def _forget_departed(self) -> None:
        # files without a birth time are kept
        now_s = self.clock.monotonic_s()
        if now_s - self._forgot_s < waits.FORGET_EVERY_S:
            return
        self._forgot_s, inodes = now_s, dict[str, set[int] | None]()
        for file in [
            file
            for file in self.files
            if file.place.missing and file.identity.birth_ns and not file.is_compressed
        ]:
            folder = os.path.dirname(file.place.seen_at)  # noqa: PTH120
            if folder not in inodes:
                inodes[folder] = _inodes_in(folder)
            there, idle = (
                inodes[folder],
                not file.progress.in_flight and self.schedule.is_idle(file),
            )
            if (
                there is not None
                and file.identity.inode not in there
                and idle
                and not self._is_awaited(file)
            ):
                self.retirement.forget(file)

    def _open_some(self, files: list[TrackedFile]) -> list[TrackedFile]:
        # returns the files that were waiting
        waiting = [
            file
            for file in files
            if file.descriptor is None
            and not (file.is_gone or file.is_read or file.rest)
            and file.place.source in self._patterns
        ]
        for file in self.descriptors.select_to_open(waiting):
            try:
                self._open_if(file, file.place.seen_at)
            except OSError as error:  # the next scan finds out what became of it
                self.throttle.warn(
                    f"turn {file.file_id}", f"cannot open {file.place.seen_at}: {error.strerror}"
                )
        return waiting

    def _look_at_open(self, file: TrackedFile, descriptor: int) -> None:
        at_s = self.clock.monotonic_s()
        status = os.fstat(descriptor)
        file.deleted = status.st_nlink == 0
        self._observe(file, status, at_s)
        if not file.deleted:
            self.retirement.retire_unmatched(file)
        elif not self._is_awaited(file):
            self.retirement.retire_deleted(file)

    def _is_awaited(self, file: TrackedFile) -> bool:
        if self._awaited is None:
            self._awaited = self.matcher.possible_origins()
        return file in self._awaited

    def _look_for(self, file: TrackedFile, listings: dict[str, dict[int, str]]) -> bool:
        # whether the state of the file is known: it was found, or the search has ended
        for folder in dict.fromkeys(
            os.path.dirname(path)  # noqa: PTH120
            for path in (file.place.seen_at, file.target)
            if path
        ):
            if folder not in listings:
                try:
                    with os.scandir(folder) as entries:
                        listings[folder] = {
                            entry.inode(): entry.path for entry in entries if not entry.is_symlink()
                        }
                except (FileNotFoundError, NotADirectoryError):
                    listings[folder] = {}
            path = listings[folder].get(file.identity.inode)
            if path is not None and not self.files.is_displaced(file) and self._open_if(file, path):
                file.unfound = 0
                self._move(file, file.place.source, path)
                return True
            if not listings[folder]:
                check_mounted(folder, file.identity.device)
        file.unfound += 1
        if file.unfound < waits.UNFOUND_SCANS:
            return False
        paths = [path for listing in listings.values() for path in listing.values()]
        paths += self._packed.get(file.place.source, ())
        self.retirement.delivered.discard_if_compressed_later(
            file, find_compressed_candidates(file, paths, COMPRESSED_SUFFIXES)
        )
        if self.remainders.is_remainder_pending(
            file, paths
        ) or self._unseen.may_be_under_examination(file):
            return False
        is_packed = file.rest is not None and file.rest.stage is RemainderStage.FINISHED
        if (is_packed or self.files.is_displaced(file)) and self._is_awaited(file):
            return False  # it would be forgotten
        if file.rest is not None and is_packed:
            self.retirement.retire_compressed(file, file.rest)
        elif holder := self._unseen.find_compressed_form(file):
            self.retirement.retire_empty(file, holder)
        elif self.files.is_displaced(file):
            self.retirement.retire_replaced(file)
        else:
            self.retirement.mark_missing(file)
        return True

    def _open_if(self, file: TrackedFile, path: str) -> bool:
        # The path is identified without opening it for reading, because it may now lead to a socket or
        # an unreadable file.
        if (is_known := self._is_at(file, path)) is None:
            return False
        room, at_s = self.descriptors.can_open_another(), self.clock.monotonic_s()
        try:
            descriptor = open_without_waiting(path)
        except PermissionError:
            if is_known:
                raise
            return False  # by its birth time it is another file, and nothing can tell otherwise
        try:
            status, identity = os.fstat(descriptor), self.identify(descriptor)
            is_it = stat.S_ISREG(status.st_mode) and self._match(descriptor, identity) is file
        except OSError:
            os.close(descriptor)
            raise
        if not is_it:
            os.close(descriptor)
            return False
        if file.identity != identity and identity.birth_ns:
            self.files.update_identity(file, identity)
            self._moved.add(file)
        self.descriptors.assign(file, descriptor)
        if room:
            self.schedule.add(file)
        else:
            self._observe(file, status, at_s)
            self.descriptors.close_excess(file)
        return True

    def _is_at(self, file: TrackedFile, path: str) -> bool | None:
        # False if it has the same inode but another birth time, so that its content must be compared;
        # None if it is a different file. O_PATH needs no read permission.
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            identity = self.identify(descriptor)
            if self.files.match(identity) is file:
                return True
            return False if self.files.at_inode(identity.device, identity.inode) is file else None
        finally:
            os.close(descriptor)

    def _name_empty(self, source: str, findings: PatternFindings) -> None:
        if findings.files:
            self._empty.discard(source)
        elif source not in self._empty and source not in self._receiving:
            self._empty.add(source)
            _LOG.warning(
                "source %s: no file matches its paths yet; it is caught up nevertheless, "
                "as all was looked at",
                source,
            )

    def _name_packed(self, source: str, findings: PatternFindings) -> None:
        if new := findings.compressed - self._packed.get(source, set()):
            more = f", and {len(new) - 5} more" if len(new) > 5 else ""
            _LOG.info(
                "source %s: %d compressed files match its paths, and are not followed as logs; "
                "one that holds lines that were "
                "not read is read from its content: %s%s",
                source,
                len(new),
                ", ".join(sorted(new)[:5]),
                more,
            )
        self._packed[source] = findings.compressed


def _inodes_in(folder: str) -> set[int] | None:
    try:
        with os.scandir(folder) as entries:
            return {entry.inode() for entry in entries}
    except OSError:
        return None
