"""Ledgers with many closed buckets, made without closing; and how much of a ledger a query reads."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event, insert, make_url, text
from tests.support.ledger_queries import rewrite
from tests.support.records import evidence, manifest
from tests.support.waiting import wait_for

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import insert_closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import insert_frontier

FIRST = Hour.parse("2026-01-05T00")  # long ended


def hour_after(count: int) -> Hour:
    """The hour that many after the first one."""
    return Hour(FIRST.start_s + count * 3600)


def closed_manifest(event_type: str, hour: Hour, grade: Grade = Grade.PROVED) -> Manifest:
    """Of a bucket with five events; one that is not proved waives a source."""
    waived = [] if grade is Grade.PROVED else ["source app of tailer web had not caught up"]
    return manifest(
        hour,
        type=event_type,
        grade=grade,
        events=5,
        evidence=evidence(waived=waived),
        closed_at_ms=hour.end_ms + 36_000,
    )


def write_config(folder: Path, ledger_url: str) -> Path:
    """A configuration file with this ledger, and a root in the folder."""
    file = folder / "hourmark.toml"
    file.write_text(f'[storage]\nroot = "file://{folder}/root"\n[etl]\nledger = "{ledger_url}"\n')
    return file


def add_type(database: Database, event_type: str, grades: Sequence[Grade] = ()) -> None:
    """A type whose hours from the first on are closed with these grades; the next one is open."""
    with database.transaction() as connection:
        own = (event_type, FIRST.start_s, "default", ["app"], hour_after(len(grades)).start_s)
        connection.execute(insert_frontier(*own))
        insert_closed_buckets(
            connection,
            [
                (hour_after(n), closed_manifest(event_type, hour_after(n), grade))
                for n, grade in enumerate(grades)
            ],
        )


def close_next(database: Database, event_type: str, hour: Hour, grade: Grade) -> None:
    """What remains in the ledger of a bucket that closed: its row, and the next frontier."""
    with database.transaction() as connection:
        insert_closed_buckets(connection, [(hour, closed_manifest(event_type, hour, grade))])
    rewrite(
        database, tables.frontiers, tables.frontiers.c.type == event_type, hour=hour.next().start_s
    )


def add_many(database: Database, types: int, hours: int) -> None:
    """Types `t00`, `t01` and so on, with that many closed hours each; all manifests are equal."""
    marker = closed_manifest("t00", FIRST).encode().decode()
    with database.transaction() as connection:
        for n in range(types):
            own = (f"t{n:02}", FIRST.start_s, "default", ["app"], hour_after(hours).start_s)
            connection.execute(insert_frontier(*own))
        rows: list[Mapping[str, Any]] = [
            {
                "type": f"t{n:02}",
                "hour": hour_after(k).start_s,
                "grade": "proved",
                "manifest": marker,
                "closed_at_ms": hour_after(k).end_ms,
            }
            for n in range(types)
            for k in range(hours)
        ]
        if rows:
            connection.execute(insert(tables.buckets), rows)
        if connection.dialect.name == "postgresql":  # as autovacuum does after so many rows
            connection.execute(text("ANALYZE buckets"))


@dataclasses.dataclass
class Work:
    """What queries cost: rows read by PostgreSQL, or instructions of SQLite's virtual machine."""

    units: int = 0


@contextlib.contextmanager
def measured(url: str) -> Iterator[Work]:
    """Count the work of all connections that are opened and closed within the block."""
    work = Work()
    if make_url(url).get_backend_name() == "sqlite":
        with _counting_instructions(work):
            yield work
        return
    before = _rows_read(url)
    yield work
    work.units = _rows_read(url) - before


@contextlib.contextmanager
def _counting_instructions(work: Work) -> Iterator[None]:
    def count() -> int:
        work.units += 1
        return 0

    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.set_progress_handler(count, 1)

    event.listen(Engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", connected)


def _rows_read(url: str) -> int:
    """By sequential scans and by indexes, as the statistics have it once other sessions ended."""
    query = (
        "SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)"
        " + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes)"
    )
    others = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )

    def number(statement: str) -> int:
        with psycopg.connect(url) as connection:
            row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])

    wait_for(lambda: number(others) == 0, "all other sessions ended")
    return number(query)
