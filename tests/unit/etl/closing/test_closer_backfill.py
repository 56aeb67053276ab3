"""Lines that are older than their type's first hour are closed in the hours of their own time: in
order, without a bucket for hours that hold nothing, and never before an hour that is closed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.support.closing import (
    arrive,
    frontier,
    grade,
    hour,
    manifest,
    manifests,
    override,
    poll,
    send_again,
    send_old,
    settle,
    settle_old,
    until,
    wait_of,
)
from tests.support.simulator.truth import FIRST_HOUR, OLD_HOURS, Event
from tests.support.simulator.world import World
from tools import verify_bucket

from hourmark.kafka.topic_names import CONTROL
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark.rollback.version import VERSIONS
from hourmark_etl.buckets.verify import find_gaps
from hourmark_etl.buckets.verify import verify_bucket as verify_stored
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.ledger.backfill import read_backfill_notices
from hourmark_etl.ledger.heartbeat import DriverSigns
from hourmark_etl.ledger.maintenance.overview import read_following_manifest
from hourmark_etl.model import AuditOffsets, Frontier
from hourmark_etl.operators.buckets.exits import BucketExit, exit_of_explanation
from hourmark_etl.operators.explain import Explanation, explain_hour
from hourmark_etl.operators.hour_facts import read_hour_facts
from hourmark_etl.operators.rollback import obstacles
from hourmark_etl.recovery.check import check_chains, check_groups, check_markers

pytestmark = pytest.mark.slow

OLDEST, THIRD = OLD_HOURS[0], OLD_HOURS[3]


def promise_alone(world: World, at: Hour) -> Event:
    """A range whose audit record comes before its event."""
    producers = world.producers
    producers.lines += 1
    event = producers.new_event(producers.lines, 0, "click", at.start_s * 1000)
    producers.add_range(0, (event,))
    producers.promise(producers.ranges[-1], (event,))
    producers.ranges[-1].acked = True
    return event


def previous_hours(world: World) -> list[tuple[str, str | None]]:
    return [(m.hour, m.previous.hour if m.previous else None) for m in manifests(world)]


def asked(world: World, at: Hour) -> Explanation:
    facts = read_hour_facts(world.database, world.config, "click", at, world.clock.now_ms())
    return explain_hour(facts)


def findings(world: World) -> list[str]:
    """Of `hourmark ledger check`."""
    known = world.frontiers()
    on_storage = {"click": [h for t, h in world.judge.closed if t == "click"]}
    return [
        str(found)
        for found in (
            *check_chains(world.database, known),
            *check_groups(world.database, known),
            *check_markers(world.database, world.storage, known, on_storage),
        )
    ]


def test_old_lines_are_closed_in_their_own_hours_while_the_first_hour_is_open(
    world: World,
) -> None:
    for at in (THIRD, OLDEST, OLDEST):
        send_old(world, at)
    settle_old(world)
    assert [(m.hour, m.events, m.late) for m in manifests(world)] == [
        (str(OLDEST), 2, {}),
        (str(THIRD), 1, {}),
    ]
    assert previous_hours(world) == [(str(OLDEST), None), (str(THIRD), str(OLDEST))]
    assert {grade(world, at=at) for at in (OLDEST, THIRD)} == {"proved"}
    assert frontier(world).hour == FIRST_HOUR, "the hours between hold nothing, and are skipped"
    settle(world, hour(1))
    assert previous_hours(world)[2:] == [
        (str(FIRST_HOUR), str(THIRD)),
        (str(hour(1)), str(FIRST_HOUR)),
    ]
    world.judge.check_end()


def test_an_old_hour_waits_for_a_source_that_is_delivering(world: World) -> None:
    world.producers.report(0)
    world.clock.advance(5)
    send_old(world, OLDEST)
    poll(world)
    assert frontier(world).hour == OLDEST and wait_of(world).phase == "reports"
    assert "before the back-fill began" in wait_of(world).what[0]
    send_old(world, THIRD)
    settle(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST), str(THIRD)]


def begin_cut_of(world: World, at: Hour) -> None:
    """A cut whose promises are fixed, and that waits for an event on its way to the mirror."""
    send_old(world, at)
    settle(world)
    world.clock.advance(12)
    send_old(world, at)
    world.producers.report(0)
    arrive(world, *CONTROL)
    world.closer.step()
    assert wait_of(world).phase == "events"


def test_an_older_hour_that_comes_during_a_cut_waits_for_sources_of_its_own(world: World) -> None:
    begin_cut_of(world, THIRD)
    send_old(world, OLDEST)
    poll(world)
    assert manifests(world) == [] and frontier(world).hour == OLDEST
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST), str(THIRD)]
    world.judge.check_end()


def test_an_hour_that_is_promised_past_the_cut_gets_no_empty_bucket(world: World) -> None:
    begin_cut_of(world, OLDEST)
    event = promise_alone(world, THIRD)
    poll(world)
    assert [(m.hour, m.grade.value) for m in manifests(world)] == [(str(OLDEST), "proved")]
    world.producers.append_row(world.producers.ranges[-1], event)
    settle(world, FIRST_HOUR)
    assert manifest(world, at=FIRST_HOUR).late == {str(THIRD): 1}
    assert grade(world, at=FIRST_HOUR) == "proved"
    world.judge.check_end()


def test_hundreds_of_hours_are_written_as_one_round(world: World) -> None:
    for n in range(300):
        send_old(world, Hour(OLDEST.start_s + 7200 * n))
    settle_old(world)
    closed = closed_in_ledger(world)
    assert len(closed) == 300 and {m.grade.value for m in closed} == {"proved"}
    assert len({m.attempt for m in closed}) == 1


def closed_in_ledger(world: World) -> list[Manifest]:
    found, at = [], Hour(OLDEST.start_s - 3600)
    while (m := read_following_manifest(world.database, "click", at)) is not None:
        found.append(m)
        at = Hour.parse(m.hour)
    return found


def test_what_is_older_than_a_closed_hour_is_late(world: World) -> None:
    send_old(world, THIRD)
    settle_old(world)
    send_old(world, OLDEST)
    settle_old(world)
    assert frontier(world).hour == FIRST_HOUR, "it never moves back"
    settle(world, FIRST_HOUR)
    assert manifest(world, at=FIRST_HOUR).late == {str(OLDEST): 1}
    assert grade(world, at=FIRST_HOUR) == "proved"
    world.judge.check_end()


def test_an_hour_between_closed_ones_and_the_first_is_still_filled(world: World) -> None:
    send_old(world, OLDEST)
    settle_old(world)
    before = frontier(world).hour
    send_old(world, THIRD)
    settle_old(world)
    assert (before, frontier(world).hour) == (FIRST_HOUR, FIRST_HOUR)
    settle(world, FIRST_HOUR)
    assert manifest(world, at=FIRST_HOUR).late == {str(THIRD): 1}, (
        "the frontier had passed it, and never moves back"
    )


@pytest.mark.parametrize("later_ms", [0, 2], ids=["", "and old files are cleaned up"])
def test_an_event_of_a_back_filled_hour_that_comes_again_is_dropped(
    world: World, later_ms: int
) -> None:
    send_old(world, OLDEST, "click", "view")
    sent = world.producers.ranges[-1]
    settle_old(world)
    send_again(world, sent, recorded=True)
    settle_old(world)
    world.clean(later_ms)
    send_again(world, sent)
    settle(world, FIRST_HOUR)
    for event_type in ("click", "view"):
        closed = manifests(world, event_type)
        assert [(m.hour, m.events) for m in closed] == [(str(OLDEST), 1), (str(FIRST_HOUR), 0)]
        assert closed[1].duplicates_removed >= 1
    world.judge.check_end()


def test_a_promise_without_its_events_keeps_an_old_hour_open(world: World) -> None:
    send_old(world, THIRD)
    event = promise_alone(world, OLDEST)
    settle_old(world)
    assert frontier(world).hour == OLDEST and wait_of(world).phase == "proof"
    assert manifests(world) == [], "later hours close after it"
    world.producers.append_row(world.producers.ranges[-1], event)
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST), str(THIRD)]


def test_each_old_hour_waits_for_its_events_until_the_deadline_since_the_first_was_noticed(
    world: World,
) -> None:
    deadline_s = world.config.etl.deadline_seconds
    until(world, FIRST_HOUR, deadline_s + 1)  # the driver was not running until now
    send_old(world, OLDEST)
    event = promise_alone(world, THIRD)
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(OLDEST)]
    world.start_closer()
    settle_old(world)
    assert frontier(world).hour == THIRD and wait_of(world).phase == "proof"
    now_ms = world.clock.now_ms()
    facts = dataclasses.replace(
        read_hour_facts(world.database, world.config, "click", THIRD, now_ms),
        driver=DriverSigns(heartbeat_ms=now_ms),
    )
    noticed_ms = read_backfill_notices(world.database)["click"].noticed_ms
    assert explain_hour(facts).times_out_at_ms == noticed_ms + round(1000 * deadline_s)
    world.producers.append_row(world.producers.ranges[-1], event)
    settle_old(world)
    settle_old(world)
    assert [(m.hour, m.grade.value) for m in manifests(world)][:2] == [
        (str(OLDEST), "proved"),
        (str(THIRD), "proved"),
    ]


def test_later_hours_whose_sums_differ_are_proved_in_turn_up_to_the_first_that_stays_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    class Counting(Engine):
        def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
            asked.extend(str(f.hour) for f in frozen if f.event_type == "click")
            return super().prove(frozen, audit_next)

    monkeypatch.setattr(
        world, "engine", lambda database: Counting(world.storage, database, world.config)
    )
    world.start_closer()
    hours = [Hour(OLDEST.start_s + 3600 * n) for n in range(5)]
    for at in (*hours[:3], hours[4]):
        send_old(world, at)
        if at != hours[1]:  # the rows of all others come twice: their sums differ
            send_again(world, world.producers.ranges[-1])
    event = promise_alone(world, hours[3])
    settle_old(world)
    closed = manifests(world)
    assert [(m.hour, m.evidence.method) for m in closed] == [
        (str(hours[0]), "join"),
        (str(hours[1]), "sums"),
        (str(hours[2]), "join"),
    ]
    assert [*dict.fromkeys(asked)] == [str(hours[n]) for n in (0, 2, 3)], "and none after it"
    assert (frontier(world).hour, wait_of(world).phase) == (hours[3], "proof")
    world.producers.append_row(world.producers.ranges[-1], event)
    settle_old(world)
    assert [m.hour for m in manifests(world)] == [str(at) for at in hours]
    world.judge.check_end()


def test_a_rebuilt_ledger_goes_on_where_the_back_fill_was(world: World) -> None:
    for at in (OLDEST, THIRD):
        send_old(world, at)
    settle_old(world)
    before = frontier(world)
    assert findings(world) == []
    world.ledgers.lose_ledger(0)
    rebuilt = frontier(world)
    assert (rebuilt.first_hour, rebuilt.backfilled_hour) == (FIRST_HOUR, THIRD)
    assert rebuilt.previous_hour == before.previous_hour
    settle(world, FIRST_HOUR)
    settle(world, FIRST_HOUR, 13)
    assert previous_hours(world)[2:] == [(str(FIRST_HOUR), str(THIRD))]
    assert findings(world) == []
    world.judge.check_end()


@pytest.mark.parametrize("closed_before", [(), (OLDEST,)], ids=["nothing closed", "one closed"])
def test_a_copy_from_before_a_back_fill_is_refused(
    world: World, closed_before: tuple[Hour, ...]
) -> None:
    for at in closed_before:
        send_old(world, at)
    if closed_before:
        settle_old(world)
    world.ledgers.back_up(0)
    send_old(world, THIRD) if not closed_before else until(world, FIRST_HOUR)
    settle_old(world)
    world.ledgers.restore(0)
    assert world.seen["older copy refused"] == 1


def test_an_operator_forces_an_old_hour_whose_promise_is_not_kept(world: World) -> None:
    send_old(world, THIRD)
    promise_alone(world, OLDEST)
    settle_old(world)
    override(world)
    settle_old(world)  # the type is tried again ten seconds after its proof failed
    settle_old(world)
    assert [(m.hour, m.grade.value) for m in manifests(world)] == [
        (str(OLDEST), "forced"),
        (str(THIRD), "proved"),
    ], "and the hours between, which hold nothing, need no override"


def test_readers_learn_that_a_skipped_hour_is_complete(world: World, tmp_path: Path) -> None:
    skipped, older = OLDEST.next(), OLDEST.previous()
    assert asked(world, skipped).state == "later", "it may be back-filled"
    for at in (OLDEST, THIRD):
        send_old(world, at)
    settle_old(world)
    answer = asked(world, skipped)
    assert (answer.state, answer.grade) == ("skipped", "proved")
    assert exit_of_explanation(answer) is BucketExit.PROVED
    assert f"The marker of {THIRD}, closed as proved" in answer.summary
    assert f"follows that of {OLDEST}" in answer.summary
    assert asked(world, OLDEST).state == "closed"
    assert exit_of_explanation(asked(world, older)) is BucketExit.NO_BUCKET
    assert asked(world, THIRD.next()).state == "later", "no marker states it yet"
    settle(world, FIRST_HOUR)
    assert asked(world, THIRD.next()).state == "skipped"
    hours = sorted(h for t, h in world.judge.closed if t == "click")
    reports = [verify_stored(world.storage, "click", h) for h in hours]
    assert [f for r in reports for f in r.findings] == []
    assert find_gaps("click", hours, reports) == []
    assert len(find_gaps("click", [hours[0], *hours[2:]], reports)) == 1, "one is taken away"
    for name, found in world.storage.content("click").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(found)
    assert verify_bucket.verify(tmp_path / "click", str(FIRST_HOUR)).findings == []


def test_the_version_before_refuses_a_ledger_with_a_back_fill(world: World) -> None:
    def said() -> list[str]:
        return [str(o) for o in obstacles(world.config, VERSIONS["0.3.0"])]

    assert not any("back-filled" in text for text in said())
    send_old(world, OLDEST)
    settle_old(world)
    assert any("hours before the first one of click are back-filled" in text for text in said())
