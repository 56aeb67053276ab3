"""Validation of Avro datums against their writer schema and the event id in their Kafka key.

`compile_schema` translates a schema into a program. `check_datums` runs it over a column of Kafka
values, in native code (`native/src/datum_walk.h` describes the program) or in Python if there is
no compiled module. Both give the same verdicts. A datum is valid only if every byte of it is
accounted for (Avro 1.12, "Binary Encoding"). The cost of one datum is bounded, so a count of 2^62
empty items is rejected.

Values of dates, times and `uuid` strings must be in the range that the delivery service accepts
(`avro.fields`): fastavro raises at others, and one such value would make a whole container
unreadable for it. Other logical types are not checked, because all their values can be read.
"""

from __future__ import annotations

import array
import enum
import functools
import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import fastavro

import hourmark_native as native
from hourmark.avro.fields import INTEGER_RANGES, UUID_TEXT

ID_BYTES: Final = 16
NO_PROGRAM: Final = 255  # instead of a `DatumVerdict`: the value's schema id has no program
# an object with the buffer protocol, contiguous; `collections.abc.Buffer` since Python 3.12
Buffer = Any
_KINDS: Final = (
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "fixed",
    "enum",
    "array",
    "map",
    "record",
    "union",
    "between",
    "uuid",
)
_KIND: Final[Mapping[str, int]] = {name: number for number, name in enumerate(_KINDS)} | {
    "error": _KINDS.index("record")
}
_DEPTH_MAX: Final = 128
_VISITS_MIN: Final = 1 << 20
_VISITS_PER_BYTE: Final = 64
_INT_END: Final = 1 << 31
_UUID_CHARS: Final = 36


class DatumVerdict(enum.IntEnum):
    """The result of checking one Avro datum: `VALID`, or the first reason why it is invalid.

    `REASONS` maps each reason to a description for error messages.

    Attributes:
        VALID: The datum matches its schema, and its event id equals the one in the Kafka key.
        NO_FRAMING: The Kafka value is shorter than its framing.
        TOO_SHORT: The datum ends before its schema does.
        TRAILING: Bytes follow the end of the datum.
        BAD_BOOLEAN: A boolean is neither 0 nor 1.
        BAD_NUMBER: A number is out of the range of its type or logical type.
        BAD_LENGTH: A length is negative.
        BAD_TEXT: A string is not UTF-8.
        BAD_ENUM: The index of an enum symbol is out of range.
        BAD_UNION: The index of a union branch is out of range.
        BAD_BLOCK: The size of an array or map block differs from its declared size.
        TOO_DEEP: Values are nested too deeply.
        TOO_MUCH: An array or map declares more items than its bytes can hold.
        OTHER_ID: The event id differs from the one in the Kafka key.
        BAD_UUID: A string of the logical type `uuid` is not a UUID.
    """

    VALID = 0
    NO_FRAMING = 1
    TOO_SHORT = 2
    TRAILING = 3
    BAD_BOOLEAN = 4
    BAD_NUMBER = 5
    BAD_LENGTH = 6
    BAD_TEXT = 7
    BAD_ENUM = 8
    BAD_UNION = 9
    BAD_BLOCK = 10
    TOO_DEEP = 11
    TOO_MUCH = 12
    OTHER_ID = 13
    BAD_UUID = 14


REASONS: Final[Mapping[DatumVerdict, str]] = {
    DatumVerdict.NO_FRAMING: "the value is shorter than its framing",
    DatumVerdict.TOO_SHORT: "the datum ends before its schema does",
    DatumVerdict.TRAILING: "bytes follow the end of the datum",
    DatumVerdict.BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    DatumVerdict.BAD_NUMBER: "a number is out of the range of its type or logical type",
    DatumVerdict.BAD_LENGTH: "a length is negative",
    DatumVerdict.BAD_TEXT: "a string is not UTF-8",
    DatumVerdict.BAD_ENUM: "an enum has no symbol with this index",
    DatumVerdict.BAD_UNION: "a union has no branch with this index",
    DatumVerdict.BAD_BLOCK: "a block of an array or map does not have the size that it states",
    DatumVerdict.TOO_DEEP: f"it is nested more than {_DEPTH_MAX} levels deep",
    DatumVerdict.TOO_MUCH: "it states more items than its bytes can hold",
    DatumVerdict.OTHER_ID: "its event id differs from the one in its key",
    DatumVerdict.BAD_UUID: "a string of the logical type uuid is no UUID",
}


