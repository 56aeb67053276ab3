"""What the HTTP server answers by itself: upgrades, other spellings of paths, requests that are
none.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.support.service.harness import with_scene
from tests.support.service.network import Network, networked

from hourmark_delivery_service.work.turns import Job

LINE = b'{"user":"u","ms":1}\n'
EVENTS = "/v1/events/click"


def request(path: str = EVENTS, *headers: str, method: str = "POST", body: bytes = LINE) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: service",
        f"Content-Length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


@with_scene(networked)
async def test_events_over_the_network(n: Network) -> None:
    assert (await n.exchange(request())).status == 200


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answers)]


def asking_for(protocol: str, *, proxy: bool = False) -> tuple[str, ...]:
    connection = f"{'Proxy-' if proxy else ''}Connection: Upgrade, HTTP2-Settings"
    return (
        f"Upgrade: {protocol}",
        connection,
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAA",
    )


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0, X/2"])
@pytest.mark.parametrize("proxy", [False, True])
@with_scene(networked)
async def test_an_offer_to_upgrade_is_passed_over_and_the_body_is_read(
    n: Network, proxy: bool, protocol: str
) -> None:
    """As Java's HttpClient offers HTTP/2 with its first request."""
    headers = asking_for(protocol, proxy=proxy)
    whole = request(EVENTS, *headers)
    in_chunks = chunked(chunk(LINE), chunk(b""), headers=headers)
    last = request(EVENTS, "Connection: close")
    for sent in (whole, in_chunks):
        for size in (len(sent) + len(last), 50, 7):
            every = sent + last
            answers = await n.exchange_all(
                *(every[at : at + size] for at in range(0, len(every), size))
            )
            assert statuses(answers) == [200, 200]
    assert len(n.harness.queue.of("hourmark.audit")) == 12


@with_scene(networked)
async def test_what_is_in_the_body_of_such_a_request_is_no_request(n: Network) -> None:
    hidden = request()
    every = await n.exchange_all(
        request(EVENTS, *asking_for("h2c"), body=hidden),
        request("/v1/hello", "Connection: close", method="GET"),
    )
    assert statuses(every) == [200, 200]
    assert len(n.harness.queue.of("hourmark.audit")) == 1


@pytest.mark.parametrize(
    "target", [b"service:80", b"[::1]:80", b"/v1/events/click", b"http://service/v1/reports"]
)
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
    headers = (
        "Upgrade: h2c",
        "Connection: Upgrade, HTTP2-Settings",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
    )
    assert (await n.exchange(request("/v1/hello", *headers, method="GET", body=b""))).status == 200
    assert (await n.exchange(request(EVENTS, *headers, body=b""))).code() == (400, "batch")


@with_scene(networked)
async def test_an_upgrade_header_that_the_connection_does_not_name_means_nothing(
    n: Network,
) -> None:
    assert (await n.exchange(request(EVENTS, "Upgrade: h2c"))).status == 200


@with_scene(networked)
async def test_a_path_with_a_slash_more_is_no_path(n: Network) -> None:
    for path in (
        "/healthz/",
        "/v1/hello/",
        "/v1/events/click/",
        "/v1/ranges/",
        "/nothing",
        "//",
        "/v1/events/",
    ):
        for method in ("GET", "POST"):
            assert (await n.exchange(request(path, method=method))).code() == (
                404,
                "no_such_path",
            ), path


@with_scene(networked)
async def test_a_method_that_a_path_does_not_take_is_refused_in_the_form_of_errors(
    n: Network,
) -> None:
    for method, path in (
        ("GET", EVENTS),
        ("PUT", "/v1/ranges"),
        ("POST", "/healthz"),
        ("PATCH", EVENTS),
    ):
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


def ended(answers: bytes) -> bool:
    return b"\r\nconnection: close\r\n" in answers.lower()


