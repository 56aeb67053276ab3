"""A blank line (no byte but CR before its LF) makes no record and is counted, by revisions of
parser 2 and later.
"""

from __future__ import annotations

import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS, compiled, decoded, range_of, rules_of, syslog

from hourmark.records.audit import AuditRecord
from hourmark.rules.revision import PARSER, ParserVersion
from hourmark_delivery_service.parsing import (
    Batch,
    BatchParser,
    CompiledRules,
    ParsedRange,
    RangeParser,
    parse_range,
)

LINE = syslog()
BEFORE = CompiledRules(
    dataclasses.replace(rules_of(), sequence=2, parser=ParserVersion(1, PARSER.zones))
)


def of_range(body: bytes, rules: CompiledRules, start: int = 0) -> ParsedRange:
    return parse_range(range_of(body, rules=rules.id, start=start), body, rules)


def of_batch(body: bytes, rules: CompiledRules) -> ParsedRange:
    batch = Batch(event_type="click", client="shop", key="k", observed_at_ms=NOW_MS, rules=rules.id)
    return BatchParser(batch, body, rules).parse_all()


def counted(result: ParsedRange) -> tuple[int, int, int, int]:
    assert result.lines == result.events + result.dead_letters + result.blanks == result.audit.lines
    assert len(result.records) == result.events + result.dead_letters
    return result.lines, result.events, result.dead_letters, result.blanks


@pytest.mark.parametrize(
    ("body", "lines", "blanks"),
    [
        (b"\n", 1, 1),
        (b"\r\n", 1, 1),
        (b"\r\r\r\n\n\r\n", 3, 3),
        (LINE, 1, 0),
        (b"\n\r\n" + LINE + b"\n" + LINE + b"\r\n", 6, 4),
        (LINE + b" \n\t\n\r \n\x00\n\x0b\n", 6, 0),
        (b"\r\rx\n\n", 2, 1),
    ],
)
def test_blank_lines_of_a_range_make_no_record_and_are_counted(
    body: bytes, lines: int, blanks: int
) -> None:
    result = of_range(body, compiled())
    assert (counted(result)[0], result.blanks, result.audit.blanks) == (lines, blanks, blanks)
    assert AuditRecord.decode(result.audit.encode()) == result.audit


@pytest.mark.parametrize(
    ("body", "lines", "blanks"),
    [
        (b"\n", 1, 1),
        (b"\r", 1, 1),
        (b'{"user":"u","ms":1}\n\n\r\n{"user":"u","ms":2}', 4, 2),
        (b'\n{"user":"u","ms":1}\n\r', 3, 2),
        (b" \n\t\r\n", 2, 0),
    ],
)
def test_blank_lines_of_a_batch_make_no_record_and_are_counted(
    body: bytes, lines: int, blanks: int
) -> None:
    result = of_batch(body, compiled())
    assert (counted(result)[0], result.blanks, result.audit.blanks) == (lines, blanks, blanks)
    assert (result.audit.start, result.audit.end) == (0, lines)


def test_events_beside_blank_lines_keep_their_ids_and_positions() -> None:
    """So that what was cut, or parsed, otherwise before is told as a duplicate."""
    blank, plain = (
        of_range(b"\n\r\n" + LINE, compiled(), start=7),
        of_range(LINE, compiled(), start=10),
    )
    (event,) = blank.records
    assert event.key[:16] == plain.records[0].key[:16]
    assert decoded(event)["position"] == 10
    later = of_batch(b"\n" + b'{"user":"u","ms":1}\n', compiled())
    assert decoded(later.records[0])["position"] == 1


def test_a_range_that_names_an_older_revision_is_parsed_as_before() -> None:
    for result in (
        of_range(b"\n\r\n" + LINE, BEFORE),
        of_batch(b'\n\r\n{"user":"u","ms":1}', BEFORE),
    ):
        assert counted(result) == (3, 1, 2, 0)
        assert result.audit.blanks is None, (
            "its audit record is the very one that a service before this one made"
        )
        assert AuditRecord.decode(result.audit.encode()) == result.audit


@given(
    st.lists(
        st.sampled_from([b"", b"\r", b"\r\r", b" ", b"x", b"\rx", b"x\r", LINE[:-1]]),
        min_size=1,
        max_size=40,
    )
)
def test_counts_are_those_of_a_loop_over_lines(lines: list[bytes]) -> None:
    blanks = sum(not line.strip(b"\r") for line in lines)
    body = b"".join(line + b"\n" for line in lines)
    for made in (of_range, of_batch):
        result, before = made(body, compiled()), made(body, BEFORE)
        assert counted(result)[::3] == (len(lines), blanks)
        assert counted(before)[::3] == (len(lines), 0)
        full = [
            r for r in before.records if r.event_type == "click" or decoded(r)["raw"].strip(b"\r")
        ]
        assert [r.key[:16] for r in result.records] == [r.key[:16] for r in full]


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\n\r\r\n"])
def test_a_mebibyte_of_blank_lines_costs_less_than_a_tenth_of_one_of_short_lines(
    line: bytes,
) -> None:
    def seconds(body: bytes) -> float:
        began_s = time.process_time()
        of_range(body, compiled())
        return time.process_time() - began_s

    blank = line * ((1 << 20) // len(line))
    assert min(seconds(blank) for _ in range(3)) < seconds(b"x\n" * (1 << 15))


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"x", b" ", LINE]), max_size=12))
def test_a_range_is_taken_to_make_as_many_records_as_it_does_and_at_most_one_more(
    pieces: list[bytes],
) -> None:
    body = b"".join(pieces) + b"\n"
    for rules, over in ((compiled(), (0, 1)), (BEFORE, (0,))):
        taken = RangeParser(range_of(body, rules=rules.id), body, rules).max_records(body)
        assert taken - len(of_range(body, rules).records) in over
