"""The lines that the demo writes, in RFC 5424 format: structured events, and lines of files.

Structured events are of two types in the ratio 7 to 3. About 3 percent of them are broken, in one
of several ways that lead to a dead letter. Each line of a file becomes the MSG part of an RFC 5424
line, byte for byte.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hourmark_verify.demo.traffic import ScheduledLine

HOST: Final = "demo-host"
_APP_NAME_MAX: Final = 48


def rfc5424_line(time_ms: int, app: str, event_type: str, message: bytes) -> bytes:
    """Return an RFC 5424 line without its line feed.

    Args:
        time_ms: Timestamp in Unix milliseconds.
        app: APP-NAME.
        event_type: MSGID.
        message: MSG, copied byte for byte; it must not contain a line feed.
    """
    assert b"\n" not in message, "a line feed would end the line"
    moment = dt.datetime.fromtimestamp(time_ms // 1000, dt.UTC)
    return (
        f"<134>1 {moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z {HOST} {app} - {event_type} - "
    ).encode() + message


def line_renderer(
    app: str, event_type: str, message: bytes, shift_ms: int = 0
) -> Callable[[int], bytes]:
    """Return a function that renders an RFC 5424 line with the current time as its timestamp.

    Args:
        app: APP-NAME.
        event_type: MSGID.
        message: MSG, copied byte for byte; it must not contain a line feed.
        shift_ms: Milliseconds to add to the current time.

    Returns:
        Function that takes the current time in Unix milliseconds and returns the line without its
        line feed.
    """
    return lambda time_ms: rfc5424_line(time_ms + shift_ms, app, event_type, message)


def app_name(file_name: str) -> str:
    """Convert a file name to a valid RFC 5424 APP-NAME.

    All characters other than visible ASCII are replaced with `_`. The result is truncated to 48
    characters. An empty file name gives "-".
    """
    return re.sub(r"[^!-~]+", "_", file_name)[:_APP_NAME_MAX] or "-"


TRACK_PLAYED: Final = "track-played"
AD_SHOWN: Final = "ad-shown"
_TRACK_SHARE: Final = 0.7
_BROKEN_SHARE: Final = 0.03
_APP: Final = "player"
_YEARS_MS: Final = 3 * 365 * 86_400_000

Render = Callable[[int], bytes]
Fields = dict[str, Any]


def structured_lines(
    count: int, seed: int, *, broken_at_least_each: int
) -> Iterator[ScheduledLine]:
    """Yield evenly spaced log lines of two event types, about 3 percent of which are broken.

    A broken line cannot be converted to an event, so the pipeline must store it as a dead letter.
    Its JSON is truncated or invalid, a field is missing or unknown, its event type is unknown, its
    time is years away, or it is not in RFC 5424 format. The same seed gives the same lines, except
    for their timestamps.

    Args:
        count: Number of lines.
        seed: Seed of the random generator.
        broken_at_least_each: Size of a group of consecutive lines. The first line of each group is
            always broken.
    """
    chance = random.Random(seed)  # noqa: S311  # not used for secrets
    for number in range(count):
        broken = chance.random() < _BROKEN_SHARE or number % broken_at_least_each == 0
        event_type, fields = _event(chance, number)
        render = chance.choice(_BROKEN) if broken else _of
        yield ScheduledLine(number / count, render(event_type, fields), broken)


def _event(chance: random.Random, number: int) -> tuple[str, Fields]:
    user = f"user-{chance.randrange(50_000):05d}"
    if chance.random() < _TRACK_SHARE:
        return TRACK_PLAYED, {
            "track": f"track-{chance.randrange(1_000_000):06d}",
            "user": user,
            "played_ms": chance.randrange(30_000, 300_000),
            "number": number,
            "shuffle": chance.random() < 0.3,
            "country": chance.choice(["SE", "DE", "BR", "ÅX", None]),
        }
    return AD_SHOWN, {
        "ad": f"ad-{chance.randrange(2_000):04d}",
        "user": user,
        "price": round(chance.random() * 5, 4),
        "number": number,
        "slot": chance.choice(["top", "between", "end"]),
    }


def _of(event_type: str, fields: Fields, shift_ms: int = 0) -> Render:
    return line_renderer(_APP, event_type, _json(fields), shift_ms)


def _json(fields: Fields) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


_BROKEN: Final[tuple[Callable[[str, Fields], Render], ...]] = (
    lambda event_type, fields: line_renderer(_APP, event_type, _json(fields)[:-9]),  # cut short
    lambda event_type, fields: _of(
        event_type, {name: value for name, value in fields.items() if name != "user"}
    ),
    lambda event_type, fields: _of(event_type, {**fields, "surprise": 1}),
    lambda _, fields: _of("no-such-type", fields),
    lambda event_type, fields: _of(event_type, fields, _YEARS_MS),
    lambda event_type, fields: _of(event_type, fields, -_YEARS_MS),
    lambda event_type, fields: line_renderer(
        _APP, event_type, _json(fields).replace(b"user-", b"user\xff")
    ),  # no UTF-8
    lambda _, fields: lambda _time_ms: _json(fields),  # no RFC 5424
)


LINES_TYPE: Final = "lines"


def rfc5424_lines(path: Path) -> Iterator[ScheduledLine]:
    """Yield each line of a file as the message of an RFC 5424 line.

    The due times of the lines are evenly spaced. The APP-NAME is derived from the file name. The
    file is read twice, so that it need not fit into memory. Lines that are appended after the first
    pass are omitted.

    Args:
        path: File to read.

    Raises:
        OSError: During iteration, if the file cannot be read.
    """
    with path.open("rb") as file:
        count = sum(1 for _ in file)
    with path.open("rb") as file:
        for number, line in enumerate(itertools.islice(file, count)):
            message = line.removesuffix(b"\n")
            yield ScheduledLine(
                number / max(1, count - 1), line_renderer(app_name(path.name), LINES_TYPE, message)
            )


def write_sample_file(path: Path) -> Path:
    """Write a sample file of 1,200 lines and return its path.

    Most are ordinary log lines. One in twenty is unusual, such as an empty line, invalid UTF-8 or a
    line of 100,000 bytes. The last line has no line feed.

    Args:
        path: File to write; its folder is created if it does not exist.
    """
    odd = [
        b"",
        b"\r",
        b"caf\xc3\xa9",
        b"\xff\xfe no UTF-8",
        b"a NUL \x00 within",
        b"one\rtwo",
        b"tab\tand CRLF\r",
        b"x" * 100_000,
    ]
    lines = [
        odd[n // 20 % len(odd)]
        if n % 20 == 7
        else b"2026-01-02 03:%02d:%02d INFO request %d served" % (n // 60 % 60, n % 60, n)
        for n in range(1200)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines))
    return path
