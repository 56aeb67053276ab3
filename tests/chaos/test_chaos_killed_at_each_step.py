"""The driver, or a Python worker, is killed at each step of staging and closing, before it and after it; then started again.

Each kill has an hour of its own in one run: its events come twice and cut anew, some are late. After the restart everything
closes, every promised event stands in exactly one bucket, and no bucket that stood before has changed. About three minutes:

    .venv/bin/python -m pytest tests/chaos/test_chaos_killed_at_each_step.py
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterator

import pytest

from hourmark.hours import Hour
from infra.stack import Stack
from tests.support.bucket_judge import BucketJudge
from tests.support.crash import STEPS, Order
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.timeout(600)]

_DRIVER_STEPS = ("ledger-commit", "freeze", "seal", "attempt", "marker", "rename", "ledger-close")
ORDERS = (
    *(Order("staged-write", moment, victim) for moment in ("before", "after") for victim in ("itself", "driver")),
    *(Order(step, moment) for step in _DRIVER_STEPS for moment in ("before", "after")),
    Order("attempt-file", "after"),
    Order("attempt-file", "before", "driver"),
)


@dataclasses.dataclass
class Scene:
    """One run, its types, and the hours that were begun so far."""

    run: EtlRun
    delivery: DirectDelivery
    judge: BucketJudge
    types: tuple[str, str]
    hours: list[Hour]

    def begin_hour(self) -> Hour:
        """Deliver the next hour's events: twice, cut anew, and some that belong to the first hour."""
        hour = self.hours[-1].next()
        self.hours.append(hour)
        for event_type in self.types:
            times = [hour.start_s * 1000 + 100 * n for n in range(50)]
            on_time = self.delivery.make(event_type, times)
            late = self.delivery.make(event_type, [self.hours[0].start_s * 1000 + len(self.hours)])
            for sent in (on_time, on_time, self.delivery.recut(on_time), late):
                self.delivery.deliver(sent)
            self.judge.promised(on_time, late, by=hour)
        self.delivery.report(hour.end_ms)
        return hour


@pytest.fixture(scope="module")
def scene(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"crash-{uuid.uuid4().hex[:6]}-")
    types = tuple(f"{name}-{uuid.uuid4().hex[:8]}" for name in ("one", "two"))
    assert len(types) == 2
    first = Hour.of(time.time_ns() // 1_000_000 - 3_600_000, 60)
    with EtlRun(stack.layout.config_file, folder, list(types), first, cluster="central", crashing=True) as run:
        made = Scene(run, DirectDelivery(run.config), BucketJudge(run.storage), types, [Hour(first.start_s - 60, 60)])
        first_closed = made.begin_hour()
        for event_type in types:
            run.closed(event_type, first_closed, 240)
        yield made


def test_each_step_is_killed_before_and_after() -> None:
    assert {o.step for o in ORDERS} == set(STEPS)
    for step in STEPS:
        assert {o.moment for o in ORDERS if o.step == step} == {"before", "after"}, step


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_killed_at_this_step_nothing_is_lost_doubled_or_changed(scene: Scene, order: Order) -> None:
    scene.run.revive()
    scene.run.order(order)
    hour = scene.begin_hour()
    scene.run.crashed(order, 240)
    scene.run.revive()

    def closed() -> bool:
        scene.run.revive()  # a worker that dies may end the driver: a supervisor starts it again
        return all(scene.run.manifest(t, hour) is not None for t in scene.types)

    wait_for(closed, f"{hour} closed (see {scene.run.log})", 240)
    assert scene.judge.look(scene.types, scene.hours[1:]) == []
    last = scene.run.manifest(scene.types[0], hour)
    assert last is not None
    assert (last.events, last.duplicates_removed, last.grade.value) == (51, 100, "proved")
