"""What operators see of a real driver: its metrics, its words, and what the command line says of
its buckets.
"""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families
from tests.support.delivery import FILE_ID, HOST_ID, DirectDelivery
from tests.support.etl import EtlRun
from tests.support.waiting import wait_for

from hourmark.records.hours import Hour
from hourmark_etl.operators.audit import audit
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.trace import trace
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

TYPE, IDLE = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("seen", "idle"))

LOST_HOST = "e" * 32


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def run(
    stack: LocalStack, tmp_path_factory: pytest.TempPathFactory, first_hour: Hour, port: int
) -> Iterator[EtlRun]:
    folder = tmp_path_factory.mktemp(f"etl-{uuid.uuid4().hex[:6]}-")
    with EtlRun(
        stack.layout.config_file, folder, [TYPE, IDLE], first_hour, etl={"metrics_port": port}
    ) as made:
        made.wait_until_staging(300)
        yield made


@pytest.fixture(scope="module")
def since(run: EtlRun) -> str:
    """Before all that this module sends: other modules' ranges are of the same file."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


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


def test_the_metrics_say_what_was_staged_and_closed(
    run: EtlRun, delivery: DirectDelivery, port: int, first_hour: Hour, since: str
) -> None:
    sent = delivery.make(TYPE, [first_hour.start_s * 1000 + n for n in range(100)])
    delivery.deliver(sent)
    delivery.deliver(sent)  # the ack was lost
    delivery.report(first_hour.end_ms)
    closed_at_ms = run.closed(TYPE, first_hour, 240).closed_at_ms
    run.closed(IDLE, first_hour, 240)
    delivery.deliver(delivery.make(TYPE, [first_hour.start_s * 1000 + 500 + n for n in range(7)]))
    late = "hourmark_etl_events_staged_total{arrival=late}"
    wait_for(lambda: scrape(port)[late] >= 7, "the late events are counted", 120)
    found = scrape(
        port
    )  # at least: dead letters and promises of whoever else uses the stack are staged too
    assert found["hourmark_etl_events_staged_total{arrival=timely}"] >= 200
    assert found["hourmark_etl_events_promised_total"] >= 207
    assert found["hourmark_etl_late_seconds_total"] >= 7 * (closed_at_ms - first_hour.end_ms) / 1000
    assert found["hourmark_etl_events_closed_total{arrival=timely}"] >= 100
    assert found["hourmark_etl_duplicates_removed_total"] >= 100
    assert found["hourmark_etl_buckets_closed_total{grade=proved}"] >= 3  # dead letters too
    assert found["hourmark_etl_batch_seconds_count"] >= 2
    assert found["hourmark_etl_staged_files_total{kind=audit}"] >= 2
    assert time.time() - found["hourmark_etl_last_poll_timestamp_seconds"] < 60
    wait_for(
        lambda: "hourmark_etl_batch_phase_seconds_total{phase=addBatch}" in scrape(port),
        "Spark's listener is heard",
    )
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
    assert "all counts agree" in ask(run, audit).stdout


def test_an_hour_that_a_host_holds_says_so_and_closes_by_an_override(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour
) -> None:
    second = first_hour.next()
    delivery.report(first_hour.end_ms, host_id=LOST_HOST, source="app")
    delivery.report(second.end_ms)
    wait_for(
        lambda: LOST_HOST in ask(run, bucket, "why", TYPE, str(second)).stdout,
        "the host that holds the hour is named",
    )
    found = json.loads(ask(run, bucket, "why", TYPE, str(second), "--json").stdout)
    (reason,) = (r for r in found["reasons"] if LOST_HOST in r["what"])
    assert found["state"] == "open" and reason["do"].startswith(
        ("it reports", "start the tailer on host")
    )
    wait_for(
        lambda: LOST_HOST in ask(run, bucket, "ls", TYPE).stdout,
        "the list shows what the open hour waits for",
    )
    assert run.manifest(TYPE, second) is None
    result = ask(run, bucket, "force", TYPE, str(second), "--reason", "ticket 17", "--yes")
    assert result.exit_code == 0, result.exception
    manifest = run.closed(TYPE, second, 240)
    assert manifest.grade.value == "forced"
    assert any("ticket 17" in what for what in manifest.evidence.waived)
    assert any(LOST_HOST in what for what in manifest.evidence.waived)
    wait_for(
        lambda: '"state": "closed"' in ask(run, bucket, "why", TYPE, str(second), "--json").stdout,
        "it is told as closed",
    )
    assert "closed as forced" in ask(run, bucket, "why", TYPE, str(second)).stdout


def traced(run: EtlRun, *what: str) -> dict[str, Any]:
    """What `hourmark trace` tells of it, and that its exit code says whether it is found."""
    result = ask(run, trace, *what, "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (found["verdict"] in ("not_found", "unknown", "lost")), found
    return found | {step["name"]: step["state"] for step in found["steps"]}


def test_a_line_is_traced_by_its_place_its_id_and_its_record_from_its_audit_record_to_its_bucket(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour, since: str
) -> None:
    by_place = traced(run, "host:/log:0", "--since", since)  # the first line of the first test
    assert (by_place["verdict"], by_place["type"]) == ("in_bucket", TYPE)
    assert {by_place[name] for name in ("acknowledged", "edge", "staged", "bucket")} == {"yes"}
    assert (
        by_place["event"]["position"] == 0
        and 0 < time.time() * 1000 - by_place["acknowledged_at_ms"] < 900_000
    )
    assert f"bucket {first_hour}, closed as proved" in next(
        s["what"] for s in by_place["steps"] if s["name"] == "bucket"
    )
    by_id = traced(run, by_place["event_id"], "--type", TYPE)
    (at,) = re.findall(
        r"topic (\S+) partition (\d+) offset (\d+)",
        next(s["what"] for s in by_id["steps"] if s["name"] == "edge"),
    )
    by_record = traced(run, ":".join(at))
    assert (
        [s for s in by_place["steps"] if s["name"] != "reported"]
        == by_id["steps"]
        == by_record["steps"]
    )


def test_what_is_on_its_way_unpromised_or_a_dead_letter_is_told_so(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour, since: str
) -> None:
    open_hour = Hour(first_hour.start_s + 600, 60)  # nobody reports so far
    letter = delivery.make_letter(open_hour.start_s * 1000, "bad_json", "no object")
    delivery.deliver(letter)
    unpromised = delivery.make(TYPE, [open_hour.start_s * 1000])
    delivery.send_events(unpromised)
    place = f"{HOST_ID}:{FILE_ID}:{unpromised.start}"
    assert traced(run, place, "--since", since)["verdict"] == "not_found"
    event_id = str(unpromised.events[0][1])
    wait_for(lambda: traced(run, event_id, "--type", TYPE)["verdict"] == "staged", "it is staged")
    found = traced(run, event_id, "--type", TYPE)
    assert (found["acknowledged"], found["edge"], found["bucket"]) == ("no", "yes", "no")
    found = traced(run, str(letter.events[0][1]), "--type", "dead-letters")
    assert found["event"]["reason"] == "bad_json" and found["summary"].startswith("a dead letter, ")
    assert traced(run, f"events.{TYPE}:0:99999999")["verdict"] == "not_found"
