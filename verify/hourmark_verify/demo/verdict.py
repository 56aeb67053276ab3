"""The judge's input for a demo run, and repeated runs of the judge while data may still arrive."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hourmark.config.loading import Config
from hourmark_verify.demo import configuration
from hourmark_verify.demo.configuration import SERVER_SOURCE
from hourmark_verify.demo.log_lines import HOST
from hourmark_verify.demo.traffic import LiveLog
from hourmark_verify.judge.check import verify_delivery
from hourmark_verify.judge.expectations import ApiEvent, Expectations, read_expectations
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.webhdfs import WebHdfsReader


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInputs:
    """The sources and the time span of one demo run, as input for the judge.

    The judge is an independent program that compares source files with closed buckets.

    Attributes:
        logs: Log files that the demo wrote.
        server_sizes: Maps each server log to its size in bytes when the demo stopped writing. All
            lines up to this size must be delivered. The file may have grown since then.
        host_id: Id of the host that stores the logs.
        rules: Ids of the revisions of type and source declarations that were in effect.
        span_ms: Start and end of the run in Unix milliseconds.
        posted: Events that were sent to the HTTP API.
    """

    logs: Sequence[LiveLog]
    server_sizes: Mapping[Path, int]
    host_id: str
    rules: Sequence[str]
    span_ms: tuple[int, int]
    posted: Sequence[ApiEvent]


def write_expectations(file: Path, config: Config, inputs: JudgeInputs) -> Expectations:
    """Write the judge's input file as JSON, and return its parsed content.

    The judge is an independent program that compares source files with closed buckets.

    Args:
        file: Path of the file to write; an existing file is overwritten.
        config: Configuration of the running system, which names the storage and the event types.
        inputs: Sources and time span of the demo run.
    """
    types, sources, limits = configuration.declarations_for_judge(config.types.dir)
    written = [{"path": f"{log.path}*", **sources[log.path.parent.name]} for log in inputs.logs]
    servers = [
        {"path": str(path), "size": size, **sources[SERVER_SOURCE]}
        for path, size in inputs.server_sizes.items()
    ]
    content = {
        "webhdfs": config.storage.webhdfs,
        "root": config.storage.root,
        "user": config.storage.user,
        "host": HOST,
        "host_id": inputs.host_id,
        "files": [*servers, *written],
        "types": types,
        "line_bytes_max": config.tailer.line_bytes_max,
        "written": [record.model_dump() for log in inputs.logs for record in log.records],
        "api": [event.model_dump() for event in inputs.posted],
        "observed_ms": inputs.span_ms,
        "rules": inputs.rules,
        **limits,
    }
    file.write_text(json.dumps(content, indent=1))
    return read_expectations(file)


def judge_until_settled(
    expectations: Expectations, hdfs: WebHdfsReader, wait_for_more: Callable[[JudgeReport], bool]
) -> JudgeReport:
    """Run the judge repeatedly until no event is missing or no more data can arrive.

    The judge compares all source files with all closed buckets.

    Args:
        expectations: Source files, event types and settings to verify against.
        hdfs: WebHDFS client for the buckets.
        wait_for_more: Function that is called with the report if events are missing. It waits for
            more data and returns True, or returns False if no more data can arrive.

    Returns:
        The last report. If `wait_for_more` returned False, it still contains the missing events.

    Raises:
        OSError: A source file cannot be read.
        httpx.HTTPError: HDFS cannot be read.
    """
    while True:
        report = verify_delivery(expectations, hdfs)
        if report.counts[FindingKind.LOST] == 0 or not wait_for_more(report):
            return report
