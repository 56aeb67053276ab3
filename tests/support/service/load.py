"""Load like tailers': threads that post one range after the other, and what must be true of all
that was acknowledged.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from tests.support.service.live import CLICK, Serving, StockReader, lines, serving
from tests.support.stacks import without_mirror
from tests.support.waiting import wait_for

from hourmark.avro.value_hash import value_hash
from hourmark.config.loading import Config
from hourmark.records.audit import AuditRecord, promises
from hourmark.records.event_id import EventId
from hourmark.records.ranges import ByteRange
from hourmark_infra.stack import LocalStack

LINES = 200
PAUSE_S = 0.05  # between two ranges of a poster: the load is for the service, not for the machine


@contextlib.contextmanager
def served(stack: LocalStack, config: Config, folder: Path, workers: int = 1) -> Iterator[Serving]:
    """A service that gives up after seconds; at the end, whatever a test left dead is started."""
    settings = {
        "HOURMARK_SERVICE__DELIVERY_TIMEOUT_SECONDS": "6",
        "HOURMARK_SERVICE__WORKERS": str(workers),
        "HOURMARK_SERVICE__CREATE_MISSING_TOPICS": "false",  # tests decide when one is there again
    }
    try:
        with serving(stack, config, folder, settings=settings) as started:
            yield started
    finally:
        stack.up(only=without_mirror(stack))


class Poster(threading.Thread):
    """A tailer's manners: one range after the other, each sent again and again until it is
    acknowledged.
    """

    def __init__(self, service: Serving, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._file = f"{seed:024x}{number:08x}"
        self.done = threading.Event()
        self.acked: list[tuple[ByteRange, bytes]] = []
        self.retries = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        offset = 0
        while not self.done.is_set():
            body = lines(range(offset, offset + LINES))
            byte_range = self._service.range_of(body, start=offset, file=self._file)
            while not self._once(byte_range, body):
                self.retries += 1
                time.sleep(0.1)
            self.acked.append((byte_range, body))
            offset += len(body)
            time.sleep(PAUSE_S)

    def _once(self, byte_range: ByteRange, body: bytes) -> bool:
        try:
            answer = self._service.post(byte_range, body, timeout_s=30)
        except httpx.HTTPError:
            return False
        if answer.status_code == 503 and "Retry-After" in answer.headers:
            return False
        if answer.status_code != 200 or answer.json()["events"] != LINES:
            self.wrong.append(answer.text)
        return True


def stop(posters: list[Poster]) -> None:
    for poster in posters:
        poster.done.set()
    for poster in posters:
        poster.join(90)


@contextlib.contextmanager
def loaded(service: Serving) -> Iterator[list[Poster]]:
    """Three of them, until the end of the block."""
    seed = random.randrange(1 << 60)
    print(f"seed {seed}")
    posters = [Poster(service, number, seed) for number in range(3)]
    for poster in posters:
        poster.start()
    try:
        yield posters
    finally:
        stop(posters)


def finish(posters: list[Poster]) -> list[tuple[ByteRange, bytes]]:
    """End the load; what was acknowledged."""
    stop(posters)
    for poster in posters:
        assert not poster.is_alive()
        assert not poster.wrong
    return [acked for poster in posters for acked in poster.acked]


def check_acknowledged(reader: StockReader, acked: list[tuple[ByteRange, bytes]]) -> None:
    """Every acknowledged range has one audit record (retries repeat it), and all ids that it
    promises are in the topic.
    """
    audits: dict[bytes, set[bytes]] = {}
    for seen in reader.records("hourmark.audit"):
        audits.setdefault(seen.key, set()).add(seen.value)
    ids: dict[bytes, set[tuple[EventId, int]]] = {}
    for seen in reader.records(f"events.{CLICK.name}"):
        event_id = EventId(seen.key[:16])
        ids.setdefault(seen.key[16:], set()).add((event_id, value_hash(event_id, seen.value)))
    for byte_range, body in acked:
        range_id = byte_range.range_id(body)
        (value,) = audits[range_id]
        (promise,) = AuditRecord.decode(value[5:]).promised
        assert (
            promise == promises((CLICK.name, promise.hour_start_s, *of) for of in ids[range_id])[0]
        )
        assert promise.count == LINES


def acked_count(posters: list[Poster]) -> int:
    return sum(len(poster.acked) for poster in posters)


def wait_for_acks(posters: list[Poster], more: int, seconds: float = 60) -> None:
    """Wait until that many more ranges are acknowledged."""
    wanted = acked_count(posters) + more
    wait_for(lambda: acked_count(posters) >= wanted, f"{more} more ranges acknowledged", seconds)
