"""A ledger lost as a whole is rebuilt with the same offsets, frontiers and lists, from what stands on storage and in topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from etl.ledger import frontiers, staging, tables
from etl.ledger.database import Database
from etl.ledger.rebuild import Rebuilt, rebuild
from etl.ledger.restaged import path_again
from hourmark.errors import Finding, UsageError
from tests.support import ledger_queries
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.memory_storage import MemoryStorage

SECOND = FIRST.next()


@pytest.fixture
def life(ledger_url: str) -> Iterator[Life]:
    made = Life(MemoryStorage(), ledger_url, ["click", "view"])
    yield made
    made.database.close()


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path_factory.mktemp('rebuilt')}/ledger.sqlite")
    yield made
    made.close()


def rebuilt(life: Life, target: Database) -> Rebuilt:
    return rebuild(life.outside(), target, lambda _: None)


def dumped(database: Database) -> dict[str, Any]:
    """What must be the same: everything but row numbers, commit number, leases and what is only a closer's memory."""
    with database.reading() as connection:
        files = {row.id: row.path for row in connection.execute(select(tables.staged_files))}
        found: dict[str, Any] = {}
        for table in tables.metadata.sorted_tables:
            if table.name in ("leases", "waits", "edge_checks", "schemas"):
                continue
            rows = []
            for row in connection.execute(select(table)).mappings():
                plain = {name: value for name, value in row.items() if name not in ("id", "alarm")}
                if "file_id" in plain:
                    plain["file_id"] = files[plain["file_id"]]
                rows.append(plain)
            found[table.name] = sorted(rows, key=repr)
        found["meta"] = [row for row in found["meta"] if row["key"] != "commit"]
    return found


def without_reporters(dump: dict[str, Any]) -> dict[str, Any]:
    return {name: rows for name, rows in dump.items() if name != "reporters"}


def test_a_whole_life_is_found_again(life: Life, target: Database) -> None:
    life.report("web1")
    life.produce("click", FIRST, 5)
    life.produce("view", FIRST, 2)
    life.stage()
    life.produce("click", SECOND, 3)
    life.stage()
    life.close("click")  # with the first batch; SECOND's group of the second batch stays open
    life.produce("click", FIRST, 2)  # late
    life.stage(commit=False)  # an orphan, which the next batch contradicts
    life.start_driver()
    life.stage(at_most=1)
    life.stage()
    life.close("click")  # SECOND, with the late group
    life.produce("view", SECOND, 4)
    life.report("web2")
    life.report("web1", goodbye=True)
    life.stage()
    before = dumped(life.database)
    done = rebuilt(life, target)
    assert dumped(target) == before
    assert done.notes == []
    assert (done.types, done.buckets, done.batches, list(done.given_up)) == (2, 2, 5, ["_staging/batch-2"])


