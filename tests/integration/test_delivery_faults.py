"""Brokers and the service itself killed under load: what was acknowledged is there, and nobody restarts anything by hand."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.service.live import CLICK, RUN, Serving, StockReader, apply_types, lines
from tests.support.waiting import wait_for

from hourmark.audit import AuditRecord, promises
from hourmark.config import Config
from hourmark.event_id import EventId
from hourmark.ranges import ByteRange
from hourmark_infra.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.chaos]

LINES = 200


@pytest.fixture
def service(stack: Stack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    revision = apply_types(config, tmp_path / "ledger.sqlite")
    settings = {"HOURMARK_SERVICE__DELIVERY_TIMEOUT_SECONDS": "6"}
    serving = Serving(config_file=stack.layout.config_file, folder=tmp_path, revision=revision, settings=settings)
    try:
        serving.start()
        yield serving
    finally:
        serving.end()
        stack.up()  # whatever a test left dead


class Poster(threading.Thread):
    """A tailer's manners: one range after the other, each sent again and again until it is acknowledged."""

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


@pytest.fixture
def load(service: Serving) -> Iterator[list[Poster]]:
    seed = random.randrange(1 << 60)
    print(f"seed {seed}")
    posters = [Poster(service, number, seed) for number in range(3)]
    for poster in posters:
        poster.start()
    yield posters
    stop(posters)


def finish(posters: list[Poster]) -> list[tuple[ByteRange, bytes]]:
    """End the load; what was acknowledged."""
    stop(posters)
    for poster in posters:
        assert not poster.is_alive()
        assert not poster.wrong
    return [acked for poster in posters for acked in poster.acked]


def check_acknowledged(reader: StockReader, acked: list[tuple[ByteRange, bytes]]) -> None:
    """Every acknowledged range has one audit record (retries repeat it), and all ids that it promises are in the topic."""
    audits: dict[bytes, set[bytes]] = {}
    for seen in reader.records("hourmark.audit"):
        audits.setdefault(seen.key, set()).add(seen.value)
    ids: dict[bytes, set[EventId]] = {}
    for seen in reader.records(f"events.{CLICK.name}"):
        ids.setdefault(seen.key[16:], set()).add(EventId(seen.key[:16]))
    for byte_range, body in acked:
        range_id = byte_range.range_id(body)
        (value,) = audits[range_id]
        (promise,) = AuditRecord.decode(value[5:]).promised
        assert promise == promises((CLICK.name, promise.hour_start_s, i) for i in ids[range_id])[0]
        assert promise.count == LINES


def acked_count(posters: list[Poster]) -> int:
    return sum(len(poster.acked) for poster in posters)


def wait_for_acks(posters: list[Poster], more: int, seconds: float = 60) -> None:
    """Wait until that many more ranges are acknowledged."""
    wanted = acked_count(posters) + more
    wait_for(lambda: acked_count(posters) >= wanted, f"{more} more ranges acknowledged", seconds)


def test_a_leader_killed_under_load_costs_nothing_and_needs_no_restart(
    stack: Stack, config: Config, service: Serving, load: list[Poster]
) -> None:
    """Producers carry on by themselves; no queue is purged, no producer falls into a state that only a restart cures."""
    wait_for_acks(load, 10)
    for broker in stack.brokers:
        stack.kill(broker)
        wait_for_acks(load, 5, 90)
        stack.start(broker)
        stack.wait_ready(broker)
        wait_for_acks(load, 5, 90)
    check_acknowledged(StockReader(config), finish(load))
    assert service.runs()


def test_too_few_in_sync_replicas_mean_503_and_no_ack_until_they_are_back(stack: Stack, config: Config, service: Serving) -> None:
    body = lines(range(LINES))
    byte_range = service.range_of(body, file=f"{RUN:0>32}")
    for broker in stack.brokers[1:]:
        stack.kill(broker)
    answer = service.post(byte_range, body, timeout_s=60)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert httpx.get(service.url + "/healthz", timeout=5).status_code == 200
    assert httpx.get(service.url + "/readyz", timeout=30).status_code == 503
    for broker in stack.brokers[1:]:
        stack.start(broker)
    for broker in stack.brokers[1:]:
        stack.wait_ready(broker)
    wait_for(lambda: service.post(byte_range, body).status_code == 200, "the same process takes the same range", 90)
    assert service.runs()
    check_acknowledged(StockReader(config), [(byte_range, body)])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)], ids=["SIGKILL", "SIGTERM"])
def test_a_service_ended_in_mid_load_makes_the_same_ids_again(
    config: Config, service: Serving, load: list[Poster], number: signal.Signals, code: int
) -> None:
    for _ in range(3):
        wait_for_acks(load, 5)
        assert service.end(number) == code
        service.start()
    wait_for_acks(load, 5)
    acked = finish(load)
    assert sum(poster.retries for poster in load) > 0
    check_acknowledged(StockReader(config), acked)
    ranges = {byte_range.range_id(body) for byte_range, body in acked}
    distinct = {seen.key for seen in StockReader(config).records(f"events.{CLICK.name}") if seen.key[16:] in ranges}
    assert len(distinct) == len(acked) * LINES, "retries made the very same ids"
