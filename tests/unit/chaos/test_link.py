"""A link is a bad network when it is told to be, and a good one otherwise."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.faults.chaos.link import Link, Mode, Network
from tests.support.waiting import wait_for

from hourmark_infra.stack.layout import free_ports


class Echo:
    """A server that answers each piece by itself; `heard` is all that arrived."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.heard = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while piece := connection.recv(1000):
                    self.heard += piece
                    connection.sendall(piece)
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    network = Network()
    yield Link(free_ports(("link",))["link"], echo.address, network)
    network.stop()


def connected(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=1.0)


def test_an_open_link_passes_everything(link: Link) -> None:
    with connected(link) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"


def test_a_cut_link_resets_what_is_there_and_what_comes(link: Link) -> None:
    with connected(link) as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
        link.set(Mode.CUT)
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    with pytest.raises(ConnectionResetError), connected(link) as client:
        client.recv(10)


def test_a_half_open_link_says_nothing_and_what_it_swallowed_never_goes_on(
    link: Link, echo: Echo
) -> None:
    with connected(link) as client:
        link.set(Mode.HALF_OPEN)
        client.sendall(b"hello")
        with pytest.raises(TimeoutError):
            client.recv(10)
        link.set(Mode.OPEN)
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    assert not echo.heard


def test_answers_are_lost_after_the_request_arrived(link: Link, echo: Echo) -> None:
    link.set(Mode.ANSWERS_LOST, 0.5)

    def lost() -> bool:
        with connected(link) as client:
            echo.heard.clear()
            client.sendall(b"hello")
            try:
                return client.recv(10) != b"hello"
            except ConnectionResetError:
                return True

    wait_for(lost, "an answer is lost", 10)
    assert echo.heard == b"hello"
    assert link.lost_answers
    link.set(Mode.OPEN)
    assert not lost()


def test_a_slow_link_takes_its_time(link: Link) -> None:
    link.set(Mode.DELAY)
    with connected(link) as client:
        client.settimeout(0.2)
        client.sendall(b"hello")
        with pytest.raises(TimeoutError):
            client.recv(10)
        client.settimeout(5)
        assert client.recv(10) == b"hello"
