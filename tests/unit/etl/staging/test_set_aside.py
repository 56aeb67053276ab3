"""Records that cannot be in a bucket: each is counted by one bucket, and all are reviewed by one
command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import closing
from tests.support.simulator.truth import FIRST_HOUR, make_template
from tests.support.simulator.world import World

from hourmark.errors import UsageError
from hourmark.records.manifest import Grade
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.staged.set_aside import (
    KEPT_MS,
    assign_set_aside_to_buckets,
    count_unreviewed_records,
    delete_old_set_aside_rows,
    find_set_aside_in_buckets,
    find_set_aside_offsets,
    mark_reviewed,
    put_set_aside,
    set_aside_rows,
)
from hourmark_etl.model import ExcludedRecords, OffsetSpan

CLICK = ExcludedRecords(
    topic="edge.events.click",
    topic_id="id",
    partition=0,
    event_type="click",
    reason="the key does not have 24 bytes",
    offsets=(3, 5, 9),
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as made:
        yield made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, make_template(tmp_path))
    yield made
    made.end()


def put(database: Database, *found: ExcludedRecords, now_ms: int = 1) -> list[ExcludedRecords]:
    with database.transaction(database.acquire("consumer:default")) as connection:
        return put_set_aside(connection, found, now_ms)


def test_records_are_added_once_however_they_are_found_again(database: Database) -> None:
    assert put(database, CLICK) == [CLICK]
    assert put(database, CLICK) == []
    again = dataclasses.replace(
        CLICK, offsets=(5, 6, 9, 10)
    )  # in another piece, as the log was staged again
    assert put(database, again) == [dataclasses.replace(CLICK, offsets=(6, 10))]
    assert count_unreviewed_records(database, "click") == 5
    recreated = dataclasses.replace(CLICK, topic_id="another")
    assert put(database, recreated) == [recreated]


def test_each_record_is_counted_by_one_bucket(database: Database) -> None:
    put(database, CLICK, dataclasses.replace(CLICK, event_type="view", topic="edge.events.view"))
    for hour_s in (3600, 7200):
        with database.transaction(database.acquire("closer")) as connection:
            assign_set_aside_to_buckets(connection, {"click": hour_s})
    assert find_set_aside_in_buckets(
        database, {("click", 3600), ("click", 7200), ("view", 3600)}
    ) == {("click", 3600): [CLICK]}
    assert [row.listed_hour for row in set_aside_rows(database)] == [3600, None]


def test_one_review_is_of_all_records(database: Database) -> None:
    put(database, *(dataclasses.replace(CLICK, offsets=(n,)) for n in range(20)))
    assert mark_reviewed(database, "click", 5) == 20
    assert (
        count_unreviewed_records(database) == 0 and set_aside_rows(database, reviewed=False) == []
    )
    with pytest.raises(UsageError, match="no record of click that was set aside needs a review"):
        mark_reviewed(database, "click", 6)


def test_records_of_a_span_are_left_out_when_its_file_is_staged_again(database: Database) -> None:
    put(database, CLICK)
    span = OffsetSpan(topic=CLICK.topic, topic_id="id", partition=0, start=0, end=9)
    assert {offset for *_, offset in find_set_aside_offsets(database, [span])} >= {3, 5}
    assert (
        find_set_aside_offsets(database, [dataclasses.replace(span, topic_id="another")]) == set()
    )


def test_rows_that_a_bucket_has_counted_for_long_are_forgotten(database: Database) -> None:
    put(database, CLICK)
    lease = database.acquire("closer")
    delete_old_set_aside_rows(database, lease, 2 + KEPT_MS)
    assert len(set_aside_rows(database)) == 1, "no bucket counts it yet"
    with database.transaction(lease) as connection:
        assign_set_aside_to_buckets(connection, {"click": 3600})
    delete_old_set_aside_rows(database, lease, KEPT_MS)
    assert len(set_aside_rows(database)) == 1
    delete_old_set_aside_rows(database, lease, 2 + KEPT_MS)
    assert set_aside_rows(database) == []


def test_an_hour_with_records_of_another_program_is_proved_and_counts_them(world: World) -> None:
    closing.send(world, ["click"])
    for number in range(20):
        world.producers.append_junk("click", b"", b"%d" % number)
    closing.send(world, ["click"])
    closing.until(world, FIRST_HOUR)
    world.drain()
    manifests = [m for (event_type, _), m in world.judge.manifests.items() if event_type == "click"]
    assert [m.set_aside for m in manifests if m.set_aside] == [20]
    (counted,) = (m for m in manifests if m.set_aside)
    (records,) = counted.set_aside_records
    assert (records.records, records.first_offset, records.last_offset) == (20, 1, 20)
    assert counted.grade is Grade.PROVED and sum(m.events for m in manifests) == 2
    assert mark_reviewed(world.database, None, 1) == 20
