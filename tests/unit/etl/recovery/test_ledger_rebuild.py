"""A ledger lost as a whole is rebuilt with the same frontiers, and all that open hours need, from
storage and topics.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import select
from tests.support import ledger_queries
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.memory_storage import MemoryStorage

from hourmark.config.loading import Config
from hourmark.errors import Finding, UsageError
from hourmark.records.event_id import SIZE
from hourmark.records.hours import Hour
from hourmark.records.manifest import HourTotals
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import RulesBook, TypeVersion
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.evidence import UNAUDITED_SCHEMA
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.closing.proof.unaudited import write_unaudited
from hourmark_etl.ids.index_files import published_index_path
from hourmark_etl.ids.lookups import IndexWriter
from hourmark_etl.ledger import frontiers, tables
from hourmark_etl.ledger.closed import IdIndexSegment, closed_buckets, read_index_paths
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.partitions.offset_gaps import accepted_gaps, open_gaps
from hourmark_etl.ledger.rules import LedgerRules
from hourmark_etl.ledger.schemas import known_schemas
from hourmark_etl.model import AuditOffsets
from hourmark_etl.recovery.markers import check_older_copy
from hourmark_etl.recovery.rebuild import rebuild
from hourmark_etl.recovery.rebuild_result import RebuildResult
from hourmark_etl.storage import Storage

pytestmark = pytest.mark.slow

SECOND = FIRST.next()


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path_factory.mktemp('rebuilt')}/ledger.sqlite")
    yield made
    made.close()


def rebuilt(life: Life, target: Database) -> RebuildResult:
    return rebuild(life.outside(), target, lambda _: None)


def go_on(life: Life, target: Database) -> None:
    """With the rebuilt one."""
    rebuilt(life, target)
    life.go_on_with(target)


def dumped(database: Database) -> dict[str, Any]:
    """What must be the same: everything but row numbers, commit number, leases and what is only a
    closer's memory.
    """
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


def test_frontiers_buckets_and_what_is_settled_are_found_again(
    life: Life, target: Database
) -> None:
    life.report("web1")
    life.produce("click", FIRST, 5)
    life.take_in("view", FIRST, 2)
    life.take_in("click", SECOND, 3)
    life.close("click")
    life.close("click")
    before = dumped(life.database)
    done = rebuilt(life, target)
    after = dumped(target)
    for name in ("frontiers", "buckets", "meta"):
        assert after[name] == before[name]
    assert (done.notes, done.lost, done.types, done.buckets) == ([], [], 2, 2)


def test_the_rebuilt_ledger_goes_on(life: Life, target: Database) -> None:
    life.take_in("click", FIRST, 5)
    life.close("click")
    closed = life.database.identity()
    life.take_in("click", SECOND, 1)
    go_on(life, target)
    life.take_in("click", FIRST, 2)
    assert unlisted(target)["click"] == {FIRST.start_s: 7, SECOND.start_s: 1}, (
        "what is closed, too: its ids drop it"
    )
    manifest = life.close("click")
    assert (manifest.ledger, manifest.hour) == (closed[0], str(SECOND))
    assert manifest.ledger_commit > closed[1]


def unlisted(database: Database) -> dict[str, dict[int, int]]:
    """By type, rows by hour that no bucket lists."""
    groups = tables.groups
    found: dict[str, dict[int, int]] = {}
    with database.reading() as connection:
        for g in connection.execute(
            select(groups).where(groups.c.listed_hour.is_(None))
        ).mappings():
            of_type = found.setdefault(g["type"], {})
            of_type[g["hour"]] = of_type.get(g["hour"], 0) + g["rows"]
    return found


def put_index(storage: Storage, attempt: str, buckets: Sequence[tuple[str, Hour]]) -> str:
    with storage.create("written.ids") as file:
        index = IndexWriter(file, "written.ids")
        for event_type, hour in buckets:
            index.write(event_type, hour.start_s, np.zeros((5, SIZE), np.uint8))
        index.finish()
    storage.rename_new(
        "written.ids", path := published_index_path("task", index.digest, attempt, 0)
    )
    return path


def test_an_index_of_ids_is_taken_over_for_buckets_that_its_attempt_published(
    life: Life, target: Database
) -> None:
    life.take_in("click", FIRST, 5)
    attempt = life.close("click").attempt
    path = put_index(life.storage, attempt, [("view", FIRST), ("click", FIRST), ("click", SECOND)])
    put_index(life.storage, "another", [("click", FIRST)])
    rebuilt(life, target)
    (bucket,) = closed_buckets(target, {"click": {FIRST.start_s}}, LENGTH_S)["click"]
    assert bucket.index == (IdIndexSegment(path, 5, 5),) and bucket.is_indexed
    assert read_index_paths(target) == {path}


def test_what_was_frozen_or_sealed_is_open_again_and_a_published_marker_wins(
    life: Life, target: Database
) -> None:
    life.produce("click", FIRST, 5)
    life.take_in("view", FIRST, 5)
    life.freeze("click")
    life.close("view", in_ledger=False)
    rebuilt(life, target)
    click, view = frontiers.frontiers(target, LENGTH_S)
    assert (click.hour, click.state.value) == (FIRST, "open")
    assert (view.hour, view.state.value) == (SECOND, "open")
    assert view.settled_next == AuditOffsets.from_offsets(2)


def lose(life: Life, path: str, how: str) -> None:
    if how == "gone":
        life.storage.delete(path)
    elif how == "damaged":
        life.storage.damage(path)  # type: ignore[attr-defined]  # the one in memory


@pytest.mark.slow
@pytest.mark.parametrize("how", ["as it was", "damaged", "gone"])
def test_a_marker_says_nothing_of_later_hours_below_its_offset(
    life: Life, target: Database, how: str
) -> None:
    life.produce("click", FIRST, 3)
    batch = life.take_in("click", SECOND, 5)
    life.close("click")
    for file in batch.files:
        lose(life, file.path, how)
    go_on(life, target)
    life.stage()
    proof = proved(life)
    assert (proof.promised, proof.findings) == (5, ())
    assert unlisted_of(life, SECOND) == 5


def proved(life: Life) -> Proof:
    """Of click's frontier hour, under a cut of all promises."""
    opened = life.frontier("click")
    frontiers.freeze(life.database, life.closer, [opened], {"click": ["events.click"]})
    below = len(life.topics.logs["hourmark.audit"])
    return Engine(life.storage, life.database, Config()).prove(
        [opened], AuditOffsets.from_offsets(below)
    )["click"]


