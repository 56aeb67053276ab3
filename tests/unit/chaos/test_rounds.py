"""A round goes on whatever becomes of one of its faults, and says what became of each."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.faults.chaos import rounds
from tests.faults.chaos.faults import NotInjected
from tests.faults.chaos.schedule import Injection
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

from hourmark.errors import Unavailable


class Scene:
    """Three faults at once: `worse` hits the driver, and begins or ends as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worse: Callable[[Any, float], Any]) -> None:
        self.clock, self.said, self.healed = FakeClock(), list[str](), list[str]()
        self.world: Any = SimpleNamespace(hit=set[str](), wait=self._wait)
        faults = {"first": self._fine("first"), "worse": worse, "last": self._fine("last")}
        monkeypatch.setattr(
            rounds,
            "FAULTS",
            {name: SimpleNamespace(inject=inject) for name, inject in faults.items()},
        )

    def play(self) -> dict[str, rounds.Played]:
        """All of them."""
        injections = [
            Injection(fault=name, after_s=1.0, hold_s=5.0, pick=0.5)
            for name in ("first", "worse", "last")
        ]
        return {
            of.fault: of for of in rounds.play(self.world, injections, self.clock, self.said.append)
        }

    def _fine(self, name: str) -> Callable[[Any, float], Callable[[], None]]:
        return lambda _world, _pick: lambda: self.healed.append(name)

    def _wait(self, condition: Callable[[], bool], _what: str, seconds: float) -> None:
        while not condition():
            self.clock.sleep(min(0.25, seconds))


def _hits_the_driver(world: Any, _pick: float) -> Callable[[], None]:
    world.hit.add("etl")

    def heal() -> None:
        raise Unavailable("waited 120 s in vain for the driver to refuse")

    return heal


def _never_begins(world: Any, _pick: float) -> Callable[[], None]:
    world.hit.add("etl")
    raise AssertionError("dfsadmin: no")


def _finds_nothing(_world: Any, _pick: float) -> Callable[[], None]:
    raise NotInjected("nothing is staged")


@pytest.mark.parametrize(
    ("worse", "failed"),
    [
        (_hits_the_driver, "waited 120 s in vain for the driver to refuse"),
        (_never_begins, "dfsadmin: no"),
    ],
)
def test_a_fault_that_fails_is_told_and_holds_nobody_any_more(
    monkeypatch: pytest.MonkeyPatch, worse: Callable[[Any, float], Any], failed: str
) -> None:
    scene = Scene(monkeypatch, worse)
    played = scene.play()
    assert {name: of.failed for name, of in played.items()} == {
        "first": None,
        "worse": failed,
        "last": None,
    }
    assert scene.healed == ["first", "last"]
    assert scene.world.hit == set()
    assert f"  worse FAILED: {failed}" in scene.said
    assert played["first"].healed_s - played["first"].began_s >= 5.0


def test_what_finds_nothing_to_hit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, _finds_nothing)
    assert scene.play().keys() == {"first", "last"}
    assert "  worse is left out: nothing is staged" in scene.said


def test_a_fault_that_is_well_again_only_after_another_ended_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(
        monkeypatch,
        lambda _world, _pick: (
            lambda: wait_for(lambda: "last" in scene.healed, "the last one to end")
        ),
    )
    assert {name: of.failed for name, of in scene.play().items()} == {
        "first": None,
        "worse": None,
        "last": None,
    }
