"""Parsing is total and repeatable, whatever the bytes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS, SOURCES, decoded, parsed, range_of, syslog

from hourmark.records.record_key import RecordKey

GOOD = [
    syslog(),
    syslog("note", b"words"),
    syslog("raw", b"\xff\0"),
    b"2026-11-21 02:39:58,123 INFO [t1] words\n",
    b'<1>1 2026-11-21T01:39:58Z h a p note [a@1 b="\\]"] x\n',
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good line with bytes replaced, cut out or put in."""
    line = bytearray(draw(st.sampled_from(GOOD))[:-1])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(line)


LINES = st.lists(
    st.one_of(st.binary(max_size=60), mutated(), st.sampled_from(GOOD).map(lambda g: g[:-1])),
    min_size=1,
    max_size=12,
)
SOURCE_NAMES = st.sampled_from([*(s.name for s in SOURCES), "nowhere"])


@given(LINES, SOURCE_NAMES, st.integers(0, 1 << 40))
def test_every_line_is_one_of_three_and_a_retry_is_the_same(
    lines: list[bytes], source: str, start: int
) -> None:
    body = b"\n".join(lines) + b"\n"
    count = body.count(b"\n")
    result = parsed(body, source, start=start)
    blanks = sum(not line.strip(b"\r") for line in body.split(b"\n")[:-1])
    assert (result.lines, result.blanks) == (count, blanks)
    assert result.events + result.dead_letters == len(result.records) == count - blanks
    assert parsed(body, source, start=start) == result
    assert (
        sum(p.count for p in result.audit.promised)
        == len({r.key for r in result.records})
        == count - blanks
    )
    wanted = {
        start + sum(len(line) + 1 for line in body.split(b"\n")[:n]): line
        for n, line in enumerate(body.split(b"\n")[:-1])
    }
    wanted = {offset: line for offset, line in wanted.items() if line.strip(b"\r")}
    for (offset, line), record in zip(wanted.items(), result.records, strict=True):
        row = decoded(record)
        assert row["position"] == offset
        if record.event_type == "dead-letters":
            assert row["raw"] == line
        elif record.event_type == "raw" and source != "app":
            assert row["line"] == line
        key = RecordKey.decode(record.key)
        assert key.event_id == row["event_id"]
        assert key.event_id.time_ms == round(row["event_time"].timestamp() * 1000)
        assert (
            record.hour_start_s * 1000 <= key.event_id.time_ms < (record.hour_start_s + 3600) * 1000
        )


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["user", "ms", "ref", "x"]), JSON))
def test_any_json_object_is_an_event_unaltered_or_a_dead_letter(values: dict[str, object]) -> None:
    msg = json.dumps(values).encode()
    result = parsed(syslog(msg=msg))
    assert result.lines == 1
    row = decoded(result.records[0])
    if result.events:
        assert {name: row[name] for name in ("user", "ms", "ref")} == {"ref": None, **values}
    else:
        assert row["raw"].endswith(msg)


@given(st.binary(min_size=1, max_size=200).filter(lambda b: b"\n" not in b), SOURCE_NAMES)
def test_how_a_file_is_cut_into_ranges_does_not_change_ids(line: bytes, source: str) -> None:
    body = GOOD[0] + line + b"\n"
    whole = [r.key[:16] for r in parsed(body, source).records]
    apart = [
        *(r.key[:16] for r in parsed(GOOD[0], source).records),
        *(r.key[:16] for r in parsed(line + b"\n", source, start=len(GOOD[0])).records),
    ]
    assert whole == apart


def test_one_range_gives_exactly_these_ids() -> None:
    """Golden: made once, kept for ever. If this fails, every retry in the world makes new
    events.
    """
    body = syslog() + syslog("note", b"words") + b"?\n"
    result = parsed(body, start=4096, rules="1-golden")
    assert (
        result.audit.range_id.hex()
        == range_of(body, start=4096, rules="1-golden").range_id(body).hex()
        == GOLDEN_RANGE
    )
    assert [r.key[:16].hex() for r in result.records] == GOLDEN_IDS
    assert NOW_MS == 1_795_225_200_000


GOLDEN_RANGE = "c04b4e73ade0cbe6"
GOLDEN_IDS = [
    "01a1fbc29e2b83d0a623abb932ec9f85",
    "01a1fbc29e2b80389d1c822c98dc5236",
    "01a1fbc2a5808b3d92002a9b79d1d14a",
]