def compile_schema(schema: Any) -> bytes:
    """Compile an Avro schema into a validation program, the input of `check_datums`.

    Compiling a schema once makes it fast to validate many datums.

    Args:
        schema: The writer schema as parsed JSON.

    Returns:
        The program: 32-bit words in native byte order. It is valid only on machines with the same
        byte order.

    Raises:
        ValueError: The schema is not valid Avro, or refers to a type that it does not define.
    """
    try:
        parsed = fastavro.parse_schema(schema, _write_hint=False)
    except Exception as error:
        raise ValueError(f"the schema is not valid ({type(error).__name__}: {error})") from error
    compiler = _Compiler()
    compiler.add(parsed)
    return array.array("I", compiler.words).tobytes()


@functools.lru_cache(maxsize=4096)
def event_program(schema_json: str) -> bytes:
    """Compile the schema of an event type into a validation program (`compile_schema`).

    The 4,096 most recently used results are cached.

    Args:
        schema_json: The Avro schema as JSON text.

    Returns:
        The program, as an input of `check_datums`. Empty if the schema is invalid or its first
        field is not an event id.
    """
    try:
        schema = json.loads(schema_json)
        return compile_schema(schema) if holds_event_id(schema) else b""
    except ValueError:
        return b""


def holds_event_id(schema: Mapping[str, Any]) -> bool:
    """Return whether the first field of a record schema is an event id (`fixed` of 16 bytes).

    The schemas of all events begin with such a field. The schemas of control records, such as audit
    records, do not.

    Args:
        schema: The record schema as parsed JSON.
    """
    fields = schema.get("fields") or [{"type": None}]
    first = fields[0]["type"]
    return isinstance(first, dict) and (first.get("type"), first.get("size")) == ("fixed", ID_BYTES)


