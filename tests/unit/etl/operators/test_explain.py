"""`bucket why`: every state of an hour is told, whoever holds it is named, and each reason has a
next step.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.documents import ROOT
from tests.support.records import END, HOUR, blocker, evidence, frontier, manifest, seal, tailer

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.closing.cut.readiness import LatestReports, describe_clock_difference
from hourmark_etl.ledger.heartbeat import DriverSigns
from hourmark_etl.ledger.overrides import Blocker, Override
from hourmark_etl.model import ClosingPhase, HourState, ReportedSource
from hourmark_etl.operators.explain import (
    REASONS_SHOWN,
    Explanation,
    HourFacts,
    Reason,
    explain_hour,
    format_explanation,
)

PHASES = tuple(ClosingPhase)
FIRST = Hour(HOUR.start_s - 2 * 3600)
TAILER = tailer(received_at_ms=END + 60_000, caught_up_at_ms=END + 60_000, heard_at_ms=END + 60_000)
SERVICE = dataclasses.replace(
    TAILER, host_id="s" * 32, source="api", host_name="svc", kind="service"
)


def behind(**changes: Any) -> ReportedSource:
    """A tailer that is."""
    usual: dict[str, Any] = {
        "host_id": "b" * 32,
        "host_name": "db",
        "caught_up_at_ms": END - 9_000,
        "pending_bytes": 1234,
    }
    return dataclasses.replace(TAILER, **usual | changes)


BEHIND = behind()
FRONTIER = frontier(first_hour=FIRST)
SEALED = dataclasses.replace(FRONTIER, state=HourState.SEALED, seal=seal(grade="forced"))
OVERRIDE = Override(
    event_type="click",
    hour_s=HOUR.start_s,
    reason="ticket 17",
    requested_by="ann@ops",
    requested_at_ms=END + 1,
)


def facts(hour: Hour = HOUR, **changes: Any) -> HourFacts:
    made = HourFacts(
        event_type="click",
        hour=hour,
        now_ms=END + 61_000,
        deadline_seconds=7200.0,
        frontier=FRONTIER,
        known_types=("click",),
        reporters=(SERVICE, TAILER),
        driver=DriverSigns(heartbeat_ms=END + 60_000),
    )
    return dataclasses.replace(made, **changes)


def closed(grade: Grade = Grade.PROVED, *waived: str) -> Manifest:
    proof = evidence(audit_records=7, promised=1200, waived=list(waived))
    return manifest(
        FIRST,
        grade=grade,
        evidence=proof,
        events=1205,
        unaudited=5,
        closed_at_ms=FIRST.end_ms + 90_000,
    )


def told(**changes: Any) -> list[Reason]:
    return list(explain_hour(facts(**changes)).reasons)


def only(**changes: Any) -> Reason:
    (reason,) = told(**changes)
    return reason


def text(answer: Explanation) -> str:
    return "\n".join(format_explanation(answer, END + 61_000))


def test_a_source_that_is_behind_is_named_with_what_to_do_and_the_deadline() -> None:
    answer = explain_hour(facts(reporters=(SERVICE, TAILER, BEHIND)))
    (reason,) = answer.reasons
    assert answer.state == "open" and answer.frontier == str(HOUR)
    assert "next hour of click to close, and ended 61 s ago" in answer.summary
    assert reason.what == (
        f"tailer db source app ({'b' * 32}) had caught up 9 s before the hour's end; "
        "its last report is 1 s old, 1,234 bytes pending"
    )
    assert (
        "it reports: it is catching up, or a file of source app on db cannot be read" in reason.do
    )
    assert reason.since_ms == END - 9_000
    assert answer.times_out_at_ms == END + 7_200_000
    assert "in 119 min: then it closes as timed_out" in text(answer)


def test_a_next_step_that_several_reasons_share_is_named_once() -> None:
    findings = tuple(f"range {n}: 5 promised, 4 found" for n in range(3))
    answer = explain_hour(facts(blocker=blocker(ClosingPhase.PROOF, *findings, hour=HOUR)))
    lines = text(answer).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["waits", "waits", "waits", "do"]
    assert text(answer).count("`hourmark audit click --from") == 1
    assert len({reason.do for reason in answer.reasons}) == 1, "in JSON each reason has it"


def test_a_host_that_is_silent_is_to_be_started_or_drained() -> None:
    silent = behind(heard_at_ms=END - 300_000)
    reason = only(reporters=(SERVICE, silent))
    assert "its last report is 6 min old" in reason.what
    assert (
        "start the tailer on db (`hourmark tail`)" in reason.do
        and "`hourmark tail --drain`" in reason.do
    )


def test_a_service_that_holds_an_hour_is_told_apart_from_a_tailer() -> None:
    busy = dataclasses.replace(SERVICE, caught_up_at_ms=END - 1000)
    reason = only(reporters=(busy,))
    assert "service svc" in reason.what and "a request has been in progress" in reason.do
    silent = dataclasses.replace(busy, heard_at_ms=END - 30_000)
    reason = only(reporters=(silent,))
    assert "start the delivery service on svc again" in reason.do


def test_a_ledger_into_which_nothing_is_staged_says_so_first() -> None:
    stale = dataclasses.replace(SERVICE, received_at_ms=END - 200_000)
    first, second = told(reporters=(stale, behind(received_at_ms=END - 200_000)))
    assert (
        "the newest report in the ledger is 4.3 min old" in first.what
        and "the log of `hourmark etl run`" in first.do
    )
    assert "tailer db" in second.what
    assert second.do.startswith("resolve the reason above"), "nobody is blamed for old reports"


def test_old_reports_that_are_read_now_may_show_a_wrong_clock() -> None:
    """As on a driver's machine whose clock is ten minutes ahead."""
    now_ms = END + 61_000
    late = dataclasses.replace(SERVICE, received_at_ms=now_ms - 600_000, heard_at_ms=now_ms - 2000)
    first, *_ = told(reporters=(late,))
    assert first.what.endswith(
        "10 min old, so the following reasons may be outdated; it was read 2 s ago"
    )
    assert first.do.startswith("compare clocks: `hourmark doctor --only clocks`; if they agree: ")
    unread = dataclasses.replace(late, heard_at_ms=now_ms - 590_000)
    first, *_ = told(reporters=(unread,))
    assert "compare clocks" not in first.do, "nothing is read"


