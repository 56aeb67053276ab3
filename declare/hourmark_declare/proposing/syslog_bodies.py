"""Candidates for JSON or logfmt after a syslog header, as routers and containers write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.file_sample import FileSample
from hourmark_declare.proposing.structured import json_line_candidates, logfmt_candidates
from hourmark_declare.proposing.value_types import optional_field
from hourmark_delivery_service.parsing.syslog.forms import parse_syslog_forms

_MOST: Final = 0.9
_OBSERVED: Final = ("time", "observed")
_HEADER: Final = ("program", "pid")


def syslog_body_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield formats for lines that consist of a syslog header and JSON or logfmt.

    The event type has the fields of the message, and `program` and `pid` of the header. Time and
    host are those of the header unless the message has its own.

    Args:
        sample: First and last lines of a log file.

    Yields:
        Candidate formats. Nothing if less than 90% of the lines have a syslog header, or their
        messages are neither JSON objects nor logfmt.
    """
    lines = [line.rstrip(b"\r") for line in sample.lines if line.strip()][:1000]
    found = [parts for line in lines if (parts := parse_syslog_forms(line)) is not None]
    messages = [parts.message for parts in found]
    if len(found) < _MOST * len(lines) or len({*messages}) < 2:
        return
    inner = sample._replace(head=messages, tail=[])
    names = [
        name for name in _HEADER if any(getattr(parts.header, name) is not None for parts in found)
    ]
    for source in (json_line_candidates, logfmt_candidates):
        for candidate in source(inner):
            if candidate.record_start or candidate.line.get("payload") not in ("json", "logfmt"):
                continue
            taken = {field["name"] for field in candidate.fields}
            added = [name for name in names if name not in taken]
            line = {name: of for name, of in candidate.line.items() if (name, of) != _OBSERVED}
            yield dataclasses.replace(
                candidate,
                form=f"a system log of {candidate.form}",
                line={**line, "header": {name: name for name in added}},
                fields=(*(optional_field(name, "string") for name in added), *candidate.fields),
                format="syslog",
            )
