"""A bucket is built, a fault is planted, and `bucket verify` names it: a checker that cannot fail
is worse than none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.buckets import (
    EARLIER,
    HOUR,
    LATER,
    SCHEMA,
    TYPE,
    Datum,
    Plan,
    make_event,
    usual_plan,
)
from tests.support.containers import append_all

from hourmark.config.groups import AvroCodec, StorageSettings
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.avro_container import ContainerWriter
from hourmark_etl.buckets.reader import (
    BadMarker,
    NotClosed,
    list_hours,
    list_types,
    read_events,
    read_manifest,
)
from hourmark_etl.buckets.verify import (
    BucketFault,
    BucketFinding,
    find_gaps,
    find_late_clashes,
    verify_bucket,
)
from hourmark_etl.storage import LocalDisk, Storage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path / "root")


@pytest.fixture
def plan(storage: Storage) -> Plan:
    return usual_plan(storage)


def found(storage: Storage, hour: Hour = HOUR) -> dict[BucketFault, BucketFinding]:
    return {finding.kind: finding for finding in verify_bucket(storage, TYPE, hour).findings}


def path_of(storage: Storage, name: str) -> Path:
    assert isinstance(storage, LocalDisk)
    return storage.root / HOUR.bucket_path(TYPE) / name


# --- what is right


def test_a_bucket_as_it_was_closed_has_no_findings(storage: Storage, plan: Plan) -> None:
    manifest = plan.close()
    verdict = verify_bucket(storage, TYPE, HOUR)
    assert verdict.findings == ()
    assert (verdict.events, verdict.size) == (35, sum(file.bytes for file in manifest.files))
    assert [event["position"] for event in read_events(storage, TYPE, HOUR, manifest)] == [
        *range(30),
        *range(5),
    ]


def test_an_empty_bucket_has_no_findings(storage: Storage) -> None:
    Plan(storage, HOUR, {}).close()
    assert found(storage) == {}


def test_types_and_hours_are_listed_in_turn(storage: LocalDisk) -> None:
    for hour in (LATER, EARLIER, HOUR):
        Plan(storage, hour, {}).close()
    storage.make_folder("_attempts/x")
    storage.make_folder(f"{TYPE}/date=2026-11-21/hour=99")
    storage.make_folder(f"{TYPE}/not-a-date")
    assert list_types(storage) == [TYPE]
    assert list_hours(storage, TYPE, 3600) == [EARLIER, HOUR, LATER]
    assert find_gaps(TYPE, [EARLIER, HOUR, LATER]) == []


def test_buckets_of_a_minute_have_a_level_more(storage: LocalDisk) -> None:
    minute = Hour.parse("2026-11-21T05:07", 60)
    storage.make_folder(minute.bucket_path(TYPE))
    assert list_hours(storage, TYPE, 60) == [minute]


def test_nothing_is_listed_below_a_root_that_is_not_there(storage: Storage) -> None:
    assert list_types(storage) == []
    assert list_hours(storage, TYPE, 3600) == []


@pytest.mark.stack
def test_a_bucket_on_hdfs_reads_as_one_on_disk(own_hdfs: StorageSettings, plan: Plan) -> None:
    storage = plan.storage = open_storage(own_hdfs)
    manifest = plan.close()
    assert verify_bucket(storage, TYPE, HOUR).findings == ()
    assert list_hours(storage, TYPE, 3600) == [HOUR]
    assert read_manifest(storage, TYPE, HOUR) == manifest
    folder = HOUR.bucket_path(TYPE)
    storage.delete(f"{folder}/part-00001.avro")
    storage.write_new(f"{folder}/part-00002.avro", b"Obj")
    assert set(found(storage)) == {BucketFault.MISSING_FILE, BucketFault.EXTRA_FILE}


# --- planted before closing: the manifest tells of a bucket that breaks a rule


def doubled_within_a_file(plan: Plan) -> None:
    plan.files["part-00000.avro"].append(plan.files["part-00000.avro"][3])


def doubled_across_files(plan: Plan) -> None:
    plan.files["part-00001.avro"].append(plan.files["part-00000.avro"][3])


def of_a_later_hour(plan: Plan) -> None:
    plan.files["part-00000.avro"].append(make_event(LATER, 0))


def of_an_earlier_hour_in_an_on_time_file(plan: Plan) -> None:
    plan.files["part-00000.avro"].append(make_event(EARLIER, 77))


def on_time_in_a_late_file(plan: Plan) -> None:
    plan.files["late-00000.avro"].append(make_event(HOUR, 77))


def strange_file_name(plan: Plan) -> None:
    plan.files["other.avro"] = plan.files.pop("part-00001.avro")


BEFORE: list[tuple[Callable[[Plan], None], BucketFault]] = [
    (doubled_within_a_file, BucketFault.DUPLICATE),
    (doubled_across_files, BucketFault.DUPLICATE),
    (of_a_later_hour, BucketFault.HOUR),
    (of_an_earlier_hour_in_an_on_time_file, BucketFault.HOUR),
    (on_time_in_a_late_file, BucketFault.HOUR),
    (strange_file_name, BucketFault.BAD_MARKER),
]


@pytest.mark.parametrize(("plant", "kind"), BEFORE)
def test_a_bucket_that_breaks_a_rule_is_named(
    storage: Storage, plan: Plan, plant: Callable[[Plan], None], kind: BucketFault
) -> None:
    plant(plan)
    plan.close()
    assert set(found(storage)) == {kind}


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("late", {"2026-11-21T04": 4}, BucketFault.LATE),
        ("id_sum", "0123456789abcdef", BucketFault.ID_SUM),
        ("id_sum", "many", BucketFault.ID_SUM),
        ("events", 34, BucketFault.COUNT),
        ("hour", str(LATER), BucketFault.BAD_MARKER),
        ("type", "start-song", BucketFault.BAD_MARKER),
        ("format", 2, BucketFault.BAD_MARKER),
    ],
)
def test_a_manifest_that_says_otherwise_is_named(
    storage: Storage, plan: Plan, name: str, value: object, kind: BucketFault
) -> None:
    plan.changes[name] = value
    plan.close()
    assert set(found(storage)) == {kind}


# --- planted after closing: somebody changed what never changes


def dropped_file(folder: Path) -> None:
    (folder / "part-00001.avro").unlink()


def extra_file(folder: Path) -> None:
    (folder / "part-00002.avro").write_bytes(b"Obj\x01")


def extra_folder(folder: Path) -> None:
    (folder / "part-00002.avro").mkdir()


def no_marker(folder: Path) -> None:
    (folder / MARKER).unlink()


def empty_marker(folder: Path) -> None:
    (folder / MARKER).write_bytes(b"")


def marker_of_another_tool(folder: Path) -> None:
    (folder / MARKER).write_text('{"format": 1, "files": []}')


def marker_that_is_no_utf8(folder: Path) -> None:
    (folder / MARKER).write_bytes(b"\xff\xfe\x00")


def altered_byte(folder: Path) -> None:
    content = bytearray((folder / "part-00000.avro").read_bytes())
    content[len(content) // 2 + 300] ^= 0x10
    (folder / "part-00000.avro").write_bytes(content)


def cut_short(folder: Path) -> None:
    file = folder / "part-00000.avro"
    file.write_bytes(file.read_bytes()[:-30])


def no_avro(folder: Path) -> None:
    file = folder / "part-00000.avro"
    file.write_bytes(b"x" * file.stat().st_size)


def appended(folder: Path) -> None:
    with (folder / "part-00000.avro").open("ab") as file:
        file.write(b"\n")


def events(*numbers: int) -> list[Datum]:
    """Of the hour."""
    return [make_event(HOUR, number) for number in numbers]


def rewritten(
    folder: Path,
    datums: list[Datum],
    schema: dict[str, Any] = SCHEMA,
    codec: AvroCodec = "deflate",
) -> None:
    with (folder / "part-00000.avro").open("wb") as file:
        writer = ContainerWriter(file, json.dumps(schema), codec=codec)
        append_all(writer, (datum for _, datum in datums))
        writer.close()


def one_event_less(folder: Path) -> None:
    rewritten(folder, events(*range(19)))


def one_event_instead_of_another(folder: Path) -> None:
    rewritten(folder, events(*range(19), 500))


def altered_event(folder: Path) -> None:
    event_id, _ = make_event(HOUR, 7)
    other_id, other = make_event(HOUR, 7, b"another line")
    same_id = other.replace(bytes(other_id), bytes(event_id))
    rewritten(folder, [*events(*range(7)), (event_id, same_id), *events(*range(8, 20))])


def another_schema(folder: Path) -> None:
    rewritten(folder, events(*range(20)), {**SCHEMA, "doc": "another"})


def another_codec(folder: Path) -> None:
    rewritten(folder, events(*range(20)), codec="zstandard")


AFTER: list[tuple[Callable[[Path], None], set[BucketFault]]] = [
    (dropped_file, {BucketFault.MISSING_FILE}),
    (extra_file, {BucketFault.EXTRA_FILE}),
    (extra_folder, {BucketFault.EXTRA_FILE}),
    (no_marker, {BucketFault.MISSING_MARKER}),
    (empty_marker, {BucketFault.BAD_MARKER}),
    (marker_of_another_tool, {BucketFault.BAD_MARKER}),
    (marker_that_is_no_utf8, {BucketFault.BAD_MARKER}),
    (altered_byte, {BucketFault.DIGEST}),
    (cut_short, {BucketFault.SIZE, BucketFault.DIGEST, BucketFault.UNREADABLE}),
    (no_avro, {BucketFault.DIGEST, BucketFault.UNREADABLE}),
    (appended, {BucketFault.SIZE, BucketFault.DIGEST}),
    (one_event_less, {BucketFault.SIZE, BucketFault.DIGEST, BucketFault.COUNT, BucketFault.ID_SUM}),
    (one_event_instead_of_another, {BucketFault.DIGEST, BucketFault.ID_SUM}),
    (altered_event, {BucketFault.DIGEST}),
    (another_schema, {BucketFault.DIGEST, BucketFault.SCHEMA}),
    (another_codec, {BucketFault.DIGEST, BucketFault.CODEC}),
]


@pytest.mark.parametrize(("plant", "kinds"), AFTER)
def test_a_change_after_closing_is_named(
    storage: Storage, plan: Plan, plant: Callable[[Path], None], kinds: set[BucketFault]
) -> None:
    plan.close()
    plant(path_of(storage, ""))
    findings = found(storage)
    assert kinds <= set(findings)
    assert any(
        finding.file in (None, "part-00000.avro", "part-00001.avro", "part-00002.avro")
        for finding in findings.values()
    )


def test_any_single_altered_byte_is_a_finding(storage: Storage, plan: Plan) -> None:
    plan.close()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    file = path_of(storage, "part-00000.avro")
    whole = file.read_bytes()
    for position in random.Random(seed).sample(range(len(whole)), 60):
        altered = bytearray(whole)
        altered[position] ^= 1 << (position % 8)
        file.write_bytes(altered)
        assert BucketFault.DIGEST in found(storage), position
    file.write_bytes(whole)
    assert found(storage) == {}


# --- across buckets


def clashes(storage: Storage, *hours: Hour) -> list[BucketFinding]:
    return find_late_clashes(storage, TYPE, [verify_bucket(storage, TYPE, hour) for hour in hours])


def test_a_late_event_that_its_own_hour_holds_too_is_named(storage: Storage, plan: Plan) -> None:
    Plan(
        storage, EARLIER, {"part-00000.avro": [make_event(EARLIER, number) for number in (3, 900)]}
    ).close()
    plan.close()
    assert found(storage, EARLIER) == found(storage) == {}
    (finding,) = clashes(storage, EARLIER, HOUR)
    assert (finding.kind, finding.hour) == (BucketFault.DUPLICATE, str(HOUR))
    assert str(make_event(EARLIER, 3)[0]) in finding.detail and finding.detail.startswith("1 (")


def test_a_late_event_in_two_buckets_is_named(storage: Storage, plan: Plan) -> None:
    plan.close()
    Plan(
        storage, LATER, {"late-00000.avro": [make_event(EARLIER, 4), make_event(EARLIER, 5)]}
    ).close()
    (finding,) = clashes(storage, HOUR, LATER)
    assert (finding.kind, finding.hour) == (BucketFault.DUPLICATE, str(LATER))
    assert str(make_event(EARLIER, 4)[0]) in finding.detail and str(HOUR) in finding.detail


def test_late_events_that_stand_once_are_no_clash(storage: Storage, plan: Plan) -> None:
    Plan(storage, EARLIER, {"part-00000.avro": [make_event(EARLIER, 900)]}).close()
    plan.close()
    assert clashes(storage, EARLIER, HOUR) == []


def test_an_hour_left_out_is_named(storage: Storage) -> None:
    (finding,) = find_gaps(TYPE, [EARLIER, LATER])
    assert (finding.kind, finding.hour) == (BucketFault.MISSING_BUCKET, str(HOUR))


def test_a_bucket_that_is_not_there_is_not_closed(storage: Storage, plan: Plan) -> None:
    plan.close()
    with pytest.raises(NotClosed, match="is not closed"):
        verify_bucket(storage, TYPE, LATER)
    with pytest.raises(NotClosed, match="bucket ls end-song"):
        read_manifest(storage, TYPE, LATER)


def test_an_unknown_format_is_refused(storage: Storage, plan: Plan) -> None:
    plan.changes["format"] = 2
    plan.close()
    with pytest.raises(BadMarker, match="its format is 2"):
        read_manifest(storage, TYPE, HOUR)
