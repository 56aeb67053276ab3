"""Rows of Parquet files are the events that fastavro reads, whatever their schema.

fastavro decodes the expected values with its own logical types, which the converter does not use.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import uuid
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourmark.avro.framing import encode_long, event_schema
from hourmark_etl.buckets import parquet_rows
from hourmark_etl.buckets.datum_columns import ITEMS_MAX, ColumnDecoder, NotColumnar
from hourmark_etl.buckets.parquet_rows import FIELD_ID, DatumConverter, find_difference

ENVELOPE = {
    "event_id": bytes(range(16)),
    "event_time": 1_800_000_000_123,
    "host": "web-1",
    "source": "/var/log/app.log",
    "file": None,
    "position": 7,
}
DAY_MS, DAY_US = 86_400_000, 86_400_000_000
YEAR_1_S, YEAR_10000_S = -62_135_596_800, 253_402_300_800

Case = tuple[Any, st.SearchStrategy[Any]]  # an Avro type, and values that fastavro encodes


def logical(avro_type: str, name: str, low: int, end: int) -> Case:
    return {"type": avro_type, "logicalType": name}, st.integers(low, end - 1)


LEAVES: list[Case] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    logical("int", "date", YEAR_1_S // 86_400, YEAR_10000_S // 86_400),
    logical("int", "time-millis", 0, DAY_MS),
    logical("long", "time-micros", 0, DAY_US),
    logical("long", "timestamp-millis", YEAR_1_S * 1000, YEAR_10000_S * 1000),
    logical("long", "timestamp-micros", YEAR_1_S * 1_000_000, YEAR_10000_S * 1_000_000),
    logical("long", "local-timestamp-millis", YEAR_1_S * 1000, YEAR_10000_S * 1000),
    logical("long", "local-timestamp-micros", YEAR_1_S * 1_000_000, YEAR_10000_S * 1_000_000),
    logical("long", "timestamp-nanos", -(1 << 63), 1 << 63),  # a logical type that is ignored
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    ({"type": "string", "logicalType": "decimal"}, st.text(max_size=3)),  # of no effect
]


@st.composite
def leaves(draw: st.DrawFn) -> Case:
    kind = draw(st.integers(0, len(LEAVES) + 4))
    if kind < len(LEAVES):
        return LEAVES[kind]
    name = f"N{draw(st.uuids()).hex}"
    if kind == len(LEAVES):
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from("AB")
    if kind == len(LEAVES) + 1:
        return {"type": "fixed", "name": name, "size": 16, "logicalType": "uuid"}, st.binary(
            min_size=16, max_size=16
        )
    if kind == len(LEAVES) + 2:
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    digits = draw(st.integers(1, 38))
    scale = draw(st.integers(0, digits))
    values = st.integers(-(10**digits) + 1, 10**digits - 1).map(
        lambda n: n.to_bytes(17, "big", signed=True)
    )
    stored = (
        {"type": "bytes"}
        if kind == len(LEAVES) + 3
        else {"type": "fixed", "name": name, "size": 17}
    )
    return {**stored, "logicalType": "decimal", "precision": digits, "scale": scale}, values


def nested(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    def optional(case: Case, first: bool) -> Case:
        union = ["null", case[0]] if first else [case[0], "null"]
        return (union if not isinstance(case[0], list) else case[0]), st.none() | case[1]

    def record(cases: list[Case], name: uuid.UUID) -> Case:
        fields = [{"name": f"f{n}", "type": case[0]} for n, case in enumerate(cases)]
        values = {f"f{n}": case[1] for n, case in enumerate(cases)}
        return (
            {"type": "record", "name": f"R{name.hex}", "fields": fields},
            st.fixed_dictionaries(values),
        )

    return (
        inner.map(lambda c: ({"type": "array", "items": c[0]}, st.lists(c[1], max_size=3)))
        | inner.map(
            lambda c: (
                {"type": "map", "values": c[0]},
                st.dictionaries(st.text(max_size=3), c[1], max_size=3),
            )
        )
        | st.builds(optional, inner, st.booleans())
        | st.builds(record, st.lists(inner, min_size=1, max_size=3), st.uuids())
    )


@st.composite
def schemas_and_events(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    cases = draw(st.lists(st.recursive(leaves(), nested, max_leaves=4), min_size=1, max_size=4))
    schema = event_schema("click", [{"name": f"c{n}", "type": c[0]} for n, c in enumerate(cases)])
    own = st.fixed_dictionaries({f"c{n}": c[1] for n, c in enumerate(cases)})
    return schema, [ENVELOPE | event for event in draw(st.lists(own, max_size=5))]


def without_logical_types(avro_type: Any) -> Any:
    if isinstance(avro_type, list):
        return [without_logical_types(of) for of in avro_type]
    if isinstance(avro_type, dict):
        return {k: without_logical_types(v) for k, v in avro_type.items() if k != "logicalType"}
    return avro_type


def encode(schema: dict[str, Any], events: list[dict[str, Any]]) -> tuple[memoryview, Any]:
    parsed, file, offsets = fastavro.parse_schema(without_logical_types(schema)), io.BytesIO(), [0]
    for event in events:
        fastavro.schemaless_writer(file, parsed, event)
        offsets.append(file.tell())
    return memoryview(file.getvalue()), np.array(offsets, np.int64)


def as_arrow(value: Any, avro_type: Any) -> Any:
    """What Arrow returns for a value that fastavro has read."""
    if isinstance(avro_type, list):
        (only,) = [of for of in avro_type if of != "null"]
        return None if value is None else as_arrow(value, only)
    kind = avro_type["type"] if isinstance(avro_type, dict) else avro_type
    if kind == "record":
        return {f["name"]: as_arrow(value[f["name"]], f["type"]) for f in avro_type["fields"]}
    if kind == "array":
        return [as_arrow(item, avro_type["items"]) for item in value]
    if kind == "map":
        return [(key, as_arrow(item, avro_type["values"])) for key, item in value.items()]
    if isinstance(value, uuid.UUID):
        return str(value) if kind == "string" else value.bytes
    return value


def comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, tuple):
        return tuple(comparable(item) for item in value)
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, float):
        return repr(value)  # NaN equals itself, and 0.0 is not -0.0
    return value


def not_columnar(*_: object) -> None:
    raise NotColumnar


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(schemas_and_events(), st.sampled_from([1, 100, 1 << 20]), st.booleans())
def test_rows_are_the_events_that_fastavro_reads(
    drawn: tuple[dict[str, Any], list[dict[str, Any]]], part_bytes: int, one_by_one: bool
) -> None:
    schema, events = drawn
    data, offsets = encode(schema, events)
    parsed = fastavro.parse_schema(schema)
    with decimal.localcontext(prec=60), pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_rows, "CONVERTED_BYTES", part_bytes)
        if one_by_one:
            patch.setattr(ColumnDecoder, "decode", not_columnar)
        table = DatumConverter(schema).convert(data, offsets)
        file = io.BytesIO(data)
        expected = [fastavro.schemaless_reader(file, parsed, None) for _ in events]
        assert comparable(table.to_pylist()) == comparable(
            [as_arrow(event, schema) for event in expected]
        )
    table.validate(full=True)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    read = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert find_difference(read, table) is None and read.schema.equals(table.schema)


def test_the_envelope_has_types_that_all_readers_support() -> None:
    schema = DatumConverter(event_schema("click", [])).schema
    assert schema.field("event_id").type == pa.binary(16)
    assert schema.field("event_time").type == pa.timestamp("us", "UTC")
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    assert str(columns.column(0).logical_type) == "None", "Spark rejects the type UUID"
    assert not columns.column(0).max_definition_level, "required columns are not nullable"


def test_a_field_keeps_its_id_wherever_it_stands() -> None:
    inner = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
    old = DatumConverter(event_schema("click", [{"name": "place", "type": inner}])).schema
    new = DatumConverter(
        event_schema("click", [{"name": "n", "type": "long"}, {"name": "place", "type": inner}])
    ).schema
    assert old.field("place").metadata == new.field("place").metadata
    assert (
        old.field("place").type.field("city").metadata[FIELD_ID]
        == (new.field("place").type.field("city").metadata[FIELD_ID])
    )
    ids = [field.metadata[FIELD_ID] for field in new]
    assert len({*ids}) == len(ids)


def test_a_decimal_that_exceeds_its_precision_is_an_error_and_is_not_rounded() -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    schema = event_schema("click", [{"name": "amount", "type": amount}])
    good = encode(schema, [ENVELOPE | {"amount": (-999).to_bytes(2, "big", signed=True)}])
    (row,) = DatumConverter(schema).convert(*good).to_pylist()
    assert row["amount"] == decimal.Decimal("-99.9")
    bad = encode(schema, [ENVELOPE | {"amount": (1000).to_bytes(2, "big", signed=True)}])
    with pytest.raises(ValueError, match="more than the 3 digits"):
        DatumConverter(schema).convert(*bad)


def test_a_difference_names_the_first_row_that_differs() -> None:
    nan = float("nan")
    table = pa.table({"a": [1.0, nan, 3.0], "b": [[nan], [], None]})
    assert find_difference(table, table) is None
    assert find_difference(table, table.slice(0)) is None
    other = pa.table({"a": [1.0, nan, 4.0], "b": [[nan], [], None]})
    assert find_difference(other, table) == 2
    assert find_difference(table.slice(0, 2), table) == 2
    assert find_difference(table, table.slice(1)) == 0


def test_times_are_not_limited_by_the_time_zone_of_the_machine() -> None:
    schema = event_schema(
        "click", [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    )
    (row,) = DatumConverter(schema).convert(*encode(schema, [ENVELOPE | {"at": -1}])).to_pylist()
    assert row["at"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)


ARRAY = event_schema("click", [{"name": "a", "type": {"type": "array", "items": "long"}}])
MAP = event_schema("click", [{"name": "a", "type": {"type": "map", "values": "long"}}])


def with_tail(*tails: bytes) -> tuple[memoryview, Any]:
    """Events whose last field is encoded as given."""
    start = bytes(encode(event_schema("click", []), [ENVELOPE])[0])
    events = [start + tail for tail in tails]
    return memoryview(b"".join(events)), np.cumsum([0, *map(len, events)])


def longs(*values: int) -> bytes:
    return b"".join(map(encode_long, values))


def test_arrays_may_have_several_blocks_with_and_without_a_size() -> None:
    data, offsets = with_tail(
        longs(2, 5, 6, -1, 1, 7, 0), longs(0), longs(-3, 3, 1, 2, 3, 1, 4, 0), longs(1, -9, 0)
    )
    rows = DatumConverter(ARRAY).convert(data, offsets).to_pylist()
    assert [row["a"] for row in rows] == [[5, 6, 7], [], [1, 2, 3, 4], [-9]]


@pytest.mark.parametrize("count", [ITEMS_MAX, ITEMS_MAX + 1])
def test_a_long_array_is_read_as_well(count: int) -> None:
    converted = DatumConverter(ARRAY).convert(
        *encode(ARRAY, [ENVELOPE | {"a": [*range(count)]}, ENVELOPE | {"a": []}])
    )
    assert converted.column("a").to_pylist() == [[*range(count)], []]


def test_a_map_with_a_key_twice_has_the_last_value_as_for_fastavro() -> None:
    data, offsets = with_tail(longs(2, 1) + b"k" + longs(5, 1) + b"k" + longs(6, 0))
    assert DatumConverter(MAP).convert(data, offsets).column("a").to_pylist() == [[("k", 6)]]


@pytest.mark.parametrize(
    "tails",
    [
        (longs(0), longs(1, 5, 0) + b"x"),
        (longs(0), longs(1, 5)),
        (longs(2, 1), longs(1, 5, 0)),
        (b"\xff" * 10 + b"\x01",),
    ],
)
def test_an_event_that_is_not_valid_is_an_error(tails: tuple[bytes, ...]) -> None:
    with pytest.raises((ValueError, IndexError)):
        DatumConverter(ARRAY).convert(*with_tail(*tails))


def test_optional_records_of_all_kinds_may_be_null() -> None:
    kinds: list[Any] = [case[0] for case in LEAVES]
    kinds += [
        {"type": "array", "items": "string"},
        {"type": "map", "values": "string"},
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "record", "name": "I", "fields": [{"name": "x", "type": "string"}]},
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        ["null", {"type": "enum", "name": "E", "symbols": ["A"]}],
    ]
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]
    record = {"type": "record", "name": "R", "fields": fields}
    schema = event_schema("click", [{"name": "a", "type": ["null", record]}])
    data, offsets = encode(schema, [ENVELOPE | {"a": None}] * 3)
    table = DatumConverter(schema).convert(data, offsets)
    table.validate(full=True)
    assert table.column("a").to_pylist() == [None] * 3
