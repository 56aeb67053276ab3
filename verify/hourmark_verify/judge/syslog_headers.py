"""Parser of syslog headers in all supported formats: RFC 5424, RFC 3164 and those of devices.

It is independent of the parser in the delivery service. Lines are text with one character for each
byte.
"""

from __future__ import annotations

import datetime as dt
import re
import string
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from hourmark_verify.judge import device_headers
from hourmark_verify.judge.device_headers import HeaderTime, abbreviation_offset_s, zone_offset_s
from hourmark_verify.judge.rfc5424 import rfc3339_us

_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_PRINTABLE: Final = frozenset(map(chr, range(33, 127)))
_NAME_CHARS: Final = _PRINTABLE - {"=", "]", '"'}
_PROGRAM_CHARS: Final = _PRINTABLE - {"[", "]"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class ParsedHeader(NamedTuple):
    """The parts of a syslog header.

    Attributes:
        time: Time as text; "" if the time is in `when`, None if the header has no time.
        host: Host; None if the header has none.
        parts: Other parts by name, such as `facility`, `program` and `msgid`. Absent parts are
            omitted.
        data: RFC 5424 structured data: values by "SD-ID PARAM-NAME".
        message: Text after the header.
        when: Time split into its parts, if it is in one of the formats that only version 3 of the
            parser accepts; otherwise None.
    """

    time: str | None
    host: str | None
    parts: dict[str, str]
    data: dict[str, str]
    message: str
    when: HeaderTime | None = None


def parse_header(line: bytes, *, accept_older: bool, parser: int = 3) -> ParsedHeader | None:
    """Parse the syslog header of a line.

    Args:
        line: Line without its line feed.
        accept_older: Whether to accept formats other than RFC 5424, such as RFC 3164.
        parser: Version of the parser, 1 to 3. Version 3 accepts more of these formats.

    Returns:
        The header, whose texts are decoded as ISO 8859-1, one character per byte. None if the line
        has no header in an accepted format.
    """
    text = line.decode("latin-1")
    priority, rest = _parse_priority(text)
    found = None
    if priority is not None and rest.startswith("1 "):
        found = _parse_rfc5424(priority, rest[2:])
    if not accept_older or (parser < 3 and found is not None):
        return found
    if parser < 3:
        return _parse_rfc3164(priority, rest)
    found = _parse_with_parser_3(priority, rest, found)
    return (
        None
        if found is None
        else found._replace(
            message=found.message.rstrip("\0") if text.endswith("\0") else found.message
        )
    )


def _parse_with_parser_3(
    priority: int | None, rest: str, newer: ParsedHeader | None
) -> ParsedHeader | None:
    if newer is not None and newer.time is not None:
        when = device_headers.parse_time(rest, 2, True)
        if "T" in newer.time or when is None or when.end <= 2 + len(newer.time):
            own = device_headers.parse_time(newer.time, 0, True)
            is_read = (
                own is not None and own.end == len(newer.time) and not newer.time.endswith("Z")
            )
            return newer._replace(when=own) if is_read else newer
    elif newer is not None:
        return newer
    rest = rest if priority is None else rest.lstrip(" ")
    if rest.startswith("1 ") and (loose := _parse_loose_version_1(priority, rest)) is not None:
        return loose
    found = device_headers.parse_device_header(rest, 0, priority is not None)
    return None if found is None else _from_device_header(priority, found)


def _from_device_header(priority: int | None, found: device_headers.DeviceHeader) -> ParsedHeader:
    number = found.level if priority is None else priority
    host = None if found.host == "-" else found.host
    parts = {} if number is None else _priority_parts(number)
    named = _without_empty({"host": host, "program": found.program, "pid": found.pid})
    return ParsedHeader(
        "" if found.when else None,
        host,
        {**parts, **named},
        dict(found.data),
        found.message,
        found.when,
    )


def _parse_loose_version_1(priority: int | None, rest: str) -> ParsedHeader | None:
    # version 1 whose time or structured data deviates from RFC 5424
    when, at = None, 3
    if rest.startswith("1 - ") and priority is not None:
        takes_words = True
    elif (
        priority is not None
        and (unix := re.compile(r"(\d{9,10})(?:\.(\d{1,9}))? +", re.ASCII).match(rest, 2))
        is not None
    ):
        words = _take_words(rest, unix.end(), 2)
        host, program = ([word for word, _ in words] + [None, None])[:2]
        end = words[-1][1] if words else unix.end()
        found = device_headers.DeviceHeader(
            HeaderTime(None, None, 0, unix[1], unix[2] or "", None, False, 0),
            host,
            program,
            None,
            rest[end:],
        )
        return _from_device_header(priority, found)
    else:
        when = device_headers.parse_time(rest, 2, priority is not None)
        if (
            when is None
            or rest[when.end : when.end + 1] != " "
            or (priority is None and not when.has_t)
        ):
            return None
        takes_words, at = when.has_t, when.end
    words = _take_words(rest, at + len(rest[at:]) - len(rest[at:].lstrip(" ")), 4)
    tail = rest[words[-1][1] :] if words else ""
    if len(words) < 4 or not (takes_words or tail[:1] == "[" or tail[:2] in ("-", "- ")):
        return _from_device_header(
            priority, device_headers.parse_after_time(rest, at, when, None, ())
        )
    data, message = _parse_leading_structured_data(tail)
    host, program, pid, msgid = (None if word == "-" else word for word, _ in words)
    parts = {} if priority is None else _priority_parts(priority)
    named = _without_empty({"host": host, "program": program, "pid": pid, "msgid": msgid})
    return ParsedHeader("" if when else None, host, {**parts, **named}, data, message, when)


def _take_words(text: str, at: int, most: int) -> list[tuple[str, int]]:
    # each with the index of the next word
    found: list[tuple[str, int]] = []
    while (
        len(found) < most
        and (match := re.compile(r"([^\x00-\x20]{1,255})(?: +|\Z)").match(text, at)) is not None
    ):
        at = match.end()
        found.append((match[1], at))
    return found


def _parse_leading_structured_data(tail: str) -> tuple[dict[str, str], str]:
    # as many elements as are valid
    if tail[:2] in ("-", "- "):
        return {}, tail[2:]
    end, depth = 0, 0
    while tail[end : end + 1] == "[":
        stop, quoted = end + 1, False
        while stop < len(tail) and (quoted or tail[stop] != "]"):
            if quoted and tail[stop] == "\\":
                stop += 1
            elif tail[stop] == '"':
                quoted = not quoted
            stop += 1
        if _parse_structured_data(tail[end : stop + 1]) is None:
            break
        end, depth = stop + 1, depth + 1
    parse_header = _parse_structured_data(tail[:end]) if depth else None
    if parse_header is None:
        return {}, tail
    return parse_header[0], tail[end:].removeprefix(" ")


def header_time_ms(text: str, zone: str, latest_ms: int, strict: bool = False) -> int | None:
    """Convert the time of a syslog header to Unix milliseconds, rounded down.

    Args:
        text: Time as in `ParsedHeader.time`, in RFC 3339 or RFC 3164 format.
        zone: IANA name of the time zone of RFC 3164 times, which do not include one.
        latest_ms: Latest possible time in Unix milliseconds. A time without a year is assigned the
            latest year that does not put it after `latest_ms`.
        strict: Whether to reject more than six fractional digits, as RFC 5424 requires. Otherwise,
            up to nine are accepted.

    Returns:
        Unix milliseconds; None if the time is invalid.
    """
    if text[0].isdigit() or " " not in text:  # a month name is followed by a space
        whole, point, rest = text.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip(string.digits))]
        if point and not 0 < len(digits) <= (6 if strict else 9):
            return None
        micros = rfc3339_us(whole + point + digits[:6] + rest[len(digits) :])
        return None if micros is None else micros // 1000
    month, rest = text[:3].lower(), text[4:]
    day, *years, clock = rest.split()
    number = _MONTHS.index(month) + 1 if month in _MONTHS else 0
    clock, _, fraction = clock.partition(".")
    year = int(years[0]) if years else None
    return resolve_time_ms(
        HeaderTime(year, number, int(day), clock, fraction, None, False, 0), zone, latest_ms
    )


