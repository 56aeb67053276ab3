"""Proposes fields for keys that are no field names, and for values within nested JSON objects.

An Avro name has letters, digits and underscores only. The setting `keys` of an event type names the
key, such as `shard-id`, or the path of a nested value, such as `["http", "status"]`, that a field
is filled from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hourmark.avro.fields import FIELD_NAME
from hourmark.avro.framing import ENVELOPE_NAMES
from hourmark_declare.proposing.hosts import choose_host_key
from hourmark_declare.proposing.times.time_formats import choose_nested_time
from hourmark_declare.proposing.value_types import infer_json_type

_DEPTH_MAX: Final = 4
_MOST: Final = 0.9  # share of the rows that must have a nested time
_NESTED_MIN: Final = 0.1  # share of the rows that have a nested value
_COMMON_NAMES: Final = {  # of keys of the Elastic Common Schema and others, joined by dots
    "log.level": "level",
    "log.severity": "level",
    "severity.text": "level",
    "level.name": "level",
    "log.logger": "logger",
    "logger.name": "logger",
    "process.name": "program",
    "process.pid": "pid",
    "process.thread.name": "thread",
}

Path = tuple[str, ...]


def choose_keys(rows: Sequence[Mapping[str, Any]], excluded: set[str]) -> dict[str, Path]:
    """Choose the values of JSON objects that need a field name other than their key.

    These are values whose key is not a valid field name or is reserved, because every event has a
    field with this name. They are also nested values that at least 10% of the objects have. Lists,
    objects and values without a common type are not chosen.

    Args:
        rows: Keys and values of each line of a log file.
        excluded: Top-level keys to ignore.

    Returns:
        Maps the new field name of each chosen value to its path: one key, or the keys of nested
        objects. No field name is a key of `rows`.
    """
    values: dict[Path, list[Any]] = {}
    for row in rows:
        for path, value in _scalars(row):
            values.setdefault(path, []).append(value)
    names = {key for row in rows for key in row}
    chosen: dict[str, Path] = {}
    for path, of in values.items():
        is_name = len(path) == 1 and FIELD_NAME.fullmatch(path[0]) and path[0] not in ENVELOPE_NAMES
        if path[0] in excluded or is_name or infer_json_type(of) is None:
            continue
        if len(path) > 1 and len(of) < _NESTED_MIN * len(rows):
            continue
        name = _name(path, {*names, *chosen})
        if name is not None:
            chosen[name] = path
    return chosen


def nested_host_field(rows: Sequence[Mapping[str, Any]], paths: Mapping[str, Path]) -> str | None:
    """Return the field that contains a host name from a nested object, such as `host.name`.

    Args:
        rows: Keys and values of each line, after `move_declared_keys` moved the nested values.
        paths: Maps the field name of each moved value to its original path.

    Returns:
        The name of the field; None if less than 90% of the rows have a nested host name.
    """
    columns = {
        ".".join(path): [row[name] for row in rows if name in row]
        for name, path in paths.items()
        if len(path) > 1
    }
    key = choose_host_key(columns, len(rows), is_exact=True)
    return next((name for name, path in paths.items() if ".".join(path) == key), None)


def nested_time(
    rows: Sequence[Mapping[str, Any]], paths: Mapping[str, Path], written_ms: int
) -> tuple[str, str] | None:
    """Return the field and the format of the event time inside nested objects.

    At least 90% of the rows must have it, and one of its keys must indicate a time. A time that is
    the same in all rows is only selected if there is no other.

    Args:
        rows: Rows of which the values have not been moved.
        paths: Path of each value that may be the time, with the name of its field.
        written_ms: Time of the file's last modification in Unix milliseconds.

    Returns:
        The name and the time format; None if there is no such time.
    """
    names = {path: name for name, path in paths.items()}
    values: dict[Path, list[Any]] = {}
    for row in rows:
        for path, value in _scalars(row):
            if len(path) > 1 and path in names:
                values.setdefault(path, []).append(value)
    common = {path: of for path, of in values.items() if len(of) >= _MOST * len(rows)}
    if (found := choose_nested_time(common, written_ms)) is None:
        return None
    path, choice = found
    return names[path], choice.format


def _scalars(row: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            if len(path) + 1 < _DEPTH_MAX:
                yield from _scalars(value, (*path, key))
        elif not isinstance(value, list) and value is not None:
            yield (*path, key), value


def _name(path: Path, taken: set[str]) -> str | None:
    dotted = ".".join(path).lower()
    plain = re.sub(r"\W+", "_", "_".join(path), flags=re.ASCII).strip("_")
    for name in (_COMMON_NAMES.get(dotted, plain), plain, f"log_{plain}"):
        if FIELD_NAME.fullmatch(name) and name not in ENVELOPE_NAMES and name not in taken:
            return name
    return None
