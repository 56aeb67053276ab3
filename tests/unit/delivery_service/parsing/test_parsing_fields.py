"""What a tailer's source says of every event stands where the record itself says nothing, and never
breaks a type.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS, decoded, range_of, syslog
from tests.support.service.harness import Harness, with_service

from hourmark.config.groups import ParsingSettings
from hourmark.records.ranges import encode_range_fields
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.line_rule import Redaction
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, ParsedRange, parse_range

_NULLABLE: dict[str, Any] = {"type": ["null", "string"], "default": None}
_LABELS: dict[str, Any] = {
    "name": "labels",
    "type": {"type": "map", "values": "string"},
    "default": {},
}
FIELDS: list[dict[str, Any]] = [
    {"name": "text", "type": "string"},
    {"name": "team", **_NULLABLE},
    {"name": "shift", "type": "int", "default": 7},
    _LABELS,
]
TYPES = (
    EventType(name="json", fields=FIELDS, line=LineRule(time="observed")),
    EventType(
        name="text", fields=FIELDS, line=LineRule(payload="text", field="text", time="observed")
    ),
    EventType(
        name="logfmt",
        fields=FIELDS,
        line=LineRule(payload="logfmt", time="observed", unknown="ignore"),
    ),
    EventType(
        name="pattern",
        fields=FIELDS,
        line=LineRule(
            payload="pattern", pattern=r"(?:team=(?P<team>\w+) )?(?P<text>.*)", time="observed"
        ),
    ),
    EventType(
        name="plain",
        fields=[{"name": "text", "type": "bytes"}],
        line=LineRule(payload="text", field="text", time="observed"),
    ),
    EventType(
        name="redacted",
        fields=FIELDS,
        line=LineRule(
            time="observed", redact=[Redaction(field="team"), Redaction(field="text", by="-")]
        ),
    ),
    EventType(
        name="required",
        fields=[{"name": "text", "type": "string"}, {"name": "team", "type": "string"}],
        line=LineRule(time="observed"),
    ),
    DEAD_LETTERS,
)
SOURCES = [
    *(
        Source(name=t.name, types=[t.name], format="free")
        for t in TYPES
        if t.name != "dead-letters"
    ),
    Source(name="named", types=["json", "text"], catch_all="text"),
]
RULES = Rules(
    sequence=1,
    types={t.name: TypeVersion(t, n) for n, t in enumerate(TYPES, 1)},
    sources={s.name: s for s in SOURCES},
    parsing=ParsingSettings(),
)
COMPILED = CompiledRules(RULES)
SAID = {"team": "pay", "env": "prod", "shift": "3"}


def of(body: bytes, source: str, said: dict[str, str] | None = None, **more: Any) -> ParsedRange:
    written = encode_range_fields(SAID if said is None else said)
    return parse_range(
        range_of(body, source, rules=RULES.id, fields=written, **more), body, COMPILED
    )


def own(body: bytes, source: str, said: dict[str, str] | None = None) -> dict[str, Any]:
    (record,) = of(body, source, said).records
    row = decoded(record, RULES)
    return {name: row[name] for name in list(row)[6:]}


@pytest.mark.parametrize(
    ("source", "line", "team"),
    [
        ("json", b'{"text": "t"}', "pay"),
        ("json", b'{"text": "t", "team": "own"}', "own"),
        ("json", b'{"text": "t", "team": null}', None),
        ("text", b"t", "pay"),
        ("logfmt", b"text=t", "pay"),
        ("logfmt", b"text=t team=own", "own"),
        ("pattern", b"t", "pay"),
        ("pattern", b"team=own t", "own"),
    ],
)
def test_they_stand_where_the_record_says_nothing(
    source: str, line: bytes, team: str | None
) -> None:
    assert own(line + b"\n", source) == {"text": "t", "team": team, "shift": 3, "labels": SAID}
    assert own(line + b"\n", source, {}) == {
        "text": "t",
        "team": None if team == "pay" else team,
        "shift": 7,
        "labels": {},
    }


def test_with_a_header_and_with_a_catch_all_too() -> None:
    for line, text in (
        (syslog("text", b"t"), "t"),
        (syslog("json", b'{"text": "t"}'), "t"),
        (b"no header\n", "no header"),
    ):
        assert own(line, "named") == {"text": text, "team": "pay", "shift": 3, "labels": SAID}


def test_a_type_that_declares_none_of_them_is_as_it_was() -> None:
    assert own(b"t\n", "plain") == {"text": b"t"}


def test_what_a_field_cannot_hold_is_not_put_there() -> None:
    assert own(b"t\n", "text", {"shift": "night", "team": "pay"}) == {
        "text": "t",
        "team": "pay",
        "shift": 7,
        "labels": {"shift": "night", "team": "pay"},
    }


def test_a_field_without_a_default_is_there_by_them() -> None:
    assert own(b'{"text": "t"}\n', "required") == {"text": "t", "team": "pay"}
    assert own(b'{"text": "t"}\n', "required", {"env": "prod"})["reason"] == "missing_field"


def test_what_is_redacted_stays_so() -> None:
    assert own(b'{"text": "t", "team": "secret"}\n', "redacted")["team"] is None


@given(
    st.dictionaries(
        st.sampled_from(["text", "team", "shift", "labels", "env"]), st.text(max_size=6), max_size=4
    ),
    st.sampled_from(SOURCES),
    st.lists(
        st.sampled_from([b"t", b'{"text": "t"}', b"{}", b"text=t", b"", b"\xff"]),
        min_size=1,
        max_size=5,
    ),
)
def test_ids_times_and_counts_are_those_without_them(
    said: dict[str, str], source: Source, lines: list[bytes]
) -> None:
    body = b"\n".join(lines) + b"\n"
    with_them, without = of(body, source.name, said), of(body, source.name, {})
    assert with_them == of(body, source.name, said)
    assert (with_them.lines, with_them.blanks) == (without.lines, without.blanks)
    assert with_them.dead_letters <= without.dead_letters, "they make no event impossible"
    for one, other in zip(with_them.records, without.records, strict=True):
        if one.event_type == other.event_type:
            assert one.key[:16] == other.key[:16]
    assert (with_them.audit.range_id == without.audit.range_id) == (not said)


@with_service()
async def test_over_http(h: Harness) -> None:
    assert (await h.post_range(syslog(), fields=encode_range_fields(SAID))).status_code == 200
    wrong = await h.post_range(
        syslog(),
        fields=encode_range_fields(SAID),
        headers={"Hourmark-Fields": json.dumps({"a": 1})},
    )
    assert (wrong.status_code, wrong.json()["code"]) == (400, "headers")
    assert NOW_MS
