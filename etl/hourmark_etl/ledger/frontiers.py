"""Commits of the closer: freeze, unfreeze, seal and close.

Each is one transaction under the closer's lease, for many types.

    open ──freeze──► frozen ──seal──► sealed ──close──► open (the next hour)
      ▲                │                 ▲────────────────┘ (if the next hour is sealed too)
      └────unfreeze────┘

Each transition is a compare-and-set on (hour, state), so a transition that was already made fails.

Hours of a backlog may be frozen together: the frontier's hour H and later hours up to `until`. Rows
of hours before H are listed for H, and rows of a later hour for that hour, as if each hour had been
frozen alone. The proof seals as many of these hours as it can, from the first on; the same
transaction unlists the others. A group listed at or after the frontier's hour is therefore in no
bucket yet, and no column needs to hold the number of frozen hours.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam, case, delete, func, insert, select, update

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.errors import DamagedRow, StaleDriver
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import decode_position
from hourmark_etl.ledger.bucket_rows import put_buckets
from hourmark_etl.ledger.database import Database, Lease, select_by_names
from hourmark_etl.ledger.digests import check_digest, with_digest
from hourmark_etl.ledger.frontier_rows import decode_offsets, encode_settled_offsets
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, put_gaps, replace_topic_checks
from hourmark_etl.ledger.set_aside import assign_set_aside_to_buckets
from hourmark_etl.model import (
    NO_AUDIT_OFFSETS,
    Frontier,
    HourState,
    IncompleteRanges,
    ReportedSource,
    Seal,
    StagingPosition,
    Sums,
    later_hour,
)

_ROWS: Final = tables.frontiers
_SEALS: Final = TypeAdapter(tuple[Seal, ...])


@dataclasses.dataclass(frozen=True)
class SealEffects:
    """Changes that are committed together with the seals of a round.

    Attributes:
        waived: Reporters to waive, as the cut read them; one that has reported since is not waived.
        unaudited: Rows of the table `unaudited`.
        accepted: Offset gaps that overrides accept.
        checks: Edge checks that replace those of the accepted gaps' topics.
    """

    waived: Collection[
        ReportedSource
    ] = ()  # as the cut saw them: one that has reported since is not waived
    unaudited: Collection[Mapping[str, Any]] = ()  # rows of the table `unaudited`
    accepted: Collection[OffsetGap] = ()
    checks: Collection[EdgeCheck] = ()  # from where accepted gaps' topics are watched again


@dataclasses.dataclass(frozen=True)
class PublishedHour:
    """A published hour to be closed in the ledger.

    Attributes:
        frontier: Sealed frontier of the hour.
        manifest: Manifest of the published bucket.
    """

    frontier: Frontier
    manifest: Manifest


def frontiers(database: Database, bucket_seconds: int) -> list[Frontier]:
    """Return the frontier of every event type, sorted by type name.

    A frontier is the next hour of a type to close, with its state and seals. A damaged row is
    returned with the state DAMAGED and the error as its alarm.

    Args:
        database: The ledger.
        bucket_seconds: Length of a bucket in seconds.
    """
    return [
        _frontier(row, bucket_seconds)
        for row in database.fetch(select(_ROWS).order_by(_ROWS.c.type)).mappings()
    ]


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
    seals = _SEALS.validate_json(row["seal"]) if row["seal"] else ()
    return Frontier(
        event_type=row["type"],
        first_hour=Hour(row["first_hour"], bucket_seconds),
        hour=Hour(row["hour"], bucket_seconds),
        state=HourState(row["state"]),
        sources=frozenset(json.loads(row["sources"])),
        settled_next=decode_offsets(row["settled_next"], row["settled_further"]),
        seal=seals[0] if seals else None,
        alarm=tuple(json.loads(row["alarm"])) if row["alarm"] else (),
        shard=row["shard"],
        later_seals=seals[1:],
    )


def freeze(
    database: Database,
    lease: Lease,
    open_frontiers: Collection[Frontier],
    topics: Mapping[str, Collection[str]],
    last_hours: Mapping[str, Hour] | None = None,
) -> dict[str, tuple[StagingPosition, ...]]:
    """Freeze hours: assign all staged groups of these hours, and of earlier ones, to their buckets.

    Groups that are staged later belong to later buckets.

    Args:
        database: The ledger.
        lease: Lease of the closer.
        open_frontiers: Open frontiers, the next hours of their types, to freeze.
        topics: Central topics of each type, one per site.
        last_hours: Last hour of a backlog to freeze together, by type; the frontier's hour if missing.

    Returns:
        The positions of each type's topics in that transaction: all records of the listed hours
        below them are in these buckets or earlier ones.

    Raises:
        StaleDriver: Another process has taken over the lease, or a frontier is not open at its hour.
    """
    groups, last = tables.groups, last_hours or {}
    with database.transaction(lease) as connection:
        _move_all(connection, HourState.OPEN, [(f, HourState.FROZEN, {}) for f in open_frontiers])
        connection.execute(
            update(groups)
            .where(
                groups.c.type == bindparam("of_type"),
                groups.c.listed_hour.is_(None),
                groups.c.hour <= bindparam("last"),
            )
            .values(
                listed_hour=case(
                    (groups.c.hour < bindparam("first"), bindparam("first")), else_=groups.c.hour
                )
            ),
            [
                {
                    "of_type": f.event_type,
                    "first": f.hour.start_s,
                    "last": last.get(f.event_type, f.hour).start_s,
                }
                for f in open_frontiers
            ],
        )
        return _positions_of(
            connection, {f.event_type: topics[f.event_type] for f in open_frontiers}
        )


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


def unfreeze_all(
    database: Database, lease: Lease, alarms: Collection[tuple[Frontier, Sequence[str]]]
) -> None:
    """Reopen frozen hours and remove their listings.

    Args:
        database: The ledger.
        lease: Lease of the closer.
        alarms: Frontiers with the findings of the failed proof; empty after a crash.

    Raises:
        StaleDriver: Another process has taken over the lease, or a frontier is not frozen at its hour.
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
    """Seal frozen hours: fix what their buckets contain and how that was proved.

    Hours that were frozen but not sealed are unlisted.

    Args:
        database: The ledger.
        lease: Lease of the closer.
        chains: Seals of each type's consecutive hours, from the frontier's hour on.
        frozen: Frozen frontiers.
        effects: Further changes to commit with the seals.

    Raises:
        StaleDriver: Another process has taken over the lease, or a frontier is not frozen at its hour.
    """
    with database.transaction(lease) as connection:
        moved = [
            (f, HourState.SEALED, {"seal": _seals_json(chains[f.event_type]), "alarm": None})
            for f in frozen
        ]
        _move_all(connection, HourState.FROZEN, moved)
        _unlist(
            connection,
            {f.event_type: later_hour(f.hour, len(chains[f.event_type])) for f in frozen},
        )
        assign_set_aside_to_buckets(connection, {f.event_type: f.hour.start_s for f in frozen})
        _waive(connection, effects.waived)
        if effects.unaudited:
            connection.execute(insert(tables.unaudited), [dict(row) for row in effects.unaudited])
        put_gaps(connection, effects.accepted)
        replace_topic_checks(connection, effects.checks)


