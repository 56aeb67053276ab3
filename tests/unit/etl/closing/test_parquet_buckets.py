"""Buckets with Parquet files: the rows of the Avro files, published at once with them or not."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.bucket_world import FIRST, World, an_id, datum, frontier, hour_at, some_ids
from tests.support.memory_storage import MemoryStorage
from tools.verify_bucket import verify

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, PARQUET_FOLDER, Manifest
from hourmark_etl.buckets.parquet_rows import DatumConverter
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.buckets.verify import BucketFault, verify_bucket
from hourmark_etl.closing.publication.attempts import prepare_bucket
from hourmark_etl.closing.write import parquet_files, writing
from hourmark_etl.closing.write.containers import ContainerSet, WrittenHour
from hourmark_etl.closing.write.parquet_files import verify_written_parquet

HOUR = hour_at(3)
FOLDER = HOUR.bucket_path("click")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, bucket_format="avro+parquet")


def close_mixed_bucket(world: World) -> Manifest:
    """A bucket with two schemas, and late events of two hours."""
    late = [*some_ids(3, hour_at(1)), *some_ids(2, hour_at(2))]
    groups = [
        *world.stage(some_ids(20, HOUR) + late),
        *world.stage([an_id(HOUR, n) for n in range(50, 60)], 2),
    ]
    return world.close(HOUR, groups)


def parquet_rows(world: World, manifest: Manifest, rows_of: str) -> list[dict[str, Any]]:
    tables = [
        pq.read_table(world.root / FOLDER / file.name)
        for file in manifest.parquet
        if file.rows_of == rows_of
    ]
    return [row for table in tables for row in table.to_pylist()]


def test_each_avro_file_has_its_events_in_the_same_order_as_parquet(world: World) -> None:
    manifest = close_mixed_bucket(world)
    events = world.events(HOUR, manifest)
    for file in manifest.files:
        own, events = events[: file.records], events[file.records :]
        found = parquet_rows(world, manifest, file.name)
        assert [row["event_id"] for row in found] == [event["event_id"] for event in own]
        assert [row["n"] for row in found] == [event["n"] for event in own]
        assert [row.get("word") for row in found] == [event.get("word") for event in own]
    assert not events


def test_each_parquet_file_has_events_of_one_hour_and_statistics_of_their_times(
    world: World,
) -> None:
    manifest = close_mixed_bucket(world)
    late = {file.origin_hour: file.records for file in manifest.parquet if "late" in file.name}
    assert late == manifest.late == {str(hour_at(1)): 3, str(hour_at(2)): 2}
    assert {f.origin_hour for f in manifest.parquet if "part" in f.name} == {str(HOUR)}
    for listed in manifest.parquet:
        content = (world.root / FOLDER / listed.name).read_bytes()
        assert hashlib.blake2b(content, digest_size=16).hexdigest() == listed.blake2b
        group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
        (of_time,) = (
            group.column(n)
            for n in range(group.num_columns)
            if group.column(n).path_in_schema == "event_time"
        )
        assert of_time.statistics.has_min_max and of_time.compression == "ZSTD"
        assert [s.column_index for s in group.sorting_columns] == [0]


def test_readers_of_the_bucket_folder_find_only_avro_files(world: World) -> None:
    close_mixed_bucket(world)
    names = {path.name for path in (world.root / FOLDER).iterdir()}
    visible = {name for name in names if name[0] not in "._"}
    assert visible and all(name.endswith(".avro") for name in visible)
    assert names - visible == {MARKER, PARQUET_FOLDER}


def test_an_empty_hour_has_no_parquet_files(world: World) -> None:
    manifest = world.close(HOUR, ())
    assert manifest.parquet == [] and b"parquet" not in manifest.encode()
    assert verify_bucket(world.storage, "click", HOUR).findings[1:] == ()


def test_without_the_format_nothing_is_written_and_the_marker_is_as_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    manifest = world.close(HOUR, world.stage(some_ids(5, HOUR)))
    assert manifest.parquet == [] and b"parquet" not in manifest.encode()
    assert not (world.root / FOLDER / PARQUET_FOLDER).exists()


def _replace(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return lambda file: pq.write_table(change(pq.read_table(file)), file)


def _changed_value(rows: pa.Table) -> pa.Table:
    column = rows.schema.get_field_index("n")
    return rows.set_column(column, rows.schema.field(column), pa.array([6] * len(rows), pa.int64()))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_replace(_changed_value), "the values of n differ from those in part-00000.avro"),
        (_replace(lambda rows: rows.slice(1)), "events, but the manifest states"),
        (
            _replace(lambda rows: rows.take(list(range(len(rows)))[::-1])),
            "the values of event_id differ from",
        ),
        (_replace(lambda rows: rows.drop_columns(["n"])), "it has the columns"),
        (lambda file: file.write_bytes(b"PAR1" + file.read_bytes()[4:-20]), "Parquet"),
        (lambda file: file.unlink(), "the manifest lists it"),
    ],
)
def test_verification_finds_what_differs_from_the_avro_file(
    world: World, damage: Callable[[Path], None], message: str
) -> None:
    manifest = close_mixed_bucket(world)
    before = verify_bucket(world.storage, "click", HOUR).findings
    damage(world.root / FOLDER / manifest.parquet[0].name)
    found = [f for f in verify_bucket(world.storage, "click", HOUR).findings if f not in before]
    assert any(message in str(f) for f in found), found
    assert {f.kind for f in found} <= {
        BucketFault.PARQUET,
        BucketFault.DIGEST,
        BucketFault.SIZE,
        BucketFault.MISSING_FILE,
    }


def test_verification_finds_a_parquet_file_that_is_not_listed(world: World) -> None:
    manifest = close_mixed_bucket(world)
    copied = world.root / FOLDER / PARQUET_FOLDER / "part-00009.parquet"
    copied.write_bytes((world.root / FOLDER / manifest.parquet[0].name).read_bytes())
    found = verify_bucket(world.storage, "click", HOUR).findings
    assert any(
        f.kind is BucketFault.EXTRA_FILE and f.file == f"{PARQUET_FOLDER}/{copied.name}"
        for f in found
    )


def test_a_parquet_file_that_was_stored_differently_blocks_the_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(storage: Any, written: Any) -> str:
        file = world.root / written.path
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        return verify_written_parquet(storage, written)

    monkeypatch.setattr(parquet_files, "verify_written_parquet", damaged)
    written = world.write(HOUR, world.stage(some_ids(5, HOUR)))
    assert "was read back as" in written.publish_error


def test_rows_that_parquet_cannot_hold_block_their_hour_with_the_next_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise pa.ArrowInvalid("a decimal has more than the 3 digits of its precision")

    monkeypatch.setattr(DatumConverter, "convert", refuse)
    written = world.write(HOUR, world.stage(some_ids(5, HOUR)))
    assert "a decimal has more than the 3 digits" in written.publish_error
    assert 'set format = "avro" for the type' in written.publish_error


def test_an_attempt_without_one_of_its_parquet_files_is_not_published(world: World) -> None:
    groups = world.stage(some_ids(5, HOUR))
    written = world.write(HOUR, groups)
    manifest = close_mixed_bucket(world).model_copy(update={"attempt": "two"})
    with pytest.raises(Finding, match="the attempt is not published"):
        prepare_bucket(world.folders, frontier(HOUR), without_parquet(written), manifest)


def without_parquet(written: WrittenHour) -> WrittenHour:
    files = [dataclasses.replace(file, parquet=()) for file in written.files]
    return dataclasses.replace(written, files=tuple(files))


def test_files_of_several_row_groups_are_sorted_and_contain_each_event_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ContainerSet", partial(ContainerSet, step_bytes=50_000))
    ids = some_ids(1_000, FIRST)
    manifest = world.close(FIRST, world.stage(ids, datums={i: datum(i, size=400) for i in ids}))
    files = [
        pq.ParquetFile(world.root / FIRST.bucket_path("click") / file.name)
        for file in manifest.parquet
    ]
    assert max(file.num_row_groups for file in files) > 1
    found = [i for file in files for i in file.read().column("event_id").to_pylist()]
    assert found == sorted(ids)


def test_the_tool_for_copies_checks_parquet_files(world: World) -> None:
    manifest = close_mixed_bucket(world)
    before = verify(world.root / "click").findings
    assert not any(PARQUET_FOLDER in str(found) for found in before)
    (world.root / FOLDER / manifest.parquet[0].name).write_bytes(b"")
    found = [of for of in verify(world.root / "click").findings if of not in before]
    assert [where for where, _ in found] == [f"{HOUR} {manifest.parquet[0].name}"] * 2


class Killed(BaseException):
    pass


class KillingStorage(MemoryStorage):
    """Ends the process before or after one of its operations."""

    left = 1 << 30  # operations until then
    after = False  # the operation

    def _killed(self, operation: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        result = operation()
        if self.left == 0:
            raise Killed
        return result

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        self._killed(lambda: MemoryStorage.write_new(self, path, content))

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        self._killed(lambda: MemoryStorage.rename_new(self, source, target))

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        opened: BinaryIO = self._killed(lambda: MemoryStorage.open(self, path))
        return opened


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_leaves_a_bucket_with_both_formats_or_none(
    tmp_path: Path, after: bool
) -> None:
    for step in itertools.count(1):
        storage = KillingStorage()
        world = World(tmp_path / str(step), storage, bucket_format="avro+parquet")
        groups = world.stage([*some_ids(9, HOUR), *some_ids(2, hour_at(1))])
        storage.left, storage.after = step, after
        try:
            world.close(HOUR, groups)
            break
        except Killed:
            storage.left = 1 << 30
        if storage.exists(FOLDER):
            listed = read_manifest(storage, "click", HOUR)
            assert {f.rows_of for f in listed.parquet} == {f.name for f in listed.files}
        manifest = world.close(HOUR, groups)
        kinds = {found.kind for found in verify_bucket(storage, "click", HOUR).findings}
        assert manifest.parquet and kinds <= {BucketFault.SCHEMA}, "a test has no fingerprints"
    assert step > 10


def test_a_schema_that_parquet_cannot_express_is_written_as_avro_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, schema: object) -> None:
        raise ValueError("field a: Parquet has no type for the union of string, long")

    monkeypatch.setattr(DatumConverter, "__init__", refuse)
    manifest = close_mixed_bucket(world)
    assert (manifest.events, manifest.parquet) == (35, [])
