"""What workers claim together: the least of all, held by one that says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.service.examples import NOW_MS
from tests.support.service.harness import Harness, with_service

from hourmark_delivery_service.process.worker import WorkerStatusReporter
from hourmark_delivery_service.process.worker_status import WorkerStatus, WorkerStatusTable


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture
def claims(tmp_path: Path, clock: FakeClock) -> WorkerStatusTable:
    return WorkerStatusTable(tmp_path / "claims", clock, create=True)


def test_the_claim_of_all_is_the_least_and_is_held_by_one_that_says_nothing(
    claims: WorkerStatusTable,
) -> None:
    slow, quick = claims.allocate_slot(), claims.allocate_slot()
    claims.update(slow, WorkerStatus(NOW_MS + 5, 10, 1))
    for later in (100, 200, 300):
        claims.update(quick, WorkerStatus(NOW_MS + later, 7, 2))
        assert (claims.oldest_ms(), claims.bytes, claims.requests) == (NOW_MS + 5, 17, 3)
    claims.release_slot(slow)
    assert (claims.oldest_ms(), claims.bytes, claims.requests) == (NOW_MS + 300, 7, 2)


def test_the_claim_never_goes_back_with_a_clock_that_is_set_back_by_minutes(
    claims: WorkerStatusTable, clock: FakeClock
) -> None:
    assert claims.oldest_ms() == NOW_MS
    clock.set_back(300)
    assert claims.oldest_ms() == NOW_MS
    slot = claims.allocate_slot()
    assert claims.get(slot).oldest_ms == NOW_MS, "whatever it takes starts later"
    assert claims.oldest_ms() == NOW_MS


def test_the_claim_follows_a_clock_that_is_corrected_by_hours(
    claims: WorkerStatusTable, clock: FakeClock
) -> None:
    first, second = claims.allocate_slot(), claims.allocate_slot()
    clock.set_back(3600)
    claims.update(first, WorkerStatus(clock.now_ms()))
    assert claims.oldest_ms() == clock.now_ms(), "the first worker that notices it"
    claims.update(second, WorkerStatus(clock.now_ms() + 10))
    claims.update(first, WorkerStatus(clock.now_ms() + 10))
    assert claims.oldest_ms() == clock.now_ms() + 10


def test_workers_see_what_their_supervisor_sees(
    claims: WorkerStatusTable, clock: FakeClock
) -> None:
    theirs = WorkerStatusTable(claims.path, clock, create=False)
    slot = claims.allocate_slot()
    theirs.update(slot, WorkerStatus(NOW_MS + 9, 1, 2, 3))
    assert claims.get(slot) == WorkerStatus(NOW_MS + 9, 1, 2, 3)
    assert not theirs.reported
    claims.mark_reported()
    assert theirs.reported


def test_a_request_that_nobody_will_answer_stays_counted(claims: WorkerStatusTable) -> None:
    claims.release_slot(claims.allocate_slot())
    assert claims.requests == 0
    claims.count_unanswered_worker()
    assert claims.requests == 1


@with_service()
async def test_a_worker_tells_its_oldest_request_and_none_of_it_precedes_what_was_claimed(
    h: Harness, tmp_path: Path
) -> None:
    ahead = FakeClock(NOW_MS + 60_000)
    claims = WorkerStatusTable(tmp_path / "claims", ahead, create=True)
    assert claims.oldest_ms() == NOW_MS + 60_000
    slot = claims.allocate_slot()
    worker = WorkerStatusReporter(h.service, claims, slot)
    with h.service.inflight.track() as request:
        assert request.start_ms == NOW_MS + 60_000, (
            "this worker's clock is behind what was claimed in its name"
        )
        h.service.inflight.reserve(request, 10)
        await worker.send_goodbye()
        assert claims.get(slot) == WorkerStatus(NOW_MS + 60_000, 10, 1, 1)
