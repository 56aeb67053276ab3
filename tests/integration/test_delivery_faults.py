"""Brokers and the service itself killed under load: what was acknowledged is there, and nobody
restarts anything by hand.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.http_client import HTTP
from tests.support.service.live import CLICK, RUN, Serving, StockReader, lines
from tests.support.service.load import (
    LINES,
    Poster,
    check_acknowledged,
    finish,
    loaded,
    served,
    wait_for_acks,
)
from tests.support.waiting import wait_for

from hourmark.config.loading import Config
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.chaos]


@pytest.fixture
def service(stack: LocalStack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    with served(stack, config, tmp_path) as serving:
        yield serving


@pytest.fixture
def load(service: Serving) -> Iterator[list[Poster]]:
    with loaded(service) as posters:
        yield posters


def test_a_leader_killed_under_load_costs_nothing_and_needs_no_restart(
    stack: LocalStack, config: Config, service: Serving, load: list[Poster]
) -> None:
    """Producers carry on by themselves; no queue is purged, no producer falls into a state that
    only a restart cures.
    """
    wait_for_acks(load, 10)
    for broker in stack.brokers:
        stack.kill(broker)
        wait_for_acks(load, 5, 90)
        stack.start(broker)
        stack.wait_ready(broker)
        wait_for_acks(load, 5, 90)
    check_acknowledged(StockReader(config), finish(load))
    assert service.runs()


def test_too_few_in_sync_replicas_mean_503_and_no_ack_until_they_are_back(
    stack: LocalStack, config: Config, service: Serving
) -> None:
    body = lines(range(LINES))
    byte_range = service.range_of(body, file=f"{RUN:0>32}")
    for broker in stack.brokers[1:]:
        stack.kill(broker)
    answer = service.post(byte_range, body, timeout_s=60)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert HTTP.get(service.url + "/healthz", timeout=5).status_code == 200
    assert HTTP.get(service.url + "/readyz", timeout=30).status_code == 503
    for broker in stack.brokers[1:]:
        stack.start(broker)
    for broker in stack.brokers[1:]:
        stack.wait_ready(broker)
    wait_for(
        lambda: service.post(byte_range, body).status_code == 200,
        "the same process takes the same range",
        90,
    )
    assert service.runs()
    check_acknowledged(StockReader(config), [(byte_range, body)])


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGKILL, -9, id="SIGKILL"),
        pytest.param(signal.SIGTERM, 0, id="SIGTERM", marks=pytest.mark.long),
    ],
)
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
    distinct = {
        seen.key
        for seen in StockReader(config).records(f"events.{CLICK.name}")
        if seen.key[16:] in ranges
    }
    assert len(distinct) == len(acked) * LINES, "retries made the very same ids"
