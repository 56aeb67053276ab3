"""What a test delivers to an ETL, and what its buckets hold, by id."""

from __future__ import annotations

from typing import Any

import fastavro
from tests.support.delivery import Range
from tests.support.etl import EtlRun

from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour


def times(hour: Hour, count: int) -> list[int]:
    """So many moments of the hour, half a second from each other."""
    return [hour.start_s * 1000 + 500 * n for n in range(count)]


def ids_in(run: EtlRun, event_type: str, hour: Hour) -> list[EventId]:
    """Every id in the bucket, sorted, read by a stock Avro reader."""
    manifest = run.manifest(event_type, hour)
    assert manifest is not None
    found = []
    for file in manifest.files:
        with run.storage.open(f"{hour.bucket_path(event_type)}/{file.name}") as stream:
            rows: Any = fastavro.reader(stream)
            found += [EventId(row["event_id"]) for row in rows]
    return sorted(found)


def ids_of(*ranges: Range) -> list[EventId]:
    """Every id of these ranges, sorted."""
    return sorted(event_id for r in ranges for _, event_id, _ in r.events)
