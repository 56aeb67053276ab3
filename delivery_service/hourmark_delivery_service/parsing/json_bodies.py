"""Conversion of JSON bodies to one event per line: an array, or one event over several lines.

A body that is not a single JSON value is not changed and is parsed line by line, so that one
invalid line does not affect the others. A line feed within a value becomes a space, which is
equivalent in JSON because strings cannot contain line feeds.
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
    """Convert a JSON array, or a JSON object that spans several lines, to one value per line.

    Args:
        body: Request body.

    Returns:
        Each element of the array, or the object, followed by a line feed. Any other body, such as
        NDJSON or invalid JSON, is returned unchanged.
    """
    text = body.removeprefix(BOM).strip(_WHITESPACE)
    if text[:1] == b"[":
        values = _values(text)
    elif text[:1] == b"{" and b"\n" in text:
        values = [text] if _is_value(text) else None
    else:
        values = None
    if values is None or exceeds_nesting(
        text, DEPTH_MAX + 1
    ):  # an explicit count, because the interpreter's stack may differ
        return body
    return b"".join(value.replace(b"\n", b" ") + b"\n" for value in values)


def _values(text: bytes) -> list[bytes] | None:
    try:
        return [bytes(value) for value in _array(text)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_value(text: bytes) -> bool:
    # Cheap for NDJSON: decoding stops after the first line.
    try:
        _value(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
