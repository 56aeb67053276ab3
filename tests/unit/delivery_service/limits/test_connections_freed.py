"""A connection that was refused or cut off is free at once: in a circle it would keep what came on
it until the collector does.

That is seldom, since the service's collector waits for tens of thousands of objects. So there is
none here.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import uvloop
from tests.support.certificates import Authority
from tests.support.service.network import Network, networked

from hourmark.config.groups import ServiceTls
from hourmark_delivery_service.limits.connections import TlsHandshake
from hourmark_delivery_service.limits.http_protocol import HttpProtocol
from hourmark_delivery_service.limits.tls import ServerTls

GET: Final = b"GET /healthz HTTP/1.1\r\nHost: s\r\n"
CHUNKED: Final = b"POST /v1/events/click HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED: Final = {
    "headers without end": GET + b"X: y\r\n" * 2000,
    "one long header": GET + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "chunks of one byte": CHUNKED + b"1\r\n{\r\n" * 20_000,
    "too long a pipeline": (GET + b"\r\n") * 200,
    "upgrades in a pipeline": (GET + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n") * 200,
    "no HTTP": b"\x16\x03\x01" + b"\xff" * 2000,
    "lengths that disagree": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n")
    + b"0\r\n\r\n",
}


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living() -> list[object]:
    """The connections that are in memory, closed or not."""
    return [one for one in gc.get_objects() if isinstance(one, HttpProtocol | TlsHandshake)]


async def are_freed() -> bool:
    """Whether there are none soon."""
    for _ in range(100):
        if not living():
            return True
        await asyncio.sleep(0.02)
    return False


def serve(act: Callable[[Network], Awaitable[None]], tls: ServerTls | None = None) -> None:
    """On the service's own event loop, with a short time for headers; then no connection may be
    left.
    """

    async def main() -> None:
        async with asyncio.timeout(30), networked(tls, header_seconds=0.2) as net:
            await act(net)
            assert await are_freed(), living()

    with no_collector():
        uvloop.run(main())


@pytest.mark.slow
def test_a_connection_in_use_is_seen() -> None:
    async def act(net: Network) -> None:
        async with net.connected(3):
            await asyncio.sleep(0.1)
            assert len(living()) == 3

    serve(act)


@pytest.mark.slow
@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_freed(sent: bytes) -> None:
    async def act(net: Network) -> None:
        for _ in range(3):
            with contextlib.suppress(
                ConnectionError, RuntimeError
            ):  # uvloop's, on writing to a connection that was reset
                await net.exchange_all(sent)

    serve(act)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", GET, CHUNKED + b"1\r\n{\r\n", CHUNKED[:-2], GET + b"\r\n"])
def test_what_is_cut_off_is_freed(sent: bytes) -> None:
    async def act(net: Network) -> None:
        for _ in range(3):
            await net.cut_off(sent)

    serve(act)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01\x02\x00\x01", GET + b"\r\n"], ids=["nothing", "a part", "no TLS"]
)
def test_a_handshake_that_is_not_done_is_freed(tmp_path: Path, sent: bytes) -> None:
    pair = Authority(tmp_path).issue("service")

    async def act(net: Network) -> None:
        async with net.connected(3) as pairs:
            for reader, writer in pairs:
                writer.write(sent)
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 5)  # until the service ends it

    serve(act, ServerTls(ServiceTls(certificate=pair.certificate, key=pair.key)))


@pytest.mark.slow
def test_a_handshake_that_is_dropped_as_it_comes_is_freed(tmp_path: Path) -> None:
    """Each of these takes the place of the one before it, whose task may not have begun."""
    pair = Authority(tmp_path).issue("service")

    async def main() -> None:
        tls = ServerTls(ServiceTls(certificate=pair.certificate, key=pair.key))
        async with asyncio.timeout(30), networked(tls, connections_max=1) as net:
            async with net.connected(20):
                await asyncio.sleep(0.2)
            assert await are_freed(), living()

    with no_collector():
        uvloop.run(main())
