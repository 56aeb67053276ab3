"""The first condition of a cut: nothing closes before every live source is past the hour, by clocks
that agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import DEADLINE_S, END, frontier, host_report, service, tailer

from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, SourceReport
from hourmark.records.hours import Hour
from hourmark_etl.closing.cut.readiness import (
    SILENT_MS,
    LatestReports,
    Readiness,
    are_still_behind,
    compute_readiness_by_type,
    describe_clock_difference,
    find_new_sources,
    find_silent_sources,
)
from hourmark_etl.closing.cut.readiness import readiness as readiness_of
from hourmark_etl.ledger.hosts.reporters import decode_report
from hourmark_etl.model import Frontier, HourState, ReportedSource

DEADLINE_MS = 1000 * DEADLINE_S
SERVICE, TAILER = service(), tailer()


def readiness(of: Frontier, reporters: Collection[ReportedSource], now_ms: int) -> Readiness:
    return readiness_of(of, LatestReports(reporters), now_ms, DEADLINE_MS)


def is_ready(*reporters: ReportedSource, now_ms: int = END + 1, of: Frontier | None = None) -> bool:
    asked = of or frontier()
    found = compute_readiness_by_type([asked], LatestReports(reporters), now_ms, DEADLINE_MS)
    return any(r.watermark_ms >= asked.awaited_ms for r in found.values())


def said(host_id: str, at_ms: int, caught_up_ms: int, ahead_ms: int) -> ReportedSource:
    """A service's report as the ledger has it, made at this true time by a clock that runs
    ahead.
    """
    sources = (SourceReport("api", caught_up_ms + ahead_ms, 0, 0),)
    (reporter,) = decode_report(
        host_report(at_ms + ahead_ms, host_id=host_id, kind="service", sources=sources), at_ms
    )
    return reporter


def caught_up(reporter: ReportedSource) -> int:
    assert reporter.caught_up_at_ms is not None
    return reporter.caught_up_at_ms


def test_an_hour_is_ready_when_all_are_past_its_end() -> None:
    assert is_ready(SERVICE, TAILER)


def test_a_source_that_has_not_caught_up_holds_the_hour_and_is_named() -> None:
    behind = tailer(caught_up_at_ms=END - 2000)
    assert not is_ready(SERVICE, behind)
    assert "tailer web source app" in readiness(frontier(), [SERVICE, behind], END + 1).waits_for[0]
    assert "2.0 s before its end" in readiness(frontier(), [SERVICE, behind], END + 1).waits_for[0]


def test_types_of_the_same_sources_and_hour_share_an_answer_and_no_others() -> None:
    """Else 5,000 hosts that are behind, and 1,000 types, are five million lines to make in each
    poll.
    """
    behind = [
        dataclasses.replace(tailer(caught_up_at_ms=END - n), host_id=f"{n:032x}", source=s)
        for n in (1, 2)
        for s in ("app", "db")
    ]
    of = {
        "one": {"app"},
        "two": {"app"},
        "both": {"app", "db"},
        "later": {"app"},
        "nobody's": {"none"},
        "dead-letters": {"none"},
    }
    frontiers = [
        frontier(event_type=name, sources=frozenset(sources)) for name, sources in of.items()
    ]
    frontiers[3] = dataclasses.replace(frontiers[3], hour=frontiers[3].hour.next())
    reports, now_ms = LatestReports([SERVICE, *behind]), frontiers[3].hour.end_ms + 1
    found = compute_readiness_by_type(frontiers, reports, now_ms, DEADLINE_MS)
    assert found == {f.event_type: readiness_of(f, reports, now_ms, DEADLINE_MS) for f in frontiers}
    assert (
        found["one"] is found["two"]
        and found["both"] is found["dead-letters"]
        and len({*map(id, found.values())}) == 4
    )


def test_a_source_that_never_caught_up_holds_the_hour() -> None:
    assert not is_ready(SERVICE, tailer(caught_up_at_ms=None))


def test_the_deadline_of_a_back_filled_hour_counts_from_the_end_of_the_first_hour() -> None:
    old = dataclasses.replace(frontier(), hour=Hour(frontier().hour.start_s - 3600 * 200_000))
    behind = tailer(caught_up_at_ms=None)
    assert not is_ready(SERVICE, behind, of=old, now_ms=END + DEADLINE_MS - 1)
    assert readiness(old, [SERVICE, behind], END + DEADLINE_MS).waived == (behind,)


def test_a_back_filled_hour_waits_for_sources_that_deliver_an_old_file() -> None:
    old = Hour(frontier().hour.start_s - 3600 * 200_000)
    noticed = dataclasses.replace(frontier(), hour=old, noticed_ms=END - 1000)
    found = readiness(noticed, [SERVICE, tailer(caught_up_at_ms=END - 3000)], END)
    assert found.watermark_ms < noticed.awaited_ms
    assert "caught up 2.0 s before the back-fill began" in found.waits_for[0]
    assert is_ready(SERVICE, tailer(caught_up_at_ms=END - 1000), of=noticed, now_ms=END)


def test_sources_that_cannot_carry_the_type_hold_nothing_up() -> None:
    other = tailer(source="other", caught_up_at_ms=None)
    assert is_ready(SERVICE, TAILER, other)
    assert not is_ready(SERVICE, TAILER, other, of=frontier(event_type="dead-letters"))


def test_a_host_that_said_goodbye_is_not_awaited() -> None:
    assert is_ready(SERVICE, tailer(caught_up_at_ms=None, goodbye=True))


def test_nothing_closes_before_a_service_has_ever_reported() -> None:
    assert "no delivery service has reported yet" in (
        describe_clock_difference(LatestReports([TAILER]), END + 1) or ""
    )


def test_a_closer_whose_clock_is_behind_waits_and_one_ahead_closes_nothing_early() -> None:
    assert not is_ready(SERVICE, TAILER, now_ms=END - 1)
    hours_ahead = (
        END + DEADLINE_MS - 1
    )  # further ahead, `describe_clock_difference` stops all closing
    early = service(caught_up_at_ms=END - 1)
    assert not is_ready(early, tailer(caught_up_at_ms=END - 1), now_ms=hours_ahead)


def test_frozen_and_sealed_hours_are_not_cut_again() -> None:
    assert not is_ready(SERVICE, TAILER, of=frontier(state=HourState.FROZEN))
    assert not is_ready(SERVICE, TAILER, of=frontier(state=HourState.SEALED))


@given(
    st.lists(st.none() | st.integers(END - 5, END + 5), max_size=5), st.integers(END - 5, END + 5)
)
def test_the_watermark_is_never_past_anybody(caught_up: list[int | None], now_ms: int) -> None:
    reporters = [
        SERVICE,
        *(tailer(host_id=str(n), caught_up_at_ms=at) for n, at in enumerate(caught_up)),
    ]
    found = readiness(frontier(), reporters, now_ms)
    assert found.watermark_ms <= min(
        [now_ms, SERVICE.caught_up_at_ms or 0, *(at or 0 for at in caught_up)]
    )
    assert bool(found.waits_for) == (found.watermark_ms < END)


def test_newly_seen_are_hosts_not_known_before_or_back_after_a_goodbye() -> None:
    gone, back = tailer(goodbye=True), tailer(incarnation="two")
    came_and_left = dataclasses.replace(back, goodbye=True)
    assert find_new_sources([SERVICE], [SERVICE, TAILER]) == [TAILER]
    assert find_new_sources([SERVICE], [SERVICE, gone]) == [gone]
    assert find_new_sources([SERVICE, gone], [SERVICE, back]) == [back]
    assert find_new_sources([SERVICE, gone], [SERVICE, came_and_left]) == [came_and_left]
    assert find_new_sources([SERVICE, gone], [SERVICE, gone]) == []
    assert find_new_sources([SERVICE, TAILER], [SERVICE, gone]) == []
    assert find_new_sources([SERVICE, TAILER], [SERVICE, back]) == [], (
        "restarted: it had caught up before"
    )
    assert find_new_sources([], [SERVICE]) == []


def test_a_service_that_has_fallen_silent_is_not_awaited_while_another_reports() -> None:
    dead = service(host_id="d" * 32, caught_up_at_ms=END - 90_000, heard_at_ms=END - 90_000)
    assert is_ready(SERVICE, TAILER, dead)
    assert not is_ready(SERVICE, TAILER, dataclasses.replace(dead, heard_at_ms=END - SILENT_MS + 1))
    assert not is_ready(dead, TAILER), "nobody else delivers: it is awaited"
    assert not is_ready(dead, TAILER, service(goodbye=True)), "whoever has left does not report"


@given(
    st.integers(-CLOCKS_APART_MS_MAX, CLOCKS_APART_MS_MAX),
    st.integers(-CLOCKS_APART_MS_MAX, CLOCKS_APART_MS_MAX),
)
def test_no_clock_within_the_allowed_difference_makes_a_neighbour_silent(
    ahead_ms: int, behind_ms: int
) -> None:
    fast = said("a", END + 5_000, END + 5_000, ahead_ms)
    busy = said(
        "b", END + 4_000, END - 40_000, behind_ms
    )  # with a request under way since before the hour's end
    held = caught_up(busy) < END  # by its own clock
    assert readiness(frontier(), [fast, busy], END + 6_000).waived == ()
    assert is_ready(fast, busy, now_ms=END + 6_000) == (caught_up(fast) >= END and not held)


def test_a_report_that_is_older_than_clocks_may_be_apart_was_heard_when_it_says() -> None:
    report = host_report(END)
    assert [r.heard_at_ms for r in decode_report(report, END + CLOCKS_APART_MS_MAX)] == [
        END + CLOCKS_APART_MS_MAX
    ]
    assert [r.heard_at_ms for r in decode_report(report, END + CLOCKS_APART_MS_MAX + 1)] == [END], (
        "a backlog is being staged"
    )


def test_a_service_whose_clock_runs_ahead_cannot_say_that_a_source_has_caught_up_with_a_time_to_come() -> (
    None
):
    report = host_report(END + 90_000, sources=(SourceReport("app", END + 1, 0, 0),))
    assert not is_ready(SERVICE, *decode_report(report, END - 30_000))
    assert is_ready(SERVICE, *decode_report(report, END + 1))


def test_past_its_deadline_an_hour_goes_without_whoever_is_behind_and_names_them() -> None:
    gone = tailer(caught_up_at_ms=END - 1, host_id="g" * 32)
    fine = tailer(caught_up_at_ms=END + DEADLINE_MS)
    alive = service(caught_up_at_ms=END + DEADLINE_MS)
    before = readiness(frontier(), [alive, fine, gone], END + DEADLINE_MS - 1)
    assert (before.watermark_ms, before.waived) == (END - 1, ())
    after = readiness(frontier(), [alive, fine, gone], END + DEADLINE_MS)
    assert (after.watermark_ms, after.waits_for, after.waived) == (END, (), (gone,))


def test_each_hour_of_a_backlog_has_its_own_deadline() -> None:
    gone = tailer(caught_up_at_ms=END - 1)
    now_ms = END + DEADLINE_MS + 2 * 3_600_000 + 5
    alive = service(caught_up_at_ms=now_ms)
    found = readiness(frontier(), [alive, gone], now_ms)
    assert found.watermark_ms == END + 2 * 3_600_000 + 5, (
        "the hours that ended at least a deadline ago, and no other"
    )


def test_a_source_that_had_caught_up_with_the_hour_bounds_the_watermark_also_when_another_is_waived() -> (
    None
):
    gone = tailer(caught_up_at_ms=None, host_id="g" * 32)
    slow = tailer(caught_up_at_ms=END + 10)
    now_ms = END + DEADLINE_MS + 3_600_000
    alive = service(caught_up_at_ms=now_ms)
    assert readiness(frontier(), [alive, gone, slow], now_ms).watermark_ms == END + 10


def test_a_source_that_was_waived_is_not_awaited_until_it_reports_and_then_counts_as_new() -> None:
    waived = tailer(caught_up_at_ms=END - 1, waived=True)
    back = dataclasses.replace(waived, waived=False, sequence=1)
    assert is_ready(SERVICE, waived)
    assert not is_ready(SERVICE, back)
    assert find_new_sources([SERVICE, waived], [SERVICE, back]) == [back]
    assert find_new_sources([SERVICE, waived], [SERVICE, waived]) == []


def test_who_has_caught_up_while_the_cut_was_taken_is_not_waived_after_all() -> None:
    behind = tailer(caught_up_at_ms=END - 1)
    assert are_still_behind(
        frontier(),
        [behind],
        LatestReports([dataclasses.replace(behind, caught_up_at_ms=END - 1, sequence=9)]),
    )
    assert not are_still_behind(
        frontier(), [behind], LatestReports([dataclasses.replace(behind, caught_up_at_ms=END)])
    )
    assert not are_still_behind(
        frontier(), [behind], LatestReports([dataclasses.replace(behind, goodbye=True)])
    )
    assert not are_still_behind(frontier(), [behind], LatestReports([]))


def test_clocks_that_are_minutes_apart_are_named_and_whose_they_are() -> None:
    now_ms = END
    heard = service(received_at_ms=now_ms)
    assert describe_clock_difference(LatestReports([heard, TAILER]), now_ms) is None
    ahead = dataclasses.replace(
        heard, host_id="a" * 32, host_name="fast", received_at_ms=now_ms + CLOCKS_APART_MS_MAX + 1
    )
    assert "service fast source api" in (
        describe_clock_difference(LatestReports([heard, ahead]), now_ms) or ""
    )
    assert "is 300.0 s old according to the closer's clock" in (
        describe_clock_difference(LatestReports([heard]), now_ms + CLOCKS_APART_MS_MAX + 1) or ""
    )
    assert describe_clock_difference(LatestReports([heard]), now_ms + CLOCKS_APART_MS_MAX) is None
    gone = [
        dataclasses.replace(r, goodbye=True)
        for r in (heard, dataclasses.replace(ahead, heard_at_ms=now_ms + 1))
    ]
    assert "every delivery service was shut down, the last one was service fast" in (
        describe_clock_difference(LatestReports(gone), now_ms) or ""
    )
    assert describe_clock_difference(LatestReports([heard, gone[1]]), now_ms) is None, (
        "whoever has left is no witness"
    )


def test_only_who_has_fallen_silent_is_not_awaited_by_later_hours() -> None:
    stuck = tailer(caught_up_at_ms=None)
    silent = dataclasses.replace(stuck, host_id="g" * 32, heard_at_ms=END - SILENT_MS - 1)
    assert find_silent_sources([stuck, silent], [SERVICE, stuck, silent]) == [silent]
    assert find_silent_sources([], []) == []
