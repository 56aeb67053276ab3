"""The native pass makes what the Python path makes, byte for byte, and takes most of what that can
take.
"""

from __future__ import annotations

import hashlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.service.examples import NOW_MS, compiled, parsed, range_of, syslog
from tools import native_cases
from tools.native_cases import difference, python_alone, random_case

from hourmark.avro.framing import framing_header
from hourmark.avro.value_hash import value_hash
from hourmark.records.audit import promises
from hourmark.records.event_id import EventId
from hourmark_delivery_service.parsing import CompiledRules, RangeParser, native
from hourmark_delivery_service.parsing.lines import Rfc5424Reader
from hourmark_delivery_service.parsing.parser_check import ParserVectors
from hourmark_delivery_service.parsing.parsers import PARSERS
from hourmark_delivery_service.parsing.records import ParsedEvent, PromiseAccumulator

MODULE: Any = native.MODULE


def test_it_is_there() -> None:
    assert native.WHY_NOT == ""
    assert MODULE is not None


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, (1 << 64) - 1))
def test_random_lines_of_random_types_become_the_same_records(seed: int) -> None:
    assert difference(random_case(random.Random(seed))) == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", PARSERS)
def test_python_alone_gives_what_was_kept_too(number: int) -> None:
    """With the pass, the service's own check does that before each start."""
    with python_alone():
        assert ParserVectors.load(number).failing_names() == []


class Spoiled:
    """The module, with one byte of each program's nodes altered: as if one operation were
    another.
    """

    def __init__(self, at: int) -> None:
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(MODULE, name)

    def program(self, program: bytes) -> Any:
        (nodes,) = struct.unpack_from("<I", program)
        places = (
            4 + 32 * n for n in reversed(range(nodes))
        )  # those of the envelope, which are first, are in no use
        kinds = [place for place in places if program[place] in (6, 8)]  # string and bytes
        if self._at >= len(kinds):
            return MODULE.program(program)
        place = kinds[self._at]
        return MODULE.program(program[:place] + bytes([14 - program[place]]) + program[place + 1 :])


@pytest.mark.parametrize("at", [0, 1])
def test_a_program_with_one_operation_altered_is_found_by_comparing(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MODULE", Spoiled(at))
    assert any(difference(random_case(random.Random(seed))) for seed in range(300))


def test_it_takes_every_plain_event_and_nothing_that_it_is_not_sure_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_python: list[bytes] = []
    read = Rfc5424Reader.read

    def noted(self: Rfc5424Reader, text: bytes) -> ParsedEvent:
        by_python.append(text)
        return read(self, text)

    monkeypatch.setattr(Rfc5424Reader, "read", noted)
    plain = [
        syslog(),
        syslog("note", "größer".encode()),
        syslog("raw", b"\xff\0", time="-"),
        syslog(msg=b'{"ms": 1, "user": "\\u00e4\\n", "ref": "x"}'),
    ]
    doubtful = [
        b"no syslog\n",
        syslog(msg=b'{"user": "a", "user": "b", "ms": 1}'),
        syslog("note", b"\xff"),
    ]
    result = parsed(b"".join([*plain, *doubtful, *plain]))
    assert (result.events, result.dead_letters) == (9, 2)
    assert by_python == [text[:-1] for text in doubtful]


class NeverReading:
    """The module, whose pass over lines nothing may use."""

    def __getattr__(self, name: str) -> Any:
        assert name not in {"range", "read"}
        return getattr(MODULE, name)


def test_a_revision_of_an_unknown_parser_is_the_python_paths_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hourmark_delivery_service.parsing.compiled.NATIVE_PARSERS", ())
    rules = compiled.__wrapped__()
    monkeypatch.setattr(native, "MODULE", NeverReading())
    assert RangeParser(range_of(syslog()), syslog(), rules).parse_all().events == 1


def test_slices_are_bounded_in_lines_and_bytes() -> None:
    body = syslog("note", b"x" * 1000) * 3000
    sizes = [part.count for part in RangeParser(range_of(body), body, compiled()).slices()]
    assert sum(sizes) == 3000
    assert max(sizes) * 1000 <= native.BYTES_MAX + 1000
    small = syslog("note", b"") * 5000
    assert (
        max(part.count for part in RangeParser(range_of(small), small, compiled()).slices())
        <= native.LINES_MAX
    )


@given(st.binary(max_size=1000), st.integers(1, 64))
def test_its_blake2b_is_that_of_hashlib(text: bytes, size: int) -> None:
    assert MODULE.blake2b(text, size) == hashlib.blake2b(text, digest_size=size).digest()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 255, 256, 257, 1 << 20])