def test_the_rebuilt_ledger_goes_on(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    life.stage()
    life.close("click")
    life.produce("click", SECOND, 1)
    life.stage()
    closed = life.database.identity()
    rebuilt(life, target)
    life.go_on_with(target)
    life.produce("click", FIRST, 2)
    life.stage()
    manifest = life.close("click")
    assert (manifest.ledger, manifest.hour, manifest.events) == (closed[0], str(SECOND), 3)
    assert manifest.ledger_commit > closed[1]


def test_what_was_frozen_or_sealed_is_open_again_and_a_published_marker_wins(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    life.produce("view", FIRST, 5)
    life.stage()
    life.freeze("click")
    life.close("view", in_ledger=False)
    rebuilt(life, target)
    click, view = frontiers.frontiers(target, LENGTH_S)
    assert (click.hour, click.state.value) == (FIRST, "open")
    assert (view.hour, view.state.value) == (SECOND, "open")
    assert ledger_queries.listed_groups(target, "click", FIRST) == []
    assert sum(g.rows for g in ledger_queries.listed_groups(target, "view", FIRST)) == 5
    assert view.settled_next == 2


def test_a_file_that_was_staged_again_is_found_where_it_stands_now(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    batch = life.stage()
    old = next(f.path for f in batch.files if f.kind == "events")
    life.storage.rename_new(old, path_again(old, old, 1))
    rebuilt(life, target)
    with target.reading() as connection:
        paths = set(connection.execute(select(tables.staged_files.c.path)).scalars())
    assert path_again(old, old, 1) in paths and old not in paths


def test_the_last_batch_counts_although_its_commit_is_not_known(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    life.stage(commit=False)
    rebuilt(life, target)
    assert {p.topic: p.next_offset for p in staging.positions(target, "cluster")}["events.click"] == 5


def test_batches_that_were_cleaned_away_leave_nothing_to_do(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    gone = life.stage()
    life.close("click")
    life.close("view")
    life.produce("click", SECOND, 3)
    life.stage()
    life.clean(gone)
    before = dumped(life.database)
    done = rebuilt(life, target)
    assert without_reporters(dumped(target)) == without_reporters(before)
    assert done.notes == []


def test_a_file_that_is_still_needed_stays_named_and_is_told_of(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    batch = life.stage()
    life.storage.delete(batch.files[0].path)
    before = dumped(life.database)
    done = rebuilt(life, target)
    assert dumped(target) == before
    assert done.notes == [f"{batch.files[0].path} is gone; it is staged again from its offsets"]


def test_records_that_no_batch_file_tells_of_are_staged_again(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    lost = life.stage()
    life.produce("click", FIRST, 2)
    life.stage()
    life.storage.delete(f"{lost.folder}/batch.json.zst")
    done = rebuilt(life, target)
    positions = {p.topic: p.next_offset for p in staging.positions(target, "cluster")}
    assert (positions["events.click"], positions["hourmark.audit"]) == (0, 0)
    assert [note for note in done.notes if "events.click-0: no batch file and no bucket tells of offsets [0, 5)" in note]


def test_a_damaged_batch_file_is_told_of(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 5)
    batch = life.stage()
    life.storage.delete(f"{batch.folder}/batch.json.zst")
    life.storage.write_new(f"{batch.folder}/batch.json.zst", b"nonsense")
    done = rebuilt(life, target)
    assert [note for note in done.notes if "not a batch file" in note]
    assert {p.topic: p.next_offset for p in staging.positions(target, "cluster")}["events.click"] == 0


def test_a_silent_hour_closes_as_before_and_expired_topics_are_no_gap(life: Life, target: Database) -> None:
    life.report("web1")
    life.stage()
    life.produce("click", FIRST, 5)
    life.stage()
    life.close("click")
    life.close("view")
    life.stage()
    life.topics.log_starts = {"events.click": 5, "hourmark.audit": 1, "hourmark.hosts": 1}
    for folder in life.batches:
        life.storage.delete(folder)
    done = rebuilt(life, target)
    assert done.notes == []
    assert staging.positions(target, "cluster") == staging.positions(life.database, "cluster")


def test_a_filled_ledger_is_refused(life: Life) -> None:
    with pytest.raises(UsageError, match=r"not empty .*--into"):
        rebuilt(life, life.database)


def test_buckets_of_two_ledgers_are_refused_and_nothing_is_written(life: Life, target: Database) -> None:
    manifest = life.close("click")
    other = manifest.model_copy(update={"type": "view", "ledger": "another"})
    life.storage.write_new(f"{FIRST.bucket_path('view')}/_SUCCESS", other.encode())
    with pytest.raises(Finding, match="buckets of several ledgers"):
        rebuilt(life, target)
    assert frontiers.frontiers(target, LENGTH_S) == []


def test_types_whose_beginning_nothing_tells_are_named(life: Life, target: Database) -> None:
    life.storage.delete("_ledger")
    life.close("click")
    done = rebuilt(life, target)
    assert [f.event_type for f in frontiers.frontiers(target, LENGTH_S)] == ["click"]
    assert [note for note in done.notes if "nothing tells where these types begin: view" in note]


def test_a_schema_that_changed_is_told_of_and_remembered_as_it_was(life: Life, target: Database) -> None:
    life.produce("click", FIRST, 1)
    life.stage()
    life.close("click")
    done = rebuild(dataclasses.replace(life.outside(), fetch_schema=lambda _: {"type": "bytes"}), target, lambda _: None)
    assert [note for note in done.notes if "schema id 7 stands for another schema" in note]


def test_surplus_of_closed_hours_is_found_and_what_a_failed_proof_left_is_not(life: Life, target: Database) -> None:
    for rows, digest in ((2, "a" * 32), (3, "b" * 32)):
        for hour in (FIRST, SECOND):
            with life.storage.create(f"_surplus/click/{hour}-{7:012d}-{digest}.parquet") as file:
                pq.write_table(pa.table({"hour": [FIRST.start_s] * rows}), file)
    life.produce("click", FIRST, 4)
    life.stage()
    life.close("click", surplus=3)
    rebuilt(life, target)
    with target.reading() as connection:
        (row,) = connection.execute(select(tables.surplus)).mappings().all()
    assert dict(row) == {
        "type": "click", "hour": FIRST.start_s, "path": f"_surplus/click/{FIRST}-{7:012d}-{'b' * 32}.parquet", "rows": 3,
        "audit_next": 1, "sealed_at_ms": FIRST.end_ms,
    }  # fmt: skip
