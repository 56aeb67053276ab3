"""Ranges are as large as services take them in good time."""

from __future__ import annotations

import threading

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Received, Recorder
from tests.support.waiting import wait_for

from hourmark_producer.cut.lines import RangeLimits
from hourmark_producer.cut.range_sizes import QUICK_S, SLOW_S, AdaptiveRangeLimits

MOST = RangeLimits(800_000, 4_000_000)


@pytest.fixture
def sizes() -> AdaptiveRangeLimits:
    return AdaptiveRangeLimits(MOST, 65_536)


def test_they_begin_as_large_as_they_may_be_and_no_quick_answer_makes_them_larger(
    sizes: AdaptiveRangeLimits,
) -> None:
    sizes.record_acknowledged(800_000, 0.01)
    assert sizes.limits == MOST


def test_a_slow_answer_halves_what_it_was_for_and_those_of_one_moment_count_once(
    sizes: AdaptiveRangeLimits,
) -> None:
    for _ in range(8):
        sizes.record_acknowledged(800_000, SLOW_S + 1)
    assert sizes.limits == RangeLimits(400_000, 4_000_000)
    sizes.record_acknowledged(400_000, SLOW_S + 1)
    assert sizes.limits.range_bytes == 200_000


def test_a_failure_says_nothing_about_sizes_unless_it_took_long(sizes: AdaptiveRangeLimits) -> None:
    sizes.record_failure(800_000, 0.01)
    assert sizes.limits == MOST
    sizes.record_failure(800_000, SLOW_S + 1)
    assert sizes.limits.range_bytes == 400_000
    sizes.record_failure(400_000, 0.01)
    assert sizes.limits.range_bytes == 400_000


def test_they_are_never_smaller_than_the_least(sizes: AdaptiveRangeLimits) -> None:
    for _ in range(20):
        sizes.record_too_large(sizes.limits.range_bytes)
    assert sizes.limits.range_bytes == 65_536
    assert AdaptiveRangeLimits(RangeLimits(1024, 4096), 65_536).limits.range_bytes == 1024


def test_quick_answers_let_them_grow_again_but_not_those_of_small_ranges(
    sizes: AdaptiveRangeLimits,
) -> None:
    sizes.record_acknowledged(800_000, SLOW_S + 1)
    sizes.record_acknowledged(100, 0.01)
    sizes.record_acknowledged(400_000, (SLOW_S + QUICK_S) / 2)
    assert sizes.limits.range_bytes == 400_000
    sizes.record_acknowledged(400_000, 0.01)
    assert sizes.limits == MOST


def test_they_do_not_grow_to_what_was_too_large_until_that_is_taken(
    sizes: AdaptiveRangeLimits,
) -> None:
    sizes.record_too_large(700_000)
    for _ in range(5):
        sizes.record_acknowledged(sizes.limits.range_bytes, 0.01)
    assert sizes.limits.range_bytes == 350_000
    sizes.record_acknowledged(700_000, 0.01)
    assert sizes.limits.range_bytes == 700_000


def test_what_was_cut_stays_as_it_is_and_what_follows_is_smaller(
    host: Host, recorder: Recorder
) -> None:
    """The service's limit was lowered below what the tailer makes."""
    raised = threading.Event()

    def limited(one: Received) -> int:
        return 200 if raised.is_set() or one.range.end - one.range.start <= 4096 else 413

    recorder.behaviour = limited
    host.settings |= {"range_bytes": 8192, "range_bytes_min": 1024}
    with host.running(lines(1000)):
        recorder.wait_received(2)  # so the first was answered
        host.append(lines(500, 5000), host.logs / "app.log.other")
        wait_for(
            lambda: sum(len(one.body) for one in recorder.stored) == len(lines(500)),
            "the other file goes on",
        )
        raised.set()
        recorder.wait_size(len(lines(1500)))
    assert recorder.files() == sorted([lines(1000), lines(500, 5000)]), (
        "`contents` asserts that retries are the same"
    )
