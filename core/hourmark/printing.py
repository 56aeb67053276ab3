"""Helpers for the output of commands, for people and for programs."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import click

# C0 and C1 controls, Unicode line separators, and surrogates (os.fsdecode produces them for bytes
# that are not UTF-8)
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON to stdout, for programs."
)


def launcher_command() -> str:
    """Return the command that the user ran to start Hourmark, quoted for a shell.

    Messages use it to suggest commands that the user can copy.

    Returns:
        The value of `$HOURMARK_CALLED`, which is set by the launcher script. `hourmark` if the
        variable is not set.
    """
    return shlex.quote(os.environ.get("HOURMARK_CALLED") or "hourmark")


def name_some(names: Sequence[object], most: int = 3) -> str:
    """Format a list of names for a message, such as `a, b, c and 2 more`.

    Args:
        names: The names, in output order.
        most: Maximum number of names to list. The remaining names are only counted.
    """
    more = len(names) - most
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {more} more" if more > 0 else shown


def cut_text(text: str, length_max: int) -> str:
    """Truncate a text to a maximum length, for one line of a table or report.

    Args:
        text: Text of one line.
        length_max: Maximum number of characters to keep.

    Returns:
        The text if it is short enough. Otherwise its beginning, followed by ` …`. The text is cut
        at the end of a word, unless this would remove more than half of `length_max`.
    """
    if len(text) <= length_max:
        return text
    words = text[: length_max + 1].rpartition(" ")[0].rstrip(" ,;:(")
    kept = words if len(words) >= length_max // 2 else text[:length_max]
    return f"{kept} …"


def printable(text: str) -> str:
    r"""Escape a string so that it can be printed on one line of a terminal or log.

    Control characters, line separators and surrogates are replaced with Python escape sequences,
    such as `\n`. A byte that was not valid UTF-8 becomes `\xNN`.

    Args:
        text: Any string, including one that was decoded with `surrogateescape`.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else repr(match[0])[1:-1]


def print_json(value: object) -> None:
    """Print a value to stdout as JSON on one line, for commands with the option `--json`.

    Args:
        value: A value that `json.dumps` accepts.

    Raises:
        TypeError: The value cannot be represented in JSON.
    """
    click.echo(json.dumps(value))


def to_json_value(value: object) -> object:  # one case for each kind of Avro value
    """Convert a decoded Avro value into a value that `json.dumps` accepts.

    Bytes become a string if they are valid UTF-8, otherwise `{"base64": "…"}`. Timestamps become
    ISO 8601 strings with milliseconds. Infinity, NaN, decimals, dates and UUIDs become strings.
    Records, maps and arrays are converted recursively.

    Args:
        value: A value as returned by fastavro.
    """
    match value:
        case bytes():
            return _text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case dt.datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Mapping():
            return {str(name): to_json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [to_json_value(item) for item in value]
        case _:
            return str(value)  # decimals, dates, times of day, UUIDs


def _text(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
