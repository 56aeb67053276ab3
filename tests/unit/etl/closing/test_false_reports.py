"""What a false report of a host can do to closing, from a client that may report for one host, or
found another one's host id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.records import END, frontier, host_report

from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, HostReport, SourceReport
from hourmark.records.hours import Hour
from hourmark_etl.closing.cut.readiness import (
    SILENT_MS,
    LatestReports,
    describe_clock_difference,
    readiness,
)
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.hosts.host_losses import HostLoss, sum_losses_in_hour
from hourmark_etl.ledger.hosts.reporters import (
    RENAMED_AFTER_MS,
    decode_report,
    put_reports,
    reporters,
)

SERVICE = "5" * 32
DEADLINE_MS = 3_600_000
BEHIND = (SourceReport("app", END - 1000, 9, 0),)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    put(
        made,
        host_report(END, host_id=SERVICE, host_name="events-1", kind="service", incarnation="s"),
    )
    put(made, host_report(END, host_name="web-1", sources=BEHIND))
    yield made
    made.close()


def put(database: Database, *reports: HostReport) -> None:
    with database.transaction() as connection:
        put_reports(
            connection, [decode_report(report, report.received_at_ms) for report in reports]
        )


def false(at_ms: int, **changes: Any) -> HostReport:
    """A goodbye in the name of the host that is behind."""
    return host_report(
        at_ms, **{"host_name": "web-1", "incarnation": "false", "goodbye": True, **changes}
    )


def real(at_ms: int, sequence: int) -> HostReport:
    return host_report(at_ms, host_name="web-1", sequence=sequence, sources=BEHIND)


def waits_for(database: Database, now_ms: int) -> tuple[str, ...]:
    """What the hour that ends at END waits for."""
    return readiness(
        frontier(hour=Hour(END // 1000 - 3600, 3600)),
        LatestReports(reporters(database)),
        now_ms,
        DEADLINE_MS,
    ).waits_for


def test_a_false_goodbye_lasts_until_the_hosts_next_report(database: Database) -> None:
    assert len(waits_for(database, END + 500)) == 1
    put(database, false(END + 1000))
    assert not waits_for(database, END + 1500), "a host may say goodbye at any time"
    put(database, real(END + 2000, 1))
    assert len(waits_for(database, END + 2500)) == 1


def test_a_false_sequence_silences_a_host_for_minutes_not_for_good(database: Database) -> None:
    put(database, false(END + 1000, incarnation="one", sequence=(1 << 63) - 1))
    put(database, real(END + 2000, 1))
    assert not waits_for(database, END + 2500), (
        "it may have been sent before the other, through another service"
    )
    put(database, real(END + 1000 + CLOCKS_APART_MS_MAX, 2))
    assert len(waits_for(database, END + 1000 + CLOCKS_APART_MS_MAX)) == 1


def test_who_reports_for_another_name_cannot_say_goodbye_for_a_live_host(
    database: Database,
) -> None:
    put(database, false(END + 1000, host_name="db-1"))
    assert len(waits_for(database, END + 1500)) == 1


def test_a_host_that_was_renamed_is_believed_after_its_goodbye_or_a_minute(
    database: Database,
) -> None:
    renamed = host_report(END + 1000, host_name="web-2", incarnation="two")
    put(database, renamed)
    assert {r.host_name for r in reporters(database)} == {"events-1", "web-1"}
    put(
        database,
        host_report(END + RENAMED_AFTER_MS, host_name="web-2", incarnation="two", sequence=1),
    )
    assert {r.host_name for r in reporters(database)} == {"events-1", "web-2"}
    put(
        database,
        host_report(
            END + RENAMED_AFTER_MS + 1000,
            host_name="web-2",
            incarnation="two",
            sequence=2,
            goodbye=True,
        ),
    )
    put(
        database, host_report(END + RENAMED_AFTER_MS + 2000, host_name="web-3", incarnation="three")
    )
    assert {r.host_name for r in reporters(database)} == {"events-1", "web-3"}


def test_no_tailer_says_goodbye_for_a_delivery_service(database: Database) -> None:
    put(database, false(END + 1000, host_id=SERVICE, host_name="events-1"))
    assert describe_clock_difference(LatestReports(reporters(database)), END + 1500) is None
    (service,) = (r for r in reporters(database) if r.host_id == SERVICE)
    assert (service.kind, service.goodbye) == ("service", False)


def test_a_service_takes_its_host_id_back_from_a_tailer(database: Database) -> None:
    put(database, host_report(END, host_id="6" * 32, host_name="events-2"))
    put(
        database,
        host_report(
            END + 1000, host_id="6" * 32, host_name="events-2", kind="service", incarnation="s"
        ),
    )
    assert {r.kind for r in reporters(database) if r.host_id == "6" * 32} == {"service"}


def test_losses_without_end_add_up_to_what_a_marker_can_hold() -> None:
    hour = Hour(END // 1000 - 3600, 3600)
    found = sum_losses_in_hour(hour, {"app"}, [HostLoss("app", END - 5, END, 1 << 62, 0)] * 3)
    assert found == ({"app": (1 << 63) - 1}, {})


def test_an_incarnation_of_a_tailer_does_not_become_a_delivery_service(database: Database) -> None:
    """One bit of a report: a service that falls silent is awaited no more, and a tailer is not
    believed in its place.
    """
    put(
        database,
        host_report(END + 1000, host_name="web-1", kind="service", sequence=1, sources=BEHIND),
    )
    put(database, real(END + 2000, 2))
    later_ms = END + RENAMED_AFTER_MS + 2000
    put(
        database,
        host_report(
            later_ms,
            host_id=SERVICE,
            host_name="events-1",
            kind="service",
            incarnation="s",
            sequence=1,
        ),
    )
    put(database, real(later_ms, 3))
    assert len(waits_for(database, later_ms)) == 1, "the host is awaited"
    (host,) = (r for r in reporters(database) if r.host_name == "web-1")
    assert (host.kind, host.received_at_ms) == ("tailer", later_ms)


def test_a_service_that_died_and_whose_last_report_has_a_time_in_the_future_stops_closing_for_a_minute(
    database: Database,
) -> None:
    """One bit of that time: nobody reports for the service again."""
    gone = host_report(
        END + (1 << 40), host_id="7" * 32, host_name="e-3", kind="service", incarnation="s"
    )
    with database.transaction() as connection:
        put_reports(connection, [decode_report(gone, END + 1000)])
    assert describe_clock_difference(LatestReports(reporters(database)), END + 1500)
    later_ms = END + 1000 + SILENT_MS + 1
    put(
        database,
        host_report(
            later_ms,
            host_id=SERVICE,
            host_name="events-1",
            kind="service",
            incarnation="s",
            sequence=1,
        ),
    )
    known = LatestReports(reporters(database))
    assert describe_clock_difference(known, later_ms + 500) is None
    assert {
        r.host_id
        for group in known.awaited_reporters(frontier())
        for r in group
        if r.kind == "service"
    } == {SERVICE}
