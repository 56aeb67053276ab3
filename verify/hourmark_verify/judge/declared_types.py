"""A declared type, as the judge reads it: what a message says by name, and which fields that makes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import fastavro

from hourmark_verify.judge import payload_formats
from hourmark_verify.judge.expectations import TypeExpectation
from hourmark_verify.judge.syslog_headers import ParsedHeader
from hourmark_verify.judge.values import (
    LineRejected,
    from_json,
    from_text,
    record_from_json,
    strip_annotations,
)

_DEPTH_MAX: Final = 64  # of a payload's brackets
_BOM: Final = b"\xef\xbb\xbf"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


class DeclaredType:
    """A declared type."""

    def __init__(self, name: str, rule: TypeExpectation, tailer_fields: Mapping[str, str]) -> None:
        """`defaults`: what the tailer says of every event."""
        self.name, self.rule, self._tailer_fields = name, rule, tailer_fields
        self._named_types: dict[str, Any] = {}
        fields = rule.fields or [{"name": rule.field, "type": "bytes"}]
        self._plain = strip_annotations(fields)
        schema: Any = fastavro.parse_schema(
            {"type": "record", "name": "own", "fields": fields}, named_schemas=self._named_types
        )
        self._fields = schema["fields"]
        self._pattern = re.compile(rule.pattern.encode()) if rule.pattern is not None else None

    def has_fields(self, fields: list[Any]) -> bool:
        """Whether these, below logical types, are its own fields."""
        return bool(fields == self._plain)

    def fields_from_object(self, document: dict[str, Any]) -> dict[str, Any]:
        """The fields of a JSON object."""
        defaults = {
            name: value for name, value in self._tailer_values().items() if name not in document
        }
        if not defaults:
            return record_from_json(self._fields, document, self._named_types)
        return defaults | record_from_json(
            [field for field in self._fields if field["name"] not in defaults],
            document,
            self._named_types,
        )

    def fields_from_texts(self, texts: dict[str, bytes | None]) -> dict[str, Any]:
        """The fields of a pattern's groups, or of one text; the others have their default, or null."""
        fields = {}
        for field in self._fields:
            name, text = field["name"], texts.get(field["name"])
            try:
                if text is not None:
                    fields[name] = from_text(field["type"], text, self._named_types)
                else:
                    fields[name] = self._default_value(field)
            except LineRejected as rejected:
                raise LineRejected(
                    rejected.reason if text is not None else "missing_field", name
                ) from None
        return fields

    def fields_from_message(self, message: bytes) -> dict[str, Any]:
        """The fields of an RFC 5424 line's MSG."""
        if self.rule.content == "json":
            return self.fields_from_object(parse_json_object(message))
        field = next(field for field in self._fields if field["name"] == self.rule.field)
        if (
            message.startswith(_BOM)
            and "bytes" not in str(field["type"])
            and "fixed" not in str(field["type"])
        ):
            message = message[len(_BOM) :]
        return self.fields_from_texts({field["name"]: message})

    @property
    def time_key(self) -> str | None:
        """What holds the time."""
        return self.rule.time_field or ("time" if self.rule.pattern is not None else None)

    def parse_message(self, message: bytes) -> dict[str, Any]:
        """What a message says by name, texts as bytes; Refused if it has not this type's form."""
        rule = self.rule
        if rule.content == "json":
            return parse_json_object(message)
        if rule.content == "logfmt":
            texts: dict[str, Any] = payload_formats.parse_logfmt(message)
        elif rule.content == "tsv":
            texts = payload_formats.parse_tsv(message, rule.columns or [])
        elif self._pattern is not None:
            match = self._pattern.fullmatch(message)
            if match is None:
                raise LineRejected("no_pattern")
            texts = {name: text for name, text in match.groupdict().items() if text is not None}
            if rule.field is not None:
                texts.setdefault(rule.field, message)
        else:
            assert rule.field is not None, "what is whole has a field"
            field = next(field for field in self._fields if field["name"] == rule.field)
            return {
                rule.field: message if "bytes" in str(field["type"]) else message.removeprefix(_BOM)
            }
        return {
            name: text
            for name, text in texts.items()
            if rule.null_text is None or text != rule.null_text.encode()
        }

    def fields_from_values(
        self, values: dict[str, Any], header: ParsedHeader | None
    ) -> dict[str, Any]:
        """The fields, from what a message and its header say."""
        rule = self.rule
        own = {field["name"] for field in self._fields} - rule.header.keys() - {rule.unknown_field}
        unknown = (
            {}
            if rule.pattern is not None
            else {name: values[name] for name in values if name not in own}
        )
        for placed in (self.time_key, rule.host_field):
            unknown.pop(placed or "", None)
        if unknown and rule.unknown == "refuse":
            raise LineRejected("unknown_field")
        data = (
            {}
            if header is None
            else {name: text.encode("latin-1") for name, text in header.data.items()}
        )
        parts = (
            {}
            if header is None
            else {name: text.encode("latin-1") for name, text in header.parts.items()}
        )
        fields = {}
        for field in self._fields:
            name, part = field["name"], rule.header.get(field["name"])
            if name == rule.unknown_field:
                fields[name] = {
                    key: payload_formats.unknown_value_text(value) for key, value in unknown.items()
                }
            elif part == "structured_data":
                fields[name] = {
                    key: payload_formats.unknown_value_text(value) for key, value in data.items()
                }
            elif part is not None:
                fields[name] = self._field_value(
                    field, data if part.startswith("[") else parts, part.strip("[]"), nulls=True
                )
            else:
                fields[name] = self._field_value(field, values, name, nulls=rule.content != "json")
        return fields

    def _field_value(self, field: Any, values: Mapping[str, Any], name: str, *, nulls: bool) -> Any:
        """A field of what is values under this name; else its default, or null."""
        if name not in values:
            if field["name"] in (defaults := self._tailer_values()):
                return defaults[field["name"]]
            if "default" not in field and not (
                nulls and isinstance(field["type"], list) and "null" in field["type"]
            ):
                raise LineRejected("missing_field", field["name"])
            return from_json(field["type"], field.get("default"), self._named_types)
        try:
            read = from_text if isinstance(values[name], bytes) else from_json
            return read(field["type"], values[name], self._named_types)
        except LineRejected as rejected:
            raise LineRejected(rejected.reason, field["name"]) from None

    def _default_value(self, field: Any) -> Any:
        defaults = self._tailer_values()
        if field["name"] in defaults:
            return defaults[field["name"]]
        return from_json(field["type"], field.get("default"), self._named_types)

    def _tailer_values(self) -> dict[str, Any]:
        """By field, what the tailer says and the field can hold; all of it in a map of the name
        `labels`.
        """
        fields: dict[str, Any] = {}
        for field in self._fields if self._tailer_fields else ():
            name = field["name"]
            with suppress(LineRejected):
                if name == "labels":
                    fields[name] = from_json(
                        field["type"], dict(self._tailer_fields), self._named_types
                    )
                elif name in self._tailer_fields:
                    fields[name] = from_text(
                        field["type"], self._tailer_fields[name].encode(), self._named_types
                    )
        return fields

    def match_pattern(self, line: bytes) -> tuple[bytes | None, dict[str, Any]] | None:
        """The text of the time, and those of the fields; None where the pattern does not fit."""
        match = self._pattern.fullmatch(line) if self._pattern is not None else None
        if match is None:
            return None
        texts: dict[str, Any] = match.groupdict()
        if self.rule.field is not None:
            texts.setdefault(self.rule.field, line)
        return texts.get("time"), texts


def parse_json_object(payload: bytes) -> dict[str, Any]:
    """A payload, read."""
    payload = payload.removeprefix(_BOM)
    depth = deepest = 0
    for bracket in _STRING.sub(b"", payload).translate(None, bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    try:
        if deepest > _DEPTH_MAX:
            raise ValueError
        text = payload.decode()
        document = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if "\\u" in text:
            json.dumps(
                document, ensure_ascii=False
            ).encode()  # half of a surrogate pair is no character
    except UnicodeDecodeError:
        raise LineRejected("not_utf8", "UTF-8") from None
    except ValueError:
        raise LineRejected("bad_json") from None
    if not isinstance(document, dict):
        raise LineRejected("bad_json")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