def resolve_time_ms(when: HeaderTime, zone: str, latest_ms: int) -> int | None:
    """Convert the parts of a header time to Unix milliseconds.

    Args:
        when: Time, split into its parts.
        zone: IANA name of the time zone to use if `when` has none.
        latest_ms: Latest possible time in Unix milliseconds. A time without a year is assigned the
            latest year that does not put it after `latest_ms`.

    Returns:
        Unix milliseconds; None if there is no such date or time of day.
    """
    ms = int(when.fraction[:3].ljust(3, "0"))
    if when.month is None:
        return int(when.clock) * 1000 + ms
    if when.month == 0 or when.month > 12 or not when.clock:
        return None
    hours, minutes, seconds = map(int, when.clock.split(":"))
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    named = when.zone or ""
    offset = zone_offset_s(named)
    if offset is not None:
        digits = re.search(r"(\d\d?)(?::?(\d\d))?$", named, re.ASCII)
        if digits is not None and (int(digits[1]) > 23 or int(digits[2] or 0) > 59):
            return None
        return _latest_not_after(
            _possible_local_times(when, latest_ms),
            dt.timezone(dt.timedelta(seconds=offset)),
            latest_ms,
            ms,
            None,
        )
    found = (
        _latest_not_after(
            _possible_local_times(when, latest_ms), ZoneInfo(zone), latest_ms, ms, named
        )
        if named
        else None
    )
    if found is None and (usual := abbreviation_offset_s(named)) is not None:
        found = _latest_not_after(
            _possible_local_times(when, latest_ms),
            dt.timezone(dt.timedelta(seconds=usual)),
            latest_ms,
            ms,
            None,
        )
    return (
        _latest_not_after(
            _possible_local_times(when, latest_ms), ZoneInfo(zone), latest_ms, ms, None
        )
        if found is None
        else found
    )


