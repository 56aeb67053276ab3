"""A service's clock was hours ahead and is corrected: what it had stamped is delivered at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.service.threaded import Served, served
from tests.support.tailer.host import Host
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.records.audit import AuditRecord
from hourmark_delivery_service.errors import NotDelivered

HOUR_MS = 3_600_000
LINES = b"<13>1 - - a p raw - without a time\n" * 20


class ShiftedClock(SystemClock):
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def clock() -> ShiftedClock:
    clock = ShiftedClock()
    clock.ahead_ms = 3 * HOUR_MS
    return clock


@pytest.fixture
def ahead(clock: ShiftedClock) -> Iterator[Served]:
    """A service whose clock is three hours ahead."""
    with served(clock=clock) as service:
        yield service


def stamped_by(ahead: Served, host: Host, clock: ShiftedClock) -> None:
    """A range with the wrong time is left in the spool, because Kafka fails."""
    host.settings["service_urls"] = [f"http://127.0.0.1:{ahead.port}"]
    queue = ahead.harness.queue
    with host.running():
        wait_for(lambda: bool(queue.of("hourmark.hosts")), "the first report, before any range", 20)
        queue.fail_with = NotDelivered("planted")
        host.append(LINES)
        wait_for(lambda: refusals(ahead) > 1, "a range was stamped, and not acknowledged", 20)


def refusals(service: Served) -> float:
    return (
        service.harness.metrics.registry.get_sample_value(
            "hourmark_service_requests_total", {"path": "/v1/ranges", "status": "503"}
        )
        or 0
    )


def test_the_corrected_service_takes_its_own_ranges(
    host: Host, ahead: Served, clock: ShiftedClock
) -> None:
    stamped_by(ahead, host, clock)
    clock.ahead_ms, ahead.harness.queue.fail_with = 0, None
    summary = host.drain()
    assert summary.events == 20
    (audit,) = ahead.harness.queue.of("hourmark.audit")
    record = AuditRecord.decode(audit.value[5:])
    assert record.observed_at_ms > SystemClock().now_ms() + 2 * HOUR_MS, (
        "the range is as it was: an earlier attempt may be in Kafka"
    )


def test_another_service_takes_them_and_the_clock_need_not_even_be_corrected(
    host: Host, ahead: Served, clock: ShiftedClock
) -> None:
    stamped_by(ahead, host, clock)
    with served(clock=SystemClock()) as right:
        host.settings["service_urls"] = [f"http://127.0.0.1:{right.port}"]
        assert host.drain().events == 20


def test_a_claim_by_the_wrong_clock_is_dropped_with_the_correction(
    host: Host, recorder: Recorder
) -> None:
    """Or each later report would claim that all lines up to its own time are acknowledged."""
    ahead_ms = [3 * HOUR_MS]
    recorder.clock = lambda: SystemClock().now_ms() + ahead_ms[0]
    with host.running(b"line\n"):
        wait_for(lambda: bool(recorder.reports) and bool(recorder.last.caught_up_at_ms), "a claim")
        recorder.behaviour = lambda _: 503
        host.append(b"not acknowledged\n")
        recorder.wait_received(3)
        ahead_ms[0] = 0
        written_ms = SystemClock().now_ms()
        wait_for(lambda: recorder.last.caught_up_at_ms is None, "the claim is dropped", 10)
        recorder.behaviour = lambda _: 200
        wait_for(lambda: (recorder.last.caught_up_at_ms or 0) > written_ms, "caught up again", 20)
