"""Syslog over UDP: what arrives is delivered, and what is lost is counted by whoever dropped it."""

from __future__ import annotations

import socket
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.syslog_senders import address, receives
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.errors import ConfigError
from hourmark_producer.receive import sockets, spools
from hourmark_producer.receive.receiver import ReadCallback, SourceReceiver
from hourmark_producer.tailer import Tailer

UDP = "syslog+udp://127.0.0.1:0"


def send(tailer: Tailer, content: bytes) -> None:
    """Each line a datagram; no faster than they are read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(address(tailer))
        for number, line in enumerate(content.splitlines()):
            sender.send(line)
            if number % 100 == 99:
                assert (
                    tailer.receivers.receivers["app"].wait_until_written(20)
                    or tailer.receivers.receivers["app"].is_paused
                )


def test_datagrams_are_delivered_as_lines(host: Host, recorder: Recorder) -> None:
    receives(host, UDP)
    with host.running() as tailer:
        send(tailer, lines(2000))
        recorder.wait_text(lines(2000))
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is acknowledged")
    assert (
        recorder.text() == lines(2000)
        and recorder.last.unknown_losses == recorder.last.lost_bytes == 0
    )


def test_what_comes_while_there_is_no_room_is_counted_in_bytes_and_later_ones_are_delivered(
    host: Host, recorder: Recorder
) -> None:
    receives(host, UDP, spool={"bytes_max": 1 << 16})
    recorder.behaviour = lambda _: 503
    line = len(lines(1))
    with host.running() as tailer:
        receiver = tailer.receivers.receivers["app"]
        send(tailer, lines(8000))
        wait_for(lambda: receiver.is_paused, "it is full")
        wait_for(
            lambda: (
                recorder.last.pending_bytes + recorder.last.lost_bytes // (line - 1) * line
                == 8000 * line
            ),
            "it is counted",
        )
        assert recorder.last.lost_bytes > 0
        recorder.behaviour = lambda _: 200
        wait_for(lambda: not receiver.is_paused, "there is room")
        send(tailer, lines(1, 9000))
        wait_for(lambda: lines(1, 9000) in recorder.text(), "it goes on")
        wait_for(
            lambda: recorder.last.pending_bytes == 0, "segments before it are acknowledged too"
        )
    lost = recorder.last.lost_bytes // (line - 1)
    assert len(recorder.text()) == (8001 - lost) * line, "what is not counted is there"
    assert recorder.last.unknown_losses == 0


def test_a_start_after_the_first_says_that_nobody_listened_in_between(
    host: Host, recorder: Recorder
) -> None:
    receives(host, UDP)
    for unknown in (0, 1, 2):
        with host.running():
            before = len(recorder.reports)
            wait_for(lambda: len(recorder.reports) > before + 1, "reports")  # noqa: B023
            wait_for(lambda: recorder.last.unknown_losses == unknown, "it is said")  # noqa: B023


def test_that_somebody_listens_is_on_disk_before_anything_can_arrive(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had arrived when the first run was killed is an unknown loss, however early that was."""
    receives(host, UDP)
    marked, listen = list[bool](), sockets.SyslogDatagramInput.open

    def listen_noted(receiving: sockets.SyslogDatagramInput, receiver: SourceReceiver) -> None:
        marked.append(receiver.segments.was_left_open())
        listen(receiving, receiver)

    monkeypatch.setattr(sockets.SyslogDatagramInput, "open", listen_noted)
    with host.running():
        wait_for(lambda: bool(recorder.reports), "it is at work")
    assert marked == [True] and recorder.last.unknown_losses == 0


def test_a_run_that_could_not_listen_has_lost_nothing(host: Host, recorder: Recorder) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        receives(host, f"syslog+udp://127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(ConfigError), host.running():
            pass
    assert host.drain().unknown_losses == 0


def test_a_drain_says_that_nobody_listened_since_the_run_before(
    host: Host, recorder: Recorder
) -> None:
    receives(host, UDP)
    assert host.drain().unknown_losses == 0, "nobody ever listened"
    with host.running():
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it is caught up",
        )
    assert host.drain().unknown_losses == recorder.last.unknown_losses == 1


def test_what_the_kernel_dropped_is_counted_to_the_datagram() -> None:
    told: dict[str, Any] = {"unknown": 0, "lines": 0}

    def add(what: str, *, lost_bytes: int = 0, unknown: int = 0) -> None:
        assert "dropped by the kernel" in what and not lost_bytes
        told["unknown"] += unknown

    def receive(line: bytes) -> None:
        told["lines"] += 1

    callbacks: list[ReadCallback] = []
    receiver = SimpleNamespace(
        source="app",
        watch=lambda _, callback: callbacks.append(callback),
        unwatch=lambda _: None,
        losses=SimpleNamespace(add=add),
        is_paused=False,
        receive=receive,
    )
    receiving = sockets.SyslogDatagramInput(("127.0.0.1", 0), 1000, kernel_bytes=1 << 14)
    receiving.open(receiver)  # type: ignore[arg-type]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(receiving.address)
            for _ in range(500):
                sender.send(b"x" * 200)
            callbacks[0].read()
            sender.send(b"the one that tells")
            callbacks[0].read()
    finally:
        receiving.close()
    assert told["unknown"] > 0 and told["unknown"] + told["lines"] == 501


def test_drops_at_the_end_of_a_burst_are_reported_before_the_source_is_caught_up(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No datagram comes after them that could tell of them."""
    small = partial(sockets.SyslogDatagramInput, kernel_bytes=1 << 14)
    monkeypatch.setattr(spools, "SyslogDatagramInput", small)
    receives(host, UDP)
    with host.running() as tailer:
        to = address(tailer)
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it listens, and is caught up",
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(to)
            for _ in range(20_000):
                sender.send(b"x" * 1000)
        sent_ms = time.time_ns() // 1_000_000
        wait_for(
            lambda: (recorder.last.caught_up_at_ms or 0) > sent_ms,
            "it is caught up after the burst",
            60,
        )
        came = recorder.text().count(b"\n")
        assert came < 20_000, "the kernel dropped some, else this test shows nothing"
        assert recorder.last.unknown_losses == 20_000 - came
