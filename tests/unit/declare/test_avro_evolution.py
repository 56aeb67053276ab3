"""Changes of a schema that encodings allow, and readers would take for something else; and
spellings.
"""

from __future__ import annotations

from typing import Any

import pytest

from hourmark.avro.framing import Schema
from hourmark.rules.event_types import EventType
from hourmark.rules.line_rule import DECLARED
from hourmark_declare.avro_evolution import find_incompatibility

LONG = {"name": "n", "type": "long"}


def schema(*fields: dict[str, Any]) -> Schema:
    return EventType.model_validate(
        {"name": "click", "fields": [*fields]}, context=DECLARED
    ).schema()


def decimal(scale: int) -> dict[str, Any]:
    return {
        "name": "p",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale},
    }


def time_of(unit: str) -> dict[str, Any]:
    return {"name": "p", "type": {"type": "long", "logicalType": f"timestamp-{unit}"}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (decimal(2), decimal(3)),
        (time_of("millis"), time_of("micros")),
        (time_of("micros"), LONG | {"name": "p"}),
    ],
)
def test_a_field_keeps_what_its_numbers_mean(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Avro's Java reads 1.23 as 0.123, and 2026-01-01 as 1970-01-21; the specification wants scales
    to match.
    """
    assert find_incompatibility(schema(old), schema(new)) is not None


NEW, GONE = {"name": "new", "type": "long"}, {"name": "old", "type": "long"}


@pytest.mark.parametrize("order", [(NEW, GONE), (GONE, NEW)])
def test_a_field_does_not_take_two_fields_of_one_version(order: tuple[dict[str, Any], ...]) -> None:
    """Both were written for a while, then the old one becomes an alias. Java: "matches multiple
    fields in writer".
    """
    written, reader = schema(*order), schema({**NEW, "aliases": ["old"]})
    assert "it would read both new and old, which both contain data" in str(
        find_incompatibility(written, reader)
    )


def test_bytes_that_are_no_text_do_not_become_text() -> None:
    written, reader = (
        schema({"name": "new", "type": "bytes"}),
        schema({"name": "new", "type": "string"}),
    )
    assert "its existing bytes may not be valid text" in str(find_incompatibility(written, reader))
    assert find_incompatibility(reader, written) is None


def test_a_named_type_may_be_renamed_with_its_old_name_as_alias() -> None:
    """Relative to its namespace, as Avro has it; Java takes it."""
    old = {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}
    new = {"name": "e", "type": {"type": "enum", "name": "F", "aliases": ["E"], "symbols": ["A"]}}
    assert find_incompatibility(schema(old), schema(new)) is None
