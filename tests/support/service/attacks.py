"""What hostile clients do to the service, each under its name.

`python -m tests.support.service.attacks PORT SINK_PORT` does what its input names: see `main`. It
takes processors last of all: they are for the service and its good client.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Final

import zstandard
from tests.support.service.examples import range_of

from hourmark.records.wire import range_headers

SOCKETS: Final = 600  # of one flood; above what the attacked service has places for
PAUSE_S: Final = 0.005
MEBIBYTE: Final = 1 << 20

Attack = Callable[["Target"], None]


class Target:
    """A port, and sockets to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._numbers = itertools.count()

    def connect(self) -> socket.socket:
        """A connection that gives up after a while."""
        return socket.create_connection(("127.0.0.1", self._port), timeout=2)

    def send(self, *pieces: bytes, pause_s: float = 0.0) -> bytes:
        """Send on a connection of its own; the first bytes of what comes back, none if it is cut
        off.
        """
        with contextlib.suppress(OSError), self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_s)
            return connection.recv(4096)
        return b""

    def flood(self, first: bytes, more: bytes = b"") -> None:
        """Many connections that stay open, each with these bytes, and then more of them now and
        then.
        """
        with contextlib.ExitStack() as stack:
            open_sockets = []
            for _ in range(SOCKETS):
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(self.connect())
                    connection.sendall(first)
                    open_sockets.append(connection)
            for _ in range(20):
                time.sleep(0.1)
                for connection in open_sockets if more else ():
                    with contextlib.suppress(OSError):
                        connection.sendall(more)

    def range_head(self, length: int, *headers: str, size: int = 0) -> bytes:
        """Headers of a range that is another one each time; `length`: what comes, `size`: what it
        inflates to.
        """
        start = next(self._numbers) << 23
        sent = range_headers(
            range_of(
                b"",
                start=start,
                end=start + (size or length),
                observed_at_ms=time.time_ns() // 1_000_000,
            )
        )
        lines = [f"{name}: {value}" for name, value in sent.items()]
        return "\r\n".join(
            [
                "POST /v1/ranges HTTP/1.1",
                "Host: s",
                f"Content-Length: {length}",
                *lines,
                *headers,
                "",
                "",
            ]
        ).encode()

    def range(self, body: bytes, *headers: str, size: int = 0) -> bytes:
        """A whole range."""
        return self.range_head(len(body), *headers, size=size) + body


ATTACKS: Final[dict[str, Attack]] = {}
TLS_ATTACKS: Final[dict[str, Attack]] = {}  # on a port that speaks TLS


def attack(function: Attack) -> Attack:
    """Enter it into the list, under its name."""
    ATTACKS[function.__name__] = function
    return function


def attack_on_tls(function: Attack) -> Attack:
    """Enter it into the list of those on TLS."""
    TLS_ATTACKS[function.__name__] = function
    return function


GET: Final = b"GET /healthz HTTP/1.1\r\nHost: s\r\n"
HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 1000
CHUNKED: Final = b"POST /v1/events/click HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n"


@attack
def half_open_connections(target: Target) -> None:
    target.flood(b"")


@attack
def slow_headers(target: Target) -> None:
    target.flood(GET, b"X: y\r\n")


@attack
def idle_bodies_of_announced_megabytes(target: Target) -> None:
    target.flood(target.range_head(4 * MEBIBYTE))


@attack
def slow_bodies(target: Target) -> None:
    target.flood(target.range_head(MEBIBYTE) + b"x" * 60_000, b"x")


@attack
def endless_headers(target: Target) -> None:
    target.send(GET + b"X: ", *[b"x" * MEBIBYTE] * 60)


@attack
def very_many_headers(target: Target) -> None:
    target.send(GET, *[b"X: y\r\n" * 100_000] * 10)


@attack
def endless_trailers_and_chunk_extensions(target: Target) -> None:
    target.send(CHUNKED + b"1\r\nx\r\n0\r\nX: ", *[b"x" * MEBIBYTE] * 20)
    target.send(CHUNKED + b"1;", *[b"x" * MEBIBYTE] * 20)


@attack
def bodies_of_one_byte_chunks(target: Target) -> None:
    target.send(CHUNKED, *[b"1\r\n{\r\n" * 40_000] * 4, b"0\r\n\r\n")


@attack
def chunk_sizes_that_are_none(target: Target) -> None:
    for size in (b"-1", b"fffffffffffffffff", b"0x5", b"g"):
        target.send(CHUNKED + size + b"\r\nx\r\n0\r\n\r\n")


@attack
def lengths_that_disagree(target: Target) -> None:
    head = b"POST /v1/events/click HTTP/1.1\r\nHost: s\r\nContent-Length: 5\r\n"
    target.send(head + b"Content-Length: 6\r\n\r\n0\r\n\r\n" + GET + b"\r\n")
    target.send(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET + b"\r\n")


@attack
def pipelined_requests(target: Target) -> None:
    target.send((GET + b"\r\n") * 20_000)
    target.send((GET.replace(b"/healthz", b"/metrics") + b"\r\n") * 30)


