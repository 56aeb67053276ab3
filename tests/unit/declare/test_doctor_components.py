"""What the doctor says of components that run: each fault once, causes before consequences, and many
findings of one kind as one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hourmark.commands.component_status import ComponentState, ComponentStatus
from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.loading import Config
from hourmark.errors import Finding
from hourmark_declare.doctor.check_result import (
    CheckStatus,
    DoctorCheckResult,
    finding_result,
    merge_findings,
    passed_result,
)
from hourmark_declare.doctor.check_runner import CHECKS, run_checks
from hourmark_declare.doctor.cli import doctor
from hourmark_declare.doctor.components_check import evaluate_components
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.heartbeat import write_heartbeat

NOW_MS = 1_800_000_000_000


def problem(cause: CauseClass, key: str, subject: str) -> Problem:
    return Problem(cause=cause, key=key, subject=subject, what="it is wrong", do="act")


def test_causes_come_first_and_servers_are_left_to_their_own_checks() -> None:
    statuses = {
        "types": ComponentStatus(
            ComponentState.RUNNING,
            "4 types",
            problems=(problem(CauseClass.TYPES, "types:", "4 types"),),
        ),
        "etl": ComponentStatus(
            ComponentState.NOT_RUNNING,
            "dead",
            problems=(
                problem(CauseClass.COMPONENT, "driver", "etl driver"),
                problem(CauseClass.SERVER, "ledger", "ledger"),
            ),
        ),
        "service": ComponentStatus(ComponentState.RUNNING, "ready"),
        "mirror": ComponentStatus(ComponentState.NOT_RUNNING, "not needed"),
    }
    assert [(a.subject, a.verdict) for a in evaluate_components(statuses)] == [
        ("etl driver", CheckStatus.FINDING),
        ("4 types", CheckStatus.FINDING),
        ("service", CheckStatus.PASSED),
        ("mirror", CheckStatus.SKIPPED),
    ]


def test_checks_run_in_the_order_of_causes() -> None:
    order = list(CHECKS)
    assert order.index("clocks") < order.index("kafka") < order.index("services")
    assert order.index("ledger") < order.index("components") < order.index("retention")


def test_a_fault_that_two_checks_found_is_in_the_first_and_two_of_one_check_stay() -> None:
    def first(_: Config) -> Iterator[DoctorCheckResult]:
        yield finding_result("first", "one", "away", "start it", key="service:one")
        yield finding_result("first", "one again", "away", "start it", key="service:one")

    def second(_: Config) -> Iterator[DoctorCheckResult]:
        yield finding_result("second", "same", "away", "start it", key="service:one")
        yield finding_result("second", "other", "away", "start it")

    told = run_checks(Config(), table={"first": first, "second": second})
    assert [answer.subject for answer in told] == ["one", "one again", "other"]


def test_two_hundred_topics_with_one_fault_are_one_line_and_other_findings_stay() -> None:
    topics = [
        finding_result(
            "kafka",
            f"edge events.type-{n}",
            f"replicas of partition {n} are behind: broker 2 lacks events.type-{n}",
            f"see broker 2, then `kafka-topics.sh --describe --topic events.type-{n}`",
        )
        for n in range(200)
    ]
    other = finding_result("kafka", "edge", "2 brokers, replication factor 3", "start broker 2")
    well = passed_result("kafka", "central", "1 broker")
    merged = merge_findings([well, other, *topics])
    assert [m.subject for m in merged] == [
        "central",
        "edge",
        "edge events.type-0 and 199 more (--json names all)",
    ]


def test_a_few_alike_stay_apart() -> None:
    alike = [finding_result("kafka", f"edge {n}", "it does not exist", "apply") for n in "abc"]
    assert merge_findings(alike) == alike


@pytest.mark.slow
def test_a_dead_driver_is_found_with_the_hours_that_wait_for_it_as_its_consequence(
    tmp_path: Path,
) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.sqlite"
    with Database(ledger) as database:
        lease = database.acquire(CLOSER)
        write_heartbeat(database, lease, NOW_MS)
        assert frontiers(database, 3600) == []
    file = tmp_path / "hourmark.toml"
    file.write_text(
        f"""[etl]
ledger = "{ledger}"
metrics_port = 0
[storage]
root = "file://{tmp_path}/root"
"""
    )
    done = CliRunner().invoke(doctor, ["--only", "components", "--config", str(file), "--json"])
    assert isinstance(done.exception, Finding)
    found = [a for a in json.loads(done.stdout)["answers"] if a["verdict"] == "finding"]
    assert [(a["subject"], a["check"]) for a in found] == [("etl driver", "components")]
    assert "no driver is running" in found[0]["seen"] and "hourmark etl run" in found[0]["to_do"]
    assert "key" not in found[0]
