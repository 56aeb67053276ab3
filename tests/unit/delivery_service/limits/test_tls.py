"""TLS of the port: who is served, who is refused and how soon, and certificates that are replaced
while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.certificates import Authority, Pair
from tests.support.service.harness import run, running
from tests.support.service.network import Network, networked
from tests.support.service.tokens import known

from hourmark.config.groups import ServiceTls
from hourmark.config.loading import Config, load_config
from hourmark.errors import ConfigError
from hourmark_delivery_service.limits import tls as tls_module
from hourmark_delivery_service.limits.tls import ServerTls
from hourmark_delivery_service.process.server import HttpServer, uvicorn_config

HELLO = b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n\r\n"
HTTP = b"HTTP/"
REFUSED = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def served(pair: Pair, **more: Any) -> ServerTls:
    return ServerTls(ServiceTls(certificate=pair.certificate, key=pair.key, **more))


def client(
    authority: Authority, pair: Pair | None = None, *, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if newest is not None:
        context.maximum_version = newest
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


def hello_of(context: ssl.SSLContext, pieces: int) -> list[bytes]:
    """What a client says first, in so many pieces."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    size = -(-len(hello) // pieces)
    return [hello[at : at + size] for at in range(0, len(hello), size)]


async def asked(net: Network, context: ssl.SSLContext, host: str = "localhost") -> int:
    """The status of a request over TLS."""
    return (await net.exchange(HELLO, tls=context, host=host)).status


def test_requests_are_served_over_tls_of_1_2_or_newer_with_or_without_a_name(
    authority: Authority,
) -> None:
    pair = authority.issue("service")

    async def main() -> None:
        async with networked(served(pair)) as net:
            assert await asked(net, client(authority)) == 200
            assert await asked(net, client(authority), "127.0.0.1") == 200
            assert await asked(net, client(authority, newest=ssl.TLSVersion.TLSv1_2)) == 200
            with pytest.raises(REFUSED), pytest.warns(DeprecationWarning):
                old = client(authority)
                old.minimum_version, old.maximum_version = (
                    ssl.TLSVersion.TLSv1_1,
                    ssl.TLSVersion.TLSv1_1,
                )
                old.set_ciphers("ALL:@SECLEVEL=0")
                await asked(net, old)

    run(main)


