"""The judge's own reading of identity and of RFC 5424 agrees with the contracts, though it shares
no code with them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.records.event_id import LineIds
from hourmark.records.manifest import (
    BucketEvidence,
    Grade,
    Manifest,
    MissingRanges,
    ParquetFile,
    SetAsideRecords,
)
from hourmark_delivery_service.parsing.syslog.rfc5424 import parse_rfc5424_line
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us
from hourmark_verify.judge import identity, rfc5424
from hourmark_verify.judge.identity import birth_ns
from hourmark_verify.judge.marker import Marker

_HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(
    _HEX,
    _HEX,
    st.integers(0, 2**31),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**40),
    st.binary(max_size=50),
)
def test_event_ids_agree(
    host: str, file: str, generation: int, time_ms: int, offset: int, line: bytes
) -> None:
    made = LineIds(host, file, generation).make(time_ms, offset, line)
    bits = identity.line_digest(host, file, generation, offset, line)
    assert identity.event_id(time_ms, bits) == bytes(made)
    assert identity.event_id(time_ms, bits ^ 1) != bytes(made)
    assert identity.digest_in_event_id(bytes(made)) == bits


def test_a_file_keeps_its_id_when_it_is_renamed_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        before = identity.file_id(file.fileno())
        file.write(b"more")
        path.rename(tmp_path / "b")
        assert identity.file_id(file.fileno()) == before
        assert 0 <= birth_ns(file.fileno()) < 2**63


_HEADER = b"<134>1 2026-11-21T01:00:25Z h a - lines "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b"<134>1 2026-11-21T01:00:25.123Z h a - lines - x",
            ("2026-11-21T01:00:25.123Z", "h", "lines", b"x"),
        ),
        (_HEADER + b"- ", ("2026-11-21T01:00:25Z", "h", "lines", b"")),
        (_HEADER + b"-", ("2026-11-21T01:00:25Z", "h", "lines", b"")),
        (_HEADER + b"-\r", ("2026-11-21T01:00:25Z", "h", "lines", b"")),
        (
            b'<134>1 - h a - lines [x a="b\\]c"][y] \xef\xbb\xbfm \x00\r\r',
            ("-", "h", "lines", b"\xef\xbb\xbfm \x00\r\r"),
        ),
        (b"<134>1 2026-11-21T01:00:25Z h a - lines", None),
        (b"<192>1 - h a - lines -", None),
        (b"", None),
        (b"Jan  1 00:00:00 host app: old", None),
    ],
)
def test_rfc_5424_lines_are_split(
    line: bytes, expected: tuple[str, str, str, bytes] | None
) -> None:
    assert rfc5424.split_rfc5424(line) == expected


_PART = st.sampled_from


@given(
    st.tuples(
        _PART(["<0>1 ", "<191>1 ", "<192>1 ", "<00>1 ", "<134>2 "]),
        _PART(["h", "-", "h" * 255, "h" * 256]),
        _PART(["t", "t" * 40, "-"]),
        _PART(
            [
                "-",
                "[a]",
                '[a b="c"]',
                '[a b="\\""]',
                '[a b="]"]',
                '[a b="\\\\"][c]',
                "[a=]",
                "[]",
                "",
            ]
        ),
        _PART(["", " ", " m", "\r", " m\r", "  x", "\rx"]),
    )
)
def test_headers_are_split_as_the_service_splits_them(
    parts: tuple[str, str, str, str, str],
) -> None:
    pri, host, msgid, data, message = parts
    line = f"{pri}2026-11-21T01:00:25Z {host} a - {msgid} {data}{message}".encode()
    service, found = parse_rfc5424_line(line), rfc5424.split_rfc5424(line)
    assert (found and (found.host.encode(), found.msgid.encode(), found.message)) == (
        service and service[1:]
    )


@given(
    _PART(["2026", "0001", "9999", "1969", "0000"]),
    _PART(["01-01", "02-29", "12-31", "13-01"]),
    _PART(["00", "23", "24"]),
    _PART(["00", "59", "60"]),
    _PART(["", ".1", ".123456", ".1234567", "."]),
    _PART(["Z", "z", "+00:00", "-00:00", "+23:59", "-24:00", "+14:60", ""]),
)
def test_times_are_read_as_the_service_reads_them(
    y: str, day: str, h: str, s: str, fraction: str, zone: str
) -> None:
    text = f"{y}-{day}T{h}:00:{s}{fraction}{zone}"
    assert rfc5424.rfc3339_us(text) == rfc3339_us(text.encode(), 6)


def test_every_field_of_a_marker_is_known() -> None:
    written = Manifest(
        type="click",
        hour="2026-11-21T05",
        bucket_seconds=3600,
        grade=Grade.FORCED,
        evidence=BucketEvidence(
            method="join",
            cut_at_ms=1,
            audit_records=1,
            promised=1,
            audit_next={"0": 1},
            waived=["forced by ada"],
        ),
        codec="deflate",
        files=[],
        events=0,
        late={},
        duplicates_removed=0,
        unaudited=0,
        checked=1,
        set_aside=1,
        set_aside_records=[
            SetAsideRecords(
                topic="t", partition=0, reason="r", records=1, first_offset=2, last_offset=2
            )
        ],
        left_out=1,
        lacks=MissingRanges(ranges=["00" * 8], more=True),
        lost={"app": 1},
        unknown={"app": 1},
        unrepeatable=["app"],
        parquet=[
            ParquetFile(
                name="_parquet/part-00000.parquet",
                rows_of="part-00000.avro",
                records=1,
                bytes=1,
                blake2b="00",
                origin_hour="2026-11-21T05",
            )
        ],
        id_sum="0" * 16,
        offsets=[],
        ledger="x",
        ledger_commit=1,
        attempt="a",
        closed_at_ms=2,
        software="x",
    )
    read = Marker.model_validate_json(written.encode())
    assert read.model_fields_set == set(Manifest.model_fields)
