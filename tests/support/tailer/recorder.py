"""A small real HTTP server that stands in for the delivery service: it keeps what it is sent, and
misbehaves on demand.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import zstandard
from tests.support.waiting import wait_for

from hourmark.records.host_reports import HostReport, SourceReport
from hourmark.records.ranges import ByteRange
from hourmark.records.wire import (
    CLOCK_HEADER,
    HELLO_PATH,
    RANGES_PATH,
    REPORTS_PATH,
    RULES_HEADER,
    parse_range_headers,
    report_from_json,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Received:
    """One request with a range, as it arrived."""

    number: int
    range: ByteRange
    headers: tuple[tuple[str, str], ...]  # Hourmark's own
    compressed: bytes
    body: bytes


# What to do with a range: an HTTP status, or "drop" (store it and close the connection without an
# answer).
Behaviour = Callable[[Received], int | str]


class Recorder:
    """What was received, and how to answer."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.stored: list[Received] = []  # those that were acknowledged, or dropped after storing
        self.reports: list[HostReport] = []
        self.requests: list[str] = []  # paths, in order of arrival
        self.behaviour: Behaviour = lambda _: 200
        self.acknowledged_end: Callable[[Received], int] = lambda one: one.range.end
        self.reasons: Callable[[Received], dict[str, int]] = lambda _: {}  # of dead letters
        self.on_report: Callable[[HostReport], object] = lambda _: None
        self.report_status = 200
        self.refuses_unknown = False  # as versions before `unknown_losses`
        self.rules = "rules-1"
        self.retry_after = "0"
        self.problem: dict[str, object] = {}  # of answers to ranges that are not taken
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self.lock = threading.Lock()
        self.url = ""

    def take(self, received: Received) -> int | str:
        answer = self.behaviour(received)
        with self.lock:
            if answer in (200, "drop"):
                self.stored.append(received)
        return answer

    def contents(self) -> dict[tuple[str, int], bytes]:
        """Bytes by (file id, generation); asserts that they are without gap, and that a range sent
        twice was the same.
        """
        with self.lock:
            requests = list(self.received)
        first: dict[tuple[str, int, int], Received] = {}
        for one in requests:
            key = (one.range.file_id, one.range.generation, one.range.start)
            known = first.setdefault(key, one)
            assert (known.headers, known.compressed) == (one.headers, one.compressed), (
                f"a retry differs: {key}"
            )
        whole: dict[tuple[str, int], bytes] = {}
        for (file_id, generation, start), one in sorted(first.items()):
            before = whole.get((file_id, generation), b"")
            assert len(before) == start, (
                f"a gap or overlap in {file_id} at {start}: {len(before)} bytes before it"
            )
            whole[file_id, generation] = before + one.body
        return whole

    def sent(self) -> list[bytes]:
        """All lines that were stored, sorted, wherever their files begin; of a range that was
        stored again, once.
        """
        with self.lock:
            stored = list(self.stored)
        return sorted(b"".join(_by_place(stored).values()).splitlines(keepends=True))

    def files(self) -> list[bytes]:
        """All contents, sorted."""
        return sorted(self.contents().values())

    def text(self) -> bytes:
        """All contents, in no particular order."""
        return b"".join(self.contents().values())

    @property
    def last(self) -> SourceReport:
        """What was reported last of the first source."""
        return self.reports[-1].sources[0]

    def wait_stored(self, count: int) -> None:
        """Until exactly so many ranges are stored."""
        wait_for(lambda: len(self.stored) == count, f"{count} ranges stored")

    def wait_received(self, count: int) -> None:
        """Until so many requests have come, or more."""
        wait_for(lambda: len(self.received) >= count, f"{count} requests received")

    def wait_text(self, content: bytes) -> None:
        """Until there is as much as this."""
        self.wait_size(len(content))

    def wait_size(self, size: int) -> None:
        """Until there are so many bytes; until then ranges may be missing, as they arrive in any
        order.
        """
        wait_for(lambda: self._size() == size, "all lines")
        assert len(self.text()) == size

    def _size(self) -> int:
        with self.lock:
            received = list(self.received)
        return sum(map(len, _by_place(received).values()))


def _by_place(received: list[Received]) -> dict[tuple[str, int, int], bytes]:
    return {
        (one.range.file_id, one.range.generation, one.range.start): one.body for one in received
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.recorder.requests.append(self.path)
        self._answer(200 if self.path == HELLO_PATH else 404, {})

    def do_POST(self) -> None:
        recorder = self.server.recorder
        size = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(size)
        if len(body) < size:  # killed while it was sending
            self.close_connection = True
            return
        recorder.requests.append(self.path)
        if self.path == REPORTS_PATH:
            status = (
                400
                if recorder.refuses_unknown
                and (b"unknown_losses" in body or b"unrepeatable" in body)
                else recorder.report_status
            )
            if status == 200:
                report = report_from_json(body)
                recorder.on_report(report)
                recorder.reports.append(report.stamped(recorder.clock()))
            self._answer(status, {})
        elif self.path == RANGES_PATH:
            self._range(body)
        else:
            self._answer(404, {"error": "no such path"})

    def _range(self, compressed: bytes) -> None:
        assert self.headers["Content-Encoding"] == "zstd"
        byte_range = parse_range_headers(cast(Mapping[str, str], self.headers))  # case-insensitive
        body = zstandard.ZstdDecompressor().decompress(compressed)
        assert len(body) == byte_range.end - byte_range.start
        headers = tuple(
            sorted(
                (name, value)
                for name, value in self.headers.items()
                if name.startswith("Hourmark-")
            )
        )
        recorder = self.server.recorder
        with recorder.lock:
            received = Received(
                number=len(recorder.received),
                range=byte_range,
                headers=headers,
                compressed=compressed,
                body=body,
            )
            recorder.received.append(received)
        answer = recorder.take(received)
        if answer == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        assert isinstance(answer, int)
        reasons = recorder.reasons(received)
        dead = sum(reasons.values())
        counts = {
            "events": body.count(b"\n") - dead,
            "dead_letters": dead,
            "blanks": 0,
            "dead_letter_reasons": reasons,
        }
        taken = {"end": recorder.acknowledged_end(received), **counts}
        self._answer(answer, taken if answer == 200 else {**taken, **recorder.problem})

    def _answer(self, status: int, fields: dict[str, object]) -> None:
        content = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header(CLOCK_HEADER, str(self.server.recorder.clock()))
        if self.server.recorder.rules:
            self.send_header(RULES_HEADER, self.server.recorder.rules)
        if status == 503:
            self.send_header("Retry-After", self.server.recorder.retry_after)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, recorder: Recorder, port: int) -> None:
        self.recorder = recorder
        self.errors: list[BaseException] = []
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        import sys

        error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.errors.append(error)


@contextmanager
def recording(recorder: Recorder | None = None, port: int = 0) -> Iterator[Recorder]:
    """A running recorder; what it asserts about requests is raised at the end."""
    recorder = recorder or Recorder()
    server = _Server(recorder, port)
    recorder.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    if server.errors:
        raise server.errors[0]
