"""Audit records and host reports of bytes that are none, or that end too early: a ValueError, and
never another record.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import audit_record

from hourmark.avro.datum import Datum
from hourmark.records import audit
from hourmark.records.audit import AuditRecord, Promise
from hourmark.records.host_reports import HostReport, SourceReport

RECORD: Final = audit_record(
    promised=(Promise("click", 3600, 2, 7, 11), Promise("view", 3600, 1, 9, 13)), blanks=1000
)
TOLD: Final = HostReport(
    host_id="a" * 32,
    host_name="web-1",
    kind="tailer",
    incarnation="b" * 32,
    sequence=300,
    received_at_ms=1_800_000_000_000,
    goodbye=False,
    sources=(SourceReport("app", 1_800_000_000_000, 500, 0, 200, unrepeatable=True),),
)
FORMS: Final = [
    (AuditRecord.decode, RECORD.encode(), RECORD.encode(with_checksums=False)),
    (HostReport.decode, TOLD.encode(), TOLD.encode(with_unknown_losses=False)),
]


@given(st.sampled_from(FORMS), st.data())
def test_bytes_are_a_value_error_or_a_record_that_comes_back(
    form: tuple[Any, bytes, bytes], data: st.DataObject
) -> None:
    decode, datum, _ = form
    at = data.draw(st.integers(0, len(datum) - 1))
    changed = (
        datum[:at] + data.draw(st.binary(max_size=12)) + datum[at + data.draw(st.integers(0, 12)) :]
    )
    try:
        record = decode(changed)
    except ValueError:
        return
    assert decode(record.encode()) == record


@pytest.mark.parametrize("form", FORMS, ids=["audit record", "host report"])
def test_a_record_that_was_cut_off_is_none(form: tuple[Any, bytes, bytes]) -> None:
    """But where fields of later begin: so ends one of a version that had not got them."""
    decode, datum, before = form
    whole = [size for size in range(len(datum) + 1) if not _is_refused(decode, datum[:size])]
    assert len(before) in whole and len(datum) in whole and len(whole) <= 3, whole
    assert decode(datum + b"of a version to come") == decode(datum)


def _is_refused(decode: Any, datum: bytes) -> bool:
    try:
        decode(datum)
    except ValueError:
        return True
    return False


def test_an_audit_record_that_promises_nothing_of_a_type_is_none() -> None:
    row = Datum(audit.SCHEMA).decode(RECORD.encode())
    row["promised"][0]["count"] = 0
    with pytest.raises(ValueError, match="contains an empty promise"):
        AuditRecord.decode(Datum(audit.SCHEMA).encode(row))
