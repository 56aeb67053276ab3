"""What the doctor says of a ledger and a configuration that are of different sites."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.closed_hours import FIRST, add_type, closed_manifest, write_config
from tests.support.records import CLICK
from tests.support.rules import put_rules

from hourmark.clock import SystemClock
from hourmark.commands.component_status import ComponentState
from hourmark.config.loading import Config, load_config
from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Grade
from hourmark.rules.event_types import Source
from hourmark_declare.doctor.check_result import CheckStatus
from hourmark_declare.doctor.ledger_check import check_ledger
from hourmark_etl.ledger.database import Database
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.trouble import types_status
from hourmark_etl.storage import LocalDisk
from hourmark_etl.telemetry.component_status import driver_status


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_config(tmp_path, f"sqlite:///{tmp_path}/ledger.sqlite")


@pytest.fixture
def other_length(file: Path) -> Config:
    """A configuration of hours, and a ledger of minutes."""
    minutes = file.with_name("minutes.toml")
    minutes.write_text(f"{file.read_text()}[parsing]\nbucket_seconds = 60\n")
    first = Hour.parse("2026-11-29T18:17", 60)
    put_rules(load_config(minutes), [CLICK], [Source(name="app", types=["click"])], first)
    return load_config(file)


LENGTHS = "parsing.bucket_seconds is 3600, but the ledger's buckets have 60 s"


@pytest.mark.parametrize(
    "command",
    [
        ("why", "click", "2026-11-29T18"),
        ("ls",),
        ("wait", "click", "2026-11-29T18", "--timeout", "0"),
        ("force", "click", "2026-11-29T18", "--reason", "r", "--yes"),
    ],
    ids=lambda command: command[0],
)
def test_operators_commands_name_another_length_of_buckets(
    other_length: Config, file: Path, command: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(bucket, [*command, "--config", str(file)])
    assert LENGTHS in f"{result.exception} {result.stderr}"


def test_status_and_doctor_name_another_length_of_buckets_once(other_length: Config) -> None:
    now_ms = SystemClock().now_ms()
    driver, types = driver_status(other_length, now_ms), types_status(other_length, now_ms)
    (problem,) = [*driver.problems, *types.problems]
    assert LENGTHS in problem.what and "`hourmark config show`" in problem.do
    assert types.state is ComponentState.UNKNOWN
    (found,) = check_ledger(other_length)
    assert found.verdict is CheckStatus.FINDING and LENGTHS in found.seen


def test_a_root_that_lacks_the_newest_bucket_of_the_ledger_is_a_finding(
    file: Path, tmp_path: Path
) -> None:
    config, grades = load_config(file), [Grade.PROVED, Grade.PROVED]
    with Database(config.etl.ledger) as database:
        add_type(database, "click", grades)
    storage = LocalDisk(tmp_path / "root")
    storage.write_new(f"{FIRST.bucket_path('click')}/{MARKER}", b"{}")
    well, found = check_ledger(config)
    newest = FIRST.next()
    assert well.verdict is CheckStatus.PASSED and found.verdict is CheckStatus.FINDING
    assert f"the ledger has closed click {newest}" in found.seen and "storage.root" in found.to_do
    marker = closed_manifest("click", newest).encode()
    storage.write_new(f"{newest.bucket_path('click')}/{MARKER}", marker)
    assert [answer.verdict for answer in check_ledger(config)] == [CheckStatus.PASSED]


def test_a_ledger_that_has_closed_nothing_asks_no_storage(file: Path) -> None:
    config = load_config(file)
    with Database(config.etl.ledger) as database:
        add_type(database, "click")
    assert [answer.verdict for answer in check_ledger(config)] == [CheckStatus.PASSED]


def test_the_length_of_the_ledger_is_accepted(other_length: Config, file: Path) -> None:
    result = CliRunner().invoke(bucket, ["ls", "--config", str(file.with_name("minutes.toml"))])
    assert result.exit_code == 0 and not isinstance(result.exception, UsageError)
