"""What a tailer's source says of each of its events: names and texts that travel in the range, and are part of what it is.

Written in one way alone, so that equal fields are equal ranges: a JSON object, sorted by name, without spaces, and nothing
escaped that need not be. Bounded, as they come with every range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

FIELDS_MAX: Final = 32
FIELDS_BYTES_MAX: Final = 4000  # all of them, as written
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)  # as of fields of types


def range_fields(fields: Mapping[str, str]) -> str:
    """As the range has them; empty where there are none. ValueError says what is wrong."""
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"there are {len(fields)} fields, allowed are {FIELDS_MAX}")
    for name, value in fields.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"the field {name!r:.120}: allowed are up to 100 letters, digits and _, not beginning with a digit")
        if not isinstance(value, str):
            raise ValueError(f"the field {name} must be a text")
    written = json.dumps(dict(fields), ensure_ascii=False, separators=(",", ":"), sort_keys=True) if fields else ""
    if len(written.encode()) > FIELDS_BYTES_MAX:
        raise ValueError(f"the fields have {len(written.encode())} bytes together, allowed are {FIELDS_BYTES_MAX}")
    return written


def read_range_fields(written: str) -> dict[str, str]:
    """The inverse. ValueError if it is not written so."""
    if len(written.encode()) > FIELDS_BYTES_MAX:
        raise ValueError(f"the fields of a range must have at most {FIELDS_BYTES_MAX} bytes")
    try:
        read = json.loads(written) if written else {}
    except RecursionError as error:
        raise ValueError("the fields of a range must be a JSON object of texts") from error
    if not isinstance(read, dict) or range_fields(read) != written:
        raise ValueError("the fields of a range must be a JSON object of texts, sorted by name and without spaces")
    return read
