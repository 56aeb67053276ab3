"""What operators see of a real driver: its metrics, its words, and what the command line says of its buckets."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.waiting import wait_for

from hourmark.hours import Hour
from hourmark_etl.operators.audit import audit
from hourmark_etl.operators.bucket import bucket
from hourmark_infra.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

TYPE, IDLE = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("seen", "idle"))

LOST_HOST = "e" * 32


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def run(stack: Stack, tmp_path_factory: pytest.TempPathFactory, first_hour: Hour, port: int) -> Iterator[EtlRun]:
    folder = tmp_path_factory.mktemp(f"etl-{uuid.uuid4().hex[:6]}-")
    with EtlRun(stack.layout.config_file, folder, [TYPE, IDLE], first_hour, etl={"metrics_port": port}) as made:
        made.wait_until_staging(300)
        yield made


def scrape(port: int) -> dict[str, float]:
    """What Prometheus would read: `name{label=value}` → value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_the_metrics_say_what_was_staged_and_closed(run: EtlRun, delivery: DirectDelivery, port: int, first_hour: Hour) -> None:
    sent = delivery.make(TYPE, [first_hour.start_s * 1000 + n for n in range(100)])
    delivery.deliver(sent)
    delivery.deliver(sent)  # the ack was lost
    delivery.report(first_hour.end_ms)
    closed_at_ms = run.closed(TYPE, first_hour, 240).closed_at_ms
    run.closed(IDLE, first_hour, 240)
    delivery.deliver(delivery.make(TYPE, [first_hour.start_s * 1000 + 500 + n for n in range(7)]))
    late = "hourmark_etl_events_staged_total{arrival=late}"
    wait_for(lambda: scrape(port)[late] >= 7, "the late events are counted", 120)
    found = scrape(port)  # at least: dead letters and promises of whoever else uses the stack are staged too
    assert found["hourmark_etl_events_staged_total{arrival=timely}"] >= 200
    assert found["hourmark_etl_events_promised_total"] >= 207
    assert found["hourmark_etl_late_seconds_total"] >= 7 * (closed_at_ms - first_hour.end_ms) / 1000
    assert found["hourmark_etl_events_closed_total{arrival=timely}"] >= 100
    assert found["hourmark_etl_duplicates_removed_total"] >= 100
    assert found["hourmark_etl_buckets_closed_total{grade=proved}"] >= 3  # dead letters too
    assert found["hourmark_etl_batch_seconds_count"] >= 2
    assert found["hourmark_etl_staged_files_total{kind=audit}"] >= 2
    assert time.time() - found["hourmark_etl_last_poll_timestamp_seconds"] < 60
    wait_for(lambda: "hourmark_etl_batch_phase_seconds_total{phase=addBatch}" in scrape(port), "Spark's listener is heard")
    wait_for(lambda: run.logged("late, by"), "the line of progress in the log")


def ask(run: EtlRun, command: click.Command, *arguments: str) -> Result:
    """The command line, on this run's configuration."""
    return CliRunner().invoke(command, [*arguments, "--config", str(run.file)])


def test_the_books_of_a_real_run_add_up_range_by_range(run: EtlRun, first_hour: Hour) -> None:
    hour = ("--from", str(first_hour), "--to", str(first_hour))
    result = ask(run, audit, TYPE, *hour, "--ranges", "--json")
    assert result.exit_code == 0, (result.exception, result.stdout)
    (book,) = json.loads(result.stdout)["hours"]
    assert (book["closed"], book["duplicates_removed"], book["open"]) == (100, 100, 7)
    assert book["promised"] == 207  # proved by sums: the range that was sent twice counts twice
    assert (book["state"], book["unaudited"], book["staged"]) == ("proved", 0, 207)
    assert "the books add up" in ask(run, audit).stdout


def test_an_hour_that_a_host_holds_says_so_and_closes_by_an_override(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    second = first_hour.next()
    delivery.report(first_hour.end_ms, host_id=LOST_HOST, source="app")
    delivery.report(second.end_ms)
    wait_for(lambda: LOST_HOST in ask(run, bucket, "why", TYPE, str(second)).stdout, "the host that holds the hour is named")
    found = json.loads(ask(run, bucket, "why", TYPE, str(second), "--json").stdout)
    (reason,) = (r for r in found["reasons"] if LOST_HOST in r["what"])
    assert found["state"] == "open" and reason["do"].startswith(("it reports", "start the tailer on host"))
    wait_for(lambda: LOST_HOST in ask(run, bucket, "ls", TYPE).stdout, "the list shows what the open hour waits for")
    assert run.manifest(TYPE, second) is None
    result = ask(run, bucket, "force", TYPE, str(second), "--reason", "ticket 17", "--yes")
    assert result.exit_code == 0, result.exception
    manifest = run.closed(TYPE, second, 240)
    assert manifest.grade.value == "forced"
    assert any("ticket 17" in what for what in manifest.evidence.waived)
    assert any(LOST_HOST in what for what in manifest.evidence.waived)
    wait_for(lambda: '"state": "closed"' in ask(run, bucket, "why", TYPE, str(second), "--json").stdout, "it is told as closed")
    assert "closed as forced" in ask(run, bucket, "why", TYPE, str(second)).stdout