def test_a_plain_request_to_the_tls_port_and_tls_to_the_plain_port_end_at_once(
    authority: Authority,
) -> None:
    pair = authority.issue("service")

    async def main() -> None:
        async with networked(served(pair)) as net, asyncio.timeout(2):
            assert await net.exchange_all(HELLO) == b""
        async with networked() as net, asyncio.timeout(2):
            with pytest.raises(REFUSED):
                await asked(net, client(authority))

    run(main)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_shows_a_certificate_of_the_ca_where_one_is_required(
    tmp_path: Path, authority: Authority, newest: ssl.TLSVersion
) -> None:
    pair, mine = authority.issue("service"), authority.issue("client")
    stranger = Authority(tmp_path / "other").issue("client")

    async def main() -> None:
        async with networked(served(pair, client_ca=authority.ca)) as net:
            assert await asked(net, client(authority, mine, newest=newest)) == 200
            for other in (None, stranger):
                with pytest.raises(REFUSED):
                    await asked(net, client(authority, other, newest=newest))
        async with networked(served(pair, client_ca=authority.ca, client_required=False)) as net:
            assert await asked(net, client(authority, newest=newest)) == 200
            with pytest.raises(REFUSED):
                await asked(net, client(authority, stranger, newest=newest))

    run(main)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificates_and_cas_are_replaced_while_it_runs_and_a_bad_one_changes_nothing(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, newest: ssl.TLSVersion
) -> None:
    pair, mine = authority.issue("service"), authority.issue("client")
    after = Authority(tmp_path / "after")
    new, new_client = after.issue("service"), after.issue("client")
    ca = tmp_path / "clients.pem"
    ca.write_bytes(authority.ca.read_bytes())
    tls = served(pair, client_ca=ca)

    async def main() -> None:
        async with networked(tls) as net:
            first = client(authority, mine, newest=newest)
            assert await asked(net, first) == 200
            good = pair.certificate.read_bytes()
            for bad in (b"", b"nonsense", good[: len(good) // 2], new.certificate.read_bytes()):
                pair.certificate.write_bytes(bad)
                assert not tls.reload()
                assert "service.tls.certificate" in caplog.text and "remain in use" in caplog.text
                assert await asked(net, first) == 200
            pair.certificate.unlink()
            assert not tls.reload()
            pair.certificate.write_bytes(new.certificate.read_bytes())
            pair.key.write_bytes(new.key.read_bytes())
            ca.write_bytes(after.ca.read_bytes())
            assert tls.reload()
            assert await asked(net, client(after, new_client, newest=newest)) == 200
            with pytest.raises(REFUSED):
                await asked(net, client(authority, mine, newest=newest))
            with pytest.raises(
                REFUSED
            ):  # the new certificate is trusted, the old CA of clients is not
                await asked(net, client(after, mine, newest=newest))

    run(main)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nobody_resumes_a_session_past_a_ca_that_was_withdrawn(
    tmp_path: Path, authority: Authority, newest: ssl.TLSVersion
) -> None:
    pair, mine = authority.issue("service"), authority.issue("client")
    other = Authority(tmp_path / "other")
    ca = tmp_path / "clients.pem"
    ca.write_bytes(authority.ca.read_bytes())
    tls = served(pair, client_ca=ca)
    context = client(authority, mine, newest=newest)

    def connect(port: int, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bytes]:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(HELLO)
            if not (answer := connection.recv(100)):
                raise ConnectionError("it ended")
            return connection.session, answer

    async def main() -> None:
        async with networked(tls) as net:
            session, answer = await asyncio.to_thread(connect, net.port, None)
            assert answer.startswith(b"HTTP/1.1 200")
            ca.write_bytes(other.ca.read_bytes())
            assert tls.reload()
            with pytest.raises(REFUSED):
                await asyncio.to_thread(connect, net.port, session)

    run(main)


def test_changed_files_are_noticed(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_module, "POLL_S", 0.01)
    pair = authority.issue("service")

    async def main() -> None:
        tls = served(pair)
        async with networked(tls) as net:
            watching = asyncio.create_task(tls.watch())
            before = await net.certificate(client(authority))
            await asyncio.sleep(0.05)
            assert await net.certificate(client(authority)) == before
            authority.issue("service")
            while await net.certificate(client(authority)) == before:
                await asyncio.sleep(0.01)
            watching.cancel()

    run(main)


def test_sighup_reads_certificates_again_and_without_any_ends_nothing(authority: Authority) -> None:
    pair = authority.issue("service")
    tls = served(pair)

    async def hang_up(server: HttpServer) -> None:
        serving = asyncio.create_task(
            server.serve(sockets=[socket.create_server(("127.0.0.1", 0))])
        )
        while not server.started:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        assert not serving.done()
        server.should_exit = True
        await serving

    async def main() -> None:
        async with running() as harness, networked(tls) as net:
            before = await net.certificate(client(authority))
            authority.issue("service")
            await hang_up(
                HttpServer(
                    uvicorn_config(harness.service, harness.config, tls), on_hangup=tls.reload
                )
            )
            assert await net.certificate(client(authority)) != before
            await hang_up(HttpServer(uvicorn_config(harness.service, harness.config)))

    run(main)


def in_both_loops(main: Callable[[], Coroutine[None, None, None]]) -> None:
    run(main)
    uvloop.run(main())


def test_a_handshake_that_does_not_come_or_comes_slowly_ends(authority: Authority) -> None:
    pair = authority.issue("service")

    async def main() -> None:
        async with networked(served(pair), header_seconds=0.3) as net, asyncio.timeout(10):
            assert await asked(net, client(authority)) == 200
            assert await net.exchange_all(b"") == b""
            with contextlib.suppress(
                ConnectionError, RuntimeError
            ):  # uvloop's, on writing to a connection that was reset
                assert await net.exchange_all(*hello_of(client(authority), pieces=20)) == b""
            assert await asked(net, client(authority)) == 200

    in_both_loops(main)


def test_handshakes_take_places_and_give_way(authority: Authority) -> None:
    pair = authority.issue("service")

    async def main() -> None:
        async with (
            networked(served(pair), connections_max=8) as net,
            net.connected(20) as pairs,
            asyncio.timeout(10),
        ):
            for reader, _ in pairs[:12]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b"", "it gave way to those after it"
            assert await asked(net, client(authority)) == 200
            assert sum(
                reader.at_eof() or reader.exception() is not None for reader, _ in pairs
            ) in (13, 14)

    in_both_loops(main)


@pytest.mark.slow
def test_places_come_back_after_handshakes_of_any_end(authority: Authority) -> None:
    pair = authority.issue("service")
    hello, *_ = hello_of(client(authority), pieces=1)

    async def main() -> None:
        served_so = networked(served(pair), connections_max=8, header_seconds=30)
        async with served_so as net, net.connected(1) as ((kept, _),), asyncio.timeout(30):
            for _ in range(10):
                with contextlib.suppress(ConnectionError):
                    assert HTTP not in await net.exchange_all(HELLO)
                await net.cut_off(b"")
                await net.cut_off(hello[:100])
                await net.cut_off(hello)
                with pytest.raises(REFUSED):
                    await asked(net, ssl.create_default_context())
                assert await asked(net, client(authority)) == 200
                assert not kept.at_eof(), "nobody was in want of its place"

    in_both_loops(main)


def test_who_has_no_token_is_refused_before_the_body_is_read(authority: Authority) -> None:
    async def main() -> None:
        async with networked(tokens_required=True) as net:
            token = known(net.harness)
            head = b"POST /v1/events/click HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            answer = await net.exchange_all(head + b"\r\n", b"{")
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" in answer.lower()
            two = b"Authorization: Bearer " + token.text.encode() + b"\r\n"
            assert (await net.exchange_all(head + two + two + b"\r\n")).startswith(b"HTTP/1.1 401 ")
            folded = HELLO[:-2] + two[:-2] + b"\r\n \r\n\r\n"
            assert (
                await net.exchange(HELLO[:-2] + two.replace(b"Auth", b"aUTH") + b"\r\n")
            ).status == 200
            assert not (await net.exchange_all(folded)).startswith(b"HTTP/1.1 200")

    run(main)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "service.example", "127.0.0.2"])
def test_beyond_this_machine_it_listens_closed_or_not_at_all(tmp_path: Path, host: str) -> None:
    tls = '[service.tls]\ncertificate = "/c.pem"\n'
    needed = "service.tls.certificate"
    who = "service.tokens_required"
    for text, missing in (
        ("", (needed, who)),
        ("tokens_required = true\n", (needed,)),
        (tls, (who,)),
        (f'{tls}client_ca = "/ca.pem"\nclient_required = false\n', (who,)),
        (f"tokens_required = true\n{tls}", ()),
        (f'{tls}client_ca = "/ca.pem"\n', ()),
    ):
        file = tmp_path / "hourmark.toml"
        file.write_text(f'[service]\nhost = "{host}"\n{text}')
        if not missing:
            assert load_config(file).service.host == host
            continue
        with pytest.raises(ConfigError) as refused:
            load_config(file)
        assert all(setting in str(refused.value) for setting in missing)
        assert f"service.host = {host!r}" in str(refused.value)


def test_files_that_cannot_serve_stop_the_start(tmp_path: Path, authority: Authority) -> None:
    pair, other = authority.issue("service"), authority.issue("other")
    with pytest.raises(ConfigError, match=r"service\.tls\.certificate.*must match the certificate"):
        ServerTls(ServiceTls(certificate=pair.certificate, key=other.key))
    with pytest.raises(ConfigError, match=r"service\.tls\.certificate.*No such file"):
        ServerTls(ServiceTls(certificate=tmp_path / "none.pem", key=pair.key))
    with pytest.raises(ConfigError, match=r"service\.tls\.client_ca"):
        ServerTls(ServiceTls(certificate=pair.certificate, key=pair.key, client_ca=pair.key))
    together = tmp_path / "both.pem"
    together.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    assert ServerTls(ServiceTls(certificate=together)).context is not None
    with pytest.raises(ValueError, match="require certificate"):
        Config(service={"tls": {"key": pair.key}})
    assert os.access(pair.key, os.R_OK)
