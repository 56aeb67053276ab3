"""Progress messages: what is awaited is repeated while nothing else is reported."""

from __future__ import annotations

import time
from itertools import pairwise

from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark_infra.running.progress import RunProgress


def test_a_message_has_the_seconds_since_the_start() -> None:
    clock, said = FakeClock(), list[str]()
    progress = RunProgress(said.append, clock)
    clock.sleep(12.25)
    progress.report("a step")
    assert said == ["[   12 s] a step"] and progress.elapsed_s == 12.25


def test_what_is_awaited_is_repeated_until_it_ended() -> None:
    said, times_s = list[str](), list[float]()

    def report(message: str) -> None:
        said.append(message.partition("] ")[2])
        times_s.append(time.monotonic())

    progress = RunProgress(report, SystemClock(), silence_s=0.1)
    with progress.awaiting("servers to start"):
        wait_for(lambda: len(said) == 3, "it is repeated")
        with progress.awaiting("one of them"):
            wait_for(lambda: len(said) == 4, "the inner one is named")
        wait_for(lambda: len(said) == 5, "and then the outer one again")
    count = len(said)
    assert said[:3] == ["waiting for servers to start"] * 3
    assert said[3] == "waiting for one of them" and said[4] == "waiting for servers to start"
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(times_s))
    time.sleep(0.3)
    assert len(said) == count, "nothing is awaited any more"


def test_details_are_read_again_for_each_message() -> None:
    said, details = list[str](), iter(["a: starts", "", "b: starts"])
    progress = RunProgress(said.append, SystemClock(), silence_s=0.05)
    with progress.awaiting("servers", lambda: next(details, "")):
        wait_for(lambda: len(said) >= 3, "it is repeated")
    assert [message.partition("] ")[2] for message in said[:3]] == [
        "waiting for servers (a: starts)",
        "waiting for servers",
        "waiting for servers (b: starts)",
    ]


def test_other_messages_are_no_silence_and_a_new_text_is_reported_at_once() -> None:
    said = list[str]()
    progress = RunProgress(said.append, FakeClock(), silence_s=0.01)
    with progress.awaiting("x") as replace:
        replace("x")
        replace("y")
        replace("y")
        time.sleep(0.05)
    assert said == ["[    0 s] waiting for y"], "the clock stands still: there was no silence"
