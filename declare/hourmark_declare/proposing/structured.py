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
    """Yield the format of log files in which each line is a JSON object.

    The fields, their types and the source of the event time are inferred from the lines.

    Args:
        lines: Lines of a log file without line feeds.

    Yields:
        One candidate format; nothing if no line is a JSON object.
    """
    if rows := parse_json_objects(lines):
        more = {"name": _MORE, "type": {"type": "map", "values": "string"}}
        time = detect_time_settings(rows)
        fields = infer_fields(rows, excluded=[_MORE, time.get("time_field", "")])
        line = {"payload": "json", **time, "unknown": "keep", "unknown_field": _MORE}
        yield Candidate(form="JSON lines", line=line, fields=(*fields, more))


def logfmt_candidates(lines: Sequence[bytes]) -> Iterator[Candidate]:
    """Yield the format of log files with logfmt lines (`key=value key="value"`).

    The fields, their types and the source of the event time are inferred from the lines.

    Args:
        lines: Lines of a log file without line feeds.

    Yields:
        One candidate format; nothing if no line contains at least two pairs of key and value.
    """
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
    """Yield the format of log files with tab-separated columns.

    The columns are named `column_1`, `column_2` and so on. Their types, and the column that
    contains the event time, are inferred from the lines.

    Args:
        lines: Lines of a log file without line feeds.

    Yields:
        One candidate format; nothing if the most frequent number of columns is less than three.
    """
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
    """Return the settings that define where the event time comes from, for a type file.

    Args:
        rows: Values by key, one mapping for each line of a log file.

    Returns:
        Settings of the table `[line]`: `time_field` and `time_format` for the first key of
        `TIME_KEYS` that more than half of the rows contain in a known format. Otherwise `{"time":
        "observed"}`, which means the time of reading.
    """
    rows = [*rows]
    for key in TIME_KEYS:
        values = [row[key] for row in rows if key in row]
        if 2 * len(values) > len(rows) and (form := detect_time_format(values)) is not None:
            return {"time_field": key, "time_format": form}
    return {"time": "observed"}


def detect_time_format(values: Sequence[Any]) -> str | None:
    """Return the time format that all values match.

    Args:
        values: Texts or numbers.

    Returns:
        A value for the setting `time_format`: `rfc3339`, a `strptime` format, `unix`, `unix-ms`,
        `unix-us` or `unix-ns`. None if there is no common format or `values` is empty.
    """
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
