"""A very small splitter of RFC 5424 lines: timestamp, host, MSGID and MSG, in bytes, and nothing else."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final, NamedTuple

# The header in one go; structured data is "-", or elements in brackets within which `\]` is no end.
_HEADER: Final = re.compile(
    rb"<\d{1,3}>[1-9]\d{0,2} (?P<time>[!-~]+) (?P<host>[!-~]+) [!-~]+ [!-~]+ (?P<msgid>[!-~]+) "
    rb"(?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: (?P<msg>.*))?",
    re.DOTALL,
)
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:(Z)|([+-])(\d\d):(\d\d))", re.ASCII
)  # fmt: skip


class Split(NamedTuple):
    """`time_ms` None: the line's timestamp is "-" or none that can be read. `message` is what follows the header's last SP."""

    time_ms: int | None
    host: str
    msgid: str
    message: bytes


def split(line: bytes) -> Split | None:
    """The parts of a line (without its LF), or None where it is no RFC 5424 line."""
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    return Split(
        _unix_ms(match["time"].decode("ascii")),
        match["host"].decode("ascii"),
        match["msgid"].decode("ascii"),
        match["msg"] or b"",
    )


def _unix_ms(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    *numbers, fraction, _, sign, hours, minutes = match.groups()
    try:
        year, month, day, hour, minute, second = (int(number) for number in numbers)
        moment = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        return None
    ahead = dt.timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    seconds = int((moment - ahead if sign == "+" else moment + ahead).timestamp())
    return seconds * 1000 + int((fraction or "0").ljust(6, "0")) // 1000
