"""The header of a line of syslog, in any of its forms, taken apart on bytes, as the parsers 1 and 2
do.

`syslog_forms` is what later parsers read; of it, RFC 5424 and the parts of a header are here.

    <PRI>1 TIME HOST PROGRAM PID MSGID STRUCTURED-DATA MESSAGE     RFC 5424, its TIME with up to nine digits of a second
    [<PRI>]TIME [HOST] [PROGRAM[[PID]]:] MESSAGE                   RFC 3164, and what daemons write into files

TIME of the second form is RFC 3339, or `Nov 21 10:00:00` with or without a year (before or after
the time of day's place, `Nov 21 2026 10:00:00`) and a fraction. What ends with a colon where the
host should be is the program, and there is no host; where no program ends with a colon, all of it
is the message. What is `-` in RFC 5424 is not there.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hourmark.records.dead_letters import Reason
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.rfc5424 import NIL, SD_ELEMENTS
from hourmark_delivery_service.parsing.syslog.times import SyslogTimestamp
from hourmark_delivery_service.parsing.times.formats import TimeContext, TimeFormat
from hourmark_delivery_service.parsing.times.timestamps import FRACTION_DIGITS_MAX, rfc3339_us

_PRI: Final = rb"<(0|[1-9]\d?|1[0-8]\d|19[01])>"
_RFC5424: Final = re.compile(
    _PRI
    + rb"1 ([!-~]{1,64}+) ([!-~]{1,255}+) ([!-~]{1,255}+) ([!-~]{1,255}+) ([!-~]{1,255}+) (-|"
    + SD_ELEMENTS
    + rb")(?: (.*)|\r)?",
    re.DOTALL,
)
_OLDER: Final = re.compile(
    rb"(?:" + _PRI + rb")?"
    rb"(\d{4}-\d\d-\d\dT[!-~]{8,32}+|[A-Z][a-z]{2} [ 0123]?\d (?:\d{4} "
    rb")?\d\d:\d\d:\d\d(?:\.\d{1,9})?):? (.*)",
    re.DOTALL,
)
_HOST: Final = re.compile(rb"([^\x00-\x20]{1,255}+)(?<!:) ")
_PROGRAM: Final = re.compile(rb"([!-Z\\^-~]{1,255}?)(?:\[([!-Z\\^-~]{0,64})\]: ?|:(?: |$))")
_ABBREVIATED: Final = tuple(
    map(
        TimeFormat,
        ("%b %d %H:%M:%S", "%b %d %H:%M:%S.%f", "%b %d %Y %H:%M:%S", "%b %d %Y %H:%M:%S.%f"),
    )
)
_SD_ID: Final = re.compile(rb"\[([^ \]]++)")
_SD_PARAM: Final = re.compile(rb' ([^=]++)="((?:[^"\\\]]|\\.)*+)"', re.DOTALL)
_SD_ESCAPE: Final = re.compile(rb'\\(["\\\]])')


class SyslogHeader(NamedTuple):
    """Its parts; None is one that is not there.

    `time` is not read yet; `stamp`: its parts, where `syslog_forms` found it.
    """

    pri: bytes | None
    time: bytes | None
    host: bytes | None
    program: bytes | None
    pid: bytes | None
    msgid: bytes | None
    structured_data: bytes | None
    parsed_time: SyslogTimestamp | None = None

    def text_of(self, name: str) -> bytes | None:
        """The text of a part by its name in declarations, but for structured data."""
        if name in ("facility", "severity"):
            return (
                None
                if self.pri is None
                else b"%d" % (int(self.pri) // 8 if name == "facility" else int(self.pri) % 8)
            )
        text: bytes | None = getattr(self, name)
        return text

    def structured_data_params(self) -> dict[bytes, bytes]:
        """Structured data by `id param`, and `id` alone of an element without any.

        Of one that occurs twice the last wins.
        """
        held: dict[bytes, bytes] = {}
        text, at = self.structured_data or b"", 0
        while element := _SD_ID.match(text, at):
            sd_id, at = element[1], element.end()
            if text[at : at + 1] == b"]":
                held[sd_id] = b""
            while param := _SD_PARAM.match(text, at):
                held[sd_id + b" " + param[1]] = _SD_ESCAPE.sub(rb"\1", param[2])
                at = param.end()
            at += 1
        return held


class SyslogLine(NamedTuple):
    """A line's two parts."""

    header: SyslogHeader
    message: bytes


def parse_rfc5424(line: bytes) -> SyslogLine | None:
    """A line of RFC 5424, or None."""
    match = _RFC5424.fullmatch(line)
    if match is None:
        return None
    pri, *parts, message = match.groups()
    time, host, program, pid, msgid, data = (None if part == NIL else part for part in parts)
    return SyslogLine(SyslogHeader(pri, time, host, program, pid, msgid, data), message or b"")


def parse_syslog_line(line: bytes) -> SyslogLine | None:
    """A line of any of the forms, or None."""
    newer = parse_rfc5424(line)
    if newer is not None:
        return newer
    match = _OLDER.fullmatch(line)
    if match is None:
        return None
    pri, time, rest = match.groups()
    host = program = pid = None
    at = 0
    if named := _HOST.match(rest):
        host, at = named[1], named.end()
    if tag := _PROGRAM.match(rest, at):
        program, pid, at = tag[1], tag[2] or None, tag.end()
    return SyslogLine(SyslogHeader(pri, time, host, program, pid, None, None), rest[at:])


def header_time_ms(
    text: bytes, context: TimeContext, fraction_digits_max: int = FRACTION_DIGITS_MAX
) -> int | None:
    """Unix milliseconds of a header's time, rounded down, or None if it is none."""
    if text[:1].isdigit():
        micros = rfc3339_us(text, fraction_digits_max)
        return None if micros is None else micros // 1000
    found = (form.read_ms(text, context) for form in _ABBREVIATED)
    return next((time_ms for time_ms in found if time_ms is not None), None)


def not_syslog_rejection() -> Rejected:
    """Why a line is none."""
    return Rejected(
        Reason.NOT_SYSLOG,
        "the line begins with no header of syslog: RFC 5424, RFC 3164, or a time and a host",
    )
