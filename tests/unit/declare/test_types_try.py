"""`hourmark types try`: sample lines, shown as what the service would make of them; and rules of
lines that are refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hourmark.errors import TypeFileError, UsageError
from hourmark.records.ranges import LINE_BYTES_MAX
from hourmark.rules.event_types import (
    SYSLOG,
    EventType,
    LineRule,
    Source,
    check_declarations,
    read_declarations,
)
from hourmark_declare.cli import types

SAMPLES = os.environ.get(
    "HOURMARK_LOGHUB", ""
)  # a folder with samples of https://github.com/logpai/loghub
NOW = "2026-11-21T01:40:00Z"
SYSTEM = '[[source]]\nname = "system"\nformat = "syslog"\ntypes = ["syslog"]\n'
WEB = """\
name = "web"
fields = [{ name = "status", type = "int" }]
line = { payload = "logfmt", time_field = "ts", unknown = "ignore" }
"""
PATTERN = (
    r"""pattern = '(?P<time>\S+) (?P<status>\d+)(?s:.*)', time_format = "%Y-%m-%dT%H:%M:%SZ" """
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "types"
    made.mkdir()
    (made / "sources.toml").write_text(
        SYSTEM + '[[source]]\nname = "app"\nformat = "free"\ntypes = ["web"]\n'
    )
    (made / "web.toml").write_text(WEB)
    return made


def run(folder: Path, lines: bytes, *more: str) -> Result:
    return CliRunner().invoke(
        types,
        ["try", "--dir", str(folder), "--lines", "-", "--observed-at", NOW, *more],
        input=lines,
        catch_exceptions=False,
    )


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_built_in_type_needs_no_declaration_of_its_own(folder: Path) -> None:
    assert SYSLOG in read_declarations(folder).types
    (folder / "sources.toml").write_text(
        '[[source]]\nname = "app"\nformat = "free"\ntypes = ["web"]\n'
    )
    assert SYSLOG not in read_declarations(folder).types, "only where a source names it"


def test_whoever_declares_a_type_syslog_has_that(folder: Path) -> None:
    (folder / "syslog.toml").write_text(
        'name = "syslog"\nfields = [{ name = "m", type = "bytes" }]\nline = { payload = '
        '"text", field = "m" }\n'
    )
    (declared,) = (t for t in read_declarations(folder).types if t.name == "syslog")
    assert [field["name"] for field in declared.fields] == ["m"]


def test_each_line_is_shown_with_its_type_time_and_fields(folder: Path) -> None:
    result = run(folder, b"Nov 21 01:00:00 h cron[7]: caf\xc3\xa9", "--source", "system")
    assert result.exit_code == 0
    line, sums = result.stdout.splitlines()
    assert line.startswith(
        '1: syslog 2026-11-21T01:00:00.000Z h {"program": "cron", "pid": "7", "message": "café"'
    )
    assert sums == "events: 1 syslog; dead letters: none"


def test_a_dead_letter_is_shown_with_its_reason_and_ends_with_1(folder: Path) -> None:
    result = run(
        folder,
        b"ts=2026-11-21T01:00:00Z status=200 x=y\nstatus=x\n\xff\n",
        "--source",
        "app",
        "--json",
    )
    assert result.exit_code == 1
    event, *letters, sums = rows(result)
    assert (event["type"], event["time"], event["fields"]) == (
        "web",
        "2026-11-21T01:00:00.000Z",
        {"status": 200},
    )
    assert [(row["line"], row["reason"]) for row in letters] == [
        (2, "no_timestamp"),
        (3, "bad_logfmt"),
    ]
    assert sums == {"events": {"web": 1}, "dead_letters": {"no_timestamp": 1, "bad_logfmt": 1}}
    assert (
        "3: dead letter bad_logfmt: the message"
        in run(folder, b"\n\nx\n", "--source", "app").stdout
    )


def test_a_type_is_tried_alone_in_the_source_that_carries_it(folder: Path) -> None:
    assert run(folder, b"ts=2026-11-21T01:00:00Z status=200\n", "--type", "web").exit_code == 0


def test_lines_are_read_in_the_zone_that_is_said(folder: Path) -> None:
    result = run(
        folder, b"Nov 21 02:00:00 h p: x\n", "--type", "syslog", "--zone", "Europe/Vienna", "--json"
    )
    assert rows(result)[0]["time"] == "2026-11-21T01:00:00.000Z"


def test_records_begin_where_the_tailer_of_the_source_begins_them(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "web.toml").write_text(
        WEB.replace('"logfmt", time_field = "ts", unknown = "ignore"', f'"pattern", {PATTERN}')
    )
    settings = tmp_path / "hourmark.toml"
    settings.write_text("""
