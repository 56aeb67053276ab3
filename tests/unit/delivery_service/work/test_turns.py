"""Whose turn it is: nobody is starved, small work is not held up by large work, and a lane outlives
whoever leaves it.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.harness import run

from hourmark_delivery_service.work.turns import FairLock, Job, JobQueue


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30), st.lists(st.integers(0, 3), max_size=80)
)
def test_each_that_waits_gets_a_turn_within_two_rounds(
    had: list[int], newcomers: list[int]
) -> None:
    """Though new ones come without end, each with fewer turns than any other."""
    line = JobQueue()
    first = [Job(turns) for turns in had]
    for job in first:
        line.add(job)
    coming = iter(newcomers)
    given_to: list[Job] = []
    for _ in range(2 * len(first)):
        for turns in (next(coming, 0), next(coming, 0)):
            line.add(Job(turns))
        turn = line.pop_next()
        assert turn is not None
        given_to.append(turn)
    assert set(first) <= set(given_to)
    assert len(set(given_to)) == len(given_to), "nobody gets what it did not wait for"


@given(st.lists(st.integers(1, 50), max_size=30), st.booleans())
def test_new_work_waits_for_one_turn_of_others_at_most(had: list[int], odd: bool) -> None:
    line = JobQueue()
    if odd:
        line.add(Job())
        line.pop_next()
    for turns in had:
        line.add(Job(turns))
    small = Job()
    line.add(small)
    assert small in (line.pop_next(), line.pop_next())


def test_who_leaves_gets_no_turn() -> None:
    line, stays, leaves = JobQueue(), Job(), Job()
    line.add(leaves)
    line.add(stays)
    line.remove(leaves)
    line.remove(leaves)
    assert (line.pop_next(), line.pop_next()) == (stays, None)


@pytest.mark.parametrize("late", [False, True])
def test_a_lane_goes_on_after_one_that_was_cancelled(late: bool) -> None:
    """`late`: in the same moment in which it is given its turn."""

    async def scene() -> list[str]:
        lane, done = FairLock(), list[str]()

        async def work(name: str, let: asyncio.Event | None = None) -> None:
            async with lane.hold(Job()):
                if let is not None:
                    await let.wait()
                done.append(name)

        let = asyncio.Event()
        tasks = [asyncio.create_task(work("first", let))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(work(name)) for name in ("cancelled", "last")]
        await asyncio.sleep(0)
        assert lane.waiting_count == 2
        let.set()
        if late:
            await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert lane.waiting_count == 0
        await work("afterwards")
        return done

    assert run(scene) == ["first", "last", "afterwards"]


def test_a_failing_turn_passes_on() -> None:
    async def scene() -> int:
        lane = FairLock()

        async def fails() -> None:
            async with lane.hold(Job()):
                raise ZeroDivisionError

        results = await asyncio.gather(*(fails() for _ in range(5)), return_exceptions=True)
        return sum(isinstance(result, ZeroDivisionError) for result in results)

    assert run(scene) == 5
