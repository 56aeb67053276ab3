"""Container logs in CRI format: the lines that a container wrote, joined from partial lines.

A container runtime splits long lines and marks all parts but the last with the tag `P`. Records
over the size limit, which the tailer sends in pieces, are not supported.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from hourmark_verify.judge import syslog_headers

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


@dataclasses.dataclass(slots=True)
class ContainerRecord:
    """A line of container output, which may be split into several lines of the log file.

    The container runtime of Kubernetes writes log files in CRI format (`TIME STREAM P|F TEXT`), and
    splits long lines: all parts but the last have the tag `P`.

    Attributes:
        start: Byte offset of the first part in the log file.
        time: Timestamp of the first part; "" if the line is not in CRI format.
        stream: "stdout" or "stderr"; "" if the line is not in CRI format.
        spans: Byte offsets (start, end) of the text of each part in the file; the end is exclusive.
        ended: Whether the last part of the line was found.
    """

    start: int
    time: str
    stream: str
    spans: list[tuple[int, int]]
    ended: bool

    @property
    def time_ms(self) -> int | None:
        """Timestamp of the record in Unix milliseconds; None if it is invalid or before 1970."""
        found = syslog_headers.header_time_ms(self.time, "UTC", 0) if self.stream else None
        return found if found is not None and found >= 0 else None


def join_partial_lines(
    lines: Iterable[tuple[int, bytes]], flushed: frozenset[int]
) -> Iterator[ContainerRecord]:
    """Reassemble the output lines of a container from its log file in CRI format.

    The container runtime of Kubernetes splits a long line into several lines of the log file, which
    may alternate with lines of the other stream.

    Args:
        lines: (byte offset, content) of each line of the file, in order; the content includes the
            line feed.
        flushed: Byte offsets across which lines are not joined, because the tailer had already sent
            everything before the offset to the delivery service.

    Yields:
        One record per output line, in the order of their first parts. A line that is not in CRI
        format becomes a separate record.
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