def unlisted_of(life: Life, hour: Hour) -> int:
    groups = ledger_queries.read_assigned_groups(life.database, "click", hour)
    return sum(g.rows for g in groups if g.hour_s == hour.start_s)


def test_a_restored_copy_that_is_lost_later_knows_no_less(tmp_path: Path, target: Database) -> None:
    file, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    life = Life(MemoryStorage(), f"sqlite:///{file}", ["click"])
    life.take_in("click", FIRST, 3)
    life.database.close()
    shutil.copy(file, copy)
    life.database = Database(f"sqlite:///{file}")
    for _ in range(3):  # the time that is forgotten: restarts, and a batch
        life.start_driver()
    life.produce("click", FIRST, 2)
    life.take_in("click", SECOND, 5)
    life.database.close()
    life.go_on_with(Database(f"sqlite:///{copy}"))
    check_older_copy(life.storage, life.database, LENGTH_S)  # nothing was closed since: it is taken
    life.produce("click", SECOND, 4)
    life.stage(at_most=8)
    life.stage()
    life.close("click")
    go_on(life, target)
    life.stage()
    proof = proved(life)
    assert (proof.promised, proof.findings) == (9, ())
    life.database.close()


def test_what_kafka_no_longer_holds_is_listed_from_staged_files(
    life: Life, target: Database
) -> None:
    life.produce("click", FIRST, 3)
    life.take_in("view", FIRST, 2)
    life.close("view")
    life.take_in("click", FIRST, 4)
    life.topics.log_starts = {"events.click": 7, "hourmark.audit": 3, "events.view": 2}
    done = rebuilt(life, target)
    assert (done.lost, done.notes, done.staged_files) == ([], [], 4)
    life.go_on_with(target)
    proof = proved(life)
    assert (proof.promised, proof.findings) == (7, ())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_promises_that_neither_kafka_nor_a_file_holds_are_a_gap(
    life: Life, target: Database, how: str
) -> None:
    batch = life.take_in("click", FIRST, 3)
    life.take_in("click", FIRST, 4)
    life.topics.log_starts = {"events.click": 7, "hourmark.audit": 2}
    audit = next(f.path for f in batch.files if f.kind == "audit")
    lose(life, audit, how)
    done = rebuilt(life, target)
    assert done.lost == ["topic hourmark.audit partition 0: offsets [0, 1) are lost to retention"]
    assert [h.topic for h in open_gaps(target)] == ["hourmark.audit"]
    assert [note for note in done.notes if audit in note] == done.notes and bool(done.notes) == (
        how == "damaged"
    )


