"""A seed decides the schedule; what is written down is what is played."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.faults.chaos.faults import FAULTS
from tests.faults.chaos.flows import Flow
from tests.faults.chaos.schedule import PLANS, Schedule, draw
from tests.faults.chaos.workloads import WORKLOADS


def test_equal_seeds_give_equal_schedules_and_others_do_not() -> None:
    assert (
        draw("pr", 7, FAULTS, WORKLOADS)
        == draw("pr", 7, FAULTS, WORKLOADS)
        != draw("pr", 8, FAULTS, WORKLOADS)
    )


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    schedule = draw("nightly", 3, FAULTS, WORKLOADS)
    schedule.write(tmp_path / "schedule.json")
    assert Schedule.model_validate_json((tmp_path / "schedule.json").read_text()) == schedule


@pytest.mark.parametrize("seed", range(50))
def test_two_that_touch_the_same_are_never_at_once(seed: int) -> None:
    for injections in draw("nightly", seed, FAULTS, WORKLOADS).rounds:
        touched = Counter(what for of in injections for what in FAULTS[of.fault].touches)
        assert max(touched.values()) == 1, injections


@pytest.mark.parametrize("seed", range(50))
def test_each_fault_comes_before_any_comes_three_times(seed: int) -> None:
    schedule = draw("nightly", seed, FAULTS, WORKLOADS)
    counts = Counter(of.fault for injections in schedule.rounds for of in injections)
    assert counts.keys() == FAULTS.keys()
    assert max(counts.values()) <= 2


@pytest.mark.parametrize("seed", range(50))
def test_a_fault_stays_as_long_as_it_says(seed: int) -> None:
    for injections in draw("release", seed, FAULTS, WORKLOADS).rounds:
        for of in injections:
            least, most = FAULTS[of.fault].hold_s
            assert least <= of.hold_s <= most


def test_the_tiers_ask_for_what_they_promise() -> None:
    assert draw("nightly", 1, FAULTS, WORKLOADS).injections >= 30
    assert 10 * draw("release", 1, FAULTS, WORKLOADS).injections >= 300
    assert PLANS["pr"].rate >= 200


def test_chosen_faults_alone_are_drawn_each_round() -> None:
    chosen = {name: FAULTS[name] for name in ("registry-sigstop", "driver-sigkill")}
    rounds = draw("pr", 1, chosen, ["api"], 3).rounds
    assert [{of.fault for of in injections} for injections in rounds] == 3 * [set(chosen)]


def test_every_fault_is_called_by_its_name_and_says_what_goes_on() -> None:
    assert len(FAULTS) >= 30
    assert all(
        fault.name == name and fault.goes_on <= {*Flow} and fault.touches
        for name, fault in FAULTS.items()
    )
