"""What the judge is told, and its verdict, asked again while something may still be on its way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from hourmark.config import Config
from infra.demo.declarations import CONTENT, EVENTS_SOURCE, LINES_SOURCE, SERVER_LOG
from infra.demo.rendering import HOST
from infra.judge.check import judge
from infra.judge.expectations import Expectations, read_expectations
from infra.judge.report import Kind, Report
from infra.judge.snapshot import Snapshot, compare_snapshot
from infra.judge.webhdfs import WebHdfs


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What the demo knows of its sources. `server_sizes`: server logs grow for ever, and are judged up to here."""

    sources: Path
    server_sizes: Mapping[Path, int]
    host_id: str


def write_expectations(file: Path, config: Config, told: Told) -> Expectations:
    """Write the judge's file, and read it as the judge does."""
    written = [
        {"path": str(path)} for source in (LINES_SOURCE, EVENTS_SOURCE) for path in sorted((told.sources / source).glob("*"))
    ]
    servers = [{"path": str(path), "form": "free", "type": SERVER_LOG, "size": size} for path, size in told.server_sizes.items()]
    content = {
        "webhdfs": config.storage.webhdfs,
        "root": config.storage.root,
        "user": config.storage.user,
        "host": HOST,
        "host_id": told.host_id,
        "files": [*servers, *written],
        "types": CONTENT,
        "line_bytes_max": config.tailer.line_bytes_max,
    }
    file.write_text(json.dumps(content, indent=1))
    return read_expectations(file)


def settled_verdict(told: Expectations, hdfs: WebHdfs, snapshot: Snapshot, wait_for_more: Callable[[Report], bool]) -> Report:
    """The verdict once nothing is missing, or `wait_for_more` (False: in vain) has nothing more to wait for."""
    while True:
        report = judge(told, hdfs)
        if report.counts[Kind.LOST] == 0 or not wait_for_more(report):
            compare_snapshot(hdfs, told.root, snapshot, report)
            return report
