"""Parsing of a payload that must be one JSON object (RFC 8259).

The nesting depth is limited by an explicit count and not by the interpreter's stack, so that every
instance rejects the same lines. The last of repeated names wins. NaN and Infinity are invalid.
Surrounding whitespace, including CR, is allowed.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from hourmark.records.dead_letters import DeadLetterReason
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.rfc5424 import BOM

DEPTH_MAX: Final = 64

_decode = msgspec.json.Decoder().decode
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def parse_json_object(payload: bytes) -> dict[str, Any]:
    """Parse a payload that must be a single JSON object.

    A leading byte order mark is skipped. If a name is repeated, its last value is used.

    Args:
        payload: JSON text in UTF-8.

    Raises:
        Rejected: If the payload is not valid UTF-8, not valid JSON, not an object, or nested deeper
            than 64 levels.
    """
    if payload.startswith(BOM):
        payload = payload[len(BOM) :]
    if exceeds_nesting(payload, DEPTH_MAX):
        raise Rejected(DeadLetterReason.BAD_JSON, f"nested deeper than {DEPTH_MAX} levels")
    try:
        value = _decode(payload)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise _refusal(payload, error) from None
    if type(value) is not dict:
        raise Rejected(
            DeadLetterReason.BAD_JSON,
            f"the payload must be a JSON object, not {type(value).__name__}",
        )
    return value


def exceeds_nesting(payload: bytes, depth_max: int) -> bool:
    """Return whether arrays and objects in a JSON document are nested too deeply.

    The result is undefined if the document is not valid JSON.

    Args:
        payload: JSON text.
        depth_max: Maximum number of nested levels.
    """
    if payload.count(b"[") + payload.count(b"{") <= depth_max:
        return False
    depth = 0
    for match in _BRACKETS.finditer(payload):
        first = match[0][:1]
        if first in b"[{":
            depth += 1
            if depth > depth_max:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _refusal(payload: bytes, error: Exception) -> Rejected:
    try:
        payload.decode()
    except UnicodeDecodeError as wrong:
        return Rejected(
            DeadLetterReason.NOT_UTF8,
            f"the payload is not UTF-8: {wrong.reason} at byte {wrong.start}",
        )
    return Rejected(DeadLetterReason.BAD_JSON, str(error))
