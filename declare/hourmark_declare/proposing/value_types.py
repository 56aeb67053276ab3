"""Infers Avro types from sample values; every field is optional."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hourmark.avro.fields import FIELD_NAME
from hourmark.avro.framing import ENVELOPE_NAMES

FIELDS_MAX: Final = 100  # fields of one type; others are kept in a map
_LONGS: Final = range(-(1 << 63), 1 << 63)
# Regular expressions for the texts of numbers that `infer_text_type` recognizes.
NUMBER_PATTERNS: Final[Mapping[str, str]] = {
    "long": r"[+-]?\d+",
    "double": r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?",
}


def optional_field(name: str, avro_type: str) -> dict[str, Any]:
    """Return the declaration of a nullable Avro field.

    Args:
        name: Name of the field.
        avro_type: Name of the Avro type, such as `long`.

    Returns:
        A dict such as `{"name": "size", "type": ["null", "long"]}`.
    """
    return {"name": name, "type": ["null", avro_type]}


def infer_fields(
    rows: Iterable[Mapping[str, Any]], excluded: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Infer nullable Avro fields for the keys of sample rows, in order of first occurrence.

    A key is omitted if it is not a valid field name, if its values have no common type, or if it is
    the name of a field that every event has, such as the event id.

    Args:
        rows: Keys and values of each line.
        excluded: Keys to omit.

    Returns:
        At most 100 fields, as returned by `optional_field`.
    """
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    usable = [
        key
        for key in values
        if FIELD_NAME.fullmatch(key) and key not in ENVELOPE_NAMES and key not in excluded
    ]
    types = ((key, infer_json_type(values[key])) for key in usable)
    return [optional_field(key, of) for key, of in types if of is not None][:FIELDS_MAX]


def infer_json_type(values: Iterable[Any]) -> str | None:
    """Infer the Avro type of JSON values.

    Args:
        values: Decoded JSON values. None is ignored.

    Returns:
        `boolean`, `long`, `double` or `string`; `double` if only some of the numbers are integers.
        None if the values are objects or lists, have different types, or are all None.
    """
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"long", "double"}:
        return "double"
    return kinds.pop() if len(kinds) == 1 else None


def infer_text_type(values: Iterable[str]) -> str:
    """Infer the Avro type of text values.

    Args:
        values: Texts. Empty texts and `-` are ignored.

    Returns:
        `long`, `double` or `boolean` if all values have this type; otherwise `string`.
    """
    seen = [value for value in values if value not in ("", "-")]
    if seen and all(re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", value) for value in seen):
        return "long"
    if (
        seen
        and all(re.fullmatch(r"-?\d+(?:\.\d+(?:[eE][+-]?\d+)?)?", value) for value in seen)
        and any("." in value for value in seen)
    ):
        return "double"
    return "boolean" if seen and set(seen) <= {"true", "false"} else "string"


def parse_json_objects(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Decode the lines that contain a JSON object.

    Lines that are not valid JSON, or contain another JSON value, are skipped.

    Args:
        lines: Lines of a log file.

    Returns:
        The decoded objects in the order of the lines; empty if there are none.
    """
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _kind(value: object) -> str | None:
    match value:
        case bool():
            return "boolean"
        case int():
            return "long" if value in _LONGS else None
        case float():
            return "double"
        case str():
            return "string"
        case _:
            return None
