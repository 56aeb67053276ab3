"""Rows of closed buckets: recent ones, packed ones, and where late events are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import delete, func, select, update
from tests.support.records import evidence, manifest

from hourmark.records.hours import Hour
from hourmark.records.manifest import BucketFile, Manifest
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import (
    DAY_S,
    KEPT_DAYS,
    bucket_rows,
    find_buckets_with_late_events,
    find_newest_closed_bucket,
    insert_closed_buckets,
    make_late_hour_rows,
    pack_old_bucket_rows,
    put_late_hours,
    read_bucket_manifests,
    read_closed_spans,
    read_newest_manifest_with_files,
)
from hourmark_etl.ledger.closed import closed_buckets, read_missing_ranges
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.ledger.frontiers import read_closed_types
from hourmark_etl.ledger.maintenance.downgrading import downgrade_ledger
from hourmark_etl.ledger.maintenance.overview import read_closed_manifest
from hourmark_etl.recovery.check import check_late_hours

FIRST_DAY_S = 1_800_000_000 // DAY_S * DAY_S
HOURS = 24 * 12
NOW_MS = (FIRST_DAY_S + HOURS * 3600) * 1000
TYPES = ("click", "view")


def at(n: int) -> Hour:
    return Hour(FIRST_DAY_S + n * 3600)


def bucket(event_type: str, n: int) -> Manifest:
    """Every tenth hour has late events of the hour eight before, and is forced; hours 30 to 40 are
    empty.
    """
    late = {str(at(n - 8)): 3} if n % 10 == 0 and n >= 8 else {}
    is_forced = n % 10 == 0
    return manifest(
        at(n),
        type=event_type,
        events=0 if 30 <= n < 40 else 5,
        late=late,
        closed_at_ms=at(n).end_ms + 5,
        grade="forced" if is_forced else "proved",
        evidence=evidence(waived=[f"not kept: range {n:016x}"] if is_forced else []),
    ).with_own_digest()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Database]:
    """Twelve days of two types, all closed but the last hour."""
    with Database(ledger_url) as made:
        usual = dict.fromkeys(("first_hour", "settled_next"), FIRST_DAY_S) | dict.fromkeys(
            ("shard", "sources"), "[]"
        )
        with made.transaction() as connection:
            for event_type in TYPES:
                row = {
                    "type": event_type,
                    "hour": at(HOURS - 1).start_s,
                    "state": "open",
                    "digest": b"",
                    "seal": None,
                }
                connection.execute(tables.frontiers.insert(), [usual | row])
                insert_closed_buckets(
                    connection, [(at(n), bucket(event_type, n)) for n in range(HOURS - 1)]
                )
        yield made


def pack(ledger: Database, days_max: int = 100) -> int:
    return pack_old_bucket_rows(ledger, ledger.acquire("closer"), NOW_MS, days_max)


def everything(ledger: Database) -> dict[str, object]:
    """Each answer that closing and operators are given."""
    origins = {event_type: [at(n).start_s for n in (2, 31, 50, HOURS - 3)] for event_type in TYPES}
    with ledger.reading() as connection:
        return {
            "rows": sorted(bucket_rows(connection)),
            "of a type": list(
                bucket_rows(connection, "view", from_s=at(20).start_s, to_s=at(HOURS - 30).start_s)
            ),
            "late": find_buckets_with_late_events(connection, origins),
            "manifests": read_bucket_manifests(
                connection, {("click", at(n).start_s) for n in (0, 23, 24, HOURS - 2, HOURS + 5)}
            ),
            "spans": read_closed_spans(connection),
            "newest": [
                find_newest_closed_bucket(connection, "click", at(n).end_ms)
                for n in (0, 1, 30, HOURS)
            ],
            "closed": closed_buckets(ledger, origins, 3600),
            "lacks": read_missing_ranges(ledger, "click", at(15).start_s),
            "types": read_closed_types(ledger),
            "one": read_closed_manifest(ledger, "view", at(7)),
        }


@pytest.mark.slow
def test_packed_rows_give_the_same_answers(ledger: Database) -> None:
    before = everything(ledger)
    counts = [pack(ledger) for _ in range(6)]
    assert counts == [2, 2, 2, 2, 0, 0], "a day of each type in a round, four days of twelve"
    assert everything(ledger) == before
    left = ledger.fetch(select(func.count()).select_from(tables.buckets)).scalar_one()
    assert left == 2 * (KEPT_DAYS * 24 - 1)
    found = closed_buckets(ledger, {"click": [at(2).start_s]}, 3600)["click"]
    assert [(of.hour_s, of.origin_hours) for of in found] == [
        (at(2).start_s, (at(2),)),
        (at(10).start_s, (at(2),)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_way_back_and_up_again_keeps_every_row_and_finds_late_events(
    ledger: Database, ledger_url: str, is_packed: bool
) -> None:
    before = everything(ledger)
    while is_packed and pack(ledger):
        pass
    ledger.close()
    downgrade_ledger(ledger_url, 5)
    with Database(ledger_url) as again:
        assert everything(again) == before
        packed_days = again.fetch(select(func.count()).select_from(tables.bucket_days)).scalar_one()
        assert packed_days == 0, "revision 5 has all rows one by one"


def test_a_check_of_late_events_names_a_row_too_few_and_one_too_many(ledger: Database) -> None:
    while pack(ledger):
        pass
    assert list(check_late_hours(ledger, 3600)) == []
    late = tables.late_hours
    with ledger.transaction() as connection:
        gone = (late.c.type == "click", late.c.hour == at(10).start_s)
        assert connection.execute(delete(late).where(*gone)).rowcount == 1
        put_late_hours(connection, make_late_hour_rows("view", at(11), [str(at(3))]))
    found = [(finding.where, finding.detail) for finding in check_late_hours(ledger, 3600)]
    assert found == [
        (
            "click, table late_hours",
            f"the table lacks late events of {at(2)} in the bucket {at(10)}",
        ),
        (
            "view, table late_hours",
            f"the table contains, but no manifest lists, late events of {at(3)} in the bucket "
            f"{at(11)}",
        ),
    ]


def test_a_round_packs_no_more_than_it_may(ledger: Database) -> None:
    assert [pack(ledger, 1) for _ in range(3)] == [1, 1, 1]


def test_a_day_whose_staged_rows_are_still_there_is_not_packed(ledger: Database) -> None:
    with ledger.transaction() as connection:
        file = {
            "path": "f",
            "batch": "b",
            "kind": "events",
            "rows": 1,
            "compared": False,
            "spans": b"",
            "digest": b"",
        }
        key = connection.execute(tables.staged_files.insert().values(file)).inserted_primary_key
        assert key is not None
        group = {
            "file_id": key[0],
            "type": "click",
            "hour": at(30).start_s,
            "listed_hour": at(30).start_s,
            "rows": 1,
            "bytes": 1,
            "low64_sum": 0,
            "schema_ids": "[1]",
            "first_row": 0,
            "first_id": b"",
            "last_id": b"",
            "digest": b"",
        }
        connection.execute(tables.groups.insert().values(group))
    assert [pack(ledger) for _ in range(4)] == [2, 1, 1, 1], "of click only the day before"


def test_a_damaged_row_keeps_its_days_rows_and_a_damaged_day_is_named(ledger: Database) -> None:
    hit = (tables.buckets.c.type == "click", tables.buckets.c.hour == at(3).start_s)
    with ledger.transaction() as connection:
        connection.execute(update(tables.buckets).where(*hit).values(manifest="{}"))
    assert [pack(ledger) for _ in range(2)] == [1, 1]
    days = tables.bucket_days
    content = (
        ledger.fetch(select(days.c.content).where(days.c.type == "view").order_by(days.c.day))
        .scalars()
        .first()
    )
    assert content is not None
    for place in (6, len(content) // 2, len(content) - 2):
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with ledger.transaction() as connection:
            connection.execute(
                update(days).where(days.c.day == FIRST_DAY_S).values(content=changed)
            )
        with (
            pytest.raises(DamagedRow, match=r"bucket_days \(type 'view', day"),
            ledger.reading() as connection,
        ):
            read_bucket_manifests(connection, [("view", FIRST_DAY_S)])


def test_a_packed_day_under_another_day_or_with_other_hours_is_named(ledger: Database) -> None:
    while pack(ledger):
        pass
    days = tables.bucket_days
    assert [row for row in find_damaged_rows(ledger) if row.table == "bucket_days"] == []
    hit = (days.c.type == "view", days.c.day == FIRST_DAY_S)
    with ledger.transaction() as connection:
        connection.execute(update(days).where(*hit).values(day=FIRST_DAY_S ^ 1 << 40))
        connection.execute(
            update(days).where(days.c.type == "click", days.c.day == FIRST_DAY_S).values(hours=9)
        )
    named = [
        row.key.split(",")[0] for row in find_damaged_rows(ledger) if row.table == "bucket_days"
    ]
    assert sorted(named) == ["type 'click'", "type 'view'"]
    with (
        pytest.raises(DamagedRow, match=r"bucket_days \(type 'click'"),
        ledger.reading() as connection,
    ):
        read_bucket_manifests(connection, [("click", FIRST_DAY_S)])
    with (
        pytest.raises(DamagedRow, match=r"bucket_days \(type 'view'"),
        ledger.reading() as connection,
    ):
        list(bucket_rows(connection, "view"))


def test_a_check_of_the_ledger_names_a_damaged_day_and_goes_on(ledger: Database) -> None:
    while pack(ledger):
        pass
    with ledger.transaction() as connection:
        days = tables.bucket_days
        connection.execute(
            update(days).where(days.c.day == FIRST_DAY_S, days.c.type == "click").values(hours=25)
        )
    assert list(check_late_hours(ledger, 3600)) == []
    assert [
        str(damaged) for damaged in find_damaged_rows(ledger) if damaged.table == "bucket_days"
    ] != []
    assert {damaged.table for damaged in find_damaged_rows(ledger, is_start=True)} == {
        "frontiers"
    }, "a start does not read all days"


# The newest bucket with files


def put_bucket(ledger: Database, n: int, event_type: str = "click", **changes: object) -> None:
    """Of a type that closes hours on its own; with a file, unless `files` is empty."""
    file = BucketFile(
        name="part-00000.avro",
        records=1,
        bytes=1,
        blake2b="0" * 32,
        schema_id=1,
        schema_fingerprint="0" * 16,
    )
    usual = {"type": event_type, "files": [file], "closed_at_ms": at(n).end_ms}
    made = manifest(at(n), **(usual | changes)).with_own_digest()
    with ledger.transaction() as connection:
        insert_closed_buckets(connection, [(at(n), made)])


def put_frontiers(ledger: Database, hours: int) -> None:
    usual = dict.fromkeys(("first_hour", "settled_next"), FIRST_DAY_S) | dict.fromkeys(
        ("shard", "sources"), "[]"
    )
    row = {"hour": at(hours).start_s, "state": "open", "digest": b"", "seal": None}
    with ledger.transaction() as connection:
        for event_type in TYPES:
            connection.execute(tables.frontiers.insert(), [usual | row | {"type": event_type}])


def newest_with_files(ledger: Database) -> tuple[str, str] | None:
    with ledger.reading() as connection:
        found = read_newest_manifest_with_files(connection)
    return None if found is None else (found.type, found.hour)


@pytest.fixture
def empty_ledger(ledger_url: str) -> Iterator[Database]:
    with Database(ledger_url) as made:
        yield made


def test_the_newest_bucket_with_files_is_of_any_type_and_closed_last(
    empty_ledger: Database,
) -> None:
    assert newest_with_files(empty_ledger) is None
    put_bucket(empty_ledger, 0, files=[])
    assert newest_with_files(empty_ledger) is None
    put_bucket(empty_ledger, 1, "view")
    put_bucket(empty_ledger, 1, "click", closed_at_ms=at(1).end_ms + 1)
    put_bucket(empty_ledger, 2, "click", files=[])
    put_bucket(empty_ledger, 2, "view", files=[])
    assert newest_with_files(empty_ledger) == ("click", str(at(1)))
    put_bucket(empty_ledger, 3, "view")
    assert newest_with_files(empty_ledger) == ("view", str(at(3)))


def test_damaged_rows_of_buckets_are_not_the_newest(empty_ledger: Database) -> None:
    put_bucket(empty_ledger, 0)
    put_bucket(empty_ledger, 1)
    with empty_ledger.transaction() as connection:
        rows = tables.buckets
        connection.execute(update(rows).where(rows.c.hour == at(1).start_s).values(manifest="{"))
    assert newest_with_files(empty_ledger) == ("click", str(at(0)))


@pytest.mark.slow
def test_the_newest_bucket_with_files_is_found_among_packed_ones(empty_ledger: Database) -> None:
    put_frontiers(empty_ledger, HOURS)
    put_bucket(empty_ledger, 5, "view")  # the newest of its type, which is never packed
    put_bucket(empty_ledger, 6)
    put_bucket(empty_ledger, 25)
    put_bucket(empty_ledger, 26, files=[])
    put_bucket(empty_ledger, 49, files=[])
    put_bucket(empty_ledger, HOURS - 1, files=[])
    while pack(empty_ledger):
        pass
    assert newest_with_files(empty_ledger) == ("click", str(at(25)))
    with empty_ledger.transaction() as connection:
        days = tables.bucket_days
        connection.execute(update(days).where(days.c.day == at(24).start_s).values(content=b"x"))
    assert newest_with_files(empty_ledger) == ("click", str(at(6)))