def test_promises_of_closed_hours_need_not_be_found(
    life: Life, target: Database, tmp_path: Path
) -> None:
    for hour in (FIRST, SECOND, SECOND.next()):
        life.take_in("click", hour, 3)
        life.close("click")
        life.close("view")
    life.topics.log_starts = {"events.click": 6, "hourmark.audit": 1}
    life.storage.delete("_staging")
    assert rebuilt(life, target).lost == []
    life.topics.log_starts = {"events.click": 6, "hourmark.audit": 3}
    other = Database(f"sqlite:///{tmp_path}/other.sqlite")
    assert rebuilt(life, other).lost == [
        "topic hourmark.audit partition 0: offsets [2, 3) are lost to retention"
    ]
    other.close()


def test_lost_events_are_named_and_hold_nothing(life: Life, target: Database) -> None:
    batch = life.take_in("click", FIRST, 3)
    life.topics.log_starts = {"events.click": 3}
    life.storage.delete(next(f.path for f in batch.files if f.kind == "events"))
    assert rebuilt(life, target).lost == []
    (gap,) = accepted_gaps(target)
    assert (gap.topic, gap.what) == (
        "events.click",
        "topic events.click partition 0: offsets [0, 3) are lost to retention",
    )
    assert open_gaps(target) == []


@pytest.mark.slow
@pytest.mark.parametrize("left", ["files", "markers"])
def test_an_audit_topic_that_is_shorter_than_what_was_staged_or_settled_holds_every_type(
    life: Life, target: Database, left: str
) -> None:
    batch = life.take_in("click", FIRST, 3)
    if left == "markers":
        life.close("click")
        for file in batch.files:
            life.storage.delete(file.path)
    life.topics.logs["hourmark.audit"].clear()
    done = rebuilt(life, target)
    (gap,) = (g for g in open_gaps(target) if "its log lost records" in g.what)
    assert (gap.topic, gap.what in done.lost) == ("hourmark.audit", True)
    assert "it was staged to offset 1," in gap.what


def test_a_filled_ledger_is_refused(life: Life) -> None:
    with pytest.raises(UsageError, match=r"not empty .*--into"):
        rebuilt(life, life.database)


def test_buckets_of_two_ledgers_are_refused_and_nothing_is_written(
    life: Life, target: Database
) -> None:
    manifest = life.close("click")
    other = manifest.model_copy(
        update={"type": "view", "ledger": "another", "software": "hourmark 0.3.0"}
    ).with_own_digest()
    life.storage.write_new(f"{FIRST.bucket_path('view')}/_SUCCESS", other.encode())
    with pytest.raises(Finding, match="buckets of several ledgers"):
        rebuilt(life, target)
    assert frontiers.frontiers(target, LENGTH_S) == []


