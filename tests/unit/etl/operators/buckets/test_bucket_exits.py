"""`hourmark bucket why` and `show` state by their exit code whether and how a bucket is closed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete, update
from tests.support.buckets import HOUR, TYPE, usual_plan
from tests.support.closed_hours import add_type, closed_manifest, hour_after, write_config
from tests.support.documents import ROOT

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Grade, Manifest
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.buckets.exits import EXIT_CODES, BucketExit, exit_of_explanation
from hourmark_etl.operators.explain import Explanation
from hourmark_etl.storage import LocalDisk, Storage

OPEN = hour_after(3)
BEFORE = hour_after(0).previous()
BY_GRADE = {
    Grade.PROVED: BucketExit.PROVED,
    Grade.TIMED_OUT: BucketExit.TIMED_OUT,
    Grade.FORCED: BucketExit.FORCED,
}
Run = Callable[..., Result]


@pytest.fixture
def config_file(tmp_path: Path, ledger_url: str) -> Path:
    return write_config(tmp_path, ledger_url)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalDisk(tmp_path / "root")


@pytest.fixture
def database(ledger_url: str, storage: Storage) -> Iterator[Database]:
    """Click has one closed hour of each grade, also on storage, and the next one is open."""
    with Database(ledger_url) as made:
        add_type(made, "click", [*Grade])
        for n, grade in enumerate(Grade):
            put_marker(storage, closed_manifest("click", hour_after(n), grade), hour_after(n))
        yield made


@pytest.fixture
def run(config_file: Path) -> Run:
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(config_file)])


def put_marker(storage: Storage, manifest: Manifest, hour: Hour) -> None:
    storage.write_new(f"{hour.bucket_path(manifest.type)}/{MARKER}", manifest.encode())


def exit_of(result: Result) -> int:
    """As the program ends: an error's own code, and otherwise the command's."""
    return int(getattr(result.exception, "exit_code", result.exit_code))


@pytest.mark.parametrize("command", ["why", "show"])
def test_each_grade_has_its_exit_code(database: Database, run: Run, command: str) -> None:
    for n, grade in enumerate(Grade):
        result = run(command, "click", str(hour_after(n)))
        assert (exit_of(result), grade.value in result.stdout) == (BY_GRADE[grade], True)
        assert exit_of(run(command, "click", str(hour_after(n)), "--json")) == BY_GRADE[grade]


@pytest.mark.parametrize("command", ["why", "show"])
def test_an_open_hour_a_later_one_and_one_that_will_never_exist_differ(
    database: Database, run: Run, command: str
) -> None:
    found = {
        (name, str(hour)): exit_of(run(command, name, str(hour)))
        for name, hour in (
            ("click", OPEN),
            ("click", OPEN.next()),
            ("click", BEFORE),
            ("clik", OPEN),
        )
    }
    assert list(found.values()) == [
        BucketExit.OPEN,
        BucketExit.OPEN,
        BucketExit.NO_BUCKET,
        BucketExit.NO_BUCKET,
    ]


def test_why_names_the_grade_of_a_closed_bucket(database: Database, run: Run) -> None:
    found = json.loads(run("why", "click", str(hour_after(1)), "--json").stdout)
    assert (found["state"], found["grade"]) == ("closed", "timed_out")
    found = json.loads(run("why", "click", str(OPEN), "--json").stdout)
    assert (found["state"], found["grade"]) == ("open", None)


def test_show_of_an_open_hour_says_so_with_what_the_ledger_knows(
    database: Database, run: Run
) -> None:
    said = str(run("show", "click", str(OPEN)).exception)
    assert f"click {OPEN} is not closed" in said and "it is the next hour of click" in said


def test_show_of_a_bucket_whose_marker_is_lost_is_an_error(
    database: Database, run: Run, storage: Storage
) -> None:
    storage.delete(f"{hour_after(0).bucket_path('click')}/{MARKER}")
    result = run("show", "click", str(hour_after(0)))
    assert exit_of(result) == BucketExit.ERROR and "closed as proved" in str(result.exception)
    assert exit_of(run("why", "click", str(hour_after(0)))) == BucketExit.PROVED


def test_a_bucket_that_the_ledger_has_lost_and_a_damaged_row_are_errors(
    database: Database, run: Run
) -> None:
    with database.transaction() as connection:
        connection.execute(delete(tables.buckets).where(tables.buckets.c.grade == "forced"))
        damaged = tables.buckets.c.grade == "timed_out"
        connection.execute(update(tables.buckets).where(damaged).values(manifest="{"))
    assert exit_of(run("why", "click", str(hour_after(2)))) == BucketExit.ERROR
    result = run("why", "click", str(hour_after(1)))
    assert exit_of(result) == BucketExit.ERROR and "ledger check" in str(result.exception)
    with database.transaction() as connection:
        connection.execute(update(tables.frontiers).values(first_hour=0))
    result = run("why", "click", str(OPEN))
    assert exit_of(result) == BucketExit.ERROR and "row of the type is damaged" in result.stdout


def test_without_a_ledger_storage_alone_decides(tmp_path: Path) -> None:
    usual_plan(LocalDisk(tmp_path / "root")).close()
    file = write_config(tmp_path, f"sqlite:///{tmp_path}/none.sqlite")

    def ended(*arguments: str) -> int:
        return exit_of(CliRunner().invoke(bucket, [*arguments, "--config", str(file)]))

    assert ended("why", TYPE, str(HOUR)) == ended("show", TYPE, str(HOUR)) == BucketExit.PROVED
    assert ended("show", TYPE, str(HOUR.next())) == BucketExit.OPEN
    assert ended("why", TYPE, str(HOUR.next())) == BucketExit.ERROR, "the ledger is lost"


@pytest.mark.parametrize("state", ["open", "frozen", "sealed", "later"])
def test_every_state_before_closing_is_open(state: str) -> None:
    explanation = Explanation(event_type="click", hour=str(OPEN), state=state, summary="")
    assert exit_of_explanation(explanation) is BucketExit.OPEN


@pytest.mark.parametrize("command", ["why", "show", "wait"])
def test_help_and_documentation_have_all_exit_codes(command: str) -> None:
    text = CliRunner().invoke(bucket, [command, "--help"]).stdout
    page = (ROOT / "docs" / "operate" / "list-buckets.md").read_text()
    for code in (2, *BucketExit):
        assert f"\n  {code:d}  " in EXIT_CODES and f"\n    {code:d}  " in text
        assert f"\n| {code:d} | " in page
