"""Where reading of a new file begins, and which files are excluded.

Implements the settings `read_from`, `exclude` and `ignore_older_seconds` of a source.

Files that exist when a source is first scanned begin where `read_from` says; the bytes before count
as skipped. Files that appear later begin at their start. The first scan of a source is recorded in
the same transaction as the files that it found and their positions, so a kill does not change these
decisions. A scan that failed to list anything does not count as the first; a scan of a folder that
does not exist yet does, so files created there later are new.

`exclude` and `ignore_older_seconds` only decide whether a file begins to be tracked. A file that is
in the checkpoint is read to its end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from hourmark.clock import Clock
from hourmark.config.globs import matches_any_glob
from hourmark.config.groups import TailedSource
from hourmark.errors import ConfigError
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.books import count_skipped
from hourmark_producer.checkpoint.database import Change
from hourmark_producer.files.examination import read_at
from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES
from hourmark_producer.files.patterns import PatternFindings
from hourmark_producer.files.tracked_file import FilePosition, TrackedFile

_BLOCK_BYTES: Final = 1 << 16
_NAMED_MAX: Final = 5
_LOG = logging.getLogger(__name__)


def check_source(source: TailedSource, where: str) -> None:
    """Validate the `exclude` and `read_from` settings of a log source.

    Call this function when the configuration is loaded.

    Args:
        source: Configuration of the source.
        where: Name of the configuration group. Error messages begin with it.

    Raises:
        ConfigError: A value is invalid. The message names the setting and the value. Correct it in
            the configuration file.
    """
    for glob in source.exclude:
        if not glob or ("/" in glob and not glob.startswith("/")):
            raise ConfigError(
                f"{where}.exclude = {glob!r}: allowed: absolute globs, such as /var/log/old/**, "
                "or names, such as *.debug"
            )
    if source.read_from not in ("start", "end"):
        try:
            has_zone = datetime.fromisoformat(source.read_from).tzinfo is not None
        except ValueError:
            has_zone = False
        if not has_zone:
            raise ConfigError(
                f"{where}.read_from = {source.read_from!r}: allowed: start, end, or a time such "
                "as 2026-11-01T00:00:00Z"
            )


class StartPositions:
    """Determines which new files are read, and at which offset reading begins.

    Applies the settings `read_from`, `exclude` and `ignore_older_seconds` of all sources. For each
    scan, call `begin_scan`. Then, for each source:

    1. Call `record_scan`.
    2. Handle the new files with `should_exclude` and `start_position`.
    3. Commit the statements from `changes_for`, and call `record_commit`.

    Not thread-safe.
    """

    def __init__(
        self, sources: Sequence[TailedSource], scanned: Iterable[str], clock: Clock
    ) -> None:
        """Initialize with the settings of all sources.

        Args:
            sources: Configurations of the sources.
            scanned: Names of the sources that an earlier run of the tailer scanned. New files in
                these sources are read from the start.
            clock: Clock of this host, used to determine the age of files.
        """
        self._sources = {source.name: source for source in sources}
        self._scanned = set(scanned)
        self._written = set[str]()  # first scanned in this scan
        self._seen: str | None = None
        self._left_out: dict[str, dict[str, tuple[int, int]]] = {}  # inodes by path, by source
        self._clock = clock

    def begin_scan(self) -> None:
        """Begin a new scan of all sources.

        The setting `read_from` applies only to files that the first scan of a source finds. This
        call ends the first scan of each source for which `record_commit` was called; later files of
        these sources are read from their start.
        """
        self._scanned |= self._written

    def record_scan(self, source: str, findings: PatternFindings) -> None:
        """Record the files that a scan of one source found.

        The next calls of `changes_for` and `record_commit` refer to this source.

        Args:
            source: Name of the source.
            findings: Files and errors that the scan found.
        """
        self._seen = source if _was_seen(findings) else None
        if left_out := self._left_out.get(source):
            self._left_out[source] = {
                path: inode for path, inode in left_out.items() if path in findings.files
            }

    def should_exclude(self, source: str, path: str, status: os.stat_result) -> bool:
        """Return whether a source is configured to exclude an untracked file.

        A file is excluded if a pattern in `exclude` matches its path, or if it was last modified
        more than `ignore_older_seconds` seconds ago.

        Args:
            source: Name of the source.
            path: Path of the file.
            status: Result of `os.stat` for the file.
        """
        settings = self._sources[source]
        oldest_s = settings.ignore_older_seconds
        is_old = oldest_s is not None and status.st_mtime < self._clock.now_ms() / 1000 - oldest_s
        return is_old or self.excludes(source, path)

    def excludes(self, source: str, path: str) -> bool:
        """Return whether a pattern in the `exclude` setting of a source matches a path.

        Args:
            source: Name of the source.
            path: Absolute path of a file.

        Raises:
            KeyError: No source has this name.
        """
        return matches_any_glob(path, self._sources[source].exclude)

    def record_excluded(self, source: str, path: str, status: os.stat_result) -> None:
        """Record that an untracked file is excluded, so that later scans do not open it again.

        The first five excluded paths of each source are logged.

        Args:
            source: Name of the source.
            path: Path of the file.
            status: Result of `os.stat` for the file.
        """
        left_out = self._left_out.setdefault(source, {})
        if path not in left_out and len(left_out) < _NAMED_MAX:
            _LOG.info(
                "source %s: %s is not tailed, because of exclude or ignore_older_seconds",
                source,
                path,
            )
        left_out[path] = (status.st_dev, status.st_ino)

    def is_known_excluded(self, source: str, path: str, status: os.stat_result) -> bool:
        """Return whether a file was recorded as excluded and the settings still exclude it.

        Call this method to skip a file without opening it.

        Args:
            source: Name of the source.
            path: Path of the file.
            status: Result of `os.stat` for the file.

        Returns:
            False if `record_excluded` was not called for this path, or if another file now has
            this path.
        """
        inode = self._left_out.get(source, {}).get(path)
        return inode == (status.st_dev, status.st_ino) and self.should_exclude(source, path, status)

    def start_position(self, source: str, descriptor: int, generation: int) -> FilePosition:
        """Return the position at which reading of a new file begins.

        Args:
            source: Name of the source, whose setting `read_from` applies.
            descriptor: File descriptor, open for reading.
            generation: Number of times the file was truncated or replaced.

        Returns:
            The offset of the first byte to read, with fingerprints of the bytes before it.

        Raises:
            OSError: The file cannot be read.
        """
        read_from = self._sources[source].read_from
        if source in self._scanned or read_from == "start":
            return FilePosition(generation=generation)
        if (
            read_from != "end"
            and os.fstat(descriptor).st_mtime >= datetime.fromisoformat(read_from).timestamp()
        ):
            return FilePosition(generation=generation)
        return position_after_last_line(descriptor, generation)

    def changes_for(self, added: Iterable[TrackedFile]) -> list[Change]:
        """Return the SQL statements to commit to the checkpoint together with new files.

        The checkpoint is the tailer's SQLite database. The statements save the position of each
        file that is not read from its start, and count the bytes before it as skipped. They also
        record that the source was scanned. Pass them to `Checkpoint.commit`.

        Args:
            added: New files of the source that was passed to the latest `record_scan`.

        Returns:
            The statements; an empty list if nothing needs to be saved.
        """
        made: list[Change] = []
        for file in filter(_begins_later, added):
            position = file.progress.position
            made += [
                changes.save_account(file.file_id, position),
                count_skipped(file.place.source, position.offset),
            ]
        if self._seen is not None and self._seen not in self._scanned | self._written:
            made.append(changes.mark_source_scanned(self._seen))
        return made

    def record_commit(self, added: Iterable[TrackedFile]) -> None:
        """Record that new files and the statements from `changes_for` were committed.

        Logs how many bytes of each file are skipped.

        Args:
            added: The files that were passed to `changes_for`.
        """
        if self._seen is not None:
            self._written.add(self._seen)
        for file in filter(_begins_later, added):
            _LOG.info(
                "%s: its first %d bytes are skipped: they were read before, or read_from "
                "excludes them",
                file.place.path,
                file.progress.position.offset,
            )


def position_after_last_line(descriptor: int, generation: int) -> FilePosition:
    """Return the position after the last complete line of an open file.

    Reading from this position includes an incomplete last line.

    Args:
        descriptor: File descriptor, open for reading.
        generation: Number of times the file was truncated or replaced.

    Returns:
        The position, with the first bytes of the file and the bytes just before the offset as
        fingerprints. The offset is 0 if the file contains no line end.

    Raises:
        OSError: The file cannot be read.
    """
    offset = _last_line(descriptor)
    start = max(0, offset - ANCHOR_BYTES)
    head, anchor = read_at(descriptor, 0, HEAD_BYTES), read_at(descriptor, start, offset - start)
    if len(anchor) < offset - start:  # truncated at this moment: what it holds now is new
        return FilePosition(generation=generation)
    return FilePosition(
        generation=generation, offset=offset, anchor=anchor, size_seen=offset, head=head
    )


def _last_line(descriptor: int) -> int:
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _BLOCK_BYTES)
        found = read_at(descriptor, start, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _begins_later(file: TrackedFile) -> bool:
    return file.progress.position.offset > 0


def _was_seen(findings: PatternFindings) -> bool:
    # a source whose folders do not exist yet was scanned completely, too
    not_there = (FileNotFoundError, NotADirectoryError)
    return bool(findings.files) or all(
        isinstance(problem, not_there) for problem in findings.problems.values()
    )
