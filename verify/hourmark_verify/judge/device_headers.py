"""Parser of syslog headers as daemons and network devices write them (parser version 3).

It is independent of the parser in the delivery service and implements the grammar in
docs/reference/syslog-formats.md. Lines are text with one character for each byte.
"""

from __future__ import annotations

import re
import string
from typing import Final, NamedTuple

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FACILITIES: Final = [
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
]
_SEVERITIES: Final = {
    "emerg": 0,
    "alert": 1,
    "crit": 2,
    "err": 3,
    "error": 3,
    "warn": 4,
    "warning": 4,
    "notice": 5,
    "info": 6,
    "debug": 7,
}
_HOURS: Final = {
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
    "AKST": -9,
    "AKDT": -8,
    "HST": -10,
    "WET": 0,
    "WEST": 1,
    "CET": 1,
    "CEST": 2,
    "MET": 1,
    "MEST": 2,
    "EET": 2,
    "EEST": 3,
    "MSK": 3,
    "JST": 9,
    "KST": 9,
    "AEST": 10,
    "AEDT": 11,
    "NZST": 12,
    "NZDT": 13,
}
_NO_HOST_CHARS: Final = set("\"'(),;<=>[]{|}")
_NO_PROGRAM_CHARS: Final = set('"=<>[]{|}')
_PRINTABLE: Final = set(map(chr, range(33, 127)))


class HeaderTime(NamedTuple):
    """The time in a syslog header, split into its parts but not validated.

    Attributes:
        year: Year; None if the header does not contain one.
        month: Month from 1 to 12; 0 if the date is invalid; None if the time is a Unix time.
        day: Day of the month.
        clock: Time of day as H:MM:SS or HH:MM:SS. For a Unix time, its whole seconds.
        fraction: Up to nine digits after the decimal point; may be empty.
        zone: Time zone as written; None if the header does not contain one.
        has_t: Whether date and time are separated by a T.
        end: Index of the first character after the time in the line.
    """

    year: int | None
    month: int | None
    day: int
    clock: str
    fraction: str
    zone: str | None
    has_t: bool
    end: int


class DeviceHeader(NamedTuple):
    """The parts of a syslog header that a daemon or network device wrote.

    Attributes:
        when: Time; None if the header has none.
        host: Host name or address; None if the header has none.
        program: Program name or Cisco message name; None if the header has none.
        pid: Process id; None if the header has none.
        message: Text after the header.
        level: Priority (8 times the facility plus the severity) if it is given in words, such as
            `daemon.info`; otherwise None.
        data: (name, value) pairs that are treated like RFC 5424 structured data.
    """

    when: HeaderTime | None
    host: str | None
    program: str | None
    pid: str | None
    message: str
    level: int | None = None
    data: tuple[tuple[str, str], ...] = ()


def zone_offset_s(zone: str) -> int | None:
    """Return the UTC offset of a time zone such as +01:00, UTC+2 or Z.

    Args:
        zone: Time zone as written in a header.

    Returns:
        Seconds east of UTC; None for any other text, such as the abbreviation CET.
    """
    if zone in ("Z", "UTC", "GMT", "UCT"):
        return 0
    match = re.fullmatch(r"(?:UTC|GMT|TZ)?([+-])(\d\d?)(?::?(\d\d))?", zone, re.ASCII)
    if match is None:
        return None
    return (int(match[2]) * 3600 + int(match[3] or 0) * 60) * (-1 if match[1] == "-" else 1)


def abbreviation_offset_s(zone: str) -> int | None:
    """Return the UTC offset of a time zone abbreviation such as CET.

    Args:
        zone: Abbreviation in upper case.

    Returns:
        Seconds east of UTC; None if the abbreviation is unknown.
    """
    return _HOURS[zone] * 3600 if zone in _HOURS else None


