"""Buckets of every released version are read, with late events in their own hour."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.support.documents import ROOT

from hourmark_reading import open_buckets

KEPT = ROOT / "tests" / "contract" / "kept"
H8, H9, H10 = "2027-01-15T08", "2027-01-15T09", "2027-01-15T10"


@pytest.mark.parametrize("version", sorted(path.stem for path in KEPT.glob("*.zip")))
def test_buckets_of_a_released_version_are_read(version: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(KEPT / f"{version}.zip") as kept:
        kept.extractall(tmp_path)
    stored: list[Any] = []
    for path in (tmp_path / "storage" / "click").rglob("*.avro"):
        with path.open("rb") as file:
            stored += fastavro.reader(file)
    buckets = open_buckets(f"file://{tmp_path}/storage")
    assert {"click", "view"} <= {*buckets.types()}
    states = [hour.state for hour in buckets.hours("click", H8, H10)]
    grades = ["proved", "timed_out", "forced"]
    whole = buckets.read("click", H8, H10, grades=grades).to_table()
    assert states == ["closed", "closed"]
    assert {*whole["event_id"].to_pylist()} == {event["event_id"] for event in stored}
    assert whole.num_rows == len(stored)
    first = buckets.read("click", H8, H9, grades=grades).to_table().num_rows
    assert first > buckets.read("click", H8, H9, grades=grades, late=False).to_table().num_rows
