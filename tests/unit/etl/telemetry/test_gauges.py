"""What is late, how far behind sources are, which buckets are overdue: by the ledger's words
alone.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.support.ledger_queries import rewrite
from tests.support.records import (
    END,
    HOUR,
    TOPICS,
    audit_group,
    frontier,
    group,
    seal,
    service,
    staged_batch,
    staged_file,
    tailer,
)
from tests.support.rules import ledger_of_click

from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.hours import Hour
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.maintenance.overview import FixedHours, read_fixed_hours
from hourmark_etl.model import AUDIT, HourState, StagedBatch
from hourmark_etl.telemetry.gauges import (
    LagWindow,
    compute_gauges,
    count_batch_events,
    oldest_open_ages_s,
    slowest_source,
    watermarks_ms,
)
from hourmark_etl.telemetry.metrics import OLDEST_SHOWN, BatchCounts

OPEN = {"click": FixedHours(HOUR.start_s, HOUR.start_s)}
SERVICE, TAILER = service(), tailer(pending_bytes=7, lost_bytes=3, unknown_losses=2)


def batch(*groups: tuple[str, int, int]) -> StagedBatch:
    """Of groups (type, hour's start, rows)."""
    return staged_batch(
        files=(staged_file(), staged_file("a", AUDIT)),
        groups=tuple(group(event_type=t, hour_s=hour_s, rows=rows) for t, hour_s, rows in groups),
        audit_groups=(audit_group(promised=12),),
    )


def staged(fixed: dict[str, FixedHours], *groups: tuple[str, int, int]) -> BatchCounts:
    return count_batch_events(batch(*groups), fixed, 3600, 1.0, END)


def test_events_of_the_open_hour_and_later_ones_are_timely() -> None:
    found = staged(OPEN, ("click", HOUR.start_s, 5), ("click", HOUR.end_s, 2))
    assert (found.timely, found.late, found.late_seconds, found.bytes, found.promised) == (
        7,
        0,
        0.0,
        70,
        12,
    )
    assert (found.event_files, found.audit_files) == (1, 1)


def test_events_of_closed_hours_are_late_by_the_time_since_the_end_of_their_hour() -> None:
    closed = Hour(HOUR.start_s - 3600)
    found = staged(OPEN, ("click", closed.start_s, 4))
    assert (found.timely, found.late, found.falsely_late) == (0, 4, 0)
    assert found.late_seconds == 4 * 3600


def test_events_of_an_hour_that_is_sealed_and_not_yet_published_are_falsely_late() -> None:
    fixed = {"click": FixedHours(HOUR.start_s, HOUR.end_s)}
    groups = (
        ("click", HOUR.start_s - 3600, 2),
        ("click", HOUR.start_s, 4),
        ("click", HOUR.end_s, 1),
    )
    found = staged(fixed, *groups)
    assert (found.timely, found.late, found.falsely_late) == (1, 6, 4)


def test_what_is_fixed_follows_the_frontier_through_its_states(tmp_path: Path) -> None:
    database = ledger_of_click(f"sqlite:///{tmp_path}/ledger.sqlite")
    lease = database.acquire("closer")

    def fixed() -> FixedHours:
        return read_fixed_hours(database, 3600)["click"]

    assert fixed() == FixedHours(0, 0), "nothing is closed: older hours are back-filled"
    ledger.freeze(database, lease, ledger.frontiers(database, 3600), TOPICS)
    assert fixed() == FixedHours(HOUR.start_s, HOUR.end_s)
    ledger.seal(database, lease, {"click": [seal()] * 2}, ledger.frontiers(database, 3600))
    assert fixed() == FixedHours(HOUR.start_s, HOUR.end_s + 3600)
    database.close()


def test_events_of_old_hours_are_late_once_a_bucket_of_their_type_is_closed(
    tmp_path: Path,
) -> None:
    database = ledger_of_click(f"sqlite:///{tmp_path}/ledger.sqlite")
    old_s = HOUR.start_s - 240 * 3600

    def counts() -> tuple[int, int]:
        found = staged(read_fixed_hours(database, 3600), ("click", old_s, 5))
        return found.timely, found.late

    assert counts() == (5, 0), "they are back-filled"
    of_click = tables.frontiers.c.type == "click"
    rewrite(database, tables.frontiers, of_click, backfilled_hour=old_s)
    assert counts() == (0, 5), "a newer hour was back-filled"
    rewrite(database, tables.frontiers, of_click, hour=HOUR.end_s, backfilled_hour=None)
    assert counts() == (0, 5)
    database.close()


def test_events_of_a_type_that_the_ledger_does_not_know_yet_are_timely() -> None:
    assert staged({}, ("new", HOUR.start_s, 4)).timely == 4


def test_a_type_is_behind_by_its_slowest_source() -> None:
    slow = tailer(host_id="u" * 32, caught_up_at_ms=HOUR.start_s * 1000 + 5)
    other = tailer(host_id="v" * 32, source="other", caught_up_at_ms=HOUR.start_s * 1000 + 9)
    types = [
        frontier(),
        frontier("view", sources={"other"}),
        frontier(DEAD_LETTERS, sources={"app", "other"}),
    ]
    found = watermarks_ms(types, [SERVICE, TAILER, slow, other], END)
    start = HOUR.start_s * 1000
    assert found == {"click": start + 5, "view": start + 9, DEAD_LETTERS: start + 5}


def test_what_is_closed_is_behind_no_longer_whatever_was_reported() -> None:
    never = tailer(caught_up_at_ms=None)
    assert watermarks_ms([frontier()], [SERVICE, never], END) == {"click": HOUR.start_s * 1000}
    assert watermarks_ms([frontier()], [], END) == {"click": HOUR.start_s * 1000}
    assert watermarks_ms([], [SERVICE], END) == {}


def test_the_slowest_source_is_one_that_a_type_awaits() -> None:
    never = tailer(host_id="u" * 32, caught_up_at_ms=None)
    other = dataclasses.replace(never, source="of no type")
    gone = dataclasses.replace(never, goodbye=True)
    slow = tailer(host_id="v" * 32, caught_up_at_ms=END - 9 * 3_600_000)
    assert slowest_source([frontier()], [SERVICE, TAILER, slow, other, gone]) == slow
    assert slowest_source([frontier()], [SERVICE, TAILER, slow, never]) == never
    assert slowest_source([frontier()], []) is None


def test_who_said_goodbye_or_was_waived_holds_no_watermark_back() -> None:
    gone = tailer(host_id="u" * 32, caught_up_at_ms=None, goodbye=True)
    waived = tailer(host_id="v" * 32, caught_up_at_ms=None, waived=True)
    assert watermarks_ms([frontier()], [SERVICE, TAILER, gone, waived], END) == {"click": END}


def test_the_oldest_hours_that_have_ended_are_shown() -> None:
    hours = [Hour(HOUR.start_s - 3600 * n) for n in range(OLDEST_SHOWN + 5)]
    types = [frontier(f"t{n}", hour, first_hour=hour) for n, hour in enumerate(hours)]
    ages = oldest_open_ages_s(types, HOUR.start_s * 1000)
    assert len(ages) == OLDEST_SHOWN
    assert next(iter(ages.items())) == (f"t{OLDEST_SHOWN + 4}", 3600.0 * (OLDEST_SHOWN + 3))
    assert oldest_open_ages_s([frontier()], HOUR.start_s * 1000) == {}
    backfilled = frontier(hour=Hour(HOUR.start_s - 3600 * 200_000))
    assert oldest_open_ages_s([backfilled], END) == {"click": 0}, "from its first hour's end"


def test_the_window_of_lags_is_five_minutes_long() -> None:
    window = LagWindow()
    assert window.add(0, [10, 20]) == (15, 20)
    assert window.add(60, [1, 1]) == (8, 20)
    assert window.add(300, [1]) == (17 / 3, 20)
    assert window.add(301, []) == (2 / 3, 1)


def test_how_things_stand_is_counted() -> None:
    waived = dataclasses.replace(TAILER, host_id="u" * 32, waived=True)
    gone = dataclasses.replace(TAILER, host_id="v" * 32, goodbye=True)
    types = [frontier(alarm=("range …",)), frontier("view", state=HourState.SEALED)]
    found = compute_gauges(
        types,
        [SERVICE, TAILER, waived, gone],
        set_aside=1,
        unreadable=1,
        buckets_in_conflict=0,
        overrides=2,
        lag_s=(3.0, 4.0),
        now_ms=END + 5000,
    )
    assert found.types == {"open": 1, "frozen": 0, "sealed": 1, "damaged": 0}
    assert found.reporters == {"live": 2, "waived": 1, "gone": 1}
    assert (found.pending_bytes, found.lost_bytes, found.unknown_losses, found.types_in_alarm) == (
        14,
        9,
        6,
        1,
    )
    assert found.oldest_open == {"click": 5.0, "view": 5.0}
    assert found.open_bucket_age == 5.0
