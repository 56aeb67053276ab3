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

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from delivery_service.parsing.timestamps import rfc3339_us
from hourmark.dead_letters import Reason

Encoder = Callable[[Any, bytearray], None]  # appends the value's encoding; Mismatch if it is not of the type
AvroType = Any  # as fastavro.parse_schema returns it: names resolved, references by full name

_ABSENT: Final = object()
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_YEAR_1_S: Final = -62_135_596_800
_YEAR_10000_S: Final = 253_402_300_800
_INTEGER_RANGES: Final = {  # of logical types; what readers can turn into dates and times
    "int": (-(1 << 31), 1 << 31),
    "long": (-(1 << 63), 1 << 63),
    "date": (_YEAR_1_S // 86_400, _YEAR_10000_S // 86_400),
    "time-millis": (0, 86_400_000),
    "time-micros": (0, 86_400_000_000),
    "timestamp-millis": (_YEAR_1_S * 1000, _YEAR_10000_S * 1000),
    "timestamp-micros": (_YEAR_1_S * 1_000_000, _YEAR_10000_S * 1_000_000),
    "local-timestamp-millis": (_YEAR_1_S * 1000, _YEAR_10000_S * 1000),
    "local-timestamp-micros": (_YEAR_1_S * 1_000_000, _YEAR_10000_S * 1_000_000),
}
_MICROS_PER_UNIT: Final = {"timestamp-millis": 1000, "timestamp-micros": 1}


class Mismatch(ValueError):
    """The value is not of the declared type; the message says what was expected, and where below the field."""

    def __init__(self, expected: str, reason: Reason = Reason.WRONG_FIELD) -> None:
        super().__init__(expected)
        self.reason = reason

    def below(self, place: str) -> Mismatch:
        """The same, seen from one level up."""
        return Mismatch(f"{place}: {self}", self.reason)


def put_long(value: int, out: bytearray) -> None:
    """Append a whole number in Avro's variable-length zig-zag form."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def put_bytes(value: bytes, out: bytearray) -> None:
    """Append length and bytes: `bytes`, and `string` of what is UTF-8 already."""
    put_long(len(value), out)
    out += value


def encoded(encoder: Encoder, value: Any) -> bytes:
    """The encoding by itself."""
    out = bytearray()
    encoder(value, out)
    return bytes(out)


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
        return _primitive(kind, avro_type.get("logicalType"))

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
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
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


def _null(value: Any, _: bytearray) -> None:
    if value is not None:
        raise Mismatch("must be null")


def _boolean(value: Any, out: bytearray) -> None:
    if value is True:
        out.append(1)
    elif value is False:
        out.append(0)
    else:
        raise Mismatch("must be true or false")


def _string(value: Any, out: bytearray) -> None:
    if type(value) is not str:
        raise Mismatch("must be a string")
    put_bytes(value.encode(), out)


def _uuid_string(value: Any, out: bytearray) -> None:
    if type(value) is not str or not _UUID.fullmatch(value):
        raise Mismatch("must be a UUID of 36 characters in lower case")
    put_bytes(value.encode(), out)


def _raw(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    try:
        if type(value) is str:
            return value.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise Mismatch("must be a string of characters U+0000 to U+00FF, one for each byte")


def _bytes(value: Any, out: bytearray) -> None:
    put_bytes(_raw(value), out)


def _double(value: Any, out: bytearray) -> None:
    out += struct.pack("<d", _number(value))


def _float(value: Any, out: bytearray) -> None:
    number = _number(value)
    try:
        packed = struct.pack("<f", number)
    except OverflowError:
        raise Mismatch("is out of a float's range; declare a double") from None
    if type(value) is int and struct.unpack("<f", packed)[0] != value:
        raise Mismatch("is a whole number that a float cannot hold exactly")
    out += packed


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise Mismatch("must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = 0.0
    if number != value:
        raise Mismatch("is a whole number that a double cannot hold exactly")
    return number


def _integer(logical: str) -> Encoder:
    low, end = _INTEGER_RANGES[logical]
    message = f"must be a whole number from {low} to {end - 1}"

    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not int or not low <= value < end:
            raise Mismatch(message)
        put_long(value, out)

    return encode


def _timestamp(logical: str) -> Encoder:
    whole = _integer(logical)
    unit_us = _MICROS_PER_UNIT[logical]

    def encode(value: Any, out: bytearray) -> None:
        if type(value) is str:
            micros = rfc3339_us(value.encode(), 6)
            if micros is None or micros % unit_us:
                raise Mismatch(f"must be an RFC 3339 time that {logical} can hold, or a whole number")
            value = micros // unit_us
        whole(value, out)

    return encode


def _primitive(kind: str, logical: str | None) -> Encoder:
    if kind == "long" and logical in _MICROS_PER_UNIT:
        return _timestamp(logical)
    if logical in _INTEGER_RANGES and kind == ("int" if logical in ("date", "time-millis") else "long"):
        return _integer(logical)
    if kind == "string" and logical == "uuid":
        return _uuid_string
    if kind not in _PRIMITIVES:
        raise ValueError(f"{kind!r} is no Avro type")
    return _PRIMITIVES[kind]


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
    is_uuid = avro_type.get("logicalType") == "uuid"

    def encode(value: Any, out: bytearray) -> None:
        if is_uuid and type(value) is str and _UUID.fullmatch(value):
            out += uuid.UUID(value).bytes
            return
        raw = _raw(value)
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


_PRIMITIVES: Final[dict[str, Encoder]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int"),
    "long": _integer("long"),
    "float": _float,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
}
