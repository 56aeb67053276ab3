"""Message formats: from the bytes of a message to named values, its time and its host.

Each payload format of a type declaration (JSON, logfmt, TSV, pattern, text) has a parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hourmark.records.dead_letters import DeadLetterReason
from hourmark.rules.line_rule import SKIPPED, LineRule
from hourmark_delivery_service.parsing.json_payload import parse_json_object
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.syslog.rfc5424 import BOM
from hourmark_delivery_service.parsing.values.patterns import LinePattern

_PAIR: Final = re.compile(
    rb"""[ \t]*+ ([^\x00-\x20="\x7f]++)                                  # the key
         (?:(=) (?:"((?:[^"\\]|\\.)*+)" | ([^\x00-\x20"\x7f][^\x00-\x20\x7f]*+)?))?
         (?=[ \t]|\r?$)""",
    re.VERBOSE | re.DOTALL,
)
_REST: Final = re.compile(rb"[ \t]*\r?")
_ESCAPE: Final = re.compile(
    rb"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)
_NOTHING: Final = object()
_PLAIN: Final = dict(zip(b"\"\\/'abfnrtv", b"\"\\/'\a\b\f\n\r\t\v", strict=True))


def parse_logfmt(message: bytes) -> dict[str, bytes]:
    """Parse a logfmt message, such as `key=value key="quoted value" flag`.

    Args:
        message: Message without its line feed.

    Returns:
        A dict that maps keys to unquoted values. A key without a value has the value `true`. If a
        key is repeated, its last value is used.

    Raises:
        Rejected: If the message is not valid logfmt, contains no `key=value`, or has a key that is
            not UTF-8.
    """
    found: dict[bytes, bytes] = {}
    at, has_value = 0, False
    while match := _PAIR.match(message, at):
        key, equals, quoted, bare = match.groups()
        found[key] = (
            (bare or b"" if equals else b"true")
            if quoted is None
            else _ESCAPE.sub(_meaning, quoted)
        )
        has_value = has_value or equals is not None
        at = match.end()
    if not _REST.fullmatch(message, at):
        raise Rejected(DeadLetterReason.BAD_LOGFMT, f"the message is no logfmt from byte {at} on")
    if not has_value:
        raise Rejected(DeadLetterReason.BAD_LOGFMT, "the message has no key=value")
    try:
        return {key.decode(): value for key, value in found.items()}
    except UnicodeDecodeError:
        raise Rejected(DeadLetterReason.NOT_UTF8, "a key of the message is not UTF-8") from None


def _meaning(escape: re.Match[bytes]) -> bytes:
    byte, unit, second, point, plain = escape.groups()
    if byte:
        return bytes.fromhex(byte.decode())
    if plain:
        if plain[0] not in _PLAIN:
            raise Rejected(DeadLetterReason.BAD_LOGFMT, "a quoted value has an escape that is none")
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
        raise Rejected(
            DeadLetterReason.BAD_LOGFMT, "a quoted value has an escape of no character"
        ) from None


class ParsedMessage(NamedTuple):
    """The named values of a log message, with its time and host.

    Attributes:
        values: Maps names to values: bytes if they come from text, or JSON values.
        time: The timestamp as text, or None if the message has no time.
        host: The host as text, or None if the message has no host.
    """

    values: Mapping[str, Any]
    time: bytes | None = None
    host: bytes | None = None


MessageParser = Callable[[bytes], ParsedMessage]  # Rejected if the message has not this form


def message_parser_for(
    rule: LineRule, field_names: frozenset[str], pattern: LinePattern | None, keeps_bom: bool
) -> MessageParser:
    """Return the function that parses messages in the payload format of an event type.

    The formats are JSON, logfmt, TSV, pattern and text.

    Args:
        rule: Parsing rule of the type.
        field_names: Names of the type's fields. The time and the host of a message are removed from
            its values if they are not fields.
        pattern: Compiled pattern of the type, or None.
        keeps_bom: Whether to keep a byte order mark at the start of a text payload.

    Returns:
        A function that converts the bytes of a message to a `ParsedMessage`. It raises `Rejected`
        if the message does not have the format.
    """
    if rule.payload == "json":
        return _keyed(parse_json_object, rule, field_names)
    if rule.payload == "logfmt":
        return _keyed(
            lambda message: _present(parse_logfmt(message), rule),
            rule,
            field_names,
        )
    if rule.payload == "tsv":
        return _tsv(rule, field_names)
    if pattern is not None:
        return _matching(rule, field_names, pattern)
    field = rule.field or ""

    def text(message: bytes) -> ParsedMessage:
        return ParsedMessage({field: message if keeps_bom else message.removeprefix(BOM)})

    return text


def _tsv(rule: LineRule, own: frozenset[str]) -> MessageParser:
    columns = rule.columns or []

    def read(message: bytes) -> ParsedMessage:
        values = message.removesuffix(b"\r").split(b"\t")
        if len(values) != len(columns):
            raise Rejected(
                DeadLetterReason.BAD_COLUMNS,
                f"the message has {len(values)} columns, {len(columns)} are declared",
            )
        named = {
            name: value for name, value in zip(columns, values, strict=True) if name != SKIPPED
        }
        return _placed(_present(named, rule), rule, own)

    return read


def _matching(rule: LineRule, own: frozenset[str], pattern: LinePattern) -> MessageParser:
    def read(message: bytes) -> ParsedMessage:
        groups = pattern.match(message)
        if groups is None:
            raise Rejected(
                DeadLetterReason.NO_PATTERN, "the pattern does not fit the whole message"
            )
        texts = {
            name: text
            for name, index in pattern.groups.items()
            if (text := groups[index]) is not None
        }
        if rule.field is not None and rule.field not in pattern.groups:
            texts[rule.field] = message
        return _placed(_present(texts, rule), rule, own, rule.time_group)

    return read


def _present(texts: dict[str, bytes], rule: LineRule) -> dict[str, bytes]:
    if rule.null_text is None:
        return texts
    null = rule.null_text.encode()
    return {name: text for name, text in texts.items() if text != null}


def _keyed(
    parse: Callable[[bytes], dict[str, Any]], rule: LineRule, own: frozenset[str]
) -> MessageParser:
    # Most types declare no keys, and every message is parsed here.
    if not (paths := rule.key_paths):
        return lambda message: _placed(parse(message), rule, own)
    return lambda message: _placed(move_declared_keys(parse(message), paths), rule, own)


def move_declared_keys(
    values: dict[str, Any], paths: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Move the values of a message to the fields that an event type declares for their keys.

    For example, `status` in the nested object `http` is moved to the field `http_status`.

    Args:
        values: Keys and values of the message. The dict is modified. Nested objects that become
            empty are removed.
        paths: Maps each field name to the key, or to the keys of nested objects, that contains its
            value (`LineRule.key_paths`). Keys that the message lacks are skipped.

    Returns:
        The modified dict `values`.
    """
    moved = {}
    for name, path in paths.items():
        if (value := _taken(values, path)) is not _NOTHING:
            moved[name] = value
    values.update(moved)
    return values


def _taken(values: dict[str, Any], path: tuple[str, ...]) -> Any:
    # Remove the value at a path, and the objects that become empty.
    key, *inner = path
    if not inner:
        return values.pop(key, _NOTHING)
    if type(within := values.get(key)) is not dict:
        return _NOTHING
    value = _taken(within, tuple(inner))
    if value is not _NOTHING and not within:
        del values[key]
    return value


def _placed(
    given: dict[str, Any], rule: LineRule, own: frozenset[str], time_group: str | None = None
) -> ParsedMessage:
    places = (time_group or rule.time_field, rule.host_field)
    time, host = (_text(given.get(name)) if name is not None else None for name in places)
    taken = {name for name in places if name is not None and name not in own}
    return ParsedMessage(
        {name: value for name, value in given.items() if name not in taken} if taken else given,
        time,
        host,
    )


def _text(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    return value.encode() if type(value) is str else json.dumps(value).encode()
