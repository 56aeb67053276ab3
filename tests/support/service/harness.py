"""The HTTP application over a queue in memory, called without a network."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from tests.support.clock import FakeClock
from tests.support.memory_queue import MemoryQueue
from tests.support.revisions import encoded
from tests.support.service.examples import NOW_MS, range_of, rules_of

from hourmark.avro.framing import framing_header
from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.records.wire import range_headers
from hourmark.rules.revision import Record
from hourmark_delivery_service.edge.app import create_app
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.work.framing import Framing
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_delivery_service.work.service import DeliveryService

T = TypeVar("T")
Test = Callable[..., None]


class Harness:
    """A service that is ready, its queue, its clock, and a client."""

    def __init__(self, clock: Clock | None = None, **settings: Any) -> None:
        self.config = Config(service={"state_dir": Path("/nowhere"), **settings})
        self.clock = FakeClock(NOW_MS)
        self.queue = MemoryQueue()
        self.metrics = ServiceMetrics()
        self.rules = RulesStore(self.metrics)
        self.rules.feed(encoded(rules_of().records()), from_start=True)
        self.service = DeliveryService(
            self.config, clock or self.clock, self.queue, self.rules, self.metrics
        )
        self.service.framing = Framing(
            {True: framing_header(101), False: framing_header(103)}, framing_header(102)
        )
        self.service.first_report_sent = True
        transport = httpx.ASGITransport(create_app(self.service), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://service")

    async def post_range(
        self,
        body: bytes,
        source: str = "app",
        *,
        content: Any = None,
        encoding: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """Post a range; `content`: what is sent instead of the plain body."""
        sent = range_headers(range_of(body, source, **more)) | (headers or {})
        sent |= {"Content-Encoding": encoding} if encoding else {}
        return await self.client.post(
            "/v1/ranges", content=body if content is None else content, headers=sent
        )

    async def post_events(
        self, body: bytes, event_type: str = "click", **headers: str
    ) -> httpx.Response:
        """Post a batch; header names with `_` for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(f"/v1/events/{event_type}", content=body, headers=sent)


@contextlib.asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Harness]:
    """A harness whose client is closed at the end."""
    harness = Harness(**settings)
    async with harness.client:
        yield harness


def with_scene(
    make: Callable[[], AbstractAsyncContextManager[T]],
) -> Callable[[Callable[..., Awaitable[None]]], Test]:
    """The test, a coroutine, gets what `make` makes, and then what pytest gives it."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Test:
        @functools.wraps(test)
        def run_it(**given: Any) -> None:
            async def main() -> None:
                async with make() as scene:
                    await test(scene, **given)

            run(main)

        _, *rest = inspect.signature(test).parameters.values()
        # pytest must not look for a fixture
        run_it.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        del run_it.__wrapped__
        return run_it

    return decorate


def with_service(**settings: Any) -> Callable[[Callable[..., Awaitable[None]]], Test]:
    """The test gets a running harness."""
    return with_scene(lambda: running(**settings))


def fed(*records: Record) -> RulesStore:
    """What a service knows that has read these records."""
    store = RulesStore(ServiceMetrics())
    store.feed(encoded(records), from_start=True)
    return store


def run(test: Callable[[], Awaitable[T]]) -> T:
    """Run an asynchronous test."""

    async def bounded() -> T:
        async with asyncio.timeout(30):
            return await test()

    return asyncio.run(bounded())
