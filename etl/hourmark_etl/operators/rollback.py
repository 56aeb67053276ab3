"""What prevents the ETL from returning to an older version.

The ledger's version, the fields of existing markers, those of future markers, and tombstones of
removed buckets are checked. The ledger is read in its present version and is not migrated.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, func, or_, select
from sqlalchemy.exc import DBAPIError

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.records.hours import Hour
from hourmark.rollback.obstacle import NothingToCheck, Obstacle
from hourmark.rollback.version import OlderVersion
from hourmark_etl.buckets.reader import list_types
from hourmark_etl.buckets.tombstones import list_removed_dates, tombstone_path
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.bucket_rows import bucket_rows
from hourmark_etl.ledger.engines import open_engine, sqlite_file
from hourmark_etl.ledger.hosts.sites import read_further_sites
from hourmark_etl.storage import Storage, map_concurrently, open_storage

_SITES: Final = 5  # the schema revision that introduced further sites
_DAYS: Final = 6  # the schema revision that packs rows of older buckets
_BACKFILL: Final = 7  # the schema revision that introduced back-filled hours
_NO_WAY: Final = "none: keep using this version"


def obstacles(config: Config, older_version: OlderVersion) -> Iterator[Obstacle]:
    """Yield the reasons why an older version of Hourmark could not continue with the ledger.

    The ledger is the state database of the ETL. Nothing is changed.

    Args:
        config: Configuration that contains the ledger URL (`etl.ledger`).
        older_version: Version of Hourmark to downgrade to.

    Yields:
        Each reason with the operator's next step; nothing if the older version can continue.

    Raises:
        NothingToCheck: There is no ledger.
        Unavailable: The ledger or the storage cannot be read.
    """
    with _reading(config.etl.ledger) as connection:
        if (revision := migrations.read_revision(connection)) is None:
            raise NothingToCheck("the database contains no ledger (etl.ledger)")
        if revision > older_version.ledger:
            yield Obstacle(
                "etl.ledger",
                f"it has schema version {revision}, but {older_version.name} supports at most "
                f"{older_version.ledger}",
                f"stop the driver, then `hourmark ledger downgrade --to {older_version.name}`, "
                "which makes a copy first",
            )
        yield from permanent_obstacles(
            connection, revision, older_version, config.parsing.bucket_seconds
        )
    if not older_version.knows_tombstones:
        yield from _tombstones(open_storage(config.storage), older_version)


def _tombstones(storage: Storage, older: OlderVersion) -> Iterator[Obstacle]:
    names = list_types(storage)
    dates = map_concurrently(lambda name: list_removed_dates(storage, name), names)
    removed = [(name, date) for name, of in zip(names, dates, strict=True) for date in of]
    if removed:
        name, date = removed[0]
        yield Obstacle(
            storage.url(tombstone_path(name, date)),
            f"{len(removed)} days of buckets were removed by etl.retention_days, such as {name} "
            f"{date}. {older.name} reports their buckets as missing, cannot rebuild the ledger, "
            "and does not close hours with late events of these days",
            "restore these days from a backup and delete their tombstones "
            "(docs/how-to/remove-old-buckets.md); otherwise keep using this version",
        )


def permanent_obstacles(
    connection: Connection, revision: int, older_version: OlderVersion, bucket_seconds: int
) -> Iterator[Obstacle]:
    """Yield the reasons that prevent a downgrade even after the ledger schema is migrated down.

    Args:
        connection: Connection with an open transaction on the ledger (the ETL's state database).
        revision: The current schema version of the ledger.
        older_version: Version of Hourmark to downgrade to.
        bucket_seconds: Length of a bucket in seconds.

    Yields:
        Each reason with the operator's next step; nothing if the older version can continue after
        the migration.
    """
    yield from _markers(connection, older_version, bucket_seconds, has_days=revision >= _DAYS)
    yield from _seals(connection, older_version)
    if revision > older_version.ledger:
        yield from _losses(connection, older_version)
    if revision >= _SITES > older_version.ledger:
        yield from _sites(connection, older_version)
    if revision >= _BACKFILL > older_version.ledger:
        yield from _backfills(connection, older_version)


def _backfills(connection: Connection, older: OlderVersion) -> Iterator[Obstacle]:
    # The older version would close each of the hours that a back-fill skips, or report them missing.
    f = tables.frontiers.c
    query = select(f.type).where(or_(f.backfilled_hour.is_not(None), f.hour < f.first_hour))
    if names := sorted(connection.execute(query).scalars()):
        yield Obstacle(
            "etl.ledger",
            f"hours before the first one of {', '.join(names)} are back-filled, and {older.name} "
            "would report the hours skipped between them as missing buckets",
            _NO_WAY,
        )


def _markers(
    connection: Connection, older: OlderVersion, bucket_seconds: int, *, has_days: bool
) -> Iterator[Obstacle]:
    may_have = [f'"{name}":' for name in older.no_marker_fields]
    with_more = [
        (row.event_type, Hour(row.hour_s, bucket_seconds))
        for row in bucket_rows(connection, has_days=has_days)
        if any(name in row.manifest for name in may_have) and _has(json.loads(row.manifest), older)
    ]
    with_more.sort(key=lambda of: (of[1], of[0]))
    if with_more:
        name, hour = with_more[0]
        yield Obstacle(
            "markers",
            f"{len(with_more)} closed buckets contain {' or '.join(older.no_marker_fields)}, "
            f"such as {name} {hour}, which {older.name} rejects",
            _NO_WAY,
        )


def _has(manifest: dict[str, object], older: OlderVersion) -> bool:
    return any(name in manifest for name in older.no_marker_fields)


def _seals(connection: Connection, older: OlderVersion) -> Iterator[Obstacle]:
    # The older version would write these hours' markers without the fields that it does not know.
    frontiers = tables.frontiers.c
    for name, text in connection.execute(
        select(frontiers.type, frontiers.seal).where(frontiers.seal.is_not(None))
    ):
        if any(seal.get(field) for seal in json.loads(text) for field in older.no_marker_fields):
            yield Obstacle(
                "etl.ledger",
                f"the manifest of a sealed hour of {name} will contain fields that {older.name} "
                "cannot write",
                _NO_WAY,
            )


def _losses(connection: Connection, older: OlderVersion) -> Iterator[Obstacle]:
    losses, frontiers, reporters = tables.host_losses.c, tables.frontiers.c, tables.reporters.c
    open_from_s = connection.execute(select(func.min(frontiers.hour))).scalar()
    concerning = select(losses.source).where(losses.to_ms >= (open_from_s or 0) * 1000).distinct()
    if lost := sorted(connection.execute(concerning).scalars()):
        yield Obstacle(
            "etl.ledger",
            f"losses of the sources {', '.join(lost)} may concern hours that are open, but "
            f"{older.name} does not record losses",
            _NO_WAY,
        )
    asked_once = (
        select(reporters.source).where(reporters.unrepeatable, ~reporters.goodbye).distinct()
    )
    if received := sorted(connection.execute(asked_once).scalars()):
        yield Obstacle(
            "etl.ledger",
            f"the sources {', '.join(received)} receive data from senders that cannot resend it, "
            f"but {older.name} does not record this",
            _NO_WAY,
        )


def _sites(connection: Connection, older: OlderVersion) -> Iterator[Obstacle]:
    if further := sorted(read_further_sites(connection)):
        yield Obstacle(
            "etl.ledger",
            f"it closes buckets for further sites, {', '.join(further)}, but {older.name} would "
            "use the offsets of one site for all sites",
            _NO_WAY,
        )


@contextlib.contextmanager
def _reading(url: str) -> Iterator[Connection]:
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        raise NothingToCheck(f"no ledger exists at {file} (etl.ledger)")
    changing, reading = open_engine(url)
    try:
        with reading.connect() as connection, connection.begin():
            yield connection
    except DBAPIError as error:
        raise Unavailable(
            f"the ledger cannot be read: {' '.join(str(error.orig).split())}"
        ) from error
    finally:
        changing.dispose()
        reading.dispose()