@with_scene(networked)
async def test_what_follows_an_upgrade_that_is_passed_over_is_answered_too(n: Network) -> None:
    offer = ("Upgrade: h2c", "Connection: Upgrade")
    three = [
        request("/v1/hello", *offer, method="GET", body=b""),
        request(EVENTS, *offer, body=b""),
        request(),
    ]
    last = request(EVENTS, "Connection: close")
    assert statuses(await n.exchange_all(b"".join(three) + last)) == [200, 400, 200, 200]


@with_scene(networked)
async def test_a_refusal_is_read_although_the_client_still_sends_and_then_the_connection_ends(
    n: Network,
) -> None:
    """Closed at once, a connection with unread bytes is reset, and the client never learns why."""
    body = b"x" * (8 << 20)
    for headers in (
        ("Content-Encoding: identity",),
        ("Content-Encoding: br",),
        ("Hourmark-Observed-At: 1",),
    ):
        answers = await n.exchange_all(request(EVENTS, *headers, body=body), request())
        assert statuses(answers) in ([413], [415], [400])
        assert ended(answers)
    assert n.harness.queue.records == []


@with_scene(lambda: networked(header_bytes_max=2048, headers_max=20))
async def test_headers_are_bounded_in_bytes_and_number_however_they_come(n: Network) -> None:
    many = [f"X-{number}: 1" for number in range(30)]
    for pieces in (
        (request(EVENTS, "X: " + "x" * 3000),),
        (request(EVENTS, *many),),
        (request("/" + "x" * 3000),),
        (b"GET / HTTP/1.1\r\nX: ", *[b"x" * 1000] * 6),
        (b"GET /", *[b"x" * 1000] * 6),
        (b"GET / HTTP/1.1\r\n" + b"x" * 700, *[b"x" * 1000] * 6),
    ):
        answers = await n.exchange_all(*pieces)
        assert statuses(answers) == [431], pieces[0][:60]
        assert b"headers_too_large" in answers and ended(answers)
    assert (await n.exchange(request(EVENTS, "X: " + "x" * 1500))).status == 200


def chunked(*parts: bytes, path: str = EVENTS, headers: tuple[str, ...] = ()) -> bytes:
    head = "\r\n".join(
        [f"POST {path} HTTP/1.1", "Host: service", "Transfer-Encoding: chunked", *headers, "", ""]
    ).encode()
    return head + b"".join(parts)


def chunk(part: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(part), extension, part)


@with_scene(lambda: networked(header_bytes_max=2048))
async def test_a_body_in_chunks_of_a_byte_is_taken_and_one_that_is_all_framing_is_not(
    n: Network,
) -> None:
    fine = chunked(*(chunk(bytes([one])) for one in LINE * 100), chunk(b""))
    assert (
        await n.exchange(*(fine[at : at + 4000] for at in range(0, len(fine), 4000)))
    ).status == 200
    assert statuses(await n.exchange_all(chunked(chunk(b"{") * 9000))) == [400]
    for tail in (chunk(b"x", b";e=" + b"e" * 9000), chunk(LINE) + b"0\r\nT: " + b"t" * 9000):
        sent = chunked(tail)
        answers = await n.exchange_all(
            sent[:200], *(sent[at : at + 1000] for at in range(200, len(sent), 1000))
        )
        assert statuses(answers) == [400]
    assert len(n.harness.queue.of("hourmark.audit")) == 1


@with_scene(networked)
async def test_a_trailer_is_never_taken_for_a_header(n: Network) -> None:
    trailers = (
        b"0\r\nHourmark-Client: other\r\nIdempotency-Key: k\r\nContent-Encoding: gzip\r\n\r\n"
    )
    assert (await n.exchange(chunked(chunk(LINE), trailers))).status == 200


@with_scene(networked)
async def test_requests_before_what_is_no_request_are_answered_and_nothing_after_it_is_read(
    n: Network,
) -> None:
    for count in (1, 2, 5):
        answers = await n.exchange_all(
            request() * count + b"\x16\x03\x01 garbage\r\n\r\n" + request()
        )
        assert statuses(answers) == [*[200] * count, 400]
        assert ended(answers)
    assert len(n.harness.queue.of("hourmark.audit")) == 8