def parse_time(text: str, at: int, after_priority: bool) -> HeaderTime | None:
    """Parse the time that starts at an index of a line.

    Args:
        text: The line.
        at: Index of the first character of the time.
        after_priority: Whether a priority such as `<13>` precedes the time. Some formats are
            accepted only then.

    Returns:
        The time, not validated; None if its format is unknown.
    """
    rest = text[at:]
    iso = re.match(r"(\d{4})-(\d\d)-(\d\d)([T ])", rest, re.ASCII)
    if iso is not None and (iso[4] == "T" or after_priority):
        found = _parse_clock(
            text, at + iso.end(), int(iso[1]), int(iso[2]), int(iso[3]), iso[4] == "T"
        )
        if found is not None and (
            iso[4] == " " or text[found.end : found.end + 1] in (" ", ":", "")
        ):
            return found
    if iso is not None and iso[4] == "T":
        length = next(
            (n for n, char in enumerate(rest[11:43]) if char not in _PRINTABLE), len(rest[11:43])
        )
        if length >= 5:
            token = rest[: 11 + length]
            return HeaderTime(None, 0, 0, "", "", None, True, at + len(token) - token.endswith(":"))
    for form in (
        r"(?:[A-Z][a-z]{2},? )?(?P<m>[A-Z][a-z]{2})  ?(?P<d>\d\d?)(?: (?P<y>\d{4}))?  ?",
        r"(?P<y>\d{4}) (?P<m>[A-Z][a-z]{2})  ?(?P<d>\d\d?)  ?",
        r"(?P<d>\d\d?)[ -](?P<m>[A-Z][a-z]{2})[ -](?P<y>\d{4}) ",
    ):
        for match in _match_date(form, rest):
            year = None if match["y"] is None else int(match["y"])
            month = MONTHS.index(match["m"]) + 1 if match["m"] in MONTHS else 0
            if (
                found := _parse_clock(text, at + match.end(), year, month, int(match["d"]), False)
            ) is not None:
                return found
    slashed = (
        re.match(r"(?:(\d\d)/(\d\d)/(\d{4})[: ]|(\d{4})/(\d\d)/(\d\d) )", rest, re.ASCII)
        if after_priority
        else None
    )
    if slashed is None:
        return None
    numbers = (
        (slashed[3], slashed[1], slashed[2]) if slashed[3] else (slashed[4], slashed[5], slashed[6])
    )
    return _parse_clock(
        text, at + slashed.end(), int(numbers[0]), int(numbers[1]), int(numbers[2]), False
    )


def _match_date(form: str, rest: str) -> list[re.Match[str]]:
    # three letters can be a day of the week or a month, so both are tried
    found = [
        re.match(form, rest, re.ASCII),
        re.match(form.replace(r"(?:[A-Z][a-z]{2},? )?", ""), rest, re.ASCII),
    ]
    return [match for match in found if match is not None]


def _parse_clock(
    text: str, at: int, year: int | None, month: int, day: int, has_t: bool
) -> HeaderTime | None:
    match = re.compile(r"\d\d?:\d\d:\d\d", re.ASCII).match(text, at)
    if match is None:
        return None
    clock, at, fraction = match[0], match.end(), ""
    if text[at : at + 1] in (".", ",", ":"):
        end = at + 1
        while end < len(text) and text[end] in string.digits:
            end += 1
        if 0 < end - at - 1 <= 9:
            fraction, at = text[at + 1 : end], end
    zone = None
    for _ in range(2):
        follows = re.compile(r" ((?:19|20)\d\d)(?= |: )", re.ASCII).match(text, at)
        if year is None and follows is not None:
            year, at = int(follows[1]), follows.end()
        follows = re.compile(r" ?(Z|[+-]\d\d:\d\d|[+-]\d{4}|[+-]\d\d)(?=[ :]|\Z)", re.ASCII).match(
            text, at
        )
        if follows is None:
            follows = re.compile(
                r" ([A-Z]{2,5}(?:[+-]\d\d?(?::?\d\d)?)?)(?=[ :]|\Z)", re.ASCII
            ).match(text, at)
        if (
            zone is None
            and follows is not None
            and (zone_offset_s(follows[1]) is not None or follows[1] in _HOURS)
        ):
            zone, at = follows[1], follows.end()
    return HeaderTime(year, month, day, clock, fraction, zone, has_t, at)


