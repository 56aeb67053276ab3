"""`hourmark bucket ls`: conditions and summaries, on a ledger of each kind; and what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update
from tests.support.buckets import HOUR, TYPE, usual_plan
from tests.support.closed_hours import (
    FIRST,
    Work,
    add_many,
    add_type,
    hour_after,
    measured,
    write_config,
)
from tests.support.records import (
    END,
    blocker,
    frontier,
    group,
    seal,
    staged_batch,
    staged_file,
)

from hourmark.clock import SystemClock
from hourmark.config.loading import load_config
from hourmark.errors import UsageError
from hourmark.records.manifest import Grade
from hourmark_etl.buckets.reader import NotClosed
from hourmark_etl.errors import NoLedger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import commit_batch
from hourmark_etl.ledger.bucket_rows import insert_closed_buckets, pack_old_bucket_rows
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import insert_frontier
from hourmark_etl.ledger.heartbeat import write_heartbeat
from hourmark_etl.ledger.overrides import Blocker, put_blockers
from hourmark_etl.model import ClosingPhase, HourState
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.buckets.listing import open_bucket_row
from hourmark_etl.operators.buckets.wait import BucketPoller
from hourmark_etl.storage import LocalDisk

List = Callable[..., list[dict[str, Any]]]
HOURS = 30  # of page-viewed; the first day of them can be packed
MANY = 20_000


@pytest.fixture
def config_file(tmp_path: Path, ledger_url: str) -> Path:
    return write_config(tmp_path, ledger_url)


@pytest.fixture
def database(ledger_url: str) -> Iterator[Database]:
    """Three types: page-left (2 closed hours), page-viewed (30), and song (none)."""
    with Database(ledger_url) as made:
        viewed = [
            Grade.FORCED if n == 3 else Grade.TIMED_OUT if n % 10 == 5 else Grade.PROVED
            for n in range(HOURS)
        ]
        add_type(made, "page-left", [Grade.PROVED, Grade.FORCED])
        add_type(made, "page-viewed", viewed)
        add_type(made, "song")
        write_heartbeat(made, made.acquire("closer"), SystemClock().now_ms())
        yield made


@pytest.fixture
def run(config_file: Path) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(config_file)])


@pytest.fixture
def ls(run: Callable[..., Result]) -> List:
    def listed(*arguments: str) -> list[dict[str, Any]]:
        result = run("ls", *arguments, "--json")
        assert result.exit_code == 0, result.exception
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows

    return listed


def pack(database: Database) -> None:
    """The first day of page-viewed, as cleaning does once it is eight days old."""
    lease = database.acquire("closer")
    assert pack_old_bucket_rows(database, lease, hour_after(24 * 30).start_s * 1000, 10) == 1


def test_types_are_selected_by_patterns_and_by_name(database: Database, ls: List) -> None:
    def types(*arguments: str) -> set[str]:
        return {row["type"] for row in ls(*arguments)}

    assert types() == {"page-left", "page-viewed", "song"}
    assert types("--type", "page-*") == {"page-left", "page-viewed"}
    assert types("--type", "*-left", "--type", "so?g") == {"page-left", "song"}
    assert types("song", "--type", "*-left") == {"page-left", "song"}


def test_dead_letters_come_last(database: Database, ls: List) -> None:
    add_type(database, "dead-letters", [Grade.PROVED])
    names = list(dict.fromkeys(row["type"] for row in ls()))
    assert names == ["page-left", "page-viewed", "song", "dead-letters"]


def test_a_pattern_that_matches_no_type_is_an_error_that_names_types(
    database: Database, run: Callable[..., Result]
) -> None:
    result = run("ls", "--type", "song", "--type", "pages-*")
    assert isinstance(result.exception, NotClosed)
    said = str(result.exception)
    assert "'pages-*'" in said and "page-left, page-viewed, song" in said


@pytest.mark.parametrize("is_packed", [False, True])
def test_hours_are_selected_whether_closed_packed_or_open(
    database: Database, ls: List, is_packed: bool
) -> None:
    if is_packed:
        pack(database)
    first, last = str(hour_after(22)), str(hour_after(25))
    found = ls("page-viewed", "--from", first, "--to", last)
    assert [row["hour"] for row in found] == [str(hour_after(n)) for n in range(22, 26)]
    assert {row["state"] for row in found} == {"closed"}
    assert [(row["hour"], row["state"]) for row in ls("--from", str(hour_after(29)))] == [
        (str(hour_after(29)), "closed"),
        (str(hour_after(30)), "open"),
    ]
    assert [row["type"] for row in ls("--to", str(FIRST))] == ["page-left", "page-viewed", "song"]


def test_open_hours_are_listed_alone_with_what_they_wait_for(
    database: Database, ls: List, run: Callable[..., Result]
) -> None:
    what = ("mirror: 5 of 9",)
    wait = Blocker(event_type="song", hour=FIRST, phase=ClosingPhase.CONTROL, what=what, since_ms=1)
    put_blockers(database, database.acquire("closer"), [wait], ())
    found = ls("--state", "open")
    assert [(row["type"], row["hour"], row["waits_for"]) for row in found] == [
        ("page-left", str(hour_after(2)), "the closer's next poll"),
        ("page-viewed", str(hour_after(HOURS)), "the closer's next poll"),
        ("song", str(FIRST), "mirror: 5 of 9"),
    ]
    header, first, *_ = run("ls", "--state", "open").stdout.splitlines()
    assert header.split() == ["type", "hour", "grade", "waits", "for"], "columns without a value"
    assert first.split()[:3] == ["page-left", str(hour_after(2)), "open"]
    assert {row["state"] for row in ls("--state", "closed")} == {"closed"}
    assert len(ls("--state", "closed")) == HOURS + 2


def test_open_hours_name_the_oldest_hour_of_staged_events(database: Database, ls: List) -> None:
    lease = database.acquire("closer")
    groups = tuple(group(event_type="song", hour_s=hour_after(n).start_s) for n in (9, 4))
    commit_batch(database, lease, staged_batch(files=(staged_file(),), groups=groups))
    found = {row["type"]: row["staged_hour"] for row in ls("--state", "open")}
    assert found == {"page-left": None, "page-viewed": None, "song": str(hour_after(4))}
    with database.transaction() as connection:
        connection.execute(update(tables.groups).values(listed_hour=FIRST.start_s))
    assert {row["staged_hour"] for row in ls("--state", "open", "--type", "song")} == {None}


@pytest.mark.parametrize("is_packed", [False, True])
def test_grades_are_selected(database: Database, ls: List, is_packed: bool) -> None:
    if is_packed:
        pack(database)
    assert [(row["type"], row["hour"]) for row in ls("--grade", "forced")] == [
        ("page-left", str(hour_after(1))),
        ("page-viewed", str(hour_after(3))),
    ]
    found = ls("page-viewed", "--grade", "forced", "--grade", "timed_out")
    assert [row["hour"] for row in found] == [str(hour_after(n)) for n in (3, 5, 15, 25)]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_summary_has_a_row_for_each_type(
    database: Database, ls: List, run: Callable[..., Result], is_packed: bool
) -> None:
    if is_packed:
        pack(database)
    left, viewed, song = ls("--summary")
    assert {name: left[name] for name in ("type", "buckets", "events", "proved", "forced")} == {
        "type": "page-left",
        "buckets": 2,
        "events": 10,
        "proved": 1,
        "forced": 1,
    }
    assert (viewed["buckets"], viewed["proved"], viewed["timed_out"], viewed["forced"]) == (
        HOURS,
        HOURS - 4,
        3,
        1,
    )
    assert (viewed["first_hour"], viewed["last_hour"], viewed["next_hour"]) == (
        str(FIRST),
        str(hour_after(HOURS - 1)),
        str(hour_after(HOURS)),
    )
    assert (song["buckets"], song["first_hour"], song["next_hour"]) == (0, None, str(FIRST))
    assert song["waits_for"] == "the closer's next poll" and song["overdue_s"] > 0
    header, row, *_ = run("ls", "--summary").stdout.splitlines()
    assert header.split()[:4] == ["type", "buckets", "events", "proved"] and "damaged" not in header
    assert row.split()[:3] == ["page-left", "2", "10"]


def test_a_summary_counts_what_is_selected(
    database: Database, ls: List, run: Callable[..., Result]
) -> None:
    (row,) = ls(
        "--summary", "page-viewed", "--from", str(hour_after(3)), "--to", str(hour_after(5))
    )
    assert (row["buckets"], row["proved"], row["timed_out"], row["forced"]) == (3, 1, 1, 1)
    assert row["next_hour"] is None, "it is not in this time span"
    (row,) = ls("--summary", "page-viewed", "--state", "open")
    assert (row["buckets"], row["next_hour"]) == (None, str(hour_after(HOURS)))
    header, _ = run("ls", "--summary", "page-viewed", "--state", "open").stdout.splitlines()
    assert header.split() == ["type", "next", "hour", "waits", "for"]


def test_conditions_that_exclude_each_other_are_refused(
    database: Database, run: Callable[..., Result]
) -> None:
    result = run("ls", "--state", "open", "--grade", "forced")
    assert isinstance(result.exception, UsageError) and "--grade" in str(result.exception)
    result = run("ls", "--from", str(hour_after(2)), "--to", str(FIRST))
    assert isinstance(result.exception, UsageError) and "--from" in str(result.exception)


def test_a_damaged_row_is_counted_and_named(
    database: Database, ls: List, run: Callable[..., Result]
) -> None:
    own = (tables.buckets.c.type == "page-left", tables.buckets.c.hour == FIRST.start_s)
    with database.transaction() as connection:
        connection.execute(update(tables.buckets).where(*own).values(manifest="{"))
    (row,) = ls("page-left", "--summary")
    assert (row["buckets"], row["damaged"], row["events"]) == (2, 1, 5)
    result = run("ls", "page-left")
    assert f"page-left {FIRST}: " in result.stderr and "hourmark ledger check" in result.stderr


def test_the_ledger_and_the_markers_give_the_same_rows(
    ledger_url: str, config_file: Path, ls: List, tmp_path: Path
) -> None:
    manifest = usual_plan(LocalDisk(tmp_path / "root")).close()
    with Database(ledger_url) as database, database.transaction() as connection:
        insert_closed_buckets(connection, [(HOUR, manifest)])
        own = (TYPE, HOUR.start_s, "default", ["app"], HOUR.next().start_s)
        connection.execute(insert_frontier(*own))
    from_ledger = ls("--state", "closed")
    elsewhere = write_config(tmp_path, f"sqlite:///{tmp_path}/none.sqlite")
    arguments = ["ls", "--state", "closed", "--json", "--config", str(elsewhere)]
    from_markers = CliRunner().invoke(bucket, arguments)
    assert json.loads(from_markers.stdout) == from_ledger != []
    assert "from their markers on storage" in from_markers.stderr


def test_without_a_ledger_conditions_hold_for_markers_and_open_hours_are_an_error(
    tmp_path: Path,
) -> None:
    usual_plan(LocalDisk(tmp_path / "root")).close()
    file = write_config(tmp_path, f"sqlite:///{tmp_path}/none.sqlite")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(bucket, ["ls", *arguments, "--json", "--config", str(file)])

    assert len(json.loads(run("--type", "end-*", "--from", str(HOUR)).stdout)) == 1
    assert json.loads(run("--from", str(HOUR.next())).stdout) == []
    assert json.loads(run("--grade", "forced").stdout) == []
    (row,) = json.loads(run("--summary").stdout)
    assert (row["buckets"], row["events"], row["next_hour"]) == (1, 35, None)
    assert isinstance(run("--state", "open").exception, NoLedger)


def work_of(url: str, *arguments: str, file: Path) -> int:
    """What one command reads of the ledger."""
    with measured(url) as work:
        result = CliRunner().invoke(bucket, [*arguments, "--config", str(file)])
        assert result.exit_code == 0, result.exception
    return work.units


def poll_once(url: str, file: Path) -> int:
    """What one poll of `bucket wait` reads of the ledger."""
    with measured(url) as work:
        poller = BucketPoller(load_config(file), "t00", hour_after(MANY))
        assert "earlier hour" in poller.poll(SystemClock().now_ms()).waits_for
        poller.close()
    return work.units


@pytest.mark.slow
def test_listing_open_hours_and_waiting_read_no_closed_bucket(
    ledger_url: str, config_file: Path
) -> None:
    types = 20
    with Database(ledger_url) as database:
        add_many(database, types, 0)
    few = work_of(ledger_url, "ls", "--state", "open", file=config_file)
    few_by_poll = poll_once(ledger_url, config_file)
    with Database(ledger_url) as database:
        with database.transaction() as connection:
            connection.execute(tables.frontiers.delete())
        add_many(database, types, MANY // types)
    commands = [("ls", "--state", "open"), ("ls", "--state", "open", "--summary")]
    for command in commands:
        assert work_of(ledger_url, *command, file=config_file) <= few + 2, command
    one = work_of(ledger_url, "ls", "--state", "open", "--type", "t0[0-1]", file=config_file)
    assert one <= few + types
    assert poll_once(ledger_url, config_file) <= few_by_poll + 2
    assert work_of(ledger_url, "ls", file=config_file) > MANY, "the measure counts what is read"
    hours = ("--from", str(hour_after(10)), "--to", str(hour_after(19)))
    of_hours = work_of(ledger_url, "ls", *hours, file=config_file)
    assert of_hours < MANY / 5, "ten hours of each type, by key"


def test_the_measure_of_work_counts_rows(ledger_url: str) -> None:
    with Database(ledger_url) as database:
        add_many(database, 1, 500)
    found: list[Work] = []
    for limit in (1, 400):
        with measured(ledger_url) as work, Database(ledger_url) as database:
            rows = database.fetch(tables.buckets.select().limit(limit)).all()
            assert len(rows) == limit
        found.append(work)
    assert found[1].units - found[0].units >= 399


REPORTS_AWAITED = blocker(ClosingPhase.REPORTS, "tailer db: behind")
NOT_WRITTEN = blocker(ClosingPhase.PUBLISHING, "its path is taken")


@pytest.mark.parametrize(
    ("changes", "stored", "waits_for"),
    [
        ({}, None, "the closer's next poll"),
        ({}, REPORTS_AWAITED, "tailer db: behind"),
        ({"state": HourState.FROZEN}, REPORTS_AWAITED, "its proof, which is running"),
        (
            {"state": HourState.SEALED, "seal": seal()},
            REPORTS_AWAITED,
            "its bucket, which is being written",
        ),
        (
            {"state": HourState.SEALED, "seal": seal(), "later_seals": (seal(), seal())},
            REPORTS_AWAITED,
            "its bucket, which is being written, together with 2 further buckets",
        ),
        ({"state": HourState.SEALED, "seal": seal()}, NOT_WRITTEN, "its path is taken"),
        (
            {"state": HourState.DAMAGED, "alarm": ("its row is damaged",)},
            REPORTS_AWAITED,
            "its row is damaged",
        ),
    ],
)
def test_an_hour_in_a_round_does_not_wait_for_what_came_before_it(
    changes: dict[str, Any], stored: Blocker | None, waits_for: str
) -> None:
    row = open_bucket_row(frontier(**changes), stored, None, END + 61_000)
    assert row["waits_for"] == waits_for
