"""`hourmark_reading`: each event with a time in the span once, from buckets of the product's own
writer.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.readable_buckets import FIELDS, TYPE, File, ReadableSite, Row, row

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.buckets.expiry import plan_expiry, remove_day
from hourmark_reading import (
    BucketPresence,
    DamagedAvroFile,
    InvalidMarker,
    MissingHours,
    UnknownColumns,
    UnknownEventType,
    open_buckets,
)

H4, H5, H6, H7, H8 = (f"2026-11-21T{hour:02d}" for hour in range(4, 9))


@pytest.fixture
def site(tmp_path: Path) -> ReadableSite:
    return ReadableSite(tmp_path)


def parts(hour: str, count: int) -> dict[str, File]:
    return {"part-00000.avro": File(1, FIELDS, [row(hour, n) for n in range(count)])}


def late(*rows: Row) -> dict[str, File]:
    return {"late-00000.avro": File(1, FIELDS, rows)}


def times(table: pa.Table) -> list[dt.datetime]:
    found: list[dt.datetime] = table.column("event_time").to_pylist()
    return found


def at(hour: str, ms: int) -> dt.datetime:
    return dt.datetime.fromisoformat(f"{hour}:00+00:00") + dt.timedelta(milliseconds=ms)


def states(site: ReadableSite, start: str, end: str) -> list[str]:
    return [str(hour.state) for hour in open_buckets(site.url).hours(TYPE, start, end)]


def test_events_have_all_fields_with_their_values(site: ReadableSite) -> None:
    site.close(H5, parts(H5, 2))
    table = open_buckets(site.url).read(TYPE, H5, H6).to_table()
    expected = row(H5, 1) | {"event_time": at(H5, 1)}
    assert table.to_pylist()[1] == expected
    assert table.schema.field("event_time").type == pa.timestamp("us", "UTC")
    assert table.schema.field("event_id").type == pa.binary(16)


def test_a_span_is_half_open_and_exact(site: ReadableSite) -> None:
    for hour in (H5, H6):
        site.close(hour, parts(hour, 5))
    start, end = at(H5, 3), at(H6, 2)
    found = open_buckets(site.url).read(TYPE, start, end).to_table()
    assert times(found) == [at(H5, 3), at(H5, 4), at(H6, 0), at(H6, 1)]


def test_late_events_are_in_their_own_hour_alone(site: ReadableSite) -> None:
    site.close(H4, parts(H4, 1))
    site.close(H5, parts(H5, 1))
    site.close(H6, parts(H6, 1) | late(row(H4, 7), row(H5, 7), row(H5, 8)))
    site.close(H7, {})
    site.close(H8, late(row(H5, 9), row(H7, 9)))
    buckets = open_buckets(site.url)
    assert times(buckets.read(TYPE, H5, H6).to_table()) == [
        at(H5, 0),
        at(H5, 7),
        at(H5, 8),
        at(H5, 9),
    ]
    assert times(buckets.read(TYPE, H5, at(H5, 8)).to_table()) == [at(H5, 0), at(H5, 7)]
    assert times(buckets.read(TYPE, H6, H7).to_table()) == [at(H6, 0)]
    assert times(buckets.read(TYPE, H7, H8).to_table()) == [at(H7, 9)]
    assert times(buckets.read(TYPE, H5, H6, late=False).to_table()) == [at(H5, 0)]
    whole = times(buckets.read(TYPE, H4, "2026-11-21T09").to_table())
    assert len(whole) == len(set(whole)) == 8


def test_only_files_with_events_of_the_span_are_read(site: ReadableSite) -> None:
    site.close(H5)
    site.close(H6, parts(H6, 1) | late(row(H5, 7)))
    site.close(H7, late(row(H6, 7)))
    files = open_buckets(site.url).read(TYPE, H5, H6).files()
    assert [file.removeprefix(f"{site.url}/") for file in files] == [
        f"{site.folder(H5)}/part-00000.avro",
        f"{site.folder(H6)}/late-00000.avro",
    ]


def test_an_open_hour_is_an_error_that_names_it_and_the_options(site: ReadableSite) -> None:
    site.close(H5)
    with pytest.raises(MissingHours) as error:
        open_buckets(site.url).read(TYPE, H5, H8)
    assert f"{TYPE}: 2 hours are not complete: {H6} (open), {H7} (open)" in str(error.value)
    assert "on_missing='skip'" in str(error.value)


def test_open_hours_are_skipped_on_request(site: ReadableSite) -> None:
    site.close(H5)
    events = open_buckets(site.url).read(TYPE, H5, H8, on_missing="skip")
    assert times(events.to_table()) == [at(H5, 0)]
    assert [hour.start for hour in events.hours] == [at(H5, 0)]


def test_a_folder_without_a_marker_is_open(site: ReadableSite) -> None:
    site.close(H5)
    site.close(H6)
    site.storage.delete(f"{site.folder(H6)}/_SUCCESS")
    assert states(site, H5, H7) == ["closed", "open"]


@pytest.mark.parametrize("grade", ["timed_out", "forced"])
def test_an_hour_that_is_not_proved_is_read_on_request(site: ReadableSite, grade: str) -> None:
    site.close(H5, grade=Grade(grade))
    buckets = open_buckets(site.url)
    with pytest.raises(MissingHours, match=rf"{H5} \({grade}\)"):
        buckets.read(TYPE, H5, H6)
    assert buckets.read(TYPE, H5, H6, grades=["proved", grade]).to_table().num_rows == 1


def test_an_hour_that_was_passed_over_is_empty(site: ReadableSite) -> None:
    site.close(H5)
    site.close(H8)
    assert states(site, "2026-11-21T03", "2026-11-21T10") == [
        *["empty"] * 2,
        "closed",
        *["empty"] * 2,
        "closed",
        "open",
    ]
    assert open_buckets(site.url).read(TYPE, H6, H8).to_table().num_rows == 0


def test_a_removed_bucket_is_not_taken_for_an_empty_one(site: ReadableSite) -> None:
    for hour in (H4, H5, H6, H7):
        site.close(hour, parts(hour, 1) | (late(row(H5, 7)) if hour == H7 else {}))
    for hour in (H4, H5):
        shutil.rmtree(site.storage.root / site.folder(hour))
    assert states(site, H4, H8) == ["removed", "removed", "closed", "closed"]
    buckets = open_buckets(site.url)
    with pytest.raises(MissingHours, match=rf"{H5} \(removed\)"):
        buckets.read(TYPE, H5, H6)
    found = buckets.read(TYPE, H4, H8, on_missing="skip").to_table()
    assert times(found) == [at(H6, 0), at(H7, 0)], "the late event is of a removed hour"


def expire(site: ReadableSite) -> None:
    now_ms = Hour.parse("2026-12-01T00").start_s * 1000
    plan = plan_expiry(site.storage, TYPE, 1, 3600, now_ms)
    for day in plan.expired:
        remove_day(site.storage, plan, day, now_ms, "me@here")


def test_tombstones_tell_removed_hours_from_those_that_had_no_bucket(site: ReadableSite) -> None:
    for hour in ("2026-11-19T23", "2026-11-20T22", "2026-11-21T00"):
        site.close(hour)
    expire(site)
    assert states(site, "2026-11-19T22", "2026-11-20T00") == ["empty", "removed"]
    assert states(site, "2026-11-20T21", "2026-11-21T02") == [
        "empty",
        "removed",
        "empty",
        "closed",
        "open",
    ]
    with pytest.raises(MissingHours, match=r"2026-11-20T22 \(removed\)"):
        open_buckets(site.url).read(TYPE, "2026-11-20T22", "2026-11-20T23")


def test_a_damaged_tombstone_is_refused(site: ReadableSite, tmp_path: Path) -> None:
    for hour in ("2026-11-20T22", "2026-11-21T00"):
        site.close(hour)
    expire(site)
    path = tmp_path / TYPE / "_removed" / "2026-11-20.json"
    path.write_bytes(path.read_bytes().replace(b'"days": 1', b'"days": 2'))
    with pytest.raises(InvalidMarker, match=r"is not a valid tombstone: .*digest"):
        open_buckets(site.url).hours(TYPE, "2026-11-20T00", "2026-11-21T00")


def test_an_hour_without_events_has_the_columns_of_the_type(site: ReadableSite) -> None:
    site.close(H5)
    site.close(H6, {})
    events = open_buckets(site.url).read(TYPE, H6, H7)
    assert events.to_table().num_rows == 0
    assert "status" in events.schema.names


def test_columns_of_a_type_without_events_are_not_known(site: ReadableSite) -> None:
    site.close(H5, {})
    with pytest.raises(UnknownColumns, match="no bucket of access has events"):
        open_buckets(site.url).read(TYPE, H5, H6)


def test_only_requested_columns_are_read_in_their_order(site: ReadableSite) -> None:
    site.close(H5, parts(H5, 3))
    events = open_buckets(site.url).read(TYPE, H5, at(H5, 2), columns=["path", "status"])
    assert events.to_table().to_pylist() == [
        {"path": "/0", "status": 200},
        {"path": "/1", "status": 201},
    ]


def test_a_column_that_does_not_exist_is_named(site: ReadableSite) -> None:
    site.close(H5)
    with pytest.raises(UnknownColumns, match=r"no field stauts; its fields are event_id, .*status"):
        open_buckets(site.url).read(TYPE, H5, H6, columns=["stauts"])


def test_batches_are_bounded(site: ReadableSite) -> None:
    site.close(H5, parts(H5, 25))
    batches = list(open_buckets(site.url).read(TYPE, H5, H6).batches(10))
    assert [batch.num_rows for batch in batches] == [10, 10, 5]


def test_types_are_listed_without_internal_folders(site: ReadableSite, tmp_path: Path) -> None:
    site.close(H5)
    ReadableSite(tmp_path, "dead-letters").close(H5)
    for name in ("_staging", ".unfinished", "NotAType"):
        (tmp_path / name).mkdir(exist_ok=True)
    assert open_buckets(site.url).types() == ["access", "dead-letters"]


@pytest.mark.parametrize("name", ["acces", "../access", "access/date=2026-11-21", ""])
def test_an_unknown_type_is_named_with_the_known_ones(site: ReadableSite, name: str) -> None:
    site.close(H5)
    with pytest.raises(UnknownEventType, match="the types are access"):
        open_buckets(site.url).hours(name, H5, H6)


def test_buckets_of_minutes_are_read(tmp_path: Path) -> None:
    site = ReadableSite(tmp_path, length_s=300)
    first, second = "2026-11-21T05:00", "2026-11-21T05:05"
    site.close(first)
    site.close(
        second,
        {
            "part-00000.avro": File(1, FIELDS, [row(second, 1, 300)]),
            "late-00000.avro": File(1, FIELDS, [row(first, 2, 300)]),
        },
    )
    buckets = open_buckets(site.url)
    assert [hour.state for hour in buckets.hours(TYPE, first, "2026-11-21T05:15")] == [
        BucketPresence.CLOSED,
        BucketPresence.CLOSED,
        BucketPresence.OPEN,
    ]
    assert buckets.read(TYPE, first, second).to_table().num_rows == 2


def test_hours_state_grade_and_number_of_events(site: ReadableSite) -> None:
    site.close(H5, parts(H5, 4) | late(row(H4, 0)))
    [hour] = open_buckets(site.url).hours(TYPE, H5, H6)
    assert (hour.start, hour.end) == (at(H5, 0), at(H6, 0))
    assert (hour.state, hour.grade, hour.events) == ("closed", "proved", 4)


@pytest.mark.parametrize(
    ("start", "end", "problem"),
    [
        (H6, H5, "must be before the end"),
        (H5, H5, "must be before the end"),
        ("yesterday", H5, "'yesterday' is not a time"),
        (dt.datetime(2026, 11, 21, 5), H6, "has no time zone"),
    ],
)
def test_a_span_that_is_not_valid_is_refused(
    site: ReadableSite, start: Any, end: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        open_buckets(site.url).read(TYPE, start, end)


@pytest.mark.parametrize(
    "options",
    [
        {"columns": []},
        {"columns": "path"},
        {"columns": ["path", "path"]},
        {"on_missing": "ignore"},
        {"grades": "proved"},
        {"grades": ["sure"]},
    ],
)
def test_an_option_that_is_not_valid_is_refused(site: ReadableSite, options: Any) -> None:
    [name] = options
    with pytest.raises(ValueError, match=name):
        open_buckets(site.url).read(TYPE, H5, H6, **options)


def test_times_with_an_offset_are_converted(site: ReadableSite) -> None:
    site.close(H5)
    found = open_buckets(site.url).read(TYPE, "2026-11-21T06:00+01:00", "2026-11-21T07:00+01:00")
    assert found.to_table().num_rows == 1


def change(site: ReadableSite, bucket: str, /, **changes: Any) -> None:
    """Change a marker and leave out its digest, as only an attacker would."""
    path = site.storage.root / site.folder(bucket) / "_SUCCESS"
    found = json.loads(path.read_bytes()) | {"software": "hourmark test"} | changes
    path.write_text(json.dumps(found))


def listed(site: ReadableSite, hour: str, **changes: Any) -> Sequence[Any]:
    marker = json.loads((site.storage.root / site.folder(hour) / "_SUCCESS").read_bytes())
    return [marker["files"][0] | changes]


@pytest.mark.parametrize(
    "name",
    ["../../../secret.avro", "/etc/passwd", "part-00000.avro/../x", "a/part-00000.avro", 5, ""],
)
def test_a_marker_with_a_name_out_of_its_folder_is_refused(site: ReadableSite, name: Any) -> None:
    site.close(H5)
    change(site, H5, files=listed(site, H5, name=name))
    with pytest.raises(InvalidMarker, match="not the name of a data file"):
        open_buckets(site.url).read(TYPE, H5, H6)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": 2}, "its format is 2, and this version reads 1"),
        ({"type": "other"}, "it is the marker of 'other'"),
        ({"hour": H6}, f"it is the marker of '{TYPE}' '{H6}'"),
        ({"grade": "sure"}, "its grade is 'sure'"),
        ({"bucket_seconds": 7}, "instead of a number"),
        ({"bucket_seconds": 3660}, "bucket_seconds is 3660"),
        ({"bucket_seconds": None}, "instead of a number"),
        ({"late": {H6: 1}}, "names a later hour"),
        ({"late": {H4: 1}}, "numbers of late events differ"),
        ({"late": {"../..": 1}}, "is not the label of an hour"),
        ({"previous": {"hour": H5, "blake2b": ""}}, "names a later hour"),
        ({"files": [{}]}, "lacks 'name'"),
        ({"files": None}, "not iterable"),
        ({"software": "x" * 41}, "does not match its own digest"),
    ],
)
def test_a_marker_that_is_not_valid_is_refused(
    site: ReadableSite, changes: dict[str, Any], problem: str
) -> None:
    site.close(H5)
    change(site, H5, **changes)
    with pytest.raises(InvalidMarker, match=problem):
        open_buckets(site.url).hours(TYPE, H5, H6)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_marker_that_is_no_object_is_refused(site: ReadableSite, content: bytes) -> None:
    site.close(H5)
    (site.storage.root / site.folder(H5) / "_SUCCESS").write_bytes(content)
    with pytest.raises(InvalidMarker, match="is not a valid marker"):
        open_buckets(site.url).hours(TYPE, H5, H6)


def test_a_changed_marker_is_refused_by_its_digest(site: ReadableSite) -> None:
    site.close(H5)
    path = site.storage.root / site.folder(H5) / "_SUCCESS"
    path.write_bytes(
        path.read_bytes().replace(b'"duplicates_removed": ', b'"duplicates_removed": 1')
    )
    with pytest.raises(InvalidMarker, match="does not match its own digest"):
        open_buckets(site.url).hours(TYPE, H5, H6)


def test_a_file_that_is_missing_is_named(site: ReadableSite) -> None:
    site.close(H5, parts(H5, 1) | {"part-00001.avro": File(1, FIELDS, [row(H5, 5)])})
    events = open_buckets(site.url).read(TYPE, H5, H6)
    site.storage.delete(f"{site.folder(H5)}/part-00001.avro")
    with pytest.raises(DamagedAvroFile, match=r"part-00001\.avro does not exist"):
        events.to_table()


def test_each_damaged_byte_of_a_file_is_found(site: ReadableSite) -> None:
    site.close(H5, parts(H5, 3))
    buckets = open_buckets(site.url)
    path = site.storage.root / site.folder(H5) / "part-00000.avro"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DamagedAvroFile):
            buckets.read(TYPE, H5, H6).to_table()
    for size in (0, 100, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedAvroFile):
            buckets.read(TYPE, H5, H6).to_table()


def test_markers_are_read_once(site: ReadableSite, tmp_path: Path) -> None:
    for hour in (H5, H6):
        site.close(hour)
    buckets = open_buckets(site.url)
    buckets.hours(TYPE, H5, H7)
    site.close(H7)
    for hour in (H5, H6):
        (tmp_path / site.folder(hour) / "_SUCCESS").write_bytes(b"")
    assert [str(hour.state) for hour in buckets.hours(TYPE, H5, H8)] == ["closed"] * 3


def test_the_labels_are_those_of_the_product() -> None:
    for length_s in (60, 300, 3600):
        hour = Hour(1_800_000_000, length_s)
        [found] = _labels(hour)
        assert found == str(hour)


def _labels(hour: Hour) -> list[str]:
    from hourmark_reading.hours import bucket_folder, format_label, parse_label

    label = format_label(hour.start_s, hour.length_s)
    assert parse_label(label, hour.length_s) == hour.start_s
    assert bucket_folder(TYPE, hour.start_s, hour.length_s) == hour.bucket_path(TYPE)
    return [label]
