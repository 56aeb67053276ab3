"""Candidates for structured formats: JSON lines, logfmt, tab-separated columns."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hourmark_declare.proposing.candidate import Candidate
from hourmark_declare.proposing.value_types import (
    infer_fields,
    infer_text_type,
    optional_field,
    parse_json_objects,
)

TIME_KEYS: Final = (
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "datetime",
    "date",
    "event_time",
    "eventTime",
    "t",
    "asctime",
    "created_at",
)
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)")
_LOCAL: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?P<sep>[T ])\d\d:\d\d:\d\d(?:(?P<mark>[.,])\d+)?(?P<zone>[+-]\d{4})?"
)
_UNIX: Final = (
    ("unix", 10**9, 10**10),
    ("unix-ms", 10**12, 10**13),
    ("unix-us", 10**15, 10**16),
    ("unix-ns", 10**18, 10**19),
)
_PAIR: Final = re.compile(r'(?P<key>[^\s="]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"]*))')
_MORE: Final = "more"


def json_line_candidates(lines: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield a candidate for lines that are JSON objects; nothing if no line is one."""
    if rows := parse_json_objects(lines):
        more = {"name": _MORE, "type": {"type": "map", "values": "string"}}
        time = detect_time_settings(rows)
        fields = infer_fields(rows, excluded=[_MORE, time.get("time_field", "")])
        line = {"payload": "json", **time, "unknown": "keep", "unknown_field": _MORE}
        yield Candidate(form="JSON lines", line=line, fields=(*fields, more))


def logfmt_candidates(lines: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield a candidate for lines of the form `key=value key="value"`; nothing if no line has it."""
    rows = [row for line in lines if len(row := _pairs(line.decode(errors="replace"))) > 1]
    if not rows:
        return
    columns = collections.defaultdict[str, list[str]](list)
    for row in rows:
        for key, value in row.items():
            columns[key].append(value)
    time = detect_time_settings(rows)
    known = infer_fields(rows, excluded=[_MORE, time.get("time_field", "")])
    fields = [optional_field(of["name"], infer_text_type(columns[of["name"]])) for of in known]
    more = {"name": _MORE, "type": {"type": "map", "values": "string"}}
    line = {"payload": "logfmt", **time, "unknown": "keep", "unknown_field": _MORE}
    yield Candidate(form="logfmt", line=line, fields=(*fields, more))


def tab_separated_candidates(lines: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield a candidate for at least three tab-separated columns, named by number."""
    rows = [
        line.decode(errors="replace").rstrip("\r").split("\t") for line in lines if line.strip()
    ]
    widths = collections.Counter(map(len, rows))
    if not widths or (width := widths.most_common(1)[0][0]) < 3:
        return
    columns = {
        f"column_{n + 1}": [row[n] for row in rows if len(row) == width] for n in range(width)
    }
    times = {
        name: form
        for name, values in columns.items()
        if (form := detect_time_format(values)) is not None
    }
    time = (
        dict(zip(("time_field", "time_format"), next(iter(times.items())), strict=True))
        if times
        else {"time": "observed"}
    )
    fields = [
        optional_field(name, infer_text_type(values))
        for name, values in columns.items()
        if name != time.get("time_field")
    ]
    line = {"payload": "tsv", "columns": [*columns], **time, "null_text": "-"}
    yield Candidate(form=f"{width} columns with tabs between", line=line, fields=tuple(fields))


def detect_time_settings(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings of `[line]` that define the event time.

    Args:
        rows: Field values of each line.

    Returns:
        `time_field` and `time_format` of the first known time key that most rows have, otherwise
        `time = observed`, the time of reading.
    """
    rows = [*rows]
    for key in TIME_KEYS:
        values = [row[key] for row in rows if key in row]
        if 2 * len(values) > len(rows) and (form := detect_time_format(values)) is not None:
            return {"time_field": key, "time_format": form}
    return {"time": "observed"}


def detect_time_format(values: Sequence[Any]) -> str | None:
    """Return the `time_format` that all values match; None if there is none or no value."""
    texts = [str(value) for value in values]
    if texts and all(_RFC3339.fullmatch(text) for text in texts):
        return "rfc3339"
    local = [_LOCAL.fullmatch(text) for text in texts]
    formats = {
        f"%Y-%m-%d{m['sep']}%H:%M:%S{m['mark'] + '%f' if m['mark'] else ''}{'%z' if m['zone'] else ''}"
        for m in local
        if m
    }
    if texts and all(local) and len(formats) == 1:
        return formats.pop()
    numbers = [float(text) for text in texts if re.fullmatch(r"\d{1,19}(?:\.\d{1,9})?", text)]
    fitting = [
        form
        for form, least, most in _UNIX
        if numbers and all(least <= number < most for number in numbers)
    ]
    return fitting[0] if fitting and len(numbers) == len(texts) else None


def _pairs(line: str) -> dict[str, str]:
    found = [*_PAIR.finditer(line)]
    told = sum(match.end() - match.start() for match in found)
    return (
        {match["key"]: match["quoted"] or match["plain"] or "" for match in found}
        if 10 * told > 8 * len(line.strip()) - 9
        else {}
    )
