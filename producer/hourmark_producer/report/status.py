"""The status of a tailer, from its checkpoint and latest snapshot, as data and as text."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hourmark.process.file_identity import open_without_waiting
from hourmark.state_folder import StateFolder
from hourmark_producer.checkpoint.books import SourceBalance, compute_balances
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.read_only import CheckpointedFile, read_snapshot
from hourmark_producer.counters import Loss, Losses
from hourmark_producer.files.examination import content_end
from hourmark_producer.report.snapshot import SAVE_INTERVAL_S, TailerSnapshot, load_snapshot
from hourmark_producer.send.services import ServiceStatus

_STALE_S = 4 * SAVE_INTERVAL_S  # one that hangs is named within 30 s


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """The status of one tracked file.

    Attributes:
        source: Name of its source.
        path: Path at which it was last found.
        file_id: Id of the file.
        generation: Number of times its content was truncated or replaced.
        offset: Offset of the next byte to read.
        size: Current size in bytes; None if the file is no longer at its path.
        pending_bytes: Number of bytes that are not read yet.
        in_flight_bytes: Number of bytes that were read and are not acknowledged yet.
        changed_seconds_ago: Seconds since it was last modified; None if unknown.
        missing: Whether it can no longer be found.
    """

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
    """The status of one source, which is a configured group of log files or an input.

    Attributes:
        name: Name of the source.
        files: Number of tracked files.
        pending_bytes: Number of bytes that are not read yet.
        in_flight_bytes: Number of bytes that were read and are not acknowledged yet.
        lag_seconds: Seconds since all of its data was last acknowledged; None if unknown.
        lost_bytes: Number of bytes that are known to be lost.
        unknown_losses: Number of occasions on which an unknown number of bytes may have been lost.
        bytes: Byte counts by outcome, such as acknowledged or lost; None if the checkpoint was
            written by a version that did not count them.
    """

    name: str
    files: int
    pending_bytes: int
    in_flight_bytes: int
    lag_seconds: float | None
    lost_bytes: int
    unknown_losses: int
    bytes: SourceBalance | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TailerStatus:
    """The status of a tailer, whether or not it is running.

    Attributes:
        pid: Process id of the running tailer; None if none is running.
        state_dir: Path of its state folder.
        host_id: Host id of the tailer.
        at_ms: When this status was read, in Unix milliseconds.
        standing: The latest state that a running tailer saved, possibly in an earlier run; None if
            there is none.
        attention: Messages about problems that an operator should examine; empty if there are none.
        sources: Status of all sources, configured ones first.
        files: Status of all tracked files.
        losses: The latest losses, oldest first.
    """

    pid: int | None
    state_dir: str
    host_id: str
    at_ms: int
    standing: TailerSnapshot | None
    attention: list[str]
    sources: list[SourceStatus]
    files: list[FileStatus]
    losses: list[Loss]


def read_status(state_dir: Path, sources: Sequence[str]) -> TailerStatus:
    """Read the status of a tailer from its state folder. Nothing is changed.

    Args:
        state_dir: State folder of the tailer.
        sources: Names of the configured sources.

    Raises:
        UsageError: The folder has no checkpoint, or this user may not read it.
        Unavailable: The checkpoint cannot be read at the moment.
    """
    pid = StateFolder(state_dir, "tailer").holder()
    known = read_snapshot(state_dir / CHECKPOINT)
    standing, now_ms = load_snapshot(state_dir), time.time_ns() // 1_000_000
    files = [_file(file, now_ms) for file in known.files]
    books = (
        compute_balances(known.accounting, {file.file_id: file.pending_bytes for file in files})
        if known.accounting
        else {}
    )
    names = dict.fromkeys([*sources, *books, *(file.source for file in files), *known.losses])
    source_statuses = [
        _source(
            name,
            files,
            known.losses.get(name, Losses()),
            books.get(name),
            _lag_s(standing, name, pid, now_ms),
        )
        for name in names
    ]
    return TailerStatus(
        pid=pid,
        state_dir=str(state_dir),
        host_id=known.host_id,
        at_ms=now_ms,
        standing=standing,
        attention=list(_attention(pid, standing, source_statuses, sources, now_ms)),
        sources=source_statuses,
        files=files,
        losses=known.recent_losses,
    )


def _file(file: CheckpointedFile, now_ms: int) -> FileStatus:
    size, changed = None, None
    try:
        found = os.stat(file.seen_at)  # noqa: PTH116
        if found.st_ino == file.inode:  # the device number may change when the machine restarts
            size, changed = (
                _content_size(file, found.st_size),
                max(0.0, now_ms / 1000 - found.st_mtime),
            )
    except OSError:
        pass
    end = file.high if size is None else size
    read_to = (
        file.offset if end >= file.offset else 0
    )  # truncated, and the tailer has not noticed yet
    return FileStatus(
        source=file.source,
        path=file.seen_at,
        file_id=file.file_id,
        generation=file.generation,
        offset=file.offset,
        size=size,
        pending_bytes=0 if file.missing else end - read_to,
        in_flight_bytes=file.in_flight,
        changed_seconds_ago=changed,
        missing=file.missing,
    )


def _content_size(file: CheckpointedFile, size: int) -> int:
    if size <= file.offset:
        return size
    with (
        contextlib.suppress(OSError),
        open(file.seen_at, "rb", opener=open_without_waiting) as opened,
    ):
        return content_end(opened.fileno(), size, file.offset)
    return size


def _source(
    name: str,
    files: list[FileStatus],
    losses: Losses,
    books: SourceBalance | None,
    lag_s: float | None,
) -> SourceStatus:
    mine = [file for file in files if file.source == name]
    return SourceStatus(
        name=name,
        files=len(mine),
        pending_bytes=sum(file.pending_bytes for file in mine),
        in_flight_bytes=books.in_flight if books else sum(file.in_flight_bytes for file in mine),
        lag_seconds=lag_s,
        lost_bytes=losses.bytes,
        unknown_losses=losses.unknown,
        bytes=books,
    )


def _lag_s(
    standing: TailerSnapshot | None, source: str, pid: int | None, now_ms: int
) -> float | None:
    if standing is None or (lag_s := standing.lag_seconds.get(source)) is None:
        return None
    return lag_s + (
        0.0 if pid == standing.pid and _is_fresh(standing, now_ms) else _age_s(standing, now_ms)
    )


def _attention(
    pid: int | None,
    standing: TailerSnapshot | None,
    sources: list[SourceStatus],
    configured: Sequence[str],
    now_ms: int,
) -> list[str]:
    waiting = sum(source.pending_bytes + source.in_flight_bytes for source in sources)
    found = []
    if pid is None and waiting:
        found.append(
            f"no tailer is running, and {waiting} bytes are waiting; run `hourmark tail` to "
            "deliver them"
        )
    if pid is not None and standing is not None:
        if standing.pid == pid:
            found += [trouble.message for trouble in standing.troubles]
        if not _is_fresh(standing, now_ms):
            found.append(
                f"process {pid} has not updated its status for {_age_s(standing, now_ms):.0f} s; "
                "check whether it is suspended or the disk is full"
            )
    for source in sources:
        if source.pending_bytes and source.name not in configured:
            found.append(
                f"source {source.name} is not in tailer.sources, so its {source.pending_bytes} "
                "bytes are not sent"
            )
        if source.bytes is not None and source.bytes.off_by:
            found.append(
                f"the byte counts of source {source.name} differ by {source.bytes.off_by}; "
                "please report this bug"
            )
    return found


def _age_s(standing: TailerSnapshot, now_ms: int) -> float:
    return max(0.0, (now_ms - standing.written_at_ms) / 1000)


def _is_fresh(standing: TailerSnapshot, now_ms: int) -> bool:
    return _age_s(standing, now_ms) < _STALE_S


FILES_SHOWN: Final = 50
_LOSSES_SHOWN: Final = 10


def format_status(status: TailerStatus, *, every_file: bool = False) -> Iterator[str]:
    """Yield the lines of text that describe a status.

    Args:
        status: The status.
        every_file: Whether to include all files. By default only the `FILES_SHOWN` files with the
            most unacknowledged bytes are included.
    """
    running = f"running, process {status.pid}" if status.pid else "not running"
    yield f"{running}; {status.state_dir}, host id {status.host_id}"
    for source in status.sources:
        yield _source_text(source)
    for service in status.standing.services if status.standing else ():
        yield _service(service)
    files = sorted(status.files, key=lambda file: -file.pending_bytes - file.in_flight_bytes)
    shown = files if every_file else files[:FILES_SHOWN]
    for file in shown:
        yield _file_text(file)
    if len(shown) < len(files):
        yield f"… and {len(files) - len(shown)} more files; use --all to show them"
    for loss in status.losses[-_LOSSES_SHOWN:]:
        unknown = ", and possibly more" if loss.unknown else ""
        yield (
            f"lost {_time(loss.at_ms)} {loss.source} {loss.path}: {loss.bytes} "
            f"bytes{unknown}; {loss.what}"
        )
    latest = status.standing.latest_trouble if status.standing else None
    if latest is not None:
        yield f"last problem {_time(latest.since_ms)}: {latest.message}"
    for line in status.attention:
        yield f"! {line}"


def _source_text(source: SourceStatus) -> str:
    lag = (
        "never caught up"
        if source.lag_seconds is None
        else f"caught up {source.lag_seconds:.1f} s ago"
    )
    text = (
        f"source {source.name}: {source.files} files, {source.pending_bytes} bytes pending, {lag}"
    )
    if (books := source.bytes) is not None:
        text += (
            f"; {books.seen} bytes seen = {books.acknowledged} acknowledged + {books.in_flight} "
            f"in flight + {books.pending} "
            f"pending + {books.skipped} skipped + {books.lost} lost"
        )
    return f"{text}; {source.lost_bytes} bytes lost, unknown losses: {source.unknown_losses}"


def _service(service: ServiceStatus) -> str:
    failing = service.failing_seconds
    how = "well" if failing is None else f"failing for {failing:.0f} s: {service.trouble}"
    return f"service {service.service}: {service.ranges} ranges, {how}"


def _file_text(file: FileStatus) -> str:
    size = (
        "missing" if file.missing else "of unknown size" if file.size is None else f"of {file.size}"
    )
    changed = (
        ""
        if file.changed_seconds_ago is None
        else f", changed {file.changed_seconds_ago:.0f} s ago"
    )
    flight = f", {file.in_flight_bytes} in flight" if file.in_flight_bytes else ""
    return (
        f"  {file.path} (file {file.file_id}, generation {file.generation}): read to "
        f"{file.offset} {size}, "
        f"{file.pending_bytes} bytes pending{flight}{changed}"
    )


def _time(ms: int) -> str:
    return (
        dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )
