"""CPU time of the queries that closing and operators send to a ledger with years of history.

    python -m bench.ledger_years --types 1000 --hours 8760 [--url postgresql://…]

Creates a ledger in which every hour of every type is closed, as closing and packing leave it: the
last days in rows, older ones packed. One hour in ten has late events of the previous hour.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sqlalchemy import insert, select, update
from tests.support.rules import put_rules

from hourmark.config.groups import EtlSettings, KafkaCluster, KafkaSettings
from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark.records.manifest import (
    BucketEvidence,
    BucketFile,
    BucketOffset,
    Grade,
    HourTotals,
    Manifest,
)
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import (
    DAY_S,
    KEPT_DAYS,
    BucketRow,
    encode_packed_day,
    insert_closed_buckets,
    make_late_hour_rows,
    pack_old_bucket_rows,
    put_late_hours,
)
from hourmark_etl.ledger.closed import closed_buckets, read_missing_ranges
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows, with_digest
from hourmark_etl.ledger.frontiers import frontiers, read_closed_types, sum_unassigned_bytes
from hourmark_etl.ledger.maintenance.overview import read_closed_manifest
from hourmark_etl.operators.buckets.listing import BucketSelection, list_buckets, summarize_buckets

_HOUR_S: Final = 3600


def _hex(number: int, digits: int) -> str:
    # Incompressible digits, like those of digests.
    return hashlib.blake2b(str(number).encode(), digest_size=digits // 2).hexdigest()


def manifest_of(event_type: str, hour: Hour, number: int, ledger: str) -> Manifest:
    """Return a manifest as closing writes it."""
    late = {str(hour.previous()): 7} if number % 10 == 0 and number else {}
    return Manifest(
        type=event_type,
        hour=str(hour),
        bucket_seconds=_HOUR_S,
        grade=Grade.PROVED,
        evidence=BucketEvidence(
            method="sums",
            cut_at_ms=hour.end_ms + 1000,
            audit_records=3,
            promised=100,
            audit_next={"0": 10**6 + number},
        ),
        files=[
            BucketFile(
                name="part-00000.avro",
                records=100,
                bytes=12345 + number % 977,
                blake2b=_hex(number, 32),
                schema_id=1,
                schema_fingerprint="0123456789abcdef",
            )
        ],
        events=100,
        late=late,
        duplicates_removed=number % 7,
        unaudited=0,
        books={str(hour): HourTotals(rows=100, events=100, promised=100, unaudited=0)},
        id_sum=_hex(number, 16),
        offsets=[
            BucketOffset(
                topic=f"edge.events.{event_type}",
                topic_id="AbCdEfGhIjKlMnOpQrStUv",
                partition=p,
                next=1000 * number + p,
            )
            for p in range(3)
        ],
        ledger=ledger,
        ledger_commit=5 + number,
        attempt=_hex(~number, 32),
        closed_at_ms=hour.end_ms + 5000,
        software="hourmark 0.4.0",
    ).with_own_digest()


def hour_at(first: Hour, n: int) -> Hour:
    """Return the hour that is `n` hours after `first`."""
    return Hour(first.start_s + n * _HOUR_S, _HOUR_S)


def _template(event_type: str, first: Hour, ledger: str) -> str:
    # A manifest with placeholders for the values that differ from hour to hour.
    one = manifest_of(event_type, first, 3, ledger).model_copy(
        update={"software": "hourmark 0.4.0"}
    )  # without its own digest
    return (
        one.encode()
        .decode()
        .replace(str(first), "@hour")
        .replace(_hex(3, 32), "@a")
        .replace(_hex(3, 16), "@b")
        .replace(_hex(~3, 32), "@c")
        .replace(str(first.end_ms + 5000), "@d")
    )


def _bucket_row(template: str, event_type: str, first: Hour, n: int) -> BucketRow:
    hour = hour_at(first, n)
    text = (
        template.replace("@hour", str(hour))
        .replace("@a", _hex(n, 32))
        .replace("@b", _hex(n, 16))
        .replace("@c", _hex(~n, 32))
    )
    return BucketRow(
        event_type,
        hour.start_s,
        "proved",
        hour.end_ms + 5000,
        text.replace("@d", str(hour.end_ms + 5000)),
    )


def make(url: str, types: int, hours: int) -> tuple[Database, Hour]:
    """Create a ledger with `types` types and `hours` closed hours each, packed during creation.

    Returns:
        The database and its first hour.
    """
    now_s = int(time.time()) // _HOUR_S * _HOUR_S
    first = Hour(
        (now_s - _HOUR_S * hours) // DAY_S * DAY_S, _HOUR_S
    )  # a whole day is packed in one row
    hours = (now_s - first.start_s) // _HOUR_S
    config = Config(kafka=KafkaSettings(central=KafkaCluster()), etl=EtlSettings(ledger=url))
    names = [f"type-{n:04d}" for n in range(types)]
    declared = [EventType(name=name, fields=[{"name": "number", "type": "long"}]) for name in names]
    put_rules(config, declared, [Source(name="app", types=names)], first)
    database = Database(url)
    ledger, lease = database.identity()[0], database.acquire("closer")
    recent = max(0, hours - 24 * (KEPT_DAYS + 1)) // 24 * 24  # hours before are packed at once
    texts = {name: _template(name, first, ledger) for name in names}
    for day in range(0, recent, 24):
        with database.transaction(lease) as connection:
            rows = [
                (name, [_bucket_row(texts[name], name, first, n) for n in range(day, day + 24)])
                for name in names
            ]
            connection.execute(
                insert(tables.bucket_days),
                [encode_packed_day(name, of[0].hour_s // DAY_S * DAY_S, of) for name, of in rows],
            )
            late = [
                make_late_hour_rows(name, hour_at(first, n), [str(hour_at(first, n - 1))])
                for n in range(day, day + 24, 10)
                for name in names
            ]
            put_late_hours(connection, [row for of in late for row in of])
    with database.transaction(lease) as connection:
        for name in names:
            made = [
                (hour_at(first, n), manifest_of(name, hour_at(first, n), n, ledger))
                for n in range(recent, hours)
            ]
            insert_closed_buckets(connection, made)
        for row in [*connection.execute(select(tables.frontiers)).mappings()]:
            new = with_digest(tables.frontiers, {**row, "hour": now_s})
            connection.execute(
                update(tables.frontiers).where(tables.frontiers.c.type == row["type"]).values(**new)
            )
    while pack_old_bucket_rows(database, lease, now_s * 1000, 10_000):
        pass
    return database, first


def ask(database: Database, config: Config, first: Hour) -> list[tuple[str, float]]:
    """Run each query once and return its name and CPU seconds."""
    known = frontiers(database, _HOUR_S)
    newest = known[0].hour.start_s
    month = max(first.start_s, newest - 30 * DAY_S)
    day = Hour(max(first.start_s, newest - 60 * DAY_S) // DAY_S * DAY_S + DAY_S, _HOUR_S)
    last = Hour(day.start_s + DAY_S - _HOUR_S, _HOUR_S)
    today, now_ms = Hour(newest - DAY_S, _HOUR_S), newest * 1000
    questions: dict[str, Callable[[], Any]] = {
        "driver start: frontiers, types, damaged rows": lambda: (
            frontiers(database, _HOUR_S),
            read_closed_types(database),
            sum_unassigned_bytes(database),
            find_damaged_rows(database, is_start=True),
        ),
        "why: an hour of today": lambda: read_closed_manifest(
            database, known[-1].event_type, today
        ),
        "why: a packed hour": lambda: read_closed_manifest(database, known[-1].event_type, day),
        "ls: open hours": lambda: list_buckets(config, BucketSelection(is_open=True), now_ms),
        "ls: the last 24 hours": lambda: list_buckets(config, BucketSelection(first=today), now_ms),
        "ls: a packed day": lambda: list_buckets(
            config, BucketSelection(first=day, last=last), now_ms
        ),
        "ls: a summary of the last 24 hours": lambda: summarize_buckets(
            config, BucketSelection(first=today), now_ms
        ),
        "late events of 2 hours ago, all types": lambda: closed_buckets(
            database, {f.event_type: [newest - 2 * _HOUR_S] for f in known}, _HOUR_S
        ),
        "late events of 30 days ago, all types": lambda: closed_buckets(
            database, {f.event_type: [month] for f in known}, _HOUR_S
        ),
        "what 30 days of a type lack": lambda: read_missing_ranges(
            database, known[-1].event_type, month
        ),
    }
    found = []
    for name, question in questions.items():
        began = time.process_time()
        question()
        found.append((name, time.process_time() - began))
    return found


def main() -> None:
    """Create the ledger, run the queries, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=720)
    parser.add_argument("--url", help="of an empty PostgreSQL database; default: an SQLite file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ledger.sqlite")
        url = given.url or f"sqlite:///{file}"
        began = time.monotonic()
        database, first = make(url, given.types, given.hours)
        size = f", {file.stat().st_size >> 20} MiB" if file.exists() else ""
        print(
            f"{given.types} types, {given.hours} hours, made in "
            f"{time.monotonic() - began:.0f} s{size}",
            flush=True,
        )
        config = Config(kafka=KafkaSettings(central=KafkaCluster()), etl=EtlSettings(ledger=url))
        with database:
            for name, cpu_s in ask(database, config, first):
                print(f"{name:50} {cpu_s:6.3f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
