"""Memory is taken for what has come: announcing is free, and a body that does not come gives
way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request as Http
from tests.support.clock import FakeClock
from tests.support.service.examples import range_of, syslog
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.edge.test_service_ranges import code
from tests.unit.delivery_service.work.test_service_encodings import PACKERS

from hourmark.records.wire import range_headers
from hourmark_delivery_service.errors import RequestTimeout, ServiceUnavailable
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.work.body import BodyReader
from hourmark_delivery_service.work.inflight import HELD_PER_BYTE, InflightRequests

MEBIBYTE = 1 << 20


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 400), st.booleans()), max_size=60))
def test_never_more_than_the_limit_but_for_one_alone_and_all_of_it_comes_back(
    steps: list[tuple[int, int, bool]],
) -> None:
    inflight, limit = InflightRequests(FakeClock(), 1000, ServiceMetrics()), 1000
    open_requests = {}
    for number, size, ends in steps:
        if number not in open_requests:
            context = inflight.track()
            open_requests[number] = (context, context.__enter__())
        context, request = open_requests[number]
        if ends:
            context.__exit__(None, None, None)
            del open_requests[number]
            continue
        try:
            inflight.reserve(request, size)
            assert inflight.bytes <= limit or inflight.bytes == request.bytes
        except ServiceUnavailable:
            assert inflight.bytes + size > limit and inflight.bytes > request.bytes
    assert inflight.bytes == sum(request.bytes for _, request in open_requests.values())
    for context, _ in open_requests.values():
        context.__exit__(None, None, None)
    assert (inflight.bytes, inflight.requests) == (0, 0)


def announcing(h: Harness, number: int, comes: bytes) -> asyncio.Task[httpx.Response]:
    """A range of 4 MiB of which only this comes."""
    headers = range_headers(range_of(b"x" * (4 * MEBIBYTE), start=number << 23))

    async def content() -> AsyncIterator[bytes]:
        if comes:
            yield comes
        await asyncio.Event().wait()

    return asyncio.create_task(h.client.post("/v1/ranges", content=content(), headers=headers))


async def cancelled(tasks: list[asyncio.Task[httpx.Response]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@with_service(inflight_bytes_max=MEBIBYTE)
async def test_idle_connections_that_announce_much_lock_nobody_out(h: Harness) -> None:
    idle = [announcing(h, n, b"") for n in range(50)]
    while h.service.inflight.requests < 50:
        await asyncio.sleep(0)
    assert h.service.inflight.bytes == 0
    assert (await h.post_range(syslog())).status_code == 200
    await cancelled(idle)


@with_service(inflight_bytes_max=MEBIBYTE)
async def test_bodies_that_stopped_coming_give_way_and_only_as_many_as_must(h: Harness) -> None:
    part = b"x" * (MEBIBYTE // (2 * HELD_PER_BYTE) - 100)
    stalled = [announcing(h, n, part) for n in range(2)]
    while h.service.inflight.bytes < 2 * HELD_PER_BYTE * len(part):
        await asyncio.sleep(0)
    small = syslog() * 10
    assert code(await h.post_range(small)) == (503, "overloaded"), "they may still come"
    h.clock.advance(1)
    assert (await h.post_range(small)).status_code == 200
    done, waits = await asyncio.wait(stalled, timeout=0.1)
    assert [code(task.result()) for task in done] == [(408, "slow_body")]
    assert h.service.inflight.bytes == HELD_PER_BYTE * len(part)
    await cancelled(list(waits))
    assert h.service.inflight.bytes == 0


def test_what_comes_just_now_is_progress_before_it_asks_for_memory() -> None:
    clock, part, stopped = FakeClock(), 64 * 1024, list[int]()
    inflight = InflightRequests(clock, 2 * HELD_PER_BYTE * part, ServiceMetrics())
    with contextlib.ExitStack() as stack:
        requests = [stack.enter_context(inflight.track()) for _ in range(2)]
        for number, request in enumerate(requests):  # the first began first
            stack.enter_context(
                inflight.reading(request, functools.partial(stopped.append, number))
            )
            inflight.reserve_body(request, part - 1)
            clock.advance(0.5)
        clock.advance(1)
        inflight.reserve_body(requests[0], part)
    assert stopped == [1], "the other one has brought nothing for longer"


@with_service(inflight_bytes_max=MEBIBYTE, body_seconds=0.2)
async def test_a_body_that_does_not_come_in_time_gives_its_memory_back(h: Harness) -> None:
    assert code(await announcing(h, 0, b"x" * 1000)) == (408, "slow_body")
    assert (h.service.inflight.bytes, h.service.inflight.requests) == (0, 0)


class Sent:
    """A body that comes in parts, as they are sent.

    `cancelling`: set when its reading was cancelled, and is not over yet.
    """

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()
        self.cancelling, self.over = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, object]:
        """As a server gives it to its application."""
        try:
            return {"type": "http.request", "body": await self.parts.get(), "more_body": True}
        except asyncio.CancelledError:
            self.cancelling.set()
            await self.over.wait()
            raise

    async def read(self, h: Harness, bodies: BodyReader) -> bytes:
        """As an endpoint reads it."""
        with h.service.inflight.track() as request:
            return await bodies.read(
                Http({"type": "http", "headers": []}, self.receive), request, 4 * MEBIBYTE
            )


@contextlib.asynccontextmanager
async def reading(
    h: Harness, *bodies: BodyReader
) -> AsyncIterator[list[tuple[Sent, asyncio.Task[bytes]]]]:
    """As many bodies that come."""
    sent = [Sent() for _ in bodies]
    tasks = [
        asyncio.create_task(one.read(h, reader)) for one, reader in zip(sent, bodies, strict=True)
    ]
    yield list(zip(sent, tasks, strict=True))
    for one, task in zip(sent, tasks, strict=True):
        one.over.set()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def holding(h: Harness, size: int) -> None:
    while h.service.inflight.bytes < HELD_PER_BYTE * size:
        await asyncio.sleep(0)


HALF = b"x" * (MEBIBYTE // (2 * HELD_PER_BYTE) - 100)


@with_service(inflight_bytes_max=MEBIBYTE)
async def test_who_needs_memory_is_not_hurt_by_a_body_whose_time_ends_in_the_same_moment(
    h: Harness,
) -> None:
    soon = BodyReader(h.service.inflight, h.service.executor, 0.05)
    async with reading(h, soon, h.service.bodies) as ((late, late_task), (good, good_task)):
        late.parts.put_nowait(HALF)
        await late.cancelling.wait()
        h.clock.advance(1)
        for _ in range(2):
            good.parts.put_nowait(HALF)
        while not good.parts.empty():
            await asyncio.sleep(0)
        assert not good_task.done()
        assert h.service.inflight.bytes == 2 * HELD_PER_BYTE * len(HALF), "the late one's is free"
        late.over.set()
        with pytest.raises(RequestTimeout):
            await late_task


@with_service(inflight_bytes_max=MEBIBYTE)
async def test_where_the_slowest_is_the_one_that_needs_memory_it_goes_alone(h: Harness) -> None:
    async with reading(h, h.service.bodies, h.service.bodies) as (
        (slow, slow_task),
        (other, other_task),
    ):
        slow.parts.put_nowait(b"x" * 100)
        await holding(h, 100)
        h.clock.advance(0.1)
        other.parts.put_nowait(HALF)
        other.parts.put_nowait(HALF)
        await holding(h, 100 + 2 * len(HALF))
        h.clock.advance(2)
        slow.parts.put_nowait(b"x" * 1000)  # no progress
        with pytest.raises(RequestTimeout):
            await slow_task
        assert h.service.inflight.bytes == 2 * HELD_PER_BYTE * len(HALF)
        await asyncio.sleep(0)
        assert not other_task.done(), "nobody goes for one that goes itself"


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
@with_service(inflight_bytes_max=MEBIBYTE)
async def test_what_inflating_makes_counts(h: Harness, encoding: str) -> None:

    plain = syslog() * 6000
    h.queue.hold = asyncio.Event()
    first = asyncio.create_task(h.post_range(syslog()))
    while not h.service.inflight.bytes:
        await asyncio.sleep(0)
    _, pack = PACKERS[encoding]
    assert code(await h.post_range(plain, content=pack(plain), encoding=encoding)) == (
        503,
        "overloaded",
    )
    h.queue.hold.set()
    assert (await first).status_code == 200


@with_service(inflight_bytes_max=8 * MEBIBYTE)
async def test_blank_lines_are_admitted_as_the_records_that_they_make(h: Harness) -> None:
    h.queue.hold = asyncio.Event()
    posts = [
        asyncio.create_task(h.post_range(b"\n" * (MEBIBYTE // 8), start=n << 23)) for n in range(10)
    ]
    while h.service.inflight.bytes < 10 * HELD_PER_BYTE * MEBIBYTE // 8:
        await asyncio.sleep(0)
        assert not any(post.done() for post in posts), (
            "each is one audit record, not one of the few large works"
        )
    h.queue.hold.set()
    assert [post.status_code for post in await asyncio.gather(*posts)] == [200] * 10
