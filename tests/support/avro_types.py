"""Avro types, as declarations write them."""

from __future__ import annotations

from typing import Any


def array(items: object) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: object) -> dict[str, Any]:
    return {"type": "map", "values": values}


def logical(avro_type: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": avro_type, "logicalType": name, **more}
