"""Declared event types: how a message is split into values, and how values become event fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import fastavro

from hourmark_verify.judge import payload_formats
from hourmark_verify.judge.expectations import TypeExpectation
from hourmark_verify.judge.syslog_headers import ParsedHeader
from hourmark_verify.judge.values import (
    LineRejected,
    avro_from_json,
    avro_from_text,
    record_from_json,
    strip_annotations,
)


class DeclaredType:
    """A declared event type, which converts the messages of log lines to event fields.

    Args:
        name: Name of the type.
        rule: Declaration of the type.
        tailer_fields: Maps field names to texts for fields that a message lacks. The tailer (the
            component that reads log files) is configured to add these texts.
    """

    def __init__(self, name: str, rule: TypeExpectation, tailer_fields: Mapping[str, str]) -> None:
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
        """Return whether a list of Avro fields equals the fields of this type.

        Args:
            fields: Avro fields without `logicalType` and `doc`, as `strip_annotations` returns
                them.
        """
        return bool(fields == self._plain)

    def fields_from_object(self, document: dict[str, Any]) -> dict[str, Any]:
        """Convert a parsed JSON object to event fields.

        Args:
            document: The JSON object.

        Returns:
            Values by field name. A field that the object lacks gets its value from `tailer_fields`
            or its default.

        Raises:
            LineRejected: A field is missing, unknown or of the wrong type.
        """
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
        """Convert the texts of a line, such as the groups of a pattern, to event fields.

        Args:
            texts: Raw bytes by field name. None, the value of a group that matched nothing, counts
                as missing.

        Returns:
            Values by field name. A field without a text gets its value from `tailer_fields`, its
            default or null, in this order.

        Raises:
            LineRejected: A text cannot be converted to the type of its field, or a field has no
                text, no default and does not accept null.
        """
        fields = {}
        for field in self._fields:
            name, text = field["name"], texts.get(field["name"])
            try:
                if text is not None:
                    fields[name] = avro_from_text(field["type"], text, self._named_types)
                else:
                    fields[name] = self._default_value(field)
            except LineRejected as rejected:
                raise LineRejected(
                    rejected.reason if text is not None else "missing_field", name
                ) from None
        return fields

    def fields_from_message(self, message: bytes) -> dict[str, Any]:
        """Convert the MSG part of an RFC 5424 line to event fields.

        Args:
            message: MSG part: a JSON object if the type is declared with content `json`; otherwise,
                the whole message is the value of one field.

        Returns:
            Values by field name.

        Raises:
            LineRejected: The message does not match the type.
        """
        if self.rule.content == "json":
            return self.fields_from_object(payload_formats.parse_json_object(message))
        field = next(field for field in self._fields if field["name"] == self.rule.field)
        if (
            message.startswith(payload_formats.BOM)
            and "bytes" not in str(field["type"])
            and "fixed" not in str(field["type"])
        ):
            message = message[len(payload_formats.BOM) :]
        return self.fields_from_texts({field["name"]: message})

    @property
    def time_key(self) -> str | None:
        """Key under which `parse_message` returns the event time; None if messages have no time."""
        return self.rule.time_field or ("time" if self.rule.pattern is not None else None)

    def parse_message(self, message: bytes) -> dict[str, Any]:
        """Split a message into named values, in the declared format of this type.

        Args:
            message: Message without its header.

        Returns:
            Values by name: parsed JSON values if the format is JSON, otherwise raw bytes. Texts
            equal to the declared `null_text` are omitted.

        Raises:
            LineRejected: The message is not in the format of this type.
        """
        rule = self.rule
        if rule.content == "json":
            return payload_formats.parse_json_object(message)
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
            assert rule.field is not None, "a type of whole lines has a field"
            field = next(field for field in self._fields if field["name"] == rule.field)
            return {
                rule.field: message
                if "bytes" in str(field["type"])
                else message.removeprefix(payload_formats.BOM)
            }
        return {
            name: text
            for name, text in texts.items()
            if rule.null_text is None or text != rule.null_text.encode()
        }

    def fields_from_values(
        self, values: dict[str, Any], header: ParsedHeader | None
    ) -> dict[str, Any]:
        """Convert the values of a message and of its syslog header to event fields.

        Args:
            values: Values by name, as returned by `parse_message`.
            header: Syslog header of the line; None if the line has none.

        Returns:
            Values by field name.

        Raises:
            LineRejected: A value is missing or has the wrong type, or the type refuses unknown
                fields and there is one.
        """
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
        """Return the value of one event field.

        Args:
            field: The Avro field.
            values: Values by name.
            name: Name of the value for this field.
            nulls: Whether the result is null if the value is absent and the field accepts null.

        Returns:
            The converted value. If it is absent: the value from `tailer_fields`, the default of the
            field, or null.

        Raises:
            LineRejected: The value cannot be converted, or it is absent and there is no substitute.
        """
        if name not in values:
            if field["name"] in (defaults := self._tailer_values()):
                return defaults[field["name"]]
            if "default" not in field and not (
                nulls and isinstance(field["type"], list) and "null" in field["type"]
            ):
                raise LineRejected("missing_field", field["name"])
            return avro_from_json(field["type"], field.get("default"), self._named_types)
        try:
            read = avro_from_text if isinstance(values[name], bytes) else avro_from_json
            return read(field["type"], values[name], self._named_types)
        except LineRejected as rejected:
            raise LineRejected(rejected.reason, field["name"]) from None

    def _default_value(self, field: Any) -> Any:
        defaults = self._tailer_values()
        if field["name"] in defaults:
            return defaults[field["name"]]
        return avro_from_json(field["type"], field.get("default"), self._named_types)

    def _tailer_values(self) -> dict[str, Any]:
        # A map field with the name `labels` receives all values of the tailer.
        fields: dict[str, Any] = {}
        for field in self._fields if self._tailer_fields else ():
            name = field["name"]
            with suppress(LineRejected):
                if name == "labels":
                    fields[name] = avro_from_json(
                        field["type"], dict(self._tailer_fields), self._named_types
                    )
                elif name in self._tailer_fields:
                    fields[name] = avro_from_text(
                        field["type"], self._tailer_fields[name].encode(), self._named_types
                    )
        return fields

    def match_pattern(self, line: bytes) -> tuple[bytes | None, dict[str, Any]] | None:
        """Match a whole line with the pattern of this type.

        Args:
            line: Line without its line feed.

        Returns:
            A pair: the text of the group `time` (None if there is none), and all texts by group
            name. If the type has a field for the whole line, the line is included under the name of
            this field. None if the line does not match or the type has no pattern.
        """
        match = self._pattern.fullmatch(line) if self._pattern is not None else None
        if match is None:
            return None
        texts: dict[str, Any] = match.groupdict()
        if self.rule.field is not None:
            texts.setdefault(self.rule.field, line)
        return texts.get("time"), texts
