"""What the ledger shows of types, hosts and clocks in trouble: each fault once, a common cause as
one line, and nothing while all is well.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.support.closed_hours import add_type, hour_after, write_config
from tests.support.records import END, HOUR, blocker, frontier, tailer

from hourmark.commands.problems import SERVICE_REPLACED_MS, CauseClass, Problem
from hourmark.config.loading import load_config
from hourmark.records.host_reports import CLOCKS_APART_MS_REPORTED
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.heartbeat import DriverSigns
from hourmark_etl.model import ClosingPhase, HourState, ReportedSource
from hourmark_etl.operators.trouble import (
    BEHIND_MS,
    FAULT_MS,
    OVERDUE_MS,
    UNEXPLAINED_MS,
    LedgerFacts,
    find_problems,
    types_status,
)

NOW_MS = END + OVERDUE_MS + 60_000
TAILER = tailer(received_at_ms=NOW_MS - 2000, caught_up_at_ms=NOW_MS, heard_at_ms=NOW_MS - 1000)
SERVICE = dataclasses.replace(
    TAILER, host_id="s" * 32, source="api", host_name="svc", kind="service"
)
NEXT = Hour(HOUR.start_s + 3600)  # it has not ended


def of(reporter: ReportedSource, ago_ms: int, **changes: Any) -> ReportedSource:
    """Heard so long ago."""
    at_ms = NOW_MS - ago_ms
    return dataclasses.replace(
        reporter, **{"heard_at_ms": at_ms, "received_at_ms": at_ms - 1000} | changes
    )


def find(**changes: Any) -> list[Problem]:
    usual: dict[str, Any] = {
        "now_ms": NOW_MS,
        "deadline_seconds": 7200.0,
        "frontiers": [frontier(hour=NEXT)],
        "blockers": {},
        "reporters": [SERVICE, TAILER],
        "driver": DriverSigns(heartbeat_ms=NOW_MS - 3000),
    }
    return list(find_problems(LedgerFacts(**usual | changes)))


def waiting(count: int, phase: ClosingPhase, what: str, since_ms: int = END) -> dict[str, Any]:
    """So many types whose hour waits for that."""
    names = [f"type-{n:03}" for n in range(count)]
    return {
        "frontiers": [frontier(name) for name in names],
        "blockers": {
            name: dataclasses.replace(
                blocker(phase, what.replace("TYPE", name)),
                event_type=name,
                hour=HOUR,
                since_ms=since_ms,
            )
            for name in names
        },
    }


def test_where_all_is_well_nothing_is_found() -> None:
    assert find() == []
    assert find(frontiers=[], reporters=[]) == []


def test_a_hundred_types_that_wait_for_one_server_are_one_problem() -> None:
    (found,) = find(**waiting(100, ClosingPhase.STORAGE, "HDFS does not answer for TYPE"))
    assert (found.cause, found.count, found.subject) == (CauseClass.TYPES, 100, "100 types")
    assert found.examples == ("type-000", "type-001", "type-002")
    assert "(storage) HDFS does not answer for type-000" in found.what
    assert f"`hourmark bucket why type-000 {HOUR}`" in found.do
    assert found.since_ms == END


def test_types_with_different_causes_are_different_problems() -> None:
    first = waiting(5, ClosingPhase.STORAGE, "HDFS does not answer")
    second = waiting(7, ClosingPhase.SERVERS, "the edge does not answer")
    renamed = {f"b-{name}": b for name, b in second["blockers"].items()}
    found = find(
        frontiers=[*first["frontiers"], *(frontier(name) for name in renamed)],
        blockers=first["blockers"]
        | {name: dataclasses.replace(b, event_type=name) for name, b in renamed.items()},
    )
    assert [p.count for p in found] == [5, 7]


def test_numbers_that_differ_between_types_do_not_make_two_causes() -> None:
    world = waiting(2, ClosingPhase.EVENTS, "edge.events.TYPE-0: 17 records are not mirrored")
    world["blockers"]["type-001"] = dataclasses.replace(
        world["blockers"]["type-001"], what=("edge.events.type-001-3: 9 records are not mirrored",)
    )
    (found,) = find(**world)
    assert found.count == 2


def test_types_that_wait_for_hosts_of_like_names_are_one_problem_that_says_so() -> None:
    world = waiting(3, ClosingPhase.REPORTS, "tailer web-1 had caught up 9 s before its end")
    (same,) = find(**world)
    assert "other names or numbers" not in same.do
    world["blockers"]["type-002"] = dataclasses.replace(
        world["blockers"]["type-002"], what=("tailer web-2 had caught up 9 s before its end",)
    )
    (found,) = find(**world)
    assert (
        found.count == 3 and "other types wait for the same condition with other names" in found.do
    )


@pytest.mark.parametrize(
    ("phase", "waits_ms", "is_found"),
    [
        (ClosingPhase.STORAGE, FAULT_MS, False),
        (ClosingPhase.STORAGE, FAULT_MS + 1, True),
        (ClosingPhase.EVENTS, FAULT_MS + 1, False),
        (ClosingPhase.EVENTS, OVERDUE_MS, True),
    ],
)
def test_a_fault_is_reported_at_once_and_a_regular_step_once_it_is_overdue(
    phase: ClosingPhase, waits_ms: int, is_found: bool
) -> None:
    found = find(**waiting(1, phase, "it waits", NOW_MS - waits_ms))
    assert bool(found) is is_found


def test_a_regular_step_soon_after_the_hours_end_is_no_problem() -> None:
    now_ms = END + OVERDUE_MS - 1
    world = waiting(1, ClosingPhase.REPORTS, "reports", END)
    fresh = [dataclasses.replace(r, heard_at_ms=now_ms, received_at_ms=now_ms) for r in (SERVICE,)]
    assert (
        find(**world, now_ms=now_ms, driver=DriverSigns(heartbeat_ms=now_ms), reporters=fresh) == []
    )


def test_without_a_driver_all_overdue_types_are_its_consequence() -> None:
    world = waiting(100, ClosingPhase.STORAGE, "HDFS does not answer")
    (found,) = find(
        **world, driver=DriverSigns(heartbeat_ms=NOW_MS - 60_000), reporters=[of(TAILER, 900_000)]
    )
    assert (found.count, found.cause) == (100, CauseClass.TYPES)
    assert "because no driver is running" in found.what and "`hourmark etl run`" in found.do


def test_types_whose_driver_was_stopped_say_so() -> None:
    stopped = DriverSigns(heartbeat_ms=END - 1000, goodbye_ms=END)
    (found,) = find(**waiting(2, ClosingPhase.REPORTS, "reports"), driver=stopped)
    assert "because the driver was stopped at 2027-01-15T" in found.what
    assert "`hourmark run --once`" in found.do


def test_an_hour_that_waits_for_nothing_known_is_a_problem_unless_a_backlog_is_closed() -> None:
    late_ms = END + UNEXPLAINED_MS + 1
    world: dict[str, Any] = {
        "frontiers": [frontier()],
        "now_ms": late_ms,
        "driver": DriverSigns(heartbeat_ms=late_ms),
        "reporters": [
            dataclasses.replace(
                SERVICE, heard_at_ms=late_ms, received_at_ms=late_ms, caught_up_at_ms=late_ms
            )
        ],
    }
    (found,) = find(**world)
    assert found.subject == f"click {HOUR}"
    assert find(**world, progressing=frozenset({"click"})) == []


def test_a_damaged_row_names_the_type_and_what_repairs_it() -> None:
    damaged = frontier(hour=Hour(0), state=HourState.DAMAGED, alarm=("its digest is wrong",))
    (found,) = find(frontiers=[damaged])
    assert found.subject == "click" and found.since_ms is None
    assert "its digest is wrong" in found.what and "hourmark ledger" in found.do


def test_a_silent_host_is_named_and_a_waived_one_or_one_that_signed_off_is_not() -> None:
    (found,) = find(reporters=[SERVICE, of(TAILER, 90_000)])
    assert (found.subject, found.since_ms) == (f"tailer {TAILER.host_name}", NOW_MS - 90_000)
    for changes in ({"waived": True}, {"goodbye": True}):
        assert find(reporters=[SERVICE, of(TAILER, 90_000, **changes)]) == []


def test_a_silent_service_is_forgotten_once_another_has_replaced_it() -> None:
    other = {"host_id": "t" * 32, "host_name": "svc-2"}
    for ago_ms, count in ((90_000, 1), (SERVICE_REPLACED_MS + 2000, 0)):
        assert len(find(reporters=[SERVICE, of(SERVICE, ago_ms, **other)])) == count


def test_if_no_report_is_read_staging_is_named_and_not_every_host() -> None:
    (found,) = find(reporters=[of(SERVICE, 90_000), of(TAILER, 95_000)])
    assert (found.cause, found.subject) == (CauseClass.COMPONENT, "host reports")


def test_types_that_wait_for_reports_that_nobody_reads_are_told_no_other_cause() -> None:
    world = waiting(100, ClosingPhase.REPORTS, "no delivery service has reported yet")
    for reporters in ([], [of(SERVICE, 90_000)]):
        reports, types = find(**world, reporters=reporters)
        assert (reports.subject, types.subject) == ("host reports", "100 types")
        assert "because the driver reads no reports" in types.what
        assert "`hourmark serve`" not in types.do


def test_a_host_that_reports_and_delivers_nothing_is_named_with_what_to_ask_there() -> None:
    behind = of(TAILER, 1000, pending_bytes=4096, caught_up_at_ms=NOW_MS - BEHIND_MS - 1)
    (found,) = find(reporters=[SERVICE, behind])
    assert "4,096 bytes pending" in found.what and "`hourmark tail status`" in found.do
    recent = of(TAILER, 1000, pending_bytes=4096, caught_up_at_ms=NOW_MS - BEHIND_MS + 1)
    assert find(reporters=[SERVICE, recent]) == []


@pytest.mark.parametrize(
    ("ahead_ms", "words"),
    [(CLOCKS_APART_MS_REPORTED + 5000, "ahead of"), (-CLOCKS_APART_MS_REPORTED - 5000, "behind")],
)
def test_a_service_whose_clock_is_wrong_is_named_before_all_else(ahead_ms: int, words: str) -> None:
    skewed = of(
        SERVICE,
        1000,
        host_id="t" * 32,
        host_name="svc-2",
        received_at_ms=NOW_MS - 2000 + ahead_ms,
    )
    (found,) = find(reporters=[SERVICE, skewed, TAILER])
    assert found.cause is CauseClass.CLOCK
    assert (
        found.subject == "clock of delivery service svc-2" and f"{words} the driver's" in found.what
    )


def test_set_aside_records_and_unreadable_partitions_are_counted() -> None:
    found = find(set_aside=3, unreadable=("edge.events.click-0",))
    assert [p.key for p in found] == ["unreadable", "set-aside"]


def test_the_dead_letters_of_the_newest_closed_buckets_are_named(
    tmp_path: Path, ledger_url: str
) -> None:
    config = load_config(write_config(tmp_path, ledger_url))
    with Database(ledger_url) as made:
        add_type(made, "click", [Grade.PROVED])
        add_type(made, DEAD_LETTERS.name, [Grade.PROVED, Grade.PROVED])
    newest = hour_after(1)
    told = types_status(config, newest.end_ms + 60_000).detail
    assert "5 dead letters in the newest closed buckets: `hourmark dead-letters ls`" in told
    assert "dead letter" not in types_status(config, newest.end_ms + 3 * 3_600_000).detail


def test_a_driver_whose_clock_is_behind_those_of_all_services_is_named_and_no_service() -> None:
    services = [
        of(SERVICE, 1000, host_id=c * 32, host_name=f"svc-{c}", received_at_ms=NOW_MS + 600_000 + n)
        for n, c in enumerate("stu")
    ]
    (found,) = find(reporters=[*services, TAILER])
    assert (found.cause, found.subject) == (CauseClass.CLOCK, "clock of the etl driver")
    assert "about 601 s behind the clocks of all 3 delivery services" in found.what
    other = dataclasses.replace(services[0], received_at_ms=NOW_MS + 300_000)
    assert len(find(reporters=[other, *services[1:], TAILER])) == 3, "they do not agree"
