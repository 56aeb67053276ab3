"""Several delivery services: all that answer are used alike, and what ails one is no reason to
wait.
"""

from __future__ import annotations

import socket
import time
from collections import Counter

import pytest
from tests.support.clock import FakeClock
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark_producer.send.client import DeliveryServiceClient
from hourmark_producer.send.services import RESOLVE_EVERY_S, ServiceEndpoint, ServiceSelector

URLS = ["http://10.0.0.1:1", "http://10.0.0.2:1", "http://10.0.0.3:1"]
MAX_S = 8.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def services(clock: FakeClock) -> ServiceSelector:
    return ServiceSelector(URLS, clock, MAX_S)


def chosen(
    services: ServiceSelector, count: int = 1, *, tried: set[ServiceEndpoint] | None = None
) -> list[ServiceEndpoint]:
    """So many requests, one after another, each answered."""
    found = []
    for _ in range(count):
        service = services.select(tried or set())
        assert service is not None
        services.request_started(service)
        services.request_succeeded(service)
        found.append(service)
    return found


def fail(services: ServiceSelector, service: ServiceEndpoint, retry_after_s: float = 0.0) -> None:
    services.request_failed(
        service,
        "no",
        failures_before=services.request_started(service),
        retry_after_s=retry_after_s,
    )


def urls(found: list[ServiceEndpoint]) -> Counter[str]:
    return Counter(one.url for one in found)


def test_requests_are_spread_evenly(services: ServiceSelector) -> None:
    assert urls(chosen(services, 9)) == dict.fromkeys(URLS, 3)


def test_the_one_with_the_fewest_requests_under_way_is_next(services: ServiceSelector) -> None:
    slow, *_ = chosen(services)
    services.request_started(slow)
    assert slow not in chosen(services, 6)


def test_one_that_failed_is_asked_again_after_growing_pauses_by_one_request(
    services: ServiceSelector, clock: FakeClock
) -> None:
    (bad,) = chosen(services)
    pauses = []
    for _ in range(12):
        fail(services, bad)
        began_s = clock.monotonic_s()
        while bad not in chosen(services, 3):
            clock.advance(0.01)
        pauses.append(clock.monotonic_s() - began_s)
        fail(services, bad)  # `chosen` said that it answered
        bad.failures = len(pauses)
    assert pauses[0] <= 0.11 and 0.5 * MAX_S - 0.1 <= pauses[-1] <= MAX_S + 0.1


def test_while_one_request_finds_out_the_others_go_elsewhere(
    services: ServiceSelector, clock: FakeClock
) -> None:
    (bad,) = chosen(services)
    fail(services, bad)
    clock.advance(1.0)
    asked = [services.select(set()) for _ in range(6)]
    assert asked.count(bad) == 1


def test_failures_of_one_moment_count_once(services: ServiceSelector) -> None:
    (bad,) = chosen(services)
    before = [services.request_started(bad) for _ in range(8)]
    for count in before:
        services.request_failed(bad, "no", failures_before=count)
    assert bad.failures == 1 and bad.in_flight == 0


def test_where_all_fail_each_is_still_asked(services: ServiceSelector) -> None:
    for service in chosen(services, 3):
        fail(services, service)
    tried = set[ServiceEndpoint]()
    while (one := services.select(tried)) is not None:
        tried.add(one)
    assert len(tried) == 3


def test_retry_after_is_obeyed_for_that_address_alone(
    services: ServiceSelector, clock: FakeClock
) -> None:
    (bad,) = chosen(services)
    fail(services, bad, retry_after_s=5.0)
    assert bad not in chosen(services, 6) and services.retry_after_s() == 0
    others = set(chosen(services, 2))
    assert services.select(others) is None, "not even where no other is left"
    for service in others:
        fail(services, service, retry_after_s=7.0)
    assert services.select(set()) is None and services.retry_after_s() == pytest.approx(5.0)
    clock.advance(5.1)
    assert services.select(set()) is bad


def test_an_answer_to_what_was_under_way_does_not_end_the_wait(
    services: ServiceSelector, clock: FakeClock
) -> None:
    first, second = services.select(set()), services.first
    assert first is second
    services.request_started(first)
    before = services.request_started(first)
    services.request_failed(first, "503", failures_before=before, retry_after_s=5.0)
    services.request_succeeded(first)
    assert first not in chosen(services, 4)
    clock.advance(5.1)
    assert first in chosen(services, 4)


def test_each_address_of_a_name_is_used_and_keeps_what_is_known_of_it(clock: FakeClock) -> None:
    found = [["10.1.0.1", "10.1.0.2"]]
    services = ServiceSelector(["http://delivery.example:8780", URLS[0]], clock, MAX_S)
    services.refresh_addresses(lambda host, port: found[0])
    first = chosen(services, 3)
    assert {one.address.ip for one in first} == {"10.1.0.1", "10.1.0.2", ""}
    assert len({one.name for one in first}) == 3, "each has a clock of its own"
    found[0] = ["10.1.0.2", "10.1.0.9"]
    services.refresh_addresses(lambda host, port: found[0])
    assert set(chosen(services, 3)) == set(first), "not asked for that often"
    clock.advance(RESOLVE_EVERY_S)
    services.refresh_addresses(lambda host, port: found[0])
    later = chosen(services, 3)
    assert {one.address.ip for one in later} == {"10.1.0.2", "10.1.0.9", ""} and len(
        set(first) & set(later)
    ) == 2


