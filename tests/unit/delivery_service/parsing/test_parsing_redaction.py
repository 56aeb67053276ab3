"""What a type redacts leaves the service neither in an event nor in a dead letter."""

from __future__ import annotations

import json

import pytest
from tests.support.service.forms import FREE_TEXT, Tried, of_rule

from hourmark.records.ranges import LINE_BYTES_MAX, Part
from hourmark.rules.event_types import EventType, LineRule, Source
from hourmark_delivery_service.parsing import Batch, BatchParser

SECRET = "4111-1111-1111-1111"
CARD = {"field": "text", "pattern": r"\d{4}(-\d{4}){3}", "by": "<card>"}
TEXT = [{"name": "text", "type": "string"}]
NOTE = of_rule(TEXT, "rfc5424", payload="text", field="text", redact=[CARD])
PAID = of_rule(
    [
        {"name": "user", "type": "string"},
        {"name": "password", "type": ["null", "string"]},
        {"name": "amount", "type": "long", "default": 0},
        {"name": "notes", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "rest", "type": FREE_TEXT},
    ],
    time="observed",
    unknown="keep",
    unknown_field="rest",
    redact=[
        {"field": "user", "by": "somebody"},
        {"field": "password"},
        {"field": "amount", "by": "-1"},
        {"field": "notes", "pattern": CARD["pattern"], "by": "#"},
        {"field": "rest", "pattern": "4111.*"},
    ],
)


def header(message: str, time: str = "2026-11-21T01:00:00Z", msgid: str = "t") -> bytes:
    return f"<13>1 {time} h a p {msgid} - {message}".encode()


def test_a_pattern_is_replaced_wherever_it_stands() -> None:
    assert NOTE.one(header(f"{SECRET},{SECRET} paid"))["text"] == "<card>,<card> paid"


def test_whole_values_are_replaced_by_a_word_or_left_out_whatever_they_were() -> None:
    row = PAID.one(
        json.dumps(
            {
                "user": ["x"],
                "password": SECRET,
                "amount": "x",
                "notes": [f"a {SECRET}"],
                "k": SECRET,
            }
        ).encode()
    )
    assert {name: row[name] for name in ("user", "password", "amount", "notes", "rest")} == {
        "user": "somebody",
        "password": None,
        "amount": -1,
        "notes": ["a #"],
        "rest": {"k": ""},
    }
    assert PAID.reason(b"{}") == "missing_field", "a word stands for a value, not for none"


def test_escapes_hide_nothing_from_a_pattern() -> None:
    escaped = "".join(f"\\u{ord(c):04x}" for c in SECRET)
    assert PAID.one(b'{"user":"u","notes":["%s"]}' % escaped.encode())["notes"] == ["#"]


def test_a_replacement_that_cuts_a_character_leaves_text() -> None:
    tried = of_rule(TEXT, time="observed", redact=[{"field": "text", "pattern": "\\xc3"}])
    assert tried.one('{"text":"aéb"}'.encode())["text"] == "a\ufffdb"


def test_replacements_are_taken_as_they_are() -> None:
    tried = of_rule(
        TEXT, time="observed", redact=[{"field": "text", "pattern": "(a)(b)", "by": r"\1\\g<2>$1&"}]
    )
    assert tried.one(b'{"text":"ab"}')["text"] == r"\1\\g<2>$1&"


@pytest.mark.parametrize(
    "line",
    [
        header(SECRET, time="yesterday"),
        header(SECRET, time="2020-01-01T00:00:00Z"),
        header(SECRET, msgid=SECRET),
        header(f"\0{SECRET}").replace(b"\0", b"\xff"),
        SECRET.encode(),
    ],
)
def test_a_dead_letter_of_a_redacting_source_says_nothing_of_its_line(line: bytes) -> None:
    letter = NOTE.one(line)
    assert (letter["type"], letter["raw"]) == ("dead-letters", b"")
    assert SECRET not in str(letter)
    assert f"{len(line)} bytes are withheld" in letter["detail"]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b'{"user":"u","notes":["a",1],"password":"%s"}', "the field notes is wrong"),
        (b'{"user":"u","notes":[{"%s":1}]}', "the field notes is wrong"),
        (b'{"notes":["%s"]}', "the field user is missing"),
        (b'{"user":"%s', ""),
    ],
)
def test_what_was_wrong_is_told_as_far_as_it_tells_nothing_of_the_line(
    line: bytes, detail: str
) -> None:
    letter = PAID.one(line % SECRET.encode())
    assert letter["detail"].startswith(f"{detail}; the line's" if detail else "the line's")
    assert SECRET not in str(letter)


def test_lines_of_no_declared_source_and_pieces_of_long_ones_are_withheld_too() -> None:
    assert NOTE.one(SECRET.encode(), source="mistyped")["raw"] == b""
    assert NOTE.one(SECRET.encode(), part=Part.LAST_CHUNK)["raw"] == b""
    assert NOTE.one(b"4" * (LINE_BYTES_MAX + 1))["raw"] == b""
    (chunk,) = NOTE.parsed(SECRET.encode(), part=Part.CHUNK).records
    assert SECRET.encode() not in chunk.value


def test_other_sources_keep_their_raw_bytes() -> None:
    plain = EventType(name="plain", fields=TEXT)
    redacting = EventType(
        name="t", fields=TEXT, line=LineRule(payload="text", field="text", redact=[CARD])
    )
    tried = Tried([plain, redacting], Source(name="s", types=["plain"]))
    assert tried.one(b"junk")["raw"] == b"junk"


def test_events_of_the_api_are_redacted_and_their_dead_letters_withheld() -> None:
    body = b'{"user":"u","password":"%s"}\n{"password":"%s"}\n{"user":"u","k":"%s"}' % (
        (SECRET.encode(),) * 3
    )
    batch = Batch(
        event_type="t", client="c", key="k", observed_at_ms=1_795_225_200_000, rules=PAID.rules.id
    )
    parsed = BatchParser(batch, body, PAID.compiled).parse_all()
    assert (parsed.events, parsed.dead_letters) == (2, 1)
    assert not [record for record in parsed.records if SECRET.encode() in record.value]


def test_the_id_of_an_event_rests_on_the_line_as_it_was() -> None:
    one, other = header(SECRET), header(SECRET[:-1] + "2")
    assert NOTE.one(one)["text"] == NOTE.one(other)["text"] == "<card>"
    assert NOTE.one(one)["event_id"] != NOTE.one(other)["event_id"]


@pytest.mark.parametrize(
    ("redaction", "said"),
    [
        ({"field": "text"}, "has no default and cannot be null"),
        ({"field": "n", "by": "x"}, "'x', which stands for the field n, must be a whole number"),
        ({"field": "text", "pattern": "("}, "line.redact.pattern: RE2 does not accept it"),
    ],
)
def test_a_redaction_that_cannot_be_done_is_a_problem_of_its_type(
    redaction: dict[str, str], said: str
) -> None:
    tried = of_rule(
        [*TEXT, {"name": "n", "type": "long", "default": 0}], time="observed", redact=[redaction]
    )
    (problem,) = tried.compiled.problems
    assert said in problem
    assert tried.reason(b'{"text":"x"}') == "wrong_field", "and none of its lines becomes an event"
