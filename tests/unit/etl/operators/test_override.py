"""`hourmark bucket why`, `force` and the open hours of `ls`, on a real ledger and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete
from tests.support.buckets import HOUR, TYPE, usual_plan
from tests.support.ledger_queries import rewrite
from tests.support.records import CLICK, TOPICS, blocker, manifest, seal
from tests.support.revisions import VIEW
from tests.support.rules import put_rules
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.loading import load_config
from hourmark.errors import Unavailable, UsageError
from hourmark.records.hours import Hour
from hourmark.records.manifest import PreviousMarker
from hourmark.rules.event_types import Source
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import insert_closed_buckets
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.heartbeat import (
    BEAT_SECONDS,
    Heartbeat,
    last_heartbeat_ms,
    write_heartbeat,
)
from hourmark_etl.ledger.overrides import overrides, put_blockers
from hourmark_etl.model import ClosingPhase
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.buckets.exits import BucketExit
from hourmark_etl.storage import LocalDisk

PAST = Hour.parse("2026-01-05T07")  # long ended
FUTURE = Hour(PAST.start_s + 87_600 * 3600)
Run = Callable[..., Result]


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    config = load_config(file)
    sources = [Source(name="app", types=["click", "view"])]
    for event_type, first in ((CLICK, PAST), (VIEW, FUTURE)):
        put_rules(config, [event_type], sources, first)
    made = Database(config.etl.ledger)
    write_heartbeat(made, made.acquire("closer"), SystemClock().now_ms())
    yield made
    made.close()


@pytest.fixture
def run(file: Path) -> Run:
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(file)])


def block(database: Database, phase: ClosingPhase, what: str) -> None:
    """What click's hour waits for."""
    put_blockers(database, database.acquire("closer"), [blocker(phase, what, hour=PAST)], ())


def force(run: Run, *arguments: str) -> Result:
    """Without a question; click's hour where nothing else is named."""
    return run("force", *(arguments or ("click", str(PAST))), "--reason", "ticket 17", "--yes")


def test_why_says_what_holds_the_hour_and_what_to_do(database: Database, run: Run) -> None:
    result = run("why", "click", str(PAST))
    assert result.exit_code == BucketExit.OPEN, result.exception
    assert result.stdout.startswith(f"click {PAST}: open; it is the next hour of click to close")
    assert (
        "no delivery service has reported yet" in result.stdout
        and "hourmark serve" in result.stdout
    )
    found = json.loads(run("why", "click", str(PAST), "--json").stdout)
    assert (found["state"], found["reasons"][0]["do"]) == (
        "open",
        "start one: `hourmark serve`; alternatively, `hourmark bucket force` closes the bucket "
        "without a service",
    )


def test_why_of_a_later_hour_and_of_an_unknown_type_ends_well(database: Database, run: Run) -> None:
    assert json.loads(run("why", "click", str(PAST.next()), "--json").stdout)["state"] == "later"
    result = run("why", "clik", str(PAST))
    assert result.exit_code == BucketExit.NO_BUCKET and "did you mean click?" in result.stdout


def test_why_without_a_ledger_says_where_it_should_be_and_makes_none(
    run: Run, tmp_path: Path
) -> None:
    result = run("why", "click", str(PAST))
    assert isinstance(result.exception, Unavailable) and f"{tmp_path}/ledger.sqlite" in str(
        result.exception
    )
    assert not (tmp_path / "ledger.sqlite").exists()


def test_why_of_a_closed_hour_is_told_by_storage_where_there_is_no_ledger(
    run: Run, tmp_path: Path
) -> None:
    usual_plan(LocalDisk(tmp_path / "root")).close()
    result = run("why", TYPE, str(HOUR))
    assert result.exit_code == 0 and "closed as proved" in result.stdout


def test_force_writes_an_override_after_naming_what_is_not_verified(
    database: Database, run: Run
) -> None:
    result = run("force", "click", str(PAST), "--reason", "ticket 17", "--yes", "--json")
    assert result.exit_code == 0, result.exception
    assert "no delivery service has reported yet" in result.stderr
    assert json.loads(result.stdout)[0]["hour"] == str(PAST)
    override = overrides(database)["click"]
    assert (override.hour_s, override.reason) == (
        PAST.start_s,
        "ticket 17",
    ) and "@" in override.requested_by
    assert "ordered to close it by force: ticket 17" in run("why", "click", str(PAST)).stdout


