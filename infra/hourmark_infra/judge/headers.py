"""Headers of syslog in their older forms, and the parts of any: a reader of its own, character by character.

A line is text here, a character a byte.
"""

from __future__ import annotations

import datetime as dt
import string
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from hourmark_infra.judge.rfc5424 import unix_us

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PRINTABLE: Final = frozenset(map(chr, range(33, 127)))
_NAME_CHARS: Final = _PRINTABLE - {"=", "]", '"'}
_PROGRAM_CHARS: Final = _PRINTABLE - {"[", "]"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Header(NamedTuple):
    """`parts`: those that are there, by the names of declarations; `data`: structured data by `id param`."""

    time: str | None
    host: str | None
    parts: dict[str, str]
    data: dict[str, str]
    message: str


def read(line: bytes, *, older: bool) -> Header | None:
    """The header of a line; None where it has none. `older`: forms before RFC 5424 count as well."""
    text = line.decode("latin-1")
    priority, rest = _priority(text)
    if priority is not None and rest.startswith("1 ") and (found := _newer(priority, rest[2:])) is not None:
        return found
    return _older(priority, rest) if older else None


def time_ms(text: str, zone: str, latest_ms: int, strict: bool = False) -> int | None:
    """Unix milliseconds of a header's time, cut; without a year the latest that is not after `latest_ms`."""
    if text[0].isdigit() or " " not in text:  # a month is followed by its day
        whole, point, rest = text.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip(string.digits))]
        if point and not 0 < len(digits) <= (6 if strict else 9):
            return None
        micros = unix_us(whole + point + digits[:6] + rest[len(digits) :])
        return None if micros is None else micros // 1000
    month, rest = text[:3].lower(), text[4:]
    day, *years, clock = rest.split()
    hours, minutes, seconds = clock.split(":")
    whole_s, _, fraction = seconds.partition(".")
    if month not in _MONTHS or int(hours) > 23 or int(minutes) > 59 or int(whole_s) > 59:
        return None
    latest = _EPOCH + dt.timedelta(milliseconds=latest_ms)
    found: int | None = None
    for year in [int(years[0])] if years else range(latest.year + 1, latest.year - 10, -1):
        try:
            local = dt.datetime(year, _MONTHS.index(month) + 1, int(day), int(hours), int(minutes), int(whole_s))
        except ValueError:
            continue
        for fold in (1, 0):
            moment = local.replace(tzinfo=ZoneInfo(zone), fold=fold)
            found = (moment - _EPOCH) // dt.timedelta(milliseconds=1) + int(fraction[:3].ljust(3, "0"))
            if found <= latest_ms:
                return found
    return found


def _priority(text: str) -> tuple[int | None, str]:
    number, end, rest = text[1:].partition(">")
    if text[:1] == "<" and end and number.isascii() and number.isdigit() and str(int(number)) == number and int(number) < 192:
        return int(number), rest
    return None, text


def _newer(priority: int, rest: str) -> Header | None:
    words = rest.split(" ", 5)
    if (
        len(words) < 6
        or not all(word and set(word) <= _PRINTABLE and len(word) < 256 for word in words[:5])
        or len(words[0]) > 64
    ):
        return None
    read_data = _data(words[5])
    if read_data is None:
        return None
    data, message = read_data
    if message not in ("", "\r") and message[0] != " ":
        return None
    time, host, program, pid, msgid = (None if word == "-" else word for word in words[:5])
    named = {"host": host, "program": program, "pid": pid, "msgid": msgid}
    return Header(time, host, {**_of_priority(priority), **_there(named)}, data, message[1:])


def _data(text: str) -> tuple[dict[str, str], str] | None:
    """Structured data, and what follows it."""
    if text.startswith("-"):
        return {}, text[1:]
    data: dict[str, str] = {}
    at, elements = 0, 0
    while text[at : at + 1] == "[":
        name, at = _while(text, at + 1, _NAME_CHARS)
        params = 0
        while text[at : at + 1] == " ":
            param, at = _while(text, at + 1, _NAME_CHARS)
            value, end = _quoted(text, at)
            if not param or not name or end < 0:
                return None
            data[f"{name} {param}"], at, params = value, end, params + 1
        if text[at : at + 1] != "]" or not name:
            return None
        if not params:
            data[name] = ""
        at, elements = at + 1, elements + 1
    return (data, text[at:]) if elements else None


