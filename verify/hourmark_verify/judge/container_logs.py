"""Container logs: what a container wrote on a line, joined of the lines that its runtime made of
it.

Read line by line, with no more than a split at spaces. Records over the limit, which go in pieces,
are not judged.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from hourmark_verify.judge import syslog_headers

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


@dataclasses.dataclass(slots=True)
class ContainerRecord:
    """One record. `spans`: where its text stands in the file. `stream` empty: a line of another
    form.
    """

    start: int
    time: str
    stream: str
    spans: list[tuple[int, int]]
    ended: bool

    @property
    def time_ms(self) -> int | None:
        """Of its first line; None if the calendar has none such, or it is before 1970."""
        found = syslog_headers.header_time_ms(self.time, "UTC", 0) if self.stream else None
        return found if found is not None and found >= 0 else None


def join_partial_lines(
    lines: Iterable[tuple[int, bytes]], flushed: frozenset[int]
) -> Iterator[ContainerRecord]:
    """All records, by the order of their first lines; `lines` with their LF.

    Nothing is joined over a place in `flushed`.
    """
    found: list[ContainerRecord] = []
    partial: dict[str, ContainerRecord] = {}
    for start, line in lines:
        if start in flushed:
            partial = {}
        parts = line.removesuffix(b"\n").split(b" ", 3)
        if (
            len(parts) < 3
            or not _TIME.fullmatch(parts[0])
            or parts[1] not in (b"stdout", b"stderr")
            or not _is_tag(parts[2])
        ):
            found.append(ContainerRecord(start, "", "", [(start, start + len(line) - 1)], True))
            continue
        stream = parts[1].decode()
        record = partial.pop(stream, None)
        if record is None:
            record = ContainerRecord(start, parts[0].decode(), stream, [], False)
            found.append(record)
        text = len(parts[3]) if len(parts) > 3 else 0
        end = start + len(line) - 1
        record.spans.append((end - text, end))
        if parts[2][:1] == b"F":
            record.ended = True
        else:
            partial[stream] = record
    yield from found


def _is_tag(tag: bytes) -> bool:
    return tag in (b"P", b"F") or (tag[:2] in (b"P:", b"F:") and len(tag) <= 102)
