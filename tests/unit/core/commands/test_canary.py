"""The first step that no canary passed is the one that is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hourmark.cli import root
from hourmark.commands.canary import CANARY, PATIENCE_S, CanaryStep, late_alarms
from hourmark.process.alarms import AlarmName
from hourmark.rules.event_types import read_declarations

NOW_MS = 1_800_000_000_000
LENGTH_S = 60
LONG_AGO_MS = 3_600_000
EXAMPLE = Path(__file__).parents[4] / "examples" / "canary" / f"{CANARY}.toml"


def passed(**ago_s: float | None) -> dict[CanaryStep, int | None]:
    return {
        CanaryStep(name): None if s is None else round(NOW_MS - s * 1000)
        for name, s in ago_s.items()
    }


def seen(**ago_s: float | None) -> list[str]:
    alarms = late_alarms(passed(**ago_s), NOW_MS, LENGTH_S, "edge", NOW_MS - LONG_AGO_MS)
    assert all((a.name, a.subject) == (AlarmName.CANARY_LATE, "edge") for a in alarms)
    return [alarm.seen for alarm in alarms]


def test_canaries_that_come_are_no_alarm() -> None:
    assert seen(acknowledged=59, mirrored=61, staged=63, closed=120) == []
    assert (
        seen(
            acknowledged=PATIENCE_S,
            mirrored=PATIENCE_S,
            staged=PATIENCE_S,
            closed=PATIENCE_S + LENGTH_S,
        )
        == []
    )


@pytest.mark.parametrize(
    ("ages", "step"),
    [
        ((121, 121, 121, 200), "acknowledged"),
        ((10, 130, 130, 200), "mirrored"),
        ((10, 12, 130, 200), "staged"),
        ((10, 12, 14, 181), "closed up to"),
    ],
)
def test_the_first_step_that_none_has_passed_is_named_and_no_other(
    ages: tuple[float, ...], step: str
) -> None:
    (text,) = seen(**dict(zip(map(str, CanaryStep), ages, strict=True)))
    assert step in text


def test_a_step_that_none_has_passed_yet_is_late_and_one_that_there_is_not_is_left_out() -> None:
    assert seen(acknowledged=None) == [
        "no canary event of site edge is acknowledged yet; at most 120 s are allowed"
    ]
    assert seen(acknowledged=1, staged=None, closed=1)[0].startswith(
        "no canary event of site edge is staged"
    )
    assert seen(acknowledged=1, staged=1, closed=1) == []


@pytest.mark.parametrize("length_s", [60, 3600])
def test_what_has_only_begun_is_not_late_before_it_can_have_come(length_s: int) -> None:
    """A site of a moment ago, and the first hour of one that has hours, are no alarm."""

    def told(since_s: float, **ago_s: float | None) -> bool:
        return bool(
            late_alarms(passed(**ago_s), NOW_MS, length_s, "edge", round(NOW_MS - since_s * 1000))
        )

    assert not told(PATIENCE_S, acknowledged=None, mirrored=None, staged=None, closed=None)
    assert told(PATIENCE_S + 1, acknowledged=None, mirrored=None, staged=None, closed=None)
    assert not told(PATIENCE_S + length_s, acknowledged=1, mirrored=1, staged=1, closed=None)
    assert told(PATIENCE_S + length_s + 1, acknowledged=1, mirrored=1, staged=1, closed=None)


def test_its_declaration_is_the_example_and_one_that_can_be_applied(tmp_path: Path) -> None:
    told = CliRunner().invoke(root, ["canary", "declaration"], catch_exceptions=False).stdout
    assert told == EXAMPLE.read_text()
    (tmp_path / EXAMPLE.name).write_text(told)
    assert CANARY in {declared.name for declared in read_declarations(tmp_path).types}