def test_its_blake2b_at_the_rims_of_blocks(size: int) -> None:
    assert MODULE.blake2b(bytes(size), 10) == hashlib.blake2b(bytes(size), digest_size=10).digest()


@pytest.mark.parametrize("step", [0, 1, 127, 128, 129])
def test_ids_of_lines_of_all_lengths_are_those_of_the_python_path(step: int) -> None:
    """Lines are hashed four at a time, but for long ones and the last ones."""
    body = b"".join(syslog("note", b"x" * (17 + 11 * n + step * (n % 4))) for n in range(230))
    found = RangeParser(range_of(body), body, compiled()).parse_all()
    with python_alone():
        assert RangeParser(range_of(body), body, compiled.__wrapped__()).parse_all() == found
    assert found.events == 230


ROWS = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 40), st.integers(0, 2))


@given(st.lists(ROWS, max_size=200))
def test_promises_are_those_of_distinct_ids_and_of_distinct_values_of_each(
    rows: list[tuple[int, int, int, int]],
) -> None:
    """A client may send one event id with several contents in one batch: the id counts once, each
    content in the checksum.
    """
    types = ["a", "b", "c"]
    ids = [EventId(hashlib.blake2b(bytes([n]), digest_size=16).digest()) for _, _, n, _ in rows]
    values = [framing_header(1) + b"content %d" % content for *_, content in rows]
    promised = PromiseAccumulator(types)
    for (number, hour, *_), event_id, value in zip(rows, ids, values, strict=True):
        promised.add(number, 3600 * hour, event_id, value)
    made = [
        (types[t], 3600 * hour, event_id, value_hash(event_id, value))
        for (t, hour, *_), event_id, value in zip(rows, ids, values, strict=True)
    ]
    assert promised.promises() == promises(made)
    pairs = {
        (types[t], 3600 * hour, e, v) for (t, hour, *_), e, v in zip(rows, ids, values, strict=True)
    }
    for p in promised.promises():
        of_it = [
            value_hash(e, v)
            for t, hour_s, e, v in pairs
            if (t, hour_s) == (p.event_type, p.hour_start_s)
        ]
        assert p.checksum == sum(of_it) % (1 << 64)
    with python_alone():
        assert promised.promises() == promises(made)


def test_a_tally_tells_of_each_error_and_of_the_last_report_alone() -> None:
    told: list[Any] = []
    report = MODULE.tally(4, told.append)
    for error in (None, "timed out", "gone", None):
        report(error, object())
    assert told == ["timed out", "gone", None]


@pytest.mark.parametrize(
    "call",
    [
        lambda: MODULE.program(b""),
        lambda: MODULE.program(bytes(12)),
        lambda: MODULE.program(b"\xff" * 64),
        lambda: MODULE.source(()) and MODULE.range(MODULE.source(()), (b"",) * 11),
        lambda: MODULE.range("no source", ()),
        lambda: MODULE.promises(bytes(17), b"", b"", 0),
        lambda: MODULE.promises(bytes(16), bytes(8), bytes(7), 0),
        lambda: MODULE.tally(0, print),
        lambda: MODULE.blake2b(b"", 65),
        lambda: MODULE.read(MODULE.source(()), b"", 0, 1, 1),
    ],
)
def test_what_it_cannot_take_is_an_error_of_python(call: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        call()


def test_the_cases_are_mostly_taken_and_hold_dead_letters_too() -> None:
    events = letters = 0
    for seed in range(60):
        case = random_case(random.Random(seed))
        result, _ = native_cases.parsed(case, CompiledRules(case.rules))
        events, letters = events + result.events, letters + result.dead_letters
    assert events > 300
    assert letters > 50
    assert native_cases.NOW_MS == NOW_MS
