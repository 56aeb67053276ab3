"""Reads from the ledger, or from a marker on storage, what explains one hour of an event type.

The cost does not depend on the number of buckets: rows of the type are read by primary key. All
reports of hosts are read, because any host may be the one that an hour waits for, and all pending
overrides, which are few.
"""

from __future__ import annotations

import dataclasses

from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.expiry import RETENTION_MS_MIN
from hourmark_etl.buckets.reader import BucketRemoved, read_manifest, read_marker
from hourmark_etl.ledger.backfill import read_backfill_notices
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers, read_type_names
from hourmark_etl.ledger.heartbeat import read_driver_signs
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.maintenance.overview import (
    read_closed_manifest,
    read_following_manifest,
)
from hourmark_etl.ledger.overrides import blockers, overrides
from hourmark_etl.ledger.staged.set_aside import count_unreviewed_records
from hourmark_etl.model import Frontier
from hourmark_etl.operators.explain import (
    Explanation,
    HourFacts,
    explain_closed_hour,
    explain_removed_hour,
)
from hourmark_etl.storage import open_storage


def read_frontier(database: Database, event_type: str, bucket_seconds: int) -> Frontier | None:
    """Return the oldest hour of an event type whose bucket is not closed, with its state.

    Args:
        database: The ledger (the ETL's state database).
        event_type: Name of the event type.
        bucket_seconds: Length of a bucket in seconds.

    Returns:
        The oldest open hour; None if the ledger does not have the type.
    """
    return next(iter(frontiers(database, bucket_seconds, [event_type])), None)


def read_manifests(
    database: Database, frontier: Frontier | None, event_type: str, hour: Hour
) -> tuple[Manifest | None, Manifest | None]:
    """Read the manifest of an hour's bucket, or of the next bucket if the hour was skipped.

    Hours before an event type's first hour are skipped, and have no bucket, if they have no events.

    Args:
        database: The ledger (the ETL's state database).
        frontier: Oldest open hour of the event type; None if the ledger does not have the type.
        event_type: Name of the event type.
        hour: The hour.

    Returns:
        A pair of manifests, of which at most one is not None: that of the hour's own bucket, and
        that of the first closed bucket after an hour that may have been skipped.

    Raises:
        DamagedRow: A ledger row of the buckets is damaged.
    """
    manifest = read_closed_manifest(database, event_type, hour)
    if manifest or frontier is None or not hour < min(frontier.hour, frontier.first_hour):
        return manifest, None
    return None, read_following_manifest(database, event_type, hour)


def read_hour_facts(
    database: Database, config: Config, event_type: str, hour: Hour, now_ms: int
) -> HourFacts:
    """Read everything from the ledger that is needed to explain the state of one hourly bucket.

    Args:
        database: The ledger (the ETL's state database).
        config: Provides the bucket length and the deadline (`etl.deadline_seconds`).
        event_type: Name of the event type; it may be unknown.
        hour: The hour.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The input for `explain_hour`.

    Raises:
        DamagedRow: A ledger row of the hour's bucket is damaged.
        Unavailable: The database does not respond.
    """
    length_s = config.parsing.bucket_seconds
    frontier = read_frontier(database, event_type, length_s)
    manifest, following = read_manifests(database, frontier, event_type, hour)
    if frontier is not None and frontier.hour < frontier.first_hour:
        notice = read_backfill_notices(database).get(event_type)
        is_later = frontier.previous_hour is not None
        if notice is not None and (is_later or notice.hour_s == frontier.hour.start_s):
            frontier = dataclasses.replace(frontier, noticed_ms=notice.noticed_ms)
    return HourFacts(
        event_type=event_type,
        hour=hour,
        now_ms=now_ms,
        deadline_seconds=config.etl.deadline_seconds,
        frontier=frontier,
        known_types=() if frontier else tuple(read_type_names(database)),
        reporters=tuple(reporters(database)),
        blocker=blockers(database, length_s, [event_type]).get(event_type),
        override=overrides(database).get(event_type),
        set_aside=count_unreviewed_records(database, event_type),
        manifest=manifest,
        following=following,
        driver=read_driver_signs(database),
    )


def explain_from_storage(config: Config, event_type: str, hour: Hour) -> Explanation | None:
    """Explain how a bucket was closed from its marker on storage, without the ledger.

    Use it while the ledger (the ETL's state database) does not respond.

    Args:
        config: Provides the storage root.
        event_type: Name of the event type.
        hour: The hour.

    Returns:
        The explanation; None if the bucket is not closed, or if storage does not respond either.
    """
    try:
        manifest = read_manifest(open_storage(config.storage), event_type, hour)
    except BucketRemoved as error:
        closed = explain_closed_hour(event_type, hour, error.bucket.manifest)
        return explain_removed_hour(closed, error.tombstone, error.bucket)
    except HourmarkError:
        return None
    return explain_closed_hour(event_type, hour, manifest)


def note_removal(config: Config, explanation: Explanation, hour: Hour, now_ms: int) -> Explanation:
    """Return an explanation that states whether a closed bucket was removed.

    The ledger (the ETL's state database) does not know whether a bucket was removed, so its
    tombstone is read from storage.

    Args:
        config: Provides the storage root.
        explanation: Explanation from the ledger.
        hour: The hour.
        now_ms: Current time, Unix milliseconds. The storage is not accessed for an hour that ended
            less than a day ago, because no retention is shorter.

    Returns:
        The given explanation, unless the bucket is closed and its marker was removed. If storage
        does not respond, the bucket is assumed to exist.
    """
    if explanation.state != "closed" or now_ms - hour.end_ms < RETENTION_MS_MIN:
        return explanation
    try:
        read_marker(open_storage(config.storage), explanation.event_type, hour)
    except BucketRemoved as error:
        return explain_removed_hour(explanation, error.tombstone, error.bucket)
    except HourmarkError:
        return explanation
    return explanation
