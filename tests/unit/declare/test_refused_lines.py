"""`types apply` refuses what would make dead letters of lines that are events now, unless it is
meant.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.service.examples import range_of

from hourmark.config.groups import ParsingSettings
from hourmark.errors import UsageError
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, EventType, LineRule, Source
from hourmark.rules.narrowing import check_refused_lines
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, parse_range

N = {"name": "n", "type": "long"}
M = {"name": "m", "type": "string", "default": "none"}
LEVEL = {
    "name": "level",
    "type": {"type": "enum", "name": "Level", "symbols": ["a", "b", "z"], "default": "z"},
}
APP = Source(name="app", types=["click"])


def click(*fields: dict[str, Any], **line: Any) -> EventType:
    return EventType(name="click", fields=list(fields), line=LineRule(**line))


def rules_of(kind: EventType, source: Source = APP) -> Rules:
    others = [t for t in (RAW,) if t.name in (*source.types, source.catch_all)]
    versions = {
        t.name: TypeVersion(t, schema_id)
        for schema_id, t in enumerate((kind, *others, DEAD_LETTERS), 1)
    }
    return Rules(
        sequence=1, types=versions, sources={source.name: source}, parsing=ParsingSettings()
    )


def dead(line: bytes, rules: Rules) -> int:
    """How many dead letters become of the line: what the structure says is held against the
    parser.
    """
    body = line + b"\n"
    return parse_range(
        range_of(body, "app", rules=rules.id), body, CompiledRules(rules)
    ).dead_letters


def msg(time: str = "2026-11-21T01:39:58Z", **fields: Any) -> bytes:
    return f"<13>1 {time} h a - click - {json.dumps(fields)}".encode()


RAW = EventType(
    name="raw",
    fields=[{"name": "line", "type": "bytes"}],
    line=LineRule(payload="text", field="line", time="observed"),
)
FREE = Source(name="app", format="free", types=["click"])
PATTERN = {"payload": "pattern", "time": "observed"}
S = {"name": "s", "type": "string"}
T = {"name": "t", "type": "string", "aliases": ["s"]}  # the same field under a new name
NESTED = {"name": "of", "type": {"type": "record", "name": "Of", "fields": [{**M}]}}
BARE = {
    "name": "of",
    "type": {"type": "record", "name": "Of", "fields": [{"name": "m", "type": "string"}]},
}

REFUSED: dict[str, tuple[Rules, Rules, bytes, str]] = {
    "a default": (
        rules_of(click(N, M)),
        rules_of(click(N, {"name": "m", "type": "string"})),
        msg(n=1),
        "click: field m no longer has a default",
    ),
    "a field": (
        rules_of(click(N, M)),
        rules_of(click(N)),
        msg(n=1, m="x"),
        "click: field m is no longer declared",
    ),
    "a key": (
        rules_of(click(N, keys={"n": "n-1"})),
        rules_of(click(N, keys={"n": "n-2"})),
        msg().replace(b"{}", b'{"n-1": 1}'),
        "click: its key 'n-1' was the field n",
    ),
    "a default within": (
        rules_of(click(N, NESTED)),
        rules_of(click(N, BARE)),
        msg(n=1, of={}),
        "click: field of.m no longer has a default",
    ),
    "a symbol": (
        rules_of(click(N, LEVEL)),
        rules_of(click(N, {"name": "level", "type": {**LEVEL["type"], "symbols": ["a", "z"]}})),  # type: ignore[dict-item]
        msg(n=1, level="b"),
        "click: field level no longer accepts b",
    ),
    "no time": (
        rules_of(click(N, time="observed")),
        rules_of(click(N)),
        msg("-", n=1),
        "click: lines without a time were accepted",
    ),
    "a group": (
        rules_of(click(S, pattern="(?P<s>.*)", **PATTERN), FREE),
        rules_of(click(S, pattern=".*", **PATTERN), FREE),
        b"x",
        "click: its lines no longer fill the field s, which has no default",
    ),
    "the group of a renamed field": (
        rules_of(click(S, pattern="(?P<s>.*)", **PATTERN), FREE),
        rules_of(click(T, pattern=".*", **PATTERN), FREE),
        b"x",
        "click: its lines no longer fill the field t, which has no default",
    ),
    "the default of a renamed field": (
        rules_of(
            click({**S, "default": ""}, pattern="x(?P<s>y)?", **PATTERN),
            FREE,
        ),
        rules_of(click(T, pattern="x(?P<t>y)?", **PATTERN), FREE),
        b"x",
        "click: field t no longer has a default",
    ),
    "the name of a field in JSON": (
        rules_of(click(S)),
        rules_of(click(T)),
        msg(s="x"),
        "click: field s is no longer declared",
    ),
    "a catch_all": (
        rules_of(click(N), APP.model_copy(update={"catch_all": "raw"})),
        rules_of(click(N)),
        b"x",
        "source app: it no longer has a catch_all",
    ),
    "a type of a source": (
        rules_of(click(N), Source(name="app", types=["click", "raw"])),
        rules_of(click(N)),
        b"<13>1 - h a - raw - x",
        "source app: it no longer carries raw",
    ),
    "a format": (
        rules_of(click(S, pattern="(?P<s>.*)", **PATTERN), FREE),
        rules_of(click(S, pattern="(?P<s>.*)", **PATTERN)),
        b"x",
        "source app: its format was free and is rfc5424",
    ),
}


def declarations(rules: Rules) -> Declarations:
    return Declarations([t.declaration for t in rules.types.values()], [*rules.sources.values()])


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_dead_letters_of_live_lines_is_refused_and_can_be_meant(name: str) -> None:
    before, after, line, says = REFUSED[name]
    assert (dead(line, before), dead(line, after)) == (0, 1), "as the parser has it"
    with pytest.raises(UsageError, match="confirm with --refuse-lines") as refused:
        check_refused_lines(before, declarations(after), may_refuse=False)
    assert says in str(refused.value)
    check_refused_lines(before, declarations(after), may_refuse=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (click(N), click(N, M)),
        (click(N, M), click(N, {**M, "default": "other"})),
        (click(N), click({"name": "n", "type": "double"})),
        (click(N), click({**N, "doc": "said otherwise"})),
        (
            click(LEVEL),
            click({"name": "level", "type": {**LEVEL["type"], "symbols": ["a", "b", "c", "z"]}}),  # type: ignore[dict-item]
        ),
        (click(S, pattern="(?P<s>.*)", **PATTERN), click(S, pattern="(?P<s>[a-z]+)", **PATTERN)),
    ],
)
def test_what_takes_more_or_cannot_be_told_is_accepted(before: EventType, after: EventType) -> None:
    check_refused_lines(rules_of(before), declarations(rules_of(after)), may_refuse=False)


TSV = {"payload": "tsv", "time": "observed"}
TEXT = {"payload": "text", "time": "observed"}


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (
            click(S, pattern="(?P<s>.*)", **PATTERN),
            click(T, pattern="(?P<t>.*)", **PATTERN),
            b"x",
        ),
        (
            click(S, N, pattern="(?P<n>[0-9]+) .*", field="s", **PATTERN),
            click(T, N, pattern="(?P<n>[0-9]+) .*", field="t", **PATTERN),
            b"1 x",
        ),
        (click(S, N, columns=["s", "n"], **TSV), click(T, N, columns=["t", "n"], **TSV), b"x\t1"),
        (click(S, field="s", **TEXT), click(T, field="t", **TEXT), b"x"),
    ],
    ids=["group", "field of a pattern", "column", "text"],
)
def test_a_rename_with_an_alias_is_accepted_if_lines_do_not_hold_the_name(
    before: EventType, after: EventType, line: bytes
) -> None:
    assert (dead(line, rules_of(before, FREE)), dead(line, rules_of(after, FREE))) == (0, 0)
    check_refused_lines(
        rules_of(before, FREE), declarations(rules_of(after, FREE)), may_refuse=False
    )


def test_a_rename_without_an_alias_is_refused() -> None:
    after = click({"name": "t", "type": "string"}, pattern="(?P<t>.*)", **PATTERN)
    with pytest.raises(UsageError, match="field s is no longer declared"):
        check_refused_lines(
            rules_of(click(S, pattern="(?P<s>.*)", **PATTERN), FREE),
            declarations(rules_of(after, FREE)),
            may_refuse=False,
        )


def test_a_record_in_itself_ends() -> None:
    tree: dict[str, Any] = {
        "name": "tree",
        "type": {
            "type": "record",
            "name": "Tree",
            "fields": [{"name": "next", "type": ["null", "Tree"], "default": None}, {**M}],
        },
    }
    rules = rules_of(click(N, tree))
    check_refused_lines(rules, declarations(rules), may_refuse=False)
    (tree["type"]["fields"][1]).pop("default")
    with pytest.raises(UsageError, match=r"field tree\.m no longer has a default"):
        check_refused_lines(rules, declarations(rules_of(click(N, tree))), may_refuse=False)
