"""What of a field never leaves the service: replaced before anything is encoded.

A pattern is matched on bytes (see `patterns`): in JSON, on each string within the field, after its escapes were read. Where a
replacement cuts a character of UTF-8 in two, what is left of it becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hourmark.line_rule import Redaction
from hourmark_delivery_service.parsing.patterns import Pattern

Redact = Callable[[Any], Any]  # of a text (bytes) or a JSON value


def redact_of(rules: Sequence[Redaction]) -> Redact:
    """All patterns of one field, in the order in which they were declared. ValueError if RE2 does not accept one."""
    patterns = [rule for rule in rules if rule.pattern is not None]
    replaced = [(Pattern(rule.pattern or "", "line.redact.pattern"), (rule.by or "").encode()) for rule in patterns]

    def of_text(text: bytes) -> bytes:
        changed = text
        for pattern, by in replaced:
            changed = pattern.replaced(changed, by)
        return changed if changed == text or not _is_utf8(text) else changed.decode(errors="replace").encode()

    def redact(value: Any) -> Any:
        if type(value) is bytes:
            return of_text(value)
        if type(value) is str:
            return of_text(value.encode()).decode()
        if type(value) is list:
            return [redact(item) for item in value]
        if type(value) is dict:
            return {key: redact(item) for key, item in value.items()}
        return value

    return redact


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
