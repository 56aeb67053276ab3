"""What parser 3 reads from lines of syslog in 200 forms of daemons and devices, field by field."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.service.examples import NOW_MS, range_of
from tests.support.service.forms import SYSTEM, Tried

from hourmark.rules.event_types import SYSLOG, Source
from hourmark.rules.revision import PARSER, ParserVersion, RulesBook
from hourmark_delivery_service.parsing import CompiledRules, parse_range
from hourmark_delivery_service.parsing.syslog.forms import parse_syslog_forms

FILE = Path(__file__).parent / "vectors" / "syslog_forms.jsonl"
FORMS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]


def test_there_are_two_hundred_forms_each_with_its_source() -> None:
    assert len({form["line"] for form in FORMS}) == len(FORMS) >= 200
    assert all(form["source"] for form in FORMS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["line"][:60])
def test_a_form_is_read_field_by_field(form: dict[str, Any]) -> None:
    row = SYSTEM.one(form["line"].encode("latin-1"))
    assert row["type"] == "syslog", row
    at_ms = round(row["event_time"].timestamp() * 1000)
    shown = row["event_time"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    found = {name: row[name] for name in ("host", "program", "pid", "msgid", "message")}
    expected = {name: form[name] for name in found}
    expected["host"], expected["message"] = (
        form["host"] or "web-1",
        form["message"].encode("latin-1"),
    )
    assert found == expected
    assert at_ms == NOW_MS if form["time"] is None else shown == form["time"]


def test_zeros_at_the_end_belong_to_the_transport() -> None:
    assert SYSTEM.one(b"<14>hello\0")["message"] == b"hello"
    assert SYSTEM.one(b"<13>1 2026-11-21T01:00:00Z h a p - - x\0\0")["message"] == b"x"


def test_what_a_device_says_before_its_message_is_kept_as_structured_data() -> None:
    row = SYSTEM.one(b"Nov 21 02:00:00 192.0.2.1 7: *Nov 21 01:59:59.9: %SYS-5-CONFIG_I: x")
    assert row["structured_data"] == {
        "meta sequenceId": "7",
        "timeQuality isSynced": "0",
        "device time": "Nov 21 01:59:59.9",
    }


def test_a_revision_of_0_3_0_is_parsed_by_the_parser_that_it_names() -> None:
    """A revision whose text was published before parser 3 keeps the readings of parser 2."""
    older = Tried([SYSLOG], Source(name="system", format="syslog", types=["syslog"]))
    before = dataclasses.replace(older.rules, parser=ParserVersion(2, PARSER.zones))
    latest = RulesBook(before.records()).latest
    assert latest is not None and latest.parser.parser == 2
    rules = CompiledRules(latest)
    for line, events in (
        (b"<14>hello\n", 0),
        (b"2026-11-21T02:00:00 web7 sshd[2]: x\n", 0),
        (b"Nov 21 02:00:00 h p: x\n", 1),
    ):
        assert parse_range(range_of(line, "system", rules=latest.id), line, rules).events == events
        assert (
            parse_range(
                range_of(line, "system", rules=SYSTEM.rules.id), line, SYSTEM.compiled
            ).events
            == 1
        )


HOSTILE = (
    b"a",
    b" ",
    b":",
    b"[",
    b"%",
    b"12: ",
    b"a=b ",
    b'a="',
    b"1:",
    b"/a",
    b"\\",
    b"Nov 21 02:00:00 ",
    b"<13>",
    b"\0",
    b"\xff",
    b'[x a="\\',
    b"[x ",
    b"a:",
    b"--- ",
    b"2026-11-21T",
)
STARTS = (
    b"<13>",
    b"Nov 21 02:00:00 h ",
    b"<134>1 2026-11-21T01:00:00Z h a p - ",
    b"<189>1: ",
    b"",
    b"<13>date=x ",
)


@pytest.mark.parametrize("start", STARTS)
def test_hostile_lines_cost_time_linear_in_their_length(start: bytes) -> None:
    for piece in HOSTILE:
        line = start + piece * ((1 << 20) // len(piece))
        began = time.process_time()
        parse_syslog_forms(line)
        assert time.process_time() - began < 0.5, (start, piece)


def test_an_event_without_a_time_has_that_at_which_it_was_read() -> None:
    assert round(SYSTEM.one(b"<14>hello")["event_time"].timestamp() * 1000) == NOW_MS
