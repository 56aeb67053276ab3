"""Compilation of a schema to a native parser program; `native/program.h` defines its format.

The program is built from the same parsed schema and the same encoded defaults as the Python
encoders.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark.avro.fields import INTEGER_RANGES
from hourmark.avro.framing import encode_long
from hourmark_delivery_service.parsing.values.encode import AvroType, SchemaCompiler, encode_default
from hourmark_delivery_service.parsing.values.primitives import MICROS_PER_UNIT, PRIMITIVES

_KINDS: Final = (
    "null",
    "boolean",
    "whole",
    "timestamp",
    "float",
    "double",
    "string",
    "uuid_string",
    "bytes",
    "fixed",
    "uuid_fixed",
    "enum",
    "array",
    "map",
    "record",
    "union",
)
_NUMBER: Final = {kind: number for number, kind in enumerate(_KINDS)}
_NO_DEFAULT: Final = 0xFFFFFFFF


class ProgramField(NamedTuple):
    """A record field in a program for the native parser, which parses lines in C.

    Attributes:
        name: Name of the field.
        type: Type of the field in the parsed Avro schema.
        default: Encoded default value, or None if the field has none.
    """

    name: str
    type: AvroType
    default: bytes | None


class TextAlternative(NamedTuple):
    """One way to encode text as an Avro type, such as one branch of a union.

    The native parser tries the alternatives of a type in order.

    Attributes:
        branch: Encoded index of the union branch. Empty if the type is not a union.
        any_bytes: Whether the text may be invalid UTF-8.
    """

    branch: bytes
    any_bytes: bool


def compile_program(envelope: Sequence[AvroType], fields: Sequence[ProgramField]) -> bytes:
    """Compile the fields of an event type to a program for the native parser.

    Args:
        envelope: Types of the fields that are common to all event types. The type's own fields may
            refer to named types in them.
        fields: The type's own fields.

    Returns:
        The program in the binary format defined in `native/program.h`.

    Raises:
        ValueError: If the native parser does not support the schema.
    """
    made = _Program()
    record = made.reserve_node()
    for avro_type in envelope:
        made.node(avro_type)
    made.fill_record(record, fields)
    return made.encode()


def text_alternatives(avro_type: AvroType) -> list[TextAlternative] | None:
    """Return the alternatives for encoding text as an Avro type without conversion.

    The type must be `string`, `bytes`, or a union of these and `null`.

    Args:
        avro_type: Type in the parsed Avro schema.

    Returns:
        The alternatives in the order to try them. None for any other type.
    """
    if avro_type in ("string", "bytes"):
        return [TextAlternative(b"", avro_type == "bytes")]
    branches = avro_type if isinstance(avro_type, list) else []
    if not all(
        isinstance(branch, str) and branch in ("null", "string", "bytes") for branch in branches
    ):
        return None
    return [
        TextAlternative(encode_long(n), branch == "bytes")
        for n, branch in enumerate(branches)
        if branch != "null"
    ] or None


class _Program:
    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, int, int, int, int]] = []
        self._entries: list[tuple[int, int, int, int, int]] = []
        self._text = bytearray()
        self._named: dict[str, int] = {}
        self._unsettled: list[
            str
        ] = []  # types that are defined within a record that is not whole yet, and it itself
        self._open = 0
        self._defaults = SchemaCompiler()  # of nested records: knows all types that were met

    def encode(self) -> bytes:
        nodes = b"".join(struct.pack("<4I2q", *node) for node in self._nodes)
        entries = b"".join(struct.pack("<5I", *entry) for entry in self._entries)
        parts = (
            (len(self._nodes), nodes),
            (len(self._entries), entries),
            (len(self._text), bytes(self._text)),
        )
        return b"".join(struct.pack("<I", count) + part for count, part in parts)

    def node(self, avro_type: AvroType) -> int:
        if isinstance(avro_type, list):
            branches = [self.node(branch) for branch in avro_type]
            return self._add("union", *self._children(branches))
        if isinstance(avro_type, str):
            return (
                self._named[avro_type]
                if avro_type in self._named
                else self._primitive(avro_type, None)
            )
        kind = avro_type["type"]
        if isinstance(kind, (list, dict)):
            return self.node(kind)
        if kind in ("array", "map"):
            return self._add(
                kind,
                *self._children([self.node(avro_type["items" if kind == "array" else "values"])]),
            )
        if kind in ("record", "error"):
            return self._record(avro_type)
        if kind not in ("enum", "fixed"):
            return self._primitive(kind, avro_type.get("logicalType"))
        self._defaults.encoder(avro_type)
        number = self._named[avro_type["name"]] = (
            self._enum(avro_type) if kind == "enum" else self._fixed(avro_type)
        )
        return number

    def reserve_node(self) -> int:
        return self._add("null")

    def fill_record(self, number: int, fields: Sequence[ProgramField]) -> None:
        first = len(self._entries)
        self._entries += [(0, 0, 0, 0, 0)] * len(
            fields
        )  # together, whatever is added for what they hold
        for place, field in enumerate(fields, first):
            node = self.node(field.type)
            default = (_NO_DEFAULT, 0) if field.default is None else self._put(field.default)
            self._entries[place] = (*self._put(field.name.encode()), node, *default)
        self._nodes[number] = (_NUMBER["record"], first, len(fields), 0, 0, 0)

    def _record(self, avro_type: Mapping[str, Any]) -> int:
        number = self._named[avro_type["name"]] = self.reserve_node()  # it may hold itself
        self._defaults.encoder(avro_type)
        self._unsettled = [*(self._unsettled if self._open else ()), avro_type["name"]]
        for field in avro_type["fields"]:
            self._check_default(field)
        self._open += 1
        fields = [
            ProgramField(
                field["name"],
                field["type"],
                encode_default(field, self._defaults.encoder(field["type"])),
            )
            for field in avro_type["fields"]
        ]
        self.fill_record(number, fields)
        self._open -= 1
        return number

    def _check_default(self, field: Mapping[str, Any]) -> None:
        # Rejects a default that may contain its own record; only the Python encoders handle it.
        within = json.dumps(field["type"])
        if field.get("default") not in (None, []) and any(
            f'"{name}"' in within for name in self._unsettled
        ):
            raise ValueError(
                f"the default of {field['name']} may hold the record that it belongs to"
            )

    def _enum(self, avro_type: Mapping[str, Any]) -> int:
        first = len(self._entries)
        self._entries += [
            (*self._put(symbol.encode()), 0, _NO_DEFAULT, 0) for symbol in avro_type["symbols"]
        ]
        return self._add("enum", first, len(avro_type["symbols"]))

    def _fixed(self, avro_type: Mapping[str, Any]) -> int:
        size = avro_type["size"]
        is_uuid = avro_type.get("logicalType") == "uuid" and size == 16
        return self._add("uuid_fixed" if is_uuid else "fixed", size=size)

    def _primitive(self, kind: str, logical: str | None) -> int:
        if (kind, logical) in INTEGER_RANGES:
            low, end = INTEGER_RANGES[kind, logical]
            unit_us = MICROS_PER_UNIT.get(logical or "", 0)
            return self._add(
                "timestamp" if unit_us else "whole", size=unit_us, low=low, high=end - 1
            )
        if kind in ("int", "long"):  # of a logical type that means nothing here
            return self._primitive(kind, None)
        if kind == "string" and logical == "uuid":
            return self._add("uuid_string")
        if kind not in PRIMITIVES:
            raise ValueError(f"{kind!r} is no Avro type")
        return self._add(kind)

    def _children(self, nodes: Sequence[int]) -> tuple[int, int]:
        first = len(self._entries)
        self._entries += [(0, 0, node, _NO_DEFAULT, 0) for node in nodes]
        return first, len(nodes)

    def _add(
        self, kind: str, first: int = 0, count: int = 0, size: int = 0, low: int = 0, high: int = 0
    ) -> int:
        self._nodes.append((_NUMBER[kind], first, count, size, low, high))
        return len(self._nodes) - 1

    def _put(self, text: bytes) -> tuple[int, int]:
        at = len(self._text)
        self._text += text
        return at, len(text)
