"""An entry of systemd's journal as a line: JSON, with the fields that everybody asks for. Pure.

The form that is read is that of `journalctl --output=json`: strings, numbers of bytes where a value is no UTF-8, lists where a
field is there more than once, null where a value was too large. The line ends with the entry's cursor: from the last line on
disk the journal is read on.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

_NUMBERS: Final = (("priority", "PRIORITY"), ("pid", "_PID"))
_DIGITS_MAX: Final = 10  # a sender chooses PRIORITY freely; process ids have 7 digits
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
