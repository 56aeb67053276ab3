"""What the HTTP server answers by itself: upgrades, other spellings of paths, requests that are none."""

from __future__ import annotations

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


@pytest.mark.parametrize(("protocol", "path"), [("websocket", EVENTS), ("h2c", "/v1/ranges"), ("TLS/1.0, X/2", "/v1/reports")])
@with_scene(networked)
async def test_a_request_to_upgrade_is_refused_at_once(n: Network, protocol: str, path: str) -> None:
    """The server reads no body of such a request. What comes after it must not be taken for another request."""
    headers = (
        f"Upgrade: {protocol}",
        "Connection: Upgrade, HTTP2-Settings",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAA",
    )
    for pieces in ((request(path, *headers),), (request(path, *headers, body=b""), request("/v1/events/click"))):
        answer = await n.exchange(*pieces)
        assert answer.code() == (400, "upgrade")
        assert answer.headers["connection"] == "close"
    assert n.harness.queue.records == []


@with_scene(networked)
async def test_an_upgrade_is_passed_over_where_no_body_is_expected(n: Network) -> None:
    """Some clients offer HTTP/2 with their first request, whatever it is."""
    headers = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__")
    assert (await n.exchange(request("/v1/hello", *headers, method="GET", body=b""))).status == 200


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