def test_types_whose_beginning_nothing_tells_are_named(life: Life, target: Database) -> None:
    life.storage.delete("_ledger")
    life.close("click")
    done = rebuilt(life, target)
    assert [f.event_type for f in frontiers.frontiers(target, LENGTH_S)] == ["click"]
    assert [
        note for note in done.notes if "the first hours of these types are unknown: view" in note
    ]


def close_one(life: Life) -> None:
    """An hour with one event."""
    life.take_in("click", FIRST, 1)
    life.close("click")


@pytest.mark.slow
def test_the_rules_are_those_of_the_topic_and_an_id_keeps_its_meaning(
    life: Life, target: Database
) -> None:
    close_one(life)
    rebuilt(life, target)
    assert LedgerRules(target).book().latest == life.rules
    assert known_schemas(target)[1].meaning == life.rules.types["click"].meaning


def test_markers_and_rules_that_contradict_each_other_stop_a_rebuild(
    life: Life, target: Database
) -> None:
    close_one(life)
    other = EventType(name="click", fields=[{"name": "m", "type": "string"}])
    others = dataclasses.replace(
        life.rules, types={**life.rules.types, "click": TypeVersion(other, 1)}
    )
    with pytest.raises(Finding, match=r"contradict each other.*schema id 1 identifies click"):
        rebuild(
            dataclasses.replace(life.outside(), rules=RulesBook(others.records())),
            target,
            lambda _: None,
        )


def test_without_the_topic_ids_of_markers_keep_their_meaning(life: Life, target: Database) -> None:
    """A registry that is recreated then cannot give them another."""
    close_one(life)
    done = rebuild(dataclasses.replace(life.outside(), rules=RulesBook()), target, lambda _: None)
    assert [
        note
        for note in done.notes
        if "no rules revision has the schema ids 1 of closed buckets" in note
    ]
    assert len(set(done.notes)) == len(done.notes), "each is told once"
    schema = known_schemas(target)[1]
    assert (schema.meaning, schema.text) == (life.rules.types["click"].meaning, "")
    view = dataclasses.replace(life.rules, types={"view": TypeVersion(life.declared[1], 1)})
    with pytest.raises(Finding, match="schema id 1 identifies click"):
        LedgerRules(target).put(view, None, FIRST)
    LedgerRules(target).put(life.rules, None, FIRST)
    assert known_schemas(target)[1].text


def put_unaudited(life: Life, hour: Hour, rows: int) -> str:
    """A proof of the hour found as many."""
    found = {
        "hour": [FIRST.start_s] * rows,
        "event_id": [bytes(16)] * rows,
        "range_id": [bytes(8)] * rows,
        "value_hash": list(range(rows)),
    }
    opened = dataclasses.replace(life.frontier("click"), hour=hour)
    return write_unaudited(life.storage, 7, opened, pa.table(found, schema=UNAUDITED_SCHEMA)).path


def test_unaudited_of_closed_hours_is_found_and_what_a_failed_proof_left_is_not(
    life: Life, target: Database
) -> None:
    row_paths = {
        (rows, hour): put_unaudited(life, hour, rows) for rows in (2, 3) for hour in (FIRST, SECOND)
    }
    life.take_in("click", FIRST, 4)
    life.close("click", HourTotals(rows=4, events=4, promised=1, unaudited=3))
    rebuilt(life, target)
    with target.reading() as connection:
        (row,) = connection.execute(select(tables.unaudited)).mappings().all()
    assert dict(row) == {
        "type": "click",
        "hour": FIRST.start_s,
        "path": row_paths[3, FIRST],
        "rows": 3,
        "audit_next": 1,
        "sealed_at_ms": FIRST.end_ms,
        "audit_further": None,
    }


def test_damaged_unaudited_is_told_of(life: Life, target: Database) -> None:
    path = put_unaudited(life, FIRST, 1)
    life.close("click", HourTotals(rows=0, events=0, promised=1, unaudited=1))
    lose(life, path, "damaged")
    (note,) = rebuilt(life, target).notes
    assert path in note and "remains unmet" in note
