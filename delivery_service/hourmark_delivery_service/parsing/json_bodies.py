"""Bodies that are one JSON value, as one event a line: an array of events, or one event, written
over several lines.

What no JSON value is stays as it came, and is read line by line: one bad line must not cost the
others. A line feed within a value becomes a space, which says the same in JSON: its strings have
none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hourmark_delivery_service.parsing.json_payload import DEPTH_MAX, exceeds_nesting
from hourmark_delivery_service.parsing.syslog.rfc5424 import BOM

_WHITESPACE: Final = b" \t\r\n"
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder(msgspec.Raw).decode


def json_body_to_lines(body: bytes) -> bytes:
    """The body, an event a line; equal bodies give equal ones."""
    text = body.removeprefix(BOM).strip(_WHITESPACE)
    if text[:1] == b"[":
        values = _values(text)
    elif text[:1] == b"{" and b"\n" in text:
        values = [text] if _is_value(text) else None
    else:
        values = None
    if values is None or exceeds_nesting(
        text, DEPTH_MAX + 1
    ):  # told by a count of its own: the interpreter's stack may differ
        return body
    return b"".join(value.replace(b"\n", b" ") + b"\n" for value in values)


def _values(text: bytes) -> list[bytes] | None:
    try:
        return [bytes(value) for value in _array(text)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_value(text: bytes) -> bool:
    """Cheap where a second line follows a first that is one: it ends there."""
    try:
        _value(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
