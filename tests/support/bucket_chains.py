"""Chains of small buckets on a storage: hours with few events, and links between their markers."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.buckets import TYPE, Plan, make_event

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, PreviousMarker
from hourmark.records.tombstone import RemovedBucket
from hourmark_etl.buckets.expiry import ExpiredDay, ExpiryPlan, plan_expiry, remove_day
from hourmark_etl.buckets.tombstones import date_of
from hourmark_etl.storage import Storage


def close_hours(storage: Storage, hours: Iterable[Hour], events: int = 2) -> dict[Hour, bytes]:
    """Close a bucket for each hour, in order; each names the one before it.

    Returns:
        The markers by hour.
    """
    markers: dict[Hour, bytes] = {}
    previous: PreviousMarker | None = None
    for hour in hours:
        files = {"part-00000.avro": [make_event(hour, number) for number in range(events)]}
        Plan(storage, hour, files if events else {}, {"previous": previous}).close()
        markers[hour] = storage.read(f"{hour.bucket_path(TYPE)}/{MARKER}")
        previous = PreviousMarker.from_marker(str(hour), markers[hour])
    return markers


def hours_of(*labels: str) -> list[Hour]:
    """Hours by their labels."""
    return [Hour.parse(label) for label in labels]


def expire_days(storage: Storage, event_type: str, now_ms: int, days: int) -> list[str]:
    """Remove all days of a type that are older than the retention, and return them."""
    plan = plan_expiry(storage, event_type, days, 3600, now_ms)
    for day in plan.expired:
        remove_day(storage, plan, day, now_ms, "me@here")
    return [day.date for day in plan.expired]


def remove_bucket(storage: Storage, event_type: str, hour: Hour) -> None:
    """Remove the only bucket of its day by a retention of 30 days."""
    marker = storage.read(f"{hour.bucket_path(event_type)}/{MARKER}")
    day = ExpiredDay(date_of(hour), (RemovedBucket.from_marker(marker),))
    plan = ExpiryPlan(event_type, 30, hour.length_s, (day,))
    remove_day(storage, plan, day, hour.end_ms, "me@here")
