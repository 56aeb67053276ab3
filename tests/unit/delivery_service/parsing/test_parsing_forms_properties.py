"""Each form of lines is total and repeatable, whatever the bytes; and gives what it was given."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS, decoded
from tests.support.service.forms import COLUMNS, JSON, LOGFMT, NOW_S, SYSTEM, Tried, of_rule

REDACTING = of_rule(
    [{"name": "m", "type": "bytes"}],
    "syslog",
    payload="text",
    field="m",
    redact=[{"field": "m", "pattern": "[a-m]+"}],
)
FORMS: dict[str, tuple[Tried, list[bytes]]] = {
    "syslog": (
        SYSTEM,
        [
            b"<34>Nov 21 02:00:00 h prog[1]: m",
            b"2026-11-21T01:00:00.5Z h p: m",
            b'<1>1 2026-11-21T01:00:00Z h a p m [x@1 a="\\"b"][y] m',
        ],
    ),
    "logfmt": (LOGFMT, [b't=%d.5 n=1 msg="a \\u00e9" host=h x' % NOW_S]),
    "json": (JSON, [b'{"ts":"2026-11-21T01:00:00Z","n":"5","host":"h","x":{"y":[1.5,null]}}']),
    "columns": (COLUMNS, [b"%d\tx\ta\t1.5" % NOW_MS]),
    "redacting": (REDACTING, [b"Nov 21 02:00:00 h p: secret", b"<1>1 - - - - - - secret"]),
}


@st.composite
def lines(draw: st.DrawFn, good: list[bytes]) -> list[bytes]:
    """Good lines, good lines with bytes changed, and any bytes."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        line = bytearray(draw(st.one_of(st.sampled_from(good), st.binary(max_size=40))))
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(line)))
            line[at : at + draw(st.integers(0, 3))] = draw(
                st.one_of(
                    st.binary(max_size=3),
                    st.sampled_from(
                        [b'"', b"\\", b"=", b"[", b"]", b":", b"\t", b"\xef\xbb\xbf", b"{}"]
                    ),
                )
            )
        found.append(bytes(line).replace(b"\n", b" ") or b"x")
    return found


@pytest.mark.parametrize("name", FORMS)
@given(data=st.data())
def test_every_line_is_one_event_or_one_dead_letter_and_a_retry_is_the_same(
    name: str, data: st.DataObject
) -> None:
    tried, good = FORMS[name]
    body = b"".join(line + b"\n" for line in data.draw(lines(good)))
    result = tried.parsed(body)
    assert tried.parsed(body) == result
    rows = [decoded(record, tried.rules) for record in result.records]
    by_position = {row["position"]: row for row in rows}
    assert len(by_position) == len(rows) == result.events + result.dead_letters
    at = 0
    for line in body.split(b"\n")[:-1]:
        row = by_position.get(at)
        if row is None:
            assert not line.strip(b"\r"), "only a blank line makes no record"
        elif "reason" in row:
            assert row["raw"] == (b"" if name == "redacting" else line)
        at += len(line) + 1


@given(st.dictionaries(st.from_regex(r"[a-z_.é]{1,8}", fullmatch=True), st.text()))
def test_logfmt_gives_back_what_was_quoted_into_it(values: dict[str, str]) -> None:
    said = {
        "n": "7",
        "msg": "m",
        **{key: value for key, value in values.items() if key not in ("t", "host", "n", "msg")},
    }
    line = " ".join(
        f"{key}={json.dumps(value)}" for key, value in {"t": str(NOW_S), **said}.items()
    ).encode()
    row = LOGFMT.one(line)
    assert {"n": str(row["n"]), "msg": row["msg"], **row["rest"]} == said


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r")),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_columns_give_back_what_was_put_into_them(text: str, number: float) -> None:
    row = COLUMNS.one(f"{NOW_MS}\t-\tx{text}\t{number!r}".encode())
    assert (row["a"], row["b"]) == ("x" + text, number)


@given(
    st.binary(max_size=80).map(lambda b: b.replace(b"\n", b"")),
    st.sampled_from(["h", "fe80::1", "a.b-c"]),
)
def test_a_systems_message_is_kept_byte_for_byte(message: bytes, host: str) -> None:
    """Only zeros (NUL) at the end are removed: some senders append them, so they belong to the
    transport.
    """
    row = SYSTEM.one(b"Nov 21 02:00:00 " + host.encode() + b" prog[7]: " + message)
    assert (row["host"], row["program"], row["pid"], row["message"]) == (
        host,
        "prog",
        "7",
        message.rstrip(b"\0"),
    )
