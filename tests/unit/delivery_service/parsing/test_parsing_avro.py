"""Avro encoding: what is accepted is written as fastavro writes it; everything else is refused,
never bent.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.avro_types import array, logical, map_of

from hourmark_delivery_service.parsing.values.encode import SchemaCompiler
from hourmark_delivery_service.parsing.values.primitives import Mismatch, encode_to_bytes
from hourmark_delivery_service.parsing.values.text_values import text_encoder

TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "value", "type": "long"},
        {"name": "next", "type": ["null", "Tree"], "default": None},
    ],
}
ENUM = {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}
FIXED = {"type": "fixed", "name": "Four", "size": 4}


def compiled(avro_type: Any) -> Any:
    """The encoder of a type, by way of fastavro's own parser."""
    schema: Any = fastavro.parse_schema(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": avro_type}]},
        named_schemas={},
    )
    return SchemaCompiler().encoder(schema["fields"][0]["type"])


def written(avro_type: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(avro_type, named_schemas={}), value)
    return stream.getvalue()


def read(avro_type: Any, datum: bytes) -> Any:
    return fastavro.schemaless_reader(
        io.BytesIO(datum), fastavro.parse_schema(avro_type, named_schemas={}), None
    )


LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", INTS),
    ("long", LONGS),
    ("double", st.floats(allow_nan=False)),
    ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    ("string", st.text()),
    (ENUM, st.sampled_from(["red", "green"])),
    (array("long"), st.lists(LONGS)),
    (map_of(["null", "string"]), st.dictionaries(st.text(), st.none() | st.text())),
    (["null", "long"], st.none() | LONGS),
    (["string", "null"], st.none() | st.text()),
    (["null", "boolean", "long", "string"], st.none() | st.booleans() | LONGS | st.text()),
    (
        TREE,
        st.recursive(
            st.fixed_dictionaries({"value": LONGS}),
            lambda t: st.fixed_dictionaries({"value": LONGS, "next": t | st.none()}),
        ),
    ),
]


@given(st.data())
def test_accepted_values_are_written_as_fastavro_writes_them(data: st.DataObject) -> None:
    avro_type, values = data.draw(st.sampled_from(VALUES))
    value = data.draw(values)
    assert encode_to_bytes(compiled(avro_type), value) == written(avro_type, value)


@given(st.binary())
def test_bytes_are_avros_json_form_a_character_a_byte(raw: bytes) -> None:
    assert encode_to_bytes(compiled("bytes"), raw.decode("latin-1")) == written("bytes", raw)


@pytest.mark.parametrize(
    ("avro_type", "value"),
    [
        ("null", 0),
        ("boolean", 1),
        ("boolean", "true"),
        ("int", 1 << 31),
        ("int", True),
        ("int", 1.0),
        ("int", "1"),
        ("long", 1 << 63),
        ("long", -(1 << 63) - 1),
        ("double", "1"),
        ("double", True),
        ("double", (1 << 53) + 1),
        ("double", 10**400),
        ("float", 1e39),
        ("float", (1 << 24) + 1),
        ("string", 1),
        ("string", None),
        ("bytes", "\u0100"),
        ("bytes", [1]),
        (ENUM, "blue"),
        (ENUM, ["red"]),
        (FIXED, "abc"),
        ({**FIXED, "logicalType": "uuid"}, "12345678-1234-1234-1234-123456789abc"),
        (array("int"), [1, "2"]),
        (array("int"), {}),
        (map_of("int"), {"a": None}),
        (TREE, {"value": 1, "left": None}),
        (TREE, {}),
        (["null", "int"], "x"),
        (["int", "string"], 1.5),
        (logical("long", "timestamp-millis"), "2026-11-21"),
        (logical("long", "timestamp-millis"), "2026-11-21T00:00:00.1234Z"),
        (logical("long", "timestamp-millis"), 1 << 60),
        (logical("long", "timestamp-micros"), "2026-11-21T00:00:00.1234567Z"),
        (logical("int", "date"), 1 << 30),
        (logical("int", "time-millis"), -1),
        (logical("string", "uuid"), "no uuid"),
    ],
)
def test_nothing_is_silently_coerced_or_cut(avro_type: Any, value: Any) -> None:
    with pytest.raises(Mismatch):
        encode_to_bytes(compiled(avro_type), value)


@pytest.mark.parametrize(
    ("avro_type", "value", "same_as"),
    [
        ("double", 3, 3.0),
        ("float", 1 << 24, float(1 << 24)),
        (FIXED, "a\xff\0d", b"a\xff\0d"),
        (logical("long", "timestamp-millis"), 5, 5),
        (logical("long", "timestamp-millis"), "1970-01-01T01:00:01.5+01:00", 1500),
        (logical("long", "timestamp-micros"), "1970-01-01T00:00:00.000007Z", 7),
        (
            logical("string", "uuid"),
            "12345678-1234-1234-1234-123456789abc",
            "12345678-1234-1234-1234-123456789abc",
        ),
    ],
)
def test_what_is_accepted_beside_the_plain_form(avro_type: Any, value: Any, same_as: Any) -> None:
    assert encode_to_bytes(compiled(avro_type), value) == written(avro_type, same_as)


def test_every_timestamp_that_is_accepted_can_be_read() -> None:
    kind = logical("long", "timestamp-millis")
    for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"):
        assert read(kind, encode_to_bytes(compiled(kind), text)).isoformat().startswith(text[:10])


def test_a_refused_branch_of_a_union_leaves_nothing_behind() -> None:
    kind = ["null", array("int"), array("string")]
    assert encode_to_bytes(compiled(kind), ["a", "b"]) == written(kind, ["a", "b"])


def test_mismatches_name_the_place() -> None:
    with pytest.raises(Mismatch, match=r"\.next: \.value: must be a whole number"):
        encode_to_bytes(compiled(TREE), {"value": 1, "next": {"value": "x"}})


@pytest.mark.parametrize(
    ("avro_type", "text", "value"),
    [
        ("string", "é".encode(), "é"),
        ("bytes", b"\xff", b"\xff"),
        ("int", b"-7", -7),
        ("long", b"+12", 12),
        ("double", b"1.5e3", 1500.0),
        ("boolean", b"true", True),
        (ENUM, b"red", "red"),
        (["null", "long"], b"3", 3),
        (["null", "long", "string"], b"x", "x"),
        (["string", "bytes"], b"\xff", b"\xff"),
        (logical("long", "timestamp-millis"), b"1970-01-01T00:00:01Z", 1000),
    ],
)
def test_text_fills_fields(avro_type: Any, text: bytes, value: Any) -> None:
    out = bytearray()
    compiler = SchemaCompiler()
    compiler.encoder(avro_type)
    text_encoder(avro_type, compiler)(text, out)
    assert bytes(out) == written(avro_type, value)


@pytest.mark.parametrize(
    ("avro_type", "text"),
    [
        ("string", b"\xff"),
        ("int", b"1_0"),
        ("int", b""),
        ("int", b"1 "),
        ("double", b"nan"),
        ("double", b"1e999"),
        ("boolean", b"1"),
    ],
)
def test_text_that_does_not_fit_is_refused(avro_type: Any, text: bytes) -> None:
    with pytest.raises(Mismatch):
        text_encoder(avro_type, SchemaCompiler())(text, bytearray())


def test_the_oracle_can_tell_a_difference() -> None:
    assert written("long", 1) != encode_to_bytes(compiled("long"), 2)
