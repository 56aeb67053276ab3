"""Closed buckets as HDFS has them: folders with a marker. A folder without one is none of the judge's business.

<root>/<type>/date=YYYY-MM-DD/hour=HH[/minute=MM]/_SUCCESS
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, Final

from infra.judge.webhdfs import Entry, WebHdfs

MARKER: Final = "_SUCCESS"
DEAD_LETTERS: Final = "dead-letters"


@dataclasses.dataclass(frozen=True, slots=True)
class Bucket:
    """A closed bucket: its folder relative to the root, the span of its event times, its marker's content."""

    type: str
    path: str
    start_ms: int
    end_ms: int
    marker: dict[str, Any]

    @property
    def hour(self) -> str:
        """As manifests spell it: 2026-11-21T05, or 2026-11-21T05:07."""
        return self.label(self.start_ms)

    def label(self, time_ms: int) -> str:
        """The name of the hour of this length that holds a time."""
        length_ms = self.end_ms - self.start_ms
        start = dt.datetime.fromtimestamp(time_ms // length_ms * length_ms // 1000, dt.UTC)
        return f"{start:%Y-%m-%dT%H}" if length_ms == 3_600_000 else f"{start:%Y-%m-%dT%H:%M}"

    def faults(self) -> list[str]:
        """Where the marker contradicts itself or its place."""
        expected = {"type": self.type, "hour": self.hour}
        faults = [
            f"the marker says {name} {self.marker.get(name)!r}" for name in expected if self.marker.get(name) != expected[name]
        ]
        if self.marker.get("events") != sum(file["records"] for file in self.marker["files"]):
            faults.append("the marker's number of events is not the sum of its files' records")
        return faults


def closed_buckets(hdfs: WebHdfs, root: str) -> Iterator[Bucket]:
    """All closed buckets, by type and time."""
    for event_type in _folders(hdfs, root):
        for date in _folders(hdfs, f"{root}/{event_type}", "date="):
            for hour in _folders(hdfs, f"{root}/{event_type}/{date}", "hour="):
                yield from _of_hour(hdfs, root, event_type, f"{event_type}/{date}/{hour}")


def _of_hour(hdfs: WebHdfs, root: str, event_type: str, path: str) -> Iterator[Bucket]:
    entries = hdfs.list(f"{root}/{path}")
    if _has_marker(entries):
        yield _bucket(hdfs, root, event_type, path)
    for entry in entries:
        if entry.folder and entry.name.startswith("minute=") and _has_marker(hdfs.list(f"{root}/{path}/{entry.name}")):
            yield _bucket(hdfs, root, event_type, f"{path}/{entry.name}")


def _bucket(hdfs: WebHdfs, root: str, event_type: str, path: str) -> Bucket:
    marker = json.loads(hdfs.read(f"{root}/{path}/{MARKER}"))
    levels = dict(level.split("=", 1) for level in path.split("/")[1:])
    start = dt.datetime.fromisoformat(f"{levels['date']}T{levels['hour']}:{levels.get('minute', '00')}:00+00:00")
    start_ms = int(start.timestamp()) * 1000
    return Bucket(event_type, path, start_ms, start_ms + int(marker["bucket_seconds"]) * 1000, marker)


def _folders(hdfs: WebHdfs, path: str, prefix: str = "") -> list[str]:
    """Names of folders below a path; those that begin with `_` or `.` are work in progress by custom, and left out."""
    entries = (entry for entry in hdfs.list(path) if entry.folder)
    return [entry.name for entry in entries if entry.name.startswith(prefix) and entry.name[0] not in "._"]


def _has_marker(entries: list[Entry]) -> bool:
    return any(entry.name == MARKER and not entry.folder for entry in entries)
