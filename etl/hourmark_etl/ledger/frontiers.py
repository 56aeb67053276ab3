"""Commits of the closer: freeze, unfreeze, seal and close.

Each is one transaction under the closer's lease, for many types.

    open ──freeze──► frozen ──seal──► sealed ──close──► open (the next hour)
      ▲                │                 ▲────────────────┘ (if the next hour is sealed too)
      └────unfreeze────┘

Each transition is a compare-and-set on (hour, state), so a transition that was already made fails.

Hours of a backlog may be frozen together: the frontier's hour H and hours that follow it. Rows of
hours before H are listed for H, and rows of a later hour for the first frozen hour that is not
before it, as if each hour had been frozen alone. The proof seals as many of these hours as it can,
from the first on; the same transaction unlists the others. A group listed at or after the
frontier's hour is therefore in no bucket yet, and no column needs to hold the number of frozen
hours.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, case, delete, func, insert, select, update

from hourmark.records.hours import Hour, group_consecutive
from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.errors import DamagedRow, StaleDriver
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import decode_position
from hourmark_etl.ledger.bucket_rows import insert_closed_buckets
from hourmark_etl.ledger.database import Database, Lease, select_by_names
from hourmark_etl.ledger.digests import check_digest, with_digest
from hourmark_etl.ledger.frontier_rows import (
    decode_audit_offsets,
    decode_seals,
    encode_seals,
    encode_settled_offsets,
)
from hourmark_etl.ledger.partitions.offset_gaps import (
    EdgeCheck,
    OffsetGap,
    put_gaps,
    replace_topic_checks,
)
from hourmark_etl.ledger.staged.set_aside import assign_set_aside_to_buckets
from hourmark_etl.model import (
    NO_AUDIT_OFFSETS,
    EventTotals,
    Frontier,
    HourState,
    IncompleteRanges,
    ReportedSource,
    Seal,
    StagingPosition,
)

_ROWS: Final = tables.frontiers


@dataclasses.dataclass(frozen=True)
class SealEffects:
    """Additional ledger changes that are committed together with the seals of several buckets.

    The ledger is the state database of the ETL. A seal fixes the content of a bucket before the
    bucket is written.

    Attributes:
        waived: Latest known reports of the sources that later buckets no longer wait for. If a
            source has sent another report in the meantime, buckets continue to wait for it.
        unaudited: Rows to insert into the table `unaudited`, one for each file of events that no
            audit record describes yet.
        accepted: Offset gaps (missing records) that operators' overrides accept.
        checks: Checks for lost records on edge partitions, which replace all stored checks of their
            topics.
    """

    waived: Collection[
        ReportedSource
    ] = ()  # as the cut saw them: one that has reported since is not waived
    unaudited: Collection[Mapping[str, Any]] = ()  # rows of the table `unaudited`
    accepted: Collection[OffsetGap] = ()
    checks: Collection[EdgeCheck] = ()  # from where accepted gaps' topics are watched again


@dataclasses.dataclass(frozen=True)
class PublishedHour:
    """A bucket that was published on storage and has yet to be recorded as closed in the ledger.

    The ledger is the state database of the ETL.

    Attributes:
        frontier: The type's oldest open hour, which is sealed: its content is fixed.
        manifest: Manifest of the published bucket.
    """

    frontier: Frontier
    manifest: Manifest


def frontiers(
    database: Database, bucket_seconds: int, types: Collection[str] | None = None
) -> list[Frontier]:
    """Return the frontier of each event type: its oldest hour that is not closed, with its state.

    The frontier of a damaged row has the state `DAMAGED`, hour 0, and the error in `alarm`.

    Args:
        database: The ledger (the ETL's state database).
        bucket_seconds: Length of a bucket in seconds.
        types: Names of the event types to read; None reads all.

    Returns:
        The frontiers, sorted by event type. Types that the ledger does not have are omitted.
    """
    names = None if types is None else sorted(set(types))
    with database.reading() as connection:
        rows = select_by_names(
            connection, select(_ROWS).order_by(_ROWS.c.type), _ROWS.c.type, names
        )
        return [_frontier(row, bucket_seconds) for row in rows]


def read_type_names(database: Database, limit: int | None = None) -> list[str]:
    """Return the names of the event types in the ledger.

    Args:
        database: The ledger (the ETL's state database).
        limit: Maximum number of names to read; None reads all.

    Returns:
        Names in alphabetical order; empty if no types have been declared yet.
    """
    return list(database.fetch(select(_ROWS.c.type).order_by(_ROWS.c.type).limit(limit)).scalars())


def _frontier(row: Mapping[Any, Any], bucket_seconds: int) -> Frontier:
    try:
        check_digest(_ROWS, row)
    except DamagedRow as damaged:
        nowhere = Hour(0, bucket_seconds)
        return Frontier(
            event_type=str(row["type"]),
            first_hour=nowhere,
            hour=nowhere,
            state=HourState.DAMAGED,
            sources=frozenset(),
            settled_next=NO_AUDIT_OFFSETS,
            seal=None,
            alarm=(str(damaged),),
        )
    seals = decode_seals(row["seal"]) if row["seal"] else ()
    return Frontier(
        event_type=row["type"],
        first_hour=Hour(row["first_hour"], bucket_seconds),
        hour=Hour(row["hour"], bucket_seconds),
        state=HourState(row["state"]),
        sources=frozenset(json.loads(row["sources"])),
        settled_next=decode_audit_offsets(row["settled_next"], row["settled_further"]),
        seal=seals[0] if seals else None,
        alarm=tuple(json.loads(row["alarm"])) if row["alarm"] else (),
        shard=row["shard"],
        later_seals=seals[1:],
        backfilled_hour=None
        if row["backfilled_hour"] is None
        else Hour(row["backfilled_hour"], bucket_seconds),
    )


def move_open_frontiers(
    database: Database, lease: Lease, moved: Collection[tuple[Frontier, Hour]]
) -> None:
    """Change the next hour to close of event types that are back-filled.

    A back-fill creates buckets for hours before the first hour of a type, and skips hours without
    events. `closing.backfill.advance_backfill` determines the new hours.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        moved: Pairs of a frontier (the record of a type's next hour to close) and the new hour. The
            new hour must not be after `first_hour` of the frontier. It may be before the current
            one only if no hour of the type is closed.

    Raises:
        StaleDriver: Another process has taken over the lease, or a frontier has changed or its
            hour is being closed. No frontier was changed.
    """
    for f, hour in moved:
        assert hour <= f.first_hour, "hours from the first one close in order"
        assert hour >= f.hour or f.previous_hour is None, "a closed hour is not reopened"
    with database.transaction(lease) as connection:
        rows = [(f, HourState.OPEN, {"hour": hour.start_s}) for f, hour in moved]
        _move_all(connection, HourState.OPEN, rows)


def freeze(
    database: Database,
    lease: Lease,
    open_frontiers: Collection[Frontier],
    topics: Mapping[str, Collection[str]],
    hours: Mapping[str, Sequence[Hour]] | None = None,
) -> dict[str, tuple[StagingPosition, ...]]:
    """Assign staged rows to the buckets of open hours, before a check of these buckets.

    Staged rows are events that were copied from Kafka to files on storage. Rows of other, earlier
    hours (late events) are assigned to the next of these buckets of their type. Rows that are
    staged afterwards belong to later buckets. `unfreeze_hours` undoes a freeze; `seal` makes it
    permanent.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        open_frontiers: The oldest open hour of each type to freeze.
        topics: Topic names on the central cluster by event type, one per site.
        hours: By event type, the hours to freeze in ascending order, beginning with the oldest open
            one. By default, only the oldest open hour.

    Returns:
        The staging positions (next offset to stage) of each type's topics at this moment. All
        records below them that belong to these hours or earlier ones are now assigned.

    Raises:
        StaleDriver: Another process has taken over the lease, or a type's oldest open hour has
            changed or is not open; nothing was changed.
    """
    groups, chains = tables.groups, hours or {}
    with database.transaction(lease) as connection:
        _move_all(connection, HourState.OPEN, [(f, HourState.FROZEN, {}) for f in open_frontiers])
        connection.execute(
            update(groups)
            .where(
                groups.c.type == bindparam("of_type"),
                groups.c.listed_hour.is_(None),
                groups.c.hour > bindparam("before"),
                groups.c.hour <= bindparam("last"),
            )
            .values(
                listed_hour=case(
                    (groups.c.hour < bindparam("first"), bindparam("first")), else_=groups.c.hour
                )
            ),
            [
                {"of_type": f.event_type, "before": before_s, "first": first_s, "last": last_s}
                for f in open_frontiers
                for before_s, first_s, last_s in _runs(chains.get(f.event_type, (f.hour,)))
            ],
        )
        return _positions_of(
            connection, {f.event_type: topics[f.event_type] for f in open_frontiers}
        )


def _runs(hours: Sequence[Hour]) -> Iterator[tuple[int, int, int]]:
    # Yield for each run of hours without a gap the last hour of the run before it (-1 if there is
    # none), its first and its last hour, in Unix seconds.
    before_s = -1
    for first, last in group_consecutive(hours):
        yield before_s, first.start_s, last.start_s
        before_s = last.start_s


def _positions_of(
    connection: Connection, topics: Mapping[str, Collection[str]]
) -> dict[str, tuple[StagingPosition, ...]]:
    by_topic: dict[str, list[StagingPosition]] = {}
    query = select(tables.positions).order_by(tables.positions.c.partition)
    for row in select_by_names(
        connection,
        query,
        tables.positions.c.topic,
        sorted({name for of in topics.values() for name in of}),
    ):
        by_topic.setdefault(row["topic"], []).append(decode_position(row))
    return {
        event_type: tuple(p for name in of for p in by_topic.get(name, ()))
        for event_type, of in topics.items()
    }


def unfreeze_hours(
    database: Database, lease: Lease, alarms: Collection[tuple[Frontier, Sequence[str]]]
) -> None:
    """Reopen frozen hours whose completeness could not be proved.

    Staged rows are events that were copied from Kafka. The staged rows of these hours are no longer
    assigned to a bucket, so further rows can arrive.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        alarms: Pairs of a frozen hour and the readable findings of the failed proof, which are
            stored as the hour's alarm. An empty sequence clears the alarm, for example when a
            freeze is undone after a crash.

    Raises:
        StaleDriver: Another process has taken over the lease, or a type's oldest open hour has
            changed or is not frozen; nothing was changed.
    """
    with database.transaction(lease) as connection:
        moved = [
            (f, HourState.OPEN, {"alarm": json.dumps(list(alarm)) if alarm else None})
            for f, alarm in alarms
        ]
        _move_all(connection, HourState.FROZEN, moved)
        _unlist(connection, {f.event_type: f.hour for f, _ in alarms})


def _unlist(connection: Connection, from_hour: Mapping[str, Hour]) -> None:
    # Groups listed for these hours or later ones are in no bucket yet.
    groups = tables.groups
    connection.execute(
        update(groups)
        .where(groups.c.type == bindparam("of_type"), groups.c.listed_hour >= bindparam("start"))
        .values(listed_hour=None),
        [{"of_type": event_type, "start": hour.start_s} for event_type, hour in from_hour.items()],
    )


def seal(
    database: Database,
    lease: Lease,
    chains: Mapping[str, Sequence[Seal]],
    frozen: Collection[Frontier],
    effects: SealEffects = SealEffects(),  # it is frozen
) -> None:
    """Seal frozen hours: fix the content of their buckets and store the evidence of completeness.

    Rows of hours that were frozen but have no seal in `chains` are no longer assigned to a bucket.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        chains: By event type, the seals of hours that follow each other, beginning with the oldest
            open hour.
        frozen: The oldest open hour of each type, frozen.
        effects: Further changes to commit in the same transaction.

    Raises:
        StaleDriver: Another process has taken over the lease, or a type's oldest open hour has
            changed or is not frozen; nothing was changed.
    """
    with database.transaction(lease) as connection:
        moved = [
            (f, HourState.SEALED, {"seal": encode_seals(chains[f.event_type]), "alarm": None})
            for f in frozen
        ]
        _move_all(connection, HourState.FROZEN, moved)
        _unlist(
            connection,
            {
                f.event_type: first_unsealed_hour(
                    dataclasses.replace(f, seal=seals[0], later_seals=tuple(seals[1:]))
                )
                for f in frozen
                for seals in (chains[f.event_type],)
            },
        )
        assign_set_aside_to_buckets(connection, {f.event_type: f.hour.start_s for f in frozen})
        _waive(connection, effects.waived)
        if effects.unaudited:
            connection.execute(insert(tables.unaudited), [dict(row) for row in effects.unaudited])
        put_gaps(connection, effects.accepted)
        replace_topic_checks(connection, effects.checks)


def force_sealed_hours(
    connection: Connection,
    frontier: Frontier,
    lost: Mapping[int, EventTotals],
    waived: tuple[str, ...],
) -> None:
    """Remove lost rows from the sealed hours of a type, and set the hours' grade to `forced`.

    The content of a sealed hour's bucket is fixed. The grade `forced` states that a bucket was
    closed by an operator's override although data is missing. References to files of unaudited
    events (events without an audit record) of the affected hours are deleted from the ledger,
    because these files may contain lost rows.

    Args:
        connection: The caller's transaction.
        frontier: The oldest open hour of the type, which is sealed.
        lost: Totals of the lost rows by hour in Unix seconds. Hours without an entry are left
            unchanged.
        waived: Readable descriptions of the loss, which are added to the manifests.

    Raises:
        StaleDriver: The type's oldest open hour has changed or is not sealed.
    """
    hours = [(h.hour.start_s, h.seal) for h in frontier.sealed_hours if h.seal]
    if hit := [hour_s for hour_s, _ in hours if hour_s in lost]:
        seals = [_without(seal, lost.get(hour_s), waived) for hour_s, seal in hours]
        _move_all(
            connection,
            HourState.SEALED,
            [(frontier, HourState.SEALED, {"seal": encode_seals(seals)})],
        )
        unaudited = tables.unaudited.c
        connection.execute(
            delete(tables.unaudited).where(
                unaudited.type == frontier.event_type, unaudited.hour.in_(hit)
            )
        )


def omit_unwritable_rows(
    database: Database, lease: Lease, frontier: Frontier, override_text: str, *, gives_up: bool
) -> None:
    """Allow a sealed hour to be closed without the rows that cannot be written.

    A sealed hour is not closed yet, but the content of its bucket is fixed. Its grade is changed to
    `forced`: closed by an operator's override although data is missing. The reference to the hour's
    file of unaudited events (events without an audit record) is deleted from the ledger, because
    the file may contain omitted rows.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        frontier: The oldest open hour of the type, which is sealed.
        override_text: Readable text about the override, which is added to the manifest.
        gives_up: Whether checks that require an unreadable closed bucket may also be skipped.

    Raises:
        StaleDriver: Another process has taken over the lease, or the type's oldest open hour has
            changed or is not sealed; nothing was changed.
    """
    assert frontier.seal is not None
    seal = dataclasses.replace(
        frontier.seal,
        grade=Grade.FORCED.value,
        waived=(override_text, *frontier.seal.waived),
        leaves_out=True,
        gives_up=gives_up,
        lacks=_with_others(frontier.seal),
    )
    with database.transaction(lease) as connection:
        _move_all(
            connection,
            HourState.SEALED,
            [(frontier, HourState.SEALED, {"seal": encode_seals((seal, *frontier.later_seals))})],
        )
        _forget_unaudited(connection, frontier.event_type, frontier.hour.start_s)


def _forget_unaudited(connection: Connection, event_type: str, hour_s: int) -> None:
    own = tables.unaudited.c
    connection.execute(delete(tables.unaudited).where(own.type == event_type, own.hour == hour_s))


def _without(seal: Seal, lost: EventTotals | None, waived: tuple[str, ...]) -> Seal:
    if lost is None:
        return seal
    return dataclasses.replace(
        seal,
        grade=Grade.FORCED.value,
        waived=(*waived, *seal.waived),
        listed=seal.listed - lost,
        lacks=_with_others(seal),
    )


def _with_others(seal: Seal) -> IncompleteRanges:
    # Which ranges the given-up rows belong to is unknown.
    return (seal.lacks or IncompleteRanges()) | IncompleteRanges(more=True)


def _waive(connection: Connection, reporters: Collection[ReportedSource]) -> None:
    # Reports replace rows, so a host that has reported since is not waived.
    table, report = (
        tables.reporters,
        ("host_id", "source", "incarnation", "sequence", "received_at_ms"),
    )
    if reporters:
        same = [table.c[name] == bindparam(f"of_{name}") for name in report]
        of = [{f"of_{name}": getattr(r, name) for name in report} for r in reporters]
        connection.execute(update(table).where(*same).values(waived=True), of)


def first_unsealed_hour(frontier: Frontier) -> Hour:
    """Return the first hour of an event type whose content is not fixed (sealed) yet.

    Buckets are published only after they are sealed, so no bucket of the returned hour or of a
    later one exists on storage.

    Args:
        frontier: The oldest open hour of the type, with its seals.
    """
    sealed = frontier.sealed_hours
    return sealed[-1].hour.next() if sealed else frontier.hour


def record_closed_hours(
    database: Database, lease: Lease, closings: Sequence[PublishedHour]
) -> None:
    """Record published buckets as closed, and advance the oldest open hour of each type past them.

    The overrides and conflicts of the closed hours are deleted from the ledger. For hours that were
    closed without some of their rows, the references to files of unaudited events (events without
    an audit record) are deleted too.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the closer, the process that closes hours.
        closings: Published buckets with the manifests to store, in ascending order of hours for
            each type. A bucket may have been published by another process.

    Raises:
        StaleDriver: Another process has taken over the lease, or a type's oldest open hour has
            changed or is not sealed; nothing was changed.
    """
    last: dict[str, PublishedHour] = {}
    first: dict[str, Frontier] = {}
    for c in closings:
        f = c.frontier
        assert f.seal is not None
        assert (c.manifest.type, c.manifest.hour) == (f.event_type, str(f.hour))
        assert f.event_type not in last or (
            f.hour == last[f.event_type].frontier.next_frontier.hour
        ), "hours close in order"
        first.setdefault(f.event_type, f)
        last[f.event_type] = c
    with database.transaction(lease) as connection:
        _move_all(
            connection,
            HourState.SEALED,
            [(first[t], *_closed_values(c.frontier)) for t, c in last.items()],
        )
        insert_closed_buckets(connection, [(c.frontier.hour, c.manifest) for c in closings])
        for c in closings:
            if c.manifest.left_out:
                _forget_unaudited(connection, c.frontier.event_type, c.frontier.hour.start_s)
        closed = [{"of_type": t, "closed": c.frontier.hour.start_s} for t, c in last.items()]
        for table in (tables.overrides, tables.conflicts):
            done = delete(table).where(
                table.c.type == bindparam("of_type"), table.c.hour <= bindparam("closed")
            )
            connection.execute(done, closed)


def _closed_values(closed: Frontier) -> tuple[HourState, dict[str, Any]]:
    assert closed.seal is not None
    after, left = closed.next_frontier, closed.later_seals
    return HourState.SEALED if left else HourState.OPEN, {
        "hour": after.hour.start_s,
        "backfilled_hour": after.backfilled_hour.start_s if after.backfilled_hour else None,
        "seal": encode_seals(left) if left else None,
        **encode_settled_offsets(closed.seal.audit_next),
    }


def read_closed_types(database: Database) -> set[str]:
    """Return the names of the event types that have at least one closed bucket.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Names of event types; empty if nothing was closed yet.
    """
    frontiers, buckets = (
        tables.frontiers,
        tables.buckets,
    )  # the newest bucket of a type is not packed
    there = select(buckets.c.hour).where(buckets.c.type == frontiers.c.type).exists()
    return set(database.fetch(select(frontiers.c.type).where(there)).scalars())


def sum_unassigned_bytes(database: Database) -> dict[tuple[str, int], int]:
    """Return the size of all staged events that are not assigned to a bucket yet.

    Staged events were copied from Kafka to files on storage. They are assigned to a bucket before
    it is checked for completeness.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        A mapping from pairs of event type and hour in Unix seconds to sizes in bytes; empty if all
        events are assigned.
    """
    table = tables.groups
    query = (
        select(table.c.type, table.c.hour, func.sum(table.c.bytes))
        .where(table.c.listed_hour.is_(None))
        .group_by(table.c.type, table.c.hour)
    )
    return {(event_type, hour_s): int(size) for event_type, hour_s, size in database.fetch(query)}


def _move_all(
    connection: Connection,
    before: HourState,
    moved: Sequence[tuple[Frontier, HourState, Mapping[str, Any]]],
) -> None:
    # Transactions of one ledger are serialized, so what is read here is valid until the commit.
    names = [f.event_type for f, *_ in moved]
    found = {
        row["type"]: row for row in select_by_names(connection, select(_ROWS), _ROWS.c.type, names)
    }
    rows = []
    for f, after, values in moved:
        row = found.get(f.event_type)
        if row is None or (row["hour"], row["state"]) != (f.hour.start_s, before.value):
            raise StaleDriver(
                f"type {f.event_type}, hour {f.hour}: the state in the ledger is no longer "
                f"{before.value}, so another closer has changed it; this closer stops and "
                "changes nothing"
            )
        check_digest(_ROWS, row, event_type=f.event_type)
        rows.append(
            with_digest(_ROWS, {**row, "state": after.value, **values}) | {"of_type": f.event_type}
        )
    if rows:
        connection.execute(update(_ROWS).where(_ROWS.c.type == bindparam("of_type")), rows)
