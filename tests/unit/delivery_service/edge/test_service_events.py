"""POST /v1/events/{type}: ids, retries, bad lines."""

from __future__ import annotations

import collections
import io
import json
from typing import Any

import fastavro
import httpx
from tests.support.service.examples import NOW_MS, TYPES, compiled
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.edge.test_service_ranges import code

from hourmark.avro.framing import unframe
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import client_event_id

LINE = b'{"user":"u","ms":1}'


def row(value: bytes) -> dict[str, Any]:
    schema_id, datum = unframe(value)
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(datum),
        fastavro.parse_schema(TYPES[schema_id - 1].schema(), named_schemas={}),
        None,
    )
    return dict(found)


def named(**fields: object) -> bytes:
    return json.dumps({"user": "u", "ms": 1, **fields}).encode() + b"\n"


@with_service()
async def test_a_batch_is_delivered_with_its_audit_record(h: Harness) -> None:
    answer = await h.post_events(
        LINE + b"\n" + named(event_time=NOW_MS - 1) + named(event_time="2026-11-21T00:00:00Z"),
        Hourmark_Client="shop",
    )
    assert answer.json() == {
        "events": 3,
        "dead_letters": 0,
        "blanks": 0,
        "dead_letter_reasons": {},
        "delivery": "at least once",
        "next_step": answer.json()["next_step"],
        "repeat": {"Hourmark-Observed-At": str(NOW_MS), "Hourmark-Rules": compiled().id},
    }
    rows = [row(r.value) for r in h.queue.of("events.click")]
    assert [(r["position"], r["file"], r["host"], r["source"]) for r in rows] == [
        (n, None, "shop", "shop") for n in range(3)
    ]
    assert [round(r["event_time"].timestamp() * 1000) - NOW_MS for r in rows] == [0, -1, -6_000_000]
    audit = AuditRecord.decode(unframe(h.queue.records[-1].value)[1])
    assert (audit.kind, audit.host_id, audit.lines, audit.source, audit.path, audit.end) == (
        "batch",
        "shop",
        3,
        "api",
        "click",
        3,
    )
    assert h.queue.records[-1].topic == "hourmark.audit"


@with_service()
async def test_the_clients_own_event_id_makes_the_id(h: Harness) -> None:
    first = await h.post_events(named(event_id="order-1", event_time=NOW_MS - 5))
    h.clock.advance(60)
    await h.post_events(named(event_id="order-1", event_time=NOW_MS - 5))
    assert first.json()["delivery"] == "exactly once"
    ids = [r.key[:16] for r in h.queue.of("events.click")]
    assert ids == [bytes(client_event_id(NOW_MS - 5, "click", "order-1"))] * 2


@with_service()
async def test_a_retry_that_repeats_what_the_answer_said_is_the_same_batch(h: Harness) -> None:
    body = LINE + b"\nbroken\n"
    first = await h.post_events(body, Idempotency_Key="k1")
    once, h.queue.records = h.queue.records, []
    h.clock.advance(90)
    second = await h.post_events(body, Idempotency_Key="k1", **first.json()["repeat"])
    assert first.json()["repeat"] == second.json()["repeat"]
    assert (first.json()["delivery"], second.json()["delivery"]) == (
        "at least once",
        "exactly once",
    )
    assert [r[:3] for r in once] == [r[:3] for r in h.queue.records]


@with_service()
async def test_a_key_used_twice_for_different_bodies_hides_nothing(h: Harness) -> None:
    for body, client in ((named(ms=1), "a"), (named(ms=2), "a"), (named(ms=2), "b")):
        await h.post_events(body, Idempotency_Key="k1", Hourmark_Client=client)
    assert len({r.key[:16] for r in h.queue.of("events.click")}) == 3


@with_service()
async def test_without_key_or_id_each_post_is_a_batch_of_its_own(h: Harness) -> None:
    for _ in range(2):
        assert (await h.post_events(LINE)).json()["delivery"] == "at least once"
    assert len({r.key for r in h.queue.of("events.click")}) == 2


