"""Columns of `hourmark_reading` have the values that fastavro decodes, for all types of Avro, and
rows of older files have the columns and defaults of the newest schema.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.avro_types import array, logical, map_of
from tests.support.readable_buckets import TYPE, File, ReadableSite, row

from hourmark_reading import UnsupportedField, open_buckets

H5, H6, H7 = "2026-11-21T05", "2026-11-21T06", "2026-11-21T07"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LONG = st.integers(-(2**63), 2**63 - 1)
MILLIS = dt.timedelta(milliseconds=1)


class Typed(NamedTuple):
    """An Avro type, and the values that a column of it may have."""

    type: Any
    values: st.SearchStrategy[Any]


def moments(step: dt.timedelta, zone: dt.tzinfo | None) -> st.SearchStrategy[dt.datetime]:
    naive = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
    return naive.map(lambda t: (t - (t - dt.datetime(1, 1, 1)) % step).replace(tzinfo=zone))


def times(step: dt.timedelta) -> st.SearchStrategy[dt.time]:
    return moments(step, None).map(dt.datetime.time)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    whole = st.integers(-(10**precision) + 1, 10**precision - 1)
    return whole.map(lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=80)))


MICROS = dt.timedelta(microseconds=1)
SCALARS = (
    Typed("boolean", st.booleans()),
    Typed("int", st.integers(-(2**31), 2**31 - 1)),
    Typed("long", LONG),
    Typed("float", st.floats(width=32, allow_nan=False)),
    Typed("double", st.floats(allow_nan=False)),
    Typed("string", st.text(max_size=5)),
    Typed("bytes", st.binary(max_size=5)),
    Typed(logical("int", "date"), st.dates()),
    Typed(logical("int", "time-millis"), times(MILLIS)),
    Typed(logical("long", "time-micros"), times(MICROS)),
    Typed(logical("long", "timestamp-millis"), moments(MILLIS, dt.UTC)),
    Typed(logical("long", "timestamp-micros"), moments(MICROS, dt.UTC)),
    Typed(logical("long", "local-timestamp-millis"), moments(MILLIS, None)),
    Typed(logical("long", "local-timestamp-micros"), moments(MICROS, None)),
    Typed(logical("string", "uuid"), st.uuids()),
    Typed(logical("bytes", "decimal", precision=12, scale=3), decimals(12, 3)),
    Typed(logical("bytes", "decimal", precision=60, scale=0), decimals(60, 0)),
    Typed(logical("long", "of-the-future"), LONG),
)
_NUMBERS = itertools.count()


def named(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": f"N{next(_NUMBERS)}", **more}


@st.composite
def typed(draw: st.DrawFn, depth: int = 3) -> Typed:
    kinds = ["scalar", "enum", "fixed"]
    kinds += ["array", "map", "optional", "record"] if depth else []
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        scalar: Typed = draw(st.sampled_from(SCALARS))
        return scalar
    if kind == "enum":
        return Typed(named("enum", symbols=["A", "B"]), st.sampled_from("AB"))
    if kind == "fixed":
        return Typed(named("fixed", size=3), st.binary(min_size=3, max_size=3))
    if kind == "record":
        inner = [draw(typed(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        fields = [{"name": f"f{n}", "type": of.type} for n, of in enumerate(inner)]
        values = st.fixed_dictionaries({f"f{n}": of.values for n, of in enumerate(inner)})
        return Typed(named("record", fields=fields), values)
    below = draw(typed(depth - 1))
    if kind == "array":
        return Typed(array(below.type), st.lists(below.values, max_size=3))
    if kind == "map":
        return Typed(
            map_of(below.type), st.dictionaries(st.text(max_size=3), below.values, max_size=3)
        )
    if isinstance(below.type, list):
        return below
    branches = draw(st.permutations(["null", below.type]))
    return Typed(branches, st.none() | below.values)


def _decoded(path: Path) -> list[Any]:
    with path.open("rb") as file:
        events: Any = fastavro.reader(file)
        return [event["value"] for event in events]


def plain(value: Any, arrow_type: pa.DataType) -> Any:
    """A decoded value in the form of `pyarrow`."""
    if value is None:
        return None
    if isinstance(value, uuid.UUID):
        return str(value)
    if pa.types.is_map(arrow_type):
        return [(key, plain(inner, arrow_type.item_type)) for key, inner in value.items()]
    if pa.types.is_list(arrow_type):
        return [plain(inner, arrow_type.value_type) for inner in value]
    if pa.types.is_struct(arrow_type):
        return {field.name: plain(value[field.name], field.type) for field in arrow_type}
    return value


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_column_has_the_values_that_fastavro_decodes(data: st.DataObject) -> None:
    of = data.draw(typed())
    values = data.draw(st.lists(of.values, min_size=1, max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        site = ReadableSite(Path(folder))
        rows = [row(H5, n, value=value) for n, value in enumerate(values)]
        site.close(H5, {"part-00000.avro": File(1, [{"name": "value", "type": of.type}], rows)})
        found = open_buckets(site.url).read(TYPE, H5, H6, columns=["value"]).to_table()
        decoded = _decoded(Path(folder) / site.folder(H5) / "part-00000.avro")
    field = found.schema.field("value")
    assert found.column("value").to_pylist() == [plain(value, field.type) for value in decoded]
    assert field.nullable == isinstance(of.type, list)
    found.validate(full=True)


# Type, default as JSON, value of the column.
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("boolean", True, True),
    ("int", 5, 5),
    ("double", 5.0, 5.0),
    ("string", "é", "é"),
    ("bytes", "\u00ff\u0001", b"\xff\x01"),
    (named("fixed", size=2), "\u00ff\u0001", b"\xff\x01"),
    (named("enum", symbols=["A", "B"]), "B", "B"),
    (logical("int", "date"), 366, dt.date(1971, 1, 2)),
    (logical("int", "time-millis"), 1001, dt.time(0, 0, 1, 1000)),
    (logical("long", "time-micros"), 1_000_001, dt.time(0, 0, 1, 1)),
    (logical("long", "timestamp-millis"), -1, EPOCH - MILLIS),
    (logical("long", "timestamp-micros"), -1, EPOCH - MICROS),
    (logical("long", "local-timestamp-millis"), 1, dt.datetime(1970, 1, 1) + MILLIS),
    (logical("long", "local-timestamp-micros"), 1, dt.datetime(1970, 1, 1) + MICROS),
    (logical("string", "uuid"), str(uuid.UUID(int=5)), str(uuid.UUID(int=5))),
    (logical("bytes", "decimal", precision=4, scale=2), "\u00ff\u0085", decimal.Decimal("-1.23")),
    (["null", "string"], None, None),
    (["string", "null"], "x", "x"),
    (array("bytes"), ["\u00ff"], [b"\xff"]),
    (map_of(logical("int", "date")), {"a": 0}, [("a", dt.date(1970, 1, 1))]),
    (
        named(
            "record",
            fields=[
                {"name": "a", "type": "bytes"},
                {"name": "b", "type": logical("int", "date"), "default": 1},
                {"name": "c", "type": ["null", "long"], "default": None},
            ],
        ),
        {"a": "\u00ff"},
        {"a": b"\xff", "b": dt.date(1970, 1, 2), "c": None},
    ),
]


@pytest.mark.parametrize(("avro_type", "default", "value"), DEFAULTS)
def test_events_of_older_buckets_have_the_default_of_a_new_field(
    tmp_path: Path, avro_type: Any, default: Any, value: Any
) -> None:
    site = ReadableSite(tmp_path)
    old = [{"name": "a", "type": "int"}]
    new = [*old, {"name": "added", "type": avro_type, "default": default}]
    site.close(H5, {"part-00000.avro": File(1, old, [row(H5, 0, a=1)])})
    written = row(H6, 0, a=2, added=_as_written(value))
    site.close(H6, {"part-00000.avro": File(2, new, [written])})
    found = open_buckets(site.url).read(TYPE, H5, H7).to_table()
    assert found.column("added").to_pylist() == [value, value]
    assert found.column("a").to_pylist() == [1, 2]


def _as_written(value: Any) -> Any:
    return dict(value) if isinstance(value, list) and isinstance(value[0], tuple) else value


CHANGES: list[tuple[Any, Any, Any, Any]] = [
    ("int", "long", 5, 5),
    ("int", "double", 5, 5.0),
    ("float", "double", 0.5, 0.5),
    ("string", "bytes", "é", "é".encode()),
    ("string", ["null", "string"], "x", "x"),
    (logical("string", "uuid"), "string", uuid.UUID(int=5), str(uuid.UUID(int=5))),
    ("long", logical("long", "timestamp-millis"), 1, EPOCH + MILLIS),
    (
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]},
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "x", "type": "long"},
                {"name": "y", "type": "bytes", "default": "\u00ff"},
            ],
        },
        {"x": 5},
        {"x": 5, "y": b"\xff"},
    ),
]


@pytest.mark.parametrize(("older", "newer", "written", "value"), CHANGES)
def test_a_field_whose_type_was_widened_has_the_newer_type(
    tmp_path: Path, older: Any, newer: Any, written: Any, value: Any
) -> None:
    site = ReadableSite(tmp_path)
    site.close(H5, {"part-00000.avro": _file(1, older, row(H5, 0, v=written))})
    site.close(H6, {"part-00000.avro": _file(2, newer, row(H6, 0, v=value))})
    found = open_buckets(site.url).read(TYPE, H5, H7).to_table()
    assert found.column("v").to_pylist() == [value, value]


def _file(schema_id: int, avro_type: Any, event: dict[str, Any]) -> File:
    return File(schema_id, [{"name": "v", "type": avro_type}], [event])


def test_a_renamed_field_is_found_by_its_alias_and_a_removed_one_is_left_out(
    tmp_path: Path,
) -> None:
    site = ReadableSite(tmp_path)
    old = [{"name": "code", "type": "int"}, {"name": "gone", "type": "string"}]
    new = [{"name": "status", "type": "int", "aliases": ["code"]}]
    site.close(H5, {"part-00000.avro": File(1, old, [row(H5, 0, code=404, gone="x")])})
    site.close(H6, {"part-00000.avro": File(2, new, [row(H6, 0, status=200)])})
    buckets = open_buckets(site.url)
    for columns in (None, ["status"]):
        found = buckets.read(TYPE, H5, H7, columns=columns).to_table()
        assert found.column("status").to_pylist() == [404, 200]
        assert "gone" not in found.schema.names


def test_one_bucket_may_have_files_of_two_schemas(tmp_path: Path) -> None:
    site = ReadableSite(tmp_path)
    added = {"name": "b", "type": "long", "default": 7}
    files = {
        "part-00000.avro": File(8, [{"name": "a", "type": "int"}, added], [row(H5, 0, a=1, b=2)]),
        "part-00001.avro": File(3, [{"name": "a", "type": "int"}], [row(H5, 1, a=3)]),
    }
    site.close(H5, files)
    found = open_buckets(site.url).read(TYPE, H5, H6, columns=["a", "b"]).to_table()
    assert found.to_pylist() == [{"a": 1, "b": 2}, {"a": 3, "b": 7}]


def test_a_named_type_is_known_without_the_field_that_declares_it(tmp_path: Path) -> None:
    site = ReadableSite(tmp_path)
    color = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    pair = {
        "type": "record",
        "name": "Pair",
        "fields": [{"name": "one", "type": "Color"}, {"name": "other", "type": ["null", "Color"]}],
    }
    fields = [
        {"name": "first", "type": color},
        {"name": "pair", "type": pair},
        {"name": "pairs", "type": array("Pair")},
    ]
    value = {"one": "RED", "other": "BLUE"}
    event = row(H5, 0, first="RED", pair=value, pairs=[value])
    site.close(H5, {"part-00000.avro": File(1, fields, [event])})
    buckets = open_buckets(site.url)
    for columns in (["pairs"], ["pair", "pairs"], ["pairs", "first"]):
        [found] = buckets.read(TYPE, H5, H6, columns=columns).to_table().to_pylist()
        assert found == {name: event[name] for name in columns}


REFUSED: list[tuple[Any, Callable[[], Any], str]] = [
    (["int", "string"], lambda: 1, "the field value is a union of 2 types other than null"),
    (["null", "int", "string"], lambda: 1, "the field value is a union of 2 types"),
    (array(["int", "string"]), lambda: [1], r"the field value\[\] is a union"),
    (map_of(["int", "string"]), lambda: {"a": 1}, r"the field value\{\} is a union"),
    (
        {
            "type": "record",
            "name": "Tree",
            "fields": [{"name": "below", "type": ["null", "Tree"]}],
        },
        lambda: {"below": None},
        r"the field value\.below contains the record .*Tree that contains itself",
    ),
    (
        logical("bytes", "decimal", precision=77, scale=0),
        lambda: decimal.Decimal(1),
        "the field value is a decimal of 77 digits",
    ),
]


@pytest.mark.parametrize(("avro_type", "value", "problem"), REFUSED)
def test_a_type_that_a_table_cannot_express_is_refused_unless_it_is_not_selected(
    tmp_path: Path, avro_type: Any, value: Callable[[], Any], problem: str
) -> None:
    site = ReadableSite(tmp_path)
    fields = [{"name": "value", "type": avro_type}, {"name": "n", "type": "int"}]
    events = [row(H5, 0, value=value(), n=3)]
    site.close(H5, {"part-00000.avro": File(1, fields, events)})
    buckets = open_buckets(site.url)
    with pytest.raises(UnsupportedField, match=problem):
        buckets.read(TYPE, H5, H6)
    [found] = buckets.read(TYPE, H5, H6, columns=["n"]).to_table().to_pylist()
    assert found == {"n": 3}
