"""What the log says of closed buckets: a line each, but one for all of a type that a step closed
together.
"""

from __future__ import annotations

from typing import Any

from tests.support.records import manifest

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, Manifest
from hourmark_etl.closing.reporting import format_closed_buckets

FIRST = Hour.parse("2026-11-21T05:00", 60)
AFTER = "0 duplicates removed, 0 unaudited, 1.5 s after its end"


def minutes(count: int, **changes: Any) -> list[Manifest]:
    hours = [Hour(FIRST.start_s + 60 * n, 60) for n in range(count)]
    return [
        manifest(hour, bucket_seconds=60, closed_at_ms=hour.end_ms + 1500, **changes)
        for hour in hours
    ]


def test_few_have_a_line_each() -> None:
    assert [
        *format_closed_buckets(
            [*minutes(2, events=1, late={"2026-11-21T04:59": 1}), *minutes(1, type="other")]
        )
    ] == [
        f"click 2026-11-21T05:00 closed as proved: 1 event, 1 late, {AFTER}",
        f"click 2026-11-21T05:01 closed as proved: 1 event, 1 late, {AFTER}",
        f"other 2026-11-21T05:00 closed as proved: 0 events, 0 late, {AFTER}",
    ]


def test_a_backlog_of_a_type_has_one_line_that_adds_up() -> None:
    closed = [
        *minutes(300, events=4, late={"2026-11-21T04:59": 2}, grade=Grade.PROVED),
        *minutes(1, type="other"),
    ]
    closed[7] = minutes(8, events=6, grade=Grade.TIMED_OUT, duplicates_removed=1)[7]
    assert [*format_closed_buckets(closed)] == [
        "click 2026-11-21T05:00 to 2026-11-21T09:59: 299 buckets closed as proved, 1 bucket "
        "closed as timed_out: "
        "1,202 events, 598 late, 1 duplicate removed, 0 unaudited, the last one 1.5 s after its end",
        f"other 2026-11-21T05:00 closed as proved: 0 events, 0 late, {AFTER}",
    ]