DEAD = END - 46 * 60_000  # when a driver was last seen, 47 minutes before these questions


def test_a_driver_that_is_dead_is_told_first_and_nobody_is_blamed_for_reports_that_it_did_not_read() -> (
    None
):
    service = dataclasses.replace(SERVICE, caught_up_at_ms=DEAD - 3_000)
    said = [
        dataclasses.replace(r, received_at_ms=DEAD - 2_000, heard_at_ms=DEAD - 2_000)
        for r in (service, BEHIND)
    ]
    answer = explain_hour(facts(reporters=tuple(said), driver=DriverSigns(heartbeat_ms=DEAD)))
    first, *others = answer.reasons
    assert first.what == (
        "no driver is running: the last heartbeat in the ledger is 47 min old, so the following "
        "reasons are from that time"
    )
    assert first.do.startswith("start it: `hourmark etl run`") and first.since_ms == DEAD
    assert len(others) == 2 and all(
        "its last report was 2 s old then" in reason.what for reason in others
    )
    assert all(
        "`hourmark serve`" not in reason.do and "`hourmark tail`" not in reason.do
        for reason in answer.reasons
    )
    assert answer.times_out_at_ms is None, "without a driver nothing closes, by no deadline either"


def test_before_any_driver_ran_nobody_says_that_no_service_has_reported() -> None:
    answer = explain_hour(facts(reporters=(), driver=DriverSigns(heartbeat_ms=None)))
    (reason,) = answer.reasons
    assert (
        "the ledger has no heartbeat of a driver" in reason.what
        and "`hourmark etl run`" in reason.do
    )
    assert answer.times_out_at_ms is None


def test_a_driver_that_is_dead_is_told_before_an_hour_has_ended_too() -> None:
    first, second = told(now_ms=END - 90_000, driver=DriverSigns(heartbeat_ms=DEAD))
    assert "no driver is running" in first.what and second.what == "the hour ends in 90 s"


