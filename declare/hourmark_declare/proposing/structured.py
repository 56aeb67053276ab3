"""Candidates for self-describing formats: JSON objects, nested JSON, and logfmt, also in syslog."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from hourmark_declare.proposing.candidate import MESSAGE, Candidate
from hourmark_declare.proposing.declared_keys import (
    Path,
    choose_keys,
    nested_host_field,
    nested_time,
)
from hourmark_declare.proposing.file_sample import FileSample, text_type
from hourmark_declare.proposing.hosts import choose_host_key
from hourmark_declare.proposing.nested_json import infer_nested_fields
from hourmark_declare.proposing.times.time_formats import choose_time_format
from hourmark_declare.proposing.value_types import (
    infer_fields,
    infer_text_type,
    optional_field,
    parse_json_objects,
)
from hourmark_declare.proposing.vocabulary import names_time, time_key_rank
from hourmark_delivery_service.parsing.forms import move_declared_keys
from hourmark_delivery_service.parsing.syslog.forms import parse_syslog_forms

_PAIR: Final = re.compile(
    r'(?<!\S)(?P<key>[\w.@/\[\]#$+-]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"]*))'
)
_MORE: Final = "more"
_MOST: Final = 0.9
_COERCED_MIN: Final = 10  # values, of which two differ, for a number in quotes to be one
_OBSERVED: Final = ("time", "observed")
_HEADER_FIELDS: Final = ("program", "pid")


def json_line_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format of a log file that consists of JSON objects.

    The fields, their types, the host and the event time are inferred from the sample. The time may
    be inside a nested object. An object may span several lines if the first of them begins with
    `{`.

    Args:
        sample: First and last lines of a log file.

    Yields:
        One candidate format. If only a list of objects contains a time, another format that
        captures this time with a regular expression is yielded first. Nothing if the sample
        contains no JSON objects.
    """
    rows, start, name = parse_json_objects(sample.lines), "", "JSON lines"
    if 2 * len(rows) < len(sample.lines) and (records := _joined_objects(sample.lines)):
        rows, start, name = parse_json_objects(records), r"^\{", "JSON objects of several lines"
    if not rows:
        return
    more = {"name": _MORE, "type": {"type": "map", "values": "string"}}
    time = detect_time_settings(rows, sample.written_ms)
    host = _host_key(rows)
    paths = choose_keys(rows, {_MORE, time.get("time_field", ""), host or ""})
    if time.get("time") == "observed":
        if (nested := nested_time(rows, paths, sample.written_ms)) is not None:
            time = {"time_field": nested[0], "time_format": nested[1]}
        elif not start:
            yield from _nested(sample)
    rows = [move_declared_keys(row, paths) for row in rows]
    host = host or nested_host_field(rows, paths)
    coerced = _numbers_in_quotes(rows, {time.get("time_field", ""), host or ""})
    fields = infer_fields(rows, excluded=[_MORE, time.get("time_field", ""), host or ""])
    fields = [optional_field(of["name"], coerced.get(of["name"], of["type"][1])) for of in fields]
    line: dict[str, Any] = {"payload": "json", **time, "unknown": "keep", "unknown_field": _MORE}
    line |= {"host_field": host} if host else {}
    line |= _keys_setting(paths, fields, {host, time.get("time_field")})
    chosen = [of["name"] for of in fields if of["name"] in coerced]
    line |= {"coerce": chosen} if chosen else {}
    yield Candidate(form=name, line=line, fields=(*fields, more), record_start=start)


def _keys_setting(
    paths: Mapping[str, Path], fields: Sequence[Mapping[str, Any]], others: Collection[str | None]
) -> dict[str, Any]:
    declared = {*others, *(field["name"] for field in fields)}
    keys = {
        name: path[0] if len(path) == 1 else [*path]
        for name, path in paths.items()
        if name in declared
    }
    return {"keys": keys} if keys else {}