def _quoted(text: str, at: int) -> tuple[str, int]:
    """The value behind `="`, and where it ends; -1 where it is none."""
    if text[at : at + 2] != '="':
        return "", -1
    value, at = "", at + 2
    while at < len(text) and text[at] not in '"]':
        if text[at] == "\\":
            value += text[at + 1 : at + 2] if text[at + 1 : at + 2] in ('"', "\\", "]") else text[at : at + 2]
            at += 2
        else:
            value, at = value + text[at], at + 1
    return value, at + 1 if text[at : at + 1] == '"' else -1


def _older(priority: int | None, text: str) -> Header | None:
    time, rest = _time(text)
    if time is None:
        return None
    if rest[:1] == ":":
        rest = rest[1:]
    if rest[:1] != " ":
        return None
    rest = rest[1:]
    parts = {} if priority is None else _of_priority(priority)
    host, space, after = rest.partition(" ")
    if space and 0 < len(host) < 256 and not host.endswith(":") and min(host) > " ":
        parts["host"], rest = host, after
    program, pid, rest = _program(rest)
    return Header(time, parts.get("host"), {**parts, **_there({"program": program, "pid": pid})}, {}, rest)


def _time(text: str) -> tuple[str | None, str]:
    """A time, and what follows it."""
    if _like(text[:11], "0000-00-00T"):
        end = next((at for at, char in enumerate(text) if char not in _PRINTABLE), len(text))
        return (text[:end], text[end:]) if 11 + 8 <= end <= 11 + 32 else (None, text)
    day = text[4:6] if text[4:5] in " 0123" and _like(text[5:6], "0") else text[4:5]
    at = 4 + len(day)
    if not _like(text[:4], "Aaa ") or not _like(day[-1:], "0") or text[at : at + 1] != " ":
        return None, text
    at = at + 6 if _like(text[at + 1 : at + 6], "0000 ") else at + 1
    if not _like(text[at : at + 8], "00:00:00"):
        return None, text
    at += 8
    if text[at : at + 1] == ".":
        end = at + 1
        while text[end : end + 1] in string.digits and end < len(text) and end - at <= 9:
            end += 1
        at = end if end > at + 1 else at
    return text[:at], text[at:]


def _program(text: str) -> tuple[str | None, str | None, str]:
    """Program, pid and message. The program ends at the first colon that can be its end."""
    for at in range(1, min(len(text), 256)):
        if text[at] == ":" and text[at + 1 : at + 2] in ("", " "):
            return text[:at], None, text[at + 2 :]
        if text[at] == "[":
            pid, end = _while(text, at + 1, _PROGRAM_CHARS)
            if len(pid) <= 64 and text[end : end + 2] == "]:" and text[0] in _PROGRAM_CHARS:
                return text[:at], pid or None, text[end + 2 :].removeprefix(" ")
            return None, None, text
        if text[at - 1] not in _PROGRAM_CHARS or text[at] not in _PROGRAM_CHARS:
            return None, None, text
    return None, None, text


def _while(text: str, at: int, allowed: frozenset[str]) -> tuple[str, int]:
    end = at
    while end < len(text) and text[end] in allowed:
        end += 1
    return text[at:end], end


def _like(text: str, form: str) -> bool:
    """Whether each character is as in the form: 0 a digit, A a capital, a a small letter, others themselves."""
    kinds = {"0": string.digits, "A": string.ascii_uppercase, "a": string.ascii_lowercase}
    return len(text) == len(form) and all(char in kinds.get(kind, kind) for char, kind in zip(text, form, strict=True))


def _of_priority(priority: int) -> dict[str, str]:
    return {"facility": str(priority // 8), "severity": str(priority % 8)}


def _there(parts: dict[str, str | None]) -> dict[str, str]:
    return {name: part for name, part in parts.items() if part}
