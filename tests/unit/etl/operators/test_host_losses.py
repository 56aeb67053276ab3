"""What hosts lost is dated by their claims, and named by each hour that it may concern."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.records import END, host_report

from hourmark.records.host_reports import SourceReport
from hourmark.records.hours import Hour
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.hosts.host_losses import (
    find_unrepeatable_sources,
    losses,
    sum_losses_in_hour,
)
from hourmark_etl.ledger.hosts.reporters import decode_report, put_reports, reporters

HOUR_S = 3600
FIRST = Hour(END // 1000 - HOUR_S, HOUR_S)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield made
    made.close()


def report(
    database: Database,
    at_ms: int,
    caught_up_at_ms: int | None,
    lost: int,
    unknown: int,
    sequence: int,
) -> None:
    source = SourceReport("app", caught_up_at_ms, 0, lost, unknown)
    said = dataclasses.replace(host_report(at_ms, sources=(source,)), sequence=sequence)
    with database.transaction() as connection:
        put_reports(connection, [decode_report(said, at_ms)])


def test_a_loss_concerns_the_hours_after_the_last_claim_and_no_other(database: Database) -> None:
    report(database, END - 2000, END - 3000, 0, 0, 0)
    report(database, END + 5000, END + 4000, 70, 1, 1)
    report(database, END + 6000, END + 5000, 70, 1, 2)  # says nothing new
    report(database, END + HOUR_S * 1000, END + 6000, 75, 1, 3)
    found = losses(database)
    assert sum_losses_in_hour(FIRST, {"app"}, found) == ({"app": 70}, {"app": 1})
    assert sum_losses_in_hour(FIRST.next(), {"app", "db"}, found) == ({"app": 75}, {"app": 1})
    assert sum_losses_in_hour(FIRST.next().next().next(), {"app"}, found) == ({}, {})
    assert sum_losses_in_hour(FIRST, {"db"}, found) == ({}, {})


def test_a_source_that_never_claimed_anything_may_have_lost_lines_of_any_hour(
    database: Database,
) -> None:
    report(database, END + 1000, None, 0, 0, 0)
    report(database, END + 2000, None, 9, 0, 1)
    assert sum_losses_in_hour(Hour(0, HOUR_S), {"app"}, losses(database)) == ({"app": 9}, {})


def test_a_source_is_unrepeatable_from_hosts_that_were_there_in_the_hour(
    database: Database,
) -> None:
    for host_id, source, goodbye in (
        ("1" * 32, "net", False),
        ("2" * 32, "left", True),
        ("3" * 32, "other", False),
    ):
        said = host_report(
            END, sources=(SourceReport(source, END, 0, 0, 0, True), SourceReport("app", END, 0, 0))
        )
        said = dataclasses.replace(said, host_id=host_id, goodbye=goodbye)
        with database.transaction() as connection:
            put_reports(connection, [decode_report(said, END)])
    known, sources = reporters(database), {"app", "net", "left"}
    assert find_unrepeatable_sources(FIRST, sources, known) == ("left", "net")
    assert find_unrepeatable_sources(FIRST.next().next(), sources, known) == ("net",)


def test_totals_that_begin_anew_are_no_loss(database: Database) -> None:
    report(database, END, END, 50, 3, 0)
    report(database, END + 1000, END, 0, 0, 1)
    report(database, END + 2000, END, 4, 0, 2)
    assert [(loss.lost_bytes, loss.unknown_count) for loss in losses(database)] == [(50, 3), (4, 0)]
