"""Late rows of a range that was settled are copies of what stands in closed buckets, or they hold
the hour that lists them.
"""

from __future__ import annotations

import json

import pytest
from sqlalchemy import select, update
from tests.support.closing import (
    frontier,
    grade,
    hour,
    manifest,
    override,
    poll,
    report,
    send,
    send_again,
    send_otherwise,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.rebuilding import lose_ledger
from tests.support.simulator.truth import FIRST_HOUR
from tests.support.simulator.world import World

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import events_topic
from hourmark_etl.closing.proof.proof import FINDINGS_MAX
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.conflicts import conflicts

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
_BUCKETS = tables.buckets


@pytest.fixture
def world(world: World) -> World:
    return with_engine_alone(world)


def first_hour_is_closed(world: World) -> int:
    """With a range of two clicks of it, recorded; when they were."""
    start_ms = world.clock.now_ms()
    send(world, ["click", "click"], start_ms)
    settle(world, FIRST_HOUR)
    assert grade(world) == "proved"
    return start_ms


def close_by_override(world: World) -> None:
    override(world)
    settle(world)


def test_a_late_second_reading_without_a_record_holds_the_hour_that_lists_it_until_an_override(
    world: World,
) -> None:
    start_ms = first_hour_is_closed(world)
    sent = send_otherwise(world, [("click", start_ms), ("click", start_ms + 1)], recorded=False)
    settle(world, hour(1), 3 * world.config.etl.deadline_seconds)
    assert {f.event_type: f.hour for f in world.frontiers()} == {"click": hour(1), "view": hour(8)}
    said = wait_of(world)
    assert said.phase == "conflict"
    assert said.what == (
        f"range {sent.id} was settled by its audit record, but 1 late events of {FIRST_HOUR} "
        "are in no closed bucket: was it "
        "read a second time, otherwise, by a delivery service that died before its audit "
        "record?",
    )
    close_by_override(world)
    bucket = manifest(world, "click", hour(1))
    assert (bucket.grade.value, bucket.late) == ("forced", {str(FIRST_HOUR): 1})
    (named,) = [e for e in bucket.evidence.waived if e.startswith("read otherwise")]
    assert str(sent.id) in named
    assert conflicts(world.database) == {}
    assert grade(world, "click", hour(2)) == "proved"


@pytest.mark.parametrize("form", ["by its fields", "by the text of version 0.3.0"])
def test_more_of_a_second_reading_that_an_override_has_let_in_holds_nothing_again(
    world: World, form: str
) -> None:
    start_ms = first_hour_is_closed(world)
    send_otherwise(world, [("click", start_ms + 1)], recorded=False)
    settle(world, hour(1))
    close_by_override(world)
    rewrite_manifests(world, form)
    send_otherwise(world, [("click", start_ms + 1), ("click", start_ms + 2)], recorded=False)
    settle(world, hour(2))
    assert grade(world, "click", hour(2)) == "proved"


@pytest.mark.parametrize(
    "recorded", [False, True], ids=["without a record", "with its record again"]
)
def test_copies_of_what_closed_buckets_hold_are_dropped_and_the_hour_is_proved(
    world: World, recorded: bool
) -> None:
    first_hour_is_closed(world)
    send_again(world, world.producers.ranges[-1], recorded=recorded)
    settle(world, hour(1))
    bucket = manifest(world, "click", hour(1))
    assert (bucket.grade.value, bucket.events, bucket.duplicates_removed, bucket.unaudited) == (
        "proved",
        0,
        2,
        0,
    )


def test_beside_copies_with_their_record_it_is_told_too(world: World) -> None:
    start_ms = first_hour_is_closed(world)
    send_again(world, world.producers.ranges[-1], recorded=True)
    send_otherwise(world, [("click", start_ms + 1)], recorded=False)
    settle(world, hour(1))
    assert (frontier(world).hour, wait_of(world).phase) == (hour(1), "conflict")


@pytest.mark.parametrize("forgets", ["damaged row", "lost ledger"])
def test_where_the_conflict_is_forgotten_it_is_found_again(world: World, forgets: str) -> None:
    start_ms = first_hour_is_closed(world)
    send_otherwise(world, [("click", start_ms + 1), ("click", start_ms)], recorded=False)
    settle(world, hour(1))
    if forgets == "lost ledger":
        lose_ledger(world)
    else:
        with world.database.transaction() as connection:
            connection.exec_driver_sql("UPDATE conflicts SET hour = hour + 7200")
    settle(world, hour(2))
    assert (frontier(world).hour, wait_of(world).phase) == (hour(1), "conflict")


def test_its_record_comes_after_all_and_is_named_too(world: World) -> None:
    start_ms = first_hour_is_closed(world)
    sent = send_otherwise(world, [("click", start_ms + 1), ("click", start_ms)], recorded=False)
    settle(world, hour(1))
    world.producers.promise(sent, sent.otherwise)
    settle(world)
    close_by_override(world)
    named = [
        e
        for e in manifest(world, "click", hour(1)).evidence.waived
        if e.startswith("read otherwise")
    ]
    assert len(named) == 1 and "has 2 audit records that differ" in named[0]
    assert manifest(world, "click", hour(1)).late == {str(FIRST_HOUR): 1}


def test_of_many_ranges_the_first_are_named_and_the_others_counted(world: World) -> None:
    start_ms = world.clock.now_ms()
    for _ in range(FINDINGS_MAX + 2):
        send(world, ["click"], start_ms)
    settle(world, FIRST_HOUR)
    for sent in list(world.producers.ranges):
        send_otherwise(world, [("click", start_ms + 1)], sent=sent, recorded=False)
    settle(world, hour(1))
    close_by_override(world)
    bucket = manifest(world, "click", hour(1))
    assert (bucket.grade.value, bucket.events) == ("forced", FINDINGS_MAX + 2)
    assert (
        len([e for e in bucket.evidence.waived if e.startswith("read otherwise: range")])
        == FINDINGS_MAX
    )
    assert bucket.evidence.waived[-1] == "and 2 more ranges"


def rewrite_manifests(world: World, form: str) -> None:
    """In the ledger: without the sentences for people, or without the field that version 0.3.0 did
    not write.
    """
    with world.database.transaction() as connection:
        for event_type, hour_s, text in connection.execute(
            select(_BUCKETS.c.type, _BUCKETS.c.hour, _BUCKETS.c.manifest)
        ).all():
            content = json.loads(text)
            if form == "by its fields":
                content["evidence"]["waived"] = ["reworded" for _ in content["evidence"]["waived"]]
            else:
                content.pop("lacks", None)
            own = (_BUCKETS.c.type == event_type, _BUCKETS.c.hour == hour_s)
            connection.execute(update(_BUCKETS).where(*own).values(manifest=json.dumps(content)))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["by its fields", "by the text of version 0.3.0"])
