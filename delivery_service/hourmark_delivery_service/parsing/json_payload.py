"""A payload that must be one JSON object (RFC 8259).

Nesting is bounded by a count of its own and not by the interpreter's stack, so that every instance
refuses the same lines. Of a name that occurs twice the last value wins. NaN and Infinity are no
JSON. Whitespace around it, a CR too, is allowed.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from hourmark.records.dead_letters import Reason
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.rfc5424 import BOM

DEPTH_MAX: Final = 64

_decode = msgspec.json.Decoder().decode
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def parse_json_object(payload: bytes) -> dict[str, Any]:
    """The object. Rejected with BAD_JSON or NOT_UTF8; a byte order mark before it is skipped."""
    if payload.startswith(BOM):
        payload = payload[len(BOM) :]
    if exceeds_nesting(payload, DEPTH_MAX):
        raise Rejected(Reason.BAD_JSON, f"nested deeper than {DEPTH_MAX} levels")
    try:
        value = _decode(payload)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise _refusal(payload, error) from None
    if type(value) is not dict:
        raise Rejected(
            Reason.BAD_JSON, f"the payload must be a JSON object, not {type(value).__name__}"
        )
    return value


def exceeds_nesting(payload: bytes, depth_max: int) -> bool:
    """Whether values stand within more than so many others; of what is no JSON either may be
    said.
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
            Reason.NOT_UTF8, f"the payload is not UTF-8: {wrong.reason} at byte {wrong.start}"
        )
    return Rejected(Reason.BAD_JSON, str(error))
