"""Conversion of settings to TOML text, for files that commands write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def render_toml(settings: Mapping[str, Any], prefix: str = "") -> str:
    """Format settings as a TOML document.

    Mappings become tables, and lists of mappings become arrays of tables. Values nested in an array
    are written inline.

    Args:
        settings: Settings by name. Values must be strings, numbers, booleans, lists or mappings.
        prefix: Dotted name of the enclosing table with a trailing dot; empty for the root.

    Returns:
        The text of the document, which ends with a line feed; empty if there are no settings.
    """
    scalars = {name: value for name, value in settings.items() if not _is_table(value)}
    text = f"\n[{prefix[:-1]}]\n" if prefix and scalars else ""
    text += "".join(f"{_key(name)} = {toml_value(value)}\n" for name, value in scalars.items())
    for name, value in settings.items():
        if isinstance(value, Mapping):
            text += render_toml(value, f"{prefix}{_key(name)}.")
        elif _is_table(value):
            text += "".join(f"\n[[{prefix}{_key(name)}]]\n{_rows(row)}" for row in value)
    return text


def toml_value(value: object) -> str:
    """Format a value as TOML on one line.

    Strings that contain backslashes, such as regular expressions, are written as literal strings
    (in single quotes) if TOML permits it.

    Args:
        value: A string, number, boolean, or a list, tuple or mapping of such values. None and
            dates are not supported.

    Raises:
        TypeError: The value or a nested one is of a type that JSON cannot represent.
    """
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{_key(name)} = {toml_value(item)}" for name, item in value.items())
            + " }"
            if value
            else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str) and "\\" in value and re.fullmatch(r"[^'\x00-\x1f\x7f]*", value):
        return f"'{value}'"
    # A JSON string or number is valid TOML if DEL is escaped, which JSON does not do.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _rows(row: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {toml_value(value)}\n" for name, value in row.items())


def _key(name: str) -> str:
    # Quoted if necessary: `spark.driver.memory` is one key, not three tables.
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    )
