"""Which Avro types Parquet can express, and what is refused with its path and a next step."""

from __future__ import annotations

from typing import Any

import pytest

from hourmark.avro import parquet_columns as module
from hourmark.avro.framing import event_schema, plain_spelling
from hourmark.avro.parquet_columns import ColumnKind, ParquetColumn, parquet_columns


def columns_of(*fields: dict[str, Any]) -> dict[str, ParquetColumn]:
    schema = plain_spelling(event_schema("click", [*fields]))
    return {column.name: column for column in parquet_columns(schema)}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]}


@pytest.mark.parametrize(
    ("avro_type", "message"),
    [
        (
            ["null", "string", "long"],
            "field a: Parquet has no type for the union of null, string, ",
        ),
        (["string", "long"], "field a: Parquet has no type for the union of string, long"),
        ("null", "field a: readers of Parquet do not support a field that is always null"),
        (["null"], "field a: readers of Parquet do not support a field that is always null"),
        (record("Empty"), "field a: Parquet has no record without fields"),
        (
            {"type": "array", "items": {"type": "map", "values": ["int", "string"]}},
            "field a.element.value: Parquet has no type for the union of int, string",
        ),
        (
            record("Tree", {"name": "children", "type": {"type": "array", "items": "Tree"}}),
            "field a.children.element: Parquet has no type for hourmark.events.Tree, a record that",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39},
            "field a: a decimal in Parquet has at most 38 digits, but the precision is 39",
        ),
    ],
)
def test_what_parquet_cannot_express_is_refused_with_its_path(avro_type: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        columns_of({"name": "a", "type": avro_type})
    assert str(refused.value).startswith(message)
    assert 'set format = "avro"' in str(refused.value)


def test_a_type_that_is_declared_once_can_be_used_again() -> None:
    place = record("Place", {"name": "city", "type": ["null", "string"]})
    found = columns_of({"name": "a", "type": place}, {"name": "b", "type": ["Place", "null"]})
    assert [of.children[0].kind for of in (found["a"], found["b"])] == [ColumnKind.STRING] * 2
    assert (found["a"].nullable, found["b"].nullable) == (False, True)
    ids = {of.field_id for of in (*found.values(), *found["a"].children, *found["b"].children)}
    assert len(ids) == len(found) + 2 and all(0 < of < 1 << 31 for of in ids)


def test_the_ids_of_the_envelope_never_change() -> None:
    assert {name: of.field_id for name, of in columns_of().items()} == {
        "event_id": 439_285_921,
        "event_time": 633_715_788,
        "host": 684_361_261,
        "source": 1_345_367_019,
        "file": 637_520_413,
        "position": 1_238_354_681,
    }


def test_two_fields_with_the_same_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIELD_ID_END", 3)
    with pytest.raises(
        ValueError, match=r"event_id and .*: their names result in the same Parquet"
    ):
        columns_of()
