"""Encoding of texts as Avro values: groups of a pattern, a text payload, or a whole line.

    string            unchanged, if it is UTF-8           bytes          unchanged
    int, long         [+-]digits                          float, double  decimal or scientific
    boolean           true, false                         enum           a symbol
    timestamp-…       digits, or RFC 3339                 union          the first branch that accepts it

Other types cannot be encoded from text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from hourmark.avro.framing import put_long
from hourmark.records.dead_letters import DeadLetterReason
from hourmark_delivery_service.parsing.values.encode import AvroType, SchemaCompiler
from hourmark_delivery_service.parsing.values.primitives import (
    Encoder,
    Mismatch,
    encode_to_bytes,
    put_bytes,
)

TextEncoder = Callable[
    [bytes, bytearray], None
]  # appends the encoding of this text; Mismatch if it is not of the type

_INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


def text_encoder(avro_type: AvroType, compiler: SchemaCompiler) -> TextEncoder:
    """Return a function that encodes text as a value of an Avro type.

    For example, the text `42` can be encoded as a `string` or as a `long`.

    Args:
        avro_type: Type as `fastavro.parse_schema` returns it.
        compiler: Compiler that has compiled the named types that `avro_type` refers to.

    Returns:
        A function that appends the Avro encoding of text to a bytearray. It raises `Mismatch` if
        the text does not match the type. For types such as arrays, it always raises `Mismatch`.
    """
    if isinstance(avro_type, list):
        return _union(avro_type, compiler)
    kind, plain = _kind(avro_type)
    if kind == "string" and plain:
        return _string
    if kind == "bytes":
        return put_bytes
    read = _READERS.get(kind)
    if read is None:
        return _refuse
    return _converted(read, compiler.encoder(avro_type))


def takes_bytes(avro_type: AvroType) -> bool:
    """Return whether an Avro type, or a branch of a union, is `bytes` or `fixed`.

    If it is, a byte order mark at the start of the text is kept.

    Args:
        avro_type: Type as `fastavro.parse_schema` returns it.
    """
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    return any(_kind(branch)[0] in ("bytes", "fixed") for branch in branches)


def _kind(avro_type: AvroType) -> tuple[str, bool]:
    plain = True
    while isinstance(avro_type, dict):
        plain = plain and "logicalType" not in avro_type
        avro_type = avro_type["type"]
    return str(avro_type), plain


def _string(text: bytes, out: bytearray) -> None:
    _utf8(text)
    put_bytes(text, out)


def _utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Mismatch(
            f"is not UTF-8: {error.reason} at byte {error.start}", DeadLetterReason.NOT_UTF8
        ) from None


def _integer(text: bytes) -> int:
    if not _INTEGER.fullmatch(text):
        raise Mismatch("must be a whole number")
    return int(text)


def _number(text: bytes) -> float | int:
    if not _DECIMAL.fullmatch(text):
        raise Mismatch("must be a number")
    number = float(text)
    if math.isinf(number):
        raise Mismatch("is out of range")
    return number


def _boolean(text: bytes) -> bool:
    if text not in (b"true", b"false"):
        raise Mismatch("must be true or false")
    return text == b"true"


def _integer_or_time(text: bytes) -> int | str:
    return int(text) if _INTEGER.fullmatch(text) else _utf8(text)


def _refuse(_text: bytes, _out: bytearray) -> None:
    raise Mismatch("has a type that cannot be filled from text")


_READERS: dict[str, Callable[[bytes], Any]] = {
    "string": _utf8,
    "int": _integer,
    "long": _integer_or_time,
    "float": _number,
    "double": _number,
    "boolean": _boolean,
    "enum": _utf8,
}


def _converted(read: Callable[[bytes], Any], encode: Encoder) -> TextEncoder:
    def encode_text(text: bytes, out: bytearray) -> None:
        encode(read(text), out)

    return encode_text


def _union(branches: list[AvroType], compiler: SchemaCompiler) -> TextEncoder:
    candidates = [
        (encode_to_bytes(put_long, index), text_encoder(branch, compiler))
        for index, branch in enumerate(branches)
        if branch != "null"
    ]

    def encode_text(text: bytes, out: bytearray) -> None:
        start = len(out)
        problem = Mismatch("can only be null")
        for index, branch in candidates:
            out += index
            try:
                return branch(text, out)
            except Mismatch as error:
                del out[start:]
                problem = error
        raise problem

    return encode_text
