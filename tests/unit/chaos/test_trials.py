"""Results are appended and read again, and the page's table is what the command makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faults.chaos.__main__ import PAGE, PUBLISHED, chaos, made_table
from tests.faults.chaos.checkers import DRAINED_S
from tests.faults.chaos.trials import BEGIN, END, Trial, append, put, read, table


def trial(**given: object) -> Trial:
    fields: dict[str, object] = {
        "date": "2026-11-25",
        "commit": "abc",
        "tier": "pr",
        "seed": 1,
        "workloads": ["api"],
        "seconds": 300.0,
        "load": 1.5,
        "written": 10,
        "compared": 10,
        "faults": [("driver-sigkill", 70.0), ("registry-sigkill", None)],
        "violations": {},
        "planted": 12,
        "overlooked": [],
    }
    return Trial.model_validate({**fields, **given})


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    trials = [trial(), trial(seed=2)]
    for one in trials:
        append(tmp_path / "of" / "trials.jsonl", one)
    assert read(tmp_path / "of" / "trials.jsonl") == trials


def test_the_rule_of_three_is_told_of_all_injections_without_a_violation() -> None:
    made = table([trial(), trial(seed=2)], {"driver-sigkill": "all"})
    assert "4 injections in 2 runs" in made
    assert "at most 75.0%" in made
    assert "| driver-sigkill | all | 2 | 0 | 70 s, 70 s |" in made
    assert "| registry-sigkill | (no longer a fault) | 2 | 0 | - |" in made


def test_what_was_destroyed_is_told_beside_what_was_compared() -> None:
    runs = table([trial(written=1200, compared=1100), trial(seed=2)], {})
    assert "| 1,100 of 1,200 |" in runs and "| 10 |" in runs


def test_a_violation_is_told_and_bounds_nothing() -> None:
    made = table([trial(violations={"lost": 2})], {})
    assert "rule of three" not in made
    assert "| 2 lost |" in made
    assert "(no longer a fault)" in made


def test_a_violation_of_one_fault_is_not_its_neighbours() -> None:
    made = table([trial(violations={"not drained": 1}, blamed={"registry-sigkill": 1})], {})
    assert "| driver-sigkill | (no longer a fault) | 1 | 0 |" in made
    assert "| registry-sigkill | (no longer a fault) | 1 | 1 |" in made
    assert "1 violations: 1 while one fault was active, 0 while several were, and 0 that" in made


def test_a_violation_during_several_faults_counts_once_and_for_none_of_them() -> None:
    several = ["driver-sigkill", "registry-sigkill"]
    made = table([trial(violations={"not drained": 1}, shared=[("not drained", several)])], {})
    assert "| driver-sigkill | (no longer a fault) | 1 | 0 |" in made
    assert "| registry-sigkill | (no longer a fault) | 1 | 0 |" in made
    assert "1 violations: 0 while one fault was active, 1 while several were, and 0 that" in made
    assert "| 2026-11-25 | pr 1 | not drained | driver-sigkill, registry-sigkill |" in made


def test_a_violation_that_no_fault_is_known_for_is_told_of_its_run_alone() -> None:
    made = table([trial(violations={"lost": 2}), trial(seed=2)], {})
    assert "| driver-sigkill | (no longer a fault) | 2 | 0 |" in made
    assert "2 violations: 0 while one fault was active, 0 while several were, and 2 that" in made
    assert "## Violations during several faults\n\nNone." in made


def test_the_table_takes_its_place_and_no_other() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put(page, f"{BEGIN}\nnew\n{END}") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(AssertionError, match="no place"):
        put("a page", "a table")


def test_each_published_violation_counts_once() -> None:
    for one in read(PUBLISHED):
        late = {name for name, seconds in one.faults if seconds is None or seconds > DRAINED_S}
        known = {name for kind, names in one.shared for name in names if kind == "not drained"}
        assert late <= known | {*one.blamed}
        assert not any(name in one.blamed for name in known), (
            "it is known to be one fault's, or not"
        )
        assert one.unassigned >= 0


def test_the_page_has_the_table_of_the_results() -> None:
    assert made_table(PUBLISHED) in PAGE.read_text(), "run `./hourmark chaos report`"


@pytest.mark.parametrize("published", [False, True])
def test_a_run_leaves_the_checkout_alone_unless_it_names_the_published_file(
    published: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path))
    monkeypatch.setattr(
        "tests.faults.chaos.__main__.played",
        lambda folder, schedule, results, minutes: files.append(results) or True,  # type: ignore[func-returns-value]
    )
    named = ["--results", str(PUBLISHED)] if published else []
    done = CliRunner().invoke(chaos, ["run", "--seed", "1", "--rounds", "1", *named])
    assert done.exit_code == 0, done.output
    assert files == [PUBLISHED if published else tmp_path / "chaos" / "trials.jsonl"]
