"""Encoders of primitive Avro types; `encode` documents which values each type accepts.

`ENCODED_BYTES_MAX` limits the memory of an encoding. A small payload can have a large encoding:
`{}` in an array of records becomes all defaults of the record, and each group of a pattern can
contain the whole line. Once `out` has reached the limit, encoders append no more defaults, and what
exceeds the limit after a text field is cut off. The rest of the value is still checked, so the
outcome does not depend on the limit: an invalid value is a `Mismatch`, and `Parser` rejects an
encoding that reached the limit because its event exceeds `EVENT_BYTES_MAX`. Without defaults, an
encoding has at most five bytes for each byte of its payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from hourmark.avro.fields import INTEGER_RANGES, UUID_TEXT
from hourmark.avro.framing import SHORT_END, SHORT_LONGS, put_long
from hourmark.records.dead_letters import DeadLetterReason
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us

ENCODED_BYTES_MAX: Final = 6 << 20  # of a datum; an event has this limit with its key and envelope

Encoder = Callable[
    [Any, bytearray], None
]  # appends the value's encoding; Mismatch if it is not of the type

MICROS_PER_UNIT: Final = {"timestamp-millis": 1000, "timestamp-micros": 1}


class Mismatch(ValueError):
    """A value does not match its declared Avro type.

    The message states what was expected. If the invalid value is nested, the message starts with
    its path within the field, as in `[3]: must be a string`.

    Args:
        expected: Message, such as `must be a string`.
        reason: Machine-readable reason for the rejection of the line.

    Attributes:
        reason: Machine-readable reason for the rejection of the line.
    """

    def __init__(
        self, expected: str, reason: DeadLetterReason = DeadLetterReason.WRONG_FIELD
    ) -> None:
        super().__init__(expected)
        self.reason = reason

    @property
    def suffix(self) -> str:
        """Return the message in a form that can be appended to a field name.

        For example, the result is ` must be a string`, with a leading space. If the invalid value
        is nested, the result starts with its path within the field, as in `[3]: must be a string`.
        """
        message = str(self)
        return message if message[:1] in (".", "[") else f" {message}"

    def nested_in(self, path: str) -> Mismatch:
        """Return a copy of this error for the enclosing value.

        The path of the invalid value is prepended to the message.

        Args:
            path: Path from the enclosing value to the invalid one, such as `[3]` or `.name`.
        """
        return Mismatch(f"{path}: {self}", self.reason)


def put_bytes(value: bytes, out: bytearray) -> None:
    """Append the Avro encoding of a byte string to `out`: its length, then its bytes.

    Args:
        value: Bytes, or a string that is already encoded as UTF-8.
        out: Buffer to append to.
    """
    put_long(len(value), out)
    out += value


def encode_to_bytes(encoder: Encoder, value: Any) -> bytes:
    """Encode a value with an Avro encoder and return the encoding.

    Args:
        encoder: Encoder, which appends to a bytearray.
        value: Value to encode.

    Raises:
        Mismatch: If the value does not match the encoder's type.
    """
    out = bytearray()
    encoder(value, out)
    return bytes(out)


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
    raw = value.encode()
    size = len(raw)
    if size < SHORT_END:
        out += SHORT_LONGS[size]
    else:
        put_long(size, out)
    out += raw


def _uuid_string(value: Any, out: bytearray) -> None:
    if type(value) is not str or not UUID_TEXT.fullmatch(value):
        raise Mismatch("must be a UUID of 36 characters in lower case")
    put_bytes(value.encode(), out)


def json_string_to_bytes(value: Any) -> bytes:
    """Convert an Avro `bytes` value from its JSON form to bytes.

    The JSON form is a string with one character from U+0000 to U+00FF for each byte. A value of
    type `bytes` is returned unchanged.

    Args:
        value: JSON value.

    Raises:
        Mismatch: If the value is not such a string.
    """
    if type(value) is bytes:
        return value
    try:
        if type(value) is str:
            return value.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise Mismatch("must be a string of characters U+0000 to U+00FF, one for each byte")


def _bytes(value: Any, out: bytearray) -> None:
    put_bytes(json_string_to_bytes(value), out)


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


def _integer(kind: str, logical: str | None) -> Encoder:
    low, end = INTEGER_RANGES[kind, logical]
    message = f"must be a whole number from {low} to {end - 1}"

    def encode(value: Any, out: bytearray) -> None:
        if type(value) is not int or not low <= value < end:
            raise Mismatch(message)
        put_long(value, out)

    return encode


def _timestamp(logical: str) -> Encoder:
    whole = _integer("long", logical)
    unit_us = MICROS_PER_UNIT[logical]

    def encode(value: Any, out: bytearray) -> None:
        if type(value) is str:
            micros = rfc3339_us(value.encode(), 6)
            if micros is None or micros % unit_us:
                raise Mismatch(
                    f"must be an RFC 3339 time that {logical} can hold, or a whole number"
                )
            value = micros // unit_us
        whole(value, out)

    return encode


def primitive_encoder(kind: str, logical: str | None) -> Encoder:
    """Return the encoder for a primitive Avro type with an optional logical type.

    Args:
        kind: Name of the primitive type, such as `long`.
        logical: Logical type, such as `timestamp-millis`, or None. Unknown logical types are
            ignored.

    Returns:
        A function that appends the Avro encoding of a JSON value to a bytearray. It raises
        `Mismatch` if the value does not match the type.

    Raises:
        ValueError: If there is no such primitive type.
    """
    if kind == "long" and logical in MICROS_PER_UNIT:
        return _timestamp(logical)
    if (kind, logical) in INTEGER_RANGES:
        return _integer(kind, logical)
    if kind == "string" and logical == "uuid":
        return _uuid_string
    if kind not in PRIMITIVES:
        raise ValueError(f"{kind!r} is no Avro type")
    return PRIMITIVES[kind]


PRIMITIVES: Final[dict[str, Encoder]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int", None),
    "long": _integer("long", None),
    "float": _float,
    "double": _double,
    "string": _string,
    "bytes": _bytes,
}
