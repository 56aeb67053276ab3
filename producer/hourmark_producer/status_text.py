"""A tailer's status as text, for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final

from hourmark_producer.services import ServiceStanding
from hourmark_producer.status import FileStatus, SourceStatus, Status

FILES_SHOWN: Final = 50
_LOSSES_SHOWN: Final = 10


def as_text(status: Status, *, every_file: bool = False) -> Iterator[str]:
    """Lines. Of many files those with the most to send; of many losses the latest."""
    running = f"running, process {status.pid}" if status.pid else "not running"
    yield f"{running}; {status.state_dir}, host id {status.host_id}"
    for source in status.sources:
        yield _source(source)
    for service in status.standing.services if status.standing else ():
        yield _service(service)
    files = sorted(status.files, key=lambda file: -file.pending_bytes - file.in_flight_bytes)
    shown = files if every_file else files[:FILES_SHOWN]
    for file in shown:
        yield _file(file)
    if len(shown) < len(files):
        yield f"… and {len(files) - len(shown)} files more: --all shows them"
    for loss in status.losses[-_LOSSES_SHOWN:]:
        unknown = ", and more, perhaps" if loss.unknown else ""
        yield f"lost {_time(loss.at_ms)} {loss.source} {loss.path}: {loss.bytes} bytes{unknown}; {loss.what}"
    latest = status.standing.latest_trouble if status.standing else None
    if latest is not None:
        yield f"last trouble {_time(latest.since_ms)}: {latest.message}"
    for line in status.attention:
        yield f"! {line}"


def _source(source: SourceStatus) -> str:
    lag = "never yet caught up" if source.lag_seconds is None else f"caught up {source.lag_seconds:.1f} s ago"
    text = f"source {source.name}: {source.files} files, {source.pending_bytes} bytes pending, {lag}"
    if (books := source.bytes) is not None:
        text += (
            f"; {books.seen} bytes seen = {books.acknowledged} acknowledged + {books.in_flight} in flight + {books.pending} "
            f"pending + {books.skipped} skipped + {books.lost} lost"
        )
    return f"{text}; {source.lost_bytes} bytes lost, unknown losses: {source.unknown_losses}"


def _service(service: ServiceStanding) -> str:
    failing = service.failing_seconds
    how = "well" if failing is None else f"failing for {failing:.0f} s: {service.trouble}"
    return f"service {service.service}: {service.ranges} ranges, {how}"


def _file(file: FileStatus) -> str:
    size = "missing" if file.missing else "not there" if file.size is None else f"of {file.size}"
    changed = "" if file.changed_seconds_ago is None else f", changed {file.changed_seconds_ago:.0f} s ago"
    flight = f", {file.in_flight_bytes} in flight" if file.in_flight_bytes else ""
    return (
        f"  {file.path} (file {file.file_id}, generation {file.generation}): read to {file.offset} {size}, "
        f"{file.pending_bytes} bytes pending{flight}{changed}"
    )


def _time(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
