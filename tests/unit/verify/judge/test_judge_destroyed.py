"""Events that Kafka lost before anybody could copy them: waived by name, counted, and never in the
time of a later proof.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.judged.world import MINUTE, START_MS, Row, World
from tests.unit.verify.judge.false_markers import edit
from tests.unit.verify.judge.test_judge_copied_files import OLD, Copied
from tests.unit.verify.judge.test_judge_right_worlds import found as found_in
from tests.unit.verify.judge.verdicts import findings, run

TYPE: Final = "track-played"
FORCED: Final[dict[str, Any]] = {TYPE: ["2025-11-21T00:00"]}


def told(row: Row, **changes: Any) -> dict[str, Any]:
    """As somebody read it in Kafka, before it was destroyed."""
    of = row["file"]
    return {
        "type": TYPE,
        "event_id": row["event_id"].hex(),
        "time_ms": row["event_time"],
        "position": row["position"],
        "file_id": of and of["id"],
        "generation": of["generation"] if of else 0,
        "written_ms": row["event_time"] + 100,
        **changes,
    }


@pytest.fixture
def destroyed(world: World) -> Row:
    """An event that no bucket has, promised as it was; its bucket was closed by an override."""
    row = world.plan(TYPE, 0).rows.pop()
    world.write()

    def forced(said: dict[str, Any]) -> dict[str, Any]:
        said["evidence"] |= {
            "waived": ["offsets 1 to 1 may be missing"],
            "promised": said["evidence"]["promised"] + 1,
        }
        (book,) = said["books"].values()
        book["promised"] += 1
        return {"grade": "forced"}

    edit(world.folder(world.plan(TYPE, 0)) / "_SUCCESS", forced)
    world.chain()
    return row


def test_what_was_destroyed_is_missed_by_nobody_where_the_bucket_says_that_it_was_forced(
    world: World, destroyed: Row
) -> None:
    verdict = run(world, destroyed=[told(destroyed), told(destroyed)], forced=FORCED)
    assert verdict["content"] and (verdict["destroyed"], verdict["lost"]) == (1, 0)
    assert sum(of["destroyed"] for of in verdict["files"]) == 1


def test_an_hour_that_nobody_forced_must_not_be(world: World, destroyed: Row) -> None:
    verdict = run(
        world,
        destroyed=[told(destroyed)],
        forced={TYPE: ["2025-11-21T00:01"], "lines": FORCED[TYPE]},
    )
    assert "grade forced is not expected" in verdict["findings"][0]["detail"]


def test_an_event_that_was_not_destroyed_is_lost_all_the_same(world: World, destroyed: Row) -> None:
    there = world.plan(TYPE, 1).rows[0]
    verdict = run(world, destroyed=[told(there)], forced=FORCED)
    assert [kind for kind, _, _ in findings(verdict)] == ["lost"] and verdict["destroyed"] == 0


@pytest.mark.parametrize("before_ms", [5_001, 5_000])
def test_a_bucket_of_its_time_that_is_cut_later_and_proved_is_proved_falsely(
    world: World, before_ms: int
) -> None:
    row = world.plan(TYPE, 0).rows.pop()
    world.write()
    cut_ms = world.plan(TYPE, 0).hour.end_ms + 1
    verdict = run(world, destroyed=[told(row, written_ms=cut_ms - before_ms)])
    accused = (
        "minute=00" if before_ms > 5_000 else "minute=01"
    )  # else it may have come after its own bucket's cut
    assert findings(verdict) == [("manifest", TYPE, None), ("falsely proved", accused, None)]
    assert "0 missing events, but 1 were destroyed" in verdict["findings"][0]["detail"]


@pytest.mark.parametrize(
    ("written_ms", "accused"),
    [(0, 1), (START_MS + 2 * MINUTE, 2), (START_MS + 3 * MINUTE, 3), (START_MS + 4 * MINUTE, None)],
)
def test_of_late_events_the_first_bucket_must_know_that_is_cut_later(
    world: World, written_ms: int, accused: int | None
) -> None:
    """It is of an hour before the first bucket of its type."""
    late = world.plan("server-log", 3).late.pop()
    world.write()
    verdict = run(world, destroyed=[told(late, type="server-log", written_ms=written_ms)])
    assert findings(verdict)[1:] == (
        [("falsely proved", f"minute={accused:02}", None)] if accused else []
    )


@pytest.mark.parametrize(
    ("after_cut_ms", "excused"), [(-60_000, True), (4_999, True), (5_000, False)]
)
def test_a_bucket_that_was_forced_with_such_a_cut_excuses_those_after_it(
    world: World, after_cut_ms: int, excused: bool
) -> None:
    late, forced = world.plan("server-log", 3).late.pop(), world.plan("server-log", 2)
    world.write()
    edit(world.folder(forced) / "_SUCCESS", lambda said: {"grade": "forced"})
    world.chain()
    row = told(late, type="server-log", written_ms=forced.hour.end_ms + 1 + after_cut_ms)
    kinds = [
        kind
        for kind, _, _ in findings(
            run(world, destroyed=[row], forced={"server-log": [str(forced.hour)]})
        )
    ]
    assert ("falsely proved" in kinds) is not excused


def test_an_event_that_was_promised_twice_is_missing_twice(world: World, destroyed: Row) -> None:
    marker = world.folder(world.plan(TYPE, 0)) / "_SUCCESS"
    edit(marker, lambda said: said["books"]["2025-11-21T00:00"].update(promised=9))
    edit(marker, lambda said: said["evidence"].update(promised=9))
    world.chain()
    assert run(world, destroyed=[told(destroyed)], forced=FORCED)["content"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"event_id": "0" * 32},
        {"file_id": "0" * 32},
        {"position": 10**9},
        {"file_id": None},
        {"time_ms": START_MS + 1},
        {"type": "lines"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_of_no_line_waives_nothing(
    world: World, destroyed: Row, wrong: dict[str, Any]
) -> None:
    verdict = run(world, destroyed=[told(destroyed, **wrong)], forced=FORCED)
    assert {"lost", "source"} <= {kind for kind, _, _ in findings(verdict)}


def test_a_line_of_a_log_that_was_copied_and_truncated_is_waived_in_its_copy(
    tmp_path: Path,
) -> None:
    copied = Copied(tmp_path)
    row = copied.put(OLD, START_MS, read_in=copied.log)
    copied.world.plans[0].rows.clear()
    copied.world.told["destroyed"] = [told(row, type="lines", written_ms=START_MS + 90_000)]
    assert [kind for kind, _ in found_in(copied.world)] == ["lost", "manifest"], (
        "the other line alone is lost"
    )


def vanished(world: World, size: int, **told: Any) -> list[dict[str, Any]]:
    """The application's log lies elsewhere now; so much of it had been read."""
    app = world.sources / "app.log"
    there = app.rename(world.sources.parent / "elsewhere.log")
    return [{**world.told_of(app), "path": str(there), "size": size, **told}, *world.files[1:]]


def test_of_a_log_that_lies_elsewhere_now_what_was_read_is_demanded_and_no_more(
    world: World,
) -> None:
    app = world.sources / "app.log"
    length, written = app.stat().st_size, world.written()
    row = world.plan("lines", 1).rows.pop()
    world.write()
    files = vanished(world, row["position"], read_as=str(app))
    assert run(world, files=files, written=written)["content"], "though its writer wrote all of it"
    files[0]["size"] = length
    assert ("lost", "elsewhere.log", row["position"]) in findings(
        run(world, files=files, written=written)
    )


def test_lines_of_a_log_that_lies_elsewhere_were_read_where_it_was(world: World) -> None:
    written = world.written()
    world.write()
    files = vanished(world, (world.sources / "app.log").stat().st_size)
    verdict = run(world, files=files, written=written)
    assert "its source path is" in verdict["findings"][0]["detail"], "nobody says where it was"
