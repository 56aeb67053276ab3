"""Values as Avro holds them, from what a line says: JSON, or the text of a pattern's group.

Values are plain, as Avro writes them below its logical types: a timestamp is a whole number, a
decimal is bytes. A whole number is no float and no boolean, and the other way round.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from hourmark_verify.judge.rfc5424 import unix_us

_DAYS: Final = (-719_162, 2_932_897)  # of the years 1 to 9999, since 1970
_UNITS: Final = {"millis": 86_400_000, "micros": 86_400_000_000}  # to the day
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class Refused(Exception):
    """A line, or a value in it, is not of the type.

    `reason`: of the dead letter; `says` is part of its detail.
    """

    def __init__(
        self, reason: str = "wrong_field", says: str = "", claimed: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.says, self.claimed = reason, says, claimed


Names = Mapping[str, Any]  # the schema's named types


def plain(schema: Any) -> Any:
    """Return a copy of an Avro schema without `logicalType` and `doc` keys."""
    if isinstance(schema, dict):
        return {
            key: plain(value) for key, value in schema.items() if key not in ("logicalType", "doc")
        }
    return [plain(item) for item in schema] if isinstance(schema, list) else schema


def same(a: object, b: object) -> bool:
    """Return whether two values are equal in value and type, including the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


def from_json(avro: Any, value: Any, names: Names) -> Any:
    """Convert a JSON value to the value that Avro stores for it.

    Args:
        avro: Avro schema of the value.
        value: parsed JSON value.
        names: named types of the schema, by name.

    Raises:
        Refused: if the value does not match the schema.
    """
    if isinstance(avro, list):
        return _first(lambda branch: from_json(branch, value, names), avro)
    kind, logical, avro = _kind(avro, names)
    match kind:
        case "array":
            return [from_json(avro["items"], item, names) for item in _of(list, value)]
        case "map":
            return {
                key: from_json(avro["values"], item, names)
                for key, item in _of(dict, value).items()
            }
        case "record" | "error":
            return record(avro["fields"], _of(dict, value), names)
        case "enum":
            return _if(_of(str, value), value in avro["symbols"])
        case "bytes" | "fixed":
            return _bytes(avro, value, kind, logical)
        case "float" | "double":
            return _float(value, kind)
        case "int" | "long":
            return _whole(value, kind, logical)
        case "string":
            return _if(_of(str, value), logical != "uuid" or _UUID.fullmatch(value))
    return _of(bool if kind == "boolean" else type(None), value)


def record(fields: list[dict[str, Any]], value: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The same for an object of exactly these fields; those with a default may be missing."""
    held = {}
    for field in fields:
        name = field["name"]
        if name not in value and "default" not in field:
            raise Refused("missing_field", name)
        try:
            held[name] = from_json(field["type"], value.get(name, field.get("default")), names)
        except Refused:
            raise Refused("wrong_field", name) from None
    if unknown := sorted(value.keys() - held.keys()):
        raise Refused("unknown_field", unknown[0][:100])
    return held


def from_text(avro: Any, text: bytes, names: Names) -> Any:
    """Convert the text of a field to the value that Avro stores for it.

    Args:
        avro: Avro schema of the value.
        text: raw bytes of the field.
        names: named types of the schema, by name.

    Raises:
        Refused: if the text cannot be converted.
    """
    if isinstance(avro, list):
        return _first(
            lambda branch: from_text(branch, text, names),
            [branch for branch in avro if branch != "null"],
        )
    kind, _, _ = _kind(avro, names)
    if kind == "bytes":
        return text
    try:
        told = text.decode()
    except UnicodeDecodeError:
        raise Refused("not_utf8" if kind in ("string", "enum", "long") else "wrong_field") from None
    if kind in ("string", "enum") or (kind == "long" and not _WHOLE.fullmatch(told)):
        return from_json(avro, told, names)
    if kind in ("int", "long"):
        return from_json(avro, int(_if(told, _WHOLE.fullmatch(told))), names)
    if kind in ("float", "double"):
        number = float(_if(told, _DECIMAL.fullmatch(told)))
        return from_json(avro, _if(number, abs(number) != float("inf")), names)
    return from_json(
        avro, _if(told, kind == "boolean" and told in ("true", "false")) == "true", names
    )


def _kind(avro: Any, names: Names) -> tuple[str, str | None, Any]:
    """The type below names and annotations, its logical type, and its own declaration."""
    logical = None
    while not isinstance(avro, str) or avro in names:
        avro = names[avro] if isinstance(avro, str) else avro
        logical = logical or avro.get("logicalType")
        if avro["type"] in ("array", "map", "record", "error", "enum", "fixed"):
            return avro["type"], logical, avro
        avro = avro["type"]
    return avro, logical, avro


def _first(read: Callable[[Any], Any], branches: list[Any]) -> Any:
    refused = Refused()
    for branch in branches:
        try:
            return read(branch)
        except Refused as error:
            refused = error
    raise refused


def _if(value: Any, holds: object) -> Any:
    if not holds:
        raise Refused
    return value


def _of(kind: type, value: Any) -> Any:
    return _if(value, type(value) is kind)


def _bytes(avro: Any, value: Any, kind: str, logical: str | None) -> bytes:
    if kind == "fixed" and logical == "uuid" and _UUID.fullmatch(_of(str, value)):
        return uuid.UUID(value).bytes
    try:
        raw: bytes = _of(str, value).encode("latin-1")
    except UnicodeEncodeError:
        raise Refused from None
    return bytes(_if(raw, kind == "bytes" or len(raw) == avro["size"]))


def _float(value: Any, kind: str) -> float:
    _if(value, type(value) in (int, float))
    try:
        number = float(value)
        held = struct.unpack("<f", struct.pack("<f", number))[0] if kind == "float" else number
    except OverflowError:
        raise Refused from None
    return float(_if(held, type(value) is float or held == value))


def _whole(value: Any, kind: str, logical: str | None) -> int:
    low, end = (-(1 << 31), 1 << 31) if kind == "int" else (-(1 << 63), 1 << 63)
    what, _, unit = (logical or "").rpartition("-")
    if logical == "date" and kind == "int":
        low, end = _DAYS
    elif what == "time" and (kind == "int") == (unit == "millis"):
        low, end = 0, _UNITS[unit]
    elif what in ("timestamp", "local-timestamp") and kind == "long" and unit in _UNITS:
        low, end = (day * _UNITS[unit] for day in _DAYS)
        if what == "timestamp" and type(value) is str:
            micros, each = unix_us(value), _UNITS["micros"] // _UNITS[unit]
            value = _if(micros, micros is not None and micros % each == 0) // each
    return int(_if(value, type(value) is int and low <= value < end))
