"""`hourmark bucket wait` on real ledgers, with a clock of the test's own."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support import postgres as servers
from tests.support.clock import FakeClock
from tests.support.closed_hours import (
    FIRST,
    add_type,
    close_next,
    hour_after,
    write_config,
)

from hourmark.errors import Unavailable, UsageError
from hourmark.records.manifest import Grade
from hourmark_etl.errors import DamagedRow, NoLedger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import Blocker, put_blockers
from hourmark_etl.model import ClosingPhase
from hourmark_etl.operators.buckets import wait
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.buckets.exits import BucketExit
from hourmark_etl.operators.buckets.wait import BucketPoll, wait_for_bucket

REPORTED_S = 15.0


class EventfulClock(FakeClock):
    """A clock at which things happen: each when its time has come, while a sleep passes."""

    def __init__(self) -> None:
        super().__init__(FIRST.end_ms + 60_000)
        self.began_s = self.monotonic_s()
        self.at: dict[float, Callable[[], None]] = {}
        self.slept: list[float] = []

    @property
    def elapsed_s(self) -> float:
        return self.monotonic_s() - self.began_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)
        for due_s in sorted(s for s in self.at if s <= self.elapsed_s):
            self.at.pop(due_s)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> EventfulClock:
    made = EventfulClock()
    monkeypatch.setattr(wait, "SystemClock", lambda: made)
    return made


@pytest.fixture
def run(tmp_path: Path, ledger_url: str) -> Callable[..., Result]:
    file = write_config(tmp_path, ledger_url)

    def waited(*arguments: str) -> Result:
        return CliRunner().invoke(bucket, ["wait", *arguments, "--config", str(file)])

    return waited


Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("grade", "code"),
    [
        (Grade.PROVED, BucketExit.PROVED),
        (Grade.TIMED_OUT, BucketExit.TIMED_OUT),
        (Grade.FORCED, BucketExit.FORCED),
    ],
)
def test_a_bucket_that_closes_ends_the_wait_with_the_code_of_its_grade(
    ledger_url: str, run: Run, clock: EventfulClock, grade: Grade, code: int
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        clock.at[100] = lambda: close_next(database, "click", FIRST, grade)
        result = run("click", str(FIRST), "--timeout", "600")
    assert result.exit_code == code, result.exception
    assert result.stdout.startswith(f"click {FIRST}: closed as {grade.value} at ")
    assert 100 <= clock.elapsed_s <= 102


def test_what_is_awaited_is_reported_every_few_seconds(
    ledger_url: str, run: Run, clock: EventfulClock
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        wait = Blocker(
            event_type="click",
            hour=FIRST,
            phase=ClosingPhase.CONTROL,
            what=("mirror: 5 of 9",),
            since_ms=1,
        )
        clock.at[30] = lambda: put_blockers(database, database.acquire("closer"), [wait], ())
        result = run("click", str(FIRST), "--timeout", "60", "--json")
    lines = result.stderr.splitlines()
    assert 60 / REPORTED_S <= len(lines) <= 15
    assert lines[0].startswith(f"click {FIRST}: not closed after 0 s of 60 s; waits for: ")
    assert lines[-1].endswith("mirror: 5 of 9")
    row = json.loads(result.stdout)
    assert (row["type"], row["hour"], row["state"], row["grade"]) == (
        "click",
        str(FIRST),
        "open",
        None,
    )
    assert row["waits_for"].endswith("mirror: 5 of 9")
    assert (result.exit_code, clock.elapsed_s) == (BucketExit.OPEN, 60)
    assert max(clock.slept) <= 1, "between two polls"


def test_after_a_timeout_the_hour_is_explained(
    ledger_url: str, run: Run, clock: EventfulClock
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
    result = run("click", str(hour_after(2)), "--timeout", "0")
    assert (result.exit_code, clock.slept) == (BucketExit.OPEN, [])
    assert "not its turn yet" in result.stdout and f"first {FIRST}" in result.stdout


def test_a_later_hour_is_awaited_through_the_hours_before_it(
    ledger_url: str, run: Run, clock: EventfulClock
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        clock.at[5] = lambda: close_next(database, "click", FIRST, Grade.TIMED_OUT)
        clock.at[20] = lambda: close_next(database, "click", hour_after(1), Grade.PROVED)
        result = run("click", str(hour_after(1)), "--timeout", "600", "--json")
    assert f"waits for: 1 earlier hour, first {FIRST}, which waits for: " in result.stderr
    row = json.loads(result.stdout)
    assert (row["hour"], row["state"], row["grade"], row["events"]) == (
        str(hour_after(1)),
        "closed",
        "proved",
        5,
    )
    assert result.exit_code == BucketExit.PROVED


@pytest.mark.parametrize(
    ("event_type", "hour", "state"),
    [("clik", FIRST, "unknown-type"), ("click", FIRST.previous(), "before-first")],
)
def test_a_bucket_that_will_never_exist_is_not_awaited(
    ledger_url: str, run: Run, clock: EventfulClock, event_type: str, hour: object, state: str
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        close_next(database, "click", FIRST, Grade.PROVED)
    result = run(event_type, str(hour), "--timeout", "600", "--json")
    assert (result.exit_code, clock.slept) == (BucketExit.NO_BUCKET, [])
    assert json.loads(result.stdout)["state"] == state


def test_an_hour_that_may_be_back_filled_is_awaited(
    ledger_url: str, run: Run, clock: EventfulClock
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        clock.at[20] = lambda: close_next(database, "click", FIRST, Grade.PROVED)
        result = run("click", str(FIRST.previous()), "--timeout", "600", "--json")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (
        BucketExit.NO_BUCKET,
        "before-first",
    ), "the first bucket is another one"
    assert 20 <= clock.elapsed_s <= 22


def test_a_ledger_that_is_not_created_yet_is_awaited(
    ledger_url: str, run: Run, clock: EventfulClock
) -> None:
    def create() -> None:
        with Database(ledger_url) as database:
            add_type(database, "click")

    def close() -> None:
        with Database(ledger_url) as database:
            close_next(database, "click", FIRST, Grade.FORCED)

    clock.at = {40: create, 70: close}
    result = run("click", str(FIRST), "--timeout", "600")
    assert result.exit_code == BucketExit.FORCED, result.exception
    first, *_ = result.stderr.splitlines()
    assert "waits for: " in first and "hourmark types apply" in first


def test_a_ledger_that_is_still_missing_at_the_timeout_is_an_error(
    tmp_path: Path, clock: EventfulClock
) -> None:
    file = write_config(tmp_path, f"sqlite:///{tmp_path}/none.sqlite")
    arguments = ["wait", "click", str(FIRST), "--timeout", "30", "--config", str(file)]
    result = CliRunner().invoke(bucket, arguments)
    assert isinstance(result.exception, NoLedger) and result.exception.exit_code == 1
    assert (result.stdout, clock.elapsed_s) == ("", 30)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.slow
def test_a_ledger_whose_server_restarts_is_awaited(tmp_path: Path, clock: EventfulClock) -> None:
    with servers.running_or_skipped() as server:
        url = server.new_database()
        with Database(url) as database:
            add_type(database, "click")

        def back() -> None:
            server.start()
            with Database(url) as database:
                close_next(database, "click", FIRST, Grade.PROVED)

        clock.at = {10: server.stop, 40: back}
        file = write_config(tmp_path, url)
        arguments = ["wait", "click", str(FIRST), "--timeout", "600", "--config", str(file)]
        result = CliRunner().invoke(bucket, arguments)
    assert result.exit_code == BucketExit.PROVED, result.exception
    assert "waits for: the ledger (etl.ledger = " in result.stderr
    assert 40 <= clock.elapsed_s <= 50


def test_with_the_clock_of_the_machine_it_waits_until_the_bucket_is_closed(
    ledger_url: str, run: Run
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        closing = threading.Timer(0.3, close_next, (database, "click", FIRST, Grade.TIMED_OUT))
        closing.start()
        result = run("click", str(FIRST), "--timeout", "60")
        closing.join()
    assert result.exit_code == BucketExit.TIMED_OUT, result.exception


def test_a_damaged_row_is_reported_and_an_error_at_the_timeout(
    ledger_url: str, run: Run, clock: EventfulClock
) -> None:
    with Database(ledger_url) as database:
        add_type(database, "click")
        with database.transaction() as connection:
            connection.execute(tables.frontiers.update().values(first_hour=0))
    result = run("click", str(FIRST), "--timeout", "30")
    assert isinstance(result.exception, DamagedRow) and "ledger check" in result.stderr


def test_a_wrong_timeout_or_hour_is_wrong_use(run: Run, clock: EventfulClock) -> None:
    assert run("click", str(FIRST), "--timeout", "-1").exit_code == 2
    assert isinstance(run("click", "yesterday").exception, UsageError)


def test_reports_are_15_seconds_apart_at_most_while_polls_are_slow() -> None:
    clock = EventfulClock()
    reported: list[float] = []

    def poll(_: int) -> BucketPoll:
        clock.advance(10)
        return BucketPoll(exit_code=BucketExit.ERROR, waits_for="x", error=Unavailable("away"))

    found = wait_for_bucket(poll, clock, 120, lambda _, elapsed_s: reported.append(elapsed_s))
    assert not found.is_final and clock.elapsed_s >= 120
    gaps = [later - earlier for earlier, later in itertools.pairwise(reported)]
    assert gaps and max(gaps) <= REPORTED_S
