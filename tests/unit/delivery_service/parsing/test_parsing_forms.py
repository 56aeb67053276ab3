"""JSON lines, logfmt and columns: time, host, keys that are no fields, coercion, and what is none
of the form.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.service.examples import NOW_MS
from tests.support.service.forms import COLUMNS, FREE_TEXT, JSON, LOGFMT, NOW_S, of_rule

TIME = b'"ts":"2026-11-21T01:00:00Z"'


def logfmt(pairs: bytes) -> dict[str, Any]:
    return LOGFMT.one(b"t=%d msg=m " % NOW_S + pairs)


def test_json_lines_have_their_time_and_host_from_keys() -> None:
    row = JSON.one(b'{"ts":"2026-11-21T02:00:00.1239+01:00","host":"db-1","n":5}\r')
    assert (row["event_time"].isoformat(), row["host"], row["n"], row["rest"]) == (
        "2026-11-21T01:00:00.123000+00:00",
        "db-1",
        5,
        {},
    )
    assert JSON.one(b'{"n":5,%s}' % TIME)["host"] == "web-1"
    assert JSON.one(b'{"n":5,"host":"",%s}' % TIME)["host"] == "web-1"
    assert JSON.one(b'{"n":5,"host":7,%s}' % TIME)["host"] == "7"
    assert JSON.reason(b'{"n":5,"host":"%s",%s}' % (b"h" * 256, TIME)) == "wrong_field"


def test_keys_that_are_no_fields_are_kept_as_strings_or_json() -> None:
    row = JSON.one(
        b'{"n":5,%s,"s":"\xc3\xa9","i":%s,"f":1.50,"b":true,"z":null,"o":{"a":[1,{}]},"rest":"own","\\u0000":""}'
        % (TIME, b"9" * 30)
    )
    assert row["rest"] == {
        "s": "é",
        "i": "9" * 30,
        "f": "1.5",
        "b": "true",
        "z": "null",
        "o": '{"a":[1,{}]}',
        "rest": "own",
        "\0": "",
    }


def test_keys_that_are_no_fields_may_be_ignored_or_refused() -> None:
    fields = [{"name": "n", "type": "long"}]
    line = b'{"n":1,"x":2,"ts":"2026-11-21T01:00:00Z"}'
    assert of_rule(fields, time_field="ts", unknown="ignore").reason(line) is None
    assert of_rule(fields, time_field="ts").reason(line) == "unknown_field"
    assert (
        of_rule([*fields, {"name": "ts", "type": "string"}], time_field="ts").reason(
            line.replace(b'"x":2,', b"")
        )
        is None
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"12", None),
        (b'"12"', None),
        (b'"+12"', None),
        (b'"12.0"', "wrong_field"),
        (b'" 12"', "wrong_field"),
        (b'""', "wrong_field"),
        (b'"9223372036854775808"', "wrong_field"),
        (b"12.0", "wrong_field"),
        (b"null", "wrong_field"),
        (b"true", "wrong_field"),
    ],
)
def test_only_declared_fields_are_read_from_strings(value: bytes, reason: str | None) -> None:
    assert JSON.reason(b'{"n":%s,%s}' % (value, TIME)) == reason
    assert JSON.reason(b'{"n":1,"ok":"true",%s}' % TIME) == "wrong_field"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "bad_json"),
        (b"[]", "bad_json"),
        (b"null", "bad_json"),
        (b"{}x", "bad_json"),
        (b"\xff", "not_utf8"),
        (b"\0", "bad_json"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "bad_json"),
        (b'{"n":%s}' % (b"1" * 5000), "bad_json"),
        (b'{"n":1}', "no_timestamp"),
        (b'{"n":1,"ts":null}', "no_timestamp"),
        (b'{"n":1,"ts":""}', "bad_timestamp"),
        (b'{"n":1,"ts":1795225200}', "bad_timestamp"),
        (b'{"n":1,"ts":{}}', "bad_timestamp"),
        (b'{"n":1,"ts":true}', "bad_timestamp"),
        (b'{"ts":"2026-11-21T01:00:00Z"}', "missing_field"),
        (b'{"n":1,"ts":"9999-12-31T23:59:59Z"}', "future"),
        (b'{"n":1,"n":2,"ts":"x","ts":"2026-11-21T01:00:00Z"}', None),
        (b'\xef\xbb\xbf{"n":1,"ts":"2026-11-21T01:00:00Z"}', None),
    ],
)
def test_a_json_line_that_is_wrong_is_told(line: bytes, reason: str | None) -> None:
    assert JSON.reason(line) == reason


@pytest.mark.parametrize(
    ("word", "value", "ms"),
    [
        ("unix", b"1795225200", 0),
        ("unix", b"1795225200.9999", 999),
        ("unix", b'"1795225200.001"', 1),
        ("unix", b"1795225200123", None),
        ("unix-ms", b"1795225200123", 123),
        ("unix-us", b"1795225200123999", 123),
        ("unix-ns", b"1795225200123999999", 123),
        ("unix-ms", b"1795225200123.5", None),
        ("unix", b"1e9", None),
        ("unix", b'" 1"', None),
        ("unix", b'"0x10"', None),
        ("unix", b"9" * 25, None),
        ("%d.%m.%Y %H:%M:%S", b'"21.11.2026 02:40:00"', 0),
        ("rfc3339", b'"2026-11-21T01:40:00.5Z"', 500),
    ],
)
def test_times_are_read_as_declared(word: str, value: bytes, ms: int | None) -> None:
    row = of_rule([{"name": "n", "type": "long"}], time_field="ts", time_format=word).one(
        b'{"n":1,"ts":%s}' % value
    )
    if ms is None:
        assert row["reason"] in ("bad_timestamp", "future", "too_late")
    else:
        assert round(row["event_time"].timestamp() * 1000) == NOW_MS + ms


def test_unix_times_before_1970_are_rounded_down_and_too_late() -> None:
    tried = of_rule([{"name": "n", "type": "long"}], time_field="ts", time_format="unix")
    assert tried.reason(b'{"n":1,"ts":-0.00000001}') == "bad_timestamp", "it has an exponent"
    assert tried.reason(b'{"n":1,"ts":"-0.0001"}', observed_at_ms=0) == "too_late"
    assert tried.reason(b'{"n":1,"ts":"-0"}', observed_at_ms=0) is None


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        (b"a=b", {"a": "b"}),
        (b"a=", {"a": ""}),
        (b"a", {"a": "true"}),
        (b'a=""', {"a": ""}),
        (b'a="b c=d"', {"a": "b c=d"}),
        (b"url=http://h/?q=1&r=2", {"url": "http://h/?q=1&r=2"}),
        (b"a=1\ta.b-c@d=2", {"a": "1", "a.b-c@d": "2"}),
        (b"a=1 a=2", {"a": "2"}),
        (
            rb'a="\"\\\n\t\x41\u00e9\ud83d\ude00\U0001F600\/"',
            {"a": '"\\\n\tAé\U0001f600\U0001f600/'},
        ),
        (b'a=b"c', {"a": 'b"c'}),
        (b"a=\xc3\xa9 \xc3\xa9=1", {"a": "é", "é": "1"}),
        (b"a=1  \r", {"a": "1"}),
        (b"rest=own", {"rest": "own"}),
        (b"", {}),
    ],
)
def test_logfmt_is_read(pairs: bytes, found: dict[str, str]) -> None:
    assert logfmt(pairs).get("rest") == found


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (b'a="b', "bad_logfmt"),
        (b'a="b"c', "bad_logfmt"),
        (b"=b", "bad_logfmt"),
        (b'"a"=b', "bad_logfmt"),
        (b"a=\0", "bad_logfmt"),
        (rb'a="\q"', "bad_logfmt"),
        (rb'a="\ud800"', "bad_logfmt"),
        (rb'a="\U00110000"', "bad_logfmt"),
        (rb'a="\xff"', "not_utf8"),
        (b"a=\xff", "not_utf8"),
        (b"\xff=a", "not_utf8"),
        (b"n=x", "wrong_field"),
        (b"n=1.0", "wrong_field"),
        (b"t=x", "bad_timestamp"),
        (b"\xef\xbb\xbfa=1", None),
        (b"t=99999999999999999999", "future"),
        (b"a=\x7f", "bad_logfmt"),
        (b"a\rb=1", "bad_logfmt"),
    ],
)
def test_logfmt_that_is_wrong_is_told(pairs: bytes, reason: str | None) -> None:
    assert logfmt(pairs).get("reason") == reason


def test_words_are_no_logfmt() -> None:
    assert LOGFMT.reason(b"panic: runtime error") == "bad_logfmt"
    assert LOGFMT.reason(b"a " * 1000) == "bad_logfmt"
    assert LOGFMT.reason(b"msg=m") == "no_timestamp"
    assert LOGFMT.reason(b"t=%d" % NOW_S) == "missing_field"


def test_columns_are_counted_and_named() -> None:
    row = COLUMNS.one(b"%d\tskipped\t\xc3\xa9 x\t1.5\r" % NOW_MS)
    assert (row["a"], row["b"]) == ("é x", 1.5)
    assert COLUMNS.one(b"%d\t\t\t-" % NOW_MS)["b"] is None
    assert COLUMNS.one(b"%d\t\t\t-" % NOW_MS)["a"] == ""
    for line, reason in (
        (b"x", "bad_columns"),
        (b"%d\t\t\t1\t" % NOW_MS, "bad_columns"),
        (b"%d\t\t\t" % NOW_MS, "wrong_field"),
        (b"-\t\ta\t1", "no_timestamp"),
        (b"%d\t\t-\t1" % NOW_MS, "missing_field"),
        (b"%d\t\t\xff\t1" % NOW_MS, "not_utf8"),
        (b"\t\ta\t1", "bad_timestamp"),
    ):
        assert COLUMNS.reason(line) == reason, line


def test_patterns_may_hold_a_host_and_a_time_of_any_format() -> None:
    tried = of_rule(
        [{"name": "bytes", "type": ["null", "long"]}],
        payload="pattern",
        time_field="at",
        time_format="unix",
        host_field="h",
        null_text="-",
        pattern=r"(?P<at>[0-9.]+) (?P<h>\S+) (?P<bytes>\S+)",
    )
    row = tried.one(b"%d.5 db-2 17" % NOW_S)
    assert (row["host"], row["bytes"], row["event_time"].microsecond) == ("db-2", 17, 500_000)
    assert tried.one(b"%d.5 - -" % NOW_S)["bytes"] is None
    assert tried.one(b"%d.5 - -" % NOW_S)["host"] == "web-1"


@pytest.mark.parametrize(
    "more", [{"null_text": "-"}, {"redact": [{"field": "bytes"}]}, {"host_field": "h"}]
)
@pytest.mark.parametrize("own", [[], [{"name": "time", "type": "string"}]])
def test_the_group_of_the_time_is_no_unknown_field_whatever_else_is_declared(
    more: dict[str, Any], own: list[Any]
) -> None:
    fields = [{"name": "bytes", "type": ["null", "long"]}, {"name": "h", "type": "string"}, *own]
    pattern = r"(?P<h>\S+) \[(?P<time>.+)\] (?P<bytes>\S+)"
    tried = of_rule(
        fields, payload="pattern", time_format="%d/%b/%Y:%H:%M:%S %z", pattern=pattern, **more
    )
    row = tried.one(b"db-2 [21/Nov/2026:02:00:00 +0100] 17")
    assert (row["event_time"].isoformat(), row["h"]) == ("2026-11-21T01:00:00+00:00", "db-2")
    assert row.get("time", "21/Nov/2026:02:00:00 +0100") == "21/Nov/2026:02:00:00 +0100"


def test_a_message_of_logfmt_after_a_header_has_the_headers_time_and_host_unless_it_says_its_own() -> (
    None
):
    tried = of_rule(
        [{"name": "level", "type": "string"}],
        "syslog",
        payload="logfmt",
        time_field="ts",
        host_field="h",
    )
    row = tried.one(b"Nov 21 02:00:00 h1 app[1]: level=info")
    assert (row["event_time"].isoformat(), row["host"]) == ("2026-11-21T01:00:00+00:00", "h1")
    row = tried.one(b"Nov 21 02:00:00 h1 app[1]: level=info ts=2026-11-21T01:30:00Z h=h2")
    assert (row["event_time"].isoformat(), row["host"]) == ("2026-11-21T01:30:00+00:00", "h2")


def test_a_map_of_the_types_own_is_not_the_map_of_unknown_keys() -> None:
    tried = of_rule([{"name": "own", "type": FREE_TEXT}], time="observed")
    assert tried.one(b'{"own":{"a":"b"}}')["own"] == {"a": "b"}
    assert tried.reason(b'{"own":{"a":1}}') == "wrong_field"


@pytest.mark.slow
def test_many_keys_are_read_in_one_go() -> None:
    many = {f"k{n}": n for n in range(50_000)}
    row = JSON.one(json.dumps({"n": 1, "ts": "2026-11-21T01:00:00Z", **many}).encode())
    assert len(row["rest"]) == 50_000