@with_scene(networked)
async def test_requests_before_one_with_a_wrong_body_are_answered(n: Network) -> None:
    n.harness.queue.hold = asyncio.Event()
    answers = asyncio.create_task(n.exchange_all(request() * 2 + chunked(b"x\r\n") + request()))
    await asyncio.sleep(0.2)
    n.harness.queue.hold.set()
    assert statuses(await answers) == [200, 200, 400]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (["POST {} HTTP/1.1"], (400, "host")),
        (["POST {} HTTP/1.1", "Host: a", "Host: a"], (400, "host")),
        (["POST {} HTTP/1.0", "Host: a", "Host: b"], (400, "host")),
        (["POST {} HTTP/2.0", "Host: a"], (400, "http_version")),
        (["POST {} HTTP/0.9", "Host: a"], (400, "http_version")),
        (
            ["POST {} HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked"],
            (501, "transfer_encoding"),
        ),
        (
            [
                "POST {} HTTP/1.1",
                "Host: a",
                "Transfer-Encoding: gzip",
                "Transfer-Encoding: chunked",
            ],
            (501, "transfer_encoding"),
        ),
    ],
)
@with_scene(networked)
async def test_headers_that_contradict_http_are_refused_in_turn(
    n: Network, head: list[str], expected: tuple[int, str]
) -> None:
    framing = [] if any("Transfer" in line for line in head) else [f"Content-Length: {len(LINE)}"]
    sent = "\r\n".join([head[0].format(EVENTS), *head[1:], *framing, "", ""]).encode()
    body = LINE if framing else chunk(LINE) + chunk(b"")
    assert (await n.exchange(sent + body)).code() == expected
    answers = await n.exchange_all(request() + sent + body + request())
    assert statuses(answers) == [200, expected[0]]
    assert ended(answers)
    assert len(n.harness.queue.of("hourmark.audit")) == 1


@with_scene(networked)
async def test_http_1_0_needs_no_host(n: Network) -> None:
    sent = f"POST {EVENTS} HTTP/1.0\r\nContent-Length: {len(LINE)}\r\n\r\n".encode() + LINE
    assert (await n.exchange(sent)).status == 200


