"""Syslog over TCP where descriptors run out."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from pathlib import Path

from tests.support.syslog_senders import address, connect, receives
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark_producer.tailer import Tailer


def test_a_listener_without_descriptors_does_not_spin_and_accepts_again_later(
    host: Host, recorder: Recorder
) -> None:
    receives(host, "syslog+tcp://127.0.0.1:0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with host.running() as tailer:
        address(tailer)
        wait_for(
            lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None,
            "it is at work",
        )
        sender = connect(tailer)
        sender.sendall(lines(1))
        wait_for(lambda: len(recorder.sent()) == 1, "the first")
        another, fillers = connect_with_the_last_descriptors(tailer, hard)
        try:
            wait_for(
                lambda: any(
                    "cannot accept a connection" in one.message
                    for one in tailer.take_snapshot().troubles
                ),
                "it reports that it cannot accept",
            )
            cpu_s, began_s = receiver_cpu_s("app"), time.monotonic()
            wait_for(lambda: time.monotonic() - began_s > 1.0, "a while")
            assert receiver_cpu_s("app") - cpu_s < 0.2 * (time.monotonic() - began_s), (
                "it does not spin"
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for filler in fillers:
                os.close(filler)
        another.sendall(lines(1, 1))
        wait_for(lambda: len(recorder.sent()) == 2, "it accepts again", 20)
        sender.close()
        another.close()


def receiver_cpu_s(source: str) -> float:
    """CPU of the thread that receives for this source, in seconds; others may be busy."""
    (thread,) = (one for one in threading.enumerate() if one.name == f"spool {source}")
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def connect_with_the_last_descriptors(tailer: Tailer, hard: int) -> tuple[socket.socket, list[int]]:
    """A connection that this process has no descriptor left to accept."""
    limit = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
    lowest = os.open(os.devnull, os.O_RDONLY)
    fillers = []
    while lowest < limit:
        fillers.append(lowest)
        lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit + 1, hard))  # one: the sender's own
    made = connect(tailer)
    return made, fillers