def _possible_local_times(when: HeaderTime, latest_ms: int) -> list[dt.datetime]:
    latest = _EPOCH + dt.timedelta(milliseconds=latest_ms)
    hours, minutes, seconds = map(int, when.clock.split(":"))
    found = []
    for year in range(latest.year + 1, latest.year - 10, -1) if when.year is None else [when.year]:
        try:
            found.append(
                dt.datetime(year, when.month or 0, when.day, hours, minutes, seconds)
            )  # local
        except ValueError:
            continue
    return found


def _latest_not_after(
    times: list[dt.datetime], zone: dt.tzinfo, latest_ms: int, ms: int, named: str | None
) -> int | None:
    found: int | None = None
    for local in times:
        before, after = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        readings = [after, before] if _unix_ms(after) >= _unix_ms(before) else [before]
        for moment in readings:
            if named is not None and (moment.tzname() or "").upper() != named.upper():
                continue
            found = _unix_ms(moment) + ms
            if found <= latest_ms:
                return found
    return found


def _unix_ms(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)


def _parse_priority(text: str) -> tuple[int | None, str]:
    number, end, rest = text[1:].partition(">")
    if (
        text[:1] == "<"
        and end
        and number.isascii()
        and number.isdigit()
        and str(int(number)) == number
        and int(number) < 192
    ):
        return int(number), rest
    return None, text


def _parse_rfc5424(priority: int, rest: str) -> ParsedHeader | None:
    words = rest.split(" ", 5)
    if (
        len(words) < 6
        or not all(word and set(word) <= _PRINTABLE and len(word) < 256 for word in words[:5])
        or len(words[0]) > 64
    ):
        return None
    read_data = _parse_structured_data(words[5])
    if read_data is None:
        return None
    data, message = read_data
    if message not in ("", "\r") and message[0] != " ":
        return None
    time, host, program, pid, msgid = (None if word == "-" else word for word in words[:5])
    named = {"host": host, "program": program, "pid": pid, "msgid": msgid}
    return ParsedHeader(
        time, host, {**_priority_parts(priority), **_without_empty(named)}, data, message[1:]
    )


def _parse_structured_data(text: str) -> tuple[dict[str, str], str] | None:
    if text.startswith("-"):
        return {}, text[1:]
    data: dict[str, str] = {}
    at, elements = 0, 0
    while text[at : at + 1] == "[":
        name, at = _take_while(text, at + 1, _NAME_CHARS)
        params = 0
        while text[at : at + 1] == " ":
            param, at = _take_while(text, at + 1, _NAME_CHARS)
            value, end = _parse_quoted_value(text, at)
            if not param or not name or end < 0:
                return None
            data[f"{name} {param}"], at, params = value, end, params + 1
        if text[at : at + 1] != "]" or not name:
            return None
        if not params:
            data[name] = ""
        at, elements = at + 1, elements + 1
    return (data, text[at:]) if elements else None


