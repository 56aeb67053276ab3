"""Infers a pattern that captures a time and other values from JSON objects with the same structure.

The payload `json` can read a time from nested objects, but not from a list. If the time is within a
list, as in logs of OpenTelemetry, a regular expression captures it from the text of the line,
together with values that nearly all lines have in the same order. The whole line is kept as message.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from hourmark.avro.fields import FIELD_NAME
from hourmark.avro.framing import ENVELOPE_NAMES
from hourmark_declare.proposing.candidate import MESSAGE
from hourmark_declare.proposing.hosts import choose_host_key
from hourmark_declare.proposing.times.time_formats import TimeChoice, choose_nested_time
from hourmark_declare.proposing.value_types import infer_json_type, parse_json_objects
from hourmark_declare.proposing.vocabulary import (
    LEVEL_KEYS,
    PROGRAM_KEYS,
    quote_pattern,
)

_MOST: Final = 0.9
_DEPTH_MAX: Final = 8
_FIELDS_MAX: Final = 30
_VALUES: Final = {
    "long": r"(?P<{}>-?\d+)",
    "double": r"(?P<{}>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)",
    "boolean": "(?P<{}>true|false)",
    "string": r'"(?P<{}>(?:[^"\\]|\\.)*)"',
}

Path = tuple[str, ...]


class NestedFields(NamedTuple):
    """A regular expression that captures values from nested JSON objects, and the captured fields.

    For lines such as `{"log": {"ts": 1795237631, "level": "info"}}`, the groups capture the time
    and the level from the nested object.

    Attributes:
        pattern: Regular expression for a whole line. It has the group `time`, the group `message`
            for the whole line, and one group for each other field.
        time_format: Format of the group `time`: a `strptime` format, `rfc3339`, or `unix`,
            `unix-ms`, `unix-us` or `unix-ns`.
        types: Maps the name of each other group to its Avro type, in order.
        has_host: Whether there is also a group `host`.
    """

    pattern: str
    time_format: str
    types: dict[str, str]
    has_host: bool = False


def infer_nested_fields(lines: Sequence[bytes], written_ms: int) -> NestedFields | None:
    """Infer a regular expression for JSON lines whose timestamp is inside a list.

    The setting `keys` of an event type only names keys of objects. Lines with a time inside a list
    are therefore parsed as text, with a regular expression that captures the time and other values.

    Args:
        lines: Lines of a log file. Lines that are not JSON objects are ignored.
        written_ms: Time of the file's last modification in Unix milliseconds.

    Returns:
        The regular expression and its fields. None if less than 90% of the objects contain a
        timestamp at the same nested key.
    """
    rows = parse_json_objects(lines)
    found: dict[Path, list[Any]] = collections.defaultdict(list)
    order: dict[Path, list[int]] = collections.defaultdict(list)
    for row in rows:
        for number, (path, value) in enumerate(_scalars(row)):
            found[path].append(value)
            order[path].append(number)
    least = _MOST * len(rows)
    common = {path for path, values in found.items() if len(values) >= least}
    time = choose_nested_time({path: found[path] for path in common}, written_ms)
    if time is None:
        return None
    time_path, choice = time
    chosen = [path for path in common if path == time_path or _is_field(path)]
    ordered = sorted(chosen, key=lambda path: sum(order[path]) / len(order[path]))
    return _pattern(ordered, found, time_path, choice)


def _scalars(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    # Values in the order of the text, with their keys; of a list the first element.
    if isinstance(value, dict) and len(path) < _DEPTH_MAX:
        for key, inner in value.items():
            yield from _scalars(inner, (*path, key))
    elif isinstance(value, list):
        if value:
            yield from _scalars(value[0], path)
    elif not isinstance(value, dict):
        yield path, value


def _is_field(path: Path) -> bool:
    name = _field_name(path)
    return (
        len(path) == 1 or path[-1].lower() in LEVEL_KEYS or name.lower() in PROGRAM_KEYS
    ) and FIELD_NAME.fullmatch(name) is not None


def _field_name(path: Path) -> str:
    name = path[-1] if path[-1] != "name" or len(path) == 1 else f"{path[-2]}_name"
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return f"log_{plain}" if plain in ENVELOPE_NAMES or plain in ("time", MESSAGE) else plain


def _pattern(
    paths: Sequence[Path], found: dict[Path, list[Any]], time_path: Path, choice: TimeChoice
) -> NestedFields | None:
    text, types = r"\{", dict[str, str]()
    columns = {".".join(path): found[path] for path in paths}
    host = choose_host_key(columns, 1, is_exact=True)
    before: Path = ()
    for path in paths:
        of_type = infer_json_type(found[path])
        name = "time" if path == time_path else _field_name(path)
        if of_type is None or name in types or len(types) >= _FIELDS_MAX:
            if path == time_path:
                return None
            continue
        keys = "".join(f".*?{_quoted(key)}:[ ]?" for key in _new_keys(before, path)).removesuffix(
            "[ ]?"
        )
        if path == time_path:
            value = f'"?(?P<time>{choice.pattern})"?'
        elif ".".join(path) == host:
            value = _VALUES["string"].format("host")
        else:
            value = _VALUES[of_type].format(name)
            types[name] = of_type
        text += f"{keys}[ ]?{value}"
        before = path
    return NestedFields(f"(?P<{MESSAGE}>{text}.*)", choice.format, types, host is not None)


def _new_keys(before: Path, path: Path) -> Path:
    # The keys of a path that differ from the path before, and always the last.
    same = 0
    while same < min(len(before), len(path)) - 1 and before[same] == path[same]:
        same += 1
    return path[same:]


def _quoted(key: str) -> str:
    return quote_pattern(json.dumps(key, ensure_ascii=False))