TWO_READINGS: Final = [
    ("Content-Length: 5", "Content-Length: 6"),
    ("Content-Length: 5", "Content-Length: 5"),
    ("Content-Length: 5, 6",),
    ("Content-Length: +5",),
    ("Content-Length: 0x5",),
    ("Content-Length: 99999999999999999999999",),
    ("Content-Length: 5", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 5"),
    ("Transfer-Encoding: chunked, identity",),
    ("Transfer-Encoding: xchunked",),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ("Transfer-Encoding : chunked",),
    (" Transfer-Encoding: chunked",),
]


@with_scene(networked)
async def test_two_readings_of_a_length_are_none(n: Network) -> None:
    """What a proxy in front might read otherwise, a hidden request among it, is refused whole."""
    for framing in TWO_READINGS:
        head = "\r\n".join([f"POST {EVENTS} HTTP/1.1", "Host: service", *framing, "", ""]).encode()
        answers = await n.exchange_all(head + b"0\r\n\r\n" + request())
        assert statuses(answers) == [400], framing
        assert ended(answers)
    assert n.harness.queue.records == []


@with_scene(networked)
async def test_a_wrong_chunk_size_is_refused(n: Network) -> None:
    for size in (b"-1", b"0x5", b"5 5", b"", b"fffffffffffffffff", b"5\n", b"g", b"+5", b"5_0"):
        answers = await n.exchange_all(chunked(size + b"\r\n12345\r\n0\r\n\r\n") + request())
        assert statuses(answers) == [400], size
    assert n.harness.queue.records == []


@with_scene(networked)
async def test_more_requests_than_may_wait_are_refused_after_those_that_may(n: Network) -> None:
    n.harness.queue.hold = asyncio.Event()
    answers = asyncio.create_task(n.exchange_all(request() * 40))
    await asyncio.sleep(0.2)
    n.harness.queue.hold.set()
    found = statuses(await answers)
    assert found == [*[200] * (len(found) - 1), 400]
    assert 30 < len(found) < 40
    assert (await n.exchange(request() * 30)).status == 200


@with_scene(lambda: networked(header_seconds=0.3, idle_seconds=0.6))
async def test_who_is_slow_with_headers_or_says_nothing_is_not_waited_for(n: Network) -> None:
    answers = await n.exchange_all(b"GET /healthz HTTP/1.1\r\nX: ", *[b"x"] * 12)
    assert statuses(answers) == [408]
    with contextlib.suppress(ConnectionError):
        assert await n.exchange_all() == b""
    with contextlib.suppress(ConnectionError):
        assert statuses(await n.exchange_all(request())) == [200]


@with_scene(lambda: networked(connections_max=8))
async def test_for_one_more_connection_the_one_goes_that_waited_longest(n: Network) -> None:
    async with n.connected(50) as half_open:
        for _, writer in half_open:
            writer.write(b"GET / HTTP/1.1\r\n")
        for _ in range(20):
            assert (await n.exchange(request())).status == 200
        _, last = half_open[-1]
        last.write(b"\r\n")
    n.harness.queue.hold = asyncio.Event()
    async with n.connected(8) as busy:
        for _, writer in busy:
            writer.write(request())
        while n.harness.service.inflight.requests < 16:
            await asyncio.sleep(0.01)
        assert (await n.exchange(b"")).code() == (503, "connections")
        n.harness.queue.hold.set()
        for reader, _ in busy:
            assert b" 200 " in await reader.readuntil(b"\r\n")


@with_scene(networked)
async def test_work_for_a_client_that_left_before_its_first_append_ends_and_a_retry_is_delivered(
    n: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, its_turn = n.harness.service, asyncio.Event()
    run_in_loop = service.executor.run_in_loop

    async def on_its_turn(job: Job, call: Callable[[], Any]) -> Any:
        await its_turn.wait()
        return await run_in_loop(job, call)

    with monkeypatch.context() as patch:
        patch.setattr(service.executor, "run_in_loop", on_its_turn)
        async with n.connected(1) as [(_, writer)]:
            writer.write(request())
            while service.inflight.requests < 2:
                await asyncio.sleep(0.01)
        while service.inflight.requests:
            await asyncio.sleep(0.01)
    its_turn.set()
    await asyncio.sleep(0.05)
    assert n.harness.queue.records == []
    assert (await n.exchange(request())).status == 200
    assert service.inflight.bytes == 0


@with_scene(networked)
async def test_what_the_queue_has_is_counted_and_finished_though_its_client_left_and_a_retry_joins_it(
    n: Network,
) -> None:
    queue, inflight = n.harness.queue, n.harness.service.inflight
    queue.hold = asyncio.Event()
    sent = request(
        EVENTS, "Idempotency-Key: k", f"Hourmark-Observed-At: {n.harness.clock.now_ms()}"
    )
    for _ in range(3):
        async with n.connected(1) as [(_, writer)]:
            writer.write(sent)
            while inflight.requests < 2:
                await asyncio.sleep(0.01)
        while inflight.requests > 1:
            await asyncio.sleep(0.01)
        assert inflight.bytes > 0, "the queue still holds its records"
    retry = asyncio.create_task(n.exchange(sent))
    while inflight.requests < 2:
        await asyncio.sleep(0.01)
    queue.hold.set()
    assert (await retry).status == 200
    assert [record.topic for record in queue.records] == ["events.click", "hourmark.audit"], (
        "all four were one delivery"
    )
    assert (inflight.bytes, inflight.requests) == (0, 0)