@attack
def answers_that_are_not_read(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(target.connect())
            with contextlib.suppress(OSError):
                connection.sendall((GET.replace(b"/healthz", b"/metrics") + b"\r\n") * 30)
        time.sleep(0.5)


@attack
def bodies_far_over_the_limit(target: Target) -> None:
    target.send(target.range_head(1 << 40), *[b"x" * MEBIBYTE] * 64)


@attack
def bombs(target: Target) -> None:
    zeros = b"\0" * (64 * MEBIBYTE)
    for encoding, body in (("gzip", BOMB_GZIP), ("zstd", zstandard.compress(zeros))):
        target.send(target.range(body, f"Content-Encoding: {encoding}", size=1000))


@attack
def nested_compression(target: Target) -> None:
    target.send(
        target.range(gzip.compress(BOMB_GZIP), "Content-Encoding: gzip", size=len(BOMB_GZIP))
    )
    target.send(target.range(BOMB_GZIP, "Content-Encoding: gzip, gzip", size=1000))


@attack
def bodies_of_very_many_empty_frames(target: Target) -> None:
    for encoding, empty in (("gzip", gzip.compress(b"")), ("zstd", zstandard.compress(b""))):
        body = empty * (4 * MEBIBYTE // len(empty))
        target.send(target.range(body, f"Content-Encoding: {encoding}", size=1))


@attack
def frames_with_too_large_a_window(target: Target) -> None:
    window = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=window).compressobj()
    body = packer.compress(b"x" * 1000) + packer.flush()
    target.send(target.range(body, "Content-Encoding: zstd", size=1000))


@attack
def lines_of_brackets(target: Target) -> None:
    for part in (b"[", b"[]", b'{"a":'):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode()
        head = b"<13>1 " + now + b' - a p click - {"user":'
        line = head + part * ((4 * MEBIBYTE - len(head)) // len(part))
        target.send(target.range(line[: 4 * MEBIBYTE - 1] + b"\n"))


@attack
def very_many_tiny_lines(target: Target) -> None:
    for unit in (b"\n", b"x\n", b"{}\n"):
        target.send(target.range(unit * (MEBIBYTE // len(unit))))


@attack
def the_same_large_range_again_and_again(target: Target) -> None:
    body = target.range(b"x\n" * (MEBIBYTE // 4))
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(target.connect())
            with contextlib.suppress(OSError):
                connection.sendall(body)
        time.sleep(0.5)


@attack
def upgrades(target: Target) -> None:
    upgrade = b"Upgrade: h2c\r\nConnection: Upgrade\r\n"
    target.send((GET + upgrade + b"\r\n") * 1000)
    target.send(GET + upgrade + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000)


@attack
def http2_without_asking(target: Target) -> None:
    target.send(HTTP2)


@attack
def tls_on_the_plain_port(target: Target) -> None:
    target.send(client_hello())


def client_hello() -> bytes:
    """What a client of TLS says first."""
    outgoing, context = ssl.MemoryBIO(), ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@attack_on_tls
def connections_without_a_handshake(target: Target) -> None:
    target.flood(b"")


@attack_on_tls
def slow_handshakes(target: Target) -> None:
    target.flood(client_hello()[:40], b"\0")


@attack_on_tls
def handshakes_that_do_not_go_on(target: Target) -> None:
    target.flood(client_hello())


@attack_on_tls
def handshakes_by_the_hundred(target: Target) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _ in range(100):
        with contextlib.suppress(OSError), target.connect() as plain, context.wrap_socket(plain):
            pass


@attack_on_tls
def plain_requests_on_the_tls_port(target: Target) -> None:
    target.send(GET + b"\r\n")
    target.send(target.range(b"x\n" * MEBIBYTE))


@attack_on_tls
def http2_on_the_tls_port(target: Target) -> None:
    target.send(HTTP2)


@attack_on_tls
def records_of_tls_that_are_none(target: Target) -> None:
    target.send(
        b"\x16\x03\x01\x40\x00" + b"\xff" * (16 << 10),
        *[b"\x17\x03\x03\x40\x00" + b"\xff" * (16 << 10)] * 100,
    )


BOMB_GZIP: Final = gzip.compress(b"\0" * (16 * MEBIBYTE))


def main() -> None:
    """Each line of the input names an attack and its target, until the next line; an empty one is
    none. An answer to each.
    """
    os.nice(19)
    targets = {"service": Target(int(sys.argv[1])), "sink": Target(int(sys.argv[2]))}
    child = 0
    for line in sys.stdin:
        died = child != 0 and os.waitpid(child, os.WNOHANG)[0] == child
        if child and not died:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        child = os.fork() if line.strip() else 0
        if child == 0 and line.strip():
            name, of = line.split()
            while True:
                (ATTACKS | TLS_ATTACKS)[name](targets[of])
                time.sleep(PAUSE_S)
        print("died" if died else "ready", flush=True)


if __name__ == "__main__":
    main()