@pytest.mark.parametrize("ranges", [1, FINDINGS_MAX + 1])
def test_rows_that_a_bucket_was_closed_without_and_names_or_counts_may_come_late(
    world: World, ranges: int, form: str
) -> None:
    """The promise was settled by a deadline, not by its rows: these are no second reading."""
    start_ms = world.clock.now_ms()
    for _ in range(ranges):
        send(world, ["click", "click"], start_ms)
    sent = world.producers.ranges[-1]
    world.judge.given_up |= world.producers.events.keys()  # it wants each range to be named
    for _ in range(2 * ranges):
        world.pipeline.mirror.copy(Partition(events_topic("click"), 0), 1, drop=0)
    settle(world, FIRST_HOUR, world.config.etl.deadline_seconds)
    assert grade(world) == "timed_out"
    rewrite_manifests(world, form)
    send_again(world, sent)
    settle(world, hour(4))
    assert frontier(world).hour == hour(5)
    (late,) = [m for m in world.judge.manifests.values() if m.type == "click" and m.late]
    assert (late.grade.value, late.events) == ("proved", 2)


def test_a_closed_bucket_that_cannot_be_read_is_named_and_nothing_is_proved_without_it(
    world: World,
) -> None:
    first_hour_is_closed(world)
    send_again(world, world.producers.ranges[-1])
    folder = FIRST_HOUR.bucket_path("click")
    kept = {
        path: world.storage.read(path)
        for path in world.storage.content(folder)
        if path.endswith(".avro")
    }
    with world.database.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM id_indexes")
    for path in kept:
        world.storage.delete(path)
    until(world, hour(1), seconds=3 * world.config.etl.deadline_seconds)
    report(world)
    for _ in range(8):
        world.clock.advance(11)
        world.closer.step()
        world.closer.step()
    assert frontier(world).hour == hour(1)
    assert "it is unknown which late events the bucket already contains" in wait_of(world).what[0]
    for path, content in kept.items():
        world.storage.write_new(path, content)
    world.clock.advance(11)
    poll(world)
    assert grade(world, "click", hour(1)) == "proved"
