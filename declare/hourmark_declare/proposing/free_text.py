"""Candidates for text formats: system logs, access logs, timestamped lines, plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from hourmark_declare.proposing.candidate import MESSAGE, Candidate
from hourmark_declare.proposing.timestamps import (
    CommonTimestamp,
    find_common_timestamp,
    find_timestamp,
)
from hourmark_declare.proposing.value_types import optional_field

_LEVELS: Final = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|CRIT|FATAL|ALERT|EMERG|SEVERE|LOG|PANIC"
# Forms of a level, and the share of lines that must have it: a word that begins a sentence is no level.
_LEVEL_FORMS: Final = (
    (rf"[\[<(]?(?P<level>{_LEVELS})\b[\]>):]*", 0.5),
    (rf"[\[<(](?P<level>(?i:{_LEVELS}))[\]>)]:?", 0.5),
    (rf"(?P<level>(?i:{_LEVELS})):", 0.5),
    (rf"(?P<level>(?i:{_LEVELS}))\b", 0.9),
)
_QUOTED: Final = r'"(?P<{}>(?:[^"\\]|\\.)*)"'
_ACCESS: Final = (
    r"(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "
    + _QUOTED.format("request")
    + r" (?P<status>\d{3}) (?P<bytes>\d+|-)(?: "
    + _QUOTED.format("referrer")
    + " "
    + _QUOTED.format("agent")
    + rf")?(?P<{MESSAGE}>.*)"
)
_ACCESS_FIELDS: Final = {
    "client": "string",
    "user": "string",
    "request": "string",
    "status": "long",
    "bytes": "long",
    "referrer": "string",
    "agent": "string",
    MESSAGE: "bytes",
}
_CLOSED: Final = r"[\])]?:?[ \t]*"  # what may follow a timestamp directly
_DASHED: Final = r"(?:[\-|][ \t]+)?"
_CATCHING: Final = {"time": "observed", "field": MESSAGE}  # required for lines that do not match
_UNSTAMPED_MIN: Final = (
    0.02  # a smaller share of lines without a timestamp does not indicate multi-line records
)


def syslog_candidates(_: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield the format of log files whose lines start with a syslog header.

    The built-in type `syslog` parses such lines. The format does not depend on the lines, so the
    argument is ignored. The caller determines how many lines match the format.

    Yields:
        Exactly one candidate format.
    """
    yield Candidate(form="a system log", format="syslog")


def access_log_candidates(_: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield the format of access logs in the common or combined format of Apache and nginx.

    The format does not depend on the lines, so the argument is ignored. The caller determines how
    many lines match the format.

    Yields:
        Exactly one candidate format.
    """
    line = {
        "payload": "pattern",
        "pattern": _ACCESS,
        "time_format": "%d/%b/%Y:%H:%M:%S %z",
        "null_text": "-",
        **_CATCHING,
    }
    fields = tuple(optional_field(name, of) for name, of in _ACCESS_FIELDS.items())
    yield Candidate(form="an access log", line=line, fields=fields, catches_all=True)


def timestamped_candidates(lines: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield formats for lines that consist of a timestamp, an optional level and a message.

    Args:
        lines: Lines of a log file without line feeds.

    Yields:
        First, a format of multi-line records, if more than 2 % of the lines lack the timestamp and
        the text before the timestamp is the same in most lines. Then a format in which every line
        is a record. Nothing if no line has a timestamp.
    """
    if (found := find_common_timestamp(lines)) is None:
        return
    behind = _separator_pattern(
        [
            line[at.end :]
            for line in lines
            if (at := find_timestamp(line)) is not None and at.form == found.form
        ]
    )
    if found.before is not None and found.share < 1 - _UNSTAMPED_MIN:
        yield _timestamped(found, behind, records=True)
    yield _timestamped(found, behind, records=False)


def plain_text_candidates(_: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield the format of log files with unstructured lines, which any line matches.

    Each line becomes an event with the field `message`. Its event time is the time of reading. The
    argument is ignored, because the format does not depend on the lines.

    Yields:
        Exactly one candidate format.
    """
    line = {"payload": "text", "field": MESSAGE, "time": "observed"}
    yield Candidate(
        form="lines of text without a time", line=line, fields=({"name": MESSAGE, "type": "bytes"},)
    )


def _timestamped(found: CommonTimestamp, behind: str, *, records: bool) -> Candidate:
    before = r".{0,120}?" if found.before is None else _quoted(found.before)
    stamp = f"(?P<time>{found.form.pattern})"
    end = r"\r?\n?" if records else ""  # for a first line with only the timestamp
    pattern = f"{'(?s)' if records else ''}{before}{stamp}{behind}{end}(?P<{MESSAGE}>.*)"
    line = {"payload": "pattern", "pattern": pattern, "time_format": found.form.format, **_CATCHING}
    fields = (
        *([optional_field("level", "string")] if "<level>" in behind else []),
        optional_field(MESSAGE, "bytes"),
    )
    start = f"^{before}{found.form.pattern}" if records else ""
    form = f"{'records' if records else 'lines'} that begin with a time"
    return Candidate(form=form, line=line, fields=fields, record_start=start, catches_all=True)


def _separator_pattern(rests: Sequence[bytes]) -> str:
    # Return the pattern between timestamp and message: level and dash, if most lines have them.
    rests = _without(_CLOSED, rests)
    dash, rests = _dash(rests)
    level = _level(rests)
    if not level:
        return f"{_CLOSED}{dash}"
    found = (match for rest in rests if (match := re.match(level.encode(), rest)) is not None)
    after, _ = _dash([match.string[match.end() :].lstrip(b" \t") for match in found])
    return rf"{_CLOSED}{dash}(?:{level}[ \t]*{after})?"


def _level(rests: Sequence[bytes]) -> str:
    for pattern, share in _LEVEL_FORMS:
        if sum(re.match(pattern.encode(), rest) is not None for rest in rests) > share * len(rests):
            return pattern
    return ""


def _dash(rests: Sequence[bytes]) -> tuple[str, Sequence[bytes]]:
    without = _without(_DASHED, rests)
    if 2 * sum(len(rest) < len(before) for rest, before in zip(without, rests, strict=True)) > len(
        rests
    ):
        return _DASHED, without
    return "", rests


def _without(pattern: str, rests: Sequence[bytes]) -> list[bytes]:
    compiled = re.compile(pattern.encode())
    return [compiled.sub(b"", rest, count=1) for rest in rests]


def _quoted(text: bytes) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text.decode(errors="replace"))
