"""Metrics: names by Prometheus' conventions, a handful of series whatever the number of types, and
what is counted.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.records import HOUR, manifest

from hourmark.process.metrics_server import serve_metrics
from hourmark.records.manifest import Grade
from hourmark_etl.telemetry.metrics import OLDEST_SHOWN, BatchCounts, EtlMetrics, GaugeValues


def values(metrics: EtlMetrics) -> dict[str, float]:
    """Samples as a scraper reads them: `name{label=value}` → value."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def shown(metrics: EtlMetrics, expected: dict[str, float]) -> None:
    """These samples have these values; names less `hourmark_etl_`."""
    found = values(metrics)
    assert {name: found[f"hourmark_etl_{name}"] for name in expected} == expected


def standing(ages: dict[str, float]) -> GaugeValues:
    return GaugeValues(
        types={"open": len(ages), "frozen": 0, "sealed": 0},
        oldest_open=ages,
        open_bucket_age=max(ages.values(), default=0.0),
        types_in_alarm=1,
        records_set_aside=2,
        partitions_unreadable=1,
        overrides=3,
        buckets_in_conflict=4,
        reporters={"live": 4, "waived": 1, "gone": 0},
        pending_bytes=10,
        lost_bytes=20,
        unknown_losses=3,
        watermark_lag={"mean": 1.5, "max": 9.0},
    )


def test_names_follow_the_conventions() -> None:
    for family in text_string_to_metric_families(generate_latest(EtlMetrics().registry).decode()):
        assert re.fullmatch(r"hourmark_etl_[a-z_]+", family.name)
        assert family.documentation.endswith("."), family.name
        assert not re.search(r"_(ms|minutes|hours|kb|mb)$", family.name), (
            f"{family.name}: base units are seconds and bytes"
        )
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples)


def test_counters_that_alarms_look_at_are_there_before_anything_happens() -> None:
    names = [f"buckets_closed_total{{grade={grade.value}}}" for grade in Grade]
    shown(
        EtlMetrics(),
        dict.fromkeys(
            [*names, "events_staged_total{arrival=late}", "queries_ended_total{how=failed}"], 0
        ),
    )


def test_a_batch_is_counted() -> None:
    metrics = EtlMetrics()
    batch = BatchCounts(
        timely=100,
        late=7,
        falsely_late=2,
        late_seconds=25_200.0,
        bytes=5_000,
        event_files=2,
        audit_files=1,
        promised=105,
        duration_s=3.0,
    )
    metrics.count_batch(batch, 5_000)
    metrics.count_batch(batch, 6_000)
    shown(
        metrics,
        {
            "events_staged_total{arrival=timely}": 200,
            "events_staged_total{arrival=late}": 14,
            "events_falsely_late_total": 4,
            "late_seconds_total": 50_400,
            "staged_bytes_total": 10_000,
            "staged_files_total{kind=events}": 4,
            "events_promised_total": 210,
            "batch_seconds_count": 2,
            "batch_seconds_sum": 6,
            "last_batch_timestamp_seconds": 6,
        },
    )


def test_a_closed_bucket_is_counted_under_its_grade_with_its_delay() -> None:
    metrics = EtlMetrics()
    closed_at_ms = HOUR.end_ms + 90_000
    counts: dict[str, Any] = {
        "events": 10,
        "late": {"2027-01-15T07": 3},
        "duplicates_removed": 2,
        "unaudited": 1,
    }
    metrics.count_closed_bucket(
        HOUR.end_ms, manifest(**counts, grade=Grade.TIMED_OUT, closed_at_ms=closed_at_ms)
    )
    shown(
        metrics,
        {
            "buckets_closed_total{grade=timed_out}": 1,
            "buckets_closed_total{grade=proved}": 0,
            "closing_delay_seconds_sum": 90,
            "closing_delay_seconds_bucket{le=60.0}": 0,
            "closing_delay_seconds_bucket{le=300.0}": 1,
            "events_closed_total{arrival=timely}": 7,
            "events_closed_total{arrival=late}": 3,
            "duplicates_removed_total": 2,
            "unaudited_events_total": 1,
        },
    )


def test_only_the_oldest_open_buckets_have_a_series_and_those_closed_meanwhile_lose_theirs() -> (
    None
):
    metrics = EtlMetrics()
    metrics.set_gauges(standing({f"type-{n}": 100.0 + n for n in range(OLDEST_SHOWN)}))
    shown(metrics, {"open_bucket_age_seconds": 100.0 + OLDEST_SHOWN - 1})
    metrics.set_gauges(standing({"type-3": 50.0}))
    assert [name for name in values(metrics) if "oldest_open" in name] == [
        "hourmark_etl_oldest_open_buckets_seconds{type=type-3}"
    ]
    shown(metrics, {"open_bucket_age_seconds": 50, "watermark_lag_seconds{statistic=max}": 9})
    metrics.set_gauges(standing({}))
    shown(metrics, {"open_bucket_age_seconds": 0})


def test_metrics_are_served_and_a_port_that_is_taken_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        serve_metrics(EtlMetrics().registry, "etl", "127.0.0.1", port)()
        assert f"etl.metrics_port = {port}" in caplog.text
    metrics = EtlMetrics()
    metrics.record_poll(7_000)
    stop = serve_metrics(metrics.registry, "etl", "127.0.0.1", port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert "hourmark_etl_last_poll_timestamp_seconds 7.0" in answer.read().decode()
    finally:
        stop()
    serve_metrics(EtlMetrics().registry, "etl", "127.0.0.1", 0)()
