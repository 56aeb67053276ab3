"""Candidates for the line protocol of InfluxDB: a measurement, tags, fields and a time.

A line such as `disk,host=web-1,path=/var used=512i,free=1.5 1795237631000000000` has the tags of its
series before the first space, and the fields behind it. Which keys a line has depends on its
measurement, so each is optional in the pattern. The whole line is kept as message.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hourmark_declare.proposing.candidate import MESSAGE, Candidate
from hourmark_declare.proposing.file_sample import FileSample, allow_trailing_cr, text_type
from hourmark_declare.proposing.hosts import choose_host_key, host_rank
from hourmark_declare.proposing.lines.key_parts import keys_in_order
from hourmark_declare.proposing.tables.column_names import unique_names
from hourmark_declare.proposing.times.time_formats import choose_time_format
from hourmark_declare.proposing.value_types import (
    FIELDS_MAX,
    NUMBER_PATTERNS,
    infer_text_type,
    optional_field,
)
from hourmark_declare.proposing.vocabulary import quote_pattern

_MOST: Final = 0.9
_NAME: Final = r"(?:[^\s,=\\]|\\.)+"
_TAG_VALUE: Final = r"(?:[^\s,\\]|\\.)+"
_FIELD_VALUE: Final = r'(?:"(?:[^"\\]|\\.)*"|[^\s,"]+)'
_TAG: Final = f",{_NAME}={_TAG_VALUE}"
_FIELD: Final = f"{_NAME}={_FIELD_VALUE}"
_LINE: Final = re.compile(
    rf"(?P<measurement>{_NAME})(?P<tags>(?:{_TAG})*) (?P<fields>{_FIELD}(?:,{_FIELD})*) (?P<time>\d+)\r?"
)
_TAG_PAIR: Final = re.compile(f",({_NAME})=({_TAG_VALUE})")
_FIELD_PAIR: Final = re.compile(f"({_NAME})=({_FIELD_VALUE})")


class _Pairs(NamedTuple):
    keys: list[str]  # in the order that all lines have
    values: dict[str, list[str]]  # of each key


def line_protocol_candidates(sample: FileSample) -> Iterator[Candidate]:
    """Yield the format of a log file in the line protocol of InfluxDB.

    There is a field for each tag and each field of the lines; numbers are declared as such.

    Args:
        sample: First and last lines of a log file.

    Yields:
        One candidate format; nothing if less than 90% of the lines have a measurement, fields and a
        time, if there are too many keys, or if lines differ in the order of their keys.
    """
    lines = [line.decode(errors="replace") for line in sample.lines if line.strip()]
    found = [match for line in lines if (match := _LINE.fullmatch(line)) is not None]
    if not found or len(found) < _MOST * len(lines):
        return
    choice = choose_time_format([match["time"] for match in found], sample.written_ms)
    tags = _collected([_TAG_PAIR.findall(match["tags"]) for match in found])
    values = _collected([_FIELD_PAIR.findall(match["fields"]) for match in found])
    if choice is None or not values.keys or len(tags.keys) + len(values.keys) >= FIELDS_MAX:
        return
    named = {key: of for key, of in tags.values.items() if host_rank(key) is not None}
    host = choose_host_key(named, len(found), is_exact=True)
    names = unique_names(["measurement", *tags.keys, *values.keys])
    names = [_unlike_host(name) for name in names]
    if host is not None:
        names[1 + tags.keys.index(host)] = "host"
    types = ["string", *(["string"] * len(tags.keys)), *map(_type_of, values.values.values())]
    pattern = rf"(?P<measurement>{_NAME})"
    for key, name in zip(tags.keys, names[1:], strict=False):
        pattern += f"(?:,{quote_pattern(key)}=(?P<{name}>{_TAG_VALUE}))?"
    pattern += f"(?:{_TAG})* "
    for number, key in enumerate(values.keys, 1 + len(tags.keys)):
        pattern += f"(?:{quote_pattern(key)}={_value(names[number], types[number])},?)?"
    pattern += rf"(?:{_FIELD},?)* (?P<time>{choice.pattern})"
    line = {
        "payload": "pattern",
        "pattern": allow_trailing_cr(f"(?P<{MESSAGE}>{pattern})", sample),
        "time_field": "time",
        "time_format": choice.format,
        "time": "observed",
        "field": MESSAGE,
    }
    line |= {"host_field": "host"} if host is not None else {}
    fields = [
        optional_field(name, of) for name, of in zip(names, types, strict=True) if name != "host"
    ]
    yield Candidate(
        form="lines of the InfluxDB line protocol",
        line=line,
        fields=(*fields, optional_field(MESSAGE, text_type(sample))),
        catches_all=True,
    )


def _collected(rows: Sequence[Sequence[tuple[str, str]]]) -> _Pairs:
    values = collections.defaultdict[str, list[str]](list)
    for row in rows:
        for key, value in row:
            values[key].append(value)
    keys = keys_in_order([[key for key, _ in row] for row in rows])
    return _Pairs(keys, {key: values[key] for key in keys})


def _unlike_host(name: str) -> str:
    return f"log_{name}" if name in ("host", "time", MESSAGE) else name


def _type_of(values: Sequence[str]) -> str:
    # Whole numbers end with `i` or `u`.
    of_type = infer_text_type([re.sub(r"(?<=\d)[iu]$", "", value) for value in values])
    return of_type if of_type in NUMBER_PATTERNS else "string"


def _value(name: str, of_type: str) -> str:
    if (number := NUMBER_PATTERNS.get(of_type)) is not None:
        return f"(?P<{name}>{number})[iu]?"
    return rf'(?:"(?P<{name}>(?:[^"\\]|\\.)*)"|[^\s,"]+)'
