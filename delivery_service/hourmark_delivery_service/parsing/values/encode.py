"""Encoding of JSON values in the Avro binary format (Avro specification 1.12).

Each schema is compiled once to encoders, which check a value while they write it. No value is
silently converted or truncated. The accepted values are:

    boolean                 true, false
    int, long               integers in range; `true` and `1.0` are not integers
    float, double           numbers; an integer only if it can be represented exactly
    string                  a string
    enum                    one of its symbols
    bytes, fixed            a string of characters U+0000 to U+00FF, one per byte, which is Avro's
                            JSON encoding
    array, map              an array, an object
    record                  an object with exactly the record's fields; a field with a default may
                            be missing
    union                   the plain value; the first branch that accepts it is used
    timestamp-millis,       an integer, or an RFC 3339 string that is not more precise than the
    timestamp-micros        type
    uuid                    the usual string of 36 characters in lower case

Dates and times of day are integers within the range that readers can display. Values of other
logical types are encoded as their underlying type. The nesting depth of a value is limited before
it is encoded (`json_payload.DEPTH_MAX`), and so is the recursion depth.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from hourmark.avro.fields import UUID_TEXT
from hourmark.avro.framing import put_long
from hourmark_delivery_service.parsing.values.primitives import (
    ENCODED_BYTES_MAX,
    PRIMITIVES,
    Encoder,
    Mismatch,
    encode_to_bytes,
    json_string_to_bytes,
    primitive_encoder,
    put_bytes,
)

AvroType = Any  # as fastavro.parse_schema returns it: names resolved, references by full name

_ABSENT: Final = object()


class SchemaCompiler:
    """Compiles Avro types to encoders. An encoder checks a JSON value and encodes it as Avro.

    The compiler stores each named type (record, enum or fixed), so that types compiled later can
    refer to it by name.
    """

    def __init__(self) -> None:
        self._named = dict(PRIMITIVES)

    def encoder(self, avro_type: AvroType) -> Encoder:
        """Return the encoder for an Avro type.

        Args:
            avro_type: Type as `fastavro.parse_schema` returns it.

        Returns:
            A function that appends the Avro encoding of a JSON value to a bytearray. It raises
            `Mismatch` if the value does not match the type.

        Raises:
            ValueError: If the type is not an Avro type, or refers to a type that was not compiled
                before.
        """
        if isinstance(avro_type, list):
            return _union([self.encoder(branch) for branch in avro_type], avro_type)
        if isinstance(avro_type, str):
            if avro_type not in self._named:
                raise ValueError(f"the Avro type {avro_type!r} is not declared")
            return self._named[avro_type]
        kind = avro_type["type"]
        if isinstance(kind, (list, dict)):
            return self.encoder(kind)
        if kind == "array":
            return _array(self.encoder(avro_type["items"]))
        if kind == "map":
            return _map(self.encoder(avro_type["values"]))
        if kind in ("record", "error"):
            return self._record(avro_type)
        if kind not in ("enum", "fixed"):
            return primitive_encoder(kind, avro_type.get("logicalType"))
        encode = _enum(avro_type["symbols"]) if kind == "enum" else _fixed(avro_type)
        self._named[avro_type["name"]] = encode
        return encode

    def _record(self, avro_type: Mapping[str, Any]) -> Encoder:
        fields: list[
            tuple[str, Encoder, bytes | None]
        ] = []  # filled below: a record may hold itself
        encode = self._named[avro_type["name"]] = _record(fields)
        for field in avro_type["fields"]:
            encode_field = self.encoder(field["type"])
            fields.append((field["name"], encode_field, encode_default(field, encode_field)))
        return encode


def encode_default(field: Mapping[str, Any], encode: Encoder) -> bytes | None:
    """Return the Avro encoding of a schema field's default value.

    The default of a union may match any of its branches, as in Avro 1.12.

    Args:
        field: Field of a parsed Avro schema.
        encode: Encoder of the field's type.

    Returns:
        The encoding, or None if the field has no default.

    Raises:
        Mismatch: If the default value does not match the type.
    """
    return encode_to_bytes(encode, field["default"]) if "default" in field else None


def _enum(symbols: list[str]) -> Encoder:
    indices = {symbol: encode_to_bytes(put_long, index) for index, symbol in enumerate(symbols)}

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
        raw = json_string_to_bytes(value)
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
                    raise error.nested_in(f"[{index}]") from None
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
                    raise error.nested_in(f"[{key!r:.80}]") from None
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
                    raise error.nested_in(f".{name}") from None
            elif default is not None:
                if len(out) < ENCODED_BYTES_MAX:
                    out += default
            else:
                raise Mismatch(f"must have {name}")
        if left:
            unknown = sorted(set(value) - {name for name, _, _ in fields})
            raise Mismatch(f"must not have {', '.join(unknown)[:200]}")

    return encode


def _union(branches: list[Encoder], avro_types: list[AvroType]) -> Encoder:
    indices = [encode_to_bytes(put_long, index) for index in range(len(branches))]

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
        raise Mismatch(
            " or ".join(dict.fromkeys(str(problem) for problem in problems))[:400], reason
        )

    if "null" not in avro_types or len(branches) != 2:
        return encode_any
    nullable = avro_types.index("null")
    null_index, index, branch = indices[nullable], indices[1 - nullable], branches[1 - nullable]

    def encode_nullable(value: Any, out: bytearray) -> None:
        if value is None:
            out += null_index
        else:
            out += index
            branch(value, out)

    return encode_nullable
