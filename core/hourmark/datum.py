"""Avro datums, by fastavro. Apart from `avro`, so that a log host, which writes none, needs no fastavro."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro

from hourmark.avro import Schema


class Datum:
    """Writes and reads the records of one schema, without framing."""

    def __init__(self, schema: Schema) -> None:
        self._schema = fastavro.parse_schema(schema)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """What `row` has beside the schema's fields is left out."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, row)
        return buffer.getvalue()

    def decode(self, datum: bytes) -> dict[str, Any]:
        """The inverse; timestamps come as `datetime`."""
        return self.decode_first(datum)[0]

    def decode_first(self, content: bytes) -> tuple[dict[str, Any], int]:
        """The datum that `content` begins with, and its size."""
        stream = io.BytesIO(content)
        row: Any = fastavro.schemaless_reader(stream, self._schema, None)
        return dict(row), stream.tell()