@with_service()
async def test_a_bad_line_is_a_dead_letter_and_the_answer_counts_it(h: Harness) -> None:
    bad = {
        b"{": "bad_json",
        b" ": "empty_line",
        b"  \r": "empty_line",
        b'{"user":"u"}': "missing_field",
        b'{"user":"u","ms":1,"x":1}': "unknown_field",
        b'{"user":1,"ms":1}': "wrong_field",
        b'{"user":"\xff","ms":1}': "not_utf8",
        named(event_id="").strip(): "wrong_field",
        named(event_id="x" * 256).strip(): "wrong_field",
        named(event_id=7).strip(): "wrong_field",
        named(event_time="noon").strip(): "bad_timestamp",
        named(event_time=1.5).strip(): "bad_timestamp",
        named(event_time=NOW_MS + 900_001).strip(): "future",
        named(event_time=1 << 80).strip(): "future",
        named(event_time=-1).strip(): "too_late",
        b"[" * 5000: "bad_json",
    }
    answer = await h.post_events(LINE + b"\n" + b"\n".join(bad) + b"\n" + LINE)
    assert (answer.status_code, answer.json()["events"], answer.json()["dead_letters"]) == (
        200,
        2,
        len(bad),
    )
    assert answer.json()["dead_letter_reasons"] == collections.Counter(bad.values())
    letters = [row(r.value) for r in h.queue.of("events.dead-letters")]
    assert [(x["raw"], x["reason"]) for x in letters] == list(bad.items())
    assert {x["claimed_type"] for x in letters} == {"click"}


@with_service()
async def test_unknown_types_are_refused_whole(h: Harness) -> None:
    for name in ("nothing", "dead-letters", "Click"):
        assert code(await h.post_events(LINE, name)) == (404, "unknown_type")
    assert h.queue.records == []


@with_service(range_bytes_max=2048, line_bytes_max=4096)
async def test_batches_have_the_limits_of_ranges(h: Harness) -> None:
    assert (await h.post_events(named(user="x" * 4000))).status_code == 200
    assert code(await h.post_events(named() * 200)) == (413, "too_large")
    assert code(await h.post_events(named(user="x" * 5000))) == (413, "too_large")
    assert code(await h.post_events(b"")) == (400, "batch")


@with_service()
async def test_wrong_headers_are_refused(h: Harness) -> None:
    assert code(await h.post_events(LINE, Hourmark_Observed_At="x")) == (400, "headers")
    assert code(await h.post_events(LINE, Idempotency_Key="k" * 256)) == (400, "headers")
    assert code(await h.post_events(LINE, Hourmark_Client="%0A")) == (400, "headers")
    assert code(await h.post_events(LINE, Hourmark_Rules="9-x")) == (503, "rules_unknown")
    answer = await h.post_events(LINE, Hourmark_Observed_At=str(NOW_MS + 16 * 60_000))
    assert code(answer) == (503, "clock_behind")
    assert answer.json()["repeat"]["Hourmark-Observed-At"] == str(NOW_MS + 16 * 60_000)


async def post_named(h: Harness, header: bytes, value: bytes) -> httpx.Response:
    """A batch with a header of any bytes."""
    return await h.client.post("/v1/events/click", content=LINE, headers=[(header, value)])


@with_service()
async def test_names_that_are_not_utf8_are_refused_and_never_run_together(h: Harness) -> None:
    for header in (b"Idempotency-Key", b"Hourmark-Client"):
        for value in (
            b"order-%ff",
            b"order-%fe",
            b"order-\xff",
            b"%c3",
            b"%ed%a0%80",
            b"%c0%80",
            b"\xe9",
            b"\xc3%28",
        ):
            answer = await post_named(h, header, value)
            assert code(answer) == (400, "headers"), value
            assert header.decode() in answer.json()["detail"]
            assert "UTF-8" in answer.json()["detail"]
    assert h.queue.records == []


@with_service()
async def test_a_name_is_the_same_percent_encoded_or_as_utf8(h: Harness) -> None:
    for value in (b"%C3%A9", b"%c3%a9", "é".encode(), b"\xc3%a9"):
        assert (await post_named(h, b"Hourmark-Client", value)).status_code == 200
    assert {row(r.value)["host"] for r in h.queue.of("events.click")} == {"é"}


@with_service()
async def test_a_path_that_is_not_utf8_names_no_type(h: Harness) -> None:
    for name in ("click%ff", "%ff", "%c3%28"):
        assert code(await h.post_events(LINE, name)) == (404, "unknown_type")


@with_service()
async def test_an_event_id_is_the_types_and_the_times_whichever_client_sends_it(h: Harness) -> None:
    """A service that tries again under another client's name doubles nothing."""
    for client in ("billing", "billing-2"):
        await h.post_events(
            named(event_id="order-1", event_time=NOW_MS - 5), Hourmark_Client=client
        )
    await h.post_events(named(event_id="order-1", event_time=NOW_MS - 4))
    ids = [r.key[:16] for r in h.queue.of("events.click")]
    assert ids == [
        bytes(client_event_id(ms, "click", "order-1"))
        for ms in (NOW_MS - 5, NOW_MS - 5, NOW_MS - 4)
    ]