[tailer]
service_urls = ["http://127.0.0.1:1"]
[[tailer.sources]]
name = "app"
paths = ["/var/log/app.log"]
record_start = "^2026-"
""")
    lines = b"2026-11-21T01:00:00Z 500 one\n\tat two\n2026-11-21T01:00:01Z 200 three\n"
    result = run(folder, lines, "--source", "app", "--json", "--config", str(settings))
    assert [row["fields"]["status"] for row in rows(result)[:-1]] == [500, 200]
    settings.write_text("")
    result = run(folder, lines, "--source", "app", "--json", "--config", str(settings))
    assert (result.exit_code, len(rows(result)[:-1])) == (1, 3), "each line is a record"


def test_no_more_lines_are_read_than_are_asked_for(folder: Path) -> None:
    assert (
        len(rows(run(folder, b"x\n" * 100, "--source", "app", "--limit", "3", "--json"))) == 3 + 1
    )


def test_a_line_over_the_limit_is_one_dead_letter(folder: Path) -> None:
    lines = b"x" * (2 * LINE_BYTES_MAX + 9) + b"\nts=2026-11-21T01:00:00Z status=200\n"
    long, event, _ = rows(run(folder, lines, "--source", "app", "--json"))
    assert (long["reason"], event["type"]) == ("line_too_long", "web")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "specify the source of the lines with --source; declared sources: app, system"),
        (["--source", "nowhere"], "unknown source; declared sources: app, system"),
        (["--type", "nothing"], "no source contains this type"),
        (["--source", "app", "--zone", "Vienna"], "--zone Vienna: allowed"),
        (["--source", "app", "--observed-at", "now"], "--observed-at now: allowed"),
    ],
)
def test_wrong_use_is_said(folder: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(folder, b"x\n", *arguments)


@pytest.mark.skipif(not SAMPLES, reason="HOURMARK_LOGHUB names no folder with samples of loghub")
@pytest.mark.parametrize(
    ("sample", "observed_at", "rule"),
    [
        ("Linux_2k.log", "2005-07-28T00:00:00Z", None),
        (
            "Apache_2k.log",
            "2005-12-06T00:00:00Z",
            {
                "pattern": r"\[(?P<time>[^\]]+)\] \[(?P<level>[a-z]+)\] (?P<message>.*)",
                "time_format": "%a %b %d %H:%M:%S %Y",
            },
        ),
        (
            "HDFS_2k.log",
            "2008-11-12T00:00:00Z",
            {
                "pattern": r"(?P<time>\d{6} \d{6}) \d+ (?P<level>[A-Z]+) (?P<message>.*)",
                "time_format": "%y%m%d %H%M%S",
            },
        ),
    ],
)
def test_every_line_of_real_samples_becomes_an_event(
    folder: Path, sample: str, observed_at: str, rule: dict[str, str] | None
) -> None:
    sources = SYSTEM if rule is None else '[[source]]\nname = "x"\nformat = "free"\ntypes = ["x"]\n'
    (folder / "sources.toml").write_text(f"{sources}\n[limits]\nlateness_seconds = {60 * 86_400}\n")
    if rule is not None:
        settings = "\n".join(f"{name} = '''{value}'''" for name, value in rule.items())
        fields = '[{ name = "level", type = "string" }, { name = "message", type = "string" }]'
        (folder / "x.toml").write_text(
            f'name = "x"\nfields = {fields}\n[line]\npayload = "pattern"\n{settings}\n'
        )
    lines = (Path(SAMPLES) / sample).read_bytes()
    result = run(folder, lines, "--observed-at", observed_at, "--json")
    *_, sums = rows(result)
    assert sums == {
        "events": {
            "syslog" if rule is None else "x": lines.count(b"\n") + (not lines.endswith(b"\n"))
        },
        "dead_letters": {},
    }


FIELDS = [
    {"name": "a", "type": "string"},
    {"name": "m", "type": {"type": "map", "values": "string"}},
]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"payload": "tsv"}, "requires `columns`"),
        ({"payload": "tsv", "columns": ["b"]}, "line.columns = 'b' is not one of the fields"),
        ({"payload": "tsv", "columns": ["a", "a"]}, "line.columns: a is listed twice"),
        (
            {"payload": "tsv", "columns": ["a"], "time_field": "t"},
            "line.time_field = 't' is not one of the columns",
        ),
        ({"payload": "tsv", "columns": ["a"], "unknown": "ignore"}, "unknown requires"),
        ({"columns": ["a"]}, "columns requires payload = 'tsv'"),
        ({"payload": "logfmt", "coerce": ["a"]}, "coerce requires payload = 'json'"),
        ({"null_text": "-"}, "null_text requires"),
        ({"time_format": "unix"}, "time_format requires time_field"),
        ({"unknown": "keep"}, "and vice versa"),
        ({"unknown_field": "m"}, "and vice versa"),
        ({"unknown": "keep", "unknown_field": "a"}, "the field 'a' must be of the type"),
        ({"header": {"a": "prog"}}, "allowed: host, program, pid"),
        ({"header": {"b": "pid"}}, "line.header = 'b' is not one of the fields"),
        ({"header": {"a": "structured_data"}}, "the field 'a' must be of the type"),
        ({"coerce": ["b"]}, "line.coerce = 'b' is not one"),
        ({"redact": [{"field": "b"}]}, "line.redact = 'b' is not one"),
        (
            {"payload": "pattern", "pattern": "(?P<a>.)", "time_field": "t"},
            "time_field = 't' is not a group of the pattern",
        ),
    ],
)
def test_a_rule_of_lines_that_means_nothing_is_refused(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EventType(name="x", fields=FIELDS, line=rule)


def _type(name: str, **rule: Any) -> EventType:
    return EventType(name=name, fields=FIELDS, line=LineRule(**rule))


@pytest.mark.parametrize(
    ("source_format", "rules", "catch_all", "said"),
    [
        ("free", [{"header": {"a": "pid"}}], None, "which require format 'rfc5424' or 'syslog'"),
        ("free", [{}], None, "neither line.time_field nor line.time = 'observed'"),
        ("rfc5424", [{"programs": ["p"]}], None, "programs require 'syslog'"),
        (
            "free",
            [{"time": "observed"}, {"time_field": "t"}],
            None,
            "its type t1 never matches a line: t0 takes all lines of this kind",
        ),
        (
            "syslog",
            [{"payload": "text", "field": "a"}, {}],
            None,
            "its type t1 never matches a line",
        ),
        (
            "rfc5424",
            [
                {"redact": [{"field": "a", "by": "x"}]},
                {"payload": "text", "field": "a", "time": "observed"},
            ],
            "t1",
            "the catch_all t1 would store its lines unredacted",
        ),
    ],
)
def test_a_source_whose_lines_could_not_become_its_types_is_refused(
    source_format: str, rules: list[dict[str, Any]], catch_all: str | None, said: str
) -> None:
    declared = [_type(f"t{at}", **rule) for at, rule in enumerate(rules)]
    source = Source(
        name="s", format=source_format, types=[t.name for t in declared], catch_all=catch_all
    )
    with pytest.raises(TypeFileError, match=said):
        check_declarations(declared, [source])


def test_declarations_that_say_nothing_new_are_written_as_before() -> None:
    assert LineRule().model_dump() == {
        "payload": "json",
        "field": None,
        "pattern": None,
        "time_format": None,
        "time": "event",
    }
    assert "host" not in Source(name="s", types=["x"]).model_dump()
    changed = LineRule(payload="logfmt", time_field="t", unknown="ignore")
    assert LineRule.model_validate_json(changed.model_dump_json()) == changed
    assert changed.model_dump().keys() - LineRule().model_dump().keys() == {"time_field", "unknown"}
