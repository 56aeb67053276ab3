"""What the ETL's benchmark rests on: real records, right sums, all CPU counted, wrong outputs
seen.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bench.etl_compare import ratios
from bench.etl_ours import wrong_buckets
from bench.etl_traffic import Delivered, TrafficPlan, blocks, check_sample, empty_delivery
from bench.process_tree import ProcessTree
from tests.support import buckets
from tests.support.etl import own_settings

from hourmark.avro.framing import unframe
from hourmark.config.groups import StorageSettings
from hourmark.config.loading import load_config
from hourmark.records.audit import AuditRecord
from hourmark.records.hours import Hour
from hourmark_etl.storage import open_storage

TYPES = tuple(f"type-{n}" for n in range(20))
SCHEMA_IDS = {t: n for n, t in enumerate(TYPES, 1)}
PLAN = TrafficPlan(
    types=TYPES, first_hour=Hour.parse("2026-11-21T05:07", 60), hours=2, ranges=1000, seed=7
)


def delivered_by(plan: TrafficPlan, ranges: int) -> Delivered:
    delivered = empty_delivery(plan)
    for _ in blocks(plan, SCHEMA_IDS, delivered, ranges=ranges):
        pass
    return delivered


@pytest.mark.slow
@pytest.mark.parametrize("payload", [0, 1, 900, 9_900])
def test_records_are_what_hourmarks_own_code_reads(payload: int) -> None:
    check_sample(dataclasses.replace(PLAN, payload=payload), SCHEMA_IDS)


def test_a_payload_makes_each_value_longer_by_itself_and_its_length() -> None:
    small, large = (
        next(blocks(plan, SCHEMA_IDS, empty_delivery(plan), ranges=1)).values
        for plan in (PLAN, dataclasses.replace(PLAN, payload=900))
    )
    assert large.shape[1] == small.shape[1] + 2 + 900


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [400, 7])
def test_each_delivery_of_a_range_is_promised_and_one_in_a_hundred_is_a_repeat(ranges: int) -> None:
    delivered = delivered_by(PLAN, ranges)
    records = [AuditRecord.decode(unframe(value)[1]) for _, value in delivered.audit]
    assert delivered.distinct.sum() == PLAN.events
    assert sum(p.count for r in records for p in r.promised) == delivered.records.sum()
    assert 0.003 < delivered.records.sum() / PLAN.events - 1 < 0.03
    assert (
        0 < len(records) - len({r.range_id for r in records}) < len(records) - PLAN.ranges
    )  # some the same range, some cut anew
    promised = {(p.event_type, p.hour_start_s) for r in records for p in r.promised}
    assert promised == {(t, h.start_s) for t in TYPES for h in PLAN.all_hours}


@pytest.mark.slow
def test_cpu_of_a_worker_that_nobody_waits_for_is_counted() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    parent = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"subprocess.Popen([sys.executable, '-c', {burn!r}])\nprint('begun', "
        "flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        tree = ProcessTree(process.pid)
        deadline = time.monotonic() + 60
        while tree.cpu_by_kind()["workers"] < 0.4:
            assert time.monotonic() < deadline, tree.cpu_by_kind()
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        assert tree.cpu_seconds() >= 0.4  # though both have ended
        tree.close()


def test_a_bucket_that_is_not_what_was_delivered_is_seen(tmp_path: Path) -> None:
    storage = open_storage(StorageSettings(root=f"file://{tmp_path}"))
    datums = [buckets.make_event(buckets.HOUR, n) for n in range(5)]
    buckets.Plan(storage, buckets.HOUR, {"part-00000.avro": datums}).close()
    delivered = empty_delivery(
        TrafficPlan(types=(buckets.TYPE,), first_hour=buckets.HOUR, hours=1, ranges=1, seed=1)
    )
    delivered.distinct[0, 0] = 5
    delivered.low64_sums[0, 0] = np.uint64(
        sum(event_id.low64 for event_id, _ in datums) % (1 << 64)
    )
    assert wrong_buckets(storage, delivered) == []
    delivered.distinct[0, 0] = 6
    assert len(wrong_buckets(storage, delivered)) == 1
    delivered.distinct[0, 0] = 5
    delivered.low64_sums[0, 0] += np.uint64(1)
    assert len(wrong_buckets(storage, delivered)) == 1


def test_a_doubled_event_is_seen_though_the_manifest_agrees(tmp_path: Path) -> None:
    storage = open_storage(StorageSettings(root=f"file://{tmp_path}"))
    datums = [buckets.make_event(buckets.HOUR, n) for n in (0, 1, 1)]
    buckets.Plan(storage, buckets.HOUR, {"part-00000.avro": datums}).close()
    delivered = empty_delivery(
        TrafficPlan(types=(buckets.TYPE,), first_hour=buckets.HOUR, hours=1, ranges=1, seed=1)
    )
    delivered.distinct[0, 0] = 3
    delivered.low64_sums[0, 0] = np.uint64(
        sum(event_id.low64 for event_id, _ in datums) % (1 << 64)
    )
    assert "duplicate" in wrong_buckets(storage, delivered)[0]


def test_ratios_are_of_medians() -> None:
    found = ratios(
        {
            "hourmark": [9.0, 5.0, 6.0],
            "spark_dedup": [20.0, 24.0, 90.0],
            "spark_plain": [12.0, 3.0, 10.0],
        }
    )
    assert (found["ratio_to_spark_dedup"], found["ratio_to_spark_plain"]) == (0.25, 0.6)


def test_settings_of_a_run_take_sparks_own(tmp_path: Path) -> None:
    """Their names have dots: `memory` limits the driver so."""
    (tmp_path / "stack.toml").write_text(
        '[kafka.edge]\nbootstrap = "a:1"\n[storage]\nroot = "file:///x"\n[etl]\n'
    )
    limits = {"spark.driver.memory": "640m"}
    text = own_settings(tmp_path / "stack.toml", tmp_path, None, {"spark_conf": limits}, "edge")
    (tmp_path / "run.toml").write_text(text)
    assert load_config(tmp_path / "run.toml").etl.spark_conf == limits
