"""The input of the judge for a demo run, and repeated judging while data may still arrive."""

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

    Attributes:
        logs: log files that the demo wrote.
        server_sizes: size in bytes up to which each growing server log must be delivered.
        host_id: id of the host that the logs are on.
        rules: rules revisions that were in force.
        span_ms: start and end of the run in Unix milliseconds.
        posted: events that were sent to the API.
    """

    logs: Sequence[LiveLog]
    server_sizes: Mapping[Path, int]
    host_id: str
    rules: Sequence[str]
    span_ms: tuple[int, int]
    posted: Sequence[ApiEvent]


def write_expectations(file: Path, config: Config, inputs: JudgeInputs) -> Expectations:
    """Write the expectations file of the judge as JSON and return it parsed.

    Args:
        file: path of the file to write; an existing file is overwritten.
        config: configuration of the running system.
        inputs: sources and time span of the demo run.
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
    """Run the judge until no event is lost or waiting cannot help, and return the last report.

    Args:
        expectations: expectations to judge against.
        hdfs: WebHDFS client for the buckets.
        wait_for_more: callback that waits for more data and returns False if no more can arrive.
    """
    while True:
        report = verify_delivery(expectations, hdfs)
        if report.counts[FindingKind.LOST] == 0 or not wait_for_more(report):
            return report
