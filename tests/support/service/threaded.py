"""The service over a queue in memory, served from a thread: for a tailer that runs beside it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import uvloop
from tests.support.service.harness import Harness, running
from tests.support.service.network import Unsignalled

from hourmark.config.groups import ServiceTls
from hourmark_delivery_service.limits.tls import ServerTls
from hourmark_delivery_service.process.server import HttpServer, uvicorn_config


class Served(NamedTuple):
    """A service and its port."""

    harness: Harness
    port: int


@contextlib.contextmanager
def served(tls: ServiceTls | None = None, **settings: Any) -> Iterator[Served]:
    """It listens at `host` of the settings, on a port of its own, on the loop and by the server
    that `hourmark serve` has.
    """
    listener = socket.create_server((settings.get("host", "127.0.0.1"), 0))
    started: Future[tuple[Harness, HttpServer]] = Future()

    async def serve() -> None:
        async with running(**settings, tls=tls or ServiceTls()) as harness:
            server = Unsignalled(
                uvicorn_config(harness.service, harness.config, ServerTls(tls) if tls else None)
            )
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            started.set_result((harness, server))
            await serving

    thread = threading.Thread(target=uvloop.run, args=(serve(),))
    thread.start()
    try:
        harness, server = started.result(10)
        yield Served(harness, listener.getsockname()[1])
    finally:
        if started.done():
            server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the service does not end"
