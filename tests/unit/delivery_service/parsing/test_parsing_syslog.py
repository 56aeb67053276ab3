"""Syslog as it comes: RFC 5424, RFC 3164, and what daemons write into files, under the built-in
type.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.support.service.forms import SYSTEM, Tried, of_rule

from hourmark.rules.event_types import SYSLOG, EventType, LineRule, Source

PARTS = ("host", "program", "pid", "message")


def parts(line: bytes, **more: Any) -> tuple[object, ...]:
    row = SYSTEM.one(line, **more)
    assert row["type"] == "syslog", row
    return tuple(row[name] for name in PARTS)


def time(line: bytes, **more: Any) -> str:
    found: dt.datetime = SYSTEM.one(line, **more)["event_time"]
    return found.isoformat(timespec="milliseconds")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"Nov 21 02:00:00 h prog[123]: msg", ("h", "prog", "123", b"msg")),
        (b"<13>Nov 21 02:00:00 h prog[123]: msg", ("h", "prog", "123", b"msg")),
        (b"Nov  1 02:00:00 h prog: msg", None),
        (b"2026-11-21T01:00:00.123456+00:00 h prog[1]: msg", ("h", "prog", "1", b"msg")),
        (b"2026-11-21T01:00:00Z h prog[1]: msg", ("h", "prog", "1", b"msg")),
        (b"<13>1 2026-11-21T01:00:00Z h prog 1 - - msg", ("h", "prog", "1", b"msg")),
        (b"<13>1 2026-11-21T01:00:00Z - - - - -", ("web-1", None, None, b"")),
        (
            b"Nov 21 02:00:00 combo sshd(pam_unix)[19939]: a; b=c ",
            ("combo", "sshd(pam_unix)", "19939", b"a; b=c "),
        ),
        (b"Nov 21 02:00:00 h kernel: [ 1.5] x: y", ("h", "kernel", None, b"[ 1.5] x: y")),
        (b"Nov 21 02:00:00 h postfix/smtpd[1]: x", ("h", "postfix/smtpd", "1", b"x")),
        (b"Nov 21 02:00:00 h a::b[1]: x", ("h", "a::b", "1", b"x")),
        (b"Nov 21 02:00:00 h prog[1]:x", ("h", "prog", "1", b"x")),
        (b"Nov 21 02:00:00 h prog[]: x", ("h", "prog", None, b"x")),
        (b"Nov 21 02:00:00 h prog[[1]]: x", ("h", None, None, b"prog[[1]]: x")),
        (b"Nov 21 02:00:00 h prog[1: x", ("h", None, None, b"prog[1: x")),
        (b"Nov 21 02:00:00 h [1]: x", ("h", None, None, b"[1]: x")),
        (b"Nov 21 02:00:00 h : x", ("h", None, None, b": x")),
        (
            b"Nov 21 02:00:00 h syslogd 1.4.1: restart.",
            ("h", None, None, b"syslogd 1.4.1: restart."),
        ),
        (
            b"Nov 21 02:00:00 h last message repeated 2 times",
            ("h", None, None, b"last message repeated 2 times"),
        ),
        (b"Nov 21 02:00:00 prog[1]: no host", ("web-1", "prog", "1", b"no host")),
        (b"Nov 21 02:00:00 fe80::1 prog: x", ("fe80::1", "prog", None, b"x")),
        (b"Nov 21 02:00:00 h prog: \xff\x00\t\r", ("h", "prog", None, b"\xff\x00\t\r")),
        (b"Nov 21 02:00:00 h\xff prog: x", ("h\\xff", "prog", None, b"x")),
        (b"Nov 21 02:00:00 h pr\xc3\xb6g: x", ("h", None, None, b"pr\xc3\xb6g: x")),
        (b"Nov 21 02:00:00 h prog:", ("h", "prog", None, b"")),
        (b"Nov 21 02:00:00 ", ("web-1", None, None, b"")),
    ],
)
def test_any_header_gives_host_program_pid_and_message(
    line: bytes, found: tuple[object, ...] | None
) -> None:
    if found is None:
        assert SYSTEM.reason(line) == "too_late", "its time was read"
    else:
        assert parts(line) == found


@pytest.mark.parametrize(
    "line",
    [
        b"plain",
        b"Nov 21 02:00:00",
        b"nov 21 02:00:00 h p: x",
        b"\xef\xbb\xbfNov 21 02:00:00 h p: x",
        b" Nov 21 02:00:00 h p: x",
        b"<192>Nov 21 02:00:00 h p: x",
        b"<013>Nov 21 02:00:00 h p: x",
        b"\0Nov 21 02:00:00 h p: x",
        b"\tat org.example.Main(Main.java:1)",
        b"2026-11-21 02:00:00 h p: x",
    ],
)
def test_what_has_no_header_of_syslog_is_a_dead_letter(line: bytes) -> None:
    assert SYSTEM.reason(line) == "not_syslog"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"Foo 21 02:00:00 h p: x", "bad_timestamp"),
        (b"Nov 31 02:00:00 h p: x", "bad_timestamp"),
        (b"Feb 29 2025 02:00:00 h p: x", "bad_timestamp"),
        (b"Nov 21 24:00:00 h p: x", "bad_timestamp"),
        (b"Nov 21 02:00:60 h p: x", "bad_timestamp"),
        (b"2026-11-21T02:00:60Z h p: x", "bad_timestamp"),
        (b"2026-02-30T02:00:00Z h p: x", "bad_timestamp"),
        (b"9999-12-31T23:59:59Z h p: x", "future"),
        (b"Nov 21 9999 02:00:00 h p: x", "future"),
        (b"1969-12-31T23:59:59Z h p: x", "too_late"),
        (b"Feb 29 02:00:00 h p: x", "too_late"),
        (b"Nov 21 0000 02:00:00 h p: x", "bad_timestamp"),
    ],
)
def test_a_time_that_cannot_be_one_is_told(line: bytes, reason: str) -> None:
    assert SYSTEM.reason(line) == reason


def test_times_are_cut_to_milliseconds_however_fine_they_are() -> None:
    assert (
        time(b"<13>1 2026-11-21T01:00:00.123999999Z h p - - - x") == "2026-11-21T01:00:00.123+00:00"
    )
    assert time(b"2026-11-21T01:00:00.123999+00:00 h p: x") == "2026-11-21T01:00:00.123+00:00"
    assert time(b"Nov 21 02:00:00.1239 h p: x") == "2026-11-21T01:00:00.123+00:00"


def test_a_time_without_a_year_is_the_latest_that_is_not_ahead() -> None:
    new_year = 1_798_761_600_000  # 2027-01-01T00:00:00Z
    assert (
        time(b"Dec 31 23:59:59 h p: x", observed_at_ms=new_year, zone="UTC")
        == "2026-12-31T23:59:59.000+00:00"
    )
    assert (
        time(b"Jan  1 00:14:00 h p: x", observed_at_ms=new_year, zone="UTC")
        == "2027-01-01T00:14:00.000+00:00"
    )
    assert (
        SYSTEM.reason(b"Jan  1 00:16:00 h p: x", observed_at_ms=new_year, zone="UTC") == "too_late"
    ), "of the year before"
    leap = 1_709_251_200_000  # 2024-03-01T00:00:00Z
    assert (
        time(b"Feb 29 12:00:00 h p: x", observed_at_ms=leap, zone="UTC")
        == "2024-02-29T12:00:00.000+00:00"
    )


def test_a_time_without_a_zone_is_of_the_ranges_also_where_clocks_change() -> None:
    assert time(b"Nov 21 02:00:00 h p: x", zone="Europe/Vienna") == "2026-11-21T01:00:00.000+00:00"
    autumn = 1_792_980_000_000  # 2026-10-26T02:00:00Z
    assert (
        time(b"Oct 25 02:30:00 h p: x", observed_at_ms=autumn, zone="Europe/Vienna")
        == "2026-10-25T01:30:00.000+00:00"
    )
    spring = 1_774_828_800_000  # 2026-03-30T00:00:00Z
    assert (
        time(b"Mar 29 02:30:00 h p: x", observed_at_ms=spring, zone="Europe/Vienna")
        == "2026-03-29T01:30:00.000+00:00"
    )
    assert SYSTEM.reason(b"Nov 21 02:00:00 h p: x", zone="Nowhere/Else") == "bad_timestamp"


def test_priority_and_structured_data_are_kept() -> None:
    row = SYSTEM.one(
        rb'<165>1 2026-11-21T01:00:00Z h a p ID7 [x@1 a="1" b="\"\]\\\n" a="2"][empty][y@2 c=""] m'
    )
    assert (row["facility"], row["severity"], row["msgid"]) == (20, 5, "ID7")
    assert row["structured_data"] == {"x@1 a": "2", "x@1 b": '"]\\\\n', "empty": "", "y@2 c": ""}
    older = SYSTEM.one(b"<0>Nov 21 02:00:00 h p: x")
    assert (older["facility"], older["severity"], older["msgid"], older["structured_data"]) == (
        0,
        0,
        None,
        {},
    )
    assert SYSTEM.reason(b'<165>1 2026-11-21T01:00:00Z h a p - [x a="\xff"] m') == "not_utf8"


def test_a_param_of_structured_data_fills_a_field_as_text_does() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "sequence", "type": "long", "default": -1},
        {"name": "n", "type": "long"},
    ]
    for source_format in ("rfc5424", "syslog"):
        tried = of_rule(fields, source_format, header={"sequence": "[meta sequenceId]"})
        line = b'<13>1 2026-11-21T01:00:00Z h a p t [meta sequenceId="%s"] {"n":1}'
        assert tried.one(line % b"7")["sequence"] == 7
        assert tried.reason(line % b"seven") == "wrong_field"
        assert tried.one(line.replace(b"sequenceId", b"other"))["sequence"] == -1
        assert (
            tried.reason((line % b"7").replace(b'"n"', b'"sequence":1,"n"')) == "unknown_field"
        ), "the header's alone"


def test_nine_digits_of_a_second_are_refused_where_rfc5424_itself_is_declared() -> None:
    tried = of_rule([{"name": "n", "type": "long"}], "rfc5424", unknown="ignore")
    assert tried.reason(b'<13>1 2026-11-21T01:00:00.123456Z h a p t - {"n":1}') is None
    assert tried.reason(b'<13>1 2026-11-21T01:00:00.1234567Z h a p t - {"n":1}') == "bad_timestamp"


def test_the_program_chooses_among_types() -> None:
    web = EventType(
        name="web",
        fields=[{"name": "path", "type": "string"}],
        line=LineRule(payload="json", programs=["nginx", "caddy"]),
    )
    tried = Tried([web, SYSLOG], Source(name="s", format="syslog", types=["web", "syslog"]))
    assert tried.one(b'Nov 21 02:00:00 h nginx: {"path":"/"}')["path"] == "/"
    assert tried.one(b'Nov 21 02:00:00 h other: {"path":"/"}')["type"] == "syslog"
    assert tried.one(b"Nov 21 02:00:00 h nginx: started")["type"] == "syslog", "not of its form"
    assert tried.reason(b'Nov 21 02:00:00 h nginx: {"path":1}') == "wrong_field"
    alone = Tried([web], Source(name="s", format="syslog", types=["web"]))
    letter = alone.one(b"Nov 21 02:00:00 h other: x")
    assert (letter["reason"], letter["detail"]) == (
        "no_pattern",
        "no type fits the message; none takes its program: web",
    )


def test_a_source_may_say_that_events_are_of_the_host_they_were_read_on() -> None:
    tried = Tried([SYSLOG], Source(name="s", format="syslog", types=["syslog"], host="tailer"))
    assert tried.one(b"Nov 21 02:00:00 h p: x")["host"] == "web-1"
    assert tried.one(b"<13>1 2026-11-21T01:00:00Z h a p - - x")["host"] == "web-1"


def test_what_is_no_syslog_goes_to_the_catch_all() -> None:
    rest = EventType(
        name="rest",
        fields=[{"name": "line", "type": "bytes"}],
        line=LineRule(payload="text", field="line", time="observed"),
    )
    tried = Tried(
        [SYSLOG, rest], Source(name="s", format="syslog", types=["syslog"], catch_all="rest")
    )
    assert tried.one(b"\tat Main")["line"] == b"\tat Main"