def test_the_open_hour_of_a_driver_that_was_stopped_waits_for_its_end_alone() -> None:
    stopped = DriverSigns(heartbeat_ms=END - 200_000, goodbye_ms=END - 199_000)
    reason = only(now_ms=END - 90_000, driver=stopped)
    assert reason.what == "the hour ends in 90 s"
    assert "it is closed by the next `hourmark run --once` after its end" in reason.do
    assert "`hourmark etl run`" in reason.do and "was stopped at 2027-" in reason.do


def test_an_hour_that_ended_after_the_driver_was_stopped_says_so() -> None:
    stopped = DriverSigns(heartbeat_ms=END - 200_000, goodbye_ms=END - 199_000, pid=1, host="etl-1")
    first, *_ = told(driver=stopped)
    assert first.what.startswith("no driver is running: the last one was stopped at 2027-01-15T")
    assert first.do == (
        "start it: `hourmark etl run`; alternatively, the next `hourmark run --once` closes all "
        "hours that have ended"
    )


def test_a_driver_that_does_not_run_or_hangs_is_named_with_its_host() -> None:
    first, *_ = told(driver=DriverSigns(heartbeat_ms=DEAD, pid=4711, host="etl-1"))
    assert first.do.startswith(
        "on etl-1: if process 4711 exists, it hangs; if it was suspended, continue it"
    )
    assert first.do.endswith("`hourmark etl run`; the log of the last driver states why it stopped")


def test_what_was_known_of_services_when_the_driver_died_is_told_after_it() -> None:
    gone = dataclasses.replace(SERVICE, goodbye=True)
    first, second = told(reporters=(gone,), driver=DriverSigns(heartbeat_ms=DEAD))
    assert (
        "no driver is running" in first.what
        and "every delivery service was shut down" in second.what
    )


def test_a_source_that_never_caught_up_says_so() -> None:
    reason = only(reporters=(SERVICE, behind(caught_up_at_ms=None)))
    assert "has never caught up" in reason.what and reason.since_ms is None


def test_without_any_service_one_is_to_be_started() -> None:
    reason = only(reporters=())
    assert "no delivery service has reported yet" in reason.what and reason.do.startswith(
        "start one: `hourmark serve`"
    )


def test_where_all_services_have_left_an_operator_may_start_one_or_force_and_is_told_once() -> None:
    gone = dataclasses.replace(SERVICE, goodbye=True)
    said = describe_clock_difference(LatestReports([gone]), END + 60_000)
    assert said is not None
    reason = only(reporters=(gone,), blocker=blocker(ClosingPhase.REPORTS, said))
    assert "every delivery service was shut down, the last one was service svc" in reason.what
    answer = explain_hour(facts(reporters=(gone,)))
    assert answer.times_out_at_ms is None, "without a service, a deadline waives nothing"
    assert "`hourmark serve`" in reason.do and "`hourmark bucket force`" in reason.do


@pytest.mark.parametrize("phase", PHASES)
def test_what_the_closer_waits_for_is_told_with_a_step_for_each_phase(phase: ClosingPhase) -> None:
    wait = blocker(phase, "mirror: events.click-0 is at 5 of 9", since_ms=END + 5_000)
    reason = only(blocker=wait)
    assert reason.what == f"({phase}) mirror: events.click-0 is at 5 of 9"
    assert reason.since_ms == END + 5_000
    assert "{" not in reason.do
    assert reason.do != "check the log of `hourmark etl run`"


def test_a_source_that_the_closer_names_too_is_told_once() -> None:
    wait = blocker(
        ClosingPhase.REPORTS, f"tailer db source app ({'b' * 32}): caught up 9.0 s before its end"
    )
    assert len(explain_hour(facts(reporters=(SERVICE, BEHIND), blocker=wait)).reasons) == 1


def test_what_the_closer_waited_for_in_an_earlier_hour_is_not_told() -> None:
    reason = only(blocker=blocker(ClosingPhase.PROOF, "old news", hour=FIRST, since_ms=1))
    assert "no reason is recorded in the ledger" in reason.what


def test_promises_that_are_not_kept_are_named() -> None:
    alarm = ("range 00ff (range of web: /log [0, 9)): 5 events promised, 4 found",)
    reason = only(frontier=frontier(alarm=alarm))
    assert (
        "range 00ff" in reason.what
        and f"`hourmark audit click --from {HOUR} --to {HOUR}`" in reason.do
    )


