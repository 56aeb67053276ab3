"""`hourmark init` finds the form of lines, and what it writes takes them as the delivery service
would.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hourmark.config.groups import BucketSettings, TypesSettings
from hourmark.config.loading import Config, load_config
from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark_declare.cli import resolve_first_hour
from hourmark_declare.folder import load_declarations
from hourmark_declare.init_cli import init
from hourmark_declare.proposing.file_sample import read_sample
from hourmark_declare.proposing.first_hours import choose_first_hour
from hourmark_declare.proposing.hosts import are_hosts
from hourmark_declare.proposing.selection import Proposal, propose
from hourmark_declare.proposing.structured import detect_time_format
from hourmark_declare.proposing.times.timestamps import find_timestamp
from hourmark_declare.proposing.times.zone_names import zone_of_abbreviation
from hourmark_declare.proposing.value_types import infer_json_type, infer_text_type
from hourmark_declare.try_cli import try_
from hourmark_declare.zones import machine_zone

FORMS = {
    "JSON lines": (
        (
            '{"ts": "2026-11-21T10:00:00.5Z", "level": "info", "n": 3, "share": 0.5, "ok": '
            'true, "tags": ["a"], "odd key": 1}'
        ),
        '{"ts": "2026-11-21T10:00:01Z", "level": "warn", "n": null, "share": 1, "later": "x"}',
    ),
    "an access log": (
        '203.0.113.7 - ann [21/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"',
        '203.0.113.7 - - [21/Nov/2026:10:00:01 +0000] "GET /\\"x\\" HTTP/1.1" 404 -',
    ),
    "logfmt": (
        'ts=2026-11-21T10:00:00Z level=info n=3 msg="two words"',
        "ts=2026-11-21T10:00:01Z level=warn n=4 msg=x",
    ),
    "a system log": (
        "Nov 21 10:00:00 web-1 sshd[4711]: Accepted",
        "2026-11-21T10:00:00.1+01:00 web-1 systemd[1]: Started",
    ),
    "4 columns with tabs between": ("1795255200.25\ta\t1\t-", "1795255201.50\tb\t2\t0.5"),
    "lines that begin with a time": (
        "2026-11-21 10:00:00,123 [INFO] started",
        "2026-11-21 10:00:01,004 [ERROR] ended",
    ),
    "records that begin with a time": (
        "2026/11/21 10:00:00 Boom",
        "\tat a.b(C.java:7)",
        "2026/11/21 10:00:01 Again",
        "\tat x",
    ),
    "lines of text without a time": ("a recipe", "of no form at all"),
}
FIELDS = {
    "JSON lines": {
        "level": "string",
        "n": "long",
        "share": "double",
        "ok": "boolean",
        "later": "string",
    },
    "an access log": {
        "client": "string",
        "user": "string",
        "request": "string",
        "status": "long",
        "bytes": "long",
    },
    "logfmt": {"level": "string", "n": "long", "msg": "string"},
    "4 columns with tabs between": {"column_2": "string", "column_3": "long", "column_4": "double"},
    "lines that begin with a time": {"level": "string", "message": "string"},
}
STAMPS = {
    "2026-11-21 10:00:00": "%Y-%m-%d %H:%M:%S",
    "2026-11-21T10:00:00.123456Z": "%Y-%m-%dT%H:%M:%S.%f%z",
    "2026-11-21 10:00:00,5 +0100": "%Y-%m-%d %H:%M:%S,%f %z",
    "2026-11-21 10:00:00.123 UTC": "%Y-%m-%d %H:%M:%S.%f %Z",
    "2026/11/21 10:00:00": "%Y/%m/%d %H:%M:%S",
    "21/Nov/2026:10:00:00 +0000": "%d/%b/%Y:%H:%M:%S %z",
    "21 Nov 2026 10:00:00": "%d %b %Y %H:%M:%S",
    "21.11.2026 10:00:00": "%d.%m.%Y %H:%M:%S",
    "Sat Nov 21 10:00:00 2026": "%a %b %e %H:%M:%S %Y",
    "Nov  1 10:00:00": "%b %e %H:%M:%S",
    "261121 100000": "%y%m%d %H%M%S",
    "1121 10:00:00.123456": "%m%d %H:%M:%S.%f",
    "11-21 10:00:00.123": "%m-%d %H:%M:%S.%f",
    "11.21 10:00:00": "%m.%d %H:%M:%S",
    "26/11/21 10:00:00": "%y/%m/%d %H:%M:%S",
    "11/21/2026 10:00:00 AM": "%m/%d/%Y %I:%M:%S %p",
    "21-Nov-2026 10:00:00.123": "%d-%b-%Y %H:%M:%S.%f",
    "20261121-10:00:00:123": "%Y%m%d-%H:%M:%S:%f",
    "2026-11-21-10.00.00.123456": "%Y-%m-%d-%H.%M.%S.%f",
    "10:00:00 21.11.2026": "%H:%M:%S %d.%m.%Y",
    "2026-11-21 10:00:00 CET": "%Y-%m-%d %H:%M:%S %Z",
    "1795255200.123": "unix",
    "1795255200123": "unix-ms",
}


def proposal(folder: Path, *lines: str) -> Proposal:
    (folder / "a.log").write_text("".join(f"{line}\n" for line in lines))
    return propose(read_sample(folder / "a.log"), "app", zone="UTC", host="h")


def invoked(*arguments: str) -> Any:
    return CliRunner().invoke(init, arguments, catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_found_and_takes_its_lines(tmp_path: Path, form: str) -> None:
    found = proposal(tmp_path, *FORMS[form])
    assert found.candidate.form == form
    assert (found.fitting, found.caught, found.dead_letters.total()) == (found.records, 0, 0)
    declared = {field["name"]: field["type"] for field in found.candidate.fields}
    assert {name: declared[name] for name in FIELDS.get(form, {})} == {
        n: ["null", of] for n, of in FIELDS.get(form, {}).items()
    }
    assert form == "lines of text without a time" or (found.oldest or "").startswith("2026-11-21T")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_is_read_and_takes_the_lines(tmp_path: Path, form: str) -> None:
    log, out = tmp_path / "My App.log", tmp_path / "out"
    log.write_text("".join(f"{line}\n" for line in FORMS[form]))
    done = invoked(str(log), "--out", str(out), "--zone", "Europe/Vienna", "--yes")
    assert done.exit_code == 0
    assert load_declarations(out / "types").sources[0].name == "my-app"
    config = load_config(out / "hourmark.toml")
    assert config.types.dir == out / "types"
    (source,) = config.tailer.sources
    assert (source.name, source.paths, source.zone) == ("my-app", [str(log)], "Europe/Vienna")
    if source.record_start is None:
        tried = CliRunner().invoke(
            try_,
            [
                "--dir",
                str(out / "types"),
                "--lines",
                str(log),
                "--config",
                str(out / "hourmark.toml"),
            ],
        )
        assert tried.exit_code == 0, tried.output


def test_lines_of_another_form_are_kept_whole_by_what_is_written(tmp_path: Path) -> None:
    stamped_lines = [f"2026-11-21 10:00:{n:02} started" for n in range(59)]
    found = proposal(tmp_path, *stamped_lines, "Traceback")
    assert (found.candidate.form, found.fitting, found.caught, found.dead_letters.total()) == (
        "lines that begin with a time",
        59,
        1,
        0,
    )


def test_records_begin_as_the_first_of_them(tmp_path: Path) -> None:
    record = (
        "Start-Date: 2026-11-21  10:00:00",
        "Install: x",
        "End-Date: 2026-11-21  10:00:01",
        "",
    )
    found = proposal(tmp_path, "", *record, *record, *record)
    assert found.candidate.record_start == r"^Start-Date: \d{4}-\d\d-\d\d  \d\d:\d\d:\d\d"
    assert (found.records, found.fitting) == (3, 3)


def test_old_lines_are_events_and_the_limit_is_told(tmp_path: Path) -> None:
    log = tmp_path / "old.log"
    log.write_text("2020-01-01 10:00:00 long ago\n")
    done = invoked(str(log), "--out", str(tmp_path / "out"), "--yes")
    assert "days old, for the oldest that is there" in done.output
    assert load_declarations(tmp_path / "out/types").limits.lateness_seconds > 6 * 365 * 86_400


def test_buckets_begin_one_ago_where_lines_are_older_as_those_are_back_filled(
    tmp_path: Path,
) -> None:
    now_ms = 1_795_255_205_000  # 2026-11-21T10:00:05Z
    recent, old = "2026-11-21T09:30:59Z", "2020-01-01T00:00:00+00:00"
    assert str(choose_first_hour([recent, None], now_ms, 60)) == "2026-11-21T09:59"
    assert str(choose_first_hour([recent], now_ms, 3600)) == "2026-11-21T09"
    assert str(choose_first_hour([recent, old], now_ms, 3600)) == "2026-11-21T09"
    assert str(choose_first_hour([None], now_ms, 60)) == "2026-11-21T10:00"
    assert str(choose_first_hour(["2026-11-21T12:00:00Z"], now_ms, 60)) == "2026-11-21T10:00", (
        "a clock ahead moves nothing"
    )


def test_the_first_bucket_is_shown_written_and_can_be_chosen(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("2026-11-21 10:00:00 long ago\n")
    minutes = ("--bucket-seconds", "60", "--first-hour", "2026-11-20T05:07")
    done = invoked(str(log), "--out", str(tmp_path / "out"), *minutes, "--yes")
    assert "buckets of 1 minute, as --bucket-seconds sets it, from 2026-11-20T05:07" in done.output
    config = load_config(tmp_path / "out/hourmark.toml")
    assert config.types.first_hour == "2026-11-20T05:07"
    assert str(resolve_first_hour(config, None, is_new=True)) == "2026-11-20T05:07"
    assert str(resolve_first_hour(config, "2026-11-20T06", is_new=True)) == "2026-11-20T06:00"
    assert resolve_first_hour(config, None, is_new=False) > Hour.parse("2026-11-20T05:07", 60), (
        "types that come later begin now"
    )
    with pytest.raises(
        UsageError, match=r"--first-hour: 'noon' is not a valid hour; write it as 2026-11-21T05"
    ):
        invoked(str(log), "--out", str(tmp_path / "other"), "--first-hour", "noon")


def test_a_first_hour_that_is_none_is_refused_by_its_setting() -> None:
    config = Config(
        parsing=BucketSettings(bucket_seconds=3600),
        types=TypesSettings(first_hour="2026-11-20T05:07"),
    )
    with pytest.raises(UsageError, match=r"types.first_hour: .* is not the start of a bucket"):
        resolve_first_hour(config, None, is_new=True)


def test_a_record_whose_first_line_is_its_time_alone_has_a_message_that_begins_with_text(
    tmp_path: Path,
) -> None:
    log = tmp_path / "a.log"
    log.write_text("Start-Date: 2026-11-21  10:00:00\nCommandline: apt\nEnd-Date: now\n\n" * 3)
    proposal = propose(read_sample(log), "a", zone="UTC", host="web")
    assert proposal.examples[0].fields["message"] == "Commandline: apt\nEnd-Date: now\n"


@pytest.mark.parametrize(
    ("most", "line", "level", "message"),
    [
        ("ERROR it broke", "- - -", None, "- - -"),
        ("ERROR it broke", "Log file rotated", None, "Log file rotated"),
        ("ERROR it broke", "Error opening /data/in/3.csv", None, "Error opening /data/in/3.csv"),
        ("ERROR it broke", "| id | name |", None, "| id | name |"),
        ("ERROR it broke", "--- batch 6 ---", None, "--- batch 6 ---"),
        ("ERROR it broke", "Warning: 3 rows skipped", None, "Warning: 3 rows skipped"),
        ("ERROR it broke", "[ERROR]: - it broke", "ERROR", "- it broke"),
        ("[info] it started", "(Error): it broke", "Error", "it broke"),
        ("Info: it started", "Error: it broke", "Error", "it broke"),
        ("- [INFO] - started", "- ERROR - it - broke", "ERROR", "it - broke"),
        ("| INFO | started", "| ERROR | a | b", "ERROR", "a | b"),
        ("info started", "error opening", "error", "opening"),
        ("started", "Error: none of these has a level", None, "Error: none of these has a level"),
        ("- started", "-> there", None, "-> there"),
    ],
)
def test_what_is_no_level_stays_in_the_message(
    tmp_path: Path, most: str, line: str, level: str | None, message: str
) -> None:
    lines = [f"2026-11-21 10:00:{n:02} {text}" for n, text in enumerate([*[most] * 40, line])]
    pattern = proposal(tmp_path, *lines).candidate.line["pattern"]
    found = re.fullmatch(pattern, lines[-1])
    assert found is not None and (found.groupdict().get("level"), found["message"]) == (
        level,
        message,
    )
    assert re.fullmatch(pattern, lines[0]) is not None


@pytest.mark.parametrize(
    ("between", "rest"),
    [("] ", "ended"), (": ", "ended"), ("\t", "ended"), ("  ", "ended"), ("", "")],
    ids=repr,
)
def test_what_closes_a_time_is_no_message(tmp_path: Path, between: str, rest: str) -> None:
    lines = [
        f"{'[' if ']' in between else ''}2026-11-21 10:00:{n:02}{between}{rest}" for n in range(40)
    ]
    found = re.fullmatch(proposal(tmp_path, *lines).candidate.line["pattern"], lines[0])
    assert found is not None and found["message"] == rest


@pytest.mark.parametrize("stamp", STAMPS)
def test_times_are_seen_wherever_they_begin(stamp: str) -> None:
    for before in ("", "[", "some-program "):
        found = find_timestamp(f"{before}{stamp} INFO text".encode())
        assert found is not None
        assert (found.form.format, found.start, found.end) == (
            STAMPS[stamp],
            len(before),
            len(before) + len(stamp),
        )


@pytest.mark.parametrize("line", ["", "no time", "2026-11-21", f"{'x' * 200} 2026-11-21 10:00:00"])
def test_what_is_no_time_is_none(line: str) -> None:
    assert find_timestamp(line.encode()) is None


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    arguments = (str(tmp_path / "a.log"), "--out", str(tmp_path / "out"), "--yes")
    assert invoked(*arguments).exit_code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.toml")}
    with pytest.raises(
        UsageError,
        match=r"a.log is followed already, as source a of .*hourmark.toml; `hourmark run` continues",
    ):
        invoked(*arguments)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.toml")} == before


def test_nothing_is_written_unasked(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    assert (
        "nothing was written"
        in invoked(str(tmp_path / "a.log"), "--out", str(tmp_path / "out")).output
    )
    told = json.loads(
        invoked(str(tmp_path / "a.log"), "--out", str(tmp_path / "out"), "--json").stdout
    )
    assert told["proposals"][0]["fitting"] == 1
    assert [*tmp_path.iterdir()] == [tmp_path / "a.log"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no line yet"),
        (b"\n\n", "no line yet"),
        (b"\x1f\x8b\x08rest", "packed by gzip"),
        (b"a\x00b\n", "NUL"),
        ("a\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_has_no_lines_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.log").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_sample(tmp_path / "a.log")
    with pytest.raises(UsageError, match="is a folder"):
        read_sample(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        read_sample(tmp_path / "absent")


def test_of_a_large_file_both_ends_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"line {n:07}\n" for n in range(400_000)))
    sample = read_sample(tmp_path / "a.log")
    assert (sample.head[0], len(sample.head)) == (b"line 0000000", 1000)
    assert (sample.tail[-2], len(sample.tail)) == (b"line 0399999", 1000)
    assert all(len(line) == 12 for line in sample.lines[:-1])


def test_names_are_types_names_and_differ(tmp_path: Path) -> None:
    for folder in ("1", "2"):
        (tmp_path / folder).mkdir()
        for name in ("Ünï 1.log", "syslog", "dead-letters.log", "2026.txt"):
            (tmp_path / folder / name).write_text("x\n")
    files = sorted(str(file) for file in tmp_path.rglob("*") if file.is_file())
    told = json.loads(invoked(*files, "--json").stdout)
    names = [p["name"] for p in told["proposals"]]
    assert len(set(names)) == 8
    assert {"n-1", "log-2026", "syslog-2", "dead-letters-2"} <= set(names)


@given(
    st.lists(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
        ),
        max_size=6,
    )
)
def test_a_type_of_json_takes_all_of_its_values(values: list[Any]) -> None:
    of = infer_json_type(values)
    kinds = {"boolean": (bool,), "long": (int,), "double": (int, float), "string": (str,)}
    assert of is None or all(value is None or isinstance(value, kinds[of]) for value in values)


@pytest.mark.parametrize(
    ("values", "of"),
    [
        (["1", "-20", "-"], "long"),
        (["1", "2.5"], "double"),
        (["007"], "string"),
        (["true"], "boolean"),
        (["-"], "string"),
    ],
)
def test_text_is_typed_by_all_of_its_values(values: list[str], of: str) -> None:
    assert infer_text_type(values) == of


@pytest.mark.parametrize(
    ("values", "of"),
    [
        ([1795255200], "unix"),
        ([1795255200123], "unix-ms"),
        (["2026-11-21 10:00:00,5"], "%Y-%m-%d %H:%M:%S,%f"),
        ([7], None),
        (["2026-11-21T10:00:00Z", "x"], None),
        ([], None),
    ],
)
def test_times_of_fields(values: list[Any], of: str | None) -> None:
    assert detect_time_format(values) == of


def test_a_record_that_the_sample_cuts_in_two_is_no_bad_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        "".join(
            f"2026-11-21 10:00:{n % 60:02} boom\n\tat a.b\n\tat c.d\n\tat e.f\n" for n in range(900)
        )
    )
    found = propose(read_sample(log), "a", zone="UTC", host="web")
    assert (found.candidate.form, found.caught, found.dead_letters) == (
        "records that begin with a time",
        0,
        {},
    )
    assert found.fitting == found.records


def test_a_record_that_lacks_a_part_has_the_others(tmp_path: Path) -> None:
    with_node = [f"[2026-11-21 10:00:{n % 60:02},123] INFO [broker-{n}] up" for n in range(57)]
    found = proposal(tmp_path, "[2026-11-21 10:00:00,123] WARN Registered a bean", *with_node)
    assert found.examples[0].fields["level"] == "WARN"
    assert found.examples[0].fields["message"] == "Registered a bean"
    assert found.examples[1].fields["context"] == "broker-0"


def test_commas_in_sentences_make_no_table(tmp_path: Path) -> None:
    lines = [f"2026-11-21 10:00:{n:02},123 INFO stopped on [TERM, HUP, {n}]" for n in range(40)]
    found = proposal(tmp_path, *lines)
    assert found.candidate.form == "lines that begin with a time"
    assert found.oldest == "2026-11-21T10:00:00.123Z"


def test_a_host_or_a_level_decides_what_is_syslog(tmp_path: Path) -> None:
    for line, form in (
        ("2026-11-21T10:00:00.1Z web-1 app[7]: started", "a system log"),
        ("2026-11-21T10:00:00.1Z [INFO]  core: started", "lines that begin with a time"),
        ("2026-11-21T10:00:00.1Z info vpxd[7]: started", "lines that begin with a time"),
        ("2026-11-21T10:00:00.1Z 0 [Note] mysqld: started", "lines that begin with a time"),
    ):
        assert proposal(tmp_path, *[line] * 20).candidate.form == form


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["dn228", "dn229"] * 5, True),
        (["R02-M1-N0-C:J12-U11"] * 5, True),
        ([f"node-{n}" for n in range(9)], True),
        (["a.example.com", "b.example.com"] * 5, True),
        ([f"blk{n}" for n in range(9)], False),
        (["fail2ban.filter"] * 5, False),
        (["worker"] * 5, False),
        (["kid1", "kid2"] * 5, False),
        (["queue-0", "queue-1"] * 5, False),
        ([], False),
    ],
)
def test_what_looks_like_a_host(values: list[str], expected: bool) -> None:
    assert are_hosts(values) == expected
    assert are_hosts([f"abc{n}" for n in range(9)], may_differ=True)


def test_a_header_row_names_columns_and_is_no_row(tmp_path: Path) -> None:
    rows = [f"{n},2026-11-21 10:00:{n:02},web-1,{n}.5" for n in range(40)]
    found = proposal(tmp_path, "id,when,server,Price (USD)", *rows)
    assert (found.records, found.fitting, found.caught) == (41, 40, 1)
    first = found.examples[0]
    assert (first.time, first.host) == ("2026-11-21T10:00:00.000Z", "web-1")
    assert first.fields == {"id": 0, "Price_USD": 0.5, "message": None}


def test_a_time_within_json_is_read_by_its_keys(tmp_path: Path) -> None:
    rows = [
        json.dumps({"t": {"$date": f"2026-11-21T10:00:{n:02}Z"}, "s": "I", "id": n, "msg": '"x"'})
        for n in range(40)
    ]
    found = proposal(tmp_path, *rows)
    first = found.examples[0]
    assert first.time == "2026-11-21T10:00:00.000Z"
    assert first.fields == {"s": "I", "id": 0, "msg": '"x"', "more": {}}
    assert found.candidate.line["keys"] == {found.candidate.line["time_field"]: ["t", "$date"]}


def test_a_time_within_a_list_of_json_is_read_by_a_pattern(tmp_path: Path) -> None:
    rows = [
        json.dumps({"log": [{"time": f"2026-11-21T10:00:{n:02}Z", "level": "info"}], "id": n})
        for n in range(40)
    ]
    first = proposal(tmp_path, *rows).examples[0]
    assert first.time == "2026-11-21T10:00:00.000Z"
    assert (first.fields["level"], first.fields["id"]) == ("info", 0)
    assert first.fields["message"] == rows[0]


def test_abbreviations_of_a_zone_are_read_in_that_zone(tmp_path: Path) -> None:
    log, out = tmp_path / "pg.log", tmp_path / "out"
    log.write_text(
        "".join(f"2026-11-21 10:00:{n:02} CET [7] LOG:  checkpoint\n" for n in range(40))
    )
    done = invoked(str(log), "--out", str(out), "--zone", "America/New_York", "--yes")
    assert "from 2026-11-21T09:00:00" in done.output
    assert "times are read in the zone Europe/Berlin, which their abbreviations name" in done.output
    assert load_config(out / "hourmark.toml").tailer.sources[0].zone == "Europe/Berlin"
    assert zone_of_abbreviation(["x +03", "2026-11-21 10:00:00 UTC"]) == ["Etc/GMT-3"]


def test_an_abbreviation_of_the_chosen_zone_needs_no_other(tmp_path: Path) -> None:
    log, out = tmp_path / "pg.log", tmp_path / "out"
    log.write_text("".join(f"2026-11-21 10:00:{n:02} CET LOG:  x\n" for n in range(40)))
    invoked(str(log), "--out", str(out), "--zone", "Europe/Vienna", "--yes")
    assert load_config(out / "hourmark.toml").tailer.sources[0].zone == "Europe/Vienna"


def test_a_time_that_cannot_be_read_is_reported_with_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("".join(f"2026-11-21 10:00:{n:02} WXYZ LOG:  x\n" for n in range(40)))
    log.write_text("".join(f"2026-13-45 10:00:{n:02} started\n" for n in range(40)))
    done = invoked(str(log), "--out", str(tmp_path / "out"), "--zone", "UTC")
    assert (
        "such as 2026-13-45 10:00:00, which could not be read: declare its form by hand"
        in done.output
    )


def test_text_is_a_string_unless_it_is_not_utf8(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for content, of in (("grün\n".encode(), "string"), ("grün\n".encode("latin-1"), "bytes")):
        log.write_bytes(content * 20)
        found = propose(read_sample(log), "a", zone="UTC", host="h")
        assert found.candidate.fields == ({"name": "message", "type": of},)
        log.write_bytes(b"2026-11-21 10:00:00 " + content)
        found = propose(read_sample(log), "a", zone="UTC", host="h")
        assert found.candidate.fields == ({"name": "message", "type": ["null", of]},)
        assert found.fitting == found.records == 1


def test_the_cr_of_lines_that_end_with_it_is_no_text(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"2026-11-21 10:00:00 INFO started\r\n" * 20)
    assert propose(read_sample(log), "a", zone="UTC", host="h").examples[0].fields == {
        "level": "INFO",
        "message": "started",
    }


def test_a_container_log_is_read_as_one(tmp_path: Path) -> None:
    log, out = tmp_path / "pod.log", tmp_path / "out"
    stamps = [f"2026-11-21T10:00:{n:02}.123456789Z" for n in range(40)]
    log.write_text("".join(f"{of} stdout F started {n}\n" for n, of in enumerate(stamps)))
    done = invoked(str(log), "--out", str(out), "--zone", "UTC", "--yes")
    assert "a container log of lines of text; 40 of 40 sample records fit" in done.output
    assert "from 2026-11-21T10:00:00.123Z to 2026-11-21T10:00:39.123Z" in done.output
    assert load_config(out / "hourmark.toml").tailer.sources[0].format == "cri"
    declared = load_declarations(out / "types")
    fields = {str(field["name"]) for of in declared.types for field in of.fields}
    assert {"message", "stream", "pod", "namespace", "container"} <= fields


def test_the_zone_is_the_machines(tmp_path: Path) -> None:
    zone = tmp_path / "usr/share/zoneinfo/Europe/Vienna"
    zone.parent.mkdir(parents=True)
    zone.touch()
    (tmp_path / "localtime").symlink_to(zone)
    assert machine_zone(tmp_path / "localtime") == "Europe/Vienna"
    assert machine_zone(tmp_path / "absent") == "UTC"
