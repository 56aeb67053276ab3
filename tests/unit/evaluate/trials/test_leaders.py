"""A mirror's leader taken away: who else led is told by the members of its group, not by an address
that a new one has again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.clock import FakeClock

from hourmark.kafka.mirror import NO_LEADER, MirrorLeader, MirrorWorkers
from hourmark_evaluate import evaluation
from hourmark_evaluate.execution import mirror_state
from hourmark_evaluate.execution.server_operations import ServerOperations
from hourmark_evaluate.execution.trial_run import RecoveryFailed
from hourmark_evaluate.results import LeaderTakeover, TrialResult
from hourmark_evaluate.trials import leaders
from hourmark_evaluate.trials.leaders import TAKEOVER_LIMIT_S
from hourmark_evaluate.verdicts import EvaluationVerdict, KafkaProperty, trial_verdict
from hourmark_evaluate.verdicts import find_property_faults as found_in

HOSTS = ("10.0.0.1", "10.0.0.2")
FIRST, AGAIN, OTHER = (
    MirrorLeader("a", "mirror-1:8783"),
    MirrorLeader("c", "mirror-1:8783"),
    MirrorLeader("b", "mirror-2:8783"),
)


class FakeTrialRun:
    """A trial whose servers are back at once."""

    def __init__(self) -> None:
        self.environment: Any = FakeEnvironment()
        self.notes: list[str] = []
        self.takeovers: list[LeaderTakeover] = []

    def poll_mirror(self) -> None:
        pass

    def inject_fault(
        self,
        description: str,
        start: Callable[[], None],
        undo: Callable[[], None],
        duration_s: float,
        has_recovered: Callable[[], bool],
        victim: str,
    ) -> bool:
        start()
        undo()
        return True


class FakeEnvironment:
    """Its workers can be stopped and started, and not be paused."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.operations = ServerOperations(
            stop_worker=self.stopped.append, start_worker=lambda _: None
        )
        self.clock, self.options = FakeClock(), self
        self.outage_s = 0.0

    def wait_until(
        self, condition: Callable[[], bool], timeout_s: float, between_checks: Callable[[], None]
    ) -> bool:
        for _ in range(int(timeout_s)):
            if condition():
                return True
            self.clock.sleep(1.0)
        return False


def play(monkeypatch: pytest.MonkeyPatch, *reported: MirrorLeader) -> FakeTrialRun:
    """With these leaders, one each time that it is asked, the last for ever."""

    def told() -> Iterator[MirrorWorkers]:
        for leader in reported:
            yield MirrorWorkers(HOSTS, leader)
        while True:
            yield MirrorWorkers(HOSTS, reported[-1])

    telling, trial = told(), FakeTrialRun()
    monkeypatch.setattr(mirror_state, "current_workers", lambda _: next(telling))
    leaders.remove_leading_workers(trial)  # type: ignore[arg-type]
    assert trial.environment.stopped == [FIRST.address]
    assert "leading worker paused was not tried" in trial.notes.pop()
    return trial


@pytest.mark.parametrize(
    "after", [OTHER, AGAIN], ids=["the other one", "a new one at the same address"]
)
def test_another_member_led(monkeypatch: pytest.MonkeyPatch, after: MirrorLeader) -> None:
    trial = play(monkeypatch, FIRST, FIRST, NO_LEADER, after)
    assert trial.takeovers == [LeaderTakeover(how="killed", workers=2, another_led_s=2.0)]
    assert not trial.notes


def test_nobody_led(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(monkeypatch, FIRST, NO_LEADER).takeovers == [
        LeaderTakeover(how="killed", workers=2, another_led_s=None)
    ]


def test_a_command_that_takes_nobody_away_is_no_fault_of_the_mirrors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = play(monkeypatch, FIRST)
    assert not trial.takeovers
    said = (
        f"{TAKEOVER_LIMIT_S:.0f} s after --stop-worker the same worker led, so it was not removed"
    )
    assert trial.notes == [f"the mirror's leading worker killed was not tried: {said}"]


def test_servers_that_do_not_come_back_are_a_result_and_no_more_is_tried_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(environment: Any, name: str) -> TrialResult:
        raise RecoveryFailed("the servers were not back within 180 s")

    monkeypatch.setattr(evaluation, "run_trial_by_name", never)
    environment: Any = None
    broken = evaluation._run_or_skip_trial(environment, "leaders", "")
    assert trial_verdict(broken) is EvaluationVerdict.BROKEN
    ((found),) = found_in(broken)
    assert (found.property, found.faults) == (
        KafkaProperty.RECOVERS,
        ("the servers were not back within 180 s",),
    )
    after = evaluation._run_or_skip_trial(environment, "producers", "leaders")
    assert after.not_tried == "the servers did not recover in trial leaders"
