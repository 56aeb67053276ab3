"""`hourmark bucket why`, `force` and the open hours of `ls`, on a real ledger and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from etl.bucket_cli import bucket
from etl.ledger.database import Database
from etl.ledger.orders import Wait, orders, put_waits
from etl.storage import LocalDisk
from hourmark.config import load_config
from hourmark.errors import Unavailable, UsageError
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from tests.support.buckets import HOUR, TYPE, usual_plan
from tests.support.rules import put_rules

PAST = Hour.parse("2026-01-05T07")  # long ended
FUTURE = Hour(PAST.start_s + 87_600 * 3600)
Run = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "hourmark.toml"
    made.write_text(f'[storage]\nroot = "file://{tmp_path}/root"\n[etl]\nledger = "sqlite:///{tmp_path}/ledger.sqlite"\n')
    return made


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    config = load_config(file)
    sources = [Source(name="app", types=["click", "view"])]
    for name, first in (("click", PAST), ("view", FUTURE)):
        put_rules(config, [EventType(name=name, fields=[{"name": "n", "type": "long"}])], sources, first)
    made = Database(config.etl.ledger)
    yield made
    made.close()


@pytest.fixture
def run(file: Path) -> Run:
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(file)])


def test_why_says_what_holds_the_hour_and_what_to_do(database: Database, run: Run) -> None:
    result = run("why", "click", str(PAST))
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith(f"click {PAST}: open; it is the next hour of click to close")
    assert "no delivery service has reported yet" in result.stdout and "hourmark serve" in result.stdout
    found = json.loads(run("why", "click", str(PAST), "--json").stdout)
    assert (found["state"], found["reasons"][0]["do"]) == (
        "open",
        "start one: `hourmark serve`; `hourmark bucket force` closes without",
    )


def test_why_of_a_later_hour_and_of_an_unknown_type_ends_well(database: Database, run: Run) -> None:
    assert json.loads(run("why", "click", str(PAST.next()), "--json").stdout)["state"] == "later"
    result = run("why", "clik", str(PAST))
    assert result.exit_code == 0 and "did you mean click?" in result.stdout


def test_why_without_a_ledger_says_where_it_should_be_and_makes_none(run: Run, tmp_path: Path) -> None:
    result = run("why", "click", str(PAST))
    assert isinstance(result.exception, Unavailable) and f"{tmp_path}/ledger.sqlite" in str(result.exception)
    assert not (tmp_path / "ledger.sqlite").exists()


def test_why_of_a_closed_hour_is_told_by_storage_where_there_is_no_ledger(run: Run, tmp_path: Path) -> None:
    usual_plan(LocalDisk(tmp_path / "root")).close()
    result = run("why", TYPE, str(HOUR))
    assert result.exit_code == 0 and "closed as proved" in result.stdout


def test_force_writes_an_order_after_naming_what_is_not_verified(database: Database, run: Run) -> None:
    result = run("force", "click", str(PAST), "--reason", "ticket 17", "--yes", "--json")
    assert result.exit_code == 0, result.exception
    assert "no delivery service has reported yet" in result.stderr
    assert json.loads(result.stdout)[0]["hour"] == str(PAST)
    order = orders(database)["click"]
    assert (order.hour_s, order.reason) == (PAST.start_s, "ticket 17") and "@" in order.ordered_by
    assert "ordered it closed by force: ticket 17" in run("why", "click", str(PAST)).stdout


def test_force_asks_on_a_terminal_and_takes_no_for_an_answer(
    database: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.frontier_cli.on_terminal", lambda: True)
    arguments = ["force", "click", str(PAST), "--reason", "r", "--config", str(file)]
    result = CliRunner().invoke(bucket, arguments, input="n\n")
    assert result.exit_code == 1 and "Order it?" in result.stderr and orders(database) == {}
    assert CliRunner().invoke(bucket, arguments, input="y\n").exit_code == 0
    assert list(orders(database)) == ["click"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["click", str(PAST), "--reason", "r"], "--yes"),  # no terminal
        (["click", str(PAST), "--reason", " ", "--yes"], "needs a reason"),
        (["click", str(PAST.next()), "--reason", "r", "--yes"], f"the frontier of click is {PAST}"),
        (["view", str(FUTURE), "--reason", "r", "--yes"], "has not ended"),
        (["other", str(PAST), "--reason", "r", "--yes"], "no event type other"),
        (["click", "--reason", "r", "--yes"], "name TYPE and HOUR"),
        (["--reason", "r", "--yes"], "name TYPE and HOUR"),
        (["click", str(PAST), "--all-types", "--reason", "r", "--yes"], "name TYPE and HOUR"),
        (["--all-types", "--reason", "r", "--yes"], "not every type's hour has ended"),
    ],
)
def test_force_refuses_what_cannot_be_meant(database: Database, run: Run, arguments: list[str], message: str) -> None:
    result = run("force", *arguments)
    assert isinstance(result.exception, UsageError) and message in str(result.exception)
    assert orders(database) == {}


def test_force_without_a_reason_is_wrong_use(database: Database, run: Run) -> None:
    result = run("force", "click", str(PAST), "--yes")
    assert result.exit_code == 2 and "--reason" in result.stderr


def test_ls_shows_the_hours_that_are_open_with_what_they_wait_for(database: Database, run: Run) -> None:
    put_waits(database, database.acquire("closer"), [Wait("click", PAST, "control", ("mirror: 5 of 9",), 1)], ())
    result = run("ls")
    assert result.exit_code == 0
    _, click, view = result.stdout.splitlines()
    assert click.split()[:3] == ["click", str(PAST), "open"] and click.endswith("mirror: 5 of 9")
    assert view.split()[:3] == ["view", str(FUTURE), "open"] and "its end, in " in view
    (row,) = json.loads(run("ls", "click", "--json").stdout)
    assert (row["state"], row["grade"], row["waits_for"]) == ("open", None, "mirror: 5 of 9")
    assert row["overdue_s"] > 0
