"""Tokens at the door: who is let in, to what, and how much of it. The hostile cases are here
too.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.support.records import host_report
from tests.support.service.examples import HOST, NOW_MS, syslog
from tests.support.service.harness import Harness, with_service
from tests.support.service.tokens import bearer, known, made, record, tombstone

from hourmark.records.wire import report_to_json
from hourmark_delivery_service.access.token import NewToken, Token, verify_token
from hourmark_delivery_service.edge.app import create_app

LINE = b'{"user": "u", "ms": 1}'
OF_REPORTS = {"reports", "service_reports"}  # fields of a token that 0.3.0 does not know
with_tokens = with_service(tokens_required=True)


async def post_report(h: Harness, token: NewToken, name: str, **report: Any) -> httpx.Response:
    """Post a report of the host of this name."""
    sent = host_report(NOW_MS, **{"host_id": HOST, "host_name": name, "kind": "tailer", **report})
    return await h.client.post("/v1/reports", content=report_to_json(sent), headers=bearer(token))


async def status(
    h: Harness, authorization: str | list[str] | None, path: str = "/v1/hello"
) -> tuple[int, str]:
    """Status and code of a GET with these headers."""
    given = [authorization] if isinstance(authorization, str) else authorization or []
    answer = await h.client.get(path, headers=[("Authorization", value) for value in given])
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["code"]


@with_tokens
async def test_without_a_token_that_is_in_force_nothing_is_reached_but_the_probes(
    h: Harness,
) -> None:
    token = known(h)
    for path in (
        "/v1/hello",
        "/metrics",
        "/openapi.json",
        "/nothing",
        "/healthz/",
        "/HEALTHZ",
        "//healthz",
        "/v1/ranges",
    ):
        answer = await h.client.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.headers["Connection"] == "close"
        assert answer.json()["code"] == "no_token"
        assert "hourmark token create" in answer.json()["next_step"]
    for path in ("/healthz", "/readyz"):
        assert (await h.client.get(path)).status_code == 200
    assert (await h.post_events(LINE)).status_code == 401
    assert (await h.post_range(syslog())).status_code == 401
    assert not h.queue.records
    assert (await h.client.get("/v1/hello", headers=bearer(token))).status_code == 200
    assert b'hourmark_service_denied_total{reason="no_token"} 10.0' in h.metrics.exposition()


@with_service()
async def test_where_none_are_required_a_token_is_passed_over(h: Harness) -> None:
    assert await status(h, "Bearer whatever") == (200, "")
    assert (await h.post_events(LINE)).status_code == 200


@with_tokens
async def test_odd_authorization_headers_let_nobody_in(h: Harness) -> None:
    token = known(h)
    text, other = token.text, made().text
    assert await status(h, f"bearer {text}") == (200, "")
    assert await status(h, f"BEARER   {text} ") == (200, "")
    for odd in ("", text, f"Basic {text}", f"Bearer\t{text}"):
        assert await status(h, odd) == (401, "no_token"), odd
    digest, name = token.token.digest, token.token.id
    for odd in (
        "",
        f"{text}, Bearer {text}",
        f"{text} x",
        text.upper(),
        text[:-1],
        f"{text}A",
        other,
        text[:21] + other[21:],
        digest,
        f"hmk_{name}_{digest}",
        f"hmk_{name}_{digest[:43]}",
        "hmk_" + "0" * 16 + "_" + "A" * 43,
        "A" * 60_000,
    ):
        assert await status(h, f"Bearer {odd}") == (401, "unknown_token"), odd
    assert await status(h, [f"Bearer {text}", f"Bearer {text}"]) == (401, "no_token")
    assert await status(h, [f"Bearer {other}", f"Bearer {text}"]) == (401, "no_token")
    for raw in (
        text.encode() + b"\xc3\xa9",
        "".join(chr(ord(c) + 0xFEE0) for c in text).encode(),
        b"\xff\xfe",
    ):
        answer = await h.client.get("/v1/hello", headers=[(b"Authorization", b"Bearer " + raw)])
        assert answer.status_code == 401, raw


@with_tokens
async def test_a_token_covers_its_types_and_no_others(h: Harness) -> None:
    token = known(h, types=("cl*", "n?te"))
    assert (await h.post_events(LINE, **bearer(token))).status_code == 200
    assert (await h.post_events(b'{"text": "x"}', "note", **bearer(token))).status_code == 200
    for event_type in ("raw", "server", "Click", "c%6cick2x", "no/te", "nothing", "dead-letters"):
        answer = await h.post_events(LINE, event_type, **bearer(token))
        assert answer.status_code == (
            404 if "/" in event_type else 403 if event_type != "c%6cick2x" else 404
        ), event_type
    refused = await h.post_events(LINE, "raw", **bearer(token))
    assert refused.json()["code"] == "not_covered"
    assert token.token.id in refused.json()["detail"] and "raw" in refused.json()["detail"]
    every = known(h)
    assert (await h.post_events(LINE, "dead-letters", **bearer(every))).status_code == 404, (
        "only be created by the service"
    )
    assert {r.topic for r in h.queue.records} == {"events.click", "events.note", "hourmark.audit"}


@with_tokens
async def test_a_range_needs_its_host_and_all_types_that_its_source_may_carry(h: Harness) -> None:
    web = known(h, hosts=("web-*",))
    assert (await h.post_range(syslog(), headers=bearer(web))).status_code == 200
    for name in ("db-1", "Web-1", "xweb-1", "web%2D1x\n", "db-1%00web-1"):
        answer = await h.post_range(syslog(), headers=bearer(web) | {"Hourmark-Host-Name": name})
        assert answer.status_code == (200 if name.startswith("web") else 403), name
    assert (
        await h.post_range(syslog(), headers=bearer(web) | {"Hourmark-Host-Name": "%64b-1"})
    ).status_code == 403
    bound = known(h, hosts=("web-*",), host_ids=(HOST,))
    assert (await h.post_range(syslog(), headers=bearer(bound))).status_code == 200
    assert (
        await h.post_range(syslog(), host_id="9" * 32, headers=bearer(bound))
    ).status_code == 403
    click = known(h, types=("click",))
    before = len(h.queue.records)
    assert (await h.post_range(syslog(), headers=bearer(click))).status_code == 403, (
        "the source app carries notes, too"
    )
    assert (await h.post_range(b"x\n", "caught", headers=bearer(click))).status_code == 403, (
        "its catch-all is another type"
    )
    assert len(h.queue.records) == before
    assert (await h.post_range(b"x\n", "nothing", headers=bearer(click))).status_code == 200, (
        "dead letters are nobody's type"
    )
    both = known(h, types=("click", "note", "raw"))
    assert (await h.post_range(syslog(), headers=bearer(both))).status_code == 200


@with_tokens
async def test_a_token_of_one_type_cannot_report_for_any_host(h: Harness) -> None:
    token = known(h, types=("click",))
    for kind in ("tailer", "service"):
        for goodbye in (False, True):
            answer = await post_report(h, token, "db-1", kind=kind, goodbye=goodbye)
            assert (answer.status_code, answer.json()["code"]) == (403, "not_covered")
    assert not h.queue.of("hourmark.hosts")


@with_tokens
async def test_reports_are_covered_by_named_hosts_apart_from_ranges(h: Harness) -> None:
    token = known(h, hosts=("*",), reports=("web-*",))
    assert (await post_report(h, token, "web-7")).status_code == 200
    assert (await post_report(h, token, "web-7", goodbye=True)).status_code == 200
    assert (await post_report(h, token, "db-1")).status_code == 403
    answer = await post_report(h, token, "web-7", kind="service")
    assert answer.status_code == 403
    assert "--service-reports" in answer.json()["detail"]
    bound = known(h, reports=("*",), host_ids=("9" * 32,))
    assert (await post_report(h, bound, "web-7")).status_code == 403, (
        "the report names another host id"
    )
    assert (await post_report(h, bound, "web-7", host_id="9" * 32)).status_code == 200


@with_tokens
async def test_services_that_report_over_http_have_a_permission_of_their_own(h: Harness) -> None:
    token = known(h, service_reports=("events-1",))
    assert (await post_report(h, token, "events-1", kind="service")).status_code == 200
    assert (await post_report(h, token, "events-1", kind="tailer")).status_code == 403
    assert (await post_report(h, token, "events-2", kind="service")).status_code == 403


@pytest.mark.parametrize("pattern", ["*", "**", "?*"])
def test_a_permission_for_the_reports_of_every_host_is_not_given(pattern: str) -> None:
    for option in ("reports", "service_reports"):
        with pytest.raises(ValueError, match="use a narrower pattern"):
            made(**{option: (pattern,)})
        assert made(host_ids=(HOST,), **{option: (pattern,)}).token.host_ids == (HOST,)


def of_0_3_0(**covers: Any) -> NewToken:
    """A token as 0.3.0 wrote it: without a word of reports."""
    new = made(**covers)
    return new._replace(
        token=Token.from_json(new.token.id, new.token.model_dump_json(exclude=OF_REPORTS).encode())
    )


@with_tokens
async def test_a_token_of_0_3_0_keeps_its_tailers_reporting(h: Harness) -> None:
    token = of_0_3_0(hosts=("web-*",))
    h.service.access.token_store.feed([record(token.token)], from_start=True)
    assert (await h.post_range(syslog(), headers=bearer(token))).status_code == 200
    assert (await post_report(h, token, "web-7")).status_code == 200
    assert (await post_report(h, token, "web-7", goodbye=True)).status_code == 200
    assert (await post_report(h, token, "db-1")).status_code == 403
    assert (await post_report(h, token, "web-7", kind="service")).status_code == 403, (
        "no tailer is a service"
    )


def test_a_token_of_0_3_0_stays_one_that_0_3_0_reads() -> None:
    token = of_0_3_0().token
    for written in (token.to_json(), token.revoke(NOW_MS).to_json()):
        assert not OF_REPORTS & json.loads(written).keys()
    assert json.loads(made().token.to_json()).keys() >= OF_REPORTS


@with_tokens
async def test_revoked_and_expired_tokens_are_told_so_to_whoever_has_them(h: Harness) -> None:
    token = known(h, expires_at_ms=NOW_MS + 1000)
    h.clock.advance(0.999)
    assert await status(h, f"Bearer {token.text}") == (200, "")
    h.clock.advance(0.001)
    assert await status(h, f"Bearer {token.text}") == (401, "expired_token")
    other = known(h)
    h.service.access.token_store.feed([record(other.token.revoke(NOW_MS))], from_start=False)
    assert await status(h, f"Bearer {other.text}") == (401, "revoked_token")


@with_tokens
async def test_a_revoked_token_never_comes_back(h: Harness) -> None:
    book, token = h.service.access.token_store, known(h)
    book.feed([record(token.token.revoke(NOW_MS))], from_start=False)
    for records, anew in (
        ([record(token.token)], False),  # written again
        ([record(token.token)], True),  # an older copy of the topic
        ([tombstone(token.token), record(token.token)], False),
        ([], True),
        ([record(token.token)], True),
    ):
        book.feed(records, from_start=anew)
        assert await status(h, f"Bearer {token.text}") == (401, "revoked_token")
    deleted = known(h)
    book.feed([tombstone(deleted.token)], from_start=False)
    assert await status(h, f"Bearer {deleted.text}") == (401, "revoked_token")
    both = made()
    book.feed([record(both.token), record(both.token.revoke(NOW_MS))], from_start=True)
    assert await status(h, f"Bearer {both.text}") == (401, "revoked_token")


@with_tokens
async def test_a_topic_made_anew_keeps_whoever_was_in_and_says_so(
    h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    token = known(h)
    with caplog.at_level("ERROR"):
        for _ in range(3):
            h.service.access.token_store.feed([], from_start=True)
    assert caplog.text.count("no longer contains 1 of the tokens") == 1, "once"
    assert await status(h, f"Bearer {token.text}") == (200, "")
    ready = await h.client.get("/readyz")
    assert ready.status_code == 200
    assert "hourmark.tokens no longer contains 1" in ready.json()["warnings"][0]
    assert b"hourmark_service_tokens_lost 1.0" in h.metrics.exposition()
    h.service.access.token_store.feed([record(token.token)], from_start=True)
    assert (await h.client.get("/readyz")).json()["warnings"] == []
    assert await status(h, f"Bearer {known(h).text}") == (200, "")


@with_tokens
async def test_a_service_that_cannot_follow_goes_on_and_says_so(
    h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    token, book = known(h), h.service.access.token_store
    with caplog.at_level("ERROR"):
        for _ in range(5):
            book.read_error = ": the broker is away"
    assert caplog.text.count("changes of tokens cannot be read: the broker is away") == 1, "once"
    h.clock.advance(90)
    assert await status(h, f"Bearer {token.text}") == (200, "")
    (warning,) = (await h.client.get("/readyz")).json()["warnings"]
    assert "90 s old" in warning and "the broker is away" in warning
    assert (
        b"hourmark_service_tokens_read_timestamp_seconds 1.7952252e+09\n" in h.metrics.exposition()
    )
    book.feed([], from_start=False)
    book.read_error = ""
    assert (await h.client.get("/readyz")).json()["warnings"] == []


@with_tokens
async def test_before_any_token_is_known_nobody_is_called_unknown(h: Harness) -> None:
    """A tailer with a good token waits, and is not told that its token is bad."""
    text = made().text
    assert await status(h, f"Bearer {text}") == (503, "not_ready")
    h.service.access.token_store.feed([], from_start=False)  # there is no such topic
    assert await status(h, f"Bearer {text}") == (503, "not_ready")
    assert await status(h, None) == (401, "no_token")
    ready = await h.client.get("/readyz")
    assert ready.status_code == 503 and "hourmark token create" in ready.json()["reasons"][0]


@with_tokens
async def test_other_machines_are_told_whether_it_is_ready_and_not_why(h: Harness) -> None:
    for client, told in (
        ("127.0.0.1", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
    ):
        transport = httpx.ASGITransport(create_app(h.service), client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as asking:
            answer = await asking.get("/readyz")
        assert answer.status_code == 503
        assert ("hourmark token create" in answer.text) is told
        assert answer.json()["reasons"]


@with_tokens
async def test_a_record_that_cannot_be_read_lets_nobody_in(h: Harness) -> None:
    token, book = known(h), h.service.access.token_store
    newer = json.loads(token.token.to_json()) | {"paths": ["/v1/hello"]}
    book.feed([(token.token.id.encode(), json.dumps(newer).encode())], from_start=False)
    assert await status(h, f"Bearer {token.text}") == (401, "unknown_token"), (
        "what it may not do cannot be known here"
    )
    for key, value in (
        (None, b"x"),
        (b"\xff", b"{}"),
        (b"a" * 16, b"\xff\xfe"),
        (b"0" * 16, token.token.to_json().encode()),
    ):
        book.feed([(key, value)], from_start=False)
        assert await status(h, f"Bearer {token.text}") == (401, "unknown_token")
    assert (await h.client.get("/healthz")).status_code == 200


@with_tokens
async def test_a_request_under_way_is_finished_though_its_token_ends(h: Harness) -> None:
    token = known(h, expires_at_ms=NOW_MS + 1000)

    async def body() -> AsyncIterator[bytes]:
        yield LINE[:5]
        h.clock.advance(5)
        h.service.access.token_store.feed([record(token.token.revoke(NOW_MS))], from_start=False)
        yield LINE[5:]

    answer = await h.client.post("/v1/events/click", content=body(), headers=bearer(token))
    assert answer.status_code == 200
    assert (await h.post_events(LINE, **bearer(token))).status_code == 401


@with_tokens
async def test_a_rate_is_told_with_the_time_to_wait_and_a_retry_is_taken_then(h: Harness) -> None:
    token, other = known(h, bytes_per_second=100, reports=("web-7",)), known(h)
    body = b'{"user": "%s", "ms": 1}' % (b"u" * 600)
    first = await h.post_events(body, **bearer(token))
    assert first.status_code == 200, "however large: or it could never be sent"
    wait_s = -(-(len(body) - 200) // 100)
    for _ in range(3):
        again = await h.post_events(body, **bearer(token))
        assert again.status_code == 429
        assert again.json()["code"] == "rate"
        assert int(again.headers["Retry-After"]) == wait_s, "asking costs nothing"
    assert (await h.post_events(body, **bearer(other))).status_code == 200, "each token has its own"
    assert (await h.client.get("/v1/hello", headers=bearer(token))).status_code == 200
    assert (await post_report(h, token, "web-7")).status_code == 200
    h.clock.advance(wait_s)
    assert (await h.post_events(body, **bearer(token))).status_code == 200


@with_tokens
async def test_events_have_a_rate_too(h: Harness) -> None:
    token = known(h, events_per_second=2)
    line = LINE + b"\n"
    assert (await h.post_events(line * 10, **bearer(token))).status_code == 200
    refused = await h.post_events(line, **bearer(token))
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "4")
    assert (await h.post_range(syslog(), headers=bearer(token))).status_code == 429


def test_the_text_of_a_token_is_in_nothing_that_is_kept() -> None:
    token = made()
    secret = token.text.split("_", 2)[2]
    assert secret not in token.token.to_json() and secret not in repr(token.token)
    assert token.token.digest not in repr(token.token)
    assert verify_token(token.token, token.text)
    assert not verify_token(None, token.text)
    assert re.fullmatch(r"hmk_[0-9a-f]{16}_[\w-]{43}", token.text)
    assert Token.from_json(token.token.id, token.token.to_json().encode()) == token.token
    assert len({made().text for _ in range(100)}) == 100
