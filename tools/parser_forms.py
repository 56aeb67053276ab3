"""Types, sources and lines in the formats of parsers 2 and 3.

Formats: syslog as received, logfmt, columns, JSON lines, redaction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from hourmark.rules.event_types import SYSLOG, EventType, LineRule, Source

_TEXT_MAP: Final = {"type": "map", "values": "string"}
_STRINGS: Final = {"type": "array", "items": "string"}
_STRING: Final = ["null", "string"]


def _type(name: str, types: dict[str, Any], **rule: Any) -> EventType:
    return EventType(
        name=name,
        fields=[{"name": field, "type": t} for field, t in types.items()],
        line=LineRule(**rule),
    )


FORM_TYPES: Final = (
    SYSLOG,
    _type(
        "form-web",
        {"path": "string", "rest": _TEXT_MAP},
        programs=["nginx"],
        unknown="keep",
        unknown_field="rest",
    ),
    _type(
        "form-param",
        {"n": "long", "seq": ["null", "int"], "sd": _TEXT_MAP},
        header={"seq": "[meta sequenceId]", "sd": "structured_data"},
    ),
    _type(
        "form-json",
        {"n": "long", "at": _STRING, "rest": _TEXT_MAP},
        time_field="at",
        host_field="host",
        unknown="keep",
        unknown_field="rest",
        coerce=["n"],
    ),
    _type("form-loose", {"n": "double"}, time_field="t", time_format="unix", unknown="ignore"),
    _type(
        "form-logfmt",
        {"msg": "string", "n": ["null", "long"], "rest": _TEXT_MAP},
        payload="logfmt",
        time_field="t",
        time_format="unix-ns",
        host_field="host",
        unknown="keep",
        unknown_field="rest",
        null_text="-",
    ),
    _type("form-strict", {"msg": "string"}, payload="logfmt", time="observed"),
    _type(
        "form-columns",
        {"a": "string", "b": ["null", "double"]},
        payload="tsv",
        columns=["when", "-", "a", "b"],
        time_field="when",
        time_format="%d/%b/%Y:%H:%M:%S %z",
        null_text="-",
    ),
    _type(
        "form-groups",
        {"n": ["null", "long"]},
        payload="pattern",
        time_field="at",
        time_format="unix-us",
        host_field="h",
        null_text="-",
        pattern=r"(?P<at>\d+) (?P<h>\S+) (?P<n>\S+)",
    ),
    _type(
        "form-redacted",
        {"user": "string", "password": _STRING, "text": "bytes", "list": ["null", _STRINGS]},
        time="observed",
        redact=[
            {"field": "user", "by": "x"},
            {"field": "password"},
            {"field": "text", "pattern": r"\d+", "by": "#"},
            {"field": "list", "pattern": "[\\xc3-\\xf4]"},
        ],
    ),
)
FORM_SOURCES: Final = (
    Source(name="form-system", format="syslog", types=["form-web", "syslog"]),
    Source(name="form-system-here", format="syslog", types=["syslog"], host="tailer"),
    Source(name="form-params", types=["form-param", "form-strict", "form-json"]),
    Source(name="form-mixed", format="free", types=["form-groups", "form-columns", "form-json"]),
    *(
        Source(name=name, format="free", types=[name])
        for name in (
            "form-json",
            "form-loose",
            "form-logfmt",
            "form-strict",
            "form-columns",
            "form-groups",
            "form-redacted",
        )
    ),
)

_SYSTEM: Final = [
    *(
        time + b" h prog[7]: m"
        for time in (
            b"Nov 21 02:00:00",
            b"Nov  9 02:00:00",
            b"Nov 21 02:00:00.123456789",
            b"Nov 21 2026 02:00:00",
            b"Nov 21 2026 02:00:00.5",
            b"2026-11-21T01:00:00Z",
            b"2026-11-21T02:00:00.123456+01:00",
            b"2026-11-21T01:00:00.123456789Z",
            b"2026-11-21T01:00:60Z",
            b"<0>Nov 21 02:00:00",
            b"<191>2026-11-21T01:00:00Z",
            b"<192>Nov 21 02:00:00",
            b"Nov 21 02:00:00:",
            b"Feb 29 02:00:00",
            b"Nov 31 02:00:00",
            b"Foo 21 02:00:00",
            b"Nov 21 24:00:00",
            b"Nov 21 02:50:00",
            b"Nov 21 03:00:00",
            b"\xef\xbb\xbfNov 21 02:00:00",
        )
    ),
    *(
        b"Nov 21 02:00:00 " + rest
        for rest in (
            b"",
            b"h",
            b"h ",
            b"h p:",
            b"h p: ",
            b"p: m",
            b"p[1]: m",
            b"h p[1]:m",
            b"h p[]: m",
            b"h [1]: m",
            b"h p[[1]]: m",
            b"h p[1: m",
            b"h a::b: m",
            b"h a b: m",
            b"fe80::1 p: m",
            b"h\xff p: m",
            b"h p\xc3\xa9: m",
            b"h p: \x00\xff\t\r",
            b"- p: m",
            b"h " + b"p" * 256 + b": m",
            b"h" * 256 + b" p: m",
            b'h nginx: {"path":"/","x":[1,2.50,"\xc3\xa9"]}',
            b"h nginx[1]: no json",
            b'h nginx: {"path":1}',
            b"h last message repeated 2 times",
            b"h syslogd 1.4.1: restart.",
        )
    ),
    *(
        b"<165>1 2026-11-21T01:00:00.123456789Z " + rest
        for rest in (
            b"h a p id - m",
            b"- - - - -",
            b"h a p id - ",
            b'h a p id [x@1 a="1" b="\\"\\]\\\\\\n" a="2"][y][z c=""] m',
            b'h a p id [x a="\xff"] m',
            b'h a p id [x a="1]"] m',
            b"h a p id [x a=1] m",
            b'h nginx 1 - - {"path":"/"}',
        )
    ),
]
_DEVICES: Final = [
    json.loads(line)["line"].encode("latin-1")
    for line in (Path(__file__).parents[1] / "tests/contract/vectors/syslog_forms.jsonl")
    .read_text()
    .splitlines()
]
_PARAMS: Final = [
    b"<13>1 2026-11-21T01:00:00.123456Z h a p " + rest
    for rest in (
        b'form-param [meta sequenceId="7"][x y="z"] {"n":1}',
        b'form-param [meta sequenceId="x"] {"n":1}',
        b'form-param - {"n":1}',
        b'form-param - {"n":1,"seq":2}',
        b'form-param - {"n":1,"sd":{}}',
        b"form-strict - msg=m",
        b"form-strict - msg=m x=y",
        b'form-json - {"n":"1","at":"2026-11-21T01:30:00Z","host":"other"}',
        b'form-json - {"n":1}',
        b"nothing - x",
        b"form-strict -",
    )
]
_TIME: Final = b'"at":"2026-11-21T01:30:00.123999999Z"'
_JSON: Final = [
    *(
        b'{"n":%s,%s}' % (n, _TIME)
        for n in (b"1", b'"1"', b'"+1"', b'"1.0"', b'" 1"', b"1.0", b"true", b"null")
    ),
    *(
        b'{"n":1,%s,"k":%s}' % (_TIME, value)
        for value in (
            b"1e400",
            b"1e22",
            b"1.10",
            b"-0.0",
            b"123456789012345678901234567890",
            b'"\\ud83d\\ude00\\u0000"',
            b"true",
            b"null",
            b'{"b":[1,{"a":"\xc3\xa9"}],"a":2}',
        )
    ),
    *(
        b'{"n":1,"at":%s}' % at
        for at in (
            b"null",
            b'""',
            b"1795225200",
            b"true",
            b"{}",
            b'"2026-11-21T01:30:00"',
            b'"9999-12-31T23:59:59Z"',
        )
    ),
    *(
        b'{"n":1,%s,"host":%s}' % (_TIME, host)
        for host in (b'"db"', b'""', b"null", b"7", b'"-"', b'"' + b"h" * 256 + b'"')
    ),
    b'{"n":1,"n":2,%s,%s}' % (_TIME, _TIME),
    b'{"n":1}',
    b"{}",
    b"[]",
    b"",
    b"x",
    b"\xff",
]
_LOOSE: Final = [
    b'{"n":1,"x":2,"t":%s}' % t
    for t in (
        b"1795225200",
        b"1795225200.9999",
        b'"1795225200.001"',
        b"1.7952252e9",
        b"1e-7",
        b"-0.0001",
        b'"-0"',
        b"1e30",
        b'"1e9"',
        b"1795225200000",
    )
]
_LOGFMT: Final = [
    b"t=1795225200123456789 msg=m " + pairs
    for pairs in (
        b"",
        b"n=1",
        b"n=-",
        b"n=x",
        b"a",
        b"a=",
        b'a=""',
        b'a="b c"',
        b"a=b=c",
        b'a=b"c',
        b"a=1 a=2",
        b'a="b',
        b'a="b"c',
        b"=b",
        b'"a"=b',
        rb'a="\"\\\/\'\a\b\f\n\r\t\v\x41\u00e9\ud83d\ude00\U0001F600"',
        rb'a="\q"',
        rb'a="\ud800"',
        rb'a="\ud800\u0041"',
        rb'a="\U00110000"',
        rb'a="\xff"',
        b"a=\xff",
        b"\xff=a",
        b"a=\x00",
        b"a=1\t b=2 \r",
        b"host=db",
        b"host=-",
        b"t=x",
        b"t=-",
        b"rest=own",
        b"\xef\xbb\xbfa=1",
    )
] + [b"words only", b"msg=m", b"t=1795225200123456789"]
_COLUMNS: Final = [
    b"21/Nov/2026:01:30:00 +0000\t" + columns
    for columns in (
        b"x\ta\t1.5",
        b"\t\t-",
        b"x\ta\t-\r",
        b"x\t-\t1",
        b"x\ta\t",
        b"x\ta",
        b"x\ta\t1\t",
        b"x\t\xff\t1",
        b"x\ta\t1e400",
    )
] + [b"-\tx\ta\t1", b"\tx\ta\t1", b"x"]
_GROUPS: Final = [
    b"1795225200123999 db 1",
    b"1795225200123999 - -",
    b"1795225200123999 db x",
    b"1 db 1",
    b"x",
]
_REDACTED: Final = [
    b'{"user":["u"],"password":1,"text":"a12b","list":["\\u00e9a","b"]}',
    b'{"user":"u","text":"1"}',
    b'{"text":"1"}',
    b'{"user":"u","text":1}',
    b'{"user":"u","text":"1","12345":1}',
    b'{"user":"u","list":[1],"text":""}',
    b"12345",
    b"",
]
FORM_LINES: Final[dict[str, list[bytes]]] = {
    "form-system": [*_SYSTEM, *_DEVICES],
    "form-system-here": _SYSTEM[:4],
    "form-params": _PARAMS,
    "form-json": _JSON,
    "form-loose": _LOOSE,
    "form-logfmt": _LOGFMT,
    "form-strict": [*_LOGFMT[:4], b"msg=m"],
    "form-columns": _COLUMNS,
    "form-groups": _GROUPS,
    "form-redacted": _REDACTED,
    "form-mixed": _GROUPS + _COLUMNS[:2] + _JSON[:2],
    "nowhere": _REDACTED[:1],
}