def force_sealed(
    connection: Connection, frontier: Frontier, lost: Mapping[int, Sums], waived: tuple[str, ...]
) -> None:
    """Change the seals of hours that lost rows, so that the hours close as `forced`.

    The unaudited rows of these hours are deleted from the ledger, because the lost rows may be
    among them; promises for them stay unmet.

    Args:
        connection: The caller's transaction.
        frontier: Sealed frontier of the type.
        lost: Sums of the lost rows by hour, Unix seconds; other hours are left unchanged.
        waived: Texts for the manifest.
    """
    hours = [(h.hour.start_s, h.seal) for h in frontier.sealed_hours if h.seal]
    if hit := [hour_s for hour_s, _ in hours if hour_s in lost]:
        seals = [_without(seal, lost.get(hour_s), waived) for hour_s, seal in hours]
        _move_all(
            connection,
            HourState.SEALED,
            [(frontier, HourState.SEALED, {"seal": _seals_json(seals)})],
        )
        unaudited = tables.unaudited.c
        connection.execute(
            delete(tables.unaudited).where(
                unaudited.type == frontier.event_type, unaudited.hour.in_(hit)
            )
        )


def leave_out_rows(
    database: Database, lease: Lease, frontier: Frontier, waived: str, *, gives_up: bool
) -> None:
    """Mark a sealed hour to close as `forced`, without rows that cannot be written.

    The hour's unaudited rows are deleted from the ledger, because the omitted rows may be among
    them; promises for them stay unmet.

    Args:
        database: The ledger.
        lease: Lease of the closer.
        frontier: Sealed frontier.
        waived: Text for the manifest.
        gives_up: Stored in the seal; see `SealedHour`.

    Raises:
        StaleDriver: Another process has taken over the lease, or the frontier is not sealed at its hour.
    """
    assert frontier.seal is not None
    seal = dataclasses.replace(
        frontier.seal,
        grade=Grade.FORCED.value,
        waived=(waived, *frontier.seal.waived),
        leaves_out=True,
        gives_up=gives_up,
        lacks=_with_others(frontier.seal),
    )
    with database.transaction(lease) as connection:
        _move_all(
            connection,
            HourState.SEALED,
            [(frontier, HourState.SEALED, {"seal": _seals_json((seal, *frontier.later_seals))})],
        )
        _forget_unaudited(connection, frontier.event_type, frontier.hour.start_s)


