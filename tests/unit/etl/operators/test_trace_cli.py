"""`hourmark trace`, as it is typed: on a closed bucket with every server away, and on logs in
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from tests.support import tracing
from tests.support.buckets import EARLIER, HOUR, TYPE, make_event, usual_plan
from tests.support.kafka_logs import Logs, of_two_sites
from tests.support.records import audit_record
from tests.support.rules import ledger_of_click

from hourmark.avro.framing import framing_header
from hourmark.errors import UsageError
from hourmark.kafka.topic_names import AUDIT
from hourmark.records.audit import Promise
from hourmark.records.hours import Hour
from hourmark.records.record_key import RecordKey
from hourmark_etl.operators.trace import trace
from hourmark_etl.operators.tracing import kafka_search
from hourmark_etl.storage import LocalDisk

Run = Callable[..., Result]


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Logs:
    """The one cluster; it is away until a test says otherwise."""
    made = Logs(is_away=True)
    monkeypatch.setattr(kafka_search, "Cluster", lambda *_: made)
    monkeypatch.setattr(kafka_search, "CommittedReader", lambda *_, **__: made)
    return made


@pytest.fixture
def run(file: Path, edge: Logs) -> Run:
    return lambda *words, **more: CliRunner().invoke(trace, [*words, "--config", str(file)], **more)


def test_with_a_closed_bucket_alone_an_event_is_found_and_who_did_not_answer_is_named(
    run: Run, tmp_path: Path
) -> None:
    usual_plan(LocalDisk(tmp_path / "root")).close()
    event_id, _ = make_event(HOUR, 23)
    result = run(str(event_id), "--type", TYPE)
    assert result.exit_code == 0, result.output
    head, event, *steps, next_step = result.stdout.splitlines()
    assert (
        head == "in a closed bucket"
        and event == f"  {TYPE} {event_id} of host-1, /var/log/app.log at 23"
    )
    assert [step.split()[:2] for step in steps] == [
        ["acknowledged", "not"],
        ["edge", "unreachable:"],
        ["staged", "unreachable:"],
        ["bucket", f"{HOUR.bucket_path(TYPE)}/part-00001.avro,"],
    ]
    assert "record 3 from 0; bucket 2026-11-21T05, closed as proved" in steps[3]
    assert "the cluster did not answer" in steps[1] and "no ledger exists" in steps[2]
    assert next_step == f"next: `hourmark bucket cat {TYPE} {HOUR}` prints that bucket's events"


def test_what_nobody_could_be_asked_for_is_unknown_and_exits_with_1(run: Run) -> None:
    event_id, _ = make_event(EARLIER, 1)
    result = run(str(event_id), "--type", TYPE, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["verdict"], found["event"], found["event_id"]) == (
        1,
        "unknown",
        None,
        str(event_id),
    )
    assert {step["name"]: step["state"] for step in found["steps"]} == {
        "acknowledged": "not_asked",
        "edge": "unreachable",
        "staged": "unreachable",
        "bucket": "not_found",
    }


def test_a_line_is_traced_from_what_its_host_printed(run: Run, edge: Logs) -> None:
    edge.is_away = False
    now_ms = tracing.AT_MS
    value = framing_header(1) + tracing.datum(tracing.event())
    edge.append("events.click", now_ms, RecordKey(tracing.EVENT, tracing.RANGE).encode(), value)
    promised = (Promise("click", Hour.containing(now_ms).start_s, 1, tracing.EVENT.low64),)
    edge.append(
        AUDIT,
        now_ms,
        bytes(tracing.RANGE),
        framing_header(1) + audit_record(range_id=tracing.RANGE, promised=promised).encode(),
    )
    printed = {
        "stage": "acknowledged",
        "path": "/log",
        "offset": 5,
        "host_id": "a" * 32,
        "source": "app",
        "file_id": "b" * 32,
        "generation": 0,
        "losses": 0,
        "next": "do",
    }
    words = ("--from", "-", "--until", "2030-01-01T00")
    found = json.loads(run(*words, "--json", input=json.dumps(printed)).stdout)
    assert (found["verdict"], found["acknowledged_at_ms"], found["type"]) == (
        "in_kafka",
        now_ms,
        "click",
    )
    assert (found["event"]["position"], found["event_id"]) == (5, str(tracing.EVENT))
    result = run(
        *words,
        input=json.dumps(printed | {"stage": "not_followed", "file_id": None, "generation": None}),
    )
    assert result.exit_code == 1 and result.stdout.splitlines()[-1] == "next: do"


@pytest.fixture
def lyon(file: Path, monkeypatch: pytest.MonkeyPatch) -> Logs:
    """The edge of a second site, which has the event; the first site and the centre have
    nothing.
    """
    ledger_of_click(
        f"sqlite:///{file.parent}/ledger.sqlite", Hour.containing(tracing.AT_MS)
    ).close()
    sites = of_two_sites(file)
    monkeypatch.setattr(kafka_search, "Cluster", lambda settings, _: sites[settings.bootstrap])
    monkeypatch.setattr(kafka_search, "CommittedReader", lambda logs, *_, **__: logs)
    monkeypatch.setattr(
        kafka_search,
        "MirrorPositions",
        lambda *_: SimpleNamespace(refresh=dict, close=lambda: None),
    )
    monkeypatch.setattr(
        "hourmark_etl.operators.trace.SystemClock",
        lambda: SimpleNamespace(now_ms=lambda: tracing.AT_MS),
    )
    made = sites["lyon:9092"]
    made.append(
        "events.click",
        tracing.AT_MS,
        RecordKey(tracing.EVENT, tracing.RANGE).encode(),
        framing_header(1) + tracing.datum(tracing.event()),
    )
    return made


def test_of_several_sites_each_is_asked_and_who_knows_is_told(file: Path, lyon: Logs) -> None:
    def run(*words: str) -> Result:
        return CliRunner().invoke(
            trace, [str(tracing.EVENT), "--type", "click", *words, "--config", str(file)]
        )

    assert run().stdout.splitlines()[:2] == [
        "in Kafka, at the edge",
        "  according to the data of site lyon",
    ]
    found = json.loads(run("--json").stdout)
    assert (found["verdict"], found["site"]) == ("in_kafka", "lyon")
    elsewhere = run("--site", "paris")
    assert (elsewhere.exit_code, elsewhere.stdout.splitlines()[1]) == (
        1,
        "  according to the data of site paris",
    )
    lyon.is_away = True
    away = json.loads(run("--json").stdout)
    assert (away["verdict"], away["site"]) == ("unknown", "lyon"), (
        "paris does not have it, and lyon may"
    )
    wrong = run("--site", "nice")
    assert isinstance(wrong.exception, UsageError) and str(wrong.exception).endswith(
        "allowed: paris, lyon"
    )


@pytest.mark.parametrize(
    "words", [["events.click:0:0", "--site", "lyon"], ["lyon.events.click:0:0"]]
)
def test_a_record_is_asked_of_its_site(file: Path, lyon: Logs, words: list[str]) -> None:
    result = CliRunner().invoke(trace, [*words, "--json", "--config", str(file)])
    assert json.loads(result.stdout)["site"] == "lyon"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "specify either WHAT"),
        (["events.click:0:1", "--from", "-"], "specify either WHAT"),
        (["/var/log/app.log:7"], "hourmark tail trace FILE:LINE --json"),
        (["web:/log:7", "--since", "noon"], "--since"),
        (["web:/log:7", "--since", "1h", "--until", "2h"], "--until 2h is not after --since 1h"),
        (["hourmark.audit:0:7"], "not a topic of events"),
    ],
)
def test_wrong_use_is_named(run: Run, edge: Logs, words: list[str], named: str) -> None:
    result = run(*words)
    assert isinstance(result.exception, UsageError) and named in str(result.exception)


def test_the_help_has_an_example_of_each_way_to_name_it() -> None:
    examples = CliRunner().invoke(trace, ["--help"]).output.partition("Examples:")[2]
    assert examples.partition("Options:")[0].count("hourmark trace ") == 5
