"""Connections of the tailer to its services: kept, given up when they must be, and never trusted
with half an answer.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.waiting import wait_for

from hourmark_producer.send.connections import (
    ANSWER_BYTES_MAX,
    TRANSPORT_ERRORS,
    ConnectionPool,
    HttpResponse,
    ServiceAddress,
)

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nHourmark-Clock: 7\r\n\r\n{}"
TLS = ssl.create_default_context()


class Server(threading.Thread):
    """Answers one request after another with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(daemon=True)
        self.answer, self.closes = answer, False
        self.accepted: list[socket.socket] = []
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the test has closed it
            while head := connection.recv(1 << 16):
                self.requests.append(head)
                connection.sendall(self.answer)
                if self.closes:
                    return


@contextmanager
def serving(answer: bytes = WHOLE) -> Iterator[tuple[Server, ServiceAddress]]:
    server = Server(answer)
    try:
        yield (
            server,
            ServiceAddress.from_url(f"http://127.0.0.1:{server.listener.getsockname()[1]}/base/"),
        )
    finally:
        server.listener.close()
        for connection in server.accepted:
            connection.close()


@pytest.fixture
def connections() -> Iterator[ConnectionPool]:
    connections = ConnectionPool()
    yield connections
    connections.close()


def ask(
    connections: ConnectionPool, address: ServiceAddress, tls: ssl.SSLContext = TLS
) -> HttpResponse:
    return connections.request(address, "GET", "/v1/hello", {"A": "b"}, b"", timeout_s=5.0, tls=tls)


def test_one_connection_carries_requests_that_follow_one_another(
    connections: ConnectionPool,
) -> None:
    with serving() as (server, address):
        for _ in range(3):
            answer = ask(connections, address)
            assert (answer.status, answer.content, answer.headers["hourmark-clock"]) == (
                200,
                b"{}",
                "7",
            )
        assert len(server.accepted) == 1
        assert (
            server.requests[0].startswith(b"GET /base/v1/hello HTTP/1.1\r\n")
            and b"\r\nA: b\r\n" in server.requests[0]
        )


def test_a_connection_that_the_service_closed_meanwhile_costs_no_request(
    connections: ConnectionPool,
) -> None:
    with serving() as (server, address):
        ask(connections, address)
        server.accepted[0].shutdown(socket.SHUT_RDWR)
        ask(connections, address)
        assert len(server.accepted) == 2


def test_an_answer_that_says_so_is_the_last_of_its_connection(connections: ConnectionPool) -> None:
    with serving(WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as (server, address):
        ask(connections, address)
        ask(connections, address)
        assert len(server.accepted) == 2


def test_replaced_certificates_end_a_connection_at_its_next_request(
    connections: ConnectionPool,
) -> None:
    with serving() as (server, address):
        ask(connections, address)
        ask(connections, address, ssl.create_default_context())
        assert len(server.accepted) == 2


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE[:-1],
        WHOLE.replace(b"Content-Length: 2", b"Content-Length: 20"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 200 OK\r\n",
        b"no HTTP at all\r\n\r\n",
        b"",
    ],
)
def test_half_an_answer_is_none(connections: ConnectionPool, answer: bytes) -> None:
    with serving(answer) as (server, address):
        server.closes = True
        with pytest.raises(TRANSPORT_ERRORS):
            ask(connections, address)


def test_an_endless_answer_is_not_read(connections: ConnectionPool) -> None:
    answer = WHOLE.replace(b"Content-Length: 2", b"Content-Length: %d" % (ANSWER_BYTES_MAX + 1))
    with (
        serving(answer) as (_, address),
        pytest.raises(http.client.HTTPException, match="too large for a delivery service"),
    ):
        ask(connections, address)


def test_an_answer_that_comes_byte_by_byte_holds_nobody_longer_than_one_that_does_not_come(
    connections: ConnectionPool,
) -> None:
    with serving(b"") as (server, address), contextlib.ExitStack() as ends:
        ended = threading.Event()
        ends.callback(ended.set)

        def drip() -> None:
            wait_for(lambda: bool(server.requests), "it is asked")
            with contextlib.suppress(OSError):  # given up
                for at in range(len(WHOLE)):
                    server.accepted[0].sendall(WHOLE[at : at + 1])
                    ended.wait(0.1)

        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(TimeoutError):
            connections.request(address, "GET", "/v1/hello", {}, b"", timeout_s=0.5, tls=TLS)
        ended.set()
        dripping.join(30.0)


def test_an_answer_that_does_not_wait_for_all_of_its_request_is_heard(
    connections: ConnectionPool,
) -> None:
    with serving(WHOLE.replace(b"200 OK", b"413 Too Large")) as (server, address):
        server.closes = True
        answer = connections.request(
            address, "POST", "/v1/ranges", {}, bytes(20 << 20), timeout_s=5.0, tls=TLS
        )
        assert answer.status == 413
        with serving() as (_, other):
            assert ask(connections, other).status == 200


def test_what_a_service_closed_that_is_asked_no_more_is_let_go(connections: ConnectionPool) -> None:
    """As of a name that stands for other addresses by now."""
    with serving() as (server, address), serving() as (_, other):
        ask(connections, address)
        server.accepted[0].shutdown(socket.SHUT_RDWR)
        ((kept,),) = connections._idle.values()
        wait_for(lambda: kept.connection.recv(1, socket.MSG_PEEK) == b"", "it is closed")
        ask(connections, other)
        assert kept.connection.fileno() == -1


def test_closing_closes_what_is_idle_and_what_was_under_way_afterwards(
    connections: ConnectionPool,
) -> None:
    with serving() as (server, address):
        ask(connections, address)
        connections.close()
        wait_for(lambda: not _peer_is_open(server.accepted[0]), "the idle one is closed")
        ask(connections, address)
        wait_for(lambda: not _peer_is_open(server.accepted[1]), "that one too")


def _peer_is_open(connection: socket.socket) -> bool:
    try:
        return connection.fileno() >= 0 and connection.send(b"x") == 1
    except OSError:
        return False


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix"),
    [
        ("http://edge.example", "edge.example", 80, ""),
        ("https://edge.example/logs/", "edge.example", 443, "/logs"),
        ("https://[::1]", "::1", 443, ""),
        ("http://[::1]:8780", "::1", 8780, ""),
    ],
)
def test_addresses(url: str, host: str, port: int, prefix: str) -> None:
    assert ServiceAddress.from_url(url)[1:4] == (host, port, prefix)


def test_a_user_in_a_url_is_shown_to_the_service() -> None:
    assert ServiceAddress.from_url("http://a%40b:c%3Ad@host").headers == (
        ("Authorization", "Basic YUBiOmM6ZA=="),
    )


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8780",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://host?a=b",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError):
        ServiceAddress.from_url(url)


def test_a_chunked_answer_without_end_is_read_up_to_the_limit_only() -> None:
    chunk = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
    with serving(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk * (ANSWER_BYTES_MAX // (1 << 16) + 1)
    ) as (
        _,
        to,
    ):
        connections = ConnectionPool()
        with pytest.raises(http.client.HTTPException, match=f"more than {ANSWER_BYTES_MAX} bytes"):
            connections.request(to, "GET", "/", {}, b"", timeout_s=20, tls=TLS)
        connections.close()


def test_a_chunked_answer_is_read_to_its_end_and_its_connection_kept() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n") as (
        server,
        to,
    ):
        connections = ConnectionPool()
        for _ in range(2):
            assert (
                connections.request(to, "GET", "/", {}, b"", timeout_s=20, tls=TLS).content == b"{}"
            )
        connections.close()
        assert len(server.accepted) == 1