def test_force_asks_on_a_terminal_and_takes_no_for_an_answer(
    database: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_etl.operators.override.is_stdin_terminal", lambda: True)
    arguments = ["force", "click", str(PAST), "--reason", "r", "--config", str(file)]
    result = CliRunner().invoke(bucket, arguments, input="n\n")
    assert (
        result.exit_code == 1
        and "Close it by force?" in result.stderr
        and overrides(database) == {}
    )
    assert CliRunner().invoke(bucket, arguments, input="y\n").exit_code == 0
    assert list(overrides(database)) == ["click"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["click", str(PAST), "--reason", "r"], "--yes"),  # no terminal
        (["click", str(PAST), "--reason", " ", "--yes"], "requires a reason"),
        (
            ["click", str(PAST.next()), "--reason", "r", "--yes"],
            f"the next hour of click is {PAST}",
        ),
        (["view", str(FUTURE), "--reason", "r", "--yes"], "has not ended"),
        (["other", str(PAST), "--reason", "r", "--yes"], "no event type other"),
        (["click", "--reason", "r", "--yes"], "name TYPE and HOUR"),
        (["--reason", "r", "--yes"], "name TYPE and HOUR"),
        (["click", str(PAST), "--all-types", "--reason", "r", "--yes"], "name TYPE and HOUR"),
        (["--all-types", "--reason", "r", "--yes"], "the hours of some types have not ended"),
    ],
)
def test_force_refuses_what_cannot_be_meant(
    database: Database, run: Run, arguments: list[str], message: str
) -> None:
    result = run("force", *arguments)
    assert isinstance(result.exception, UsageError) and message in str(result.exception)
    assert overrides(database) == {}


def test_force_of_an_hour_without_a_bucket_says_why_it_has_none(
    database: Database, run: Run
) -> None:
    oldest, skipped, newest = (Hour(PAST.start_s - n * 3600) for n in (10, 7, 5))
    result = force(run, "click", str(skipped))
    assert "it has no bucket yet: nothing of click is closed" in str(result.exception)
    previous = PreviousMarker(hour=str(oldest), blake2b="0" * 32)
    closed = [(oldest, manifest(oldest)), (newest, manifest(newest, previous=previous))]
    with database.transaction() as connection:
        insert_closed_buckets(connection, closed)
    of_click = tables.frontiers.c.type == "click"
    rewrite(database, tables.frontiers, of_click, backfilled_hour=newest.start_s)
    for hour, words in (
        (skipped, f"click {skipped} was skipped because it has no events"),
        (
            Hour(oldest.start_s - 3600),
            f"will never have one, because buckets of click begin at {oldest}",
        ),
        (newest, "already closed"),
    ):
        result = force(run, "click", str(hour))
        assert isinstance(result.exception, UsageError) and words in str(result.exception)
    assert overrides(database) == {}


def test_force_without_a_reason_is_wrong_use(database: Database, run: Run) -> None:
    result = run("force", "click", str(PAST), "--yes")
    assert result.exit_code == 2 and "--reason" in result.stderr


def test_ls_shows_the_hours_that_are_open_with_what_they_wait_for(
    database: Database, run: Run
) -> None:
    block(database, ClosingPhase.CONTROL, "mirror: 5 of 9")
    result = run("ls")
    assert result.exit_code == 0
    _, click, view = result.stdout.splitlines()
    assert click.split()[:3] == ["click", str(PAST), "open"] and click.endswith("mirror: 5 of 9")
    assert view.split()[:3] == ["view", str(FUTURE), "open"] and "its end in " in view
    (row,) = json.loads(run("ls", "click", "--json").stdout)
    assert (row["state"], row["grade"], row["waits_for"]) == ("open", None, "mirror: 5 of 9")
    assert row["overdue_s"] > 0


def die(database: Database, minutes: int) -> None:
    """The driver gave its last sign so long ago."""
    write_heartbeat(database, database.acquire("closer"), SystemClock().now_ms() - minutes * 60_000)


