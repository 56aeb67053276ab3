"""/metrics and /healthz of a tailer."""

from __future__ import annotations

import json
import socket
import sqlite3
import urllib.request
from collections.abc import Mapping
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.clock import FakeClock
from tests.support.documents import ROOT
from tests.support.ports import free_port
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark_producer.checkpoint.books import SourceBalance
from hourmark_producer.conditions import ConditionLog
from hourmark_producer.counters import Losses
from hourmark_producer.report.metrics import TailerMetrics, render_tailer_metrics
from hourmark_producer.report.probes import TailerHealth, serve_probes
from hourmark_producer.send.services import ServiceStatus

NUMBERS = TailerMetrics(
    balances={
        'a"\\\n': SourceBalance(seen=15, acknowledged=1, in_flight=2, pending=3, skipped=4, lost=5)
    },
    losses={'a"\\\n': Losses(5, 7)},
    files={'a"\\\n': 9},
    lag_seconds={'a"\\\n': 1.5},
    dead_letters={"b": {"no_type": 3}},
    services=[ServiceStatus(service="http://a", ranges=4, failing_seconds=None, trouble="")],
    ranges=1,
    events=2,
    conditions=0,
    is_healthy=True,
    started_at_s=1.0,
    delivered_at_s=2.0,
    reported_at_s=3.0,
)


def ask(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def samples(text: bytes) -> Mapping[tuple[str, frozenset[tuple[str, str]]], float]:
    """As Prometheus reads it."""
    families = text_string_to_metric_families(text.decode())
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in families
        for one in family.samples
    }


def of(text: bytes, name: str, **labels: str) -> float:
    return samples(text)[f"hourmark_tailer_{name}", frozenset(labels.items())]


def test_prometheus_understands_the_text_whatever_a_source_is_called() -> None:
    text = render_tailer_metrics(NUMBERS)
    source = 'a"\\\n'
    assert (
        of(text, "bytes_seen_total", source=source) == 15
        and of(text, "books_off_by_bytes", source=source) == 0
    )
    assert (
        of(text, "unknown_losses_total", source=source) == 7
        and of(text, "lag_seconds", source=source) == 1.5
    )
    assert (
        of(text, "dead_letters_total", source="b", reason="no_type") == 3 and of(text, "well") == 1
    )


def test_every_metric_is_in_the_documents_and_nothing_else() -> None:
    told = {
        f"{line.split()[2]}"
        for line in render_tailer_metrics(NUMBERS).decode().splitlines()
        if line.startswith("# TYPE")
    }
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    named = {
        word.strip("`")
        for word in page.split()
        if word.startswith("`hourmark_tailer_") and word.endswith("`")
    }
    assert named == told


def test_they_tell_of_a_tailer_at_work(host: Host, recorder: Recorder) -> None:
    recorder.reasons = lambda _: {"no_type": 2}
    with host.running(lines(100)) as tailer, serve_probes(tailer, "127.0.0.1", free_port()) as port:
        wait_for(
            lambda: of(ask(port, "/metrics")[1], "bytes_acknowledged_total", source="app") == 2300,
            "all is acknowledged",
        )
        wait_for(
            lambda: bool(recorder.reports and recorder.last.caught_up_at_ms), "it is caught up"
        )
        status, text = ask(port, "/metrics")
        assert (
            status == 200
            and of(text, "bytes_seen_total", source="app") == 2300
            and of(text, "files", source="app") == 1
        )
        assert (
            of(text, "events_total") == 98
            and of(text, "dead_letters_total", source="app", reason="no_type") == 2
        )
        assert 0 <= of(text, "lag_seconds", source="app") < 10
        assert ask(port, "/healthz") == (200, b'{"well": true, "reasons": []}')
        assert ask(port, "/")[0] == 404


def test_it_is_not_well_while_nothing_is_acknowledged_and_well_again_after(
    host: Host, recorder: Recorder
) -> None:
    host.settings["unwell_seconds"] = 2.0  # a look, or a report, takes less on a busy machine too
    recorder.behaviour = lambda _: 503
    with host.running(lines(10)) as tailer, serve_probes(tailer, "127.0.0.1", free_port()) as port:
        wait_for(lambda: ask(port, "/healthz")[0] == 503, "it is unwell")
        (reason,) = json.loads(ask(port, "/healthz")[1])["reasons"]
        assert "nothing was acknowledged" in reason
        recorder.behaviour = lambda _: 200
        wait_for(lambda: ask(port, "/healthz")[0] == 200, "it is well")


def test_it_is_not_well_while_no_service_answers(host: Host) -> None:
    host.settings |= {"unwell_seconds": 0.3, "service_urls": [f"http://127.0.0.1:{free_port()}"]}
    with host.running(lines(10)) as tailer:
        wait_for(
            lambda: any("no host report" in reason for reason in tailer.unhealthy_reasons()),
            "it is unwell",
        )


@pytest.mark.slow
def test_it_is_not_well_while_the_checkpoint_cannot_be_written(
    host: Host, recorder: Recorder
) -> None:
    with host.running(lines(10)) as tailer:
        recorder.wait_stored(1)
        other = sqlite3.connect(host.state / "checkpoint.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            host.append(lines(10, 10))
            wait_for(
                lambda: any(
                    "the checkpoint cannot be written" in reason
                    for reason in tailer.unhealthy_reasons()
                ),
                "it is unwell",
                30,
            )
        finally:
            other.close()
    host.drain()
    assert recorder.files() == [lines(20)]


def test_a_standstill_of_scans_is_told() -> None:
    clock = FakeClock()
    health = TailerHealth(clock, ConditionLog(clock), 60)
    clock.advance(61)
    assert len(health.unhealthy_reasons()) == 3
    health.record_scan(0, waiting=False)
    health.record_report()
    assert health.unhealthy_reasons() == []
    clock.advance(61)
    health.record_report()
    assert (
        health.unhealthy_reasons()[0]
        == "files were not scanned, or the result could not be recorded, for 61 s"
    )


class Silent:
    """What is asked, and never of interest."""

    def render_metrics(self) -> bytes:
        return b""

    def unhealthy_reasons(self) -> list[str]:
        return []


def test_a_client_that_says_nothing_holds_nobody_up_for_long() -> None:
    with (
        serve_probes(Silent(), "127.0.0.1", free_port()) as port,
        socket.create_connection(("127.0.0.1", port)),
    ):
        assert ask(port, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_said_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with serve_probes(Silent(), "127.0.0.1", taken.getsockname()[1]) as port:
            assert port == 0
    assert "tailer.metrics_port" in caplog.text


def test_by_default_nothing_is_opened() -> None:
    settings = TailerConfig()
    assert (settings.metrics_port, settings.metrics_host) == (0, "127.0.0.1")
    with serve_probes(Silent(), settings.metrics_host, settings.metrics_port) as port:
        assert port == 0
