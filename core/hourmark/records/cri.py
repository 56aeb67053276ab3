"""Lines of container logs, as container runtimes write them for Kubernetes (CRI): `<time> <stream>
<P or F> <text>`.

What a container wrote on one line may stand in several: those with P are partial, and the next of
the same stream goes on, up to one with F. Lines of the other stream come in between. Tailer and
service read them by this one form.

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
    """What a container wrote on one line. `stream` empty: a line of another form, which is
    `text`.
    """

    at: int
    time: bytes
    stream: bytes
    text: bytes


def split_records(body: bytes) -> Iterator[tuple[int, CriRecord | None]]:
    """For each line where it ends, and the record that it ends, if it does.

    Those without an end come last, as far as they go.
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
    """The last place between these lines at which no line of a stream is partial; 0 if there is
    none.
    """
    if not any(tag in body for tag in (b" P ", b" P:", b" P\n")):
        return len(body)
    for since, until in reversed([*_partial(body)]):
        return since if until > len(body) else len(body)
    return len(body)


def first_clean_end(body: bytes) -> int:
    """The first such place after the first line; 0 if there is none."""
    end = body.find(b"\n") + 1
    for since, until in _partial(body):
        if since < end:
            end = until
        else:
            break
    return end if end <= len(body) else 0


def first_full_end(body: bytes) -> int:
    """Where the first line with F ends; 0 if there is none."""
    return next((match.end() + 1 for match in _LINES.finditer(body) if match[3] == b"F"), 0)


def _partial(body: bytes) -> Iterator[tuple[int, int]]:
    """From where to where something is partial; the last may end after all of it."""
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