def test_a_name_that_cannot_be_looked_up_goes_on_as_before(clock: FakeClock) -> None:
    def gone(host: str, port: int) -> list[str]:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    services = ServiceSelector(["http://delivery.example:8780"], clock, MAX_S)
    services.refresh_addresses(gone)
    assert [one.address.ip for one in chosen(services)] == [""]
    clock.advance(RESOLVE_EVERY_S)
    services.refresh_addresses(lambda host, port: ["10.1.0.1"])
    clock.advance(RESOLVE_EVERY_S)
    services.refresh_addresses(gone)
    assert [one.address.ip for one in chosen(services)] == ["10.1.0.1"]


def test_ranges_go_to_all_alike(host: Host, recorder: Recorder) -> None:
    with recording() as other:
        host.settings |= {
            "service_urls": [recorder.url, other.url],
            "range_bytes": 1024,
            "report_seconds": 600.0,
        }
        host.drain(lines(2000))
        recorder.received += other.received
        assert recorder.text() == lines(2000)
        assert (
            abs(len(recorder.stored) - len(other.stored)) <= 4
        )  # whoever is busy with a report is passed over


@pytest.mark.parametrize("status", [400, 403, 413, 503])
def test_what_one_refuses_another_may_take_at_once(
    host: Host, recorder: Recorder, status: int
) -> None:
    """Such as one of an older version, that does not know a header yet."""
    with recording() as newer:
        recorder.behaviour = lambda _: status
        host.settings |= {
            "service_urls": [recorder.url, newer.url],
            "range_bytes": 1024,
            "backoff_max_seconds": 60.0,
        }
        began_s = time.monotonic()
        host.drain(lines(200))
        assert newer.text() == lines(200) and time.monotonic() - began_s < 30


def test_one_that_is_not_there_costs_no_file_a_pause(host: Host, recorder: Recorder) -> None:
    with recording() as dead:
        pass
    host.settings |= {
        "service_urls": [dead.url, recorder.url],
        "range_bytes": 1024,
        "backoff_max_seconds": 60.0,
    }
    with host.running(lines(200)) as tailer:
        recorder.wait_text(lines(200))
        wait_for(
            lambda: (
                sum(one.ranges for one in tailer.take_snapshot().services) == len(recorder.stored)
            ),
            "all are acknowledged",
        )
        by_name = {one.service: one for one in tailer.take_snapshot().services}
        assert (
            by_name[dead.url].failing_seconds is not None and "refused" in by_name[dead.url].trouble
        )
        assert by_name[recorder.url].failing_seconds is None
        up = f'hourmark_tailer_service_up{{service="{dead.url}"}} 0'
        assert up in tailer.render_metrics().decode()


@pytest.mark.parametrize(("ahead_ms", "is_held_to_it"), [(60_000, True), (400_000, False)])
def test_no_range_is_observed_before_what_may_have_been_claimed_to_another_service(
    ahead_ms: int, is_held_to_it: bool
) -> None:
    """Dead letters, and lines without a time of their own, are of the hour in which they were
    observed.

    Where clocks are minutes apart nothing closes, and one that is plainly wrong is not held to.
    """
    with recording() as behind:
        behind.clock = lambda: 1_800_000_000_000
        with recording() as ahead:
            ahead.clock = lambda: 1_800_000_000_000 + ahead_ms
            link = DeliveryServiceClient(
                TailerConfig(service_urls=[ahead.url, behind.url]), SystemClock()
            )
            assert link.current_reading().clock_ms == ahead.clock()
        link.close()  # it is gone, and so are connections to it
        assert (
            link.current_reading(age_max_s=-1.0).clock_ms
            == (ahead if is_held_to_it else behind).clock()
        )
        assert link.clocks_ms() == {ahead.url: ahead.clock(), behind.url: behind.clock()}, (
            "claims are by each one's own"
        )


def test_nor_after_a_restart(host: Host) -> None:
    def restarted(recorder: Recorder) -> None:
        host.settings["service_urls"] = [recorder.url]
        host.once(lines(10))

    with recording() as ahead, recording() as behind:
        ahead.clock, behind.clock = lambda: 1_800_000_060_000, lambda: 1_800_000_000_000
        restarted(ahead)
        claimed_ms = ahead.last.caught_up_at_ms
        restarted(behind)
    assert claimed_ms == 1_800_000_060_000
    assert [one.range.observed_at_ms for one in behind.stored] == [claimed_ms]


@pytest.mark.parametrize("content", [b"", b"12", b"x" * 19, b"9" * 19])
def test_a_kept_clock_that_is_none_is_not_held_to(
    host: Host, recorder: Recorder, content: bytes
) -> None:
    host.state.mkdir()
    (host.state / "clock").write_bytes(content)
    recorder.clock = lambda: 1_800_000_000_000
    host.drain(lines(10))
    assert [one.range.observed_at_ms for one in recorder.stored] == [1_800_000_000_000]
