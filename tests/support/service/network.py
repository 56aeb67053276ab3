"""The service over a queue in memory, behind the HTTP server that `hourmark serve` runs, and raw
requests to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Generator
from typing import Any, NamedTuple

from tests.support.service.harness import Harness, running

from hourmark_delivery_service.limits.tls import ServerTls
from hourmark_delivery_service.process.server import HttpServer, uvicorn_config


class RawAnswer(NamedTuple):
    """An answer as it came. `headers`: names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def code(self) -> tuple[int, str]:
        """Status and code of an error, which has the form that is promised."""
        error: dict[str, Any] = json.loads(self.body)
        assert error["detail"]
        assert error["next_step"]
        assert error["status"] == self.status
        assert self.headers["content-type"] == "application/problem+json"
        assert self.headers["hourmark-clock"].isdigit()
        return self.status, error["code"]


class Network:
    """A harness and the port where it is served."""

    def __init__(self, harness: Harness, port: int) -> None:
        self.harness = harness
        self.port = port

    async def exchange(
        self,
        request: bytes,
        *more: bytes,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> RawAnswer:
        """Send the request, in as many pieces; the first answer, which must come within five
        seconds.
        """
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, server_hostname=host if tls else None
        )
        try:
            async with asyncio.timeout(5):
                for piece in (request, *more):
                    writer.write(piece)
                    await asyncio.sleep(0.05)  # so that they come one by one
                return await _read(reader)
        finally:
            writer.close()

    async def exchange_all(self, *pieces: bytes) -> bytes:
        """Send the pieces; all that is answered until the service ends the connection, which it
        must within five seconds.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionError):
                    for piece in pieces:
                        writer.write(piece)
                        await asyncio.sleep(0.05)
                return await reader.read()
        finally:
            writer.close()

    async def cut_off(self, piece: bytes) -> None:
        """Send it, and reset the connection."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(piece)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def connected(
        self, number: int
    ) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
        """So many connections, one after another."""
        pairs = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(number)]
        try:
            yield pairs
        finally:
            for _, writer in pairs:
                writer.close()

    async def certificate(self, tls: ssl.SSLContext) -> bytes:
        """The one that is shown to whoever connects."""
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, server_hostname="localhost"
        )
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert isinstance(shown, bytes)
            return shown
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> RawAnswer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return RawAnswer(
        int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))
    )


class Unsignalled(HttpServer):
    """It runs in any thread: signals belong to the main one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@contextlib.asynccontextmanager
async def networked(tls: ServerTls | None = None, **settings: Any) -> AsyncIterator[Network]:
    """A harness that is served on a port of its own."""
    async with running(**settings) as harness:
        listener = socket.create_server(("127.0.0.1", 0))
        server = Unsignalled(uvicorn_config(harness.service, harness.config, tls))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        try:
            yield Network(harness, listener.getsockname()[1])
        finally:
            server.should_exit = True
            await serving
