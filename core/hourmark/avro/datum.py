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
    """An encoder and decoder for records of one Avro schema.

    Records are in Avro's binary encoding, without framing. The constructor raises fastavro's
    `SchemaParseException` if the schema is invalid.

    Args:
        schema: The record schema as parsed JSON.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._name = schema["name"]

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Return the Avro binary encoding of one record.

        If a value does not match the schema, fastavro's exception is propagated.

        Args:
            row: Values by field name. A missing field gets its default. Keys that are not fields of
                the schema are ignored.

        Returns:
            The datum without framing.
        """
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, row)
        return buffer.getvalue()

    def decode(self, datum: bytes) -> dict[str, Any]:
        """Decode the record at the start of a byte string.

        Trailing bytes are ignored. Use `decode_first` to detect them.

        Args:
            datum: The Avro binary encoding of a record, without framing.

        Returns:
            Values by field name. Timestamps are `datetime` objects.

        Raises:
            ValueError: The bytes do not begin with a record of the schema.
        """
        return self.decode_first(datum)[0]

    def decode_first(self, content: bytes) -> tuple[dict[str, Any], int]:
        """Decode the record at the start of a byte string, and return it with its size.

        Args:
            content: Bytes that begin with an Avro record without framing.

        Returns:
            Values by field name, and the size of the record in bytes.

        Raises:
            ValueError: The bytes do not begin with a record of the schema.
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
            why = str(error) or "it ends too early"
            raise ValueError(f"it is not a valid {self._name}: {why}") from error
        return dict(row), stream.tell()


def decode_any_version(forms: Sequence[Datum], datum: bytes) -> dict[str, Any]:
    """Decode a record whose schema version is unknown, by trying each version in turn.

    If bytes remain after the fields of the newest version, they are ignored, because later software
    may have appended fields. An older version matches only if no bytes remain.

    Args:
        forms: One decoder for each version of the schema, newest first. Each version adds fields at
            the end of the version before it.
        datum: The Avro binary encoding of the record, without framing.

    Returns:
        Values by field name. Fields that the matching version does not have are omitted.

    Raises:
        ValueError: No version matches the bytes.
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
