"""`hourmark tail status`: what a tailer of this host has done and has yet to do, whether or not it runs.

Positions and losses are the checkpoint's (`peek`), sizes are those of the files as they are now, and what only the tailer's
memory knows is what it wrote down last (`standing`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path

from hourmark.state_folder import StateFolder
from hourmark_producer.books import Balance, balances
from hourmark_producer.installation import CHECKPOINT
from hourmark_producer.looking import content_end
from hourmark_producer.losses import Loss, Losses
from hourmark_producer.peek import KnownFile, peek
from hourmark_producer.standing import EVERY_S, Standing, kept

_STALE_S = 6 * EVERY_S


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """One followed file. `size`: as of now; None where it was not found under its latest name."""

    source: str
    path: str
    file_id: str
    generation: int
    offset: int
    size: int | None
    pending_bytes: int
    in_flight_bytes: int
    changed_seconds_ago: float | None
    missing: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """One source. `bytes`: its books; None where the checkpoint is of a version without. `lag_seconds`: None where unknown."""

    name: str
    files: int
    pending_bytes: int
    in_flight_bytes: int
    lag_seconds: float | None
    lost_bytes: int
    unknown_losses: int
    bytes: Balance | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All of it. `pid`: of the tailer that runs, if one does."""

    pid: int | None
    state_dir: str
    host_id: str
    at_ms: int
    standing: Standing | None
    attention: list[str]
    sources: list[SourceStatus]
    files: list[FileStatus]
    losses: list[Loss]


def status_of(state_dir: Path, sources: Sequence[str]) -> Status:
    """`sources`: those of the configuration. UsageError, Unavailable."""
    pid = StateFolder(state_dir, "tailer").holder()
    known = peek(state_dir / CHECKPOINT)
    standing, now_ms = kept(state_dir), time.time_ns() // 1_000_000
    files = [_file(file, now_ms) for file in known.files]
    books = balances(known.books, {file.file_id: file.pending_bytes for file in files}) if known.books else {}
    names = dict.fromkeys([*sources, *books, *(file.source for file in files), *known.losses])
    told = [
        _source(name, files, known.losses.get(name, Losses()), books.get(name), _lag_s(standing, name, pid, now_ms))
        for name in names
    ]
    return Status(
        pid=pid, state_dir=str(state_dir), host_id=known.host_id, at_ms=now_ms, standing=standing,
        attention=list(_attention(pid, standing, told, sources, now_ms)), sources=told, files=files, losses=known.occasions,
    )  # fmt: skip


def _file(file: KnownFile, now_ms: int) -> FileStatus:
    size, changed = None, None
    try:
        found = os.stat(file.seen_at)  # noqa: PTH116
        if found.st_ino == file.inode:  # the device's number may be another after a restart of the machine
            size, changed = _content_size(file, found.st_size), max(0.0, now_ms / 1000 - found.st_mtime)
    except OSError:
        pass
    end = file.high if size is None else size
    read_to = file.offset if end >= file.offset else 0  # it was truncated, and the tailer has yet to find out
    return FileStatus(
        source=file.source, path=file.seen_at, file_id=file.file_id, generation=file.generation, offset=file.offset, size=size,
        pending_bytes=0 if file.missing else end - read_to, in_flight_bytes=file.in_flight,
        changed_seconds_ago=changed, missing=file.missing,
    )  # fmt: skip


def _content_size(file: KnownFile, size: int) -> int:
    """Return the size without the NULs of a file that was allocated ahead, where this user may read it."""
    if size <= file.offset:
        return size
    with contextlib.suppress(OSError), open(file.seen_at, "rb", opener=_opened) as opened:
        return content_end(opened.fileno(), size, file.offset)
    return size


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _source(name: str, files: list[FileStatus], losses: Losses, books: Balance | None, lag_s: float | None) -> SourceStatus:
    mine = [file for file in files if file.source == name]
    return SourceStatus(
        name=name, files=len(mine), pending_bytes=sum(file.pending_bytes for file in mine),
        in_flight_bytes=books.in_flight if books else sum(file.in_flight_bytes for file in mine), lag_seconds=lag_s,
        lost_bytes=losses.bytes, unknown_losses=losses.unknown, bytes=books,
    )  # fmt: skip


def _lag_s(standing: Standing | None, source: str, pid: int | None, now_ms: int) -> float | None:
    if standing is None or (lag_s := standing.lag_seconds.get(source)) is None:
        return None
    return lag_s + (0.0 if pid == standing.pid and _is_fresh(standing, now_ms) else _age_s(standing, now_ms))


def _attention(
    pid: int | None, standing: Standing | None, sources: list[SourceStatus], configured: Sequence[str], now_ms: int
) -> list[str]:
    """What somebody should look at."""
    waiting = sum(source.pending_bytes + source.in_flight_bytes for source in sources)
    found = []
    if pid is None and waiting:
        found.append(f"no tailer runs, and {waiting} bytes wait: `hourmark tail` delivers them")
    if pid is not None and standing is not None:
        if standing.pid == pid:
            found += [trouble.message for trouble in standing.troubles]
        if not _is_fresh(standing, now_ms):
            found.append(
                f"process {pid} has not said for {_age_s(standing, now_ms):.0f} s how it stands: is it stopped, or the disk full?"
            )
    for source in sources:
        if source.pending_bytes and source.name not in configured:
            found.append(f"source {source.name} is in no tailer.sources: its {source.pending_bytes} bytes are not sent")
        if source.bytes is not None and source.bytes.off_by:
            found.append(f"the books of source {source.name} are off by {source.bytes.off_by} bytes: please report it")
    return found


def _age_s(standing: Standing, now_ms: int) -> float:
    return max(0.0, (now_ms - standing.written_at_ms) / 1000)


def _is_fresh(standing: Standing, now_ms: int) -> bool:
    return _age_s(standing, now_ms) < _STALE_S