def _forget_unaudited(connection: Connection, event_type: str, hour_s: int) -> None:
    own = tables.unaudited.c
    connection.execute(delete(tables.unaudited).where(own.type == event_type, own.hour == hour_s))


def _without(seal: Seal, lost: Sums | None, waived: tuple[str, ...]) -> Seal:
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
    """Return the first hour of a type that is not sealed, so no bucket of it can be published.

    Args:
        frontier: The type's next hour to close, with its seals.
    """
    return later_hour(frontier.hour, 0 if frontier.seal is None else 1 + len(frontier.later_seals))


def close_all(database: Database, lease: Lease, closings: Sequence[PublishedHour]) -> None:
    """Record published buckets, and advance each type's frontier past them.

    The manifest on storage is authoritative, whichever process published it. Overrides and
    conflicts of the closed hours are deleted, and so are unaudited rows of hours that left out
    rows.

    Args:
        database: The ledger.
        lease: Lease of the closer.
        closings: Published hours; those of one type must be consecutive.

    Raises:
        StaleDriver: Another process has taken over the lease, or a frontier is not sealed at its hour.
    """
    last: dict[str, PublishedHour] = {}
    first: dict[str, Frontier] = {}
    for c in closings:
        f = c.frontier
        assert f.seal is not None
        assert (c.manifest.type, c.manifest.hour) == (f.event_type, str(f.hour))
        assert f.event_type not in last or f.hour == last[f.event_type].frontier.hour.next(), (
            "hours close in turn"
        )
        first.setdefault(f.event_type, f)
        last[f.event_type] = c
    with database.transaction(lease) as connection:
        _move_all(
            connection,
            HourState.SEALED,
            [(first[t], *_after_close(c.frontier)) for t, c in last.items()],
        )
        put_buckets(connection, [(c.frontier.hour, c.manifest) for c in closings])
        for c in closings:
            if c.manifest.left_out:
                _forget_unaudited(connection, c.frontier.event_type, c.frontier.hour.start_s)
        closed = [{"of_type": t, "closed": c.frontier.hour.start_s} for t, c in last.items()]
        for table in (tables.overrides, tables.conflicts):
            done = delete(table).where(
                table.c.type == bindparam("of_type"), table.c.hour <= bindparam("closed")
            )
            connection.execute(done, closed)


def _after_close(closed: Frontier) -> tuple[HourState, dict[str, Any]]:
    assert closed.seal is not None
    left = _seals_json(closed.later_seals) if closed.later_seals else None
    return HourState.SEALED if left else HourState.OPEN, {
        "hour": closed.hour.end_s,
        "seal": left,
        **encode_settled_offsets(closed.seal.audit_next),
    }


def _seals_json(seals: Iterable[Seal]) -> str:
    return _SEALS.dump_json(tuple(seals)).decode()


def closed_types(database: Database) -> set[str]:
    """Return the names of the event types that have at least one closed bucket."""
    frontiers, buckets = (
        tables.frontiers,
        tables.buckets,
    )  # the newest bucket of a type is not packed
    there = select(buckets.c.hour).where(buckets.c.type == frontiers.c.type).exists()
    return set(database.fetch(select(frontiers.c.type).where(there)).scalars())


def unlisted_bytes(database: Database) -> dict[tuple[str, int], int]:
    """Return the bytes of staged event data that is not assigned to a bucket yet.

    Returns:
        Bytes by (type, hour in Unix seconds).
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
                f"type {f.event_type}, hour {f.hour}: the ledger is not {before.value} there, "
                "so another closer has "
                "moved it; this one stops and changes nothing"
            )
        check_digest(_ROWS, row, event_type=f.event_type)
        rows.append(
            with_digest(_ROWS, {**row, "state": after.value, **values}) | {"of_type": f.event_type}
        )
    if rows:
        connection.execute(update(_ROWS).where(_ROWS.c.type == bindparam("of_type")), rows)