def test_with_a_dead_driver_why_ls_and_force_say_so(database: Database, run: Run) -> None:
    block(database, ClosingPhase.CONTROL, "mirror: 5 of 9")
    die(database, 47)
    why = run("why", "click", str(PAST)).stdout.splitlines()
    assert (
        why[1]
        .split(maxsplit=2)[2]
        .startswith("no driver is running: the last heartbeat in the ledger is 47 min old")
    )
    assert "no delivery service" not in "".join(why)
    click, view = json.loads(run("ls", "--json").stdout)
    assert (
        click["waits_for"]
        == "no driver is running: the last heartbeat in the ledger is 47 min old; then: "
        "mirror: 5 of 9"
    )
    assert view["waits_for"].startswith("its end in "), "nothing of it is overdue"
    result = force(run)
    assert result.exit_code == 0
    assert (
        "no driver is running: the last heartbeat in the ledger is 47 min old; `hourmark etl "
        "run` executes the override"
    ) in result.stderr


def beats() -> bool:
    """Whether a heartbeat's thread is alive in this process."""
    return any(thread.name == "heartbeat" for thread in threading.enumerate())


def test_a_driver_gives_signs_until_it_ends_or_is_taken_over(database: Database) -> None:
    die(database, 47)
    before_ms = last_heartbeat_ms(database)
    heartbeat = Heartbeat(database, database.acquire("closer"), SystemClock())
    heartbeat.start()
    while last_heartbeat_ms(database) == before_ms:
        assert beats()
    heartbeat.stop()
    late = Heartbeat(database, database.acquire("closer"), SystemClock())
    database.acquire("closer")
    late.start()
    wait_for(lambda: not beats(), "it was taken over", BEAT_SECONDS)


def seal_click(database: Database, grade: str) -> None:
    """Its hour is neither written nor published yet."""
    lease, opened = database.acquire("closer"), ledger.frontiers(database, 3600)[0]
    ledger.freeze(database, lease, [opened], TOPICS)
    ledger.seal(database, lease, {"click": [seal(grade=grade)]}, [opened])


def test_an_override_for_a_sealed_hour_is_refused_with_what_it_waits_for(
    database: Database, run: Run
) -> None:
    seal_click(database, "timed_out")
    result = force(run)
    assert (
        isinstance(result.exception, UsageError)
        and "ordered" not in result.stdout
        and overrides(database) == {}
    )
    said = str(result.exception)
    assert f"click {PAST} is already sealed as timed_out" in said and "and none was stored" in said
    assert "it is written and published by the driver" in said
    what = "file:///root/click/… stands, and is no bucket of Hourmark's"
    block(database, ClosingPhase.PUBLISHING, what)
    assert f"it waits for: (publishing) {what}" in str(force(run).exception)
    assert overrides(database) == {}


def test_an_override_for_a_sealed_hour_whose_file_is_lost_says_what_it_gives_up(
    database: Database, run: Run
) -> None:
    seal_click(database, "timed_out")
    block(database, ClosingPhase.STAGED, "_staging/1/events-2 …")
    result = force(run)
    assert result.exit_code == 0 and list(overrides(database)) == ["click"]
    assert (
        "it is already sealed. The override only permits closing it without lost staged files"
        in result.stderr
    )
    assert "_staging/1/events-2 …" in result.stderr


def test_an_override_for_all_types_says_which_hours_are_sealed_already(
    database: Database, run: Run
) -> None:
    with database.transaction() as connection:
        connection.execute(delete(tables.frontiers).where(tables.frontiers.c.type != "click"))
    seal_click(database, "proved")
    result = force(run, "--all-types")
    assert isinstance(result.exception, UsageError)
    assert f"about to be published by the driver: click {PAST}" in str(result.exception)
    block(database, ClosingPhase.PUBLISHING, "something stands there")
    result = force(run, "--all-types")
    assert result.exit_code == 0
    assert f"click {PAST}: already sealed, and closes with its fixed content" in result.stdout


def test_an_override_for_all_types_names_one_command_for_those_of_one_hour(
    database: Database, run: Run, file: Path
) -> None:
    sources = [Source(name="app", types=["click", "view"])]
    rewrite(database, tables.frontiers, tables.frontiers.c.type == "view", hour=PAST.start_s)
    put_rules(load_config(file), [CLICK, VIEW], sources, PAST)
    (line,) = [x for x in force(run, "--all-types").stdout.splitlines() if "ordered" in x]
    assert line == (
        f"click, view {PAST}: ordered; `hourmark bucket ls --state open` shows their progress"
    )