def parse_device_header(text: str, at: int, has_priority: bool) -> DeviceHeader | None:
    """Parse the part of a syslog header that follows the priority.

    Args:
        text: The line.
        at: Index of the first character after the priority; 0 if there is no priority.
        has_priority: Whether the line starts with a priority such as `<13>`. Without one, fewer
            formats are accepted.

    Returns:
        The parts of the header; None if the format of the line is unknown.
    """
    pairs = _parse_key_values(text[at:], has_priority)
    if pairs is not None:
        return pairs
    if has_priority and text[at : at + 1] == ":":
        at = _skip_spaces(text, at + 1)
    device = _parse_device_prefix(text, at)
    if device is not None and (has_priority or device.when is not None):
        data = device.structured_data(None)
        if device.when is None or device.closed:
            return _parse_program_and_message(
                text, device.end, device.when, device.origin, None, data
            )
        return parse_after_time(text, device.end, device.when, device.origin, data)
    when = parse_time(text, at, has_priority)
    bare = _parse_program_and_message(text, at, None, None, None, ()) if has_priority else None
    if when is None:
        return bare
    end = when.end + (text[when.end : when.end + 1] == ":")
    if text[end : end + 1] != " " and (end < len(text) or not has_priority):
        return bare
    return parse_after_time(text, end, when, None, ())


def parse_after_time(
    text: str, at: int, when: HeaderTime | None, host: str | None, data: tuple[tuple[str, str], ...]
) -> DeviceHeader:
    """Parse the part of a syslog header that follows the time: level, host, program and message.

    Args:
        text: The line.
        at: Index of the first character after the time.
        when: The time; None if the header has none.
        host: Host, if it is already known; otherwise None.
        data: (name, value) pairs of structured data that were already parsed.

    Returns:
        All parts of the header, including `when`.
    """
    level, at = _parse_level(text, _skip_spaces(text, at))
    forwarded = re.compile(r"Message forwarded from ([^\x00-\x20]{1,255}): +")
    if not forwarded.match(text, at) and not _is_repeated(text, at):
        word, end = _parse_host(text, at)
        if word is not None:
            host, at = host or word, end
            at = _skip_spaces(text, at + len(word)) if text.startswith(word + " ", at) else at
        second, at = _parse_level(text, at)
        level = second if level is None else level
    if (match := forwarded.match(text, at)) is not None:
        host, at = match[1], match.end()
    if _is_repeated(text, at):
        return DeviceHeader(when, host, None, None, text[at:], level, data)
    inner = _skip_spaces(text, at + 1) if text.startswith(": ", at) else at
    device = _parse_device_prefix(text, inner)
    if device is not None and (device.numbers or device.when is not None):
        host, data = host or device.origin, data + device.structured_data(text)
        return _parse_program_and_message(text, device.end, when, host, level, data)
    return _parse_program_and_message(
        text, inner if _parse_message_name(text, inner) else at, when, host, level, data
    )


