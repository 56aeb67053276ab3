"""Candidates for Kubernetes container logs (CRI): the format of the texts from the containers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hourmark.records import cri
from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.file_sample import FileSample
from hourmark_declare.proposing.value_types import optional_field

_MOST: Final = 0.9
_RUNTIME_FIELDS: Final = ("stream", "namespace", "pod", "container")

CandidateSource = Callable[[FileSample], Iterator[Candidate]]


def container_log_candidates(
    sample: FileSample, inner_sources: Sequence[CandidateSource]
) -> Iterator[Candidate]:
    """Yield formats for Kubernetes container logs (CRI), whose lines contain the log of a program.

    A line has the form `<time> <stream> <P or F> <text>`. Headers are removed and partial lines
    (`P`) are joined when the file is read, so only the format of the texts must be determined. If a
    text contains no time, the time in the header is used. Pod, namespace and container are derived
    from the path of the file.

    Args:
        sample: First and last lines of a log file.
        inner_sources: Functions that yield possible formats of the texts.

    Yields:
        One candidate for each possible format of the texts, except formats with multi-line records
        and the format `syslog`. Nothing if less than 90% of the lines have the form of a container
        log.
    """
    body = b"".join(line + b"\n" for line in sample.lines)
    records = [record for _, record in cri.split_records(body) if record is not None]
    texts = [record.text for record in records if record.stream]
    if not texts or len(texts) < _MOST * len(records):
        return
    inner = sample._replace(head=texts, tail=[])
    for source in inner_sources:
        for candidate in source(inner):
            if candidate.record_start or not candidate.line:
                continue
            taken = {field["name"] for field in candidate.fields}
            added = [
                optional_field(name, "string") for name in _RUNTIME_FIELDS if name not in taken
            ]
            yield dataclasses.replace(
                candidate,
                form=f"a container log of {candidate.form.removesuffix(' without a time')}",
                line={**candidate.line, "time": "observed"},
                fields=(*candidate.fields, *added),
                container_log=True,
            )