def test_an_override_is_told() -> None:
    (ordered,) = explain_hour(facts(override=OVERRIDE)).reasons
    assert ordered.what == "ann@ops ordered to close it by force: ticket 17"


def test_records_that_were_set_aside_are_named_after_what_holds_the_hour() -> None:
    first, last = explain_hour(facts(set_aside=20)).reasons
    assert first.what == "no reason is recorded in the ledger"
    assert last.what.startswith(
        "20 records on the type's topic cannot be in a bucket and were set aside."
    )
    assert "`hourmark etl set-aside ls click`" in last.do


def phases_that_wait() -> set[ClosingPhase]:
    """Those of which the table in docs/internals/closing.md says that they wait after the deadline."""
    rows = [
        line.split("|")
        for line in (ROOT / "docs" / "internals" / "closing.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    return {
        ClosingPhase(phase)
        for _, phases, _, after, *_ in rows
        for phase in re.findall(r"`(\w+)`", phases)
        if after.strip().startswith("wait")
    }


@pytest.mark.parametrize("phase", ClosingPhase)
def test_a_phase_that_waits_after_the_deadline_has_none(phase: ClosingPhase) -> None:
    deadline = explain_hour(facts(blocker=blocker(phase, "…"))).times_out_at_ms
    assert (deadline is None) == (phase in phases_that_wait())


def test_an_hour_that_an_override_closes_and_one_under_a_wrong_clock_have_no_deadline() -> None:
    assert explain_hour(facts(override=OVERRIDE)).times_out_at_ms is None
    ahead = dataclasses.replace(SERVICE, received_at_ms=END + 61_000 + 301_000)
    assert explain_hour(facts(reporters=(ahead, BEHIND))).times_out_at_ms is None


def test_an_override_for_an_hour_that_is_sealed_since_is_said_to_be_under_way() -> None:
    reason = only(override=OVERRIDE, frontier=SEALED)
    assert "ordered to close it by force" in reason.what and "it is sealed as forced" in reason.do


def test_an_hour_that_has_not_ended_waits_for_its_end_alone() -> None:
    answer = explain_hour(facts(now_ms=END - 90_000, reporters=(SERVICE, BEHIND)))
    assert [reason.what for reason in answer.reasons] == ["the hour ends in 90 s"]
    assert answer.times_out_at_ms is None


def test_a_later_hour_waits_for_those_before_it_and_tells_why_they_wait() -> None:
    later = Hour(HOUR.start_s + 3 * 3600)
    answer = explain_hour(facts(later, reporters=(SERVICE, BEHIND)))
    assert answer.state == "later" and answer.frontier == str(HOUR)
    assert f"3 hours of click close before it, first {HOUR}" in answer.summary
    assert "it ends in 3.0 h itself" in answer.summary or "it ends in 3 h itself" in answer.summary
    assert "tailer db" in answer.reasons[0].what


def test_frozen_and_sealed_hours_say_what_is_done_with_them() -> None:
    assert (
        "fixed and are being proved"
        in explain_hour(
            facts(frontier=dataclasses.replace(FRONTIER, state=HourState.FROZEN))
        ).summary
    )
    answer = explain_hour(facts(frontier=SEALED))
    assert "sealed as forced" in answer.summary and answer.times_out_at_ms is None


def test_a_closed_hour_tells_grade_delay_and_evidence() -> None:
    answer = explain_hour(facts(FIRST, manifest=closed()))
    assert answer.state == "closed"
    assert (
        "closed as proved" in answer.summary
        and "90 s after its end, with 1,205 events" in answer.summary
    )
    assert "1,200 events promised by 7 audit records; 5 unaudited events" in answer.reasons[0].what


def test_a_bucket_that_timed_out_names_what_it_was_closed_without() -> None:
    answer = explain_hour(facts(FIRST, manifest=closed(Grade.TIMED_OUT, "tailer db source app")))
    assert answer.reasons[1].what == "closed without: tailer db source app"


def test_a_closed_hour_without_a_bucket_leads_to_the_ledgers_check() -> None:
    assert "`hourmark ledger check`" in explain_hour(facts(FIRST)).reasons[0].do


def test_an_hour_before_the_first_says_where_its_events_go() -> None:
    answer = explain_hour(facts(Hour(FIRST.start_s - 3600), following=closed()))
    assert answer.state == "before-first" and f"begin at {FIRST}" in answer.summary


def test_an_hour_before_the_first_may_be_back_filled_while_nothing_is_closed() -> None:
    new = dataclasses.replace(FRONTIER, hour=FIRST, first_hour=FIRST)
    answer = explain_hour(facts(FIRST.previous(), frontier=new))
    assert answer.state == "later" and "nothing of click is closed" in answer.summary


def test_an_unknown_type_suggests_what_may_be_meant() -> None:
    answer = explain_hour(facts(event_type="clik", frontier=None, known_types=("click", "view")))
    assert answer.state == "unknown-type" and "did you mean click?" in answer.summary


def test_many_reasons_are_cut_short_and_counted() -> None:
    many = tuple(behind(host_id=f"{n:032x}") for n in range(REASONS_SHOWN + 7))
    answer = explain_hour(facts(reporters=(SERVICE, *many)))
    assert len(answer.reasons) == REASONS_SHOWN + 1
    assert answer.reasons[-1].what == "and 7 more"


reporters = st.lists(
    st.builds(
        ReportedSource,
        host_id=st.text("abc", min_size=1, max_size=2),
        source=st.sampled_from(["app", "other"]),
        host_name=st.just("h"),
        kind=st.sampled_from(["tailer", "service"]),
        incarnation=st.just("one"),
        sequence=st.just(0),
        received_at_ms=st.integers(END - 10_000_000, END + 61_000),
        caught_up_at_ms=st.none() | st.integers(END - 10_000_000, END + 61_000),
        pending_bytes=st.integers(0, 10),
        lost_bytes=st.just(0),
        goodbye=st.booleans(),
        heard_at_ms=st.integers(END - 10_000_000, END + 61_000),
        waived=st.booleans(),
    )
)


@given(
    reporters,
    st.sampled_from(HourState),
    st.integers(-3, 3),
    st.none()
    | st.builds(
        Blocker,
        event_type=st.just("click"),
        hour=st.sampled_from([FIRST, HOUR]),
        phase=st.sampled_from(PHASES),
        what=st.lists(st.text(max_size=5), max_size=2).map(tuple),
        since_ms=st.integers(0, END),
    ),
    st.integers(-4_000_000, 8_000_000),
)
def test_whatever_the_ledger_says_there_is_a_reason_with_a_next_step(
    said: list[ReportedSource],
    state: HourState,
    hours: int,
    wait: Blocker | None,
    since_end_ms: int,
) -> None:
    asked = Hour(HOUR.start_s + hours * 3600)
    opened = dataclasses.replace(
        FRONTIER, state=state, alarm=("row of frontiers",) if state is HourState.DAMAGED else ()
    )
    answer = explain_hour(
        facts(
            asked, frontier=opened, reporters=tuple(said), blocker=wait, now_ms=END + since_end_ms
        )
    )
    assert answer.reasons
    assert all(reason.what and reason.do for reason in answer.reasons)
    assert json.loads(json.dumps(dataclasses.asdict(answer)))["state"] == answer.state
    assert text(answer)


def test_a_conflict_names_the_range_and_the_override_and_no_deadline() -> None:
    wait = blocker(
        ClosingPhase.CONFLICT, "range aa has 2 audit records that differ: …", since_ms=END + 1
    )
    answer = explain_hour(facts(blocker=wait))
    (reason,) = answer.reasons
    assert reason.what == "(conflict) range aa has 2 audit records that differ: …"
    assert f"`hourmark bucket force click {HOUR}`" in reason.do
    assert answer.times_out_at_ms is None and explain_hour(facts()).times_out_at_ms is not None


@pytest.mark.parametrize("state", [HourState.FROZEN, HourState.SEALED])
def test_a_round_that_runs_is_not_explained_by_what_it_waited_for_before(state: HourState) -> None:
    waited = blocker(ClosingPhase.REPORTS, "tailer db: behind")
    running = dataclasses.replace(SEALED, state=state)
    told = explain_hour(facts(frontier=running, blocker=waited))
    [reason] = told.reasons
    assert reason.what == (
        "its proof, which is running"
        if state is HourState.FROZEN
        else "its bucket, which is being written"
    )
