"""Reads closed buckets of Hourmark as Arrow batches, pandas, polars, DuckDB or Spark.

    buckets = hourmark_reading.open_buckets("webhdfs://namenode:9870/hourmark")
    events = buckets.read("page-viewed", "2026-11-21T05", "2026-11-21T07")
    frame = events.to_pandas()

Each event with a time in the span is returned exactly once, including late events, which are in
later buckets. Hours that are not complete raise `MissingHours` unless they are skipped on request.
Rows of older buckets have the columns of the newest schema. The library needs only access to the
storage: neither Kafka, the ledger nor the schema registry.
"""

from hourmark_reading.buckets import Buckets, open_buckets
from hourmark_reading.coverage import BucketPresence, HourCoverage
from hourmark_reading.errors import (
    DamagedAvroFile,
    InvalidMarker,
    MissingHours,
    ReadingError,
    UnknownColumns,
    UnknownEventType,
    UnsupportedField,
)
from hourmark_reading.events import Events

__all__ = [
    "BucketPresence",
    "Buckets",
    "DamagedAvroFile",
    "Events",
    "HourCoverage",
    "InvalidMarker",
    "MissingHours",
    "ReadingError",
    "UnknownColumns",
    "UnknownEventType",
    "UnsupportedField",
    "open_buckets",
]
