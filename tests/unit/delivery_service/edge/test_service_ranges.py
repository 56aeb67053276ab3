"""POST /v1/ranges: what is acknowledged, what is refused, what has to wait."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import Any

import httpx
import pytest
import zstandard
from tests.support.service.examples import NOW_MS, compiled, parsed, range_of, syslog
from tests.support.service.harness import Harness, with_service

from hourmark.avro.framing import unframe
from hourmark.records.audit import AuditRecord
from hourmark.records.ranges import Part
from hourmark.records.wire import range_headers
from hourmark_delivery_service import metrics
from hourmark_delivery_service.errors import NotDelivered, QueueUnavailable

DAY_MS = 86_400_000
BODY = syslog() + syslog("note", b"words") + b"broken\n"


def code(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()
    assert error["detail"], "an error says what is wrong"
    assert error["next_step"], "an error says what to do"
    assert answer.headers["Hourmark-Clock"].isdigit()
    assert ("Retry-After" in answer.headers) == (answer.status_code == 503)
    return answer.status_code, error["code"]


@with_service()
async def test_events_come_before_their_audit_record_and_both_before_the_answer(h: Harness) -> None:
    answer = await h.post_range(BODY)
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "end": len(BODY),
            "events": 2,
            "dead_letters": 1,
            "blanks": 0,
            "dead_letter_reasons": {"not_rfc5424": 1},
        },
    )
    assert [r.topic for r in h.queue.records] == [
        "events.click",
        "events.note",
        "events.dead-letters",
        "hourmark.audit",
    ]
    expected = parsed(BODY)
    assert [(r.key, r.value) for r in h.queue.records[:3]] == [
        (r.key, r.value) for r in expected.records
    ]
    schema_id, datum = unframe(h.queue.records[-1].value)
    assert (schema_id, AuditRecord.decode(datum)) == (101, expected.audit)
    assert h.queue.records[-1].key == expected.audit.range_id


@with_service()
async def test_every_answer_tells_clock_and_rules(h: Harness) -> None:
    h.clock.advance(5)
    answers = [
        await h.post_range(BODY),
        await h.client.get("/v1/hello"),
        await h.client.get("/nothing"),
        await h.client.get("/v1/ranges"),
        await h.client.post("/v1/ranges"),
        await h.client.get("/metrics"),
    ]
    assert [a.status_code for a in answers] == [200, 200, 404, 405, 400, 200]
    assert {a.headers["Hourmark-Clock"] for a in answers} == {str(NOW_MS + 5000)}
    assert {a.headers["Hourmark-Rules"] for a in answers} == {compiled().id}


@with_service()
async def test_a_retry_gets_the_same_answer_and_makes_the_same_records(h: Harness) -> None:
    first = await h.post_range(BODY)
    once = list(h.queue.records)
    h.queue.records.clear()
    h.clock.advance(3600 * 24 * 400)
    second = await h.post_range(BODY)
    assert first.json() == second.json()
    assert [r[:3] for r in once] == [r[:3] for r in h.queue.records]


@pytest.mark.parametrize("encoding", ["zstd", "gzip", "identity"])
@with_service()
async def test_bodies_come_compressed_or_plain(h: Harness, encoding: str) -> None:
    content = {"zstd": zstandard.compress(BODY), "gzip": gzip.compress(BODY), "identity": BODY}[
        encoding
    ]
    assert (await h.post_range(BODY, content=content, encoding=encoding)).status_code == 200


@with_service()
async def test_a_body_of_several_frames_or_members_is_read_whole(h: Harness) -> None:
    halves = BODY[:50], BODY[50:]
    for encoding, content in (
        ("zstd", b"".join(map(zstandard.compress, halves))),
        ("gzip", b"".join(map(gzip.compress, halves))),
    ):
        assert (await h.post_range(BODY, content=content, encoding=encoding)).status_code == 200


@with_service()
async def test_bodies_that_are_not_what_the_headers_say_are_refused(h: Harness) -> None:
    compressed = zstandard.compress(BODY)
    refused: list[tuple[tuple[int, str], dict[str, Any]]] = [
        ((400, "length"), {"content": BODY[:-5]}),
        ((400, "length"), {"content": BODY + b"x\n"}),
        ((400, "length"), {"content": b""}),
        ((400, "broken_encoding"), {"content": compressed, "encoding": "gzip"}),
        ((400, "broken_encoding"), {"content": BODY, "encoding": "zstd"}),
        ((415, "encoding"), {"encoding": "br"}),
    ]
    for answer, sent in refused:
        assert code(await h.post_range(BODY, **sent)) == answer, sent
    for encoding, cut_short in (("zstd", compressed[:-3]), ("gzip", gzip.compress(BODY)[:-9])):
        assert code(await h.post_range(BODY, content=cut_short, encoding=encoding))[0] == 400
    assert code(await h.post_range(b"no line feed")) == (400, "range")
    assert h.queue.records == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Hourmark-Host": "short"},
        {"Hourmark-File": "G" * 32},
        {"Hourmark-Offset": "-1"},
        {"Hourmark-Offset": "9" * 30},
        {"Hourmark-End": "0"},
        {"Hourmark-Generation": "x"},
        {"Hourmark-Observed-At": ""},
        {"Hourmark-Zone": ""},
        {"Hourmark-Path": "%00" * 5000},
        {"Hourmark-Part": "some"},
        {"Content-Length": "ten"},
    ],
)
@with_service()
async def test_wrong_headers_are_named(h: Harness, headers: dict[str, str]) -> None:
    status, _ = code(await h.post_range(BODY, headers=headers))
    assert status == 400
    assert h.queue.records == []


@pytest.mark.parametrize(
    "header", ["Hourmark-Offset", "Hourmark-End", "Hourmark-Generation", "Hourmark-Observed-At"]
)
@pytest.mark.parametrize("number", [1 << 63, 10**19 - 1, 10**19])
@with_service()
async def test_a_number_over_63_bits_is_refused_by_the_name_of_its_header(
    h: Harness, header: str, number: int
) -> None:
    answer = await h.post_range(BODY, headers={header: str(number)})
    assert code(answer) == (400, "headers")
    assert header in answer.json()["detail"]


@with_service()
async def test_a_range_may_end_at_the_last_byte_that_63_bits_count_and_not_after_it(
    h: Harness,
) -> None:
    last = (1 << 63) - 1
    headers = {
        "Hourmark-Offset": str(last - len(BODY)),
        "Hourmark-End": str(last),
        "Hourmark-Generation": str(last),
    }
    assert (await h.post_range(BODY, headers=headers)).json()["end"] == last
    h.queue.records.clear()
    after = {"Hourmark-Offset": str(last + 1 - len(BODY)), "Hourmark-End": str(last + 1)}
    assert code(await h.post_range(BODY, headers=after)) == (400, "headers")
    assert h.queue.records == []


@pytest.mark.parametrize("per_second", [1, 10**6, 10**9])
@with_service()
async def test_a_time_in_another_unit_is_refused_and_milliseconds_are_named(
    h: Harness, per_second: int
) -> None:
    wrong = str(NOW_MS * per_second // 1000)
    for answer in (
        await h.post_range(BODY, headers={"Hourmark-Observed-At": wrong}),
        await h.post_events(b'{"user":"u","ms":1}', Hourmark_Observed_At=wrong),
    ):
        assert code(answer) == (400, "headers")
        assert "Hourmark-Observed-At" in answer.json()["detail"]
        assert "milliseconds" in answer.json()["detail"]
        assert "repeat" not in answer.json()
    assert h.queue.records == []


@with_service()
async def test_a_range_that_was_spooled_for_years_is_taken(h: Harness) -> None:
    for observed_at_ms in (NOW_MS - 20 * 365 * 86_400_000, 946_684_800_000):
        assert (await h.post_range(BODY, observed_at_ms=observed_at_ms)).status_code == 200


@with_service()
async def test_a_missing_header_is_named(h: Harness) -> None:
    answer = await h.client.post("/v1/ranges", content=BODY, headers={"Hourmark-Host": "a" * 32})
    assert code(answer) == (400, "headers")
    assert "Hourmark-Host-Name" in answer.json()["detail"]


@with_service(range_bytes_max=2048, line_bytes_max=8192)
async def test_only_a_single_record_may_be_longer_than_a_range(h: Harness) -> None:
    long_line = b"x" * 8192 + b"\n"
    assert (await h.post_range(long_line)).json() == {
        "end": 8193,
        "events": 0,
        "dead_letters": 1,
        "blanks": 0,
        "dead_letter_reasons": {"not_rfc5424": 1},
    }
    assert (await h.post_range(b"x" * 8192, part=Part.CHUNK)).status_code == 200
    assert code(await h.post_range(b"a\n" * 1025)) == (413, "too_large")
    assert code(await h.post_range(b"x" * 8193 + b"\n")) == (413, "too_large")


def bomb_of(encoding: str) -> bytes:
    """Bytes that inflate to far more."""
    zeros = b"\0" * (1 << 20)
    if encoding == "gzip":
        return gzip.compress(zeros * 16)
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
@with_service(line_bytes_max=1 << 20)
async def test_a_two_gibibyte_request_does_not_kill_the_process(h: Harness, encoding: str) -> None:
    """A small body that inflates without end is refused; no more than the limit is ever made
    of it.
    """
    bomb = bomb_of(encoding)
    assert len(bomb) < 1 << 20
    assert code(await h.post_range(BODY, content=bomb, encoding=encoding)) == (413, "too_large")


@with_service(line_bytes_max=1 << 20)
async def test_an_endless_body_is_refused_while_it_comes(h: Harness) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 100 << 20:
            sent += 1 << 16
            yield b"\0" * (1 << 16)

    assert code(await h.post_range(BODY, content=endless())) == (413, "too_large")
    assert h.service.inflight.bytes == 0


@pytest.mark.parametrize(
    "error", [QueueUnavailable("full"), NotDelivered("too few in-sync replicas")]
)
@pytest.mark.parametrize("after", [0, 2, 3])
@with_service()
async def test_no_200_unless_every_record_and_the_audit_record_are_in_the_queue(
    h: Harness, error: Exception, after: int
) -> None:
    """`after` 3: all events are in, the audit record is not."""
    h.queue.fail_with, h.queue.fail_after = error, after  # type: ignore[assignment]
    assert code(await h.post_range(BODY)) == (503, "queue")
    assert not h.queue.of("hourmark.audit")
    assert (
        h.metrics.registry.get_sample_value("hourmark_service_events_total", {"type": "click"})
        is None
    )
    h.queue.fail_with = None
    assert (await h.post_range(BODY)).status_code == 200
    assert h.service.inflight.bytes == 0


@with_service()
async def test_what_cannot_be_judged_now_waits(h: Harness) -> None:
    assert code(await h.post_range(BODY, rules="7-unknown")) == (503, "rules_unknown")
    for ahead_ms in (DAY_MS + 1, 1000 * 365 * DAY_MS):
        answer = await h.post_range(BODY, observed_at_ms=NOW_MS + ahead_ms)
        assert code(answer) == (503, "clock_behind")
        assert "service.range_ahead_seconds" in answer.json()["detail"]
    assert (await h.post_range(BODY, observed_at_ms=NOW_MS + DAY_MS)).status_code == 200


@with_service()
async def test_a_range_that_a_wrong_clock_stamped_gives_the_same_records_after_the_correction(
    h: Harness,
) -> None:
    h.clock.advance(3 * 3600)
    stamp = h.clock.now_ms()
    assert (await h.post_range(BODY, observed_at_ms=stamp)).status_code == 200
    before, h.queue.records = h.queue.records, []
    h.clock.set_back(3 * 3600)
    assert (await h.post_range(BODY, observed_at_ms=stamp)).status_code == 200
    assert h.queue.records == before


@with_service()
async def test_nothing_is_taken_before_the_service_knows_enough(h: Harness) -> None:
    framing, h.service.framing = h.service.framing, None
    assert code(await h.post_range(BODY)) == (503, "not_ready")
    assert code(await h.post_events(b"{}")) == (503, "not_ready")
    h.service.framing, h.service.first_report_sent = framing, False
    assert code(await h.post_range(BODY)) == (503, "not_ready")
    h.service.first_report_sent, h.rules.caught_up = True, False
    assert code(await h.post_range(BODY)) == (503, "not_ready")
    assert code(await h.client.get("/v1/hello")) == (503, "not_ready")
    assert "Hourmark-Rules" not in (await h.client.get("/v1/hello")).headers
    assert h.queue.records == []


@with_service(inflight_bytes_max=1 << 20)
async def test_under_overload_requests_are_told_to_come_back(h: Harness) -> None:
    h.queue.hold = asyncio.Event()
    body = (b"x" * 99 + b"\n") * 4000
    first = asyncio.create_task(h.post_range(body))
    while not h.service.inflight.bytes:
        await asyncio.sleep(0)
    assert code(await h.post_range(body)) == (503, "overloaded")
    assert (await h.client.get("/healthz")).status_code == 200, "health is answered all the same"
    h.queue.hold.set()
    assert (await first).status_code == 200
    assert (await h.post_range(body)).status_code == 200
    assert h.service.inflight.bytes == 0


@with_service(inflight_bytes_max=1 << 20)
async def test_one_long_record_is_taken_even_if_it_is_over_the_memory_limit(h: Harness) -> None:
    assert (await h.post_range(b"x" * (3 << 20) + b"\n")).status_code == 200


@with_service()
async def test_many_short_lines_are_as_many_dead_letters_and_hold_nobody_up(h: Harness) -> None:
    body = b" \n" * 10_000
    post = asyncio.create_task(h.post_range(body))
    turns = 0
    while not post.done():
        assert (await h.client.get("/healthz")).status_code == 200
        await asyncio.sleep(0)  # without a network nothing else yields
        turns += 1
    assert post.result().json() == {
        "end": 20_000,
        "events": 0,
        "dead_letters": 10_000,
        "blanks": 0,
        "dead_letter_reasons": {"not_rfc5424": 10_000},
    }
    assert turns > 20


@with_service()
async def test_a_mebibyte_of_line_feeds_makes_an_audit_record_alone(h: Harness) -> None:
    began_s = time.process_time()
    answer = await h.post_range(b"\n" * (1 << 20))
    assert time.process_time() - began_s < 0.2, "it was seconds, and hundreds of mebibytes"
    assert answer.json() == {
        "end": 1 << 20,
        "events": 0,
        "dead_letters": 0,
        "blanks": 1 << 20,
        "dead_letter_reasons": {},
    }
    (record,) = h.queue.records
    audit = AuditRecord.decode(unframe(record.value)[1])
    assert (record.topic, audit.lines, audit.blanks, audit.promised) == (
        "hourmark.audit",
        1 << 20,
        1 << 20,
        (),
    )
    assert h.metrics.registry.get_sample_value("hourmark_service_blank_lines_total") == 1 << 20


@with_service()
async def test_a_batch_of_a_mebibyte_of_line_feeds_makes_an_audit_record_alone(h: Harness) -> None:
    answer = await h.post_events(b"\n" * (1 << 19))
    assert [answer.json()[name] for name in ("events", "dead_letters", "blanks")] == [0, 0, 1 << 19]
    assert [record.topic for record in h.queue.records] == ["hourmark.audit"]


@with_service()
async def test_ranges_at_the_same_time_are_all_delivered(h: Harness) -> None:
    bodies = [syslog("note", f"{n}".encode()) * 300 for n in range(8)]
    answers = await asyncio.gather(
        *(h.post_range(body, start=n << 20) for n, body in enumerate(bodies))
    )
    assert [a.json()["events"] for a in answers] == [300] * 8
    assert len(h.queue.of("hourmark.audit")) == 8
    assert len({r.key for r in h.queue.of("events.note")}) == 2400


@with_service()
async def test_an_unknown_zone_or_source_never_blocks_a_file(h: Harness) -> None:
    assert (await h.post_range(BODY, "nowhere")).json()["dead_letters"] == 3
    assert (await h.post_range(BODY, zone="No/Where")).json()["events"] == 2


@with_service()
async def test_a_fault_inside_is_a_json_answer_and_no_ack(h: Harness) -> None:
    h.queue.fail_with = ZeroDivisionError("planted")  # type: ignore[assignment]
    answer = await h.post_range(BODY)
    assert (answer.status_code, answer.json()["code"]) == (500, "fault")
    assert h.service.inflight.bytes == 0


def test_range_headers_of_these_tests_name_known_rules() -> None:
    assert range_of(BODY).rules == compiled().id


@with_service()
async def test_paths_that_are_not_utf8_stay_apart_and_raw_bytes_are_refused(h: Harness) -> None:
    """Linux names files by bytes: they travel percent-encoded, and not otherwise, lest two of them
    become one.
    """
    for path in (b"/log/\xff", b"/log/\xfe", b"/log/\xc3\xbf"):
        assert (
            await h.post_range(BODY, path=path.decode(errors="surrogateescape"))
        ).status_code == 200
    audits = [r.value for r in h.queue.of("hourmark.audit")]
    assert len({AuditRecord.decode(unframe(value)[1]).range_id for value in audits}) == 3
    for header in (
        "Hourmark-Path",
        "Hourmark-Source",
        "Hourmark-Host-Name",
        "Hourmark-Zone",
        "Hourmark-Rules",
        "Hourmark-Part",
    ):
        sent = [
            (k.encode(), v.encode())
            for k, v in range_headers(range_of(BODY)).items()
            if k != header
        ]
        answer = await h.client.post(
            "/v1/ranges", content=BODY, headers=[*sent, (header.encode(), b"app\xff")]
        )
        assert code(answer) == (400, "headers")
        assert header in answer.json()["detail"]


def letters(h: Harness, **labels: str) -> float | None:
    return h.metrics.registry.get_sample_value("hourmark_service_dead_letters_total", labels)


@with_service()
async def test_dead_letters_are_counted_by_claimed_type_source_and_reason(h: Harness) -> None:
    await h.post_range(syslog(msg=b"{") + b"no syslog\n" + syslog("nowhere"))
    assert letters(h, type="click", source="app", reason="bad_json") == 1
    assert letters(h, type="", source="app", reason="not_rfc5424") == 1
    assert letters(h, type="", source="app", reason="unknown_type") == 1, (
        "what a line says is no label"
    )
    await h.post_range(b"x\n", "mistyped")
    assert letters(h, type="", source="", reason="unknown_source") == 1, "nor what a tailer says"
    await h.post_events(b"{}", "click")
    assert letters(h, type="click", source="api", reason="missing_field") == 1


def test_series_of_dead_letters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "DEAD_LETTER_SERIES_MAX", 2)
    counted = metrics.ServiceMetrics()
    for number in range(10):
        counted.count_dead_letters(f"type-{number}", "app", "bad_json", 1)
    samples = [
        s
        for family in counted.registry.collect()
        for s in family.samples
        if s.name.endswith("dead_letters_total")
    ]
    assert {s.labels["type"]: s.value for s in samples} == {"type-0": 1, "type-1": 1, "(other)": 8}
