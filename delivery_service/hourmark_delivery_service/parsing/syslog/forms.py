"""Parsing of syslog headers in the forms that daemons and devices write, as in parser version 3.

    line      = RFC5424                               as defined by RFC 5424; see `header`
              / [PRI *SP] ["1" SP] LOOSE              its fields, with another form of time or data
              / [PRI *SP] PAIRS                       FortiGate, Sophos, SonicWall: the time is in pairs
              / [PRI *SP [":" *SP]] DEVICE TAGGED     Cisco, H3C: numbers and origin before the time
              / [PRI *SP] TIME [":"] 1*SP BODY        RFC 3164, and what daemons write into files
              / PRI *SP TAGGED                        no time: Python's SysLogHandler, RFC 3164 section 4.3.3

    LOOSE     = "1" TIME HOST PROGRAM PID MSGID ["-" / STRUCTURED-DATA] MESSAGE
    PAIRS     = KEY "=" VALUE *(SEP KEY "=" VALUE)    `date` and `time` among the first 16; after PRI `time` alone
    DEVICE    = [NUMBER ":"] [ORIGIN ":"] [NODE ":"] [NUMBER ":"] [MARK] [TIME / UPTIME] ":"
    BODY      = [LEVEL] [HOST] [HOST] [LEVEL] [FORWARDED] (REPEATED / [":"] [DEVICE] TAGGED)
    TAGGED    = [PROGRAM ["[" PID "]"] ":"] MESSAGE

    TIME      = DATE CLOCK *(YEAR / ZONE)             YEAR and ZONE after the clock, in either order
    DATE      = [Www] Mmm D [YYYY] / YYYY Mmm D / D Mmm YYYY / YYYY-MM-DD "T"
              / YYYY-MM-DD SP / MM/DD/YYYY ":" / YYYY/MM/DD SP     these three only after PRI
    CLOCK     = HH:MM:SS with up to nine digits after ".", "," or ":"
    ZONE      = "Z" / offset / a known abbreviation   in DEVICE any word, as administrators choose the name
    MARK      = "*" / "." / "%"                       the device's clock is not set, or not synchronized; H3C's buffer
    LEVEL     = facility "." severity                 BusyBox, OpenWrt; used where there is no PRI
    FORWARDED = "Message forwarded from " HOST ":"    AIX; the host of the event
    REPEATED  = "last message repeated ..."           a message without host and program

Rules in addition to the grammar:

- A word is a HOST if it does not end with a colon, or is an IPv6 address that ends in "::". A
  second HOST is accepted only if it equals the first.
- A PROGRAM is followed by its PID, or by ":" and then a space, a letter, a bracket or the end of
  the line. A number is a NUMBER instead.
- A text is a DEVICE only if "%" follows, or if it contains a NUMBER, a MARK, or a NODE with a time.
  Within BODY, the time in DEVICE is that of the device, and the event has the time at the start of
  the line (RFC 3164 section 4.3). The parts of DEVICE are kept as structured data: `meta
  sequenceId`, `timeQuality isSynced`, `device time`.
- NUL bytes at the end of a line belong to the transport, and are not part of the message.

Each regular expression is anchored, and is bounded or possessive. The parsing time is therefore
linear in the length of the line for any input.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hourmark_delivery_service.parsing.syslog.header import SyslogHeader, SyslogLine, parse_rfc5424
from hourmark_delivery_service.parsing.syslog.rfc5424 import NIL, SD_ELEMENTS
from hourmark_delivery_service.parsing.syslog.times import SyslogTimestamp, parse_timestamp_at

_PRI: Final = re.compile(rb"<(0|[1-9]\d?|1[0-8]\d|19[01])> *+")
_SPACES: Final = re.compile(rb" *+")
_WORD: Final = re.compile(rb"([^\x00-\x20]{1,255})(?: ++|\Z)")
_HOST: Final = re.compile(
    rb"([^\x00-\x20\"%'(),;<=>\[\]{|}][^\x00-\x20\"'(),;<=>\[\]{|}]{0,254}) ++"
)
_BRACKETED: Final = re.compile(rb"\[([0-9A-Fa-f.:]{2,45})\] ++")
_NO_HOST: Final = re.compile(rb"[!-/:-@\[-`{-~]{2,}+\Z")
_OPEN_ADDRESS: Final = re.compile(rb"(?:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6})?::\Z")
_LEVEL: Final = re.compile(
    rb"(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])\."
    rb"(emerg|alert|crit|err|error|warn|warning|notice|info|debug) ++",
    re.IGNORECASE,
)
_FACILITIES: Final = (
    b"kern",
    b"user",
    b"mail",
    b"daemon",
    b"auth",
    b"syslog",
    b"lpr",
    b"news",
    b"uucp",
    b"cron",
    b"authpriv",
    b"ftp",
)
_SEVERITIES: Final = {
    b"emerg": 0,
    b"alert": 1,
    b"crit": 2,
    b"err": 3,
    b"error": 3,
    b"warn": 4,
    b"warning": 4,
    b"notice": 5,
    b"info": 6,
    b"debug": 7,
}
_FORWARDED: Final = re.compile(rb"Message forwarded from ([^\x00-\x20]{1,255}): ++")
_REPEATED: Final = re.compile(rb"(?:--- )?(?:last|above) message (?:repeated|repeats) \d")
_PROGRAM: Final = re.compile(
    rb"(?!\d++[:\[]|(?:CEF|LEEF): ?\d)([!#-9;?-Z\\^-z~][!#-;?-Z\\^-z~]{0,254}?)"
    rb"(?:\[([!-Z\\^-~]{0,64})\]: ?|\[(\d{1,10})\] |:(?: |\Z)|(?<!:):(?=[A-Za-z(\[<]))"
)
_TAG: Final = re.compile(rb"(%[!-9;-Z\\^-~]{1,254}) ?:(?: |\Z)")
_NUMBER: Final = re.compile(rb"(\d{1,10}): ++")
_ORIGIN: Final = re.compile(rb"([^\x00-\x20\"%'(),:;<=>\[\]{|}/]{1,255}|[0-9A-Fa-f:]{2,39}): ++")
_NODE: Final = re.compile(
    rb"(?:([^\x00-\x20\"%'(),:;<=>\[\]{|}/]{1,255}) "
    rb")?[A-Za-z0-9]{1,9}(?:/[A-Za-z0-9]{1,9}){2,4}: *+"
)
_UPTIME: Final = re.compile(rb"(?:\d{1,4}[ywd]\d{1,2}[wdh]|\d{1,3}:\d\d:\d\d(?:\.\d{1,3})?): ++")
_ZONE_WORD: Final = re.compile(rb" ([A-Za-z][A-Za-z0-9+_/-]{0,30})(?=: )")
_PAIR: Final = re.compile(
    rb'([A-Za-z_][A-Za-z0-9_.-]{0,63})=(?:"([^"]{0,255})"|([^ ,|"]{0,255}))(?:[ ,|]++|\Z)'
)
_PAIRS_MAX: Final = 16
_UNIX: Final = re.compile(rb"(\d{9,10})(?:\.(\d{1,9}))? ++")
_DATA: Final = re.compile(SD_ELEMENTS)


class _Device(NamedTuple):
    numbers: tuple[bytes, ...]
    origin: bytes | None
    mark: bytes
    stamp: SyslogTimestamp | None
    ends_time: bool
    end: int

    def data(self, *, relayed: bool) -> bytes | None:
        # Structured data in the names of RFC 5424 section 7.
        data = b""
        if self.numbers:
            data += b'[meta sequenceId="%s"]' % self.numbers[-1]
        if self.mark in (b"*", b"."):
            data += b'[timeQuality isSynced="0"]'
        if relayed and self.stamp is not None:
            data += b'[device time="%s"]' % self.stamp.text
        return data or None


def parse_syslog_forms(line: bytes) -> SyslogLine | None:
    """Parse a syslog line in RFC 5424, RFC 3164, or a format of a common daemon or network device.

    These are the formats of parser version 3. The module docstring contains the grammar.

    Args:
        line: Line without its line feed.

    Returns:
        The header and the message, or None if the line is in none of these formats.
    """
    newer = parse_rfc5424(line)
    if newer is not None and not _has_spaced_time(line, newer.header):
        found: SyslogLine | None = SyslogLine(_with_stamp(newer.header), newer.message)
    else:
        found = _any_other(line)
    return (
        found
        if found is None or line[-1:] != b"\0"
        else SyslogLine(found.header, found.message.rstrip(b"\0"))
    )


def _has_spaced_time(line: bytes, header: SyslogHeader) -> bool:
    if header.time is None or b"T" in header.time:
        return False
    at = line.index(b">1 ") + 3
    stamp = parse_timestamp_at(line, at, after_pri=True)
    return stamp is not None and stamp.end > at + len(header.time)


def _with_stamp(header: SyslogHeader) -> SyslogHeader:
    # Times in RFC 5424's own form are read later, with less work.
    if header.time is None or header.time[-1:] == b"Z":
        return header
    stamp = parse_timestamp_at(header.time, 0, after_pri=True)
    return (
        header
        if stamp is None or stamp.end != len(header.time)
        else header._replace(parsed_time=stamp)
    )


def _any_other(line: bytes) -> SyslogLine | None:
    match = _PRI.match(line)
    pri, at = (match[1], match.end()) if match is not None else (None, 0)
    if line.startswith(b"1 ", at) and (found := _loose(line, pri, at + 2)) is not None:
        return found
    if (found := _pairs(line, pri, at)) is not None:
        return found
    if pri is not None and line.startswith(b":", at):
        at = _spaces(line, at + 1)
    device = _device(line, at)
    if device is not None and (pri is not None or device.stamp is not None):
        if device.stamp is not None and not device.ends_time:
            return _body(
                line, device.end, pri, device.stamp, device.origin, device.data(relayed=False)
            )
        header = _header(pri, device.stamp, device.origin, data=device.data(relayed=False))
        return _tagged(line, device.end, header)
    stamp = parse_timestamp_at(line, at, after_pri=pri is not None)
    if stamp is None:
        return None if pri is None else _tagged(line, at, _header(pri, None, None))
    at = stamp.end + line.startswith(b":", stamp.end)
    if line[at : at + 1] != b" " and (at < len(line) or pri is None):
        return None if pri is None else _tagged(line, stamp.start, _header(pri, None, None))
    return _body(line, at, pri, stamp, None, None)


def _loose(line: bytes, pri: bytes | None, at: int) -> SyslogLine | None:
    stamp: SyslogTimestamp | None = None
    if line.startswith(b"- ", at) and pri is not None:
        at, fields = _spaces(line, at + 2), True
    elif pri is not None and (unix := _UNIX.match(line, at)) is not None:
        return _of_unix_time(line, pri, unix)
    else:
        stamp = parse_timestamp_at(line, at, after_pri=pri is not None)
        if (
            stamp is None
            or line[stamp.end : stamp.end + 1] != b" "
            or (pri is None and not stamp.is_iso)
        ):
            return None
        at, fields = _spaces(line, stamp.end), stamp.is_iso
    words: list[bytes] = []
    end = at
    while len(words) < 4 and (word := _WORD.match(line, end)) is not None:
        words.append(word[1])
        end = word.end()
    begins_data = line[end : end + 1] == b"[" or line[end : end + 2] in (b"- ", b"-")
    if len(words) < 4 or not (fields or begins_data):
        return _body(line, at, pri, stamp, None, None)
    host, program, pid, msgid = (None if word == NIL else word for word in words)
    data = None
    if (elements := _DATA.match(line, end)) is not None:
        data, end = elements[0], elements.end()
    elif line[end : end + 2] in (b"- ", b"-"):
        end += 1
    end += (data is not None or line[end - 1 : end] == NIL) and line.startswith(b" ", end)
    return SyslogLine(_header(pri, stamp, host, program, pid, msgid, data), line[end:])


def _of_unix_time(line: bytes, pri: bytes, unix: re.Match[bytes]) -> SyslogLine:
    # The form of Cisco Meraki: the time, the host, and one word in place of a program.
    host, program = _WORD.match(line, unix.end()), None
    end = host.end() if host is not None else unix.end()
    if (word := _WORD.match(line, end)) is not None:
        program, end = word[1], word.end()
    stamp = SyslogTimestamp.from_unix(unix[1], unix[2] or b"0", unix.start(), unix.end())
    return SyslogLine(
        _header(pri, stamp, host[1] if host is not None else None, program), line[end:]
    )


def _pairs(line: bytes, pri: bytes | None, at: int) -> SyslogLine | None:
    said: dict[bytes, bytes] = {}
    end = at
    for _ in range(_PAIRS_MAX):
        pair = _PAIR.match(line, end)
        if pair is None:
            break
        said.setdefault(pair[1].lower(), pair[3] if pair[2] is None else pair[2])
        end = pair.end()
    if b"time" not in said or (pri is None and b"date" not in said):
        return None
    text = said[b"date"] + b" " + said[b"time"] if b"date" in said else said[b"time"]
    if (unix := _UNIX.fullmatch(text + b" ")) is not None:
        stamp: SyslogTimestamp | None = SyslogTimestamp.from_unix(
            unix[1], unix[2] or b"0", 0, len(text)
        )
    else:
        stamp = parse_timestamp_at(text, 0, after_pri=True)
    if stamp is None or stamp.end != len(text):
        return None
    zone = said.get(b"tz") or said.get(b"timezone")
    if zone is not None and stamp.zone is None:
        stamp = stamp._replace(zone=zone)
    host = next(
        (said[name] for name in (b"devname", b"device_name", b"hostname", b"fw") if said.get(name)),
        None,
    )
    return SyslogLine(_header(pri, stamp, host), line[at:])


def _device(line: bytes, at: int) -> _Device | None:
    numbers, origin, node, at = _origin(line, at)
    mark = line[at : at + 1] if line[at : at + 1] in (b"*", b".", b"%") else b""
    stamp, ends_time = parse_timestamp_at(line, at + len(mark), after_pri=False), True
    if stamp is None:
        mark = b""
        at = uptime.end() if (uptime := _UPTIME.match(line, at)) else at
    else:
        word = _ZONE_WORD.match(line, stamp.end)
        if word is not None and stamp.zone is None and (numbers or node or mark):
            stamp = stamp._replace(
                zone=word[1], text=line[stamp.start : word.end()], end=word.end()
            )
        ends_time = line.startswith(b":", stamp.end)
        at = stamp.end + ends_time
        if line[at : at + 1] != b" ":
            return None
        at = _spaces(line, at)
    if numbers or (stamp is not None and (mark or node)):
        return _Device(numbers, origin, mark, stamp, ends_time, at)
    if _TAG.match(line, at) and ends_time and (stamp is not None or origin is not None):
        return _Device(numbers, origin, mark, stamp, ends_time, at)
    return None


def _origin(line: bytes, at: int) -> tuple[tuple[bytes, ...], bytes | None, bool, int]:
    numbers: list[bytes] = []
    origin = None
    if number := _NUMBER.match(line, at):
        numbers.append(number[1])
        at = number.end()
    named = _ORIGIN.match(line, at)
    if (
        named is not None
        and not named[1].isdigit()
        and not _UPTIME.match(line, at)
        and _goes_on(line, named.end())
    ):
        origin, at = named[1], named.end()
    node = _NODE.match(line, at)
    if node is not None:
        origin, at = origin or node[1], node.end()
    if number := _NUMBER.match(line, at):
        numbers.append(number[1])
        at = number.end()
    return tuple(numbers), origin, node is not None, at


def _goes_on(line: bytes, at: int) -> bool:
    if (
        _TAG.match(line, at)
        or _NUMBER.match(line, at)
        or _NODE.match(line, at)
        or _UPTIME.match(line, at)
    ):
        return True
    return (
        parse_timestamp_at(line, at + (line[at : at + 1] in (b"*", b".")), after_pri=False)
        is not None
    )


def _body(
    line: bytes,
    at: int,
    pri: bytes | None,
    stamp: SyslogTimestamp | None,
    host: bytes | None,
    data: bytes | None,
) -> SyslogLine:
    at = _spaces(line, at)
    pri, at = _level(line, pri, at)
    if not (_FORWARDED.match(line, at) or _REPEATED.match(line, at)):
        named, at = _host(line, at)
        host = host or named
        if named is not None and line.startswith(named + b" ", at):
            at = _spaces(line, at + len(named))
        pri, at = _level(line, pri, at)
    if forwarded := _FORWARDED.match(line, at):
        host, at = forwarded[1], forwarded.end()
    header = _header(pri, stamp, host, data=data)
    if _REPEATED.match(line, at):
        return SyslogLine(header, line[at:])
    inner = _spaces(line, at + 1) if line.startswith(b": ", at) else at
    device = _device(line, inner)
    if device is not None and (device.numbers or device.stamp is not None):
        header = header._replace(
            structured_data=(data or b"") + (device.data(relayed=True) or b"") or None,
            host=host or device.origin,
        )
        return _tagged(line, device.end, header)
    return _tagged(line, inner if _TAG.match(line, inner) else at, header)


def _tagged(line: bytes, at: int, header: SyslogHeader) -> SyslogLine:
    if not _REPEATED.match(line, at):
        if tag := _TAG.match(line, at):
            return SyslogLine(header._replace(program=tag[1]), line[tag.end() :])
        if tag := _PROGRAM.match(line, at):
            return SyslogLine(
                header._replace(program=tag[1], pid=tag[2] or tag[3] or None), line[tag.end() :]
            )
    return SyslogLine(header, line[at:])


def _host(line: bytes, at: int) -> tuple[bytes | None, int]:
    if bracketed := _BRACKETED.match(line, at):
        return bracketed[1], bracketed.end()
    match = _HOST.match(line, at)
    if match is None:
        return None, at
    is_none = match[1].endswith(b":") or _NO_HOST.match(match[1]) is not None
    if is_none and not _OPEN_ADDRESS.match(match[1]):
        return None, at
    return match[1], match.end()


def _level(line: bytes, pri: bytes | None, at: int) -> tuple[bytes | None, int]:
    match = _LEVEL.match(line, at)
    if match is None:
        return pri, at
    facility, severity = match[1].lower(), match[2].lower()
    number = (
        16 + int(facility[5:]) if facility.startswith(b"local") else _FACILITIES.index(facility)
    )
    return pri or b"%d" % (number * 8 + _SEVERITIES[severity]), match.end()


def _header(
    pri: bytes | None,
    stamp: SyslogTimestamp | None,
    host: bytes | None,
    program: bytes | None = None,
    pid: bytes | None = None,
    msgid: bytes | None = None,
    data: bytes | None = None,
) -> SyslogHeader:
    time = None if stamp is None else stamp.text
    return SyslogHeader(pri, time, None if host == NIL else host, program, pid, msgid, data, stamp)


def _spaces(line: bytes, at: int) -> int:
    match = _SPACES.match(line, at)
    return at if match is None else match.end()
