"""A rules revision made ready for parsing: encoders, patterns and time formats, each built once.

A revision that this software cannot parse as it is meant (parser, zone data, envelope, dead
letters) is refused as a whole: its ranges wait for one that can. A declaration that cannot be
compiled (which `hourmark types check` should have refused) stops nothing: its events become dead
letters that say why, the same on every instance, and `CompiledRules.problems` tells the operator.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import fastavro

from hourmark.avro.framing import ENVELOPE, frame
from hourmark.records import dead_letters
from hourmark.records.dead_letters import Reason
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
    "labels"  # a field of this name, a map of strings, has all that a range says of its events
)

_ABSENT: Final = object()


class CompiledField:
    """One of a type's own fields."""

    def __init__(self, field: dict[str, Any], compiler: SchemaCompiler) -> None:
        self.name: str = field["name"]
        self.encode: Encoder = compiler.encoder(field["type"])
        self.encode_text: TextEncoder = text_encoder(field["type"], compiler)
        self.takes_bytes = takes_bytes(field["type"])
        try:
            self.default: bytes | None = encode_default(field, self.encode)
        except Mismatch as error:
            raise ValueError(f"the default of the field {self.name}{error.suffix}") from None
        # what stands for a group that took no part: the default, else null where the type allows it
        self.absent: bytes | None = (
            self.default if self.default is not None else _null_of(self.encode)
        )

    def with_defaults_from(self, fields: Mapping[str, str]) -> CompiledField:
        """The same, where one of these stands for what a record does not say; itself, where none
        can.
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
    """A type's encoders. `problem` is why nothing can be encoded, or None."""

    def __init__(self, version: TypeVersion) -> None:
        self.name = version.declaration.name
        self.rule = version.declaration.line
        self.header = frame(version.schema_id)
        self.problem: str | None = None
        self.fields: tuple[CompiledField, ...] = ()
        self._values: list[tuple[str, Encoder, bytes | None]] = []
        self.line_field: CompiledField | None = None
        self.pattern: LinePattern | None = None
        self.time_format: TimeReader | None = None
        self.shape: DatumEncoder | None = (
            None  # where the declaration says more than which fields there are
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
        """The same for a range whose source says these of all of its events."""
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
        """What a message says. Rejected if it has not this type's form."""
        self._check_usable()
        assert self._form is not None, "it was compiled"
        return self._form(message)

    def encode_message(self, message: ParsedMessage, header: SyslogHeader | None) -> bytearray:
        """The datum of the own fields, from a message and its header."""
        if self.shape is not None:
            own_header = None if header is None else self.shape.header_values(header)
            return self.shape.encode(message.values, own_header, nulls=self.rule.payload != "json")
        return (
            self.encode_object(message.values)
            if self.rule.payload == "json"
            else self.encode_texts(message.values)
        )

    def encode_object(self, values: Mapping[str, Any]) -> bytearray:
        """The datum of the own fields, from an object of exactly them.

        Rejected says which field is wrong.
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
                    Reason.MISSING_FIELD, f"the field {name} is missing", self.name, name
                )
        if left:
            unknown = sorted(set(values) - {field.name for field in self.fields})
            detail = f"{self.name} has no field {', '.join(unknown)[:200]}"
            raise Rejected(Reason.UNKNOWN_FIELD, detail, self.name, key=unknown[0])
        return out

    def encode_texts(self, texts: Mapping[str, bytes | None]) -> bytearray:
        """The datum of the own fields from texts; the others take their default, or null."""
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
                    Reason.MISSING_FIELD,
                    f"the field {field.name} is missing",
                    self.name,
                    field.name,
                )
            if len(out) > ENCODED_BYTES_MAX:  # each group of a pattern may hold the whole line
                del out[ENCODED_BYTES_MAX:]
        return out

    def match(self, line: bytes) -> dict[str, bytes | None] | None:
        """The texts of fields, and of `time`, where the pattern fits the whole line; None where it
        does not.
        """
        groups = self.pattern.match(line) if self.pattern is not None else None
        return (
            None
            if groups is None
            else {name: groups[index] for name, index in self._groups.items()}
        )

    def _check_usable(self) -> None:
        if self.problem is not None:
            raise Rejected(Reason.WRONG_FIELD, self.problem, self.name)

    def _wrong(self, name: str, error: Mismatch) -> Rejected:
        return Rejected(error.reason, f"the field {name}{error.suffix}", self.name, name)


class CompiledRules:
    """A revision. ValueError if this software cannot parse by it exactly as any other does."""

    def __init__(
        self, rules: Rules, compiled_types: dict[tuple[str, int], CompiledType] | None = None
    ) -> None:
        """`known`: types that were compiled before, by key and schema id; taken from there, and
        added to it.
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
        """The same for the lines of a range whose source says these of all of its events."""
        other = copy.copy(self)
        carried = {*source.types, source.catch_all} & self.types.keys()
        other.types = {
            name: self.types[name].with_fields(fields) for name in carried if name is not None
        }
        return other

    def native_source(self, name: str) -> Any:
        """A declared source as the native pass knows it; None where its lines are the Python path's
        alone.
        """
        if name not in self._native:
            can = self.parser.parser in NATIVE_PARSERS and name in self.plain_sources
            self._native[name] = (
                native_source(self.sources[name], self.types, self.numbers) if can else None
            )
        return self._native[name]

    @property
    def problems(self) -> list[str]:
        """What could not be compiled, for the operator."""
        return [t.problem for t in self.types.values() if t.problem is not None]


def _is_plain(source: Source, types: Mapping[str, CompiledType]) -> bool:
    """Whether its lines were always declarable: what `lines` reads."""
    of_types = [types[name] for name in source.types if name in types]
    payloads = {"rfc5424": ("json", "text", "pattern"), "free": ("pattern",)}.get(source.format, ())
    return source.host == "line" and all(
        t.rule.is_plain and t.rule.payload in payloads for t in of_types
    )


def _check_envelope(version: TypeVersion) -> None:
    """All software writes the same envelope, or the revision is not for it."""
    try:
        begins_as_ours = all(
            (field["name"], field["type"]) == (ours["name"], ours["type"])
            for field, ours in zip(version.schema["fields"][: len(ENVELOPE)], ENVELOPE, strict=True)
        )
    except (ValueError, KeyError, TypeError):
        begins_as_ours = False
    if not begins_as_ours:
        raise ValueError(
            f"the schema of its type {version.declaration.name} does not begin with this "
            "software's envelope; "
            "upgrade this service, ranges wait until then"
        )


def _dead_letters(kind: CompiledType | None) -> CompiledType:
    if kind is None or kind.problem is not None:
        raise ValueError(
            "it has no usable type "
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
