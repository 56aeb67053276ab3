"""Validation of the fields that an event type declares.

A declaration must be accepted by Avro, the schema registry and the rules topic. fastavro does not
check all of it: Avro's Java library, which registries use, rejects unions within unions, equal
branches and equal field names; the rules topic holds JSON, which has no dates, NaN or infinity; and
defaults are written by the same encoders as values. The default of a union may be of any branch
(Avro specification 1.12).
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hourmark.avro.framing import ENVELOPE, ENVELOPE_NAMES, NAMESPACE

FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
)
_INNER: Final = {
    "array": ("items", "an array"),
    "map": ("values", "a map"),
}  # key of the inner type, and name in messages
_ORDERS: Final = ("ascending", "descending", "ignore")
_DEPTH_MAX: Final = 64  # also of values; JSON parsers have limits not far above
_FIXED_BYTES_MAX: Final = 1 << 20
_UUID_BYTES: Final = 16
_LONG_END: Final = 1 << 63
_YEAR_1_S: Final = -62_135_596_800
_YEAR_10000_S: Final = 253_402_300_800

UUID_TEXT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# by type and logical type: lowest value and end of what readers can convert to dates and times
INTEGER_RANGES: Final = {
    ("int", None): (-(1 << 31), 1 << 31),
    ("long", None): (-_LONG_END, _LONG_END),
    ("int", "date"): (_YEAR_1_S // 86_400, _YEAR_10000_S // 86_400),
    ("int", "time-millis"): (0, 86_400_000),
    ("long", "time-micros"): (0, 86_400_000_000),
    ("long", "timestamp-millis"): (_YEAR_1_S * 1000, _YEAR_10000_S * 1000),
    ("long", "timestamp-micros"): (_YEAR_1_S * 1_000_000, _YEAR_10000_S * 1_000_000),
    ("long", "local-timestamp-millis"): (_YEAR_1_S * 1000, _YEAR_10000_S * 1000),
    ("long", "local-timestamp-micros"): (_YEAR_1_S * 1_000_000, _YEAR_10000_S * 1_000_000),
}

AvroType = Any  # as declared: a name, a list of branches, or an object
_Fields = Sequence[Mapping[str, Any]]


def check_fields(fields: Sequence[Any], own_name: str) -> None:
    """Check that the field declarations of an event type are valid.

    Args:
        fields: Avro field declarations, as parsed from a type file.
        own_name: Avro name of the type's record. Nested types must have other names.

    Raises:
        ValueError: A declaration is invalid. The message names the field and the invalid part of
            its declaration.
    """
    checker = FieldChecker(f"{NAMESPACE}.{own_name}")
    for field in fields:
        checker.check(field)
    _check_names(fields, ENVELOPE_NAMES)


def check_publishable(fields: Sequence[Any]) -> None:
    """Check that field declarations survive a round trip through JSON unchanged.

    The declarations are published as JSON in a Kafka topic.

    Args:
        fields: Avro field declarations.

    Raises:
        ValueError: JSON cannot represent a value, or represents it differently.
    """
    try:
        text = json.dumps(fields, allow_nan=False, ensure_ascii=False)
        same = json.loads(text.encode()) == fields
    except TypeError as error:
        raise ValueError(f"cannot be written as JSON: {error}") from error
    if not same:
        raise ValueError(
            "change when they are written as JSON and read back: keys must be strings, and "
            "sequences must be lists"
        )


def _check_json(value: object, depth: int = 0) -> None:
    if depth > _DEPTH_MAX:
        raise ValueError(f"is nested over {_DEPTH_MAX} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be written as JSON")
    if isinstance(value, int) and not -_LONG_END <= value < _LONG_END:
        raise ValueError("an integer does not fit into 64 bits")
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, (list, dict)):
        for place, inner in value.items() if isinstance(value, dict) else enumerate(value):
            with _at(str(place)):
                if isinstance(value, dict) and type(place) is not str:
                    raise ValueError("keys of a JSON object must be strings")
                _check_json(inner, depth + 1)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise ValueError(
            f"{value} is a {type(value).__name__}, which JSON cannot represent; write it in quotes"
        )


class FieldChecker:
    """A validator of the field declarations of one Avro record.

    Fields must be checked in order, because a field can refer to a named type of an earlier field.

    Args:
        own_name: Full name of the record. Fields may not contain the record itself.
    """

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._named: dict[str, Mapping[str, Any] | None] = {}  # None: declaration not complete
        for field in ENVELOPE:
            self._type(field["type"], NAMESPACE)

    def check(self, field: Any, namespace: str = NAMESPACE) -> None:
        """Check the declaration of one field.

        Args:
            field: The Avro field declaration.
            namespace: The Avro namespace for type names in the declaration.

        Raises:
            ValueError: The declaration is invalid. The message names the field and the invalid part
                of its declaration.
        """
        if not isinstance(field, dict) or not _is_name(field.get("name")):
            raise ValueError(
                "a field needs a name of letters, digits and _, not beginning with a digit"
            )
        with _at(f"field {field['name']!r}"):
            _check_json(field)
            _check_texts(field)
            if field.get("order", "ascending") not in _ORDERS:
                raise ValueError(f"order = {field['order']!r}: allowed: {', '.join(_ORDERS)}")
            if "type" not in field:
                raise ValueError("`type` is missing")
            with _at("type"):
                self._type(field["type"], namespace)
            if "default" in field:
                with _at("default"):
                    self._default(field["default"], field["type"], namespace)
                    if type(field["default"]) is int and _is_annotated_number(field["type"]):
                        raise ValueError("must be written with a decimal point")

    def _type(self, avro_type: AvroType, namespace: str) -> None:
        if isinstance(avro_type, list):
            self._union(avro_type, namespace)
            return
        if isinstance(avro_type, str):
            self._resolved(avro_type, namespace)
            return
        if not isinstance(avro_type, dict) or not isinstance(avro_type.get("type"), str):
            raise ValueError(
                f"{avro_type!r:.80} is not an Avro type; allowed: a name, a list of branches, or "
                "an object with `type`"
            )
        kind = avro_type["type"]
        _check_texts(avro_type)
        if kind in _INNER:
            inner, container = _INNER[kind]
            if inner not in avro_type:
                raise ValueError(f"{container} needs {inner}")
            with _at(inner):
                self._type(avro_type[inner], namespace)
        elif kind in ("record", "enum", "fixed"):
            self._declare(avro_type, namespace)
        elif kind not in _PRIMITIVES:
            raise ValueError(
                f"{kind!r} is not a type of Avro; to refer to a declared type, use its name alone"
            )
        _check_logical(avro_type)

    def _declare(self, avro_type: Mapping[str, Any], namespace: str) -> None:
        full_name = _full_name(avro_type, namespace)
        if full_name in self._named or full_name == self._own_name:
            raise ValueError(
                f"the type {full_name} is declared twice; rename one of them, or refer to the first"
            )
        self._named[full_name] = None
        with _at(full_name):
            if avro_type["type"] == "record":
                fields = avro_type.get("fields")
                if not isinstance(fields, list):
                    raise ValueError("a record requires `fields`")
                for field in fields:
                    self.check(field, full_name.rpartition(".")[0])
                _check_names(fields, frozenset())
            elif avro_type["type"] == "enum":
                _check_symbols(avro_type)
            else:
                _check_size(avro_type)
        self._named[full_name] = avro_type

    def _union(self, branches: Sequence[AvroType], namespace: str) -> None:
        seen: set[str] = set()
        for number, branch in enumerate(branches, 1):
            with _at(f"branch {number}"):
                if isinstance(branch, list):
                    raise ValueError("a union cannot directly contain another union")
                self._type(branch, namespace)
                name = self._branch_name(branch, namespace)
                if name in seen:
                    raise ValueError(f"the union already has a branch of type {name}")
                seen.add(name)
        if not seen:
            raise ValueError("a union requires at least one branch")

    def _branch_name(self, branch: AvroType, namespace: str) -> str:
        # Branches of a union must differ in the full name, or the kind of an unnamed type.
        if isinstance(branch, str):
            return branch if branch in _PRIMITIVES else _qualified(branch, namespace)
        return (
            _full_name(branch, namespace)
            if branch["type"] in ("record", "enum", "fixed")
            else str(branch["type"])
        )

    def _resolved(self, name: str, namespace: str) -> Mapping[str, Any] | None:
        # None: the declaration is not complete yet.
        if name in _PRIMITIVES:
            return {"type": name}
        full_name = _qualified(name, namespace)
        if full_name == self._own_name:
            raise ValueError(
                f"{full_name} is the event itself, and an event cannot contain another event"
            )
        if full_name not in self._named:
            raise ValueError(
                f"unknown type {full_name}: use a type of Avro, or declare it before its first use"
            )
        return self._named[full_name]

    def _default(self, value: object, avro_type: AvroType, namespace: str) -> None:
        if isinstance(avro_type, list):
            self._default_of_union(value, avro_type, namespace)
            return
        declared = self._resolved(avro_type, namespace) if isinstance(avro_type, str) else avro_type
        if declared is None:
            raise ValueError("a record that is not declared to its end has no values yet")
        kind = declared["type"]
        if kind == "array":
            for place, item in enumerate(_of(value, list, "an array")):
                with _at(f"[{place}]"):
                    self._default(item, declared["items"], namespace)
        elif kind == "map":
            for key, item in _of(value, dict, "a table").items():
                with _at(key):
                    self._default(item, declared["values"], namespace)
        elif kind == "record":
            own_namespace = _full_name(declared, namespace).rpartition(".")[0]
            self._default_of_record(_of(value, dict, "a table"), declared["fields"], own_namespace)
        else:
            _check_scalar(value, declared)

    def _default_of_union(
        self, value: object, branches: Sequence[AvroType], namespace: str
    ) -> None:
        problems: list[str] = []
        for branch in branches:
            try:
                return self._default(value, branch, namespace)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError(" or ".join(dict.fromkeys(problems)))

    def _default_of_record(self, value: Mapping[str, Any], fields: _Fields, namespace: str) -> None:
        by_name = {field["name"]: field for field in fields}
        if unknown := sorted(set(value) - set(by_name)):
            raise ValueError(f"the record has no field {', '.join(unknown)}")
        for name, field in by_name.items():
            if name in value:
                with _at(name):
                    self._default(value[name], field["type"], namespace)
            elif "default" not in field:
                raise ValueError(f"{name} is missing")


def _check_scalar(value: object, declared: Mapping[str, Any]) -> None:
    kind = declared["type"]
    if kind == "null":
        if value is not None:
            raise ValueError("must be null")
    elif kind == "boolean":
        _of(value, bool, "true or false")
    elif kind in ("int", "long"):
        low, end = INTEGER_RANGES.get(
            (kind, declared.get("logicalType")), INTEGER_RANGES[kind, None]
        )
        if type(value) is not int or not low <= value < end:
            raise ValueError(f"must be a whole number from {low} to {end - 1}")
    elif kind in ("float", "double"):
        if not _held_exactly(value, "<f" if kind == "float" else "<d"):
            raise ValueError(f"must be a number that a {kind} can hold")
    elif kind == "enum":
        if value not in declared["symbols"]:
            raise ValueError(f"must be one of {', '.join(declared['symbols'])}")
    else:
        _check_text(_of(value, str, "a string"), declared)


def _check_text(text: str, declared: Mapping[str, Any]) -> None:
    kind = declared["type"]
    if kind != "string" and not all(ord(character) <= 0xFF for character in text):
        raise ValueError("must be a string of characters U+0000 to U+00FF, one for each byte")
    if kind == "fixed" and len(text) != declared["size"]:
        raise ValueError(f"must have {declared['size']} characters, one for each byte")
    if kind == "string" and declared.get("logicalType") == "uuid" and not UUID_TEXT.fullmatch(text):
        raise ValueError("must be a UUID of 36 characters in lower case")


def _held_exactly(value: object, packing: str) -> bool:
    if type(value) not in (int, float):
        return False
    try:
        packed: float = struct.unpack(packing, struct.pack(packing, value))[0]
    except (OverflowError, struct.error):
        return False
    return type(value) is float or packed == value


def _is_annotated_number(avro_type: AvroType) -> bool:
    # For a type in object form, fastavro requires a float as default; for a plain name it
    # accepts whole numbers.
    return isinstance(avro_type, dict) and avro_type["type"] in ("float", "double")


def _check_names(fields: _Fields, taken: frozenset[str]) -> None:
    seen = set(taken)
    for field in fields:
        name = field["name"]
        if name in seen:
            raise ValueError(
                f"field {name!r}: "
                + (
                    "the name is reserved for the event envelope"
                    if name in taken
                    else "it is declared twice"
                )
            )
        seen.add(name)
    for field in fields:
        for alias in field.get("aliases", []):
            if alias in seen:
                raise ValueError(
                    f"field {field['name']!r}: aliases: {alias!r} is already used by another "
                    "field, by the event envelope, or by this list"
                )
            seen.add(alias)


def _check_texts(declared: Mapping[str, Any]) -> None:
    for key in ("doc", "logicalType"):
        if key in declared and not isinstance(declared[key], str):
            raise ValueError(f"{key} = {declared[key]!r:.80}: must be a string")
    aliases = declared.get("aliases", [])
    if not isinstance(aliases, list) or not all(
        isinstance(alias, str) and _is_full_name(alias) for alias in aliases
    ):
        raise ValueError(f"aliases = {aliases!r:.80}: must be a list of names")


def _check_symbols(avro_type: Mapping[str, Any]) -> None:
    symbols = avro_type.get("symbols")
    if (
        not isinstance(symbols, list)
        or not symbols
        or not all(_is_name(symbol) for symbol in symbols)
    ):
        raise ValueError(
            "an enum requires symbols: a list of names that consist of letters, digits and _"
        )
    if len(set(symbols)) < len(symbols):
        raise ValueError("the symbols of an enum must be unique")
    if "default" in avro_type and avro_type["default"] not in symbols:
        raise ValueError(
            f"default = {avro_type['default']!r:.80}: must be one of {', '.join(symbols)}"
        )


def _check_size(avro_type: Mapping[str, Any]) -> None:
    size = avro_type.get("size")
    if type(size) is not int or not 0 < size <= _FIXED_BYTES_MAX:
        raise ValueError(f"a fixed requires a size from 1 to {_FIXED_BYTES_MAX} bytes")
    if avro_type.get("logicalType") == "uuid" and size != _UUID_BYTES:
        raise ValueError(f"a uuid has {_UUID_BYTES} bytes, not {size}")


def _check_logical(avro_type: Mapping[str, Any]) -> None:
    if avro_type.get("logicalType") != "decimal":
        return
    precision, scale = avro_type.get("precision"), avro_type.get("scale", 0)
    if (
        type(precision) is not int
        or precision < 1
        or type(scale) is not int
        or not 0 <= scale <= precision
    ):
        raise ValueError(
            "a decimal requires a precision of at least 1, and a scale from 0 to the precision"
        )


def _full_name(avro_type: Mapping[str, Any], namespace: str) -> str:
    name, own = avro_type.get("name"), avro_type.get("namespace", namespace)
    if (
        not isinstance(name, str)
        or not _is_full_name(name)
        or not isinstance(own, str)
        or not (own == "" or _is_full_name(own))
    ):
        raise ValueError(
            f"{avro_type['type']} needs a name (and namespace) of letters, digits and _"
        )
    if name.rpartition(".")[2] in _PRIMITIVES:
        raise ValueError(f"{name} is a type of Avro; choose another name")
    return _qualified(name, own)


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and FIELD_NAME.fullmatch(name) is not None


def _is_full_name(name: str) -> bool:
    return all(FIELD_NAME.fullmatch(part) for part in name.split("."))


def _of(value: object, kind: type[Any], said: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"must be {said}")
    return value


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
