"""Delivery services whose clocks are hours apart: those are believed that most agree with, this
host's clock among them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import FakeClock
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, HostReport
from hourmark_producer.send.client import DeliveryServiceClient, NoServiceAvailable
from hourmark_producer.send.clocks import READING_MAX_AGE_S, ClockReading, ServiceClocks

HOUR_MS = 3_600_000
NOW = SystemClock()


@pytest.fixture
def wrong() -> Iterator[Recorder]:
    """A service whose clock is three hours behind."""
    with recording() as recorder:
        recorder.clock = lambda: NOW.now_ms() - 3 * HOUR_MS
        yield recorder


@contextmanager
def link_to(*recorders: Recorder, clock_ahead_ms: int = 0) -> Iterator[DeliveryServiceClient]:
    class Here(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + clock_ahead_ms

    with closing(
        DeliveryServiceClient(
            TailerConfig(service_urls=[recorder.url for recorder in recorders]), Here()
        )
    ) as link:
        yield link


def is_now(reading: ClockReading) -> bool:
    return abs(reading.clock_ms - NOW.now_ms()) < 60_000


def report_to(_service: str) -> HostReport:
    return HostReport(
        host_id="a" * 32,
        host_name="host",
        kind="tailer",
        incarnation="b" * 32,
        sequence=0,
        received_at_ms=0,
        goodbye=False,
        sources=(),
    )


def clocks_of(ahead_ms: dict[str, int], here_ms: int = 0) -> ServiceClocks:
    clock = FakeClock()
    read = ServiceClocks(_Apart(clock, here_ms))
    for service, ms in ahead_ms.items():
        read.record(service, ClockReading(clock.now_ms() + ms, "1-a", clock.monotonic_s()))
    return read


class _Apart(FakeClock):
    """Its time of day is off; both of its readings move on alike."""

    def __init__(self, clock: FakeClock, ahead_ms: int) -> None:
        super().__init__(clock.now_ms())
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


@pytest.mark.parametrize(
    ("ahead_ms", "here_ms", "believed"),
    [
        ({"a": 0}, 0, {"a"}),
        ({"a": 0}, 5 * HOUR_MS, {"a"}),  # hosts' clocks are worse than services'
        ({"a": 0, "b": -3 * HOUR_MS}, 0, {"a"}),
        ({"a": 0, "b": 3 * HOUR_MS}, 0, {"a"}),
        ({"a": 0, "b": 1000}, -5 * HOUR_MS, {"a", "b"}),
        ({"a": 0, "b": -3 * HOUR_MS}, 5 * HOUR_MS, {"a", "b"}),  # no two agree: nothing is decided
        ({"a": 0, "b": 1000, "c": HOUR_MS}, HOUR_MS, {"a", "b", "c"}),  # two against two
        ({"a": 0, "b": 1000, "c": HOUR_MS}, 9 * HOUR_MS, {"a", "b"}),
        ({"a": 0, "b": CLOCKS_APART_MS_MAX}, 0, {"a", "b"}),
        ({"a": 0, "b": CLOCKS_APART_MS_MAX + 1}, 0, {"a"}),
        (
            {"a": -180_000, "b": 0, "c": 180_000},
            0,
            {"a", "b", "c"},
        ),  # all are near the truth, if not each other
        ({"a": -310_000, "b": 0, "c": 310_000}, 0, {"b"}),
        ({}, 0, set()),
    ],
)
def test_those_are_believed_that_most_agree_with(
    ahead_ms: dict[str, int], here_ms: int, believed: set[str]
) -> None:
    assert clocks_of(ahead_ms, here_ms).trusted_readings(list(ahead_ms)).keys() == believed
    assert clocks_of(ahead_ms, here_ms).errors(list(ahead_ms)).keys() == ahead_ms.keys() - believed


@given(st.lists(st.integers(-CLOCKS_APART_MS_MAX, CLOCKS_APART_MS_MAX), min_size=1, max_size=6))
def test_none_is_doubted_that_is_near_this_host_and_half_of_the_others(ahead_ms: list[int]) -> None:
    of = {str(number): ms for number, ms in enumerate(ahead_ms)}
    believed = clocks_of(of).trusted_readings(list(of))
    for name, ms in of.items():
        near = 1 + sum(abs(ms - other) <= CLOCKS_APART_MS_MAX for other in ahead_ms)
        assert name in believed or 2 * near < len(of) + 1


@given(
    st.lists(
        st.integers(-CLOCKS_APART_MS_MAX // 2, CLOCKS_APART_MS_MAX // 2), min_size=1, max_size=6
    )
)
def test_of_clocks_that_are_near_none_is_doubted_whatever_this_host_says(
    ahead_ms: list[int],
) -> None:
    for here_ms in (0, -9 * HOUR_MS, 9 * HOUR_MS):
        of = {str(number): ms for number, ms in enumerate(ahead_ms)}
        assert clocks_of(of, here_ms).trusted_readings(list(of)).keys() == of.keys()


def test_one_that_is_no_service_any_longer_is_no_witness() -> None:
    of = {"a": 0, "gone": 3 * HOUR_MS, "gone too": 3 * HOUR_MS}
    assert clocks_of(of).trusted_readings(["a"]).keys() == {"a"}


def test_what_is_said_names_both_and_how_far_they_are_apart() -> None:
    troubles = clocks_of({"http://a": 0, "http://b": -3 * HOUR_MS}).errors(["http://a", "http://b"])
    assert troubles == {
        "http://b": "its clock is 10800 s behind that of http://a, and more clocks agree with the latter"
    }


@pytest.mark.parametrize(
    ("after_s", "believed"), [(READING_MAX_AGE_S, {"a"}), (READING_MAX_AGE_S + 1, {"b"})]
)
def test_an_older_reading_is_as_good_as_a_new_one_for_some_minutes(
    after_s: float, believed: set[str]
) -> None:
    """How far a clock is ahead of what runs here alone is compared. One that is gone for good
    decides nothing for ever.
    """
    clock = FakeClock()
    read = ServiceClocks(clock)
    read.record("a", ClockReading(clock.now_ms(), "1-a", clock.monotonic_s()))
    clock.advance(after_s)
    read.record("b", ClockReading(clock.now_ms() - 2 * HOUR_MS, "1-a", clock.monotonic_s()))
    assert read.trusted_readings(["a", "b"]).keys() == believed


@pytest.mark.parametrize("wrong_is_first", [True, False])
def test_the_time_of_a_service_that_is_hours_behind_is_given_to_no_range(
    wrong: Recorder, wrong_is_first: bool
) -> None:
    with (
        recording() as right,
        link_to(*((wrong, right) if wrong_is_first else (right, wrong))) as link,
    ):
        assert all(is_now(link.current_reading(age_max_s=-1.0)) for _ in range(6))


def test_a_host_whose_own_clock_is_wrong_believes_services_that_agree(recorder: Recorder) -> None:
    with recording() as other, link_to(recorder, other, clock_ahead_ms=-5 * HOUR_MS) as link:
        assert all(is_now(link.current_reading(age_max_s=-1.0)) for _ in range(6))
        assert not link.clock_errors()


def test_a_single_service_is_believed_as_nothing_decides(wrong: Recorder) -> None:
    with link_to(wrong) as link:
        reading = link.current_reading()
    assert abs(reading.clock_ms - wrong.clock()) < 60_000


def test_while_no_service_that_is_believed_answers_ranges_wait(wrong: Recorder) -> None:
    with ExitStack() as rightly:
        right = rightly.enter_context(recording())
        with link_to(right, wrong) as link:
            assert is_now(link.current_reading())
            rightly.close()
            link.close()  # connections to it are gone, too
            said = (
                rf"{wrong.url}: its clock is 10[78]\d\d s behind that of {right.url}, and "
                r"more clocks agree with the latter"
            )
            for _ in range(3):
                with pytest.raises(NoServiceAvailable, match=said):
                    link.current_reading(age_max_s=-1.0)


def test_reports_go_to_a_service_that_is_believed(wrong: Recorder) -> None:
    with recording() as right, link_to(wrong, right) as link:
        link.current_reading()
        assert link.clock_errors().keys() == {wrong.url}
        link.send_report(report_to)
        assert len(right.reports) == 1 and not wrong.reports


def test_of_services_that_are_believed_one_that_is_well_is_told(wrong: Recorder) -> None:
    with recording() as right, ExitStack() as rightly:
        gone = rightly.enter_context(recording())
        with link_to(gone, wrong, right) as link:
            for _ in range(6):
                link.current_reading(age_max_s=-1.0)
            rightly.close()
            link.close()
            for _ in range(6):
                assert is_now(link.current_reading(age_max_s=-1.0))
                link.send_report(report_to)
            assert len(right.reports) == 6 and not wrong.reports


def test_what_is_not_believed_is_no_floor_of_later_ranges(recorder: Recorder) -> None:
    with recording() as ahead, link_to(recorder, ahead) as link:
        ahead.clock = lambda: NOW.now_ms() + CLOCKS_APART_MS_MAX + 10_000
        for _ in range(6):
            assert is_now(link.current_reading(age_max_s=-1.0))
        link.send_report(report_to)
        assert is_now(link.current_reading())


def test_lines_of_now_go_out_with_the_time_of_now(
    host: Host, wrong: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """A service whose clock is hours behind refuses them, and another takes them."""
    caplog.set_level(logging.WARNING)
    wrong.behaviour = lambda one: (
        503 if one.range.observed_at_ms - wrong.clock() > 15 * 60_000 else 200
    )
    with recording() as right:
        host.settings |= {
            "service_urls": [wrong.url, right.url],
            "range_bytes": 1024,
            "report_seconds": 0.1,
        }
        with host.running(lines(500)) as tailer:
            wait_for(
                lambda: right.stored != [] and tailer.take_snapshot().troubles != [],
                "the clock is told",
            )
            told = [trouble.message for trouble in tailer.take_snapshot().troubles]
            wrong.clock = NOW.now_ms
            wait_for(
                lambda: not tailer.take_snapshot().troubles, "it is set right, and that is seen"
            )
        host.drain()
        stored = [*right.stored, *wrong.stored]
        assert sum(len(one.body) for one in stored) == len(lines(500))
        assert all(abs(one.range.observed_at_ms - NOW.now_ms()) < 60_000 for one in stored)
    assert any(
        "ranges are not stamped with its time. Correct its clock" in message for message in told
    )
