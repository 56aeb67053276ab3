"""What the judge is told, and its verdict, asked again while something may still be on its way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hourmark.config.loading import Config
from hourmark_verify.demo import declarations
from hourmark_verify.demo.declarations import SERVER_SOURCE
from hourmark_verify.demo.live_log import LiveLog
from hourmark_verify.demo.rendering import HOST
from hourmark_verify.judge.check import judge
from hourmark_verify.judge.expectations import ApiEvent, Expectations, read_expectations
from hourmark_verify.judge.report import Kind, Report
from hourmark_verify.judge.webhdfs import WebHdfs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the demo knows of its sources. `server_sizes`: server logs grow for ever, and must be
    there up to here.

    `rules`: revisions that were in force. `span_ms`: when it began, and ended.
    """

    logs: Sequence[LiveLog]
    server_sizes: Mapping[Path, int]
    host_id: str
    rules: Sequence[str]
    span_ms: tuple[int, int]
    posted: Sequence[ApiEvent]


def write_expectations(file: Path, config: Config, told: Inputs) -> Expectations:
    """Write the judge's file, and read it as the judge does."""
    types, sources, limits = declarations.told(config.types.dir)
    written = [{"path": f"{log.path}*", **sources[log.path.parent.name]} for log in told.logs]
    servers = [
        {"path": str(path), "size": size, **sources[SERVER_SOURCE]}
        for path, size in told.server_sizes.items()
    ]
    content = {
        "webhdfs": config.storage.webhdfs,
        "root": config.storage.root,
        "user": config.storage.user,
        "host": HOST,
        "host_id": told.host_id,
        "files": [*servers, *written],
        "types": types,
        "line_bytes_max": config.tailer.line_bytes_max,
        "written": [record.model_dump() for log in told.logs for record in log.records],
        "api": [event.model_dump() for event in told.posted],
        "observed_ms": told.span_ms,
        "rules": told.rules,
        **limits,
    }
    file.write_text(json.dumps(content, indent=1))
    return read_expectations(file)


def settled_verdict(
    told: Expectations, hdfs: WebHdfs, wait_for_more: Callable[[Report], bool]
) -> Report:
    """The verdict once nothing is missing, or `wait_for_more` (False: in vain) has nothing more to
    wait for.
    """
    while True:
        report = judge(told, hdfs)
        if report.counts[Kind.LOST] == 0 or not wait_for_more(report):
            return report
