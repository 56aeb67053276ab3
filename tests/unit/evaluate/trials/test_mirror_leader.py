"""A mirror's leader taken away: who else led is told by the members of its group, not by an address
that a new one has again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import FakeClock

from hourmark.kafka.mirror import NO_LEADER, MirrorLeader, MirrorWorkers
from hourmark_evaluate import run
from hourmark_evaluate.hands import Hands
from hourmark_evaluate.results import Takeover, Trial
from hourmark_evaluate.stage import NotBack
from hourmark_evaluate.trials import copying, mirror_leader
from hourmark_evaluate.trials.mirror_leader import TAKEN_OVER_S
from hourmark_evaluate.verdicts import Property, Verdict, of_trial
from hourmark_evaluate.verdicts import found as found_in
from hourmark_evaluate.world import Wish

HOSTS = ("10.0.0.1", "10.0.0.2")
FIRST, AGAIN, OTHER = (
    MirrorLeader("a", "mirror-1:8783"),
    MirrorLeader("c", "mirror-1:8783"),
    MirrorLeader("b", "mirror-2:8783"),
)


class Stage:
    """A stage whose servers are back at once."""

    def __init__(self) -> None:
        self.world: Any = World()
        self.notes: list[str] = []
        self.takeovers: list[Takeover] = []

    def look(self) -> None:
        pass

    def disturb(
        self,
        what: str,
        hurt: Callable[[], None],
        heal: Callable[[], None],
        away_s: float,
        back: Callable[[], bool],
        victim: str,
    ) -> bool:
        hurt()
        heal()
        return True


class World:
    """Its workers can be stopped and started, and not be paused."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.hands = Hands(stop_worker=self.stopped.append, start_worker=lambda _: None)
        self.clock, self.wish = FakeClock(), self
        self.away_s = 0.0

    def wait(self, condition: Callable[[], bool], seconds: float, each: Callable[[], None]) -> bool:
        for _ in range(int(seconds)):
            if condition():
                return True
            self.clock.sleep(1.0)
        return False


def play(monkeypatch: pytest.MonkeyPatch, *leaders: MirrorLeader) -> Stage:
    """With these leaders, one each time that it is asked, the last for ever."""

    def told() -> Iterator[MirrorWorkers]:
        for leader in leaders:
            yield MirrorWorkers(HOSTS, leader)
        while True:
            yield MirrorWorkers(HOSTS, leaders[-1])

    telling, stage = told(), Stage()
    monkeypatch.setattr(copying, "workers", lambda _: next(telling))
    mirror_leader.play(stage)  # type: ignore[arg-type]
    assert stage.world.stopped == [FIRST.address]
    assert "leading worker paused was not tried" in stage.notes.pop()
    return stage


@pytest.mark.parametrize(
    "after", [OTHER, AGAIN], ids=["the other one", "a new one at the same address"]
)
def test_another_member_led(monkeypatch: pytest.MonkeyPatch, after: MirrorLeader) -> None:
    stage = play(monkeypatch, FIRST, FIRST, NO_LEADER, after)
    assert stage.takeovers == [Takeover(how="killed", workers=2, another_led_s=2.0)]
    assert not stage.notes


def test_nobody_led(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(monkeypatch, FIRST, NO_LEADER).takeovers == [
        Takeover(how="killed", workers=2, another_led_s=None)
    ]


def test_a_command_that_takes_nobody_away_is_no_fault_of_the_mirrors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = play(monkeypatch, FIRST)
    assert not stage.takeovers
    said = f"{TAKEN_OVER_S:.0f} s after --stop-worker the same worker led: it was not taken away"
    assert stage.notes == [f"the mirror's leading worker killed was not tried: {said}"]


def test_servers_that_do_not_come_back_are_a_result_and_no_more_is_tried_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(world: Any, name: str) -> Trial:
        raise NotBack("the servers were not back within 180 s")

    monkeypatch.setattr(run, "play", never)
    cluster = SimpleNamespace(names=list)
    world: Any = SimpleNamespace(
        clock=FakeClock(),
        edge=SimpleNamespace(ids=(1,), replication=1, cluster=cluster, delete=lambda _: None),
        central=None,
        wish=Wish(),
        run="r",
        say=lambda _: None,
    )
    result = run.evaluate(world, ["leaders", "producers"], "here", "hourmark", lambda _: None)
    broken, after = result.trials
    assert of_trial(broken) is Verdict.BROKEN
    ((found),) = found_in(broken)
    assert (found.property, found.faults) == (
        Property.RECOVERS,
        ("the servers were not back within 180 s",),
    )
    assert after.not_tried == "leaders was not brought to its end"
