"""Host reports, the service's own ones, probes and metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.service.examples import HOST, NOW_MS, syslog
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.edge.test_service_ranges import code

from hourmark.avro.framing import unframe
from hourmark.errors import ConfigError
from hourmark.records.audit import AuditRecord
from hourmark.records.host_reports import HostReport, SourceReport
from hourmark.records.wire import report_to_json
from hourmark_delivery_service.errors import NotDelivered
from hourmark_delivery_service.process.reports import (
    ServiceIdentity,
    ServiceReporter,
    take_identity,
)

REPORT = HostReport(
    host_id=HOST,
    host_name="web-1",
    kind="tailer",
    incarnation="i1",
    sequence=4,
    received_at_ms=0,
    goodbye=False,
    sources=(SourceReport("app", NOW_MS + 99_000, 5, 0), SourceReport("x", None, 0, 7)),
)


def stored(h: Harness) -> list[HostReport]:
    return [HostReport.decode(unframe(r.value)[1]) for r in h.queue.of("hourmark.hosts")]


@with_service()
async def test_a_report_is_stamped_and_never_claims_the_future(h: Harness) -> None:
    answer = await h.client.post("/v1/reports", content=report_to_json(REPORT))
    assert (answer.status_code, answer.json()) == (200, {"received_at_ms": NOW_MS})
    (report,) = stored(h)
    assert report == REPORT.stamped(NOW_MS)
    assert [s.caught_up_at_ms for s in report.sources] == [NOW_MS, None]
    assert (h.queue.records[0].key, unframe(h.queue.records[0].value)[0]) == (HOST.encode(), 102)


@with_service()
async def test_what_is_no_report_is_refused(h: Harness) -> None:
    good = json.loads(report_to_json(REPORT))
    wrong = [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"null",
        json.dumps({**good, "kind": "other"}).encode(),
        json.dumps({**good, "sequence": 1 << 70}).encode(),
        json.dumps({**good, "host_id": "short"}).encode(),
        *(
            json.dumps({**good, "sources": [{**good["sources"][0], name: 1 << 62}]}).encode()
            for name in ("lost_bytes", "pending_bytes", "unknown_losses")
        ),
        json.dumps({**good, "host_name": "\ud800"}).encode(),
        *(
            json.dumps({**good, name: f"a{chr(0)}b"}).encode()
            for name in ("host_name", "incarnation")
        ),
        json.dumps({**good, "host_id": chr(0) * 32}).encode(),
        json.dumps({**good, "sources": [{**good["sources"][0], "source": f"a{chr(0)}"}]}).encode(),
        json.dumps({**good, "more": 1}).encode(),
        json.dumps({**good, "sources": [{"source": "a"}]}).encode(),
    ]
    for body in wrong:
        assert code(await h.client.post("/v1/reports", content=body)) == (400, "report"), body[:80]
    assert code(await h.client.post("/v1/reports", content=b"x" * ((1 << 20) + 1))) == (
        413,
        "too_large",
    )
    assert h.queue.records == []


@with_service()
async def test_a_report_that_was_not_kept_is_not_acknowledged(h: Harness) -> None:
    h.queue.fail_with = NotDelivered("planted")
    assert code(await h.client.post("/v1/reports", content=report_to_json(REPORT))) == (
        503,
        "queue",
    )


@with_service()
async def test_the_own_report_never_claims_beyond_a_request_under_way(h: Harness) -> None:
    reporter = ServiceReporter(
        h.service, ServiceIdentity("5" * 32, "svc", "i1"), h.service.inflight
    )
    await reporter.report()
    h.queue.hold = asyncio.Event()
    h.clock.advance(10)
    post = asyncio.create_task(h.post_range(syslog()))
    while not h.service.inflight.requests:
        await asyncio.sleep(0)
    h.clock.advance(100)
    hold, h.queue.hold = h.queue.hold, None
    await reporter.report()
    hold.set()
    await post
    await reporter.report(goodbye=True)
    reports = stored(h)
    assert [r.sources[0].caught_up_at_ms for r in reports] == [
        NOW_MS,
        NOW_MS + 10_000,
        NOW_MS + 110_000,
    ]
    assert [(r.sequence, r.goodbye, r.kind, r.sources[0].source) for r in reports] == [
        (0, False, "service", "api"),
        (1, False, "service", "api"),
        (2, True, "service", "api"),
    ]


@with_service()
async def test_a_clock_set_back_by_minutes_takes_no_claim_back(h: Harness) -> None:
    claimed = h.service.inflight.oldest_ms()
    h.clock.set_back(300)
    with h.service.inflight.track() as request:
        assert request.start_ms == claimed
        assert h.service.inflight.oldest_ms() == claimed


@with_service()
async def test_a_clock_corrected_by_hours_claims_no_request_that_is_still_in_flight(
    h: Harness,
) -> None:
    with h.service.inflight.track():
        h.service.inflight.oldest_ms()
        h.clock.advance(60)
        h.service.inflight.oldest_ms()
        h.clock.set_back(3 * 3600)
        assert h.service.inflight.oldest_ms() <= h.clock.now_ms() - 60_000
        with h.service.inflight.track() as request:
            assert request.start_ms == h.clock.now_ms()
    assert h.service.inflight.oldest_ms() == h.clock.now_ms()


@with_service()
async def test_events_are_taken_at_once_after_a_clock_was_corrected_by_hours(h: Harness) -> None:
    h.service.inflight.oldest_ms()
    h.clock.set_back(3 * 3600)
    assert (await h.post_events(b'{"user":"u","ms":1}\n')).status_code == 200
    (audit,) = h.queue.of("hourmark.audit")
    assert AuditRecord.decode(unframe(audit.value)[1]).observed_at_ms == h.clock.now_ms()


@with_service(report_seconds=0.01)
async def test_the_first_own_report_precedes_the_first_event(h: Harness) -> None:
    h.service.first_report_sent = False
    h.queue.fail_with = NotDelivered("planted")
    task = asyncio.create_task(
        ServiceReporter(h.service, ServiceIdentity("5" * 32, "svc", "i1"), h.service.inflight).run()
    )
    await asyncio.sleep(0.05)
    assert code(await h.post_range(syslog())) == (503, "not_ready")
    h.queue.fail_with = None
    while not h.service.first_report_sent:
        await asyncio.sleep(0.01)
    assert (await h.post_range(syslog())).status_code == 200
    task.cancel()
    assert h.queue.records[0].topic == "hourmark.hosts"


@with_service()
async def test_probes(h: Harness) -> None:
    assert (await h.client.get("/healthz")).status_code == 200
    assert (await h.client.get("/readyz")).json() == {
        "ready": True,
        "reasons": [],
        "warnings": [],
        "native_pass": True,
    }
    h.queue.missing = ["Kafka does not respond"]
    h.clock.advance(2)
    h.service.framing = None
    answer = await h.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [
        "the schema ids of audit records are unknown so far",
        "Kafka does not respond",
    ]
    assert (await h.client.get("/healthz")).status_code == 200, "alive, though not ready"


@with_service()
async def test_metrics_count_what_was_acknowledged(h: Harness) -> None:
    await h.post_range(syslog() + b"?\n")
    await h.client.get("/no/such/path")
    text = (await h.client.get("/metrics")).text
    for line in (
        'hourmark_service_events_total{type="click"} 1.0',
        'hourmark_service_dead_letters_total{reason="not_rfc5424",source="app",type=""} 1.0',
        'hourmark_service_requests_total{path="/v1/ranges",status="200"} 1.0',
        'hourmark_service_requests_total{path="other",status="404"} 1.0',
        "hourmark_service_inflight_bytes 0.0",
        "hourmark_service_rules_sequence 1.0",
    ):
        assert line in text.splitlines()


def test_an_instance_keeps_its_id_and_changes_its_incarnation(tmp_path: Path) -> None:
    first = take_identity(tmp_path / "state")
    with pytest.raises(ConfigError, match="another service is already running with"):
        take_identity(tmp_path / "state")
    assert first.lock is not None
    first.lock.close()
    second = take_identity(tmp_path / "state")
    assert second.host_id == first.host_id
    assert second.incarnation != first.incarnation
    assert second.lock is not None
    second.lock.close()


def test_a_damaged_identity_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "host-id").write_text("nonsense")
    with pytest.raises(ConfigError, match="32 hex digits"):
        take_identity(tmp_path)
    with pytest.raises(ConfigError, match="cannot be used"):
        take_identity(Path("/proc/none"))