def logfmt_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format of a log file with logfmt lines (`key=value key="value"`).

    The fields, their types, the host and the event time are inferred from the sample.

    Args:
        sample: First and last lines of a log file.

    Yields:
        One candidate format; nothing if at most half of the lines consist of key-value pairs.
    """
    rows = [row for line in sample.lines if len(row := _pairs(line.decode(errors="replace"))) > 1]
    if 2 * len(rows) <= sum(bool(line.strip()) for line in sample.lines):
        return
    time = detect_time_settings(rows, sample.written_ms)
    host = _host_key(rows)
    paths = choose_keys(rows, {_MORE, time.get("time_field", ""), host or ""})
    rows = [move_declared_keys(row, paths) for row in rows]
    columns = collections.defaultdict[str, list[str]](list)
    for row in rows:
        for key, value in row.items():
            columns[key].append(value)
    known = infer_fields(rows, excluded=[_MORE, time.get("time_field", ""), host or ""])
    fields = [optional_field(of["name"], infer_text_type(columns[of["name"]])) for of in known]
    more = {"name": _MORE, "type": {"type": "map", "values": "string"}}
    settings = {"unknown": "keep", "unknown_field": _MORE}
    settings |= {"host_field": host} if host else {}
    settings |= _keys_setting(paths, fields, {host})
    if time.get("time") == "observed" and _have_date_and_time(rows):
        line = {"payload": "logfmt", **settings}
        yield Candidate(form="logfmt", line=line, fields=(*fields, more), format="syslog")
    line = {"payload": "logfmt", **time, **settings}
    yield Candidate(form="logfmt", line=line, fields=(*fields, more))


def syslog_body_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield formats for lines that consist of a syslog header and JSON or logfmt.

    The event type has the fields of the message, and `program` and `pid` of the header. Time and
    host are those of the header unless the message has its own.

    Args:
        sample: First and last lines of a log file.

    Yields:
        Candidate formats. Nothing if less than 90% of the lines have a syslog header, or their
        messages are neither JSON objects nor logfmt.
    """
    lines = [line.rstrip(b"\r") for line in sample.lines if line.strip()][:1000]
    found = [parts for line in lines if (parts := parse_syslog_forms(line)) is not None]
    messages = [parts.message for parts in found]
    if len(found) < _MOST * len(lines) or len({*messages}) < 2:
        return
    inner = sample._replace(head=messages, tail=[])
    names = [
        name
        for name in _HEADER_FIELDS
        if any(getattr(parts.header, name) is not None for parts in found)
    ]
    for source in (json_line_candidates, logfmt_candidates):
        for candidate in source(inner):
            if candidate.record_start or candidate.line.get("payload") not in ("json", "logfmt"):
                continue
            taken = {field["name"] for field in candidate.fields}
            added = [name for name in names if name not in taken]
            line = {name: of for name, of in candidate.line.items() if (name, of) != _OBSERVED}
            yield dataclasses.replace(
                candidate,
                form=f"a system log of {candidate.form}",
                line={**line, "header": {name: name for name in added}},
                fields=(*(optional_field(name, "string") for name in added), *candidate.fields),
                format="syslog",
            )


def _have_date_and_time(rows: Sequence[Mapping[str, Any]]) -> bool:
    # Whether the time is in two keys, as firewalls write it: the format `syslog` reads these.
    both = sum({"date", "time"} <= row.keys() for row in rows)
    return both >= _MOST * len(rows)


