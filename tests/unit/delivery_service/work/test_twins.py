"""The same request twice at once: one delivery, one answer for both, and never an acknowledgement
that was not earned.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator

import httpx
import pytest
from starlette.requests import ClientDisconnect
from tests.support.service.examples import compiled, range_of, syslog
from tests.support.service.harness import Harness, run, with_service
from tests.unit.delivery_service.edge.test_service_ranges import code

from hourmark_delivery_service.errors import NotDelivered
from hourmark_delivery_service.parsing import RangeParser
from hourmark_delivery_service.work.duplicates import RequestCoalescer, SharedWork
from hourmark_delivery_service.work.peer import ClientPeer

BODY = syslog() * 3


class Bench:
    """Work that ends when it is told to, and what became of it."""

    def __init__(self) -> None:
        self.twins: RequestCoalescer[int] = RequestCoalescer()
        self.begun = self.cancelled = 0
        self.let = asyncio.Event()
        self.fails = self.lasts = False

    async def work(self, work: SharedWork[int]) -> int:
        work.must_finish = self.lasts
        self.begun += 1
        number = self.begun
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise NotDelivered("planted")
        return number

    def join(self, peer: ClientPeer | None = None, body: bytes = b"x") -> asyncio.Task[int]:
        return asyncio.create_task(self.twins.join("key", body, self.work, peer or ClientPeer()))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_twins_are_told_the_same_and_work_is_done_once() -> None:
    async def scene() -> None:
        bench = Bench()
        first, second = bench.join(), bench.join()
        await settle()
        bench.let.set()
        assert (await first, await second, bench.begun, len(bench.twins)) == (1, 1, 1, 0)
        assert await bench.join() == 2, "what is done is not joined"

    run(scene)


def test_a_failure_is_told_to_all() -> None:
    async def scene() -> None:
        bench = Bench()
        bench.fails = True
        tasks = [bench.join() for _ in range(3)]
        await settle()
        bench.let.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [NotDelivered] * 3

    run(scene)


@pytest.mark.parametrize("who", [0, 1])
def test_work_goes_on_while_one_twin_waits_whichever_left(who: int) -> None:
    async def scene() -> None:
        bench, peers = Bench(), [ClientPeer(), ClientPeer()]
        tasks = [bench.join(peer) for peer in peers]
        await settle()
        peers[who].mark_disconnected()
        with pytest.raises(ClientDisconnect):
            await tasks[who]
        bench.let.set()
        assert (await tasks[1 - who], bench.cancelled) == (1, 0)

    run(scene)


def test_work_ends_with_the_last_that_waited_and_nobody_joins_what_is_ending() -> None:
    async def scene() -> None:
        bench, peers = Bench(), [ClientPeer(), ClientPeer()]
        tasks = [bench.join(peer) for peer in peers]
        await settle()
        for peer in peers:
            peer.mark_disconnected()
        late = bench.join()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [ClientDisconnect] * 2
        await settle()
        assert (bench.cancelled, bench.begun) == (1, 2)
        bench.let.set()
        assert await late == 2

    run(scene)


@pytest.mark.parametrize("fails", [False, True])
def test_work_that_must_last_goes_on_when_all_left_and_a_retry_joins_it(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        bench, peers = Bench(), [ClientPeer(), ClientPeer()]
        bench.lasts, bench.fails = True, fails
        for joins in range(2):
            task = bench.join(peers[joins])
            await settle()
            peers[joins].mark_disconnected()
            with pytest.raises(ClientDisconnect):
                await task
        assert (bench.begun, bench.cancelled, len(bench.twins)) == (1, 0, 1)
        late = bench.join()
        await settle()
        late.cancel()
        await settle()
        bench.let.set()
        await settle()
        gc.collect()
        assert (bench.cancelled, len(bench.twins)) == (0, 0)
        assert "never retrieved" not in caplog.text, (
            "its failure was told to nobody, for there was nobody"
        )

    run(scene)


def test_another_body_under_the_same_key_is_no_twin() -> None:
    async def scene() -> None:
        bench = Bench()
        tasks = [bench.join(body=b"x"), bench.join(body=b"y")]
        await settle()
        bench.let.set()
        assert await asyncio.gather(*tasks) == [1, 2]

    run(scene)


def test_one_that_is_gone_already_begins_nothing_that_lasts() -> None:
    async def scene() -> None:
        bench, peer = Bench(), ClientPeer()
        peer.mark_disconnected()
        with pytest.raises(ClientDisconnect):
            await bench.join(peer)
        await settle()
        assert len(bench.twins) == 0

    run(scene)


async def posted_twice(h: Harness) -> list[httpx.Response]:
    """The same range, the second while the first waits for the queue."""
    h.queue.hold = asyncio.Event()
    posts = [asyncio.create_task(h.post_range(BODY)) for _ in range(2)]
    while h.service.inflight.requests < 3:  # both, and the work that they share
        await asyncio.sleep(0)
    await settle()
    h.queue.hold.set()
    return await asyncio.gather(*posts)


@with_service()
async def test_a_retry_joins_and_both_are_acknowledged_by_one_delivery(h: Harness) -> None:
    answers = await posted_twice(h)
    assert [a.json()["events"] for a in answers] == [3, 3]
    assert len(h.queue.of("events.click")) == 3
    assert len(h.queue.of("hourmark.audit")) == 1
    assert (h.service.inflight.bytes, h.service.inflight.requests) == (0, 0)


@pytest.mark.parametrize("after", [0, 2, 3])
@with_service()
async def test_no_twin_is_acknowledged_if_their_delivery_failed(h: Harness, after: int) -> None:
    h.queue.fail_with, h.queue.fail_after = NotDelivered("planted"), after
    assert [code(a) for a in await posted_twice(h)] == [(503, "queue")] * 2
    assert h.queue.of("hourmark.audit") == []


@with_service()
async def test_a_batch_joins_only_where_its_time_is_the_same(h: Harness) -> None:
    h.queue.hold = asyncio.Event()
    sent = {
        "Idempotency-Key": "01a1fbc3-5f52-7a60-9c1e-3b8f0d6e2a47",
        "Hourmark-Observed-At": str(h.clock.now_ms()),
    }
    line = b'{"user":"u","ms":1}\n'
    posts = [
        asyncio.create_task(h.post_events(line, **headers))
        for headers in (sent, sent, {"Idempotency-Key": "a"}, {})
    ]
    requests_and_works = 4 + 3
    while h.service.inflight.requests < requests_and_works:
        await asyncio.sleep(0)
    await settle()
    assert h.service.inflight.requests == requests_and_works
    h.queue.hold.set()
    assert [a.status_code for a in await asyncio.gather(*posts)] == [200] * 4
    assert len(h.queue.of("events.click")) == 3


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_client_that_leaves_leaves_nothing() -> None:
    """A circle would keep its body until the collector comes, which is seldom."""

    async def scene() -> None:
        bench, peer = Bench(), ClientPeer()
        watched = weakref.ref(peer)
        task = bench.join(peer)
        await settle()
        peer.mark_disconnected()
        await asyncio.gather(task, return_exceptions=True)
        await settle()
        del task, peer
        assert watched() is None

    with no_collector():
        run(scene)


def test_rejected_lines_do_not_keep_their_range() -> None:
    with no_collector():
        body = b"no syslog\n" * 3
        parser = RangeParser(range_of(body), body, compiled())
        assert sum(part.count for part in parser.slices()) == 3
        watched = weakref.ref(parser)
        del parser
        assert watched() is None
