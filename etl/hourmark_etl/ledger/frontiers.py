"""What the closer commits: freeze, unfreeze, seal, close.

Each is one transaction under the closer's lease, for many types.

    open ──freeze──► frozen ──seal──► sealed ──close──► open (the next hour)
      ▲                │                 ▲────────────────┘ (the next hour is sealed too)
      └────unfreeze────┘

A compare-and-set on (hour, state) guards each arrow, so a step that was already taken, or taken by
another, is refused.

A backlog's hours may be frozen together: the frontier's hour H and those after it up to `until`.
Rows of hours before H are listed for H, rows of a later hour for that hour, as if each had been
frozen alone with nothing staged in between. The proof seals the first of them, as many as it can,
and the others are unlisted in the same transaction. So a group listed at or after the frontier's
hour stands in no bucket yet: no column says how many hours are frozen.
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
from hourmark_etl.ledger.batches import position_of
from hourmark_etl.ledger.bucket_rows import put_buckets
from hourmark_etl.ledger.database import Database, Lease, rows_named
from hourmark_etl.ledger.digests import check, with_digest
from hourmark_etl.ledger.frontier_rows import offsets_of, settled_columns
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, begin_anew, put_gaps
from hourmark_etl.ledger.set_aside import list_set_aside
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
class WithSeals:
    """What is committed together with the seals of a round."""

    waived: Collection[
        ReportedSource
    ] = ()  # as the cut saw them: one that has reported since is not waived
    unaudited: Collection[Mapping[str, Any]] = ()  # rows of the table `unaudited`
    accepted: Collection[OffsetGap] = ()
    checks: Collection[EdgeCheck] = ()  # from where accepted gaps' topics are watched again


@dataclasses.dataclass(frozen=True)
class Closing:
    """A published hour. Hours of one type are closed in turn."""

    frontier: Frontier
    manifest: Manifest


def frontiers(database: Database, bucket_seconds: int) -> list[Frontier]:
    """All types' frontier hours, by name."""
    return [
        _frontier(row, bucket_seconds)
        for row in database.ask(select(_ROWS).order_by(_ROWS.c.type)).mappings()
    ]


def _frontier(row: Mapping[Any, Any], bucket_seconds: int) -> Frontier:
    try:
        check(_ROWS, row)
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
        settled_next=offsets_of(row["settled_next"], row["settled_further"]),
        seal=seals[0] if seals else None,
        alarm=tuple(json.loads(row["alarm"])) if row["alarm"] else (),
        shard=row["shard"],
        later_seals=seals[1:],
    )


def freeze(
    database: Database,
    lease: Lease,
    chosen: Collection[Frontier],
    topics: Mapping[str, Collection[str]],
    until: Mapping[str, Hour] | None = None,
) -> dict[str, tuple[StagingPosition, ...]]:
    """List every unlisted group of hour ≤ the frontier's for it; later ones of those hours are
    carried by later buckets.

    `until`: by type, the last hour of a backlog that is frozen with it. Returns, by type, how far
    its central topics (`topics`: type → names, one a site) were staged in that very transaction:
    whatever of the listed hours lies below is in these buckets or in an earlier one.
    """
    groups, last = tables.groups, until or {}
    with database.transaction(lease) as connection:
        _move_all(connection, HourState.OPEN, [(f, HourState.FROZEN, {}) for f in chosen])
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
                for f in chosen
            ],
        )
        return _positions_of(connection, {f.event_type: topics[f.event_type] for f in chosen})


def _positions_of(
    connection: Connection, topics: Mapping[str, Collection[str]]
) -> dict[str, tuple[StagingPosition, ...]]:
    by_topic: dict[str, list[StagingPosition]] = {}
    query = select(tables.positions).order_by(tables.positions.c.partition)
    for row in rows_named(
        connection,
        query,
        tables.positions.c.topic,
        sorted({name for of in topics.values() for name in of}),
    ):
        by_topic.setdefault(row["topic"], []).append(position_of(row))
    return {
        event_type: tuple(p for name in of for p in by_topic.get(name, ()))
        for event_type, of in topics.items()
    }


def unfreeze_all(
    database: Database, lease: Lease, alarms: Collection[tuple[Frontier, Sequence[str]]]
) -> None:
    """Take listings back; each alarm says what the proof missed, empty where a crash alone is the
    cause.
    """
    with database.transaction(lease) as connection:
        moved = [
            (f, HourState.OPEN, {"alarm": json.dumps(list(alarm)) if alarm else None})
            for f, alarm in alarms
        ]
        _move_all(connection, HourState.FROZEN, moved)
        _unlist(connection, {f.event_type: f.hour for f, _ in alarms})


