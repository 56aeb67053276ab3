"""Encoding and decoding of Avro datums with fastavro.

It is separate from `framing`, so that a log host, which encodes no datums, does not need fastavro.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

from hourmark.avro.framing import Schema


class Datum:
    """An encoder and decoder of the datums of one record schema, without framing."""

    def __init__(self, schema: Schema) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._name = schema["name"]

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Return a record as a datum.

        Args:
            row: Values by field name; keys that are not fields of the schema are ignored.
        """
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, row)
        return buffer.getvalue()

    def decode(self, datum: bytes) -> dict[str, Any]:
        """Decode a datum; bytes after its end are ignored.

        Returns:
            Values by field name; timestamps are `datetime` objects.

        Raises:
            ValueError: The bytes are not a record of the schema.
        """
        return self.decode_first(datum)[0]

    def decode_first(self, content: bytes) -> tuple[dict[str, Any], int]:
        """Decode the datum at the start of `content`.

        Returns:
            Values by field name, and the datum's size in bytes.

        Raises:
            ValueError: The bytes are not a record of the schema.
        """
        stream = io.BytesIO(content)
        try:
            row: Any = fastavro.schemaless_reader(stream, self._schema, None)
        except (
            EOFError,
            LookupError,
            OverflowError,
            ValueError,
        ) as error:  # raised by fastavro for invalid bytes
            why = str(error) or "it ends early"
            raise ValueError(f"it is no {self._name}: {why}") from error
        return dict(row), stream.tell()


def decode_any_version(forms: Sequence[Datum], datum: bytes) -> dict[str, Any]:
    """Decode a datum with the newest version of its schema that matches it completely.

    Bytes that follow a datum of the newest version are ignored, because a later version may append
    fields.

    Args:
        forms: Decoders of all versions, the newest first. Each version has more fields at the end
            than the next one.
        datum: The datum.

    Returns:
        Values by field name, without the fields that the matching version does not have.

    Raises:
        ValueError: No version matches.
    """
    failed: list[ValueError] = []
    for form in forms:
        try:
            row, size = form.decode_first(datum)
        except ValueError as error:  # an older datum ends before later fields
            failed.append(error)
        else:
            if size == len(datum) or form is forms[0]:
                return row
    raise failed[0]
