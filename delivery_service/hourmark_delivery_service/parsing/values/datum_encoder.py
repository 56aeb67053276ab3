"""Encoding of a type's fields if the declaration contains more than their names.

It handles unknown keys, header parts, type coercion and redaction. `CompiledType` encodes types
that declare none of these.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from hourmark.avro.framing import put_long
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.rules.line_rule import SD_PARAM, LineRule, Redaction
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.header import SyslogHeader
from hourmark_delivery_service.parsing.values.patterns import LinePattern
from hourmark_delivery_service.parsing.values.primitives import (
    ENCODED_BYTES_MAX,
    Encoder,
    Mismatch,
    put_bytes,
)
from hourmark_delivery_service.parsing.values.text_values import TextEncoder

Redact = Callable[[Any], Any]  # of a text (bytes) or a JSON value


def redactor_for(rules: Sequence[Redaction]) -> Redact:
    """Return a function that removes secrets from the values of one field.

    The function takes text (as bytes) or a JSON value. It replaces all matches of the redaction
    patterns, also in strings nested in lists and objects, and returns the changed value.

    Args:
        rules: Redactions of the field, applied in order. A redaction without a pattern is ignored.

    Raises:
        ValueError: If RE2 does not accept a pattern.
    """
    patterns = [rule for rule in rules if rule.pattern is not None]
    replaced = [
        (LinePattern(rule.pattern or "", "line.redact.pattern"), (rule.by or "").encode())
        for rule in patterns
    ]

    def of_text(text: bytes) -> bytes:
        changed = text
        for pattern, by in replaced:
            changed = pattern.replace_all(changed, by)
        return (
            changed
            if changed == text or not _is_utf8(text)
            else changed.decode(errors="replace").encode()
        )

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


_ABSENT: Final = object()
_Header = Mapping[str, Any]  # by field: texts, or a map of them


class FieldEncoder(Protocol):
    """Interface of the encoders and the default value of one field of an event type.

    Attributes:
        name: Name of the field.
        encode: Function that appends the Avro encoding of a JSON value to a bytearray. It raises
            `Mismatch` if the value does not match the type of the field.
        encode_text: Function that does the same for a text value, given as bytes.
        default: Encoded default value, or None if the field has no default.
        absent: Encoding of a missing text value: the default, or null if the type allows it. None
            if the value is required.
    """

    name: str
    encode: Encoder
    encode_text: TextEncoder
    default: bytes | None
    absent: bytes | None


class DatumEncoder:
    """An Avro encoder for event types that use additional parsing options, such as redaction.

    The options include ignoring or keeping unknown keys, filling fields from the syslog header,
    converting strings to the type of the field, and redaction.

    Args:
        event_type: Name of the type.
        fields: The type's own fields.
        rule: Parsing rule of the type.

    Raises:
        ValueError: If the whole value of a field is redacted, but the field has neither a
            replacement nor a default and cannot be null.
    """

    def __init__(self, event_type: str, fields: Sequence[FieldEncoder], rule: LineRule) -> None:
        self._type, self._fields, self._rule = event_type, fields, rule
        self._coerced = frozenset(rule.coerce)
        self._own = frozenset(field.name for field in fields if field.name != rule.unknown_field)
        self._redacts: dict[str, Redact] = {}
        self._replaced: dict[str, bytes] = {}  # whole values
        for field in fields:
            rules = [redaction for redaction in rule.redact if redaction.field == field.name]
            if whole := next((redaction for redaction in rules if redaction.pattern is None), None):
                self._replaced[field.name] = _replacement(field, whole.by)
            elif rules:
                self._redacts[field.name] = redactor_for(rules)

    def with_fields(self, fields: Sequence[FieldEncoder]) -> DatumEncoder:
        """Return a copy of this encoder with other field encoders and default values.

        Args:
            fields: New fields, with the same names in the same order as the current ones.
        """
        other = copy.copy(self)
        other._fields = fields
        return other

    def encode(
        self, values: Mapping[str, Any], header: _Header | None = None, *, nulls: bool = False
    ) -> bytearray:
        """Encode the fields of an event type as Avro.

        Args:
            values: Maps keys to values: text as bytes, or JSON values.
            header: Result of `header_values`: values of fields that are filled from the syslog
                header. These fields are not taken from `values`. None if the line has no header.
            nulls: Whether to encode a missing field without a default as null if its type allows
                it. If false, this applies only to fields that are filled from the syslog header;
                any other missing field without a default raises `Rejected`.

        Returns:
            The encoded fields, without the envelope (the fields that all types share).

        Raises:
            Rejected: If a field is missing, unknown or invalid. The error names the field.
        """
        own = self._own if header is None else self._own - self._rule.header.keys()
        unknown = (
            {name: value for name, value in values.items() if name not in own}
            if values.keys() - own
            else {}
        )
        if unknown and self._rule.unknown == "refuse":
            names = ", ".join(sorted(unknown))[:200]
            raise Rejected(
                DeadLetterReason.UNKNOWN_FIELD,
                f"{self._type} has no field {names}",
                self._type,
                key=min(unknown),
            )
        out = bytearray()
        for field in self._fields:
            name = field.name
            if name == self._rule.unknown_field:
                value: Any = {key: _kept(item) for key, item in unknown.items()}
            elif header is not None and name in self._rule.header:
                value = header.get(name, _ABSENT)
            else:
                value = values.get(name, _ABSENT)
            if value is _ABSENT:
                self._put_absent(field, out, nulls=nulls or name in self._rule.header)
            else:
                self._put(field, value, out)
            if len(out) > ENCODED_BYTES_MAX:
                del out[ENCODED_BYTES_MAX:]
        return out

    def header_values(self, header: SyslogHeader) -> _Header:
        """Return the values of the fields that are filled from the syslog header.

        Args:
            header: Syslog header of the line.

        Returns:
            Values by field name. Fields whose header part is absent are omitted.
        """
        params = header.structured_data_params() if header.structured_data is not None else {}
        found: dict[str, Any] = {}
        for field, part in self._rule.header.items():
            if part == "structured_data":
                found[field] = params
            else:
                param = SD_PARAM.fullmatch(part)
                found[field] = (
                    params.get(f"{param[1]} {param[2]}".encode())
                    if param is not None
                    else header.text_of(part)
                )
        return {field: value for field, value in found.items() if value is not None}

    def _put(self, field: FieldEncoder, value: Any, out: bytearray) -> None:
        name = field.name
        if name in self._replaced:
            out += self._replaced[name]
            return
        if name in self._redacts:
            value = self._redacts[name](value)
        try:
            if type(value) is bytes:
                field.encode_text(value, out)
            elif type(value) is str and name in self._coerced:
                field.encode_text(value.encode(), out)
            elif (
                name == self._rule.unknown_field or self._rule.header.get(name) == "structured_data"
            ):
                _put_map(value, out)
            else:
                field.encode(value, out)
        except Mismatch as error:
            raise Rejected(
                error.reason, f"the field {name}{error.suffix}", self._type, name
            ) from None

    def _put_absent(self, field: FieldEncoder, out: bytearray, *, nulls: bool) -> None:
        absent = field.absent if nulls else field.default
        if absent is None:
            raise Rejected(
                DeadLetterReason.MISSING_FIELD,
                f"the field {field.name} is missing",
                self._type,
                field.name,
            )
        out += absent


def _replacement(field: FieldEncoder, by: str | None) -> bytes:
    out = bytearray()
    if by is not None:
        try:
            field.encode_text(by.encode(), out)
        except Mismatch as error:
            raise ValueError(
                f"line.redact: {by!r}, which stands for the field {field.name}, {error}"
            ) from None
    elif field.absent is None:
        raise ValueError(
            f"line.redact: the field {field.name} has no default and cannot be null; say "
            "what stands for it, `by`"
        )
    else:
        out += field.absent
    return bytes(out)


def _kept(value: Any) -> Any:
    if type(value) in (bytes, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _put_map(texts: Mapping[Any, Any], out: bytearray) -> None:
    if texts:
        put_long(len(texts), out)
        for key, text in texts.items():
            put_bytes(key if type(key) is bytes else key.encode(), out)
            raw = text if type(text) is bytes else text.encode()
            try:
                raw.decode()
            except UnicodeDecodeError:
                raise Mismatch("holds what is not UTF-8", DeadLetterReason.NOT_UTF8) from None
            put_bytes(raw, out)
    out.append(0)
