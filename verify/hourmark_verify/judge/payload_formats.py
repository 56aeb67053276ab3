"""What a message says by name, as its type's declaration has it: texts as bytes, and JSON's
values.
"""

from __future__ import annotations

import json
import string
from typing import Any, Final

from hourmark_verify.judge.values import LineRejected

_SHORT: Final = {
    **dict(zip("\"\\/'", "\"\\/'", strict=True)),
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
}
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


def parse_tsv(message: bytes, names: list[str]) -> dict[str, bytes]:
    """Of a message with tabs between."""
    texts = message.removesuffix(b"\r").split(b"\t")
    if len(texts) != len(names):
        raise LineRejected("bad_columns")
    return {name: text for name, text in zip(names, texts, strict=True) if name != "-"}


def parse_logfmt(message: bytes) -> dict[str, bytes]:
    """Of `key=value key="value"`."""
    text = message.decode("latin-1").removesuffix("\r")
    said: dict[str, bytes] = {}
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
        said[key] = value.encode("latin-1")
    if not equals:
        raise LineRejected("bad_logfmt")
    try:
        return {key.encode("latin-1").decode(): value for key, value in said.items()}
    except UnicodeDecodeError:
        raise LineRejected("not_utf8") from None


def unknown_value_text(value: Any) -> str:
    """Of a key that is no field: the string, else JSON."""
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


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _parse_value(text: str, at: int) -> tuple[str, int]:
    """A value, and where it ends."""
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
    """Append what the escape at `at`, behind its backslash, stands for; where it ends."""
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
