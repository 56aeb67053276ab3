"""A driver's words on how it goes: rates, lateness, what the oldest open bucket waits for; quiet while nothing happens."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.ledger.database import Database
from etl.ledger.orders import Wait, put_waits
from etl.ledger.rows import EVENTS, Position, StagedBatch, StagedFile, StagedGroup
from etl.ledger.staging import begin_positions, commit_batch
from etl.metrics import Metrics, Totals
from etl.progress import PROGRESS_SECONDS, QUIET_SECONDS, Oldest, Progress, progress_line
from etl.words import duration
from hourmark.config import Config, Etl
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from tests.support.clock import FakeClock
from tests.support.rules import put_rules

HOUR = Hour(1_800_000_000, 3600)
START = Position("cluster", "id-1", "events.click", 0, 0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    config = Config(etl=Etl(ledger=f"sqlite:///{tmp_path}/ledger.sqlite"))
    click = EventType(name="click", fields=[{"name": "n", "type": "long"}])
    put_rules(config, [click], [Source(name="app", types=["click"])], HOUR)
    made = Database(config.etl.ledger)
    yield made
    made.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "hourmark.etl"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (150, "2.5 min"), (3600, "60 min"), (9000, "2.5 h"), (172_800, "2 days"),
     (864_000, "10 days")],
)  # fmt: skip
def test_durations_are_written_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_line_says_rates_lateness_and_what_holds_the_oldest_bucket() -> None:
    done = Totals(timely=2990, late=10, late_seconds=36_000, files=4, batches=2, batch_seconds=3, buckets=5, not_proved=1)
    oldest = Oldest("click", "2027-01-15T08", 750, ("tailer web (1) source app: caught up 9.0 s before its end",))
    assert progress_line(done, 30, 12, oldest, "hdfs is in safe mode") == (
        "3,000 events staged in 30 s (100/s); 10 of them late, by 60 min on average; 4 files in 2 batches of 1.5 s; "
        "5 buckets closed, 1 not as proved; all sources had caught up 12 s ago; "
        "oldest open bucket click 2027-01-15T08, ended 12 min ago, waits for: "
        "tailer web (1) source app: caught up 9.0 s before its end (`hourmark bucket why click 2027-01-15T08`); "
        "closing waits: hdfs is in safe mode"
    )


def test_a_line_of_a_quiet_time_is_short() -> None:
    assert progress_line(Totals(), 300, 2, None, "") == (
        "0 events staged in 5 min (0/s); 0 buckets closed; all sources had caught up 2 s ago"
    )


def test_a_driver_says_what_it_staged_and_then_is_quiet(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hourmark.etl")
    clock, metrics = FakeClock(HOUR.start_s * 1000), Metrics()
    progress = Progress(database, metrics, 3600, clock)
    lease = database.acquire("consumer:default")
    begin_positions(database, lease, [START])
    group = StagedGroup("f", "click", HOUR.start_s, 60, 600, 0, (1,), 0, bytes(16), bytes(16))
    end = dataclasses.replace(START, next_offset=60)
    batch = StagedBatch("b", (START,), (end,), (StagedFile("f", EVENTS, 60, ()),), (group,), (), ())
    commit_batch(database, lease, batch)
    progress.staged(batch, 1.0)
    progress.looked()
    assert lines(caplog) == []
    clock.advance(PROGRESS_SECONDS)
    progress.looked()
    assert lines(caplog)[0].startswith("60 events staged in 30 s (2/s); 1 file in 1 batch of 1.0 s; 0 buckets closed")
    for _ in range(round(QUIET_SECONDS / PROGRESS_SECONDS) - 1):
        clock.advance(PROGRESS_SECONDS)
        progress.looked()
    assert len(lines(caplog)) == 1
    clock.advance(PROGRESS_SECONDS)
    progress.looked()
    assert lines(caplog)[1].startswith("0 events staged in 5 min (0/s)")
    assert metrics.registry.get_sample_value("hourmark_etl_last_look_timestamp_seconds") == clock.now_ms() / 1000


def test_an_overdue_bucket_is_named_with_what_it_waits_for(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hourmark.etl")
    clock, metrics = FakeClock(HOUR.end_ms), Metrics()
    progress = Progress(database, metrics, 3600, clock)
    put_waits(database, database.acquire("closer"), [Wait("click", HOUR, "reports", ("tailer web is behind",), HOUR.end_ms)], ())
    clock.advance(PROGRESS_SECONDS)
    progress.looked()
    assert lines(caplog) == []
    clock.advance(PROGRESS_SECONDS)
    progress.looked()
    assert f"oldest open bucket click {HOUR}, ended 60 s ago, waits for: tailer web is behind" in lines(caplog)[0]
    assert metrics.registry.get_sample_value("hourmark_etl_oldest_open_buckets_seconds", {"type": "click"}) == 30
    assert metrics.registry.get_sample_value("hourmark_etl_watermark_lag_seconds", {"statistic": "max"}) == 3630
