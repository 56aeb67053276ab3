"""The delivery service on real Kafka and a real registry: a stock client sees exactly what was
acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from tests.support.http_client import HTTP
from tests.support.service.live import APP, CLICK, RAW, RUN, Serving, StockReader, lines, serving
from tests.support.service.queue_contract import CHECKS, Check
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster, topic_settings
from hourmark.kafka.topic_setup import TopicSpec, ensure_topics
from hourmark.records.audit import AuditRecord
from hourmark.records.host_reports import HostReport
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_declare.cli import types
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue
from hourmark_etl.operators.dead_letters import dead_letters
from hourmark_infra.stack import LocalStack

pytestmark = pytest.mark.stack
FIRST = 1_000_000  # of the workers' events, which no other test here counts


@pytest.fixture(scope="module")
def service(
    stack: LocalStack, config: Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    with serving(stack, config, tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(scope="module")
def reader(config: Config) -> StockReader:
    return StockReader(config)


def of_range(reader: StockReader, topic: str, range_id: RangeId) -> list[dict[str, object]]:
    return [row for row in reader.events(topic) if row["key"][16:] == range_id]


def test_a_stock_client_and_the_registry_see_exactly_the_events_of_a_range(
    service: Serving, reader: StockReader
) -> None:
    body = lines(range(500)) + b"<13>1 - - a p " + RAW.name.encode() + b" - \xff\0\r\nno syslog\n\n"
    byte_range = service.range_of(body, start=12345)
    answer = service.post(byte_range, body)
    reasons = {"not_rfc5424": 1}
    expected = {
        "end": byte_range.end,
        "events": 501,
        "dead_letters": 1,
        "blanks": 1,
        "dead_letter_reasons": reasons,
    }
    assert (answer.status_code, answer.json()) == (200, expected)
    range_id = byte_range.range_id(body)
    # the audit record first: whoever sees it must then find all that it promises
    (audit,) = [a for a in reader.records("hourmark.audit") if a.key == range_id]
    promised = {p.event_type: p.count for p in AuditRecord.decode(audit.value[5:]).promised}
    assert promised == {CLICK.name: 500, RAW.name: 1, "dead-letters": 1}
    counts = reader.decode(audit.value)
    assert (counts["lines"], counts["blanks"]) == (503, 1), "stock tools read audit records too"
    clicks = of_range(reader, f"events.{CLICK.name}", range_id)
    assert sorted(int(str(row["n"])) for row in clicks) == list(range(500))
    stream, offset = io.BytesIO(body), 12345
    positions = [offset := offset + len(line) for line in stream]
    assert {row["position"] for row in clicks} == {12345, *positions[:499]}
    assert all(RecordKey.decode(bytes(row["key"])).event_id == row["event_id"] for row in clicks)  # type: ignore[call-overload]
    assert [row["line"] for row in of_range(reader, f"events.{RAW.name}", range_id)] == [
        b"\xff\0\r"
    ]
    letters = of_range(reader, "events.dead-letters", range_id)
    assert {(row["reason"], row["raw"]) for row in letters} == {("not_rfc5424", b"no syslog")}


def test_dead_letters_are_counted_and_shown_from_the_topic(
    service: Serving, stack: LocalStack
) -> None:
    body = b"no syslog\n" * 3 + lines(range(2))
    service.post(service.range_of(body), body)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(
            dead_letters,
            [*arguments, "--config", str(stack.layout.config_file)],
            catch_exceptions=False,
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    counts = json.loads(run("ls", "--reason", "not_rfc5424", "--since", "1h", "--json"))
    assert counts["groups"][0]["letters"] >= 3
    assert counts["looked_at"] >= 3
    shown = [json.loads(line) for line in run("show", "--limit", "3", "--json").splitlines()]
    assert [row["raw"] for row in shown] == ["no syslog"] * 3
    assert json.loads(run("ls", "--records-max", "1", "--json"))["looked_at"] <= 1


def test_live_dead_letters_are_held_against_declarations(
    service: Serving, stack: LocalStack, tmp_path: Path
) -> None:
    body = b"no syslog\n" * 3
    service.post(service.range_of(body), body)
    rule = 'line = { payload = "text", field = "line", time = "observed" }'
    (tmp_path / "note.toml").write_text(
        f'name = "note"\nfields = [{{ name = "line", type = "bytes" }}]\n{rule}\n'
    )
    arguments = ["check", "--live", "--since", "1h", "--json", "--dir", str(tmp_path)]

    def becomes(source: str) -> set[tuple[str, str]]:
        (tmp_path / "sources.toml").write_text(source)
        result = CliRunner().invoke(
            types, [*arguments, "--config", str(stack.layout.config_file)], catch_exceptions=False
        )
        kinds = [
            kind for kind in json.loads(result.stdout)["dead_letters"] if kind["source"] == APP.name
        ]
        assert result.exit_code == (any(kind["now"] != "event" for kind in kinds)), result.output
        return {(kind["reason"], kind["now"]) for kind in kinds}

    strict = f'[[source]]\nname = "{APP.name}"\ntypes = ["note"]\n'
    assert becomes(strict) == {("not_rfc5424", "not_rfc5424")}
    assert becomes(f'{strict}catch_all = "note"\n') == {("not_rfc5424", "event")}
    assert becomes(strict.replace(APP.name, APP.name[1:])) == {("not_rfc5424", "unknown_source")}


def test_records_are_stamped_with_their_arrival_and_the_keys_hour_is_the_events(
    service: Serving, reader: StockReader
) -> None:
    body = lines(range(1))
    before_ms = SystemClock().now_ms()
    assert service.post(service.range_of(body, file="1" * 32), body).status_code == 200
    after_ms = SystemClock().now_ms()
    newest = max(seen.timestamp_ms for seen in reader.records(f"events.{CLICK.name}"))
    assert before_ms <= newest <= after_ms


def test_a_line_of_four_mebibytes_arrives_unaltered(service: Serving, reader: StockReader) -> None:
    head = f"<13>1 - - a p {RAW.name} - ".encode()
    body = head + bytes(range(11, 256)) * 17_000 + b"\n"
    byte_range = service.range_of(body, file="2" * 32)
    assert service.post(byte_range, body).json()["events"] == 1
    (row,) = of_range(reader, f"events.{RAW.name}", byte_range.range_id(body))
    assert row["line"] == body[len(head) : -1]


def test_api_events_arrive_and_a_retry_is_the_same(service: Serving, reader: StockReader) -> None:
    url = f"{service.url}/v1/events/{CLICK.name}"
    key = f"{time.time_ns() // 1_000_000:012x}"
    headers = {
        "Idempotency-Key": f"{key[:8]}-{key[8:]}-7000-8000-{uuid.uuid4().hex[:12]}",
        "Hourmark-Client": f"shop-{RUN}",
    }
    body = b'{"n":1}\n{"n":2}\n{"n":"x"}\n'
    first = HTTP.post(url, content=body, headers=headers, timeout=60)
    second = HTTP.post(url, content=body, headers=headers, timeout=60)
    assert first.json() == second.json()
    assert (first.json()["events"], first.json()["dead_letters"], first.json()["delivery"]) == (
        2,
        1,
        "exactly once",
    )
    rows = [row for row in reader.events(f"events.{CLICK.name}") if row["host"] == f"shop-{RUN}"]
    assert len(rows) == 4
    assert len({row["key"] for row in rows}) == 2


def test_own_reports_come_from_the_start_and_a_goodbye_follows_the_drain(
    service: Serving, reader: StockReader
) -> None:
    host_id = (service.folder / "state" / "host-id").read_text().strip()

    def reports() -> list[HostReport]:
        return [
            HostReport.decode(seen.value[5:])
            for seen in reader.records("hourmark.hosts")
            if seen.key == host_id.encode()
        ]

    wait_for(lambda: len(reports()) >= 2, "reports go on", 30)
    assert service.end() == 0
    said = reports()
    assert [r.goodbye for r in said] == [False] * (len(said) - 1) + [True]
    assert [r.sequence for r in said] == sorted({r.sequence for r in said})
    caught_up = [r.sources[0].caught_up_at_ms or 0 for r in said]
    assert caught_up == sorted(caught_up)
    service.start()
    assert {r.host_id for r in reports()} == {host_id}
    assert len({r.incarnation for r in reports()}) == 2


@pytest.mark.parametrize("check", CHECKS)
def test_queue_contract(config: Config, check: Check) -> None:
    topics = (f"contract-{RUN}-a", f"contract-{RUN}-b")
    settings = topic_settings(
        1, config.kafka.max_message_bytes, config.kafka.edge.min_insync_replicas
    )
    ensure_topics(
        Cluster(config.kafka.edge, "edge"), [TopicSpec(name, 2, settings) for name in topics]
    )

    class Readable:
        def __init__(self, queue: KafkaQueue) -> None:
            self.queue = queue
            self.topics = topics

        def read(self, topic: str) -> list[tuple[bytes, bytes]]:
            return [(seen.key, seen.value) for seen in StockReader(config).records(topic)]

    async def main() -> None:
        queue = KafkaQueue(config, ServiceMetrics())
        try:
            await check(Readable(queue))
        finally:
            await queue.close(10)

    asyncio.run(main())


def test_two_processes_never_share_an_identity(service: Serving, tmp_path: Path) -> None:
    duplicate = Serving(
        config_file=service.config_file,
        folder=tmp_path,
        revision=service.revision,
        settings={"HOURMARK_SERVICE__STATE_DIR": str(service.folder / "state")},
    )
    with pytest.raises((AssertionError, ValueError)):
        duplicate.start()
    assert duplicate.end() == 2
    assert "another service is already running" in (tmp_path / "service.log").read_text()


def test_two_workers_are_one_service_and_lose_nothing_while_they_are_killed_and_replaced(
    stack: LocalStack, tmp_path: Path, service: Serving, reader: StockReader
) -> None:
    serving = Serving(
        config_file=stack.layout.config_file, folder=tmp_path, revision=service.revision
    )
    serving.settings["HOURMARK_SERVICE__WORKERS"] = "2"
    serving.start()
    try:
        acknowledged: dict[int, bytes] = {}
        faults = iter([signal.SIGKILL, signal.SIGHUP, signal.SIGKILL, signal.SIGHUP])
        for index in range(40):
            if index % 10 == 5:
                number = next(faults)
                os.kill(
                    serving.process.pid if number == signal.SIGHUP else serving.workers()[0],  # type: ignore[union-attr]
                    number,
                )
            body = lines(range(FIRST + index * 10, FIRST + index * 10 + 10))
            for _ in range(30):
                with contextlib.suppress(httpx.HTTPError):
                    if (
                        serving.post(
                            serving.range_of(body, start=index * 2000, file="e" * 32), body
                        ).status_code
                        == 200
                    ):
                        acknowledged[index] = body
                        break
                time.sleep(0.2)
        assert len(acknowledged) == 40
        wait_for(
            lambda: 'hourmark_service_events_total{type="' in serving.get("/metrics").text,
            "metrics of all",
            10,
        )
        wait_for(
            lambda: len(serving.workers()) >= 2, "those that were killed are started again", 30
        )
        assert serving.end() == 0
    finally:
        serving.end(signal.SIGKILL)
    seen = {int(row["n"]) for row in reader.events(f"events.{CLICK.name}")}
    assert seen >= set(range(FIRST, FIRST + 400)), "whatever was acknowledged is there"
    host_id = (tmp_path / "state" / "host-id").read_text().strip().encode()
    said = [
        HostReport.decode(r.value[5:]) for r in reader.records("hourmark.hosts") if r.key == host_id
    ]
    assert len({r.incarnation for r in said}) == 1
    assert [r.goodbye for r in said] == [False] * (len(said) - 1) + [True]
    caught_up = [r.sources[0].caught_up_at_ms or 0 for r in said]
    assert caught_up == sorted(caught_up)