def detect_time_settings(rows: Sequence[Mapping[str, Any]], written_ms: int = 0) -> dict[str, str]:
    """Detect the key that contains the event time, and return the corresponding settings.

    More than half of the rows must have the key, with values in a known time format. If there are
    several such keys, the one with the most likely name is selected, or else the first one. A key
    whose name does not indicate a time must contain different dates.

    Args:
        rows: Keys and values of each line of a log file.
        written_ms: Time of the file's last modification in Unix milliseconds; 0 if it is unknown.

    Returns:
        Settings for the declaration of an event type, such as `{"time_field": "ts", "time_format":
        "unix-ms"}`. If there is no such key, `{"time": "observed"}`: the event time is then the
        time at which a line is read.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    for key in sorted(keys, key=time_key_rank):
        values = [row[key] for row in rows if key in row]
        if 2 * len(values) <= len(rows) or any(isinstance(of, dict | list | bool) for of in values):
            continue
        if (form := detect_time_format(values, written_ms)) is None:
            continue
        if not names_time(key) and (
            form.startswith("unix") or len({*map(str, values)}) == 1 < len(values)
        ):
            continue
        return {"time_field": key, "time_format": form}
    return {"time": "observed"}


def detect_time_format(values: Sequence[Any], written_ms: int = 0) -> str | None:
    """Return the time format that matches all values.

    Args:
        values: Texts or numbers.
        written_ms: Time of the file's last modification in Unix milliseconds; 0 if it is unknown.

    Returns:
        A value for the setting `time_format`: `rfc3339`, a `strptime` format, `unix`, `unix-ms`,
        `unix-us` or `unix-ns`. None if there is no common format or `values` is empty.
    """
    choice = choose_time_format([str(value) for value in values], written_ms)
    return None if choice is None else choice.format


def _nested(sample: FileSample) -> Iterator[Candidate]:
    found = infer_nested_fields(sample.lines, sample.written_ms)
    if found is None:
        return
    line = {
        "payload": "pattern",
        "pattern": found.pattern,
        "time_field": "time",
        "time_format": found.time_format,
        "time": "observed",
        "field": MESSAGE,
    }
    line |= {"host_field": "host"} if found.has_host else {}
    fields = [optional_field(name, of) for name, of in found.types.items()]
    yield Candidate(
        form="JSON lines with the time within a list",
        line=line,
        fields=(*fields, optional_field(MESSAGE, text_type(sample))),
        catches_all=True,
    )


def _joined_objects(lines: Sequence[bytes]) -> list[bytes]:
    # Objects over several lines, each of which begins with `{` at the begin of a line.
    starts = [n for n, line in enumerate(lines) if line.startswith(b"{")]
    if not starts or len(starts) == len(lines):
        return []
    joined = [
        b"\n".join(lines[first:behind])
        for first, behind in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]
    return joined if 2 * len(parse_json_objects(joined)) > len(joined) else []


def _host_key(rows: Sequence[Mapping[str, Any]]) -> str | None:
    columns = collections.defaultdict[str, list[Any]](list)
    for row in rows:
        for key, value in row.items():
            columns[key].append(value)
    return choose_host_key(columns, len(rows))


def _numbers_in_quotes(rows: Sequence[Mapping[str, Any]], excluded: set[str]) -> dict[str, str]:
    columns = collections.defaultdict[str, list[Any]](list)
    for row in rows:
        for key, value in row.items():
            columns[key].append(value)
    found = {}
    for key, values in columns.items():
        texts = [value for value in values if isinstance(value, str)]
        if key in excluded or len(texts) < len(values) or len(texts) < _COERCED_MIN:
            continue
        of_type = infer_text_type(texts) if "" not in texts and "-" not in texts else "string"
        decimals = {len(text.partition(".")[2]) for text in texts}
        if len(decimals) > 1 and any("." in text and text.endswith("0") for text in texts):
            continue  # such as the versions 1.1 and 1.10
        if of_type in ("long", "double") and len(set(texts)) > 1:
            found[key] = of_type
    return found


def _pairs(line: str) -> dict[str, str]:
    found = [*_PAIR.finditer(line)]
    if 2 * sum((of["plain"] or "").endswith((",", ";")) for of in found) > len(found):
        return {}  # pairs of another form, as Postfix writes them
    covered = sum(match.end() - match.start() for match in found)
    return (
        {match["key"]: match["quoted"] or match["plain"] or "" for match in found}
        if 10 * covered > 8 * len(line.strip()) - 9
        else {}
    )
