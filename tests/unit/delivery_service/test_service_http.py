"""What the HTTP server answers by itself: upgrades, other spellings of paths, requests that are none."""

from __future__ import annotations

import re

import pytest
from tests.support.service.harness import with_scene
from tests.support.service.network import Network, networked

LINE = b'{"user":"u","ms":1}\n'
EVENTS = "/v1/events/click"


def request(path: str = EVENTS, *headers: str, method: str = "POST", body: bytes = LINE) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: service", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@with_scene(networked)
async def test_events_over_the_network(n: Network) -> None:
    assert (await n.exchange(request())).status == 200


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answers)]


def asking_for(protocol: str, *, proxy: bool = False) -> tuple[str, ...]:
    connection = f"{'Proxy-' if proxy else ''}Connection: Upgrade, HTTP2-Settings"
    return f"Upgrade: {protocol}", connection, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA"


@pytest.mark.parametrize(("protocol", "path"), [("websocket", EVENTS), ("h2c", "/v1/ranges"), ("TLS/1.0, X/2", "/v1/reports")])
@pytest.mark.parametrize("method", ["POST", "GET", "HEAD", "PUT"])
@pytest.mark.parametrize("proxy", [False, True])
@with_scene(networked)
async def test_a_request_to_upgrade_is_refused_at_once(n: Network, proxy: bool, method: str, protocol: str, path: str) -> None:
    """The server reads no body of such a request. What is in it must not be taken for another request."""
    headers = asking_for(protocol, proxy=proxy)
    hidden = request()
    chunked = request(path, *headers, "Transfer-Encoding: chunked", method=method, body=b"").replace(
        b"Content-Length: 0\r\n", b""
    )
    whole = request(path, *headers, method=method, body=hidden)
    for pieces in ((whole,), (whole.removesuffix(hidden), hidden), (chunked, hidden)):
        every = await n.exchange_all(*pieces)
        assert statuses(every) == [400]
        assert b"\r\nconnection: close\r\n" in every.lower()
        assert (b'"code": "upgrade"' in every) == (method != "HEAD")
    assert n.harness.queue.records == []


@pytest.mark.parametrize("target", [b"service:80", b"[::1]:80", b"/v1/events/click", b"http://service/v1/reports"])
@with_scene(networked)
async def test_a_tunnel_is_refused_and_nothing_in_it_is_read(n: Network, target: bytes) -> None:
    head = b"CONNECT " + target + b" HTTP/1.1\r\nHost: service\r\n\r\n"
    for pieces in ((head + request(),), (head, request())):
        every = await n.exchange_all(*pieces)
        assert statuses(every) == [400]
        assert b'"code": "upgrade"' in every
    assert n.harness.queue.records == []


@with_scene(networked)
async def test_an_upgrade_is_passed_over_where_no_body_is_expected(n: Network) -> None:
    """Some clients offer HTTP/2 with their first request, whatever it is."""
    headers = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__")
    assert (await n.exchange(request("/v1/hello", *headers, method="GET", body=b""))).status == 200
    assert (await n.exchange(request(EVENTS, *headers, body=b""))).code() == (400, "batch")


@with_scene(networked)
async def test_an_upgrade_header_that_the_connection_does_not_name_means_nothing(n: Network) -> None:
    assert (await n.exchange(request(EVENTS, "Upgrade: h2c"))).status == 200


@with_scene(networked)
async def test_a_path_with_a_slash_more_is_no_path(n: Network) -> None:
    for path in ("/healthz/", "/v1/hello/", "/v1/events/click/", "/v1/ranges/", "/nothing", "//", "/v1/events/"):
        for method in ("GET", "POST"):
            assert (await n.exchange(request(path, method=method))).code() == (404, "no_such_path"), path


@with_scene(networked)
async def test_a_method_that_a_path_does_not_take_is_refused_in_the_form_of_errors(n: Network) -> None:
    for method, path in (("GET", EVENTS), ("PUT", "/v1/ranges"), ("POST", "/healthz"), ("PATCH", EVENTS)):
        assert (await n.exchange(request(path, method=method))).code() == (405, "method"), path


@with_scene(networked)
async def test_what_is_no_request_is_refused_in_the_form_of_errors(n: Network) -> None:
    for sent in (
        b"nonsense\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ):
        answer = await n.exchange(sent)
        assert answer.code() == (400, "malformed"), sent
        assert answer.headers["connection"] == "close"
