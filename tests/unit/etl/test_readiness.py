"""The first condition of a cut: nothing closes before every live source is past the hour, by clocks that agree."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from etl.closing.readiness import SILENT_MS, newcomers, readiness, ready
from etl.ledger.rows import Frontier, Reporter, State
from hourmark.hours import Hour

HOUR = Hour(1_800_000_000, 3600)
END = HOUR.end_ms
SERVICE = Reporter("s" * 32, "api", "svc", "service", "one", 0, END, END + 1, 0, 0, goodbye=False)
TAILER = Reporter("t" * 32, "app", "web", "tailer", "one", 0, END, END + 1, 0, 0, goodbye=False)


def frontier(**changes: object) -> Frontier:
    made = Frontier("click", HOUR, HOUR, State.OPEN, frozenset({"app"}), 0, None, ())
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def is_ready(*reporters: Reporter, now_ms: int = END + 1, of: Frontier | None = None) -> bool:
    return bool(ready([of or frontier()], reporters, now_ms))


def test_an_hour_is_ready_when_all_are_past_its_end() -> None:
    assert is_ready(SERVICE, TAILER)


def test_a_source_that_has_not_caught_up_holds_the_hour_and_is_named() -> None:
    behind = dataclasses.replace(TAILER, caught_up_at_ms=END - 2000)
    assert not is_ready(SERVICE, behind)
    assert "tailer web source app" in readiness(frontier(), [SERVICE, behind], END + 1).waits_for[0]
    assert "2.0 s before its end" in readiness(frontier(), [SERVICE, behind], END + 1).waits_for[0]


def test_a_source_that_never_caught_up_holds_the_hour() -> None:
    assert not is_ready(SERVICE, dataclasses.replace(TAILER, caught_up_at_ms=None))


def test_sources_that_cannot_carry_the_type_hold_nothing_up() -> None:
    other = dataclasses.replace(TAILER, source="other", caught_up_at_ms=None)
    assert is_ready(SERVICE, TAILER, other)
    assert not is_ready(SERVICE, TAILER, other, of=frontier(event_type="dead-letters"))


def test_a_host_that_said_goodbye_is_not_awaited() -> None:
    assert is_ready(SERVICE, dataclasses.replace(TAILER, caught_up_at_ms=None, goodbye=True))


def test_nothing_closes_before_a_service_has_ever_reported() -> None:
    assert not is_ready(TAILER)
    assert "hourmark serve" in readiness(frontier(), [TAILER], END + 1).waits_for[0]


def test_a_closer_whose_clock_is_behind_waits_and_one_ahead_closes_nothing_early() -> None:
    assert not is_ready(SERVICE, TAILER, now_ms=END - 1)
    hours_ahead = END + 8 * 3_600_000
    early = dataclasses.replace(SERVICE, caught_up_at_ms=END - 1)
    assert not is_ready(early, dataclasses.replace(TAILER, caught_up_at_ms=END - 1), now_ms=hours_ahead)


def test_frozen_and_sealed_hours_are_not_cut_again() -> None:
    assert not is_ready(SERVICE, TAILER, of=frontier(state=State.FROZEN))
    assert not is_ready(SERVICE, TAILER, of=frontier(state=State.SEALED))


@given(st.lists(st.none() | st.integers(END - 5, END + 5), max_size=5), st.integers(END - 5, END + 5))
def test_the_horizon_is_never_past_anybody(caught_up: list[int | None], now_ms: int) -> None:
    reporters = [
        SERVICE,
        *(dataclasses.replace(TAILER, host_id=str(n), caught_up_at_ms=at) for n, at in enumerate(caught_up)),
    ]
    found = readiness(frontier(), reporters, now_ms)
    assert found.horizon_ms <= min([now_ms, SERVICE.caught_up_at_ms or 0, *(at or 0 for at in caught_up)])
    assert bool(found.waits_for) == (found.horizon_ms < END)


def test_newcomers_are_hosts_not_known_before_or_back_after_a_goodbye() -> None:
    gone, back = dataclasses.replace(TAILER, goodbye=True), dataclasses.replace(TAILER, incarnation="two")
    came_and_left = dataclasses.replace(back, goodbye=True)
    assert newcomers([SERVICE], [SERVICE, TAILER]) == [TAILER]
    assert newcomers([SERVICE], [SERVICE, gone]) == [gone]
    assert newcomers([SERVICE, gone], [SERVICE, back]) == [back]
    assert newcomers([SERVICE, gone], [SERVICE, came_and_left]) == [came_and_left]
    assert newcomers([SERVICE, gone], [SERVICE, gone]) == []
    assert newcomers([SERVICE, TAILER], [SERVICE, gone]) == []
    assert newcomers([SERVICE, TAILER], [SERVICE, back]) == [], "restarted: it had caught up before"
    assert newcomers([], [SERVICE]) == []


def test_a_service_that_has_fallen_silent_is_not_awaited_while_another_reports() -> None:
    dead = dataclasses.replace(SERVICE, host_id="d" * 32, caught_up_at_ms=END - 90_000, received_at_ms=END - 90_000)
    assert is_ready(SERVICE, TAILER, dead)
    assert not is_ready(SERVICE, TAILER, dataclasses.replace(dead, received_at_ms=END - SILENT_MS + 1))
    assert not is_ready(dead, TAILER), "nobody else delivers: it is awaited"
