"""A topic that cannot take records blocks the ranges with lines of its type, and nothing else."""

from __future__ import annotations

import time

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Received, Recorder, recording
from tests.support.waiting import wait_for

from hourmark_producer.report.status import read_status

MISSING = "topic events.click does not exist; `hourmark types apply` creates it"


@pytest.fixture
def no_topic(recorder: Recorder) -> Recorder:
    """A service that lacks the topic of the lines that hold `click`. Clients may not come back for
    half a minute, as a service without this code would be asked.
    """
    recorder.retry_after = "30"
    recorder.problem = {
        "code": "topic_unavailable",
        "detail": f"nothing was acknowledged: {MISSING}",
        "next_step": "send the same request again",
    }
    recorder.behaviour = lambda one: 503 if b"click" in one.body else 200
    return recorder


def blocked(host: Host, count: int) -> None:
    for number in range(count):
        host.append(b"click %d\n" % number, host.logs / f"app.log.{number}")


def test_other_files_of_the_source_are_sent_at_once(host: Host, no_topic: Recorder) -> None:
    blocked(host, 20)  # more than there are senders
    with host.running():
        no_topic.wait_received(20)
        host.append(lines(10), host.logs / "app.log.good")
        began_s = time.monotonic()
        wait_for(
            lambda: no_topic.sent() == sorted(lines(10).splitlines(True)), "the other file", 10
        )
        assert time.monotonic() - began_s < 5
        (service,) = read_status(host.state, ["app"]).standing.services  # type: ignore[union-attr]
        assert service.failing_seconds is None, "the service itself is well"


def test_the_blocked_range_is_sent_again_unchanged_once_the_topic_is_there(
    host: Host, no_topic: Recorder
) -> None:
    blocked(host, 3)
    with host.running():
        no_topic.wait_received(9)
        no_topic.behaviour = lambda _: 200
        began_s = time.monotonic()
        wait_for(lambda: len(no_topic.stored) == 3, "all that was blocked", 10)
        assert time.monotonic() - began_s < 6
    assert len(no_topic.contents()) == 3, "which compares retries byte by byte"


def test_status_names_the_topic_and_the_command_while_it_lasts(
    host: Host, no_topic: Recorder
) -> None:
    def told() -> list[str]:
        return [line for line in read_status(host.state, ["app"]).attention if "click" in line]

    blocked(host, 2)
    with host.running():
        wait_for(lambda: bool(told()), "the status names it", 20)
        (line,) = told()
        assert MISSING in line
        assert "other files continue" in line
        no_topic.behaviour = lambda _: 200
        wait_for(lambda: not told(), "it is over once the ranges are acknowledged", 20)


def test_a_small_file_that_is_sent_with_others_does_not_hold_them(
    host: Host, no_topic: Recorder
) -> None:
    for number in range(200):
        path = host.logs / f"app.log.{number}"
        host.append(b"click\n" if number % 10 == 0 else b"line %d\n" % number, path)
    with host.running():
        wait_for(lambda: len(no_topic.stored) == 180, "all others", 15)


def test_one_service_is_enough_where_another_has_the_topic(host: Host, no_topic: Recorder) -> None:
    with recording() as other:
        host.settings["service_urls"] = [no_topic.url, other.url]
        blocked(host, 4)
        host.once()
        assert len(other.stored) + len(no_topic.stored) == 4
        assert {one.body for one in other.stored} == {b"click %d\n" % n for n in range(4)}


def test_a_drain_sends_the_rest_and_names_what_blocks_it(
    host: Host, no_topic: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    blocked(host, 2)
    host.append(lines(5), host.logs / "app.log.good")

    def heal_later(one: Received) -> int:
        return 503 if b"click" in one.body and one.number < 12 else 200

    no_topic.behaviour = heal_later
    summary = host.drain()
    assert summary.events == 7
    assert MISSING in caplog.text
