"""A range that was read in two ways holds what either reading names, and nothing else, until an
override.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import pytest
from tests.support.closing import (
    arrive,
    frontier,
    grade,
    hour,
    manifest,
    override,
    report,
    send,
    send_otherwise,
    settle,
    until,
    wait_of,
    with_engine_alone,
)
from tests.support.rebuilding import lose_ledger, staged_files
from tests.support.simulator.hooks import Killed
from tests.support.simulator.truth import FIRST_HOUR, Range
from tests.support.simulator.world import World

from hourmark_etl.closing.proof import readings
from hourmark_etl.closing.proof.evidence import AuditPath, plan_file_items
from hourmark_etl.closing.proof.readings import AuditComparer
from hourmark_etl.closing.runner import Runner
from hourmark_etl.errors import DataLoss
from hourmark_etl.ledger.conflicts import conflicts, record_compared_files
from hourmark_etl.ledger.overrides import blockers
from hourmark_etl.model import HourState

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


@pytest.fixture
def world(world: World) -> World:
    return with_engine_alone(world)


def read_in_two_ways(world: World, later_ms: int = HOUR_MS) -> Range:
    """A range of one click of now, which stands later in its second reading."""
    start_ms = world.clock.now_ms()
    send(world, ["click"])
    return send_otherwise(world, [("click", start_ms + later_ms)])


def hours_held(world: World) -> dict[str, list[int]]:
    """By type: which hours, counted from the first."""
    found = conflicts(world.database)
    return {t: [(c.hour_s - FIRST_HOUR.start_s) // 3600 for c in of] for t, of in found.items()}


def frontiers(world: World) -> dict[str, int]:
    return {f.event_type: (f.hour.start_s - FIRST_HOUR.start_s) // 3600 for f in world.frontiers()}


def standing(world: World) -> tuple[dict[str, list[int]], dict[str, int]]:
    return hours_held(world), frontiers(world)


def test_readings_of_two_hours_hold_both_until_an_override_and_each_manifest_names_the_range(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sent = read_in_two_ways(world)
    until(world, hour(3))
    with caplog.at_level(logging.ERROR):
        settle(world)
    assert [r.message for r in caplog.records if "audit records that differ" in r.message], (
        caplog.text
    )
    assert standing(world) == ({"click": [0, 1]}, {"click": 0, "view": 4})
    said = wait_of(world)
    assert (
        said.phase == "conflict"
        and f"range {sent.id} has 2 audit records that differ" in said.what[0]
    )
    for at in (0, 1):
        override(world)
        settle(world)
        bucket = manifest(world, "click", hour(at))
        assert (bucket.grade.value, bucket.events) == ("forced", 1)
        (named,) = [e for e in bucket.evidence.waived if e.startswith("read otherwise")]
        assert str(sent.id) in named and named.count("range of host: /log [0, 1)") == 2
        assert "1 of click 2027-01-15T08" in named and "1 of click 2027-01-15T09" in named
    assert standing(world) == ({}, {"click": 4, "view": 4})
    assert grade(world, "click", hour(2)) == "proved"
    assert blockers(world.database, 3600) == {}


def test_a_time_that_moved_within_its_hour_is_told_though_counts_and_sums_are_equal(
    world: World,
) -> None:
    """The tail of an id knows no time: both records promise one event with the same sum."""
    read_in_two_ways(world, 1)
    settle(world, hour(1))
    assert standing(world) == ({"click": [0]}, {"click": 0, "view": 2})
    override(world)
    settle(world)
    bucket = manifest(world, "click", hour(0))
    assert (bucket.grade.value, bucket.events) == ("forced", 2)


def test_no_deadline_waives_it(world: World) -> None:
    read_in_two_ways(world)
    settle(world, hour(1), 3 * world.config.etl.deadline_seconds)
    assert (hours_held(world), frontiers(world)["click"]) == ({"click": [0, 1]}, 0)


def test_hours_before_the_first_that_is_named_are_closed_with_their_backlog(world: World) -> None:
    send(world, ["click"])
    until(world, hour(1))
    read_in_two_ways(world)
    settle(world, hour(5))
    assert standing(world) == ({"click": [2, 3]}, {"click": 2, "view": 6})


@pytest.mark.parametrize(
    ("readings", "named"),
    [
        ([("view", 1)], {"click": [0], "view": [0]}),
        ([("click", 0)], {"click": [0]}),
        ([("click", 0), ("click", 2 * HOUR_MS)], {"click": [0, 2]}),
    ],
    ids=["of another type", "with fewer events", "of another hour in part"],
)
def test_whatever_differs_holds_what_either_names(
    world: World, readings: list[tuple[str, int]], named: dict[str, list[int]]
) -> None:
    start_ms = world.clock.now_ms()
    send(world, ["click", "click"])
    send_otherwise(world, [(event_type, start_ms + later_ms) for event_type, later_ms in readings])
    settle(world, hour(4))
    assert hours_held(world) == named
    assert frontiers(world) == {t: named.get(t, [5])[0] for t in ("click", "view")}


def test_a_record_that_comes_again_as_it_was_is_no_conflict(world: World) -> None:
    send(world, ["click", "view"])
    sent = world.producers.ranges[-1]
    world.producers.promise(sent, sent.events)
    arrive(world)
    settle(world, FIRST_HOUR)
    world.producers.promise(sent, sent.events)
    settle(world, hour(1))
    assert standing(world) == ({}, {"click": 2, "view": 2})
    assert {m.grade.value for m in world.judge.manifests.values()} == {"proved"}


def test_a_second_reading_of_a_closed_hour_holds_the_hour_that_would_list_it_as_late(
    world: World,
) -> None:
    start_ms = world.clock.now_ms()
    send(world, ["click", "click"])
    settle(world, FIRST_HOUR)
    assert grade(world) == "proved"
    sent = send_otherwise(world, [("click", start_ms)])  # with fewer events
    settle(world, hour(1))
    assert standing(world) == ({"click": [1]}, {"click": 1, "view": 2})
    override(world)
    settle(world)
    assert grade(world, "click", hour(1)) == "forced"
    world.producers.promise(sent, sent.otherwise)
    world.producers.promise(sent, sent.events)
    settle(world, hour(2))
    assert standing(world) == ({}, {"click": 3, "view": 3}), (
        "both are known: copies say nothing new"
    )
    assert grade(world, "click", hour(2)) == "proved"


def test_a_third_reading_is_found_too(world: World) -> None:
    start_ms = world.clock.now_ms()
    read_in_two_ways(world)
    settle(world, FIRST_HOUR)
    override(world)
    settle(world)
    send_otherwise(world, [("click", start_ms + 2 * HOUR_MS)])
    settle(world, hour(2))
    assert hours_held(world) == {"click": [1, 2]}
    assert "has 3 audit records that differ" in wait_of(world).what[0]


def test_what_is_sealed_already_is_published_and_the_hour_after_it_is_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_ms = world.clock.now_ms()
    send(world, ["click", "click"])
    until(world, FIRST_HOUR)
    report(world)
    publish = world.storage.rename_new

    def killed(source: str, target: str, *, unpublished: bool = False) -> None:
        publish(source, target, unpublished=unpublished)
        if target == FIRST_HOUR.bucket_path("click"):
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(world.storage, "rename_new", killed)
        while True:
            world.closer.step()
    assert frontier(world).state is HourState.SEALED
    send_otherwise(world, [("click", start_ms)])
    world.start_closer()
    settle(world, hour(1))
    assert grade(world) == "proved"
    assert (hours_held(world), frontiers(world)["click"]) == ({"click": [1]}, 1)


@pytest.mark.slow
@pytest.mark.parametrize("point", range(1, 30))
def test_a_closer_that_is_killed_anywhere_finds_it_all_the_same(world: World, point: int) -> None:
    def kill() -> None:
        raise Killed

    read_in_two_ways(world)
    until(world, hour(1))
    report(world)
    world.points.arm(point, kill)
    for _ in range(3):
        world.close_step(0)
    world.points.disarm()
    settle(world)
    assert standing(world) == ({"click": [0, 1]}, {"click": 0, "view": 2})


def test_a_rebuilt_ledger_finds_it_again(world: World) -> None:
    read_in_two_ways(world)
    settle(world, hour(1))
    assert hours_held(world) == {"click": [0, 1]}
    lose_ledger(world)
    assert hours_held(world) == {}
    settle(world)
    assert (hours_held(world), frontiers(world)["click"]) == ({"click": [0, 1]}, 0)
    for _ in range(2):
        override(world)
        settle(world)
    lose_ledger(world)
    settle(world, hour(2))
    assert (hours_held(world), frontiers(world)["click"]) == ({}, 3), (
        "both stand in closed buckets, which name the range"
    )


def test_an_audit_file_that_nothing_makes_readable_holds_its_own_types_until_an_override(
    world: World,
) -> None:
    send(world, ["view"])
    arrive(world)
    (path,) = staged_files(world, "audit")
    world.storage.damage(path)

    def gone(lease: object, path: str) -> str:
        raise DataLoss(f"{path} cannot be staged again")

    world.pipeline.restage = gone  # type: ignore[method-assign]
    world.start_closer()
    until(world, hour(1))
    report(world)
    for _ in range(30):
        world.closer.step()
        world.clock.advance(1)
    assert frontiers(world) == {"click": 2, "view": 0}
    override(world, "view")
    for _ in range(3):
        world.closer.step()
    assert frontiers(world)["view"] == 2
    world.check()
    assert grade(world, "view") == "forced"


DAMAGE = (
    "found_at_ms = found_at_ms + 1",
    "type = 'climk'",
    "hour = hour - 7200",
    "hour = hour + 4294967296",
)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_releases_nothing_and_is_found_anew_by_the_next_cut(
    world: World, damage: str
) -> None:
    read_in_two_ways(world, 3 * HOUR_MS)
    settle(world, hour(5))
    found = hours_held(world)
    assert found == {"click": [0, 3]}
    with world.database.transaction() as connection:
        connection.exec_driver_sql(
            f"UPDATE conflicts SET {damage} WHERE hour = (SELECT max(hour) FROM conflicts)"
        )
    settle(world, hour(6))
    assert standing(world) == (found, {"click": 0, "view": 7})
    for at in (0, 3):
        override(world)
        settle(world)
        assert grade(world, "click", hour(at)) == "forced"
    assert standing(world) == ({}, {"click": 7, "view": 7})


def test_only_files_of_ranges_observed_at_the_same_time_are_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three files that are compared already, a copy of a range of the second one needs that
    alone.
    """
    comparer = AuditComparer(Runner(), world.storage, world.database)
    sent = []
    for _ in range(3):
        send(world, ["click"])
        sent.append(world.producers.ranges[-1])
        arrive(world)
        world.clock.advance(1)
    first = comparer.compare_next(())
    assert first is not None and first.differences == () and len(first.files) == 3
    assert comparer.compare_next(()) == first, "until that is kept"
    record_compared_files(world.database, world.closer.lease, first.files, ())
    assert comparer.compare_next(()) is None
    world.producers.promise(sent[1], sent[1].events)
    arrive(world)
    read: list[set[str]] = []

    def noting(paths: Collection[AuditPath]) -> Any:
        read.append({of.path for of in paths})
        return plan_file_items(paths)

    monkeypatch.setattr(readings, "plan_file_items", noting)
    again = comparer.compare_next(())
    assert again is not None and again.differences == ()
    assert read == [{file.path for file in again.files}, {first.files[1].path}]


def test_many_files_are_compared_in_portions(world: World) -> None:
    comparer = AuditComparer(Runner(), world.storage, world.database, rows_max=2)
    for n in range(5):
        send(world, ["click"])
        arrive(world)
        if n == 3:
            send_otherwise(world, [("view", world.clock.now_ms())])
            arrive(world)
    sizes, found = [], 0
    while compared := comparer.compare_next(()):
        sizes.append(len(compared.files))
        found += len(compared.differences)
        record_compared_files(world.database, world.closer.lease, compared.files, ())
    assert (sizes, found) == ([2, 2, 2], 1)