def _parse_quoted_value(text: str, at: int) -> tuple[str, int]:
    # returns (value, index of its end), or an end of -1
    if text[at : at + 2] != '="':
        return "", -1
    value, at = "", at + 2
    while at < len(text) and text[at] not in '"]':
        if text[at] == "\\":
            value += (
                text[at + 1 : at + 2]
                if text[at + 1 : at + 2] in ('"', "\\", "]")
                else text[at : at + 2]
            )
            at += 2
        else:
            value, at = value + text[at], at + 1
    return value, at + 1 if text[at : at + 1] == '"' else -1


def _parse_rfc3164(priority: int | None, text: str) -> ParsedHeader | None:
    time, rest = _parse_rfc3164_time(text)
    if time is None:
        return None
    if rest[:1] == ":":
        rest = rest[1:]
    if rest[:1] != " ":
        return None
    rest = rest[1:]
    parts = {} if priority is None else _priority_parts(priority)
    host, space, after = rest.partition(" ")
    if space and 0 < len(host) < 256 and not host.endswith(":") and min(host) > " ":
        parts["host"], rest = host, after
    program, pid, rest = _parse_program(rest)
    return ParsedHeader(
        time,
        parts.get("host"),
        {**parts, **_without_empty({"program": program, "pid": pid})},
        {},
        rest,
    )


def _parse_rfc3164_time(text: str) -> tuple[str | None, str]:
    if _has_shape(text[:11], "0000-00-00T"):
        end = next((at for at, char in enumerate(text) if char not in _PRINTABLE), len(text))
        return (text[:end], text[end:]) if 11 + 8 <= end <= 11 + 32 else (None, text)
    day = text[4:6] if text[4:5] in " 0123" and _has_shape(text[5:6], "0") else text[4:5]
    at = 4 + len(day)
    if (
        not _has_shape(text[:4], "Aaa ")
        or not _has_shape(day[-1:], "0")
        or text[at : at + 1] != " "
    ):
        return None, text
    at = at + 6 if _has_shape(text[at + 1 : at + 6], "0000 ") else at + 1
    if not _has_shape(text[at : at + 8], "00:00:00"):
        return None, text
    at += 8
    if text[at : at + 1] == ".":
        end = at + 1
        while text[end : end + 1] in string.digits and end < len(text) and end - at <= 9:
            end += 1
        at = end if end > at + 1 else at
    return text[:at], text[at:]


def _parse_program(text: str) -> tuple[str | None, str | None, str]:
    # the program ends at the first colon that can be its end
    for at in range(1, min(len(text), 256)):
        if text[at] == ":" and text[at + 1 : at + 2] in ("", " "):
            return text[:at], None, text[at + 2 :]
        if text[at] == "[":
            pid, end = _take_while(text, at + 1, _PROGRAM_CHARS)
            if len(pid) <= 64 and text[end : end + 2] == "]:" and text[0] in _PROGRAM_CHARS:
                return text[:at], pid or None, text[end + 2 :].removeprefix(" ")
            return None, None, text
        if text[at - 1] not in _PROGRAM_CHARS or text[at] not in _PROGRAM_CHARS:
            return None, None, text
    return None, None, text


def _take_while(text: str, at: int, allowed: frozenset[str]) -> tuple[str, int]:
    end = at
    while end < len(text) and text[end] in allowed:
        end += 1
    return text[at:end], end


def _has_shape(text: str, form: str) -> bool:
    """Return whether a text matches a template character by character.

    Args:
        text: Text to compare.
        form: Template, in which 0 stands for a digit, A for an upper-case letter, a for a
            lower-case letter, and every other character for itself.
    """
    kinds = {"0": string.digits, "A": string.ascii_uppercase, "a": string.ascii_lowercase}
    return len(text) == len(form) and all(
        char in kinds.get(kind, kind) for char, kind in zip(text, form, strict=True)
    )


def _priority_parts(priority: int) -> dict[str, str]:
    return {"facility": str(priority // 8), "severity": str(priority % 8)}


def _without_empty(parts: dict[str, str | None]) -> dict[str, str]:
    return {name: part for name, part in parts.items() if part}
