"""The tailer against the real delivery service, whose queue is in memory: the contract between them, over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from tests.support.service.harness import Harness
from tests.support.tailer.host import Host
from tests.support.waiting import wait_for

from hourmark.host_reports import HostReport
from hourmark.topics import HOSTS
from hourmark_delivery_service.app import create_app


@contextmanager
def serving(harness: Harness) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(harness.service), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "the service listens")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def test_every_line_but_a_blank_one_becomes_an_event_or_a_dead_letter(tmp_path: Path) -> None:
    harness = Harness()
    lines = [
        b"no structure at all",
        b"",
        b"\xff\xfe\0",
        b"m" * 1_000_000,
        b"crlf\r",
        b"2026-01-01T00:00:00Z something",
        *(b"line %d" % n for n in range(20_000)),
    ]
    with serving(harness) as url:
        host = Host(tmp_path, url)
        host.append(b"".join(line + b"\n" for line in lines) + b"unterminated")
        summary = host.drain()
        host.append(b" no more\n" + b"L" * (5 << 20) + b"\n")
        again = host.drain()
    assert summary.events + summary.dead_letters == len(lines) - 1, "each but the blank one"
    assert (summary.goodbye, summary.lost_bytes, summary.pending_bytes) == (True, 0, len(b"unterminated"))
    assert again.events + again.dead_letters == 3, "a line, and two pieces of one that is too long"
    reports = [HostReport.decode(record.value[5:]) for record in harness.queue.of(HOSTS)]
    assert reports[-1].goodbye and reports[-1].sources[0].caught_up_at_ms == harness.clock.now_ms()
