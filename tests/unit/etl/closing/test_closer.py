"""The closing machine by scripted histories: idle partitions, hosts that vanish and return, clocks
that lie, overrides.

Everything of closing is real; clusters, mirror and clock are played
(tests/support/simulator/world.py).
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.closing import (
    frontier,
    grade,
    hour,
    line,
    manifest,
    open_hours,
    override,
    override_all,
    poll,
    settle,
    until,
    wait_of,
)
from tests.support.simulator.damage import MARKERS, FileFault
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, TYPES
from tests.support.simulator.world import World
from tools import verify_bucket

from hourmark.config.groups import AvroCodec
from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, events_topic
from hourmark.records.manifest import MARKER
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.overrides import blockers, overrides, put_override
from hourmark_etl.model import AuditOffsets, Frontier, HourState
from hourmark_etl.storage import SafeMode

CLICK = EDGE_PARTITIONS[2]
assert CLICK.topic == events_topic("click")


def drop_one(world: World) -> None:
    """The mirror drops an event that was sent once."""
    logs = {
        p: [r for r in log.records if r]
        for p, log in world.producers.edge.logs.items()
        if p.topic.startswith("events.")
    }
    times = collections.Counter(r.key[:16] for records in logs.values() for r in records)
    for p, records in logs.items():
        for at, record in enumerate(records):
            if times[record.key[:16]] == 1:
                world.pipeline.mirror.copy(p, at + 1, drop=at)
                return
    raise AssertionError("every event was sent more than once")


def test_types_without_traffic_and_idle_partitions_close_within_a_poll_of_the_last_condition(
    world: World,
) -> None:
    settle(world, FIRST_HOUR)
    assert all(grade(world, t) == "proved" and manifest(world, t).files == [] for t in TYPES)
    assert open_hours(world) == {hour(1)}


def test_nothing_closes_before_its_end_however_often_the_closer_polls(world: World) -> None:
    settle(world, FIRST_HOUR, -1.0)
    assert open_hours(world) == {FIRST_HOUR}
    assert blockers(world.database, FIRST_HOUR.length_s) == {}, "to wait for time alone is no wait"


def test_a_backlog_of_many_hours_and_types_is_two_proofs_and_one_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    summed: list[int] = []
    written: list[int] = []

    class Counting(Engine):
        def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
            asked.append(len(frozen))
            return super().prove(frozen, audit_next)

        def prove_by_sums(
            self, frozen: Sequence[Frontier], audit_next: AuditOffsets
        ) -> list[Proof | None]:
            summed.append(len(frozen))
            return super().prove_by_sums(frozen, audit_next)

        def write(
            self,
            sealed: Collection[SealedHour],
            schemas: Mapping[int, str],
            folder: str,
            codec: AvroCodec,
        ) -> list[WrittenHour]:
            written.append(len(sealed))
            return super().write(sealed, schemas, folder, codec)

    monkeypatch.setattr(
        world, "engine", lambda database: Counting(world.storage, database, world.config)
    )
    world.start_closer()
    for n in range(5):
        line(world)
        until(world, hour(n))
    settle(world)
    assert open_hours(world) == {hour(5)}
    assert (asked, summed, written) == ([2], [8], [10])
    world.judge.check_end()


def test_a_host_that_vanishes_is_waived_after_the_deadline_by_name_and_not_awaited_again(
    world: World,
) -> None:
    line(world)
    world.producers.host_dies(0)
    settle(world, FIRST_HOUR)
    assert frontier(world).hour == FIRST_HOUR
    wait = wait_of(world)
    assert wait.phase == "reports" and "tailer host-0 source app" in wait.what[0]
    settle(world, FIRST_HOUR, 7199)
    assert frontier(world).hour == FIRST_HOUR
    settle(world, FIRST_HOUR, 7200)
    closed = manifest(world)
    assert closed.grade.value == "timed_out"
    assert (
        "source app of tailer host-0" in closed.evidence.waived[0]
        and len(closed.evidence.waived) == 1
    )
    assert [r.host_name for r in reporters(world.database) if r.waived] == ["host-0"]
    settle(world)
    assert grade(world, "click", hour(1)) == "proved", "who was waived once is not awaited again"
    assert blockers(world.database, FIRST_HOUR.length_s) == {}


def test_another_types_sources_are_not_held_up_by_a_host_that_vanished(world: World) -> None:
    world.producers.host_dies(2)  # of source web, which carries view alone
    settle(world, FIRST_HOUR)
    assert grade(world) == "proved"
    assert frontier(world, "view").hour == FIRST_HOUR


@pytest.mark.slow
def test_a_host_that_returns_after_two_days_is_awaited_again_and_its_old_events_are_late_and_proved(
    world: World,
) -> None:
    for seed in range(40):  # until the host that dies holds something
        world.producers.cut_range(seed)
    held = [
        e
        for r in world.producers.ranges
        if r.host == 0
        for e in r.events
        if e.event_type == "click"
    ]
    assert held
    world.producers.host_dies(0)
    world.producers.send_all(0)
    settle(world, FIRST_HOUR, 48 * 3600)
    settle(world)
    assert grade(world) == "timed_out"
    closed_before = frontier(world).hour
    world.producers.host_returns(0)
    world.producers.report(0)  # it says that it holds something
    until(world, closed_before)
    world.producers.report(0)
    poll(world)
    assert frontier(world).hour == closed_before, "it is awaited again"
    world.producers.send_all(0)
    settle(world)
    late = manifest(world, "click", closed_before)
    assert late.grade.value == "proved"
    assert late.late == {str(FIRST_HOUR): len(held)}
    world.judge.check_end()


def test_a_host_that_reports_and_stays_behind_times_out_each_hour_by_its_own_deadline(
    world: World,
) -> None:
    for seed in range(40):
        world.producers.cut_range(seed)  # nothing is sent
    settle(world, FIRST_HOUR, 7200)
    assert grade(world) == "timed_out"
    settle(world)
    assert frontier(world).hour == hour(1), "its report made it awaited again"
    settle(world, hour(1), 7200)
    assert grade(world, "click", hour(1)) == "timed_out"


def test_reports_that_lay_unread_while_the_etl_was_down_waive_nobody(world: World) -> None:
    settle(world)
    until(world, FIRST_HOUR, seconds=4 * 3600)
    world.producers.report(0)
    settle(world)
    assert {m.grade.value for m in world.judge.manifests.values()} == {"proved"}


def test_a_closers_clock_that_runs_ahead_closes_nothing_and_is_named(world: World) -> None:
    until(world, FIRST_HOUR, seconds=-1800)
    world.producers.report(0)
    until(world, FIRST_HOUR, seconds=8 * 3600)  # by the closer alone: nobody reports at this time
    poll(world)
    assert world.judge.manifests == {}
    assert "old according to the closer's clock" in wait_of(world).what[0]


def test_a_services_clock_that_runs_ahead_closes_nothing_and_is_named(world: World) -> None:
    until(world, FIRST_HOUR)
    world.producers.report(0)
    world.producers.say(
        "service", "6" * 32, 1, "api", world.clock.now_ms() + 8 * 3_600_000, ahead_ms=8 * 3_600_000
    )
    poll(world)
    assert world.judge.manifests == {}
    assert "service host-6 source api" in wait_of(world).what[0]


def test_a_promise_that_is_not_kept_waits_in_the_ledgers_words_and_times_out(world: World) -> None:
    line(world, 10)
    drop_one(world)
    settle(world, FIRST_HOUR)
    (stuck,) = [t for t in TYPES if frontier(world, t).hour == FIRST_HOUR]
    assert wait_of(world, stuck).phase == "proof"
    assert "range " in wait_of(world, stuck).what[0]
    since_ms = wait_of(world, stuck).since_ms
    world.clock.advance(60)
    settle(world)
    assert wait_of(world, stuck).since_ms == since_ms
    settle(world, FIRST_HOUR, 7200)
    assert grade(world, stuck) == "timed_out"
    assert manifest(world, stuck).evidence.waived[0].startswith("not kept: range")
    assert grade(world, stuck, hour(1)) == "proved", "it is not held against later buckets"
    world.judge.check_end()


def test_an_override_is_for_the_frontier_hour_alone_and_needs_a_reason(world: World) -> None:
    now_ms = hour(3).end_ms
    with pytest.raises(UsageError, match="requires a reason"):
        put_override(world.database, "click", FIRST_HOUR, " ", "ada", now_ms)
    with pytest.raises(UsageError, match="the next hour of click is 2027-01-15T08"):
        put_override(world.database, "click", hour(1), "why not", "ada", now_ms)
    with pytest.raises(UsageError, match="has no event type nothing"):
        put_override(world.database, "nothing", FIRST_HOUR, "why not", "ada", now_ms)
    with pytest.raises(UsageError, match="has not ended"):
        put_override(world.database, "click", FIRST_HOUR, "why not", "ada", FIRST_HOUR.end_ms - 1)
    assert overrides(world.database) == {}


def test_an_override_closes_an_hour_whatever_is_missing_and_names_it_all(world: World) -> None:
    line(world, 10)
    world.producers.host_dies(0)
    until(world, FIRST_HOUR)
    world.pipeline.stage_all(0)  # nothing was mirrored
    override(world, "click", "the auditors are at the door")
    assert world.closer.step() == 1
    world.check()
    forced = manifest(world)
    assert forced.grade.value == "forced"
    assert forced.evidence.waived[0] == "forced by ada: the auditors are at the door"
    said = "\n".join(forced.evidence.waived)
    assert "mirror: events.click-" in said and "the cut is" in said
    assert "no delivery service has reported yet" in said
    assert overrides(world.database) == {}, "it is done"
    assert frontier(world, "view").hour == FIRST_HOUR
    settle(world)
    settle(world, hour(1), 7200)
    assert manifest(world, "click", hour(1)).late, "what was not there comes late"
    world.judge.check_end()


def test_a_gap_keeps_its_type_open_until_an_override_accepts_it_and_then_hours_are_proved_again(
    world: World,
) -> None:
    line(world)
    settle(world)  # the mirror is known to stand somewhere
    line(world, 10)
    assert world.pipeline.mirror.lag(CLICK)
    world.pipeline.mirror.overtake(CLICK)
    settle(world, FIRST_HOUR, 10_000)
    assert frontier(world).hour == FIRST_HOUR, "no time waives a gap"
    assert "log start passed the mirror" in wait_of(world).what[0]
    assert grade(world, "view") == "proved"
    override(world)
    settle(world)
    assert grade(world) == "forced"
    assert any("accepted" in e or "may be missing" in e for e in manifest(world).evidence.waived)
    for later in (
        hour(1),
        hour(2),
        hour(3),
    ):  # the mirror has nothing to copy, and its position stays before the gap
        settle(world, later, 10_000)
        assert grade(world, "click", later) == "proved"


def test_a_gap_in_promises_holds_all_types_and_takes_an_override_for_each(world: World) -> None:
    line(world)
    settle(world)
    line(world)
    audit = Partition(AUDIT, 0)
    assert world.pipeline.mirror.lag(audit)
    world.pipeline.mirror.overtake(audit)
    settle(world, FIRST_HOUR)
    assert open_hours(world) == {FIRST_HOUR}
    override(world)
    settle(world)
    assert grade(world) == "forced"
    assert frontier(world, "view").hour == FIRST_HOUR, (
        "one type's override accepts nothing for the others"
    )
    settle(world, hour(1))
    assert frontier(world).hour == hour(1), "nor for its own later hours"
    assert override_all(world) == {"click": hour(1), "view": FIRST_HOUR}
    settle(world)
    assert {grade(world, "click", hour(1)), grade(world, "view")} == {"forced"}
    assert grade(world, "view", hour(1)) == "forced", "it had begun before the gap was accepted"
    settle(world, hour(3))
    assert grade(world, "view", hour(3)) == "proved"


def test_storage_that_refuses_is_waited_for_and_closing_goes_on_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.storage.rename_new

    def refuse(source: str, target: str, *, unpublished: bool = False) -> None:
        raise SafeMode(target, "hdfs://nn/" + target, "name node is in safe mode")

    monkeypatch.setattr(world.storage, "rename_new", refuse)
    settle(world, FIRST_HOUR)
    assert {f.state for f in world.frontiers()} == {HourState.SEALED}
    settle(world)
    assert wait_of(world).phase == "storage"
    assert "safe mode" in wait_of(world).what[0]
    monkeypatch.setattr(world.storage, "rename_new", real)
    world.clock.advance(11)
    settle(world)
    assert grade(world) == "proved"
    settle(world)
    assert blockers(world.database, FIRST_HOUR.length_s) == {}


def test_an_unreadable_staged_file_is_staged_again_and_the_hour_closes(world: World) -> None:
    line(world)
    settle(world)
    (path,) = (p for p in world.storage.content("_staging") if "/events-" in p)
    world.storage.delete(path)
    world.seen["remove in _staging"] += 1  # the plain second proof would need it
    settle(world, FIRST_HOUR)
    assert world.seen["staged again"] == 1
    assert open_hours(world) == {hour(1)}
    world.judge.check_end()


def test_two_live_incarnations_of_one_host_are_an_alarm_and_no_more(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for n, incarnation in enumerate(("one", "two", "one", "two")):
        world.clock.advance(2)
        world.producers.say(
            "tailer", "0" * 32, n + 5, "app", world.clock.now_ms(), incarnation=incarnation
        )
        with caplog.at_level(logging.ERROR):
            poll(world)
    assert sum("two live incarnations" in r.message for r in caplog.records) == 2
    settle(world, FIRST_HOUR)
    assert grade(world) == "proved"


@pytest.mark.slow
def test_a_paused_closer_that_wakes_after_another_published_changes_nothing(world: World) -> None:
    line(world)
    until(world, FIRST_HOUR)
    world.points.disarm()
    for point in range(1, 60, 2):  # random histories pause at the others
        world.clock.advance(3600)
        world.producers.cut_range(point)
        world.producers.send_all(point)
        world.pause(point - 1)
        settle(world)
        world.wake(0)
        world.check()
    world.drain()
    world.judge.check_end()
    assert world.seen["closer woken"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flip", "remove"])
def test_no_hour_follows_a_damaged_marker_and_a_closer_that_stood_still_follows_what_was_closed(
    world: World, kind: str
) -> None:
    line(world)
    settle(world, FIRST_HOUR)
    for point in range(0, 40, 3):
        last = max(hour for event_type, hour in world.judge.closed if event_type == "click")
        world.damages.spoil(
            FileFault(kind, MARKERS, 1),
            f"{last.bucket_path('click')}/{MARKER}",
            bit=8 * (60 + 20 * point),
        )
        world.check()
        until(world, last.next())
        world.pause(point)
        settle(world)
        assert ("click", last.next()) not in world.judge.closed
        world.damages.bring_back_markers()
        world.wake(0)
        world.clock.advance(60)
        settle(world)
        assert ("click", last.next()) in world.judge.closed
    assert world.seen["closer woken"] > 5


def test_markers_of_a_type_are_chained_through_a_backlog_and_wait_for_one_that_is_gone(
    world: World, tmp_path: Path
) -> None:
    line(world)
    settle(
        world, hour(3)
    )  # four hours in one round; the judge compares each marker with the one before it
    assert len(world.judge.manifests) == 4 * len(TYPES)
    path = f"{hour(3).bucket_path('click')}/{MARKER}"
    content = world.storage.read(path)
    world.storage.delete(path)
    world.judge.closed.pop(("click", hour(3)))
    settle(world, hour(4))
    assert frontier(world).hour == hour(4) and frontier(world, "view").hour == hour(5)
    assert "follows a bucket that no longer exists" in str(wait_of(world))
    world.storage.write_new(path, content)
    world.clock.advance(60)
    settle(world)
    assert frontier(world).hour == hour(5)
    for name, found in world.storage.content("click").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(found)
    assert verify_bucket.verify(tmp_path / "click", str(hour(4))).findings == []
