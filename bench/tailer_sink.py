"""A delivery service that discards all data, in its own process, so that only the tailer is
measured.

Its response time and outages can be set. Request bodies are counted by their length only.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from hourmark.records.wire import CLOCK_HEADER, RANGES_PATH, RULES_HEADER

_HEAD_BYTES_MAX = 1 << 16


class Sink:
    """A running service process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        self.url: str = self._pipe.recv()

    def told(self) -> dict[str, int]:
        """Return its counts: acknowledged `bytes` and `ranges`, `reports`, and ranges `refused` in
        an outage.
        """
        return self._ask("told")

    def outage(self, *, ended: bool = False) -> None:
        """Answer ranges with status 503 from now on, or no longer if `ended`."""
        self._ask("up" if ended else "down")

    def delay(self, seconds: float) -> None:
        """Delay the answer to each range by `seconds`."""
        self._ask(f"delay {seconds}")

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()

    def _ask(self, what: str) -> dict[str, int]:
        self._pipe.send(what)
        answer: dict[str, int] = self._pipe.recv()
        return answer


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen = {"bytes": 0, "ranges": 0, "reports": 0, "refused": 0}
        self.is_down = False
        self.delay_s = 0.0


def _serve(pipe: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    state = _State()
    threading.Thread(target=_accept, args=(listener, state), daemon=True).start()
    pipe.send(f"http://127.0.0.1:{listener.getsockname()[1]}")
    while True:
        asked = pipe.recv()
        if asked in ("up", "down"):
            state.is_down = asked == "down"
        elif asked.startswith("delay "):
            state.delay_s = float(asked.split()[1])
        with state.lock:
            pipe.send(dict(state.seen))


def _accept(listener: socket.socket, state: _State) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer_all, args=(connection, state), daemon=True).start()


def _answer_all(connection: socket.socket, state: _State) -> None:
    with connection, connection.makefile("rb", buffering=1 << 16) as requests:
        while line := requests.readline(_HEAD_BYTES_MAX):
            headers = dict(_headers(requests))
            left = int(headers.get("content-length", 0))
            while left:
                left -= len(requests.read(min(left, 1 << 16)))
            path = line.split()[1].decode()
            connection.sendall(_answer(path, headers, state))


def _headers(requests: Any) -> Any:
    while (line := requests.readline(_HEAD_BYTES_MAX).strip()) != b"":
        name, _, value = line.decode().partition(":")
        yield name.lower(), value.strip()


def _answer(path: str, headers: dict[str, str], state: _State) -> bytes:
    status, fields = 200, dict[str, int]()
    with state.lock:
        if path != RANGES_PATH:
            state.seen["reports"] += 1
        elif state.is_down:
            status = 503
            state.seen["refused"] += 1
        else:
            start, end = (int(headers[f"hourmark-{name}"]) for name in ("offset", "end"))
            fields = {"end": end, "events": 0, "dead_letters": 0}
            state.seen["bytes"] += end - start
            state.seen["ranges"] += 1
    if path == RANGES_PATH and state.delay_s:
        time.sleep(state.delay_s)
    body = json.dumps(fields).encode()
    clock = time.time_ns() // 1_000_000
    head = (
        f"HTTP/1.1 {status} -\r\n{CLOCK_HEADER}: {clock}\r\n{RULES_HEADER}: "
        f"bench\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
