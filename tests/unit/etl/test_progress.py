"""A driver's words on how it goes: rates, lateness, what the oldest open bucket waits for; quiet while nothing happens."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.rules import put_rules

from hourmark.config import Config, Etl
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from hourmark_etl.humanize import duration
from hourmark_etl.ledger.batches import begin_positions, commit_batch, put_reports
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import Blocker, put_blockers
from hourmark_etl.model import EVENTS, Phase, Position, Reporter, StagedBatch, StagedFile, StagedGroup
from hourmark_etl.telemetry.metrics import Metrics, Totals
from hourmark_etl.telemetry.progress import PROGRESS_SECONDS, QUIET_SECONDS, Oldest, Progress, progress_line

HOUR = Hour(1_800_000_000, 3600)
START = Position(cluster_id="cluster", topic_id="id-1", topic="events.click", partition=0, next_offset=0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    config = Config(etl=Etl(ledger=f"sqlite:///{tmp_path}/ledger.sqlite"))
    click = EventType(name="click", fields=[{"name": "n", "type": "long"}])
    put_rules(config, [click], [Source(name="app", types=["click"])], HOUR)
    made = Database(config.etl.ledger)
    yield made
    made.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "hourmark_etl.telemetry.progress"]


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
    assert progress_line(done, 30, "all sources had caught up 12 s ago", oldest, "hdfs is in safe mode") == (
        "3,000 events staged in 30 s (100/s); 10 of them late, by 60 min on average; 4 files in 2 batches of 1.5 s; "
        "5 buckets closed, 1 not as proved; all sources had caught up 12 s ago; "
        "oldest open bucket click 2027-01-15T08, ended 12 min ago, waits for: "
        "tailer web (1) source app: caught up 9.0 s before its end (`hourmark bucket why click 2027-01-15T08`); "
        "closing waits: hdfs is in safe mode"
    )


def test_a_line_of_a_quiet_time_is_short() -> None:
    assert progress_line(Totals(), 300, "no source has reported yet", None, "") == (
        "0 events staged in 5 min (0/s); 0 buckets closed; no source has reported yet"
    )


WEB = Reporter(
    host_id="w" * 32,
    source="app",
    host_name="web",
    kind="tailer",
    incarnation="one",
    sequence=0,
    received_at_ms=HOUR.end_ms,
    caught_up_at_ms=None,
    pending_bytes=0,
    lost_bytes=0,
    goodbye=False,
    heard_at_ms=HOUR.end_ms,
)


def test_nothing_is_said_to_have_caught_up_before_anything_was_there(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hourmark_etl")
    clock = FakeClock(HOUR.start_s * 1000 + 44 * 60_000)  # the installation, 44 minutes past the hour
    progress = Progress(database, Metrics(), 3600, clock)
    clock.advance(180)
    progress.polled("no delivery service has reported yet")
    assert "no source has reported yet" in lines(caplog)[0] and "caught up" not in lines(caplog)[0]
    with database.transaction() as connection:
        put_reports(connection, [(WEB,)])
    clock.advance(60)
    progress.polled("…")
    assert "tailer web source app has not caught up yet" in lines(caplog)[1] and "ago" not in lines(caplog)[1]
    with database.transaction() as connection:
        put_reports(connection, [(dataclasses.replace(WEB, sequence=1, caught_up_at_ms=clock.now_ms() - 2_000),)])
    clock.advance(60)
    progress.polled("…")
    assert "all sources had caught up 62 s ago" in lines(caplog)[2]
    with database.transaction() as connection:
        put_reports(connection, [(dataclasses.replace(WEB, sequence=2, goodbye=True),)])
    clock.advance(60)
    progress.polled("…")
    assert "no source is awaited" in lines(caplog)[3]


def test_a_driver_says_what_it_staged_and_then_is_quiet(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hourmark_etl.telemetry.progress")
    clock, metrics = FakeClock(HOUR.start_s * 1000), Metrics()
    progress = Progress(database, metrics, 3600, clock)
    lease = database.acquire("consumer:default")
    begin_positions(database, lease, [START])
    group = StagedGroup(
        path="f",
        event_type="click",
        hour_s=HOUR.start_s,
        rows=60,
        datum_bytes=600,
        low64_sum=0,
        schema_ids=(1,),
        first_row=0,
        first_id=bytes(16),
        last_id=bytes(16),
    )
    end = dataclasses.replace(START, next_offset=60)
    batch = StagedBatch(
        folder="b",
        starts=(START,),
        ends=(end,),
        files=(StagedFile(path="f", kind=EVENTS, rows=60, spans=()),),
        groups=(group,),
        audit_groups=(),
        reports=(),
    )
    commit_batch(database, lease, batch)
    progress.staged(batch, 1.0)
    progress.polled()
    assert lines(caplog) == []
    clock.advance(PROGRESS_SECONDS)
    progress.polled()
    assert lines(caplog)[0].startswith("60 events staged in 30 s (2/s); 1 file in 1 batch of 1.0 s; 0 buckets closed")
    for _ in range(round(QUIET_SECONDS / PROGRESS_SECONDS) - 1):
        clock.advance(PROGRESS_SECONDS)
        progress.polled()
    assert len(lines(caplog)) == 1
    clock.advance(PROGRESS_SECONDS)
    progress.polled()
    assert lines(caplog)[1].startswith("0 events staged in 5 min (0/s)")
    assert metrics.registry.get_sample_value("hourmark_etl_last_poll_timestamp_seconds") == clock.now_ms() / 1000


def test_an_overdue_bucket_is_named_with_what_it_waits_for(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hourmark_etl.telemetry.progress")
    clock, metrics = FakeClock(HOUR.end_ms), Metrics()
    progress = Progress(database, metrics, 3600, clock)
    put_blockers(
        database,
        database.acquire("closer"),
        [Blocker(event_type="click", hour=HOUR, phase=Phase.REPORTS, what=("tailer web is behind",), since_ms=HOUR.end_ms)],
        (),
    )
    clock.advance(PROGRESS_SECONDS)
    progress.polled()
    assert lines(caplog) == []
    clock.advance(PROGRESS_SECONDS)
    progress.polled()
    assert f"oldest open bucket click {HOUR}, ended 60 s ago, waits for: tailer web is behind" in lines(caplog)[0]
    assert metrics.registry.get_sample_value("hourmark_etl_oldest_open_buckets_seconds", {"type": "click"}) == 30
    assert metrics.registry.get_sample_value("hourmark_etl_watermark_lag_seconds", {"statistic": "max"}) == 3630
