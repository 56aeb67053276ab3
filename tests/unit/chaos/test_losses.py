"""What a run destroyed, as the judge is told of it: it takes just this, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.chaos.losses import Losses, Vanished, destroyed
from tests.support.judged.world import START_MS, small_world

from hourmark_verify.judge.expectations import DestroyedEvent, Expectations

OF_FILE = {
    "event_id": bytes(range(16)),
    "event_time": START_MS,
    "file": {"id": "f", "generation": 2},
    "position": 7,
}
POSTED = {"event_id": bytes(16), "event_time": START_MS, "file": None, "position": 0}


@pytest.fixture
def losses() -> Losses:
    made = Losses()
    made.add_destroyed(
        [destroyed("lines", envelope, START_MS + 5) for envelope in (OF_FILE, POSTED)]
    )
    made.add_forced("lines", "2025-11-21T00:01")
    made.add_forced("lines", "2025-11-21T00:00")
    made.add_forced("lines", "2025-11-21T00:01")
    return made


def test_the_judge_is_told_of_each_destroyed_event_by_id_and_place_and_of_each_hour_once(
    losses: Losses, tmp_path: Path
) -> None:
    told = Expectations.model_validate(
        {**small_world(tmp_path).expectations(), **losses.told(lambda _: ())}
    )
    common = {"type": "lines", "time_ms": START_MS, "written_ms": START_MS + 5}
    assert told.destroyed == [
        DestroyedEvent(
            **common,
            event_id="000102030405060708090a0b0c0d0e0f",
            file_id="f",
            generation=2,
            position=7,
        ),
        DestroyedEvent(**common, event_id="0" * 32, file_id=None, generation=0, position=0),
    ]
    assert told.forced == {"lines": ["2025-11-21T00:00", "2025-11-21T00:01"]}


def test_an_event_that_was_copied_is_waived_by_nothing(losses: Losses) -> None:
    (told,) = losses.told({"lines": {"0" * 32}}.__getitem__)["destroyed"]
    assert told["event_id"] == "000102030405060708090a0b0c0d0e0f"


def test_a_run_that_destroyed_nothing_waives_nothing() -> None:
    assert Losses().told(lambda _: ()) == {"destroyed": [], "forced": {}}


def test_of_a_log_that_vanished_what_its_tailer_had_taken_is_demanded(tmp_path: Path) -> None:
    of = Vanished(
        "a", "app-events", tmp_path / "player.log", tmp_path / "vanished" / "player.log.3", 4711
    )
    expected = of.expectation({"type": ["lines"], "source": "app-events"}, "0" * 32)
    assert expected == {
        "type": ["lines"],
        "source": "app-events",
        "host": "host-a",
        "host_id": "0" * 32,
        "copied": True,
        "size": 4711,
        "path": str(tmp_path / "vanished" / "player.log.3"),
        "read_as": f"{tmp_path}/player.log*",
    }
