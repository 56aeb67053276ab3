"""docs/reference/formats.md names each field of a marker and each folder on storage."""

from __future__ import annotations

import re

from tests.support.documents import ROOT

from hourmark.records.hours import Hour
from hourmark.records.manifest import PARQUET_FOLDER, Manifest
from hourmark_etl.storage import folders

PAGE = (ROOT / "docs" / "reference" / "formats.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_each_field_of_the_marker_is_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section("The marker"), re.MULTILINE)
    assert [f for row in rows for f in re.findall(r"`(\w+)`", row)] == list(Manifest.model_fields)


def test_the_folders_of_storage_are_named() -> None:
    text = section("Files on storage")
    internal = {value for name, value in vars(folders).items() if name.endswith("_FOLDER")}
    assert len(internal) > 4
    assert set(re.findall(r"`(_[a-z]+)`", text)) == internal | {PARQUET_FOLDER}
    hour = Hour(1_795_237_200, 3600)
    assert str(hour) == "2026-11-21T05"
    assert f"`{hour.bucket_path('<type>')}/`" in text
