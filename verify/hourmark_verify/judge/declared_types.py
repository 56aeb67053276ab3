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

    def __init__(self, name: str, rule: TypeExpectation, told: Mapping[str, str]) -> None:
        """`told`: what the tailer says of every event."""
        self.name, self.rule, self._told = name, rule, told
        self._names: dict[str, Any] = {}
        fields = rule.fields or [{"name": rule.field, "type": "bytes"}]
        self._plain = strip_annotations(fields)
        schema: Any = fastavro.parse_schema(
            {"type": "record", "name": "own", "fields": fields}, named_schemas=self._names
        )
        self._fields = schema["fields"]
        self._pattern = re.compile(rule.pattern.encode()) if rule.pattern is not None else None

    def declares(self, fields: list[Any]) -> bool:
        """Whether these, below logical types, are its own fields."""
        return bool(fields == self._plain)

    def of_object(self, document: dict[str, Any]) -> dict[str, Any]:
        """The fields of a JSON object."""
        told = {
            name: value for name, value in self._said_by_tailer().items() if name not in document
        }
        if not told:
            return record_from_json(self._fields, document, self._names)
        return told | record_from_json(
            [field for field in self._fields if field["name"] not in told], document, self._names
        )

    def of_texts(self, texts: dict[str, bytes | None]) -> dict[str, Any]:
        """The fields of a pattern's groups, or of one text; the others have their default, or null."""
        held = {}
        for field in self._fields:
            name, text = field["name"], texts.get(field["name"])
            try:
                if text is not None:
                    held[name] = from_text(field["type"], text, self._names)
                else:
                    held[name] = self._unsaid(field)
            except LineRejected as refused:
                raise LineRejected(
                    refused.reason if text is not None else "missing_field", name
                ) from None
        return held

    def of_message(self, message: bytes) -> dict[str, Any]:
        """The fields of an RFC 5424 line's MSG."""
        if self.rule.content == "json":
            return self.of_object(parse_json_object(message))
        field = next(field for field in self._fields if field["name"] == self.rule.field)
        if (
            message.startswith(_BOM)
            and "bytes" not in str(field["type"])
            and "fixed" not in str(field["type"])
        ):
            message = message[len(_BOM) :]
        return self.of_texts({field["name"]: message})

    @property
    def time_key(self) -> str | None:
        """What holds the time."""
        return self.rule.time_field or ("time" if self.rule.pattern is not None else None)

    def said(self, message: bytes) -> dict[str, Any]:
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

    def of_said(self, said: dict[str, Any], header: ParsedHeader | None) -> dict[str, Any]:
        """The fields, from what a message and its header say."""
        rule = self.rule
        own = {field["name"] for field in self._fields} - rule.header.keys() - {rule.unknown_field}
        unknown = (
            {}
            if rule.pattern is not None
            else {name: said[name] for name in said if name not in own}
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
        held = {}
        for field in self._fields:
            name, part = field["name"], rule.header.get(field["name"])
            if name == rule.unknown_field:
                held[name] = {
                    key: payload_formats.unknown_value_text(value) for key, value in unknown.items()
                }
            elif part == "structured_data":
                held[name] = {
                    key: payload_formats.unknown_value_text(value) for key, value in data.items()
                }
            elif part is not None:
                held[name] = self._held(
                    field, data if part.startswith("[") else parts, part.strip("[]"), nulls=True
                )
            else:
                held[name] = self._held(field, said, name, nulls=rule.content != "json")
        return held

    def _held(self, field: Any, said: Mapping[str, Any], name: str, *, nulls: bool) -> Any:
        """A field of what is said under this name; else its default, or null."""
        if name not in said:
            if field["name"] in (told := self._said_by_tailer()):
                return told[field["name"]]
            if "default" not in field and not (
                nulls and isinstance(field["type"], list) and "null" in field["type"]
            ):
                raise LineRejected("missing_field", field["name"])
            return from_json(field["type"], field.get("default"), self._names)
        try:
            read = from_text if isinstance(said[name], bytes) else from_json
            return read(field["type"], said[name], self._names)
        except LineRejected as refused:
            raise LineRejected(refused.reason, field["name"]) from None

    def _unsaid(self, field: Any) -> Any:
        told = self._said_by_tailer()
        if field["name"] in told:
            return told[field["name"]]
        return from_json(field["type"], field.get("default"), self._names)

    def _said_by_tailer(self) -> dict[str, Any]:
        """By field, what the tailer says and the field can hold; all of it in a map of the name
        `labels`.
        """
        held: dict[str, Any] = {}
        for field in self._fields if self._told else ():
            name = field["name"]
            with suppress(LineRejected):
                if name == "labels":
                    held[name] = from_json(field["type"], dict(self._told), self._names)
                elif name in self._told:
                    held[name] = from_text(field["type"], self._told[name].encode(), self._names)
        return held

    def of_groups(self, line: bytes) -> tuple[bytes | None, dict[str, Any]] | None:
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
