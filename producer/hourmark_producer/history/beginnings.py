"""Where reading begins, and what is left out: `read_from`, `exclude` and `ignore_older_seconds` of
a source.

Files that are there at a source's first look begin where `read_from` says; what is passed over is
counted as skipped. Files that appear later begin at their start. That a source was looked at is
written in the same transaction as the files that were found, with their positions: so a kill
changes nothing that was decided, and decides nothing anew. A look that was kept from seeing
anything is none; but a folder that is not there yet was seen: what is made in it later is new.

`exclude` and `ignore_older_seconds` decide whether a file begins to be followed. One that the
checkpoint knows is finished.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark.errors import ConfigError
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.books import skip
from hourmark_producer.checkpoint.database import Change
from hourmark_producer.files.examination import read_at
from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES
from hourmark_producer.files.patterns import Findings, is_named_by
from hourmark_producer.files.tracked_file import Position, TrackedFile

_BLOCK_BYTES: Final = 1 << 16
_NAMED_MAX: Final = 5
_LOG = logging.getLogger(__name__)


def check(source: TailedSource, where: str) -> None:
    """ConfigError names the setting."""
    for glob in source.exclude:
        if not glob or ("/" in glob and not glob.startswith("/")):
            raise ConfigError(
                f"{where}.exclude = {glob!r}: allowed: absolute globs, as "
                "/var/log/old/**, or names, as *.debug"
            )
    if source.read_from not in ("start", "end"):
        try:
            has_zone = datetime.fromisoformat(source.read_from).tzinfo is not None
        except ValueError:
            has_zone = False
        if not has_zone:
            raise ConfigError(
                f"{where}.read_from = {source.read_from!r}: allowed: start, end, a time "
                "as 2026-11-01T00:00:00Z"
            )


class Beginnings:
    """Those of all sources. Used by the scanning thread."""

    def __init__(self, sources: Sequence[TailedSource], begun: Iterable[str], clock: Clock) -> None:
        """`begun`: sources that were looked at before."""
        self._sources = {source.name: source for source in sources}
        self._begun = set(begun)
        self._written = set[str]()  # looked at in this scan
        self._seen: str | None = None
        self._left_out: dict[str, dict[str, tuple[int, int]]] = {}  # inodes by path, by source
        self._clock = clock

    def next_scan(self) -> None:
        """A scan begins.

        What was written before counts from now on: a repeated look is still the first.
        """
        self._begun |= self._written

    def saw(self, source: str, findings: Findings) -> None:
        """What the latest look found; files that `written_with` is told of are of it."""
        self._seen = source if _was_seen(findings) else None
        if left_out := self._left_out.get(source):
            self._left_out[source] = {
                path: inode for path, inode in left_out.items() if path in findings.files
            }

    def leaves_out(self, source: str, path: str, status: os.stat_result) -> bool:
        """Whether a file that is not known is not followed."""
        settings = self._sources[source]
        oldest_s = settings.ignore_older_seconds
        is_old = oldest_s is not None and status.st_mtime < self._clock.now_ms() / 1000 - oldest_s
        return is_old or self.excludes(source, path)

    def excludes(self, source: str, path: str) -> bool:
        """Whether `exclude` names this path."""
        return is_named_by(path, self._sources[source].exclude)

    def leave_out(self, source: str, path: str, status: os.stat_result) -> None:
        """It was opened, and is not known: it need not be opened again."""
        left_out = self._left_out.setdefault(source, {})
        if path not in left_out and len(left_out) < _NAMED_MAX:
            _LOG.info("source %s: %s is left out, by exclude or ignore_older_seconds", source, path)
        left_out[path] = (status.st_dev, status.st_ino)

    def was_left_out(self, source: str, path: str, status: os.stat_result) -> bool:
        """Whether it was left out before, and still is."""
        inode = self._left_out.get(source, {}).get(path)
        return inode == (status.st_dev, status.st_ino) and self.leaves_out(source, path, status)

    def position(self, source: str, descriptor: int, generation: int) -> Position:
        """Where a new file begins."""
        read_from = self._sources[source].read_from
        if source in self._begun or read_from == "start":
            return Position(generation=generation)
        if (
            read_from != "end"
            and os.fstat(descriptor).st_mtime >= datetime.fromisoformat(read_from).timestamp()
        ):
            return Position(generation=generation)
        return at_last_line(descriptor, generation)

    def written_with(self, added: Iterable[TrackedFile]) -> list[Change]:
        """What is written together with these new files."""
        made: list[Change] = []
        for file in filter(_begins_later, added):
            position = file.progress.position
            made += [
                changes.save_account(file.file_id, position),
                skip(file.place.source, position.offset),
            ]
        if self._seen is not None and self._seen not in self._begun | self._written:
            made.append(changes.begin_source(self._seen))
        return made

    def committed(self, added: Iterable[TrackedFile]) -> None:
        """All that is durable."""
        if self._seen is not None:
            self._written.add(self._seen)
        for file in filter(_begins_later, added):
            _LOG.info(
                "%s: its first %d bytes are passed over: they were read before, or "
                "read_from leaves them out",
                file.place.path,
                file.progress.position.offset,
            )


def at_last_line(descriptor: int, generation: int) -> Position:
    """The start of its last line that has no end yet: what is being written comes whole.

    Its end where all lines have one.
    """
    offset = _last_line(descriptor)
    start = max(0, offset - ANCHOR_BYTES)
    head, anchor = read_at(descriptor, 0, HEAD_BYTES), read_at(descriptor, start, offset - start)
    if len(anchor) < offset - start:  # truncated at this moment: what it holds now is new
        return Position(generation=generation)
    return Position(
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
    """Whether a new file does not begin at its start."""
    return file.progress.position.offset > 0


def _was_seen(findings: Findings) -> bool:
    """Whether this was a look: something was found, or nothing kept it from being found."""
    not_there = (FileNotFoundError, NotADirectoryError)
    return bool(findings.files) or all(
        isinstance(problem, not_there) for problem in findings.problems.values()
    )
