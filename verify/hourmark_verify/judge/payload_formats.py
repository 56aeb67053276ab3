"""Parsers of message formats: tab-separated columns, logfmt and JSON objects."""

from __future__ import annotations

import json
import math
import re
import string
from typing import Any, Final

from hourmark_verify.judge.values import LineRejected

BOM: Final = b"\xef\xbb\xbf"  # a byte order mark in UTF-8
_DEPTH_MAX: Final = 64  # nested arrays and objects in a JSON payload
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_SHORT: Final = {
    **dict(zip("\"\\/'", "\"\\/'", strict=True)),
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
}
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


def parse_tsv(message: bytes, names: list[str]) -> dict[str, bytes]:
    """Split a message into tab-separated columns.

    Args:
        message: The message; a carriage return at its end is ignored.
        names: Name of each column. Columns with the name "-" are skipped.

    Returns:
        Text of each column by name.

    Raises:
        LineRejected: With reason `bad_columns` if the message has another number of columns.
    """
    texts = message.removesuffix(b"\r").split(b"\t")
    if len(texts) != len(names):
        raise LineRejected("bad_columns")
    return {name: text for name, text in zip(names, texts, strict=True) if name != "-"}


def parse_logfmt(message: bytes) -> dict[str, bytes]:
    """Parse a message of the form `key=value key="value"`.

    Args:
        message: The message; a carriage return at its end is ignored.

    Returns:
        Unquoted value by key. A key without a value gets the value `true`. If a key is repeated,
        its last value is returned.

    Raises:
        LineRejected: With reason `bad_logfmt` if the syntax is wrong or no key has a value, or
            `not_utf8` if a key is not UTF-8.
    """
    text = message.decode("latin-1").removesuffix("\r")
    values: dict[str, bytes] = {}
    at, equals = 0, False
    while (at := _skip_blanks(text, at)) < len(text):
        end = next(
            (i for i in range(at, len(text)) if text[i] <= " " or text[i] in '="\x7f'), len(text)
        )
        key, at = text[at:end], end
        value = "true"
        if text[at : at + 1] == "=":
            value, at = _parse_value(text, at + 1)
            equals = True
        if not key or (at < len(text) and text[at] not in " \t"):
            raise LineRejected("bad_logfmt")
        values[key] = value.encode("latin-1")
    if not equals:
        raise LineRejected("bad_logfmt")
    try:
        return {key.encode("latin-1").decode(): value for key, value in values.items()}
    except UnicodeDecodeError:
        raise LineRejected("not_utf8") from None


def unknown_value_text(value: Any) -> str:
    """Convert the value of an undeclared field to text.

    All values of undeclared fields can be stored together in one field of the event.

    Args:
        value: Raw bytes or a parsed JSON value.

    Returns:
        Bytes are decoded as UTF-8. A string is returned unchanged, any other value as compact JSON.

    Raises:
        LineRejected: With reason `not_utf8` if bytes are not UTF-8.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise LineRejected("not_utf8") from None
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )


def parse_json_object(payload: bytes) -> dict[str, Any]:
    """Parse a payload that must be a JSON object.

    Args:
        payload: JSON text in UTF-8; a byte order mark at its start is ignored.

    Raises:
        LineRejected: With reason `not_utf8` if the payload is not UTF-8. With reason `bad_json` if
            it is not a JSON object, contains a number that is not finite or half of a surrogate
            pair, or nests arrays and objects more than 64 levels deep.
    """
    payload = payload.removeprefix(BOM)
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
            json.dumps(document, ensure_ascii=False).encode()  # raises for half of a surrogate pair
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


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _parse_value(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        end = next(
            (i for i in range(at, len(text)) if text[i] <= " " or text[i] == "\x7f"), len(text)
        )
        return text[at:end], end
    value, at = bytearray(), at + 1
    while text[at : at + 1] != '"':
        if at >= len(text):
            raise LineRejected("bad_logfmt")
        char, at = text[at], at + 1
        if char == "\\":
            at = _append_escape(text, at, value)
        else:
            value += char.encode("latin-1")
    return value.decode("latin-1"), at + 1


def _append_escape(text: str, at: int, out: bytearray) -> int:
    """Append the bytes of an escape sequence to `out` and return the index after the sequence.

    Args:
        text: The message, one character for each byte.
        at: Index of the first character after the backslash.
        out: Buffer to which the bytes are appended, in UTF-8.

    Raises:
        LineRejected: With reason `bad_logfmt` if the escape sequence is invalid.
    """
    kind = text[at : at + 1]
    if kind in _SHORT and kind:
        out += _SHORT[kind].encode()
        return at + 1
    end = at + 1 + _DIGITS.get(kind, 99)
    digits = text[at + 1 : end]
    if len(digits) != end - at - 1 or not set(digits) <= set(string.hexdigits):
        raise LineRejected("bad_logfmt")
    code = int(digits, 16)
    if kind == "x":
        out.append(code)
        return end
    low = text[end + 2 : end + 6]
    if (
        kind == "u"
        and 0xD800 <= code < 0xDC00
        and text[end : end + 2] == "\\u"
        and len(low) == 4
        and set(low) <= set(string.hexdigits)
    ):
        second = int(low, 16)
        if 0xDC00 <= second < 0xE000:
            code, end = 0x10000 + (code - 0xD800) * 0x400 + second - 0xDC00, end + 6
    try:
        out += chr(code).encode()
    except (ValueError, OverflowError):
        raise LineRejected("bad_logfmt") from None
    return end
