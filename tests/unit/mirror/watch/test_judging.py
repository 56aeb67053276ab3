"""Each alarm of the mirror, from the fault to its name: looks at a small world, as the watch takes
them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import CONNECTOR
from hourmark.process.alarms import Alarm, AlarmName
from hourmark_mirror.run.task_status import ConnectorTaskFailure
from hourmark_mirror.watch.alarms import (
    STALL_MS,
    AlarmLimits,
    evaluate_alarms,
    retention_left_s,
    unsampled_ranges,
)
from hourmark_mirror.watch.observation import (
    MirrorObservation,
    OversizedRecord,
    TruncatedRecord,
    UnsampledRange,
    WatchState,
)

A, P = "events.a", Partition("events.a", 0)
HOUR_MS = 3_600_000
LOOK_MS = 10_000
NOW_MS = 1_800_000_000_000
WELL = MirrorObservation(
    now_ms=NOW_MS,
    ids={A: "id-1"},
    remote_ids={A: "remote-1"},
    starts={P: 0},
    ends={P: 100},
    positions={P: 100},
    remote_starts={P: 0},
    remote_ends={P: 110},
    retention_ms={A: 168 * HOUR_MS},
)


class Looks:
    """One look after the other, ten seconds apart."""

    def __init__(self, **limits: float) -> None:
        self.now, self.memory = WELL, WatchState()
        self.limits = AlarmLimits(24.0, limits, 2)
        assert self.observe() == []

    def observe(
        self, after_ms: int = LOOK_MS, *, accept: bool = False, **changes: Any
    ) -> list[Alarm]:
        self.now = dataclasses.replace(self.now, now_ms=self.now.now_ms + after_ms, **changes)
        found = evaluate_alarms(self.now, self.memory, self.limits, accept=accept)
        self.memory = found.state
        return found.alarms

    def names(
        self, after_ms: int = LOOK_MS, *, accept: bool = False, **changes: Any
    ) -> list[tuple[str, str]]:
        return [
            (alarm.name, alarm.subject)
            for alarm in self.observe(after_ms, accept=accept, **changes)
        ]


@pytest.fixture
def looks() -> Looks:
    return Looks()


def test_a_mirror_that_copies_is_no_alarm(looks: Looks) -> None:
    for end in range(200, 2000, 100):
        assert looks.observe(ends={P: end}, positions={P: end - 50}, remote_ends={P: end}) == []


def test_retention_that_comes_near_what_is_not_copied_is_told_in_hours_while_nothing_is_lost(
    looks: Looks,
) -> None:
    written_ms = looks.now.now_ms - 140 * HOUR_MS
    assert looks.observe(ends={P: 500}, uncopied_ms={P: written_ms}) == [], "28 hours are left"
    (alarm,) = looks.observe(uncopied_ms={P: written_ms - 8 * HOUR_MS})
    assert (alarm.name, alarm.subject) == (AlarmName.RETENTION_NEAR, str(P))
    assert "offset 100" in alarm.seen and "in 20.0 hours" in alarm.seen
    assert retention_left_s(looks.now)[P] == pytest.approx(20 * 3600, abs=60)
    assert looks.observe(positions={P: 500}, uncopied_ms={}) == [], "over once it has caught up"


def test_of_a_short_retention_its_half_is_near(looks: Looks) -> None:
    two_hours = {A: 2 * HOUR_MS}
    assert (
        looks.observe(
            ends={P: 500}, retention_ms=two_hours, uncopied_ms={P: looks.now.now_ms - HOUR_MS // 2}
        )
        == []
    )
    assert looks.names(uncopied_ms={P: looks.now.now_ms - HOUR_MS * 3 // 2}) == [
        (AlarmName.RETENTION_NEAR, str(P))
    ]
    assert looks.observe(retention_ms={A: -1}) == [], "what is kept for ever is never overtaken"


def test_a_log_start_past_the_position_is_named_with_its_offsets_and_stands(looks: Looks) -> None:
    looks.observe(ends={P: 600})
    (alarm,) = looks.observe(starts={P: 500})
    assert (alarm.name, alarm.subject) == (AlarmName.OVERTAKEN, str(P))
    assert "offsets 100 to 499 may be missing" in alarm.seen
    (alarm,) = looks.observe(positions={P: 600})
    assert "offsets 100 to 499" in alarm.seen, "the mirror went on from where the log begins"
    assert "offsets 100 to 549" in looks.observe(starts={P: 550})[0].seen
    assert looks.observe(accept=True) == looks.observe() == []


def test_what_is_lost_since_the_last_look_is_told_by_the_look_that_accepts_what_was_before(
    looks: Looks,
) -> None:
    """The watch was down for hours, and nobody knows of it yet."""
    b, q = "events.b", Partition("events.b", 0)
    both = {A: "id-1", b: "id-b"}, {A: "remote-1", b: "remote-b"}
    looks.observe(
        ids=both[0],
        remote_ids=both[1],
        starts={P: 0, q: 0},
        ends={P: 600, q: 40},
        positions={P: 100, q: 40},
    )
    assert looks.names(starts={P: 500, q: 0}, positions={P: 600, q: 40}) == [
        (AlarmName.OVERTAKEN, str(P))
    ]
    hours_ms, at = 5 * HOUR_MS, {P: 600, q: 90}
    (alarm,) = looks.observe(hours_ms, accept=True, starts={P: 500, q: 70}, ends=at, positions=at)
    assert alarm.subject == str(q) and "offsets 40 to 69" in alarm.seen
    assert looks.observe() == [alarm], "it stands"
    (grown,) = looks.observe(accept=True, starts={P: 500, q: 80})
    assert "offsets 40 to 79" in grown.seen, "more of it than was told"
    assert looks.observe(accept=True) == looks.observe() == []


def test_a_gap_that_the_mirror_has_not_passed_is_wrong_still_and_one_of_which_nothing_was_copied_can_be_accepted(
    looks: Looks,
) -> None:
    looks.observe(ends={P: 600})
    assert (
        looks.names(starts={P: 500}) == looks.names(accept=True) == [(AlarmName.OVERTAKEN, str(P))]
    )
    assert looks.observe(accept=True, positions={P: 600}) == looks.observe() == []
    nothing = Looks()
    nothing.observe(ids={A: "id-2"}, positions={})
    nothing.observe(accept=True)
    assert nothing.names(starts={P: 50}, ends={P: 50}) == [(AlarmName.OVERTAKEN, str(P))]
    assert nothing.observe(accept=True) == nothing.observe() == []
    assert "offsets 50 to 59" in nothing.observe(starts={P: 60}, ends={P: 60})[0].seen


def test_one_that_overtook_and_was_outrun_between_two_looks_cannot_be_excluded(
    looks: Looks,
) -> None:
    (alarm,) = looks.observe(starts={P: 500}, ends={P: 600}, positions={P: 600})
    assert alarm.name == AlarmName.OVERTAKEN and "offsets 100 to 499" in alarm.seen


def test_retention_of_what_was_copied_is_none(looks: Looks) -> None:
    looks.observe(ends={P: 600}, positions={P: 600})
    assert looks.observe(starts={P: 600}) == []


def test_at_a_first_look_only_what_goes_on_now_is_judged() -> None:
    old = dataclasses.replace(WELL, starts={P: 50})
    assert evaluate_alarms(old, WatchState(), AlarmLimits(24, {})).alarms == [], (
        "deleted before anybody looked"
    )
    new = dataclasses.replace(WELL, starts={P: 50}, positions={})
    first = evaluate_alarms(new, WatchState(), AlarmLimits(24, {}))
    assert first.alarms == []
    (alarm,) = evaluate_alarms(
        dataclasses.replace(new, starts={P: 60}), first.state, AlarmLimits(24, {})
    ).alarms
    assert "offsets 50 to 59 may be missing" in alarm.seen
    behind = dataclasses.replace(WELL, starts={P: 70}, positions={P: 60})
    assert [a.name for a in evaluate_alarms(behind, WatchState(), AlarmLimits(24, {})).alarms] == [
        AlarmName.OVERTAKEN
    ]


def test_a_topic_deleted_and_made_again_is_told_with_what_had_been_copied_and_stands(
    looks: Looks,
) -> None:
    (alarm, stale) = looks.observe(ids={A: "id-2"}, ends={P: 3})
    assert (alarm.name, stale.name) == (AlarmName.STALE_OFFSETS, AlarmName.TOPIC_RECREATED)
    assert "deleted and recreated" in stale.seen and "events.a-0 up to 100" in stale.seen
    assert AlarmName.TOPIC_RECREATED in dict(looks.names(ends={P: 300}, positions={P: 300}))
    assert looks.observe(accept=True) == looks.observe() == []


def test_while_a_topic_made_again_is_not_accepted_what_else_goes_wrong_with_it_is_named_too(
    looks: Looks,
) -> None:
    anew = (AlarmName.TOPIC_RECREATED, A)
    assert looks.names(ids={A: "id-2"}, ends={P: 0}, positions={}) == [anew]
    assert looks.names(ends={P: 500}, positions={P: 250}) == [anew]
    assert looks.names(ends={P: 600}, positions={P: 400}) == [anew]
    assert unsampled_ranges(looks.now, looks.memory) == {P: UnsampledRange(0, 400)}, "it is sampled"
    for _ in range(STALL_MS // LOOK_MS):
        found = looks.names()
    assert found == [(AlarmName.TASK_STOPPED, CONNECTOR), anew]
    (overtaken, _) = looks.observe(starts={P: 550}, positions={P: 600})
    assert (
        overtaken.name == AlarmName.OVERTAKEN
        and "offsets 400 to 549 may be missing" in overtaken.seen
    )


def test_a_topic_that_was_deleted_is_told_so(looks: Looks) -> None:
    gone: dict[Any, Any] = {}
    (alarm,) = looks.observe(
        ids=gone, remote_ids=gone, starts=gone, ends=gone, remote_starts=gone, remote_ends=gone
    )
    assert (
        alarm.name == AlarmName.TOPIC_RECREATED
        and "topic events.a was deleted at the edge" in alarm.seen
    )
    assert looks.names() == [(AlarmName.TOPIC_RECREATED, A)]


def test_a_position_past_the_end_stands_also_when_the_topic_has_outgrown_it(looks: Looks) -> None:
    (alarm,) = looks.observe(positions={P: 1000})
    assert alarm.name == AlarmName.STALE_OFFSETS and "past the edge's log end 100" in alarm.seen
    assert [a.name for a in looks.observe(ends={P: 1500}, positions={P: 1500})] == [
        AlarmName.STALE_OFFSETS
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"remote_ids": {A: "remote-2"}, "remote_ends": {P: 0}},
        {"remote_ends": {P: 40}},
        {"remote_starts": {P: 30}, "cut_off": {P: TruncatedRecord(12, NOW_MS - HOUR_MS, 30)}},
    ],
    ids=["made again", "shorter", "beginning taken away"],
)
def test_a_target_that_was_truncated_is_named_and_stands(
    looks: Looks, changes: dict[str, Any]
) -> None:
    (alarm,) = looks.observe(**changes)
    assert alarm.name == AlarmName.TARGET_TRUNCATED
    assert [a.name for a in looks.observe(cut_off={})] == [AlarmName.TARGET_TRUNCATED]


def test_a_target_that_was_away_and_is_another_one_then_is_truncated(looks: Looks) -> None:
    assert looks.names(remote_ids={}, remote_ends={}, remote_starts={}) == [
        (AlarmName.REMOTE_MISSING, A)
    ]
    assert looks.names(remote_ids={A: "remote-2"}, remote_ends={P: 0}) == [
        (AlarmName.TARGET_TRUNCATED, A)
    ]


def test_a_task_that_failed_is_named_with_its_cause_until_it_runs(looks: Looks) -> None:
    failure = ConnectorTaskFailure(
        "MirrorSourceConnector-0", "RecordTooLargeException: 9437184 bytes"
    )
    (alarm,) = looks.observe(failures=(failure,))
    assert (alarm.name, alarm.subject) == (AlarmName.TASK_STOPPED, "MirrorSourceConnector-0")
    assert "RecordTooLargeException" in alarm.seen
    assert looks.observe(failures=()) == []


def test_a_mirror_that_was_killed_is_named_within_a_minute_though_it_can_say_nothing(
    looks: Looks,
) -> None:
    taken_ms = 0
    while not (found := looks.observe(ends={P: 500})):
        taken_ms += LOOK_MS
    assert [a.name for a in found] == [AlarmName.TASK_STOPPED]
    assert "events.a-0 at 100 of 500" in found[0].seen
    assert STALL_MS <= taken_ms <= 60_000 - LOOK_MS
    assert looks.observe(positions={P: 101}) == [], "it moves"


def test_a_partition_that_is_always_a_little_behind_and_moves_does_not_stand_still(
    looks: Looks,
) -> None:
    for end in range(200, 3000, 100):
        assert looks.observe(ends={P: end}, positions={P: end - 100}) == []
    for _ in range(20):  # caught up, then one more record each time
        looks.observe(positions={P: looks.now.ends[P]})
        assert looks.observe(ends={P: looks.now.ends[P] + 1}) == []


def test_time_in_which_nobody_looked_is_not_held_against_the_mirror(looks: Looks) -> None:
    looks.observe(ends={P: 500})
    assert looks.observe(after_ms=10 * HOUR_MS) == []
    assert looks.observe() == []


def test_a_clock_that_is_set_back_mutes_nothing_that_stands_still_or_is_missing(
    looks: Looks,
) -> None:
    for _ in range(6):
        found = looks.names(ends={P: 500}, workers=1)
    assert found == [(AlarmName.TASK_STOPPED, CONNECTOR), (AlarmName.WORKER_MISSING, "mirror")]
    assert looks.names(-HOUR_MS) == looks.names() == found
    assert looks.observe(positions={P: 101}, workers=2) == []


def test_an_oversize_record_that_blocks_its_partition_is_named_by_offset_and_size(
    looks: Looks,
) -> None:
    for _ in range(5):
        looks.observe(ends={P: 500}, blocking={})
    (alarm,) = looks.observe(blocking={P: OversizedRecord(103, 262_144, 65_536)})
    assert (alarm.name, alarm.subject) == (AlarmName.RECORD_BLOCKS, str(P))
    assert "offset 103 has 262144 bytes" in alarm.seen and "accepts at most 65536" in alarm.seen


def test_no_traffic_is_told_of_the_types_of_which_it_is_expected_alone() -> None:
    looks = Looks()
    looks.limits = AlarmLimits(24.0, {A: 3600})
    assert looks.observe(newest_ms={A: looks.now.now_ms - HOUR_MS // 2}) == []
    (alarm,) = looks.observe(newest_ms={A: looks.now.now_ms - 2 * HOUR_MS})
    assert (alarm.name, alarm.subject) == (AlarmName.NO_TRAFFIC, A)
    assert "one record every 3600 s is expected" in alarm.seen
    assert "the topic has no records" in looks.observe(newest_ms={A: None})[0].seen
    assert looks.observe(newest_ms={A: looks.now.now_ms}) == []


def test_a_worker_that_is_missing_is_named_once_it_is_away_for_longer_than_a_restart(
    looks: Looks,
) -> None:
    assert looks.observe(workers=2) == []
    assert looks.observe(workers=1) == looks.observe(workers=1) == []
    (alarm,) = looks.observe(workers=1)
    assert (alarm.name, alarm.subject) == (AlarmName.WORKER_MISSING, "mirror")
    assert "1 of 2 workers" in alarm.seen
    assert looks.observe(workers=3) == looks.observe(workers=1) == [], (
        "it came back, and more of them; then one went for a moment"
    )
    assert looks.observe(workers=None) == [], "nobody counts"
