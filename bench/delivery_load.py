"""Load generator of the delivery benchmark: ranges of RFC 5424 lines with JSON, sent over plain
HTTP.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import zstandard

from hourmark.records.ranges import ByteRange
from hourmark.records.wire import range_headers
from hourmark.rules.event_types import EventType

RANGE_BYTES = 512 * 1024  # the tailer's own default
_RETRY_S = 0.05


@dataclasses.dataclass(frozen=True)
class Posting:
    """A range to send and its number of events."""

    byte_range: ByteRange
    body: bytes  # plain
    packed: bytes
    events: int


def event_type(name: str) -> EventType:
    """Return an event type with four fields of common types."""
    fields = [
        {"name": "page", "type": "string"},
        {"name": "ms", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "agent", "type": "string"},
    ]
    return EventType(name=name, fields=fields)


def postings(
    name: str,
    source: str,
    revision: str,
    *,
    line_bytes: int,
    count: int,
    range_bytes: int,
    file: int,
) -> list[Posting]:
    """Return consecutive ranges of one file.

    Args:
        name: Event type.
        source: Source of the ranges.
        revision: Rules revision of the ranges.
        line_bytes: Length of each line in bytes, including the line feed.
        count: Total number of lines.
        range_bytes: Maximum length of a range in bytes.
        file: Number of the file.
    """
    compressor = zstandard.ZstdCompressor(level=3)  # the tailer's
    now_ms = time.time_ns() // 1_000_000
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    made, offset, lines, size = [], 0, [], 0
    for number in range(count):
        lines.append(_line(name, stamp, number, line_bytes))
        size += line_bytes
        if size + line_bytes > range_bytes or number == count - 1:
            body = b"".join(lines)
            byte_range = ByteRange(
                host_id="ab" * 16,
                file_id=f"{file:032x}",
                generation=0,
                start=offset,
                end=offset + len(body),
                observed_at_ms=now_ms,
                rules=revision,
                zone="UTC",
                source=source,
                path="/var/log/app.log",
                host_name="web-1",
            )
            made.append(Posting(byte_range, body, compressor.compress(body), len(lines)))
            offset, lines, size = offset + len(body), [], 0
    return made


def _line(name: str, stamp: str, number: int, size: int) -> bytes:
    event = {
        "page": f"/p/{number % 97}",
        "ms": number * 7919 % 1000,
        "user": f"u-{number * 48271 % 99991}",
        "agent": "",
    }
    head = f"<134>1 {stamp}.{number % 1000:03}Z web-1 a - {name} - "
    room = size - 1 - len(head) - len(json.dumps(event, separators=(",", ":")))
    assert room >= 0, f"a line of {size} bytes has no room for its event"
    event["agent"] = (f"{number * 2654435761 % 2**32:08x}" * (room // 8 + 1))[:room]
    return f"{head}{json.dumps(event, separators=(',', ':'))}\n".encode()


@dataclasses.dataclass
class Sent:
    """The result of sending ranges.

    Attributes:
        latencies_s: Seconds from a request's first byte to its acknowledgement, one for each range.
        waits: Number of responses that asked the client to wait.
    """

    latencies_s: list[float] = dataclasses.field(default_factory=list)
    waits: int = 0
    events: int = 0


def send(url: str, ranges: Sequence[Posting], connections: int, *, per_second: float = 0) -> Sent:
    """Send ranges until all are acknowledged.

    Args:
        url: Base URL of the service.
        ranges: Ranges to send; each is sent again until it is acknowledged.
        connections: Number of parallel connections.
        per_second: Maximum events per second; 0 for no limit.
    """
    sent, guard, left = Sent(), threading.Lock(), iter(ranges)
    began = time.monotonic()
    threads = [
        threading.Thread(target=_sender, args=(url, left, guard, sent, began, per_second))
        for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent.latencies_s) == len(ranges), "a sender has failed, see above"
    return sent


def _sender(
    url: str,
    left: Iterator[Posting],
    guard: threading.Lock,
    sent: Sent,
    began: float,
    per_second: float,
) -> None:
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=120)
    while True:
        with guard:
            posting = next(left, None)
            if posting is None:
                return
            due = began + sent.events / per_second if per_second else 0.0
            sent.events += posting.events
        time.sleep(max(0.0, due - time.monotonic()))
        started = time.monotonic()
        while (status := _post(connection, posting)) != 200:
            assert status == 503, f"answered {status}"
            with guard:
                sent.waits += 1
            time.sleep(_RETRY_S)
        with guard:
            sent.latencies_s.append(time.monotonic() - started)


def _post(connection: http.client.HTTPConnection, posting: Posting) -> int:
    headers = {**range_headers(posting.byte_range), "Content-Encoding": "zstd"}
    connection.request("POST", "/v1/ranges", posting.packed, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status
