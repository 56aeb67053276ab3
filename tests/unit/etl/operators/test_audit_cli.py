"""`hourmark audit` on a real ledger and real staged files: it adds up, and each difference planted
names stage, hosts, ranges.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import ColumnElement, Table, delete, update
from tests.support.ledger_life import Life
from tests.support.records import rewritten

from hourmark.config.loading import load_config
from hourmark.errors import Finding, UsageError
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, HourTotals
from hourmark.records.ranges import RangeId
from hourmark_etl.ledger import frontiers, tables
from hourmark_etl.operators.audit import audit
from hourmark_etl.storage import open_storage

pytestmark = pytest.mark.slow

HOUR = Hour.parse("2026-01-05T07")
FROM = ("--from", str(HOUR))
IDS = LineIds("a" * 32, "b" * 32, 0)
NEXT = HOUR.next()
ONE, TWO = RangeId(b"range--1"), RangeId(b"range--2")
Ranges = Sequence[tuple[RangeId, Sequence[EventId]]]


def ids(*numbers: int, hour: Hour = HOUR) -> list[EventId]:
    return [IDS.make(hour.start_s * 1000 + n, n, b"line") for n in numbers]


WHOLE = [(ONE, ids(1, 2, 3))]
OF_TWO_HOURS = [(ONE, ids(1, 2)), (ONE, ids(3, hour=NEXT))]
LOST = ([(TWO, ids(4))], [*WHOLE, (TWO, ids(4))])


class World(Life):
    """One type, closed without a proof, so that a test can lie."""

    def deliver(self, sent: Ranges, promised: Ranges) -> None:
        """One batch: events of ranges, and audit records."""
        for range_id, found in sent:
            self.send("click", range_id, found)
        for range_id, found in promised:
            self.promise("click", range_id, found)
        self.stage()

    def forget(
        self, *conditions: ColumnElement[bool], of: Sequence[Table] = (tables.groups,)
    ) -> None:
        """Rows of these tables are lost."""
        with self.database.transaction() as connection:
            for table in of:
                connection.execute(delete(table).where(*conditions))


@pytest.fixture
def world(file: Path) -> Iterator[World]:
    config = load_config(file)
    made = World(open_storage(config.storage), config.etl.ledger, ["click"], HOUR)
    yield made
    made.database.close()


Run = Callable[..., str]


@pytest.fixture
def run(file: Path) -> Run:
    """What it says, where it finds nothing, or `finds` differences."""

    def invoke(*arguments: str, finds: bool = False) -> str:
        result = CliRunner().invoke(audit, [*arguments, "--config", str(file)])
        assert isinstance(result.exception, Finding) if finds else result.exit_code == 0, (
            result.exception
        )
        return result.stdout

    return invoke


def hours(said: str) -> dict[str, dict[str, Any]]:
    return {row["hour"]: row for row in json.loads(said)["hours"]}


def looked_at(said: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said)["looked_at"]
    return found


def test_a_closed_hour_with_duplicates_and_unaudited_adds_up(world: World, run: Run) -> None:
    world.deliver([(ONE, ids(1, 2, 3)), (ONE, ids(1, 2, 3)), (TWO, ids(4))], WHOLE)
    world.close("click", HourTotals(rows=7, events=4, promised=3, unaudited=1))
    world.deliver([(TWO, ids(9, hour=NEXT))], [])
    said = run("click", *FROM, "--ranges", "--json")
    found = hours(said)[str(HOUR)]
    assert (found["promised"], found["staged"], found["closed"], found["open"]) == (3, 7, 4, 0)
    assert (found["duplicates_removed"], found["unaudited"], found["state"]) == (3, 1, "proved")
    assert hours(said)[str(NEXT)]["open"] == 1
    text = run("click", *FROM)
    assert text.splitlines()[0].split()[:3] == ["hour", "state", "promised"]
    assert text.endswith(f"all counts agree: of 2 hours of click from {HOUR} on, 1 is closed\n")
    assert looked_at(said) == {
        "type": "click",
        "from": str(HOUR),
        "to": None,
        "types": 1,
        "hours": 2,
        "closed": 1,
        "verdict": "adds up",
    }
    assert run(*FROM).splitlines()[1].split()[:5] == ["click", "2", "3", "8", "4"]


def test_a_promise_on_its_way_is_no_difference_until_a_proof_has_failed_and_then_its_range_is_named(
    world: World, run: Run
) -> None:
    world.deliver([(ONE, ids(1, 2)), (TWO, ids(4))], [(ONE, ids(1, 2, 3)), (TWO, ids(4))])
    said = run("click", *FROM, "--json")
    assert hours(said)[str(HOUR)]["on_its_way"] == 1
    world.freeze("click")
    frontiers.unfreeze_hours(world.database, world.closer, [(world.frontier("click"), ["range …"])])
    said = run("click", *FROM, finds=True)
    assert (
        f"click {HOUR} [arrival] 4 events are promised, 3 rows are staged, and the last "
        "proof failed"
    ) in said
    assert (
        f"range {ONE.hex()} (range of web: /log [0, 10) generation 0): 3 promised, 2 found" in said
    )
    assert TWO.hex() not in said


def test_a_group_that_is_missing_in_the_ledger_names_its_file(world: World, run: Run) -> None:
    world.deliver(OF_TWO_HOURS, [])
    world.forget(tables.groups.c.hour == HOUR.start_s)
    said = run(*FROM, finds=True)
    assert (
        "[staging] the file contains 3 rows of events, but its groups in the ledger have 1" in said
    )
    assert json.loads(run(*FROM, "--json", finds=True))["files"][0]["in_groups"] == 1


def test_a_bucket_that_does_not_hold_what_it_took_in_is_told(world: World, run: Run) -> None:
    world.deliver(WHOLE, WHOLE)
    world.close("click", HourTotals(rows=3, events=2, promised=3, unaudited=0))
    run(*FROM)  # it says that one was a duplicate, and counts agree: …
    run(
        *FROM, "--ranges"
    )  # … what is staged keeps the promise. The bucket's own check and the proof compare ids
    with world.database.transaction() as connection:
        (text,) = connection.execute(
            tables.buckets.select().with_only_columns(tables.buckets.c.manifest)
        ).one()
        lying = rewritten(text.encode(), duplicates_removed=0)
        connection.execute(update(tables.buckets).values(manifest=lying.decode()))
    said = run(*FROM, "--json", finds=True)
    (difference,) = json.loads(said)["differences"]
    assert (difference["stage"], difference["hour"]) == ("writing", str(HOUR))
    assert (
        "it received 3 rows, but accounts for 2 events and 0 duplicates removed"
        in difference["detail"]
    )


def test_duplicates_that_hide_a_loss_from_counts_do_not_hide_it_from_ranges(
    world: World, run: Run
) -> None:
    world.deliver([(ONE, ids(1, 2)), (ONE, ids(1))], WHOLE)
    world.close("click", HourTotals(rows=3, events=2, promised=3, unaudited=0))
    run(*FROM)
    said = run(*FROM, "--ranges", finds=True)
    assert "[proof] the staged rows do not fulfill the promises of a proved bucket" in said
    assert f"range {ONE.hex()} (range of web: /log" in said


def test_a_settled_promise_without_rows_names_its_range(world: World, run: Run) -> None:
    world.deliver(*LOST)
    world.close("click", HourTotals(rows=1, events=1, promised=4, unaudited=0))
    said = run(*FROM, finds=True)
    assert "[proof] 4 events are promised and settled, but buckets received only 1 rows" in said
    assert f"range {ONE.hex()} (range of web" in said and "3 promised, 0 found" in said


def test_a_bucket_that_timed_out_waives_what_is_missing(world: World, run: Run) -> None:
    world.deliver(*LOST)
    world.close(
        "click", HourTotals(rows=1, events=1, promised=4, unaudited=0), grade=Grade.TIMED_OUT
    )
    said = run("click", *FROM, "--ranges", "--json")
    assert (hours(said)[str(HOUR)]["waived"], hours(said)[str(HOUR)]["state"]) == (3, "timed_out")


def test_the_books_of_hours_whose_staged_files_are_cleaned_away_come_from_manifests(
    world: World, run: Run
) -> None:
    world.deliver(WHOLE, WHOLE)
    world.close("click", HourTotals(rows=3, events=3, promised=3, unaudited=0))
    before = run("click", *FROM, "--json")
    world.forget(of=(tables.groups, tables.audit_groups, tables.staged_files))
    assert run("click", *FROM, "--ranges", "--json") == before


def test_a_damaged_staged_file_is_said_where_ranges_cannot_be_told(
    world: World, run: Run, tmp_path: Path
) -> None:
    world.deliver([(TWO, ids(4))], WHOLE)
    world.close("click", HourTotals(rows=1, events=1, promised=3, unaudited=1))
    for found in (tmp_path / "root" / "_staging").rglob("events-*"):
        found.write_bytes(b"damaged")
    said = run(*FROM, finds=True)
    assert "the byte ranges cannot be determined: " in said and "events-" in said


def test_hours_outside_of_the_window_are_left_out(world: World, run: Run) -> None:
    world.deliver([(ONE, ids(1)), (ONE, ids(2, hour=NEXT))], [])
    assert list(hours(run("click", *FROM, "--to", str(HOUR), "--json"))) == [str(HOUR)]
    assert list(hours(run("click", "--from", str(NEXT), "--json"))) == [str(NEXT)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clik"], "no event type clik"),
        (["--from", str(NEXT), "--to", str(HOUR)], "is before --from"),
        (["--from", "yesterday"], "not a valid hour"),
        (["--from", ""], "not a valid hour"),
        (["--to", ""], "not a valid hour"),
    ],
)
def test_wrong_use_is_refused(world: World, file: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(audit, [*arguments, "--config", str(file)])
    assert isinstance(result.exception, UsageError) and message in str(result.exception)


def test_on_the_first_day_there_is_nothing_to_compare_and_that_is_said(
    world: World, run: Run
) -> None:
    said = run(*FROM)
    assert "add up" not in said
    assert (
        f"nothing to compare yet: there are no events, promises or buckets of hours from {HOUR} on"
        in said
    )
    assert "`hourmark bucket ls`" in said
    found = looked_at(run(*FROM, "--json"))
    assert (found["verdict"], found["hours"], found["closed"], found["from"]) == (
        "nothing to compare",
        0,
        0,
        str(HOUR),
    )


def test_hours_that_are_open_alone_are_nothing_to_compare(world: World, run: Run) -> None:
    world.deliver([(ONE, ids(1, 2))], [(ONE, ids(1, 2))])
    said = run(*FROM)
    assert (
        f"nothing to compare yet: 1 hour from {HOUR} on is open, and none is closed" in said
        and "add up" not in said
    )
    found = looked_at(run(*FROM, "--json"))
    assert (found["verdict"], found["hours"], found["closed"]) == ("nothing to compare", 1, 0)


def test_closed_buckets_before_the_span_are_said_to_be_there_with_the_way_to_look_at_them(
    world: World, run: Run
) -> None:
    world.deliver(WHOLE, WHOLE)
    world.close("click", HourTotals(rows=3, events=3, promised=3, unaudited=0))
    later = NEXT
    said = run("click", "--from", str(later), "--to", str(later))
    assert (
        "nothing to compare: there are no events, promises or buckets of hours of click from "
        f"{later} to {later}"
    ) in said
    assert (
        f"the oldest bucket is of {HOUR}: `hourmark audit click --from {HOUR}` compares all buckets"
        in said
    )
    said = run()  # as far back as promises are kept
    assert (
        "nothing to compare: " in said
        and f"`hourmark audit --from {HOUR}` compares all buckets" in said
    )


def test_a_difference_is_no_reason_to_say_that_nothing_was_compared(world: World, run: Run) -> None:
    world.deliver(OF_TWO_HOURS, [])
    world.forget(tables.groups.c.hour == HOUR.start_s)
    assert looked_at(run(*FROM, "--json", finds=True))["verdict"] == "differences"
    assert "nothing to compare" not in run(*FROM, finds=True)
