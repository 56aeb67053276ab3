"""Avro types of values that were seen: a first proposal, in which every field may be missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hourmark.avro.fields import FIELD_NAME
from hourmark.avro.framing import ENVELOPE_NAMES

FIELDS_MAX: Final = 100  # of one type: more are kept in a map
_LONGS: Final = range(-(1 << 63), 1 << 63)


def field(name: str, of: str) -> dict[str, Any]:
    """A field that may be missing."""
    return {"name": name, "type": ["null", of]}


def fields_of(rows: Iterable[Mapping[str, Any]], leave: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Fields for the keys of these rows, in the order of their first time; keys that can be none
    are left out.
    """
    values: dict[str, list[Any]] = {}
    for row in rows:
        for key, value in row.items():
            values.setdefault(key, []).append(value)
    usable = [
        key
        for key in values
        if FIELD_NAME.fullmatch(key) and key not in ENVELOPE_NAMES and key not in leave
    ]
    types = ((key, json_type(values[key])) for key in usable)
    return [field(key, of) for key, of in types if of is not None][:FIELDS_MAX]


def json_type(values: Iterable[Any]) -> str | None:
    """Of JSON's values; None where they are objects or lists, or of several kinds."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"long", "double"}:
        return "double"
    return kinds.pop() if len(kinds) == 1 else None


def text_type(values: Iterable[str]) -> str:
    """Of text, as logfmt and columns have it."""
    seen = [value for value in values if value not in ("", "-")]
    if seen and all(re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", value) for value in seen):
        return "long"
    if (
        seen
        and all(re.fullmatch(r"-?\d+(?:\.\d+)?", value) for value in seen)
        and any("." in value for value in seen)
    ):
        return "double"
    return "boolean" if seen and set(seen) <= {"true", "false"} else "string"


def objects(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Those lines that are JSON objects."""
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
