"""Exceptions of the reader library.

    ReadingError
    ├── MissingHours        hours of the range are open, removed, or not graded as required
    ├── UnknownEventType    the root has no folder of the type
    ├── UnknownColumns      the type has no field of this name, or its fields are not known
    ├── UnsupportedField    a field has an Avro type that has no column type
    ├── InvalidMarker       the marker of a bucket is damaged, or is not the marker of this bucket
    └── DamagedAvroFile     a file of a bucket is missing, or differs from what the marker lists

Errors of the store, such as a refused connection, are the exceptions of fsspec (mostly `OSError`).
"""

from __future__ import annotations


class ReadingError(Exception):
    """Base class of the errors that this library raises."""


class MissingHours(ReadingError):
    """Raised if hours of the requested range cannot be read as requested.

    The message names the hours and the options of `Buckets.read` that permit reading without them.
    """


class UnknownEventType(ReadingError):
    """Raised if the root of the buckets has no folder of the requested event type."""


class UnknownColumns(ReadingError):
    """Raised if a requested column does not exist, or if no bucket states the type's columns."""


class UnsupportedField(ReadingError):
    """Raised if a field has an Avro type that no Arrow type expresses.

    Select the other fields with the argument `columns` of `Buckets.read`.
    """


class InvalidMarker(ReadingError):
    """Raised if the `_SUCCESS` file of a bucket is damaged, or belongs to another bucket."""


class DamagedAvroFile(ReadingError):
    """Raised if a file of a bucket is missing or differs from what the marker lists."""
