"""`hourmark doctor`: servers that are away, hang, or break the question itself are findings, and
keep none from being asked.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hourmark.config.loading import Config
from hourmark.errors import Finding, Unavailable, UsageError
from hourmark_declare.doctor import cli
from hourmark_declare.doctor.check_result import (
    CheckStatus,
    DoctorCheckResult,
    passed_result,
    skipped_result,
)
from hourmark_declare.doctor.check_runner import CHECKS, run_checks
from hourmark_declare.doctor.cli import doctor
from hourmark_infra.stack.layout import EDGE_NAMES
from hourmark_infra.stack.state import new_state, save_state

AWAY = """
[kafka.edge]
bootstrap = "127.0.0.1:1"
[kafka.central]
bootstrap = "127.0.0.1:1"
[mirror]
java = "/nonexistent/java"
work_dir = "{folder}"
[registry]
url = "http://127.0.0.1:1"
[storage]
root = "hdfs://127.0.0.1:1/hourmark"
webhdfs = "http://127.0.0.1:1"
[etl]
ledger = "sqlite:///{folder}/ledger.sqlite"
"""


@pytest.fixture
def away(tmp_path: Path) -> Path:
    file = tmp_path / "hourmark.toml"
    file.write_text(AWAY.format(folder=tmp_path))
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(doctor, [*arguments])


@pytest.mark.slow
def test_servers_that_are_away_are_findings_with_a_next_step(away: Path) -> None:
    done = run("--config", str(away), "--json")
    assert isinstance(done.exception, Finding) and done.exception.exit_code == 1
    told = json.loads(done.stdout)
    found = [answer for answer in told["answers"] if answer["verdict"] == "finding"]
    assert told["findings"] == len(found)
    assert all(answer["to_do"] for answer in found)
    assert {answer["check"] for answer in told["answers"]} == set(CHECKS)
    subjects = {(answer["check"], answer["subject"]) for answer in found}
    assert {
        ("kafka", "edge"),
        ("kafka", "central"),
        ("machine", "Java of mirror.java (/nonexistent/java)"),
    } <= subjects
    assert not (away.parent / "ledger.sqlite").exists()


def test_a_stack_that_was_stopped_is_one_finding(
    away: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = dataclasses.replace(new_state(), stopped_at_ms=1_767_225_600_000)
    save_state(tmp_path, state)
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path))
    edge = ",".join(f"127.0.0.1:{state.ports[name]}" for name in EDGE_NAMES)
    away.write_text(AWAY.format(folder=tmp_path).replace("127.0.0.1:1", edge, 1))
    done = run("--config", str(away), "--json", "--only", "kafka,registry,components")
    told = json.loads(done.stdout)
    assert told["findings"] == 1
    first, *others = told["answers"]
    assert first == {
        "check": "stack",
        "subject": f"local stack ({tmp_path})",
        "verdict": "finding",
        "seen": "`hourmark down` stopped its servers at 2026-01-01 00:00:00Z; data is kept",
        "to_do": "`hourmark up` starts the servers; `hourmark run` also starts the components",
    }
    assert [(one["check"], one["verdict"]) for one in others] == [
        ("kafka", "not asked"),
        ("registry", "not asked"),
        ("components", "not asked"),
    ]
    machine = json.loads(run("--config", str(away), "--json", "--only", "machine").stdout)
    assert machine["answers"][0]["check"] == "stack"
    assert {one["check"] for one in machine["answers"]} == {"stack", "machine"}


def test_a_line_says_what_is_wrong_and_the_next_what_to_do(away: Path) -> None:
    done = run("--config", str(away), "--only", "machine")
    lines = done.stdout.splitlines()
    assert "FINDING    machine: Java of mirror.java (/nonexistent/java): it does not run" in lines
    assert lines[-1] == "           do: install Java 17 or 21, and name it in mirror.java"
    assert "kafka" not in done.stdout


def test_a_kind_that_does_not_exist_is_refused() -> None:
    done = run("--only", "machine,kafak")
    assert isinstance(done.exception, UsageError) and "kafak" in str(done.exception)


def test_where_nothing_is_found_it_ends_well(away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cli,
        "run_checks",
        lambda *_: [
            passed_result("kafka", "edge", "3 brokers"),
            skipped_result("machine", "Java", "no mirror"),
        ],
    )
    done = run("--config", str(away))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "well       kafka: edge: 3 brokers",
        "not asked  machine: Java: no mirror",
    ]


def test_what_was_said_before_a_server_went_away_is_told_and_the_others_too() -> None:
    def goes_away(_: Config) -> Iterator[DoctorCheckResult]:
        yield passed_result("first", "one", "it answers")
        raise Unavailable("gone")

    def breaks(_: Config) -> Iterator[DoctorCheckResult]:
        yield passed_result("second", "one", "it answers")
        raise RuntimeError("not foreseen")

    def answers(_: Config) -> Iterator[DoctorCheckResult]:
        yield passed_result("third", "one", "it answers")

    told = run_checks(Config(), table={"first": goes_away, "second": breaks, "third": answers})
    assert [(a.check, a.verdict) for a in told] == [
        ("first", CheckStatus.PASSED),
        ("first", CheckStatus.FINDING),
        ("second", CheckStatus.PASSED),
        ("second", CheckStatus.FINDING),
        ("third", CheckStatus.PASSED),
    ]
    assert "gone" in told[1].seen and "RuntimeError: not foreseen" in told[3].seen


def test_one_that_hangs_is_a_finding_after_its_time() -> None:
    over = threading.Event()

    def hangs(_: Config) -> Iterator[DoctorCheckResult]:
        over.wait(60)
        yield passed_result("first", "one", "too late")

    def answers(_: Config) -> Iterator[DoctorCheckResult]:
        yield passed_result("second", "one", "it answers")

    try:
        told = run_checks(Config(), table={"first": hangs, "second": answers}, seconds=0.5)
    finally:
        over.set()
    assert [(a.check, a.verdict) for a in told] == [
        ("first", CheckStatus.FINDING),
        ("second", CheckStatus.PASSED),
    ]
    assert told[0].seen == "no answer within 0.5 s"