def _unlist(connection: Connection, from_hour: Mapping[str, Hour]) -> None:
    """Groups that are listed for these hours or later ones: all of them stand in no bucket yet."""
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
    together: WithSeals = WithSeals(),  # it is frozen
) -> None:
    """Fix what the buckets hold and how they were proved; `chains`: by type, seals of its hours
    from the frontier's on, in turn.

    Hours that were frozen and are not sealed are unlisted.
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
        list_set_aside(connection, {f.event_type: f.hour.start_s for f in frozen})
        _waive(connection, together.waived)
        if together.unaudited:
            connection.execute(insert(tables.unaudited), [dict(row) for row in together.unaudited])
        put_gaps(connection, together.accepted)
        begin_anew(connection, together.checks)


def force_sealed(
    connection: Connection, f: Frontier, lost: Mapping[int, Sums], waived: tuple[str, ...]
) -> None:
    """Sealed hours among these (Unix seconds) lack rows that they were sealed with: they close as
    forced, and name it.

    Their unaudited rows are forgotten, as its rows may be among those: a promise that it would keep
    stays unmet.
    """
    hours = [(h.hour.start_s, h.seal) for h in f.sealed_hours if h.seal]
    if hit := [hour_s for hour_s, _ in hours if hour_s in lost]:
        seals = [_without(seal, lost.get(hour_s), waived) for hour_s, seal in hours]
        _move_all(
            connection, HourState.SEALED, [(f, HourState.SEALED, {"seal": _seals_json(seals)})]
        )
        unaudited = tables.unaudited.c
        connection.execute(
            delete(tables.unaudited).where(unaudited.type == f.event_type, unaudited.hour.in_(hit))
        )


def leave_out(
    database: Database, lease: Lease, f: Frontier, waived: str, *, gives_up: bool
) -> None:
    """The sealed frontier hour leaves out rows that cannot be written: it closes as forced.

    `gives_up`: see `SealedHour`.

    Its unaudited rows are forgotten, as those rows may be among them: a promise that they would
    keep stays unmet.
    """
    assert f.seal is not None
    seal = dataclasses.replace(
        f.seal,
        grade=Grade.FORCED.value,
        waived=(waived, *f.seal.waived),
        leaves_out=True,
        gives_up=gives_up,
        lacks=_with_others(f.seal),
    )
    with database.transaction(lease) as connection:
        _move_all(
            connection,
            HourState.SEALED,
            [(f, HourState.SEALED, {"seal": _seals_json((seal, *f.later_seals))})],
        )
        _forget_unaudited(connection, f.event_type, f.hour.start_s)


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
    """Return what the bucket lacks if rows that it was sealed with are given up: of which ranges
    they are, nothing tells.
    """
    return (seal.lacks or IncompleteRanges()) | IncompleteRanges(more=True)


def _waive(connection: Connection, reporters: Collection[ReportedSource]) -> None:
    """Until they report again: rows are replaced then, so one that has reported since is left
    alone.
    """
    table, report = (
        tables.reporters,
        ("host_id", "source", "incarnation", "sequence", "received_at_ms"),
    )
    if reporters:
        same = [table.c[name] == bindparam(f"of_{name}") for name in report]
        of = [{f"of_{name}": getattr(r, name) for name in report} for r in reporters]
        connection.execute(update(table).where(*same).values(waived=True), of)


def first_unsealed(frontier: Frontier) -> Hour:
    """The first hour of which no bucket can have been published by this ledger."""
    return later_hour(frontier.hour, 0 if frontier.seal is None else 1 + len(frontier.later_seals))


def close_all(database: Database, lease: Lease, closings: Sequence[Closing]) -> None:
    """Remember published buckets and go on, each type to its next hour.

    What a marker says stands, whoever published it.

    Unaudited rows of an hour that left out rows are forgotten, as `leave_out` says.

    Of one type there may be several, in turn; then the frontier passes them all. An override for a
    closed hour is done, and the conflicts that held it are named by its manifest, or an earlier
    one.
    """
    last: dict[str, Closing] = {}
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
        **settled_columns(closed.seal.audit_next),
    }


def _seals_json(seals: Iterable[Seal]) -> str:
    return _SEALS.dump_json(tuple(seals)).decode()


def closed_types(database: Database) -> set[str]:
    """Types of which this ledger has closed a bucket."""
    frontiers, buckets = (
        tables.frontiers,
        tables.buckets,
    )  # the newest bucket of a type is not packed
    there = select(buckets.c.hour).where(buckets.c.type == frontiers.c.type).exists()
    return set(database.ask(select(frontiers.c.type).where(there)).scalars())


def unlisted_bytes(database: Database) -> dict[tuple[str, int], int]:
    """Bytes of datums by type and hour (start, Unix seconds) that no freeze has listed."""
    table = tables.groups
    query = (
        select(table.c.type, table.c.hour, func.sum(table.c.bytes))
        .where(table.c.listed_hour.is_(None))
        .group_by(table.c.type, table.c.hour)
    )
    return {(event_type, hour_s): int(size) for event_type, hour_s, size in database.ask(query)}


def _move_all(
    connection: Connection,
    before: HourState,
    moved: Sequence[tuple[Frontier, HourState, Mapping[str, Any]]],
) -> None:
    """Step many frontiers, each to a state, with these columns; StaleDriver, and nothing changed,
    if one is not where it is thought to be.

    The transactions of one ledger are serial, so what is read here stays so until the end of this
    one.
    """
    names = [f.event_type for f, *_ in moved]
    found = {row["type"]: row for row in rows_named(connection, select(_ROWS), _ROWS.c.type, names)}
    rows = []
    for f, after, values in moved:
        row = found.get(f.event_type)
        if row is None or (row["hour"], row["state"]) != (f.hour.start_s, before.value):
            raise StaleDriver(
                f"type {f.event_type}, hour {f.hour}: the ledger is not {before.value} there, "
                "so another closer has "
                "moved it; this one stops and changes nothing"
            )
        check(_ROWS, row, event_type=f.event_type)
        rows.append(
            with_digest(_ROWS, {**row, "state": after.value, **values}) | {"of_type": f.event_type}
        )
    if rows:
        connection.execute(update(_ROWS).where(_ROWS.c.type == bindparam("of_type")), rows)
