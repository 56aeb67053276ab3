"""Parser of container logs in the format that Kubernetes runtimes write (CRI).

Each line is `<time> <stream> <P or F> <text>`. A long line of the container's output is split over
several log lines: those tagged P are partial and continued by the next line of the same stream, up
to one tagged F. Lines of the other stream may come in between. The File Tailer and the delivery
service both use this parser.

    2026-11-23T09:00:00.123456789Z stdout P the first half of a long line,
    2026-11-23T09:00:00.123456790Z stderr F a line of the other stream
    2026-11-23T09:00:00.123456791Z stdout F  and its end
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

STREAMS: Final = (b"stdout", b"stderr")
_FORM: Final = (
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) "
    rb"(stdout|stderr) ([PF])(?::[^ \n]{0,100})?(?: ([^\n]*))?"
)
_LINE: Final = re.compile(_FORM)
_LINES: Final = re.compile(rb"^" + _FORM + rb"$", re.MULTILINE)


class CriRecord(NamedTuple):
    """A record of a container log, joined from one or more log lines.

    Container runtimes write logs in the CRI format, and split long output lines over several log
    lines.

    Attributes:
        at: Position of the record's first log line in the parsed bytes.
        time: Timestamp of the record's first log line, not parsed; empty if the line is not in CRI
            format.
        stream: b"stdout" or b"stderr"; empty if the log line is not in CRI format.
        text: The joined text; the whole log line if it is not in CRI format.
    """

    at: int
    time: bytes
    stream: bytes
    text: bytes


def split_records(body: bytes) -> Iterator[tuple[int, CriRecord | None]]:
    """Split a container log in CRI format into records.

    Args:
        body: Whole log lines, each with its line feed.

    Yields:
        For each log line, the position after it and the record that it completes. The record is
        None if the line does not complete one. Records that are still incomplete at the end of
        `body` come last, with the text so far.
    """
    unended: dict[bytes, tuple[int, bytes, list[bytes]]] = {}
    at = 0
    while at < len(body):
        end = body.index(b"\n", at)
        match = _LINE.fullmatch(body, at, end)
        record = None
        if match is None:
            record = CriRecord(at, b"", b"", body[at:end])
        else:
            time, stream, tag, text = match.groups(b"")
            first, first_time, parts = unended.pop(stream, (at, time, []))
            parts.append(text)
            if tag == b"F":
                record = CriRecord(first, first_time, stream, b"".join(parts))
            else:
                unended[stream] = first, first_time, parts
        at = end + 1
        yield at, record
    for stream, (first, time, parts) in sorted(unended.items(), key=lambda one: one[1][0]):
        yield at, CriRecord(first, time, stream, b"".join(parts))


def last_clean_end(body: bytes) -> int:
    """Return the last position where a container log can be divided without splitting a record.

    A log line with the tag P is continued by the next line of the same stream. The tag F marks the
    end of a record.

    Args:
        body: Whole log lines, each with its line feed.

    Returns:
        The position in `body` after a line feed. 0 if a record is incomplete at every line end.
    """
    if not any(tag in body for tag in (b" P ", b" P:", b" P\n")):
        return len(body)
    for since, until in reversed([*_partial(body)]):
        return since if until > len(body) else len(body)
    return len(body)


def first_clean_end(body: bytes) -> int:
    """Return the first position where a container log can be divided without splitting a record.

    A log line with the tag P is continued by the next line of the same stream. The tag F marks the
    end of a record.

    Args:
        body: Whole log lines, each with its line feed.

    Returns:
        The position in `body` after a line feed. 0 if a record is incomplete at every line end.
    """
    end = body.find(b"\n") + 1
    for since, until in _partial(body):
        if since < end:
            end = until
        else:
            break
    return end if end <= len(body) else 0


def first_full_end(body: bytes) -> int:
    """Return the position after the first log line that completes a record of a container log.

    Such a line has the tag F. A record of the other stream may still be incomplete at this
    position.

    Args:
        body: Whole log lines, each with its line feed.

    Returns:
        The position in `body` after the line. 0 if no line has the tag F.
    """
    return next((match.end() + 1 for match in _LINES.finditer(body) if match[3] == b"F"), 0)


def _partial(body: bytes) -> Iterator[tuple[int, int]]:
    unended: set[bytes] = set()
    since = 0
    for match in _LINES.finditer(body):
        if match[3] == b"P":
            since = since if unended else match.start()
            unended.add(match[2])
        elif match[2] in unended:
            unended.discard(match[2])
            if not unended:
                yield since, match.end() + 1
    if unended:
        yield since, len(body) + 1
