"""The judge's own reading of identity and of RFC 5424 agrees with the contracts, though it shares no code with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.event_id import LineIds
from infra.judge import identity, rfc5424
from infra.judge.content import content_fault
from infra.judge.expectations import TypeExpectation
from infra.judge.statx import birth_ns

_HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(_HEX, _HEX, st.integers(0, 2**31), st.integers(0, 2**48 - 1), st.integers(0, 2**40), st.binary(max_size=50))
def test_event_ids_agree(host: str, file: str, generation: int, time_ms: int, offset: int, line: bytes) -> None:
    made = LineIds(host, file, generation).make(time_ms, offset, line)
    bits = identity.digest_bits(host, file, generation, offset, line)
    assert identity.id_fault(bytes(made), time_ms, bits) is None
    assert identity.id_fault(bytes(made), time_ms, bits ^ 1) is not None
    assert identity.id_fault(bytes(made), time_ms + 1, bits) is not None


def test_a_file_keeps_its_id_when_it_is_renamed_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        before = identity.file_id(file.fileno())
        file.write(b"more")
        path.rename(tmp_path / "b")
        assert identity.file_id(file.fileno()) == before
        assert 0 <= birth_ns(file.fileno()) < 2**63


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"<134>1 2026-11-21T01:00:25.123Z h a - lines - x", (1795222825123, "h", "lines", b"x")),
        (b"<134>1 2026-11-21T02:00:25.123999+01:00 h a - lines - x", (1795222825123, "h", "lines", b"x")),
        (b"<134>1 2026-11-21T01:00:25Z h a - lines - ", (1795222825000, "h", "lines", b"")),
        (b"<134>1 2026-11-21T01:00:25Z h a - lines -", (1795222825000, "h", "lines", b"")),
        (b'<134>1 - h a - lines [x a="b\\]c"][y] \xef\xbb\xbfm \x00\r\r', (None, "h", "lines", b"\xef\xbb\xbfm \x00\r\r")),
        (b"<134>1 2026-02-31T01:00:25Z h a - lines - x", (None, "h", "lines", b"x")),
        (b"<134>1 2026-11-21T01:00:25Z h a - lines", None),
        (b"", None),
        (b"Jan  1 00:00:00 host app: old", None),
    ],
)
def test_rfc_5424_lines_are_split(line: bytes, expected: tuple[int | None, str, str, bytes] | None) -> None:
    assert rfc5424.split(line) == expected


@pytest.mark.parametrize("document", [b"[1]", b"{", b"\xff", b'{"a": true}', b'{"a": 2}', b'{"b": 1}'])
def test_json_that_is_not_the_event_is_a_fault(document: bytes) -> None:
    line = b"<134>1 2026-11-21T01:00:25Z h a - t - " + document
    assert content_fault(TypeExpectation(content="json"), {"a": 1}, line) is not None


def test_json_that_is_the_event_is_none() -> None:
    line = b'<134>1 2026-11-21T01:00:25Z h a - t - {"a": 1, "b": "\xc3\xbc", "c": null, "d": [1, {"e": 2.5}]}'
    event = {"a": 1, "b": "ü", "c": None, "d": [1, {"e": 2.5}], "more": 3}
    assert content_fault(TypeExpectation(content="json"), event, line) is None
