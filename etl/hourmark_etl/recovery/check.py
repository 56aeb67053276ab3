"""Checks the consistency of a ledger with itself, storage and topics: `hourmark ledger check`.

It changes nothing and may run next to a running driver: inconsistencies are checked a second time,
and only those that persist are reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection, func, select

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.reader import (
    BadMarker,
    find_closed_manifest,
    list_hours,
    list_types,
)
from hourmark_etl.buckets.tombstones import BadTombstone
from hourmark_etl.errors import DamagedRow, Unreadable
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import (
    ClosedSpan,
    bucket_rows,
    make_damaged_bucket_error,
    make_late_hour_rows,
    read_closed_spans,
)
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.ledger.frontiers import first_unsealed_hour, frontiers
from hourmark_etl.ledger.staged.listings import find_file_differences
from hourmark_etl.ledger.staged.staged_files import select_needed_groups
from hourmark_etl.model import Frontier, HourState, StagingPosition, from_columns
from hourmark_etl.staging.files import read_note
from hourmark_etl.storage import ContentLost, NotFound, Storage, list_if_exists, map_concurrently
from hourmark_etl.topics import CentralCluster


class LedgerFault(enum.StrEnum):
    """Types of inconsistency that a check of the ledger (the ETL's state database) can detect.

    - `OLDER_COPY`: Storage contains a closed bucket that the ledger does not contain.
    - `MARKER`: A closed bucket has no marker (`_SUCCESS` file), or the marker differs from the
      ledger.
    - `CHAIN`: The closed hours of an event type and its oldest open hour are not contiguous.
    - `SEAL`: An hour is in the state `SEALED` but has no seal (record of the bucket's final
      content), or it has a seal but is in another state.
    - `LISTING`: Rows of a staged file are assigned to a bucket that cannot exist.
    - `SUMS`: The row counts of the groups in a staged file do not add up to the rows of the file.
    - `FILE`: A staged file that is still needed is missing, is damaged, or has fewer rows than the
      ledger.
    - `DIGEST`: A row of the ledger does not match its stored digest.
    - `POSITION`: A stored Kafka offset is outside the log of its topic.
    """

    OLDER_COPY = "older-copy"
    MARKER = "marker"
    CHAIN = "chain"
    SEAL = "seal"
    LISTING = "listing"
    SUMS = "sums"
    FILE = "file"
    DIGEST = "digest"
    POSITION = "position"


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerFinding:
    """An inconsistency within the ledger (the ETL's state database), or with storage or Kafka.

    Attributes:
        kind: Type of the inconsistency.
        where: The affected object: an event type, an event type and hour, a path, a table or a
            topic-partition.
        detail: Human-readable description.
    """

    kind: LedgerFault
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.detail}"


def check_ledger(
    database: Database, storage: Storage, bucket_seconds: int, central: CentralCluster
) -> list[LedgerFinding]:
    """Check a ledger for internal inconsistencies, and compare it with storage and Kafka.

    A running ETL driver may cause temporary inconsistencies. If any are found, the check is
    repeated, and only inconsistencies that are found both times are returned.

    Args:
        database: The ledger (the ETL's state database).
        storage: Storage with buckets and staged files (copies of Kafka records).
        bucket_seconds: Length of a bucket in seconds.
        central: The central Kafka cluster.

    Returns:
        The inconsistencies in the order of the checks; empty if the ledger is consistent.

    Raises:
        Unavailable: Storage, the ledger or the cluster does not respond.
    """

    def look() -> list[LedgerFinding]:
        on_storage = {t: list_hours(storage, t, bucket_seconds) for t in list_types(storage)}
        known = frontiers(
            database, bucket_seconds
        )  # read after storage was listed: a bucket is published before it is closed
        return [
            *(
                LedgerFinding(LedgerFault.DIGEST, d.table, str(d))
                for d in find_damaged_rows(database)
            ),
            *check_chains(database, known),
            *check_late_hours(database, bucket_seconds),
            *check_groups(database, known),
            *check_markers(database, storage, known, on_storage),
            *check_files(database, storage),
            *check_positions(database, central),
        ]

    found = look()
    still = set(look()) if found else set()
    return [finding for finding in found if finding in still]


def check_chains(
    database: Database, known_frontiers: Collection[Frontier]
) -> Iterator[LedgerFinding]:
    """Check that the closed buckets of each event type have no gap up to the oldest open hour.

    Gaps are allowed only before the type's first hour, where hours without events have no bucket.
    The function also checks that the ledger contains a seal (the stored result of the proof of
    completeness) for an oldest open hour if, and only if, the hour is in the state `SEALED`.

    Args:
        database: The ledger (the ETL's state database).
        known_frontiers: The oldest open hour of each type.

    Yields:
        One finding per inconsistency; nothing if the closed hours of all types are complete.
    """
    with database.reading() as connection:
        closed = read_closed_spans(connection)
        backfilled = {
            f.event_type: _split_backfilled(connection, f)
            for f in known_frontiers
            if f.hour <= f.first_hour or f.backfilled_hour is not None
        }
    for f in known_frontiers:
        if f.state is HourState.DAMAGED:
            closed.pop(f.event_type, None)
            continue
        wanted = max(0, (f.hour.start_s - f.first_hour.start_s) // f.hour.length_s)
        span = closed.pop(f.event_type, None)
        before_s, span = backfilled.get(f.event_type, (None, span))
        if before_s != (f.backfilled_hour.start_s if f.backfilled_hour else None):
            newest = "none" if before_s is None else str(Hour(before_s, f.hour.length_s))
            detail = (
                f"the newest closed hour before {f.first_hour} is {newest}, but its row states "
                f"{f.backfilled_hour or 'none'}"
            )
            yield LedgerFinding(LedgerFault.CHAIN, f.event_type, detail)
        first_s, end_s = f.first_hour.start_s, max(f.hour, f.first_hour).start_s
        count, first, last = span or (0, first_s, first_s - f.hour.length_s)
        if (count, first, last + f.hour.length_s) != (wanted, first_s, end_s):
            detail = (
                f"{count} closed hours, but there are {wanted} hours from {f.first_hour} to the "
                f"frontier {f.hour}"
            )
            yield LedgerFinding(LedgerFault.CHAIN, f.event_type, detail)
        if (f.seal is not None) != (f.state is HourState.SEALED):
            yield LedgerFinding(
                LedgerFault.SEAL,
                f"{f.event_type} {f.hour}",
                f"its state is {f.state.value}, but it has {'a' if f.seal is not None else 'no'} "
                "seal",
            )
    for event_type in closed:
        yield LedgerFinding(LedgerFault.CHAIN, event_type, "closed buckets, but no frontier")


def _split_backfilled(connection: Connection, f: Frontier) -> tuple[int | None, ClosedSpan | None]:
    # Return the newest closed hour before the type's first hour, in Unix seconds, and the span of
    # the closed hours from the first hour on. Each is None if there is no such hour.
    before_s: int | None = None
    regular: list[int] = []
    with contextlib.suppress(DamagedRow):  # the digest check reports it
        for row in bucket_rows(connection, f.event_type):
            if row.hour_s < f.first_hour.start_s:
                before_s = max(row.hour_s, before_s or 0)
            else:
                regular.append(row.hour_s)
    span = ClosedSpan(len(regular), min(regular), max(regular)) if regular else None
    return before_s, span


def check_late_hours(database: Database, bucket_seconds: int) -> Iterator[LedgerFinding]:
    """Check that the table `late_hours` is consistent with the manifests of closed buckets.

    The table states which buckets contain late events (events of earlier hours). The search for
    duplicates uses it, and would not read a bucket whose row is missing.

    Args:
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.

    Yields:
        One finding per missing or extra row; nothing if the table is correct.
    """
    table = tables.late_hours.c
    differ: list[tuple[str, int, int, bool]] = []
    with database.reading() as connection:
        types = {
            *read_closed_spans(connection),
            *connection.execute(select(table.type).distinct()).scalars(),
        }
        for event_type in sorted(
            types
        ):  # type by type, because a year of all types does not fit into memory
            try:
                wanted = _late_hours_of_manifests(connection, event_type, bucket_seconds)
            except DamagedRow:  # the digest check reports it
                continue
            query = select(table.origin, table.hour).where(table.type == event_type)
            found = {(origin_s, hour_s) for origin_s, hour_s in connection.execute(query)}
            differ += ((event_type, *pair, pair in wanted) for pair in sorted(wanted ^ found))
    for event_type, origin_s, hour_s, is_wanted in differ:
        which = "lacks" if is_wanted else "contains, but no manifest lists,"
        detail = (
            f"the table {which} late events of {Hour(origin_s, bucket_seconds)} in the bucket "
            f"{Hour(hour_s, bucket_seconds)}"
        )
        yield LedgerFinding(LedgerFault.LISTING, f"{event_type}, table late_hours", detail)


def _late_hours_of_manifests(
    connection: Connection, event_type: str, bucket_seconds: int
) -> set[tuple[int, int]]:
    # Return pairs of origin hour and bucket hour (Unix seconds) of a type's late events.
    wanted = set()
    for row in bucket_rows(connection, event_type):
        with contextlib.suppress(
            ValueError, KeyError, TypeError
        ):  # the marker check reports damaged manifests
            late = json.loads(row.manifest)["late"]
            wanted |= {
                (of["origin"], of["hour"])
                for of in make_late_hour_rows(event_type, Hour(row.hour_s, bucket_seconds), late)
            }
    return wanted


def check_groups(
    database: Database, known_frontiers: Collection[Frontier]
) -> Iterator[LedgerFinding]:
    """Check the assignment of staged rows to buckets, and the row counts of staged files.

    A staged file contains copies of Kafka records. A group contains the rows of one event type and
    hour in one file. The following is checked:

    - A group is assigned only to the bucket of its hour or of a later hour.
    - The row counts of the groups in a file add up to the row count of the file.

    Args:
        database: The ledger (the ETL's state database).
        known_frontiers: The oldest hour of each event type that is not closed.

    Yields:
        One finding per inconsistency; nothing if all groups are consistent.
    """
    groups = tables.groups
    query = (
        select(groups.c.type, groups.c.listed_hour, func.max(groups.c.hour), func.count())
        .where(groups.c.listed_hour.is_not(None))
        .group_by(groups.c.type, groups.c.listed_hour)
    )
    frontier = {f.event_type: f for f in known_frontiers}
    with database.reading() as connection:
        listed = connection.execute(query).all()
        differences = find_file_differences(connection)
    for event_type, listed_hour, latest, count in listed:
        f = frontier.get(event_type)
        if f is None or (why := _listing_fault(f, listed_hour, latest)):
            detail = f"{count} groups are listed for {listed_hour}: " + (
                why if f is not None else "the type has no frontier"
            )
            yield LedgerFinding(LedgerFault.LISTING, event_type, detail)
    for d in differences:
        yield LedgerFinding(
            LedgerFault.SUMS,
            d.path,
            f"{d.rows} rows of {d.kind}, but its groups have {d.in_groups}",
        )


def _listing_fault(f: Frontier, listed_hour: int, latest: int) -> str:
    # Return why groups of these hours cannot be listed for that hour; empty if they can.
    if latest > listed_hour:
        return f"one of {Hour.containing(latest * 1000, f.hour.length_s)} is later than its bucket"
    has_backfill = f.backfilled_hour is not None or f.hour < f.first_hour
    if listed_hour < f.first_hour.start_s and not has_backfill:
        return f"before the type's first hour {f.first_hour}"
    if listed_hour >= first_unsealed_hour(f).start_s and f.state is not HourState.FROZEN:
        return f"the frontier {f.hour} is {f.state.value}"
    return ""


def check_markers(
    database: Database,
    storage: Storage,
    known_frontiers: Collection[Frontier],
    on_storage: Mapping[str, Sequence[Hour]],
) -> Iterator[LedgerFinding]:
    """Check that the ledger and storage contain the same closed buckets.

    The marker (`_SUCCESS` file) of each bucket on storage must match the ledger.

    Args:
        database: The ledger (the ETL's state database).
        storage: Storage with the buckets.
        known_frontiers: The oldest hour of each event type that is not closed.
        on_storage: Hours that have a bucket folder, by event type. List the folders before you read
            `known_frontiers`.

    Yields:
        One finding per inconsistency; nothing if all buckets match.
    """
    frontier = {f.event_type: f for f in known_frontiers}
    for f in known_frontiers:
        yield from filter(
            None,
            map_concurrently(
                lambda closed: _marker_problem(database, storage, *closed),
                _closed_buckets(database, f),
            ),
        )
    for event_type, hours in on_storage.items():
        own = frontier.get(event_type)
        known = _backfilled_hours(database, own) if own else set[Hour]()
        strange = [
            h
            for h in hours
            if own is None
            or not (h in known or own.first_hour <= h)
            or h >= first_unsealed_hour(own)
        ]
        yield from filter(
            None, (_marker_problem(database, storage, event_type, hour, None) for hour in strange)
        )


def _backfilled_hours(database: Database, f: Frontier) -> set[Hour]:
    sealed = {at.hour for at in f.sealed_hours}
    if f.backfilled_hour is None:
        return sealed
    with contextlib.suppress(DamagedRow), database.reading() as connection:
        rows = bucket_rows(connection, f.event_type, to_s=f.backfilled_hour.start_s)
        sealed |= {Hour(row.hour_s, f.hour.length_s) for row in rows}
    return sealed


def _closed_buckets(database: Database, f: Frontier) -> Iterator[tuple[str, Hour, str]]:
    with (
        contextlib.suppress(DamagedRow),
        database.reading() as connection,
    ):  # the digest check reports it
        for row in bucket_rows(connection, f.event_type):
            yield f.event_type, Hour(row.hour_s, f.hour.length_s), row.manifest


def _marker_problem(
    database: Database, storage: Storage, event_type: str, hour: Hour, remembered: str | None
) -> LedgerFinding | None:
    kind, folder = LedgerFault.MARKER, storage.url(hour.bucket_path(event_type))
    try:
        known = None if remembered is None else Manifest.decode(remembered.encode())
    except ValueError:
        return LedgerFinding(
            LedgerFault.DIGEST,
            f"{event_type} {hour}",
            str(make_damaged_bucket_error(event_type, hour.start_s)),
        )
    try:
        found = find_closed_manifest(storage, event_type, hour)
        if found is not None and found == known:
            return None
        if found is None:
            detail = (
                f"closed, but {folder} has no marker"
                if known
                else f"{folder} exists without a marker"
            )
        elif known is not None:
            detail = "its marker differs from the ledger's manifest"
        else:
            ledger, commit = database.identity()
            kind, by = (
                LedgerFault.OLDER_COPY,
                f"closed by ledger {found.ledger}, commit {found.ledger_commit}",
            )
            detail = f"{by}; this ledger ({ledger}, commit {commit}) does not contain it"
    except (BadMarker, BadTombstone, ContentLost) as error:
        detail = str(error)
    return LedgerFinding(kind, f"{event_type} {hour}", detail)


def check_files(database: Database, storage: Storage) -> Iterator[LedgerFinding]:
    """Check that all needed staged files exist, are intact, and have all rows of the ledger.

    A staged file contains events or audit records that were copied from Kafka. It is needed until
    all its events are in closed buckets, or until all its audit records have been compared with
    closed buckets.

    Args:
        database: The ledger (the ETL's state database).
        storage: Storage with the staged files.

    Yields:
        One finding per missing or damaged file; nothing if all needed files are intact.

    Raises:
        StorageError: Storage is unavailable.
    """
    files = tables.staged_files.c
    batches = defaultdict[str, dict[str, int]](dict)
    for path, batch, rows in database.fetch(
        select(files.path, files.batch, files.rows).where(
            files.id.in_(select_needed_groups(database, "file_id"))
        )
    ):
        batches[batch][path] = rows
    for problems in map_concurrently(
        lambda batch: [*_file_problems(storage, *batch)], batches.items()
    ):
        yield from problems


def _file_problems(
    storage: Storage, folder: str, files: Mapping[str, int]
) -> Iterator[LedgerFinding]:
    standing = {f"{folder}/{entry.name}" for entry in list_if_exists(storage, folder)}
    for path, wanted in sorted(files.items()):
        if path not in standing:
            yield LedgerFinding(
                LedgerFault.FILE, path, "missing; it is staged again when it is needed"
            )
            continue
        try:
            rows = read_note(storage, path).rows
        except Unreadable as error:
            if not isinstance(error.__cause__, NotFound):  # deleted by cleanup in the meantime
                yield LedgerFinding(
                    LedgerFault.FILE,
                    path,
                    f"damaged ({error.why}); it is staged again when it is needed",
                )
        else:
            # An override for a file that was lost, and came back, has removed rows from the ledger.
            if rows < wanted:
                yield LedgerFinding(
                    LedgerFault.FILE, path, f"{rows} rows, but the ledger states {wanted}"
                )


def check_positions(database: Database, central: CentralCluster) -> Iterator[LedgerFinding]:
    """Check that each staging position lies within the log of its topic.

    A staging position is the next offset of a partition to copy from Kafka to storage.

    Args:
        database: The ledger (the ETL's state database).
        central: The central Kafka cluster.

    Yields:
        One finding for each position that is outside its log, or whose topic was deleted or
        recreated; nothing if all positions are valid.

    Raises:
        Unavailable: The cluster does not respond.
    """
    # Digests are checked separately.
    positions = [
        from_columns(StagingPosition, row)
        for row in database.fetch(select(tables.positions)).mappings()
    ]
    infos = central.topics({p.topic for p in positions})
    alive = {}
    for p in positions:
        info = infos.get(p.topic)
        if info is not None and info.topic_id == p.topic_id:
            alive[p.topic_partition] = p.next_offset
        else:
            now = "the topic no longer exists" if info is None else f"its id is {info.topic_id} now"
            yield LedgerFinding(
                LedgerFault.POSITION, p.topic, f"staged from the topic with id {p.topic_id}; {now}"
            )
    starts, ends = central.starts([*alive]), central.ends([*alive], committed=False)
    for partition, staged in alive.items():
        start, end = starts[partition], ends[partition]
        if not start <= staged <= end:
            detail = f"staged to offset {staged}, but its log has offsets [{start}, {end})"
            yield LedgerFinding(LedgerFault.POSITION, str(partition), detail)
