"""Parsing of syslog headers on bytes, as in parser versions 1 and 2.

`forms` is what later parser versions use; it shares RFC 5424 and the header class of this module.

    <PRI>1 TIME HOST PROGRAM PID MSGID STRUCTURED-DATA MESSAGE     RFC 5424, up to 9 fraction digits
    [<PRI>]TIME [HOST] [PROGRAM[[PID]]:] MESSAGE                   RFC 3164, and files of daemons

TIME of the second form is RFC 3339, or `Nov 21 10:00:00` with an optional year before the time of
day (`Nov 21 2026 10:00:00`) and an optional fraction. If the word in the place of the host ends
with a colon, it is the program, and there is no host. If no word ends with a colon, there is no
program. A part that is `-` in RFC 5424 is absent.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hourmark.records.dead_letters import DeadLetterReason
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
    """The parts of a syslog header as undecoded bytes. A part that is absent is None.

    Attributes:
        pri: Priority in decimal digits: 8 times the facility plus the severity.
        time: Timestamp.
        host: Name or address of the host.
        program: Name of the program.
        pid: Process id of the program.
        msgid: MSGID of RFC 5424.
        structured_data: Structured data of RFC 5424, not decoded.
        parsed_time: Parts of the timestamp, if it has already been parsed.
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
        """Return the text of one part of the header, or None if the part is absent.

        Args:
            name: Name of the part: `facility` or `severity` (decimal numbers derived from the
                priority), or an attribute such as `host`. `structured_data` is not supported.
        """
        if name in ("facility", "severity"):
            return (
                None
                if self.pri is None
                else b"%d" % (int(self.pri) // 8 if name == "facility" else int(self.pri) % 8)
            )
        text: bytes | None = getattr(self, name)
        return text

    def structured_data_params(self) -> dict[bytes, bytes]:
        """Decode the structured data of RFC 5424 and return its parameters.

        Returns:
            A dict of unescaped values. Each key is an element id and a parameter name, separated by
            a space. An element without parameters has its id as the key and an empty value. If a
            parameter is repeated, its last value is used. Empty if there is no structured data.
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
    """A syslog line, split into its header and its message.

    Attributes:
        header: Parts of the header.
        message: Text after the header.
    """

    header: SyslogHeader
    message: bytes


def parse_rfc5424(line: bytes) -> SyslogLine | None:
    """Parse an RFC 5424 syslog line and split it into its header and its message.

    Args:
        line: Line without its line feed.

    Returns:
        The header and the message, which may be empty. None if the line is not in RFC 5424 format.
        The timestamp is not parsed.
    """
    match = _RFC5424.fullmatch(line)
    if match is None:
        return None
    pri, *parts, message = match.groups()
    time, host, program, pid, msgid, data = (None if part == NIL else part for part in parts)
    return SyslogLine(SyslogHeader(pri, time, host, program, pid, msgid, data), message or b"")


def parse_syslog_line(line: bytes) -> SyslogLine | None:
    """Parse a syslog line in RFC 5424 or RFC 3164 format.

    Parser versions 1 and 2 use this function.

    Args:
        line: Line without its line feed.

    Returns:
        The header and the message, or None if the line is in neither format. The timestamp is not
        parsed.
    """
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
    """Convert the timestamp in a syslog header to Unix milliseconds, rounded down.

    Args:
        text: Timestamp in RFC 3339 format, or in a format such as `Nov 21 10:00:00`.
        context: Context that provides the year and the time zone if the timestamp has none.
        fraction_digits_max: Maximum number of fraction digits of an RFC 3339 timestamp.

    Returns:
        Unix milliseconds, or None if the timestamp is not valid.
    """
    if text[:1].isdigit():
        micros = rfc3339_us(text, fraction_digits_max)
        return None if micros is None else micros // 1000
    found = (form.read_ms(text, context) for form in _ABBREVIATED)
    return next((time_ms for time_ms in found if time_ms is not None), None)


def not_syslog_rejection() -> Rejected:
    """Create the exception for a line that does not start with a syslog header.

    The exception is returned, not raised. Its reason is `NOT_SYSLOG`.
    """
    return Rejected(
        DeadLetterReason.NOT_SYSLOG,
        "the line begins with no header of syslog: RFC 5424, RFC 3164, or a time and a host",
    )
