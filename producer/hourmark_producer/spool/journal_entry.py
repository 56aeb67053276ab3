"""An entry of systemd's journal as a line: JSON, with the fields that everybody asks for. Pure.

The form that is read is that of `journalctl --output=json`: strings, numbers of bytes where a value is no UTF-8, lists where a
field is there more than once, null where a value was too large. The line ends with the entry's cursor: from the last line on
disk the journal is read on.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

_NUMBERS: Final = (("priority", "PRIORITY"), ("pid", "_PID"))
_DIGITS_MAX: Final = 10  # a sender chooses PRIORITY freely; process ids have 7 digits
_NUMBER: Final = re.compile(r"(?:^|;)s=([0-9a-f]+);i=([0-9a-f]{1,16})(?:;|$)")
_CURSOR: Final = re.compile(rb'(?<!\\)"__CURSOR"\s*:\s*"([!#-\[\]-~]+)"')
_TEXTS: Final = (
    ("host", "_HOSTNAME"),
    ("unit", "_SYSTEMD_UNIT"),
    ("identifier", "SYSLOG_IDENTIFIER"),
    ("message", "MESSAGE"),
    ("cursor", "__CURSOR"),
)


def entry_line(entry: bytes) -> bytes:
    """With its newline. ValueError where it is no entry."""
    fields = json.loads(entry)
    if not isinstance(fields, dict) or not isinstance(fields.get("__CURSOR"), str):
        raise ValueError(f"no entry of a journal: {entry[:100]!r}")
    said: dict[str, Any] = {"time": _time(fields)}
    said |= {name: int(value) for name, field in _NUMBERS if _is_number(value := _text(fields.get(field)))}
    said |= {name: value for name, field in _TEXTS if (value := _text(fields.get(field)))}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n"


def cursor_of(line: bytes) -> str:
    """Of a line that `entry_line` made; ValueError."""
    return str(json.loads(line)["cursor"])


def number_of(cursor: str) -> tuple[str, int] | None:
    """Return the id of the sequence that an entry is of, and its number there; None where the cursor does not say.

    A cursor is what sd_journal_get_cursor(3) gives: `s=` the id, `i=` the number, both hexadecimal, then boot and times. Numbers
    of one sequence rise; another sequence begins where the journal is made again, as by a volatile one with each boot.
    """
    match = _NUMBER.search(cursor)
    return (match[1], int(match[2], 16)) if match else None


def cursor_within(parts: bytes) -> str:
    """Return the cursor in a part of an entry's JSON; empty where it is not there. Quotes within texts are escaped."""
    match = _CURSOR.search(parts)
    return match[1].decode() if match else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _time(fields: dict[str, Any]) -> str:
    """When the journal received it, to the microsecond."""
    micros = int(_text(fields.get("__REALTIME_TIMESTAMP")))
    at = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z"


def _text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(byte, int) for byte in value):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return value if isinstance(value, str) else ""
