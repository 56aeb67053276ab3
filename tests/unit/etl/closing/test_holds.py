"""Holds of event types: pauses, reasons and what ends each."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import HOUR

from hourmark_etl.closing.holds import (
    PAUSE_SECONDS_MAX,
    RETRY_SECONDS,
    ClosingHolds,
    HoldReason,
)
from hourmark_etl.model import ClosingPhase

PROOF: Final = HoldReason(HOUR, ClosingPhase.PROOF, ("5 events are missing",))
STAGED: Final = HoldReason(HOUR, ClosingPhase.STAGED, ("a file is gone",))
NOW_S: Final = 1000.0


def test_a_type_that_was_never_held_is_due_without_a_reason() -> None:
    holds = ClosingHolds()
    assert holds.is_due("click", 0.0)
    assert (holds.reason("click"), dict(holds.reasons)) == (None, {})
    holds.allow_retry("click")
    holds.resolve("click")
    holds.release("click")
    assert dict(holds.reasons) == {}


def test_a_held_type_is_due_when_its_pause_ends_and_keeps_its_reason() -> None:
    holds = ClosingHolds()
    holds.hold("click", PROOF, NOW_S)
    assert not holds.is_due("click", NOW_S + RETRY_SECONDS - 0.1)
    assert holds.is_due("click", NOW_S + RETRY_SECONDS)
    assert holds.is_due("view", NOW_S)
    assert dict(holds.reasons) == {"click": PROOF}


def test_a_new_hold_replaces_reason_and_pause() -> None:
    holds = ClosingHolds()
    holds.hold_with_backoff("click", STAGED, NOW_S)
    holds.hold("click", PROOF, NOW_S)
    assert holds.reason("click") == PROOF
    assert holds.is_due("click", NOW_S + RETRY_SECONDS)


@given(st.lists(st.sampled_from(["hold", "resolve", "end pause"]), max_size=5))
def test_growing_pauses_double_to_their_limit_whatever_happens_between(between: list[str]) -> None:
    holds, pauses = ClosingHolds(), []
    for _ in range(8):
        holds.hold_with_backoff("click", STAGED, NOW_S)
        pauses.append(
            next(s for s in range(int(PAUSE_SECONDS_MAX) + 1) if holds.is_due("click", NOW_S + s))
        )
        for step in between:
            match step:
                case "hold":
                    holds.hold("click", PROOF, NOW_S)
                case "resolve":
                    holds.resolve("click")
                case _:
                    holds.allow_retry("click")
    assert pauses == [20, 40, 80, 160, 320, 600, 600, 600]


def test_an_ended_pause_keeps_the_reason_and_a_resolved_reason_keeps_the_pause() -> None:
    holds = ClosingHolds()
    holds.hold("click", STAGED, NOW_S)
    holds.allow_retry("click")
    assert holds.is_due("click", NOW_S) and holds.reason("click") == STAGED
    holds.hold("click", STAGED, NOW_S)
    holds.resolve("click")
    assert not holds.is_due("click", NOW_S) and holds.reason("click") is None
    assert dict(holds.reasons) == {}


def test_a_closed_hour_releases_its_type_alone() -> None:
    holds = ClosingHolds()
    for event_type in ("click", "view"):
        holds.hold_with_backoff(event_type, STAGED, NOW_S)
        holds.hold_with_backoff(event_type, STAGED, NOW_S)
    holds.release("click")
    assert holds.is_due("click", NOW_S) and not holds.is_due("view", NOW_S)
    assert dict(holds.reasons) == {"view": STAGED}
    holds.hold_with_backoff("click", STAGED, NOW_S)
    assert holds.is_due("click", NOW_S + 2 * RETRY_SECONDS)


def test_files_and_unchecked_types_are_remembered() -> None:
    holds = ClosingHolds()
    holds.add_restaged_file("_staging/new")
    holds.add_unrestorable_file("_staging/old")
    assert holds.is_restaged("_staging/new") and not holds.is_restaged("_staging/old")
    assert set(holds.unrestorable_files) == {"_staging/old"}
    holds.set_unchecked_types({"click", "view"})
    holds.remove_unchecked_types({"click"})
    assert set(holds.unchecked_types) == {"view"}
