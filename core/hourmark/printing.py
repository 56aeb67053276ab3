"""What commands print: for programs, and of themselves."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import os
import shlex
from collections.abc import Mapping

import click

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, for programs.")


def called() -> str:
    """What is typed to run Hourmark, for a shell: its launcher says how it was called; where it is installed it has a name."""
    return shlex.quote(os.environ.get("HOURMARK_CALLED") or "hourmark")


def say_json(value: object) -> None:
    """One object, on one line of stdout."""
    click.echo(json.dumps(value))


def plain(value: object) -> object:  # one case for each kind of Avro value
    """An Avro value as JSON. Bytes are a string where they are UTF-8, otherwise {"base64": "…"} (lone surrogates would be lost
    in most JSON readers); times are ISO 8601; numbers that are not finite are strings.
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
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)  # decimals, dates, times of day, UUIDs


def _text(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
