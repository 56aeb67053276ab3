"""A rules revision prepared for parsing: encoders, patterns and time formats, each compiled once.

A revision that this software cannot parse exactly (because of its parser, zone data, envelope or
dead letters) is rejected as a whole; its ranges wait for a service that can. A type declaration
that cannot be compiled (`hourmark types check` should have rejected it) does not block other types:
its events become dead letters with the reason, the same on every instance, and
`CompiledRules.problems` lists it for the operator.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import fastavro

from hourmark.avro.framing import ENVELOPE, framing_header
from hourmark.records import dead_letters
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.rules.event_types import Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing.dead_letter import EXTREMES, check_dead_letter_field
from hourmark_delivery_service.parsing.forms import MessageParser, ParsedMessage, message_parser_for
from hourmark_delivery_service.parsing.native import PARSERS as NATIVE_PARSERS
from hourmark_delivery_service.parsing.native import NativeType, native_source, native_type
from hourmark_delivery_service.parsing.parsers import check_parser_available
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.header import SyslogHeader
from hourmark_delivery_service.parsing.times.named_formats import TimeReader, time_reader_for
from hourmark_delivery_service.parsing.values.datum_encoder import DatumEncoder
from hourmark_delivery_service.parsing.values.encode import SchemaCompiler, encode_default
from hourmark_delivery_service.parsing.values.patterns import LinePattern
from hourmark_delivery_service.parsing.values.primitives import (
    ENCODED_BYTES_MAX,
    Encoder,
    Mismatch,
    encode_to_bytes,
)
from hourmark_delivery_service.parsing.values.text_values import (
    TextEncoder,
    takes_bytes,
    text_encoder,
)

FIELDS_MAP: Final = (
    "labels"  # a map field of this name contains all fields that a range declares for its events
)

_ABSENT: Final = object()


class CompiledField:
    """The encoders and the default value of one field of an event type.

    Args:
        field: Field of the parsed Avro schema.
        compiler: Compiler that has compiled the named types that the field may refer to.

    Attributes:
        name: Name of the field.
        encode: Function that appends the Avro encoding of a JSON value to a bytearray. It raises
            `Mismatch` if the value does not match the type of the field.
        encode_text: Function that does the same for a text value, given as bytes.
        takes_bytes: Whether the field can hold arbitrary bytes.
        default: Encoded default value, or None if the field has no default.
        absent: Encoding of a missing text value: the default, or null if the type allows it. None
            if the value is required.

    Raises:
        ValueError: If the default value does not match the type.
    """

    def __init__(self, field: dict[str, Any], compiler: SchemaCompiler) -> None:
        self.name: str = field["name"]
        self.encode: Encoder = compiler.encoder(field["type"])
        self.encode_text: TextEncoder = text_encoder(field["type"], compiler)
        self.takes_bytes = takes_bytes(field["type"])
        try:
            self.default: bytes | None = encode_default(field, self.encode)
        except Mismatch as error:
            raise ValueError(f"the default of the field {self.name}{error.suffix}") from None
        # the value of a group that did not participate: the default, or null if the type allows it
        self.absent: bytes | None = (
            self.default if self.default is not None else _null_of(self.encode)
        )

    def with_defaults_from(self, fields: Mapping[str, str]) -> CompiledField:
        """Return a copy of this field with a default value from the constant fields of a range.

        A tailer can be configured to add constant fields, such as a data center, to all events of a
        byte range.

        Args:
            fields: Maps names of constant fields to text values.

        Returns:
            A copy with the new default, or the field itself if `fields` has no valid value for it.
            The default of a field called `labels` is a map with all constant fields.
        """
        text = fields.get(self.name)
        try:
            if self.name == FIELDS_MAP:
                default = encode_to_bytes(self.encode, dict(fields))
            elif text is not None:
                default = encode_to_bytes(self.encode_text, text.encode())
            else:
                return self
        except Mismatch:
            return self
        other = copy.copy(self)
        other.default = other.absent = default
        return other


class CompiledType:
    """One version of a declared event type, compiled for parsing and encoding.

    Args:
        version: Declaration of the type and id of its Avro schema.

    Attributes:
        name: Name of the type.
        rule: Declaration of how lines of the type are parsed.
        header: Prefix of every encoded event, with the schema id.
        fields: The type's own fields, without the envelope (the fields that all types share).
        line_field: Field that stores the text of a line, or None.
        problem: Reason why the declaration cannot be compiled, or None. If it is set, parsing and
            encoding raise `Rejected`.
    """

    def __init__(self, version: TypeVersion) -> None:
        self.name = version.declaration.name
        self.rule = version.declaration.line
        self.header = framing_header(version.schema_id)
        self.problem: str | None = None
        self.fields: tuple[CompiledField, ...] = ()
        self._values: list[tuple[str, Encoder, bytes | None]] = []
        self.line_field: CompiledField | None = None
        self.pattern: LinePattern | None = None
        self.time_format: TimeReader | None = None
        self.shape: DatumEncoder | None = (
            None  # only if the declaration contains more than the names of fields
        )
        self._form: MessageParser | None = None
        self.native: NativeType | None = None
        self._groups: dict[str, int] = {}
        try:
            self._compile(version)
        except (ValueError, KeyError, TypeError) as error:
            self.problem = f"the type {self.name} cannot be used: {error}"

    def _compile(self, version: TypeVersion) -> None:
        schema: Any = fastavro.parse_schema(version.schema, named_schemas={}, _write_hint=False)
        compiler = SchemaCompiler()
        for field in schema["fields"][
            : len(ENVELOPE)
        ]:  # own fields may refer to the envelope's named types
            compiler.encoder(field["type"])
        self.fields = tuple(
            CompiledField(field, compiler) for field in schema["fields"][len(ENVELOPE) :]
        )
        self._values = [(field.name, field.encode, field.default) for field in self.fields]
        self.line_field = next(
            (field for field in self.fields if field.name == self.rule.field), None
        )
        if self.rule.pattern is not None:
            self.pattern = LinePattern(self.rule.pattern)
            names = {field.name for field in self.fields} | {
                self.rule.time_group,
                self.rule.host_field,
            }
            self._groups = {
                name: index for name, index in self.pattern.groups.items() if name in names
            }
            if unused := sorted(set(self.pattern.groups) - names):
                raise ValueError(f"line.pattern: the groups {unused} are none of its fields")
            if self.rule.time == "event" and self.rule.time_group not in self.pattern.groups:
                raise ValueError(
                    f"line.pattern: it has no group `{self.rule.time_group}`: are its "
                    "brackets escaped?"
                )
            if self.rule.field is not None:
                self._groups.setdefault(self.rule.field, 0)  # the whole line
        try:
            self.time_format = time_reader_for(self.rule)
        except ValueError as error:
            raise ValueError(f"line.time_format: {error}") from error
        if not self.rule.is_plain:
            self.shape = DatumEncoder(self.name, self.fields, self.rule)
        own = frozenset(field.name for field in self.fields)
        self._form = message_parser_for(
            self.rule,
            own,
            self.pattern,
            self.line_field is not None and self.line_field.takes_bytes,
        )
        self.native = native_type(self, schema, len(ENVELOPE)) if self.rule.is_plain else None

    def with_fields(self, fields: Mapping[str, str]) -> CompiledType:
        """Return a copy of this type with additional default values for its fields.

        The defaults come from the constant fields of a byte range, which a tailer adds to all
        events of the range.

        Args:
            fields: Maps names of constant fields to text values.
        """
        other = copy.copy(self)
        other.fields = tuple(field.with_defaults_from(fields) for field in self.fields)
        other._values = [(field.name, field.encode, field.default) for field in other.fields]
        other.line_field = next(
            (field for field in other.fields if field.name == self.rule.field), None
        )
        other.shape = None if self.shape is None else self.shape.with_fields(other.fields)
        other.native = None
        return other

    def parse_message(self, message: bytes) -> ParsedMessage:
        """Parse a log message in the payload format that the type declares.

        Args:
            message: Message without its header and its line feed.

        Returns:
            The named values of the message, its time and its host.

        Raises:
            Rejected: If the message does not have this format, or the type cannot be compiled.
        """
        self._check_usable()
        assert self._form is not None, "it was compiled"
        return self._form(message)

    def encode_message(self, message: ParsedMessage, header: SyslogHeader | None) -> bytearray:
        """Encode the type's own fields from a parsed message as Avro.

        Args:
            message: Result of `parse_message`.
            header: Syslog header of the line, or None if the line has no header.

        Returns:
            The encoded fields, without the envelope (the fields that all types share).

        Raises:
            Rejected: If a field is missing, unknown or invalid. The error names the field.
        """
        if self.shape is not None:
            own_header = None if header is None else self.shape.header_values(header)
            return self.shape.encode(message.values, own_header, nulls=self.rule.payload != "json")
        return (
            self.encode_object(message.values)
            if self.rule.payload == "json"
            else self.encode_texts(message.values)
        )

    def encode_object(self, values: Mapping[str, Any]) -> bytearray:
        """Encode the type's own fields from a JSON object as Avro.

        Args:
            values: JSON values by field name. A field with a default may be missing.

        Returns:
            The encoded fields, without the envelope (the fields that all types share).

        Raises:
            Rejected: If a field is missing, unknown or invalid. The error names the field.
        """
        self._check_usable()
        if self.shape is not None:
            return self.shape.encode(values)
        out = bytearray()
        left = len(values)
        for name, encode, default in self._values:
            value = values.get(name, _ABSENT)
            if value is not _ABSENT:
                left -= 1
                try:
                    encode(value, out)
                except Mismatch as error:
                    raise self._wrong(name, error) from None
            elif default is not None:
                if len(out) < ENCODED_BYTES_MAX:
                    out += default
            else:
                raise Rejected(
                    DeadLetterReason.MISSING_FIELD, f"the field {name} is missing", self.name, name
                )
        if left:
            unknown = sorted(set(values) - {field.name for field in self.fields})
            detail = f"{self.name} has no field {', '.join(unknown)[:200]}"
            raise Rejected(DeadLetterReason.UNKNOWN_FIELD, detail, self.name, key=unknown[0])
        return out

    def encode_texts(self, texts: Mapping[str, bytes | None]) -> bytearray:
        """Encode the type's own fields from text values as Avro.

        Args:
            texts: Text values by field name. A missing field gets its default, or null if its type
                allows it. Unknown names are ignored unless the type declares otherwise.

        Returns:
            The encoded fields, without the envelope (the fields that all types share).

        Raises:
            Rejected: If a value does not match the type of its field, a required field is missing,
                or the type cannot be compiled.
        """
        self._check_usable()
        if self.shape is not None:
            return self.shape.encode(
                {name: text for name, text in texts.items() if text is not None}, nulls=True
            )
        out = bytearray()
        for field in self.fields:
            text = texts.get(field.name)
            if text is not None:
                try:
                    field.encode_text(text, out)
                except Mismatch as error:
                    raise self._wrong(field.name, error) from None
            elif field.absent is not None:
                out += field.absent
            else:
                raise Rejected(
                    DeadLetterReason.MISSING_FIELD,
                    f"the field {field.name} is missing",
                    self.name,
                    field.name,
                )
            if len(out) > ENCODED_BYTES_MAX:  # each group of a pattern may hold the whole line
                del out[ENCODED_BYTES_MAX:]
        return out

    def match(self, line: bytes) -> dict[str, bytes | None] | None:
        """Match a whole line against the pattern of the type.

        Args:
            line: Line without its line feed.

        Returns:
            A dict that maps group names to matched texts. The value is None for a group that did
            not participate in the match. Returns None instead of a dict if the line does not match
            or the type has no pattern.
        """
        groups = self.pattern.match(line) if self.pattern is not None else None
        return (
            None
            if groups is None
            else {name: groups[index] for name, index in self._groups.items()}
        )

    def _check_usable(self) -> None:
        if self.problem is not None:
            raise Rejected(DeadLetterReason.WRONG_FIELD, self.problem, self.name)

    def _wrong(self, name: str, error: Mismatch) -> Rejected:
        return Rejected(error.reason, f"the field {name}{error.suffix}", self.name, name)


class CompiledRules:
    """A rules revision (version of the declared event types and sources), compiled for parsing.

    Attributes:
        id: Id of the revision.
        types: Maps the name of each event type to the compiled type.
        sources: Maps the name of each source (kind of log file) to its declaration.
        problems: A message for each event type that cannot be compiled. Its events are rejected.

    Raises:
        ValueError: If this software lacks the parser version, the time zone data, or the envelope
            or dead letter schema that the revision requires.
    """

    def __init__(
        self, rules: Rules, compiled_types: dict[tuple[str, int], CompiledType] | None = None
    ) -> None:
        """Compile a rules revision for parsing.

        An event type that cannot be compiled is listed in `problems` and raises no error.

        Args:
            rules: Revision to compile.
            compiled_types: Shared cache that maps pairs of key and schema id to compiled types.
                Missing types are added. None for no cache.

        Raises:
            ValueError: If this software lacks the parser version, the time zone data, or the
                envelope or dead letter schema that the revision requires.
        """
        check_parser_available(rules.parser)
        self.id = rules.id
        self.parser = rules.parser
        self.parsing = rules.parsing
        self.sources: Mapping[str, Source] = rules.sources
        for version in rules.types.values():
            _check_envelope(version)
        shared = {} if compiled_types is None else compiled_types
        self.types: Mapping[str, CompiledType] = {
            name: shared.get((v.key, v.schema_id))
            or shared.setdefault((v.key, v.schema_id), CompiledType(v))
            for name, v in rules.types.items()
        }
        self.plain_sources = frozenset(
            name for name, source in rules.sources.items() if _is_plain(source, self.types)
        )
        redacting = {name for name, t in self.types.items() if t.rule.redact}
        self.redacts = bool(redacting)
        self.withheld_sources = frozenset(
            name for name, s in rules.sources.items() if redacting & {*s.types, s.catch_all}
        )
        self.dead_letters = _dead_letters(self.types.get(dead_letters.TYPE))
        self.numbered = sorted(self.types)
        self.numbers = {
            name: number for number, name in enumerate(self.numbered)
        }  # types, for the parsing of a range
        self._native: dict[str, Any] = {}
        self.undeclared = EXTREMES.keys() - {
            field.name for field in self.dead_letters.fields
        }  # of dead letters' fields

    def with_fields(self, fields: Mapping[str, str], source: Source) -> CompiledRules:
        """Return a copy of the rules with additional default values for event fields.

        The defaults come from the constant fields of a byte range, which a tailer adds to all
        events of the range.

        Args:
            fields: Maps names of constant fields to text values.
            source: Source of the range. The copy contains only the event types of this source.
        """
        other = copy.copy(self)
        carried = {*source.types, source.catch_all} & self.types.keys()
        other.types = {
            name: self.types[name].with_fields(fields) for name in carried if name is not None
        }
        return other

    def native_source(self, name: str) -> Any:
        """Return the description of a source for the native parser.

        The native parser is a compiled module that parses simple lines in C.

        Args:
            name: Name of a declared source (kind of log file).

        Returns:
            An object of the compiled module, to be passed to the native parser. None if lines of
            this source can be parsed only in Python, or if the source is not declared.
        """
        if name not in self._native:
            can = self.parser.parser in NATIVE_PARSERS and name in self.plain_sources
            self._native[name] = (
                native_source(self.sources[name], self.types, self.numbers) if can else None
            )
        return self._native[name]

    @property
    def problems(self) -> list[str]:
        """Return the reasons why event types of this revision cannot be compiled.

        Events of such a type are rejected. The other types are not affected.

        Returns:
            One message for each event type that cannot be compiled, or an empty list.
        """
        return [t.problem for t in self.types.values() if t.problem is not None]


def _is_plain(source: Source, types: Mapping[str, CompiledType]) -> bool:
    of_types = [types[name] for name in source.types if name in types]
    payloads = {"rfc5424": ("json", "text", "pattern"), "free": ("pattern",)}.get(source.format, ())
    return source.host == "line" and all(
        t.rule.is_plain and t.rule.payload in payloads for t in of_types
    )


def _check_envelope(version: TypeVersion) -> None:
    # A revision with another envelope is for another version of this software.
    try:
        begins_as_ours = all(
            (field["name"], field["type"]) == (ours["name"], ours["type"])
            for field, ours in zip(version.schema["fields"][: len(ENVELOPE)], ENVELOPE, strict=True)
        )
    except (ValueError, KeyError, TypeError):
        begins_as_ours = False
    if not begins_as_ours:
        raise ValueError(
            f"the schema of its type {version.declaration.name} does not begin with the envelope "
            "of this version of Hourmark; upgrade this service, its ranges wait until then"
        )


def _dead_letters(kind: CompiledType | None) -> CompiledType:
    if kind is None or kind.problem is not None:
        raise ValueError(
            "it contains no usable type "
            f"{dead_letters.TYPE}{'' if kind is None else f': {kind.problem}'}"
        )
    for field in kind.fields:
        check_dead_letter_field(field.name, field.encode, field.default)
    return kind


def _null_of(encode: Encoder) -> bytes | None:
    try:
        return encode_to_bytes(encode, None)
    except Mismatch:
        return None
