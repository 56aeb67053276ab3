"""Values to Avro binary (Avro specification 1.12), checked and written in one walk; compiled once per schema.

Accepted are the values of JSON, and nothing is silently converted or cut:

    boolean           true, false                     int, long    whole numbers in range (true is none, 1.0 is none)
    float, double     numbers; a whole number only if it can be held exactly
    string            a string                        enum         one of its symbols
    bytes, fixed      a string of U+0000 to U+00FF, a byte each (Avro's JSON encoding)
    array, map, record    an array, an object, an object of exactly the record's fields (those with defaults may be missing)
    union             the plain value: the first branch that accepts it
    timestamp-millis, timestamp-micros    a whole number, or an RFC 3339 string that is no finer than the type
    uuid              its usual string of 36 characters, lower case

Dates and times of day are whole numbers within what readers can show. Other logical types are written as what they stand on.
Nesting of values is bounded by `json_payload.DEPTH_MAX` beforehand, so recursion is too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from hourmark.avro import put_long
from hourmark.avro_fields import UUID_TEXT
from hourmark_delivery_service.parsing.primitives import (
    PRIMITIVES,
    Encoder,
    Mismatch,
    encoded,
    primitive,
    put_bytes,
    raw_bytes,
)

AvroType = Any  # as fastavro.parse_schema returns it: names resolved, references by full name

_ABSENT: Final = object()


class SchemaCompiler:
    """Makes encoders; remembers named types, so that one may refer to another or to itself."""

    def __init__(self) -> None:
        self._named: dict[str, Encoder] = {}

    def encoder(self, avro_type: AvroType) -> Encoder:
        """The encoder of this type. ValueError if it is none that Avro knows."""
        if isinstance(avro_type, list):
            return _union(
                [self.encoder(branch) for branch in avro_type], nullable=avro_type.index("null") if "null" in avro_type else None
            )
        if isinstance(avro_type, str):
            return self._by_name(avro_type)
        kind = avro_type["type"]
        if isinstance(kind, (list, dict)):
            return self.encoder(kind)
        if kind == "array":
            return _array(self.encoder(avro_type["items"]))
        if kind == "map":
            return _map(self.encoder(avro_type["values"]))
        if kind in ("record", "error"):
            return self._record(avro_type)
        if kind == "enum":
            return self._name(avro_type, _enum(avro_type["symbols"]))
        if kind == "fixed":
            return self._name(avro_type, _fixed(avro_type))
        return primitive(kind, avro_type.get("logicalType"))

    def fields(self, fields: list[dict[str, Any]]) -> list[tuple[str, Encoder, bytes | None]]:
        """Name, encoder and encoded default (None: there is none) of a record's fields."""
        compiled = []
        for field in fields:
            encode = self.encoder(field["type"])
            compiled.append((field["name"], encode, self.default(field, encode)))
        return compiled

    def default(self, field: Mapping[str, Any], encode: Encoder) -> bytes | None:
        """A union's default may be of any branch here; Avro 1.12 allows that and older versions want the first."""
        return encoded(encode, field["default"]) if "default" in field else None

    def _by_name(self, name: str) -> Encoder:
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        named = self._named
        if name not in named:
            raise ValueError(f"the Avro type {name!r} is not declared")
        return named[name]

    def _name(self, avro_type: Mapping[str, Any], encode: Encoder) -> Encoder:
        self._named[avro_type["name"]] = encode
        return encode

    def _record(self, avro_type: Mapping[str, Any]) -> Encoder:
        fields: list[tuple[str, Encoder, bytes | None]] = []  # filled below: a record may hold itself
        encode = self._name(avro_type, _record(fields))
        fields += self.fields(avro_type["fields"])
        return encode


def _enum(symbols: list[str]) -> Encoder:
    indices = {symbol: encoded(put_long, index) for index, symbol in enumerate(symbols)}

    def encode(value: Any, out: bytearray) -> None:
        index = indices.get(value) if type(value) is str else None
        if index is None:
            raise Mismatch(f"must be one of {', '.join(symbols)}")
        out += index

    return encode


def _fixed(avro_type: Mapping[str, Any]) -> Encoder:
    size = avro_type["size"]
    is_uuid = avro_type.get("logicalType") == "uuid" and size == 16

    def encode(value: Any, out: bytearray) -> None:
        if is_uuid and type(value) is str and UUID_TEXT.fullmatch(value):
            out += uuid.UUID(value).bytes
            return
        raw = raw_bytes(value)
        if len(raw) != size:
            raise Mismatch(f"must have {size} bytes")
        out += raw

    return encode


def _array(item: Encoder) -> Encoder:
    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not list:
            raise Mismatch("must be an array")
        if value:
            put_long(len(value), out)
            for index, element in enumerate(value):
                try:
                    item(element, out)
                except Mismatch as error:
                    raise error.below(f"[{index}]") from None
        out.append(0)

    return encode


def _map(item: Encoder) -> Encoder:
    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not dict:
            raise Mismatch("must be an object")
        if value:
            put_long(len(value), out)
            for key, element in value.items():
                put_bytes(key.encode(), out)
                try:
                    item(element, out)
                except Mismatch as error:
                    raise error.below(f"[{key!r:.80}]") from None
        out.append(0)

    return encode


def _record(fields: list[tuple[str, Encoder, bytes | None]]) -> Encoder:
    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not dict:
            raise Mismatch("must be an object")
        left = len(value)
        for name, encode_field, default in fields:
            found = value.get(name, _ABSENT)
            if found is not _ABSENT:
                left -= 1
                try:
                    encode_field(found, out)
                except Mismatch as error:
                    raise error.below(f".{name}") from None
            elif default is not None:
                out += default
            else:
                raise Mismatch(f"must have {name}")
        if left:
            unknown = sorted(set(value) - {name for name, _, _ in fields})
            raise Mismatch(f"must not have {', '.join(unknown)[:200]}")

    return encode


def _union(branches: list[Encoder], nullable: int | None) -> Encoder:
    indices = [encoded(put_long, index) for index in range(len(branches))]

    def encode_any(value: Any, out: bytearray) -> None:
        start = len(out)
        problems = []
        for index, branch in zip(indices, branches, strict=True):
            out += index
            try:
                return branch(value, out)
            except Mismatch as error:
                del out[start:]
                problems.append(error)
        reason = problems[-1].reason
        raise Mismatch(" or ".join(dict.fromkeys(str(problem) for problem in problems))[:400], reason)

    if nullable is None or len(branches) != 2:
        return encode_any
    null_index, index, branch = indices[nullable], indices[1 - nullable], branches[1 - nullable]

    def encode_nullable(value: Any, out: bytearray) -> None:
        if value is None:
            out += null_index
        else:
            out += index
            branch(value, out)

    return encode_nullable
