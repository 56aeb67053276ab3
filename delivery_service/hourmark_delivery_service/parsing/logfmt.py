"""logfmt: `key=value key="quoted value" key`, with spaces or tabs between.

A key without `=` says `true`. A value in quotes may hold the escapes of JSON and of Go, which most writers of logfmt are
written in; `\\x` gives a byte. Without quotes it ends at the next space. Of a key that occurs twice the last value wins.
A message without any `=` is none: words are no keys.
"""

from __future__ import annotations

import re
from typing import Final

from hourmark.dead_letters import Reason
from hourmark_delivery_service.parsing.reject import Rejected

_PAIR: Final = re.compile(
    rb"""[ \t]*+ ([^\x00-\x20="\x7f]++)                                  # the key
         (?:(=) (?:"((?:[^"\\]|\\.)*+)" | ([^\x00-\x20"\x7f][^\x00-\x20\x7f]*+)?))?
         (?=[ \t]|\r?$)""",
    re.VERBOSE | re.DOTALL,
)
_REST: Final = re.compile(rb"[ \t]*\r?")
_ESCAPE: Final = re.compile(
    rb"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_PLAIN: Final = dict(zip(b"\"\\/'abfnrtv", b"\"\\/'\a\b\f\n\r\t\v", strict=True))


def pairs(message: bytes) -> dict[str, bytes]:
    """Values by key. Rejected with BAD_LOGFMT, or NOT_UTF8 of a key."""
    found: dict[bytes, bytes] = {}
    at, has_value = 0, False
    while match := _PAIR.match(message, at):
        key, equals, quoted, bare = match.groups()
        found[key] = (bare or b"" if equals else b"true") if quoted is None else _ESCAPE.sub(_meaning, quoted)
        has_value = has_value or equals is not None
        at = match.end()
    if not _REST.fullmatch(message, at):
        raise Rejected(Reason.BAD_LOGFMT, f"the message is no logfmt from byte {at} on")
    if not has_value:
        raise Rejected(Reason.BAD_LOGFMT, "the message has no key=value")
    try:
        return {key.decode(): value for key, value in found.items()}
    except UnicodeDecodeError:
        raise Rejected(Reason.NOT_UTF8, "a key of the message is not UTF-8") from None


def _meaning(escape: re.Match[bytes]) -> bytes:
    byte, unit, second, point, plain = escape.groups()
    if byte:
        return bytes.fromhex(byte.decode())
    if plain:
        if plain[0] not in _PLAIN:
            raise Rejected(Reason.BAD_LOGFMT, "a quoted value has an escape that is none")
        return bytes([_PLAIN[plain[0]]])
    code = int(unit or point, 16)
    if unit and 0xD800 <= code < 0xDC00 and second:
        code, second = 0x10000 + ((code - 0xD800) << 10) + int(second, 16) - 0xDC00, None
    rest = _character(int(second, 16)) if second else b""
    return _character(code) + rest


def _character(code: int) -> bytes:
    try:
        return chr(code).encode()
    except (ValueError, OverflowError):
        raise Rejected(Reason.BAD_LOGFMT, "a quoted value has an escape of no character") from None
