"""Avro datums, by fastavro.

Apart from `avro`, so that a log host, which writes none, needs no fastavro.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

from hourmark.avro.framing import Schema


class Datum:
    """Writes and reads the records of one schema, without framing."""

    def __init__(self, schema: Schema) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._name = schema["name"]

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """What `row` has beside the schema's fields is left out."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, row)
        return buffer.getvalue()

    def decode(self, datum: bytes) -> dict[str, Any]:
        """The inverse; timestamps come as `datetime`.

        ValueError for what is no record of the schema.
        """
        return self.decode_first(datum)[0]

    def decode_first(self, content: bytes) -> tuple[dict[str, Any], int]:
        """The datum that `content` begins with, and its size. ValueError as above."""
        stream = io.BytesIO(content)
        try:
            row: Any = fastavro.schemaless_reader(stream, self._schema, None)
        except (
            EOFError,
            LookupError,
            OverflowError,
            ValueError,
        ) as error:  # what fastavro meets in bytes that are none
            why = str(error) or "it ends too early"
            raise ValueError(f"it is no {self._name}: {why}") from error
        return dict(row), stream.tell()


def decode_any_version(forms: Sequence[Datum], datum: bytes) -> dict[str, Any]:
    """As the first of `forms` that it is whole in: the newest first, each with fields at its end
    that the next has not.

    What follows the newest one's fields is of a version to come. ValueError where it is none of
    them.
    """
    failed: list[ValueError] = []
    for form in forms:
        try:
            row, size = form.decode_first(datum)
        except ValueError as error:  # it may end before fields of later
            failed.append(error)
        else:
            if size == len(datum) or form is forms[0]:
                return row
    raise failed[0]