def _skip_spaces(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _is_repeated(text: str, at: int) -> bool:
    return (
        re.compile(r"(--- )?(last|above) message (repeated|repeats) \d", re.ASCII).match(text, at)
        is not None
    )


def _word_at(text: str, at: int) -> str:
    end = at
    while end < len(text) and text[end] > " ":
        end += 1
    return text[at:end]


def _parse_host(text: str, at: int) -> tuple[str | None, int]:
    word = _word_at(text, at)
    end = at + len(word)
    if text[end : end + 1] != " " or not 0 < len(word) < 256:
        return None, at
    inside = word[1:-1]
    if (
        word[0] == "["
        and word[-1] == "]"
        and 2 <= len(inside) <= 45
        and set(inside) <= set(string.hexdigits + ".:")
    ):
        return inside, _skip_spaces(text, end)
    named = any((char.isalnum() and char.isascii()) or char > "~" for char in word)
    if (
        set(word) & _NO_HOST_CHARS
        or word[0] == "%"
        or (not named and len(word) > 1 and word != "::")
    ):
        return None, at
    if word.endswith(":") and not re.fullmatch(
        r"(?:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6})?::", word, re.ASCII
    ):
        return None, at
    return word, _skip_spaces(text, end)


def _parse_level(text: str, at: int) -> tuple[int | None, int]:
    word = _word_at(text, at)
    facility, point, severity = word.lower().partition(".")
    local = facility[5:] if facility.startswith("local") else ""
    number = 16 + int(local) if local in tuple("01234567") else None
    if facility in _FACILITIES:
        number = _FACILITIES.index(facility)
    if (
        not point
        or number is None
        or severity not in _SEVERITIES
        or text[at + len(word) : at + len(word) + 1] != " "
    ):
        return None, at
    return number * 8 + _SEVERITIES[severity], _skip_spaces(text, at + len(word))


class _DevicePrefix(NamedTuple):
    numbers: list[str]
    origin: str | None
    mark: str
    when: HeaderTime | None
    written: tuple[int, int]
    closed: bool
    end: int

    def structured_data(self, relayed: str | None) -> tuple[tuple[str, str], ...]:
        pairs = [("meta sequenceId", self.numbers[-1])] if self.numbers else []
        pairs += [("timeQuality isSynced", "0")] if self.mark in ("*", ".") else []
        if relayed is not None and self.when is not None:
            pairs.append(("device time", relayed[self.written[0] : self.written[1]]))
        return tuple(pairs)


_NUMBER: Final = re.compile(r"(\d{1,10}): +", re.ASCII)
_UPTIME: Final = re.compile(
    r"(?:\d{1,4}[ywd]\d\d?[wdh]|\d{1,3}:\d\d:\d\d(?:\.\d{1,3})?): +", re.ASCII
)
_NAME: Final = r"[^\x00-\x20\"%'(),:;<=>\[\]{|}/]{1,255}"
_ORIGIN: Final = re.compile(rf"({_NAME}|[0-9A-Fa-f:]{{2,39}}): +")
_NODE: Final = re.compile(rf"(?:({_NAME}) )?[A-Za-z0-9]{{1,9}}(?:/[A-Za-z0-9]{{1,9}}){{2,4}}: *")


def _parse_message_name(text: str, at: int) -> tuple[str, int] | None:
    # Cisco, such as %SYS-5-CONFIG_I, with the index of its text
    if text[at : at + 1] != "%":
        return None
    end = at + 1
    while end < len(text) and text[end] in _PRINTABLE and text[end] not in ":[]":
        end += 1
    tag = text[at:end]
    colon = end + (text[end : end + 1] == " ")
    if (
        not 2 <= len(tag) <= 255
        or text[colon : colon + 1] != ":"
        or text[colon + 1 : colon + 2] not in ("", " ")
    ):
        return None
    return tag, min(colon + 2, len(text))


def _parse_device_prefix(text: str, at: int) -> _DevicePrefix | None:
    numbers, origin, node = [], None, False
    if (match := _NUMBER.match(text, at)) is not None:
        numbers, at = [match[1]], match.end()
    if (
        (match := _ORIGIN.match(text, at)) is not None
        and not _UPTIME.match(text, at)
        and not match[1].isdigit()
    ):
        then = match.end()
        marked = then + (text[then : then + 1] in ("*", "."))
        if (
            _parse_message_name(text, then)
            or any(one.match(text, then) for one in (_NUMBER, _NODE, _UPTIME))
            or parse_time(text, marked, False)
        ):
            origin, at = match[1], then
    if (match := _NODE.match(text, at)) is not None:
        origin, node, at = origin or match[1], True, match.end()
    if (match := _NUMBER.match(text, at)) is not None:
        numbers, at = [*numbers, match[1]], match.end()
    mark = text[at : at + 1] if text[at : at + 1] in ("*", ".", "%") else ""
    when, closed, written = parse_time(text, at + len(mark), False), True, (at, at)
    if when is None:
        mark = ""
        at = match.end() if (match := _UPTIME.match(text, at)) is not None else at
    else:
        named = re.compile(r" ([A-Za-z][A-Za-z0-9+_/-]{0,30})(?=: )", re.ASCII).match(
            text, when.end
        )
        if named is not None and when.zone is None and (numbers or node or mark):
            when = when._replace(zone=named[1], end=named.end())
        written = (at + len(mark), when.end)
        closed = text[when.end : when.end + 1] == ":"
        at = when.end + closed
        if text[at : at + 1] != " ":
            return None
        at = _skip_spaces(text, at)
    sure = bool(numbers) or (when is not None and (mark != "" or node))
    if sure or (
        _parse_message_name(text, at) and closed and (when is not None or origin is not None)
    ):
        return _DevicePrefix(numbers, origin, mark, when, written, closed, at)
    return None


def _parse_program_and_message(
    text: str,
    at: int,
    when: HeaderTime | None,
    host: str | None,
    level: int | None,
    data: tuple[tuple[str, str], ...],
) -> DeviceHeader:
    if not _is_repeated(text, at):
        if (tag := _parse_message_name(text, at)) is not None:
            return DeviceHeader(when, host, tag[0], None, text[tag[1] :], level, data)
        program, pid, end = _parse_program(text, at)
        return DeviceHeader(when, host, program, pid, text[end:], level, data)
    return DeviceHeader(when, host, None, None, text[at:], level, data)


def _parse_program(text: str, at: int) -> tuple[str | None, str | None, int]:
    none = (None, None, at)
    if re.compile(r"\d+[:\[]|(?:CEF|LEEF): ?\d", re.ASCII).match(text, at):
        return none
    for end in range(at, min(len(text), at + 256)):
        char = text[end]
        after = text[end + 1 : end + 2]
        joined = text[end - 1] != ":" and after in (*string.ascii_letters, "(", "[", "<")
        if char == ":" and end > at and (after in ("", " ") or joined):
            return text[at:end], None, end + 1 + (after == " ")
        if char == "[" and end > at:
            close = end + 1
            while close < len(text) and text[close] in _PRINTABLE and text[close] not in "[]":
                close += 1
            pid = text[end + 1 : close]
            if len(pid) <= 64 and text[close : close + 2] == "]:":
                return text[at:end], pid or None, close + 2 + (text[close + 2 : close + 3] == " ")
            if re.fullmatch(r"\d{1,10}", pid, re.ASCII) and text[close : close + 2] == "] ":
                return text[at:end], pid, close + 2
            return none
        if char not in _PRINTABLE or char in _NO_PROGRAM_CHARS or (end == at and char == ":"):
            return none
    return none


def _parse_key_values(text: str, has_priority: bool) -> DeviceHeader | None:
    pairs: dict[str, str] = {}
    rest = text
    for _ in range(16):
        match = re.match(
            r'([A-Za-z_][A-Za-z0-9_.-]{0,63})=(?:"([^"]{0,255})"|([^ ,|"]{0,255}))(?:[ ,|]+|\Z)',
            rest,
            re.ASCII,
        )
        if match is None:
            break
        pairs.setdefault(match[1].lower(), match[2] if match[3] is None else match[3])
        rest = rest[match.end() :]
    if "time" not in pairs or (not has_priority and "date" not in pairs):
        return None
    time = pairs["time"] if "date" not in pairs else f"{pairs['date']} {pairs['time']}"
    unix = re.fullmatch(r"(\d{9,10})(?:\.(\d{1,9}))?", time, re.ASCII)
    when = (
        HeaderTime(None, None, 0, unix[1], unix[2] or "", None, False, len(time))
        if unix
        else parse_time(time, 0, True)
    )
    if when is None or when.end != len(time):
        return None
    zone = pairs.get("tz") or pairs.get("timezone")
    if zone and when.zone is None:
        when = when._replace(zone=zone)
    host = next(
        (pairs[name] for name in ("devname", "device_name", "hostname", "fw") if pairs.get(name)),
        None,
    )
    return DeviceHeader(when, host, None, None, text)
