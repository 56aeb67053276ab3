"""Progress messages: what is awaited is repeated while nothing else is reported."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark_infra.running import run
from hourmark_infra.running.progress import RunProgress
from hourmark_infra.stack.control import LocalStack


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


def test_nested_waits_share_one_thread() -> None:
    progress = RunProgress(list[str]().append, SystemClock())
    before = threading.active_count()
    with progress.awaiting("x"), progress.awaiting("y"), progress.awaiting("z"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


class QuickClock(SystemClock):
    """A clock that is a hundred times as fast."""

    def monotonic_s(self) -> float:
        return super().monotonic_s() * 100


def test_the_start_of_a_run_is_never_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading declarations, the search for Java and the lock of the stack have no wait of their
    own, or had none.
    """
    said = list[str]()

    def is_reported(*_: object, **__: object) -> Config:
        count = len(said)
        wait_for(lambda: len(said) > count, "the step is reported")
        return Config()

    def ends(*_: object, **__: object) -> None:
        is_reported()
        raise Unavailable("no stack")

    monkeypatch.setattr(run, "read_declarations", is_reported)
    monkeypatch.setattr(run, "export_java_home", is_reported)
    monkeypatch.setattr(LocalStack, "load_or_create", ends)
    (tmp_path / "hourmark.toml").touch()
    made = run.Run(tmp_path, tmp_path / "hourmark.toml", QuickClock(), said.append)
    for begin in (made.run_once, made.run_until_stopped):
        with pytest.raises(Unavailable, match="no stack"):
            begin()
    assert any("waiting for Java" in message for message in said)
