"""Each kind of line, good and bad: an event, or a dead letter with its reason and raw bytes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from tests.support.service.examples import (
    NOW_MS,
    compiled,
    decoded,
    one,
    only,
    parsed,
    range_of,
    refused,
    syslog,
)

from hourmark.records.ranges import Part
from hourmark.records.record_key import RecordKey
from hourmark.rules.event_types import DEAD_LETTERS

BOM = b"\xef\xbb\xbf"


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def test_an_event_carries_envelope_and_fields() -> None:
    line = syslog(msg=b'{"user":"\xc3\xa9","ms":-7,"ref":"r"}')
    result = parsed(line, start=1000)
    assert only(result) == {
        "type": "click",
        "event_id": RecordKey.decode(result.records[0].key).event_id,
        "event_time": moment("2026-11-21T01:39:58.123+00:00"),
        "host": "h7",
        "source": "/var/log/app.log",
        "file": {"id": "fedcba9876543210" * 2, "generation": 0},
        "position": 1000,
        "user": "é",
        "ms": -7,
        "ref": "r",
    }
    assert (result.lines, result.events, result.dead_letters) == (1, 1, 0)
    assert result.records[0].hour_start_s == 1_795_222_800
    assert RecordKey.decode(result.records[0].key).range_id == result.audit.range_id


def test_the_position_is_the_byte_offset_of_each_line() -> None:
    lines = [syslog(msg=json.dumps({"user": "u" * n, "ms": n}).encode()) for n in range(5)]
    positions = [decoded(r)["position"] for r in parsed(b"".join(lines), start=77).records]
    assert positions == [77 + sum(map(len, lines[:n])) for n in range(5)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b" \n", "not_rfc5424"),
        (b"\0\n", "not_rfc5424"),
        (b"free text\n", "not_rfc5424"),
        (b"<192>1 - - - - click -\n", "not_rfc5424"),
        (b"<013>1 - - - - click -\n", "not_rfc5424"),
        (b"<13>2 - - - - click -\n", "not_rfc5424"),
        (b"<13>1 - - - - click\n", "not_rfc5424"),
        (b'<13>1 - - - - click [a b="c]\n', "not_rfc5424"),
        (syslog("unknown"), "unknown_type"),
        (syslog("-"), "unknown_type"),
        (syslog("server"), "unknown_type"),  # declared, but not carried by this source
        (syslog("dead-letters"), "unknown_type"),
        (syslog(msg=b"{"), "bad_json"),
        (syslog(msg=b""), "bad_json"),
        (syslog(msg=b"[1]"), "bad_json"),
        (syslog(msg=b'{"user":"u","ms":NaN}'), "bad_json"),
        (syslog(msg=b'{"user":"\\ud800","ms":1}'), "bad_json"),
        (syslog(msg=b'{"user":"u","ms":1} x'), "bad_json"),
        (syslog(msg=b'{"user":"u","ms":1}\0'), "bad_json"),
        (syslog(msg=b"[" * 100_000), "bad_json"),
        (syslog(msg=b'{"a":' * 65 + b"1" + b"}" * 65), "bad_json"),
        (syslog(msg=b'{"user":"u"}'), "missing_field"),
        (syslog(msg=b'{"user":"u","ms":1,"extra":2}'), "unknown_field"),
        (syslog(msg=b'{"user":"u","ms":1,"event_id":"x"}'), "unknown_field"),
        (syslog(msg=b'{"user":"u","ms":"1"}'), "wrong_field"),
        (syslog(msg=b'{"user":"u","ms":true}'), "wrong_field"),
        (syslog(msg=b'{"user":"u","ms":1.0}'), "wrong_field"),
        (syslog(msg=b'{"user":"u","ms":9223372036854775808}'), "wrong_field"),
        (syslog(msg=b'{"user":null,"ms":1}'), "wrong_field"),
        (syslog(msg=b'{"user":"\xff","ms":1}'), "not_utf8"),
        (syslog("note", b"\xff"), "not_utf8"),
        (syslog(time="-"), "no_timestamp"),
        (syslog(time="yesterday"), "bad_timestamp"),
        (syslog(time="2026-11-21T01:39:60Z"), "bad_timestamp"),
        (syslog(time="2026-02-30T01:39:00Z"), "bad_timestamp"),
        (syslog(time="2026-11-21t01:39:00Z"), "bad_timestamp"),
        (syslog(time="2026-11-21T01:39:00.1234567Z"), "bad_timestamp"),
        (syslog(time="2026-11-21T01:39:00"), "bad_timestamp"),
        (syslog(time="2026-11-21T01:55:00.001Z"), "future"),
        (syslog(time="9999-12-31T23:59:59Z"), "future"),
        (syslog(time="2026-11-14T01:39:59.999Z"), "too_late"),
        (syslog(time="1969-12-31T23:59:59.999Z"), "too_late"),
        (syslog(time="0001-01-01T00:00:00+23:59"), "too_late"),
    ],
)
def test_what_cannot_be_an_event_is_a_dead_letter_with_its_raw_bytes(
    line: bytes, reason: str
) -> None:
    result = parsed(line, start=9)
    letter = only(result)
    assert (letter["reason"], letter["raw"]) == (reason, line[:-1])
    assert (letter["type"], letter["host"], letter["source"], letter["position"]) == (
        "dead-letters",
        "web-1",
        "/var/log/app.log",
        9,
    )
    assert letter["event_time"] == moment("2026-11-21T01:40:00+00:00"), (
        "its hour is always that of observed_at"
    )
    assert letter["range_id"] == bytes(result.audit.range_id)
    assert (letter["range_start"], letter["range_end"]) == (9, 9 + len(line))
    assert (letter["rules"], letter["declared_source"]) == (compiled().id, "app")
    assert (result.lines, result.events, result.dead_letters) == (1, 0, 1)


@pytest.mark.parametrize(
    "time", ["2026-11-21T01:55:00.000Z", "2026-11-14T01:40:00Z", "2026-11-21T03:39:58.5+02:00"]
)
def test_the_bounds_of_plausible_times_are_inside(time: str) -> None:
    assert one(syslog(time=time))["event_time"] == moment(time)


def test_wrong_fields_are_named() -> None:
    details = [
        one(syslog(msg=msg))["detail"]
        for msg in (b'{"user":"u"}', b'{"user":"u","ms":1,"more":2}', b'{"user":"u","ms":[]}')
    ]
    assert [name in detail for name, detail in zip(("ms", "more", "ms"), details, strict=True)] == [
        True
    ] * 3


def test_a_dead_letter_of_a_known_type_says_which() -> None:
    assert one(syslog(msg=b"{"))["claimed_type"] == "click"
    assert one(syslog("nothing"))["claimed_type"] == "nothing"
    assert one(b"?\n")["claimed_type"] is None


def test_crlf_is_whitespace_of_json_and_part_of_text() -> None:
    assert one(syslog(msg=b'{"user":"u","ms":1}\r'))["type"] == "click"
    assert one(syslog("note", b"words\r"))["text"] == "words\r"
    assert one(syslog("raw", b"words\r"))["line"] == b"words\r"


def test_a_byte_order_mark_stays_in_bytes_and_leaves_strings() -> None:
    assert one(syslog("note", BOM + b"words"))["text"] == "words"
    assert one(syslog("raw", BOM + b"words"))["line"] == BOM + b"words"
    assert one(syslog(msg=BOM + b'{"user":"u","ms":1}'))["user"] == "u"


def test_text_may_be_empty_or_absent() -> None:
    assert one(syslog("note", b""))["text"] == ""
    assert one(b"<1>1 2026-11-21T01:39:58Z h a p note -\n")["text"] == ""
    assert one(b"<1>1 2026-11-21T01:39:58Z h a p note -\r\n")["text"] == ""


def test_bytes_take_anything_but_the_line_feed() -> None:
    everything = bytes(n for n in range(256) if n != 10)
    assert one(syslog("raw", everything))["line"] == everything


def test_structured_data_with_escapes_is_skipped() -> None:
    line = b'<1>1 2026-11-21T01:39:58Z h a p note [x@1 a="\\"\\]\\\\" b="\xff"][y] words ] "\n'
    assert one(line)["text"] == 'words ] "'


def test_the_nil_host_is_the_hosts_name() -> None:
    assert one(syslog(host="-"))["host"] == "web-1"


def test_without_a_timestamp_observed_types_take_the_observed_time() -> None:
    assert one(syslog("raw", time="-"))["event_time"] == moment("2026-11-21T01:40:00+00:00")
    assert one(syslog("raw", time="2026-11-21T01:00:00Z"))["event_time"] == moment(
        "2026-11-21T01:00:00+00:00"
    )


def test_an_unknown_source_makes_dead_letters_of_all_lines() -> None:
    assert refused(syslog() + b"x\n\n", "nowhere") == ["unknown_source", "unknown_source"]


@pytest.mark.parametrize(
    "line", [b"no syslog\n", b"\xff\0\r\n", syslog("other"), syslog("-", b"x", time="-")]
)
def test_catch_all_takes_whole_lines_that_fit_nothing_else(line: bytes) -> None:
    row = one(line, "caught")
    assert (row["type"], row["line"], row["level"], row["host"]) == (
        "raw",
        line[:-1],
        None,
        "web-1",
    )
    assert row["event_time"] == moment("2026-11-21T01:40:00+00:00")


def test_catch_all_takes_no_broken_events_and_no_blank_lines() -> None:
    assert refused(syslog(msg=b"{") + b"\n", "caught") == ["bad_json"]
    assert parsed(b"\n", "anything").records == ()


def test_a_pattern_fills_fields_and_takes_the_ranges_zone() -> None:
    row = one(b"2026-11-21 02:39:58,123 INFO [t12] words \xff\r\0 more\n", "servers")
    assert (row["level"], row["thread"], row["message"]) == ("INFO", 12, b"words \xff\r\0 more")
    assert row["event_time"] == moment("2026-11-21T01:39:58.123+00:00")
    assert one(b"2026-11-21 02:39:58,1 INFO words\n", "servers")["thread"] is None


@pytest.mark.parametrize(
    ("line", "more", "reason"),
    [
        (b" at some.Class\n", {}, "no_pattern"),
        (b"x 2026-11-21 02:39:58,123 INFO words\n", {}, "no_pattern"),  # the whole line must match
        (b"2026-11-21 02:39:58,123 INFO [t99999999999] words\n", {}, "wrong_field"),
        (b"2026-11-31 02:39:58,123 INFO words\n", {}, "bad_timestamp"),
        (b"2026-11-21 02:39:58,123 INFO words\n", {"zone": "Nowhere/City"}, "bad_timestamp"),
        (b"2026-11-21 02:39:58,123 INFO words\n", {"zone": "../../etc/passwd"}, "bad_timestamp"),
        (b"2025-11-21 02:39:58,123 INFO words\n", {}, "too_late"),
        (b"0000-11-21 02:39:58,123 INFO words\n", {}, "bad_timestamp"),
        (b"0001-01-01 00:00:00,000 INFO words\n", {}, "too_late"),
        (b"9999-12-31 23:59:59,999 INFO words\n", {}, "future"),
    ],
)
def test_free_lines_that_do_not_fit(line: bytes, more: dict[str, str], reason: str) -> None:
    letter = one(line, "servers", **more)
    assert (letter["reason"], letter["raw"]) == (reason, line[:-1])


def test_a_pattern_is_linear_in_a_line_of_a_megabyte() -> None:
    line = b"2026-11-21 02:39:58,123 INFO " + b"a" * (1 << 20) + b"\n"
    assert len(one(line, "servers")["message"]) == 1 << 20
    assert refused(b"2026-11-21 " * 100_000 + b"\n", "servers") == ["no_pattern"]


def test_a_syslog_line_of_quotes_and_brackets_costs_linear_time() -> None:
    assert refused(b"<1>1 - h a p note [" + b'a b="c" ' * 200_000 + b"\n") == ["not_rfc5424"]


def test_an_over_long_line_comes_in_chunks_each_a_dead_letter() -> None:
    first = one(b"a" * 5000 + b"\n" + b"b", "app", part=Part.CHUNK)
    last = one(b"c" * 10 + b"\n", "app", start=5002, part=Part.LAST_CHUNK)
    assert (first["reason"], first["raw"]) == ("line_too_long", b"a" * 5000 + b"\nb")
    assert (last["reason"], last["raw"], last["position"]) == ("line_too_long", b"c" * 10, 5002)


def test_an_event_over_kafkas_limit_is_a_dead_letter_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hourmark_delivery_service.parsing.records.EVENT_BYTES_MAX", 200)
    assert refused(syslog("note", b"x" * 100)) == ["event_too_large"]


def test_a_line_of_four_mebibytes_is_delivered() -> None:
    line = syslog("raw", b"x" * ((4 << 20) - len(syslog("raw", b""))))
    (record,) = parsed(line).records
    assert record.event_type == "raw"
    assert len(record.value) < 6 << 20


def test_paths_and_hosts_that_are_no_utf8_are_shown_as_well_as_can_be() -> None:
    row = only(
        parsed(
            b"?\n",
            "app",
            path=b"/\xff/log".decode(errors="surrogateescape"),
            host_name=b"h\xfe".decode(errors="surrogateescape"),
        )
    )
    assert (row["source"], row["host"]) == ("/\ufffd/log", "h\ufffd")


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (b"no line feed", {}),
        (b"x", {"part": Part.LAST_CHUNK}),
        (b"x\n", {"end": 5}),
        (b"x\n", {"observed_at_ms": 1 << 62}),
    ],
)
def test_a_range_that_contradicts_its_bytes_is_refused(body: bytes, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(body, **more)


def test_the_audit_record_counts_what_was_made() -> None:
    body = syslog() * 2 + syslog(time="2026-11-21T00:10:00Z") + b"?\n\n"
    result = parsed(body)
    audit = result.audit
    promised = {(p.event_type, p.hour_start_s): p.count for p in audit.promised}
    assert promised == {
        ("click", 1_795_222_800): 2,
        ("click", 1_795_219_200): 1,
        ("dead-letters", 1_795_222_800): 1,
    }
    assert (audit.kind, audit.lines, audit.blanks) == ("range", 5, 1)
    assert (audit.start, audit.end, audit.source) == (0, len(body), "app")
    assert audit.range_id == range_of(body).range_id(body)
    assert audit.observed_at_ms == NOW_MS
    assert DEAD_LETTERS.name in {p.event_type for p in audit.promised}
