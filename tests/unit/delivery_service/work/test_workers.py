"""Large works: one at a time, and nobody keeps the others out."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest
from tests.support.service.harness import Harness, run, with_service
from tests.support.service.tokens import bearer, known

from hourmark_delivery_service.errors import ServiceUnavailable
from hourmark_delivery_service.work.turns import Job
from hourmark_delivery_service.work.workers import CLIENT, LARGE_RECORDS, FairExecutor

LARGE = LARGE_RECORDS + 1


@contextlib.asynccontextmanager
async def begun(workers: FairExecutor, *clients: str) -> AsyncIterator[list[str]]:
    """Large works of these; the list tells who had a turn."""
    done: list[str] = []

    async def work(client: str) -> None:
        CLIENT.set(client)
        async with workers.admit(LARGE):
            done.append(client)
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(work(client)) for client in clients]
    await asyncio.sleep(0)
    yield done
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_client_has_one_waiting_place_and_leaves_the_others_theirs() -> None:
    async def main() -> None:
        workers = FairExecutor()
        async with begun(
            workers, "greedy", "greedy", "greedy", "greedy", "greedy", "other", "third"
        ) as done:
            assert done == ["greedy"]
        assert done == ["greedy", "greedy", "other", "third"]

    run(main)


def test_a_waiting_place_is_free_again_after_its_turn_or_when_its_client_left() -> None:
    async def main() -> None:
        workers = FairExecutor()
        async with begun(workers, "a", "b") as done:
            CLIENT.set("c")
            leaving = asyncio.create_task(workers.admit(LARGE).__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(ServiceUnavailable):
                workers.admit(LARGE)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            async with workers.admit(LARGE):
                assert done == ["a", "b"]
        async with begun(workers, "a", "b", "c", "d", "e", "f") as done:
            pass
        assert done == ["a", "b", "c", "d", "e"], "of all together, four wait"

    run(main)


@pytest.mark.slow
@with_service(tokens_required=True)
async def test_one_token_does_not_keep_large_requests_of_others_out(h: Harness) -> None:
    h.queue.hold = asyncio.Event()
    mine, other = known(h), known(h)
    large = b"x\n" * LARGE
    tasks = [
        asyncio.create_task(h.post_range(large, start=number << 23, headers=bearer(token)))
        for number, token in enumerate([mine, mine, mine, mine, mine, other])
    ]
    while sum(task.done() for task in tasks) < 3:
        await asyncio.sleep(0)
    h.queue.hold.set()
    statuses = [(await task).status_code for task in tasks]
    assert statuses == [200, 200, 503, 503, 503, 200]


def test_whoever_left_holds_the_thread_while_it_works_for_him() -> None:
    async def main() -> None:
        workers, begun, go = FairExecutor(), threading.Event(), threading.Event()

        next_began = threading.Event()

        def next_call() -> int:
            next_began.set()
            return 1

        def call() -> bool:
            begun.set()
            return go.wait(10)

        leaving = asyncio.create_task(workers.run_in_thread(Job(), call))
        await asyncio.to_thread(begun.wait, 10)
        leaving.cancel()
        after = asyncio.create_task(workers.run_in_thread(Job(), next_call))
        await asyncio.sleep(0.05)
        assert not leaving.done(), "what it works on is still in memory"
        assert not next_began.is_set(), "it waits for its turn"
        go.set()
        assert await after == 1
        assert leaving.cancelled()

    run(main)
