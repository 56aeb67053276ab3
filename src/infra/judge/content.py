"""Whether an event holds the bytes of its line, by the rule of its type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.judge import rfc5424
from infra.judge.expectations import TypeExpectation


def content_fault(rule: TypeExpectation, event: Mapping[str, Any], line: bytes) -> str | None:
    """What differs between an event and its line (without the LF), or None."""
    if rule.content == "raw-line":
        return _bytes_fault(rule.field, event, line)
    parts = rfc5424.split(line)
    if parts is None:
        return "its line is no RFC 5424 line"
    if rule.content == "msg-bytes":
        return _bytes_fault(rule.field, event, parts.message)
    return _json_fault(event, parts.message)


def header_fault(event_type: str, host: str, time_ms: int, line: bytes) -> str | None:
    """What an event's type, host and time say otherwise than its RFC 5424 line, or None. Times are cut to milliseconds."""
    parts = rfc5424.split(line)
    if parts is None:
        return "its line is no RFC 5424 line"
    if parts.msgid != event_type:
        return f"its line is of type {parts.msgid}"
    if parts.host not in ("-", host):
        return f"its line is of the host {parts.host}, the event of {host}"
    if parts.time_ms is not None and parts.time_ms != time_ms:
        return f"its line has the time {parts.time_ms} ms, the event {time_ms} ms"
    return None


def _bytes_fault(field: str | None, event: Mapping[str, Any], expected: bytes) -> str | None:
    assert field is not None, "checked by TypeExpectation"
    held = event.get(field)
    if isinstance(held, str):
        held = held.encode()
    if held == expected:
        return None
    if not isinstance(held, bytes):
        return f"field {field} holds {type(held).__name__} and not the line's bytes"
    first = next((at for at, (a, b) in enumerate(zip(held, expected, strict=False)) if a != b), min(len(held), len(expected)))
    return f"field {field} differs from the line at byte {first} ({len(held)} bytes instead of {len(expected)})"


def _json_fault(event: Mapping[str, Any], message: bytes) -> str | None:
    try:
        document = json.loads(message)
    except ValueError:
        return "its line holds no JSON"
    if not isinstance(document, dict):
        return "its line holds no JSON object"
    for key, value in document.items():
        if key not in event or not _same(value, event[key]):
            return f"field {key} is {event.get(key)!r}, the line says {value!r}"
    return None


def _same(told: object, held: object) -> bool:
    if isinstance(told, bool) or isinstance(held, bool):
        return told is held
    if isinstance(told, str) and isinstance(held, bytes):
        return told.encode() == held
    return told == held
