"""A driver's words on how it goes: rates, lateness, what the oldest open bucket waits for; quiet
while nothing happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.records import HOUR, blocker, group, position, staged_batch, staged_file, tailer
from tests.support.rules import ledger_of_click

from hourmark_etl.humanize import format_duration
from hourmark_etl.ledger.batches import commit_batch, insert_new_positions
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.hosts.reporters import put_reports
from hourmark_etl.ledger.overrides import put_blockers
from hourmark_etl.model import ClosingPhase
from hourmark_etl.telemetry.metrics import CounterTotals, EtlMetrics
from hourmark_etl.telemetry.progress import (
    PROGRESS_SECONDS,
    QUIET_SECONDS,
    DriverProgress,
    OverdueHour,
    format_progress,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = ledger_of_click(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield made
    made.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was said of progress so far."""
    name = "hourmark_etl.telemetry.progress"
    caplog.set_level(logging.INFO, name)
    return lambda: [r.getMessage() for r in caplog.records if r.name == name]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (150, "2.5 min"),
        (3600, "60 min"),
        (9000, "2.5 h"),
        (172_800, "2 days"),
        (864_000, "10 days"),
    ],
)
def test_durations_are_written_for_people(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_a_line_says_rates_lateness_and_what_holds_the_oldest_bucket() -> None:
    done = CounterTotals(
        timely=2990,
        late=10,
        late_seconds=36_000,
        files=4,
        batches=2,
        batch_seconds=3,
        buckets=5,
        not_proved=1,
    )
    oldest = OverdueHour(
        "click",
        "2027-01-15T08",
        750,
        ("tailer web (1) source app: caught up 9.0 s before its end",),
    )
    assert format_progress(
        done, 30, "all sources had caught up 12 s ago", oldest, "hdfs is in safe mode"
    ) == (
        "3,000 events staged in 30 s (100/s); 10 of them late, by 60 min on average; 4 files in "
        "2 batches of 1.5 s; 5 buckets closed, 1 of them not proved; all sources had caught up 12 s "
        "ago; oldest open bucket click 2027-01-15T08, overdue for 12 min, waits for: tailer web "
        "(1) source app: caught up 9.0 s before its end (`hourmark bucket why click "
        "2027-01-15T08`); closing is blocked: hdfs is in safe mode"
    )


def test_a_line_of_a_quiet_time_is_short() -> None:
    assert format_progress(CounterTotals(), 300, "no source has reported yet", None, "") == (
        "0 events staged in 5 min (0/s); 0 buckets closed; no source has reported yet"
    )


def report(database: Database, **changes: object) -> None:
    """Of host web and source app."""
    with database.transaction() as connection:
        put_reports(connection, [(tailer(**changes),)])


def test_nothing_is_said_to_have_caught_up_before_anything_was_there(
    database: Database, lines: Callable[[], list[str]]
) -> None:
    clock = FakeClock(
        HOUR.start_s * 1000 + 44 * 60_000
    )  # the installation, 44 minutes past the hour
    progress = DriverProgress(database, EtlMetrics(), 3600, clock)
    clock.advance(180)
    progress.record_poll("no delivery service has reported yet")
    assert "no source has reported yet" in lines()[0] and "caught up" not in lines()[0]
    report(database, caught_up_at_ms=None)
    clock.advance(60)
    progress.record_poll("…")
    assert "tailer web source app has not caught up yet" in lines()[1] and "ago" not in lines()[1]
    report(database, sequence=1, caught_up_at_ms=clock.now_ms() - 2_000)
    clock.advance(60)
    progress.record_poll("…")
    assert "all sources had caught up 62 s ago" in lines()[2]
    report(database, sequence=2, goodbye=True)
    clock.advance(60)
    progress.record_poll("…")
    assert "no source is awaited" in lines()[3]


def test_a_driver_says_what_it_staged_and_then_is_quiet(
    database: Database, lines: Callable[[], list[str]]
) -> None:
    clock, metrics = FakeClock(HOUR.start_s * 1000), EtlMetrics()
    progress = DriverProgress(database, metrics, 3600, clock)
    lease = database.acquire("consumer:default")
    insert_new_positions(database, lease, [position()])
    files, groups = (staged_file(rows=60),), (group(rows=60),)
    batch = staged_batch(starts=(position(),), ends=(position(60),), files=files, groups=groups)
    commit_batch(database, lease, batch)
    progress.record_batch(batch, 1.0)
    progress.record_poll()
    assert lines() == []
    clock.advance(PROGRESS_SECONDS)
    progress.record_poll()
    assert lines()[0].startswith(
        "60 events staged in 30 s (2/s); 1 file in 1 batch of 1.0 s; 0 buckets closed"
    )
    for _ in range(round(QUIET_SECONDS / PROGRESS_SECONDS) - 1):
        clock.advance(PROGRESS_SECONDS)
        progress.record_poll()
    assert len(lines()) == 1
    clock.advance(PROGRESS_SECONDS)
    progress.record_poll()
    assert lines()[1].startswith("0 events staged in 5 min (0/s)")
    assert (
        metrics.registry.get_sample_value("hourmark_etl_last_poll_timestamp_seconds")
        == clock.now_ms() / 1000
    )


def test_an_overdue_bucket_is_named_with_what_it_waits_for(
    database: Database, lines: Callable[[], list[str]]
) -> None:
    clock, metrics = FakeClock(HOUR.end_ms), EtlMetrics()
    progress = DriverProgress(database, metrics, 3600, clock)
    put_blockers(
        database,
        database.acquire("closer"),
        [blocker(ClosingPhase.REPORTS, "tailer web is behind", since_ms=HOUR.end_ms)],
        (),
    )
    clock.advance(PROGRESS_SECONDS)
    progress.record_poll()
    assert lines() == []
    clock.advance(PROGRESS_SECONDS)
    progress.record_poll()
    assert (
        f"oldest open bucket click {HOUR}, overdue for 60 s, waits for: tailer web is behind"
        in lines()[0]
    )
    assert (
        metrics.registry.get_sample_value(
            "hourmark_etl_oldest_open_buckets_seconds", {"type": "click"}
        )
        == 30
    )
    assert (
        metrics.registry.get_sample_value(
            "hourmark_etl_watermark_lag_seconds", {"statistic": "max"}
        )
        == 3630
    )