def check_datums(
    programs: Mapping[int, bytes],
    schemas: Buffer,
    keys: Buffer,
    key_bytes: int,
    offsets: Buffer,
    offset_bytes: int,
    skip: int,
    content: Buffer,
    *,
    module: ModuleType | None = native.MODULE,
) -> bytes:
    """Validate many Kafka values at once, without decoding them into Python objects.

    A value is valid if its Avro datum matches the schema and begins with the event id of the Kafka
    key. The values are passed as the buffers of an Arrow binary column.

    Args:
        programs: Maps each schema id to its compiled schema (`compile_schema`), which must begin
            with an event id (`holds_event_id`). An empty program is treated as missing.
        schemas: Schema id of each value: 4 bytes each, native byte order.
        keys: Kafka keys of all values, concatenated. The first 16 bytes of a key are the event id.
        key_bytes: Size of each key in bytes.
        offsets: Arrow offsets: the start of each value, then the end of the last value.
        offset_bytes: Size of each offset in bytes: 4 or 8.
        skip: Number of bytes of framing before the datum in each value.
        content: Arrow data: all values, concatenated.
        module: The compiled module. None runs the equivalent Python code, which is slower.

    Returns:
        One byte for each value: a `DatumVerdict`, or `NO_PROGRAM` if `programs` has no program for
        the schema id of the value.

    Raises:
        ValueError: The buffers do not describe a column and its keys, or a program is invalid.
    """
    if module is not None:
        known = sorted(schema_id for schema_id, program in programs.items() if program)
        sizes = (len(programs[schema_id]) // array.array("I").itemsize for schema_id in known)
        starts = array.array("q", itertools.accumulate(sizes, initial=0))
        words = b"".join(programs[schema_id] for schema_id in known)
        found: bytes = module.check_datums(
            array.array("i", known),
            starts,
            words,
            schemas,
            keys,
            key_bytes,
            offsets,
            offset_bytes,
            skip,
            content,
        )
        return found
    ids, data = bytes(keys), bytes(content)
    places = array.array("i" if offset_bytes == array.array("i").itemsize else "q", bytes(offsets))
    unpacked = {
        schema_id: array.array("I", program) for schema_id, program in programs.items() if program
    }
    return bytes(
        NO_PROGRAM
        if (of := unpacked.get(schema_id)) is None
        else check_value(of, ids[row * key_bytes :][:ID_BYTES], data[start:end], skip)
        for row, (schema_id, (start, end)) in enumerate(
            zip(array.array("i", bytes(schemas)), itertools.pairwise(places), strict=True)
        )
    )


def check_value(program: Sequence[int], event_id: bytes, value: bytes, skip: int) -> DatumVerdict:
    """Validate the Avro datum in one Kafka value against a compiled schema.

    This is the Python equivalent of `check_datums` for a single value.

    Args:
        program: The output of `compile_schema`, as a sequence of 32-bit words.
        event_id: The 16-byte event id from the Kafka key.
        value: The Kafka value.
        skip: Number of bytes of framing before the datum.

    Returns:
        `VALID`, or the first reason why the datum is invalid.
    """
    if len(value) < skip:
        return DatumVerdict.NO_FRAMING
    datum = value[skip:]
    walk = _Walk(program, datum)
    try:
        walk.nodes([0], _DEPTH_MAX)
    except _Refused as refused:
        return refused.verdict
    if walk.at != len(datum):
        return DatumVerdict.TRAILING
    return DatumVerdict.VALID if datum[:ID_BYTES] == event_id else DatumVerdict.OTHER_ID


class _Compiler:
    def __init__(self) -> None:
        self.words: list[int] = []
        self._named: dict[str, int] = {}

    def add(self, avro_type: Any) -> int:
        if isinstance(avro_type, list):
            return self._add_with_children("union", avro_type, None)
        if isinstance(avro_type, str):
            if avro_type in self._named:
                return self._named[avro_type]
            return self._put(_KIND[avro_type])
        kind = avro_type["type"]
        if isinstance(kind, (list, dict)):
            return self.add(kind)
        if kind == "fixed":
            self._named[avro_type["name"]] = number = self._put(_KIND[kind], avro_type["size"])
            return number
        if kind == "enum":
            self._named[avro_type["name"]] = number = self._put(
                _KIND[kind], len(avro_type["symbols"])
            )
            return number
        if kind in ("array", "map"):
            number = self._put(_KIND[kind], 0)
            self.words[number + 1] = self.add(avro_type["items" if kind == "array" else "values"])
            return number
        if kind in ("record", "error"):
            return self._add_with_children(
                kind, [field["type"] for field in avro_type["fields"]], avro_type["name"]
            )
        return self._add_primitive(kind, avro_type.get("logicalType"))

    def _add_primitive(self, kind: str, logical: Any) -> int:
        if (kind, logical) == ("string", "uuid"):
            return self._put(_KIND["uuid"])
        if isinstance(logical, str) and (kind, logical) in INTEGER_RANGES:
            low, end = INTEGER_RANGES[kind, logical]
            return self._put(
                _KIND["between"], *struct.unpack("<4I", struct.pack("<2q", low, end - 1))
            )
        return self.add(kind)

    def _add_with_children(self, kind: str, children: Sequence[Any], name: str | None) -> int:
        number = self._put(_KIND[kind], len(children), *(0 for _ in children))
        if name is not None:
            self._named[name] = number  # before its fields, which may refer to it
        for place, child in enumerate(children, number + 2):
            self.words[place] = self.add(child)
        return number

    def _put(self, *words: int) -> int:
        self.words.extend(words)
        return len(self.words) - len(words)


class _Refused(Exception):
    def __init__(self, verdict: DatumVerdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class _Walk:
    # The same steps as in `native/src/datum_walk.c`.

    def __init__(self, words: Sequence[int], datum: bytes) -> None:
        self._words, self._datum, self.at = words, datum, 0
        self._visits_left = _VISITS_MIN + _VISITS_PER_BYTE * len(datum)

    def nodes(self, refs: Sequence[int], depth: int) -> None:
        if depth == 0:
            raise _Refused(DatumVerdict.TOO_DEEP)
        if self._visits_left < len(refs):
            raise _Refused(DatumVerdict.TOO_MUCH)
        self._visits_left -= len(refs)
        for at in refs:
            self._node(at, depth)

    def _node(self, at: int, depth: int) -> None:
        kind = _KINDS[self._words[at]]
        if kind in ("array", "map"):
            self._blocks(self._words[at + 1], kind == "map", depth - 1)
        elif kind == "record":
            self.nodes(self._words[at + 2 : at + 2 + self._words[at + 1]], depth - 1)
        elif kind == "union":
            branch = self._words[at + 2 + self._index(at, DatumVerdict.BAD_UNION)]
            if _KINDS[self._words[branch]] != "null":
                self.nodes([branch], depth - 1)
        else:
            self._scalar(kind, at)

    def _scalar(self, kind: str, at: int) -> None:
        if kind == "boolean":
            if self._pass(1)[0] > 1:
                raise _Refused(DatumVerdict.BAD_BOOLEAN)
        elif kind == "enum":
            self._index(at, DatumVerdict.BAD_ENUM)
        elif kind in ("int", "long", "between"):
            value = self._long()
            if (kind == "int" and not -_INT_END <= value < _INT_END) or (
                kind == "between" and not self._is_between(value, at)
            ):
                raise _Refused(DatumVerdict.BAD_NUMBER)
        elif kind in ("bytes", "string"):
            self._bytes(is_text=kind == "string")
        elif kind == "uuid":
            if self._long() != _UUID_CHARS:
                raise _Refused(DatumVerdict.BAD_UUID)
            if not UUID_TEXT.fullmatch(self._pass(_UUID_CHARS).decode("latin-1").lower()):
                raise _Refused(DatumVerdict.BAD_UUID)
        elif kind != "null":
            self._pass({"float": 4, "double": 8}.get(kind) or self._words[at + 1])

    def _is_between(self, value: int, at: int) -> bool:
        low, high = struct.unpack("<2q", struct.pack("<4I", *self._words[at + 1 : at + 5]))
        return bool(low <= value <= high)

    def _index(self, at: int, refusal: DatumVerdict) -> int:
        if not 0 <= (index := self._long()) < self._words[at + 1]:
            raise _Refused(refusal)
        return index

    def _long(self) -> int:
        zigzag = 0
        for shift in range(0, 70, 7):
            (byte,) = self._pass(1)
            if shift == 63 and byte > 1:
                break
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (zigzag >> 1) ^ -(zigzag & 1)
        raise _Refused(DatumVerdict.BAD_NUMBER)

    def _pass(self, size: int) -> bytes:
        if len(self._datum) - self.at < size:
            raise _Refused(DatumVerdict.TOO_SHORT)
        self.at += size
        return self._datum[self.at - size : self.at]

    def _bytes(self, *, is_text: bool) -> None:
        if (size := self._long()) < 0:
            raise _Refused(DatumVerdict.BAD_LENGTH)
        content = self._pass(size)
        if is_text:
            try:
                content.decode()
            except UnicodeDecodeError:
                raise _Refused(DatumVerdict.BAD_TEXT) from None

    def _blocks(self, item: int, is_map: bool, depth: int) -> None:
        while count := self._long():
            size = None
            if count < 0:
                size = self._long()
                if size < 0 or count == -(1 << 63):
                    raise _Refused(DatumVerdict.BAD_BLOCK)
            start = self.at
            for _ in range(abs(count)):
                if is_map:
                    self._bytes(is_text=True)
                self.nodes([item], depth)
            if size is not None and self.at - start != size:
                raise _Refused(DatumVerdict.BAD_BLOCK)
