"""Written hours: every id in exactly one bucket, whatever came twice, late, in slots or in other
schemas; ordinary Avro.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.bucket_world import (
    FIRST,
    SCHEMAS,
    World,
    an_id,
    datum,
    frontier,
    hour_at,
    publish,
    some_ids,
)

from hourmark.avro.framing import ENVELOPE, event_schema
from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark_etl.arrow import binary_buffers
from hourmark_etl.buckets.avro_container import ContainerReader
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.runner import Runner
from hourmark_etl.closing.write import writing
from hourmark_etl.closing.write.containers import (
    ContainerSet,
    DatumRun,
    WrittenHour,
    verify_written_file,
)
from hourmark_etl.closing.write.writing import SealedHour, WriteLimits, plan_tasks
from hourmark_etl.errors import Unreadable
from hourmark_etl.ids.lookups import IdQuery, find_contained_ids
from hourmark_etl.model import StagedGroup
from hourmark_etl.staging.files import read_rows
from hourmark_etl.storage import Storage

batches = st.lists(
    st.lists(
        st.tuples(st.integers(-2, 4), st.integers(0, 6), st.sampled_from([1, 2])), max_size=12
    ),
    max_size=3,
)

Counts = npt.NDArray[np.int64]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ids_of(events: Iterable[object]) -> list[bytes]:
    return [event["event_id"] for event in events if isinstance(event, dict)]


@pytest.mark.slow
@given(
    st.lists(batches, min_size=1, max_size=5),
    st.lists(st.sampled_from(["kept", "lost", "damaged"]), min_size=5, max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_each_id_stands_in_exactly_one_bucket_whatever_came_twice_or_late(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[list[list[tuple[int, int, int]]]],
    indexes: list[str],
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    found: Counter[bytes] = Counter()
    told: set[bytes] = set()
    waiting: list[tuple[int, int, int]] = []
    for number, (staged, index) in enumerate(zip(drawn, indexes, strict=False)):
        hour = hour_at(number)
        listed: list[StagedGroup] = []
        rows = waiting + [row for rows in staged for row in rows]
        waiting = [row for row in rows if row[0] > number]  # not listed yet
        for schema_id in (1, 2):
            ids = [
                an_id(hour_at(h), n) for h, n, schema in rows if schema == schema_id and h <= number
            ]
            told |= set(ids)
            listed += world.stage(ids, schema_id)
        manifest = world.close(hour, listed, indexed=index != "lost")
        if index == "damaged":
            for file in (world.root / "_index").glob("*"):
                file.write_bytes(file.read_bytes()[:-9])
        events = world.events(hour, manifest)
        found.update(ids_of(events))
        assert manifest.events == len(events) and manifest.duplicates_removed == sum(
            g.rows for g in listed
        ) - len(events)
        late = Counter(str(hour_of(i)) for i in ids_of(events) if hour_of(i) != hour)
        assert manifest.late == dict(sorted(late.items()))
        assert (
            manifest.id_sum
            == f"{sum(int.from_bytes(i[8:], 'big') for i in ids_of(events)) % 2**64:016x}"
        )
        assert sum(b.events for b in manifest.books.values()) == manifest.events
    assert found == Counter(told)


def hour_of(event_id: bytes) -> Hour:
    return Hour.containing(int.from_bytes(event_id[:6], "big"))


def test_late_ids_are_looked_up_in_the_buckets_that_hold_their_origin_hour_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        world.close(hour_at(number), world.stage(some_ids(5, hour_at(number))))
    asked: list[list[int]] = []

    def recorded(storage: Storage, of: Sequence[IdQuery]) -> list[npt.NDArray[np.bool_] | Finding]:
        asked.extend([b.hour_s for b in one.buckets] for one in of)
        return find_contained_ids(storage, of)

    monkeypatch.setattr(writing, "find_contained_ids", recorded)
    late = [an_id(hour_at(1), n) for n in range(4, 7)]
    manifest = world.close(hour_at(4), world.stage(late))
    assert (manifest.events, manifest.late) == (2, {str(hour_at(1)): 2})
    assert asked == [[hour_at(1).start_s]]
    assert world.close(hour_at(5), world.stage(late)).events == 0
    assert asked[1] == [hour_at(1).start_s, hour_at(4).start_s]


def test_evolved_schemas_of_one_hour_are_files_that_any_reader_resolves(world: World) -> None:
    old, new = some_ids(30), [an_id(FIRST, n) for n in range(20, 50)]
    manifest = world.close(FIRST, [*world.stage(old, 1), *world.stage(new, 2)])
    assert [f.schema_id for f in manifest.files] == [1, 2] and manifest.events == 50
    words = Counter()  # type: Counter[str]
    for file in manifest.files:
        with world.storage.open(f"{FIRST.bucket_path('click')}/{file.name}") as stream:
            reader = fastavro.reader(stream, reader_schema=fastavro.parse_schema(SCHEMAS[2]))
            records = [r for r in reader if isinstance(r, dict)]
        words.update(r["word"] for r in records)
        assert len(records) == file.records
    assert set(words) == {"none", "other"}


@pytest.mark.slow
def test_a_large_hour_is_written_in_slots_and_files_of_about_the_wanted_size(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, unit_bytes_max=1 << 20, target_file_bytes=1 << 20, tasks=2)
    ids = some_ids(40_000)
    groups = [
        g
        for start in range(0, 40_000, 10_000)
        for g in world.stage(ids[start : start + 10_000], size=60)
    ]
    manifest = world.close(FIRST, [*groups, *world.stage(ids[:5_000], size=60)])
    assert (manifest.events, manifest.duplicates_removed) == (40_000, 5_000)
    assert len(manifest.files) == 2
    events = world.events(FIRST, manifest)
    assert sorted(ids_of(events)) == sorted(ids)
    for file in manifest.files:
        path = f"{FIRST.bucket_path('click')}/{file.name}"
        with world.storage.open(path) as stream:
            own = ids_of(fastavro.reader(stream))
        assert own == sorted(own)
    assert world.close(hour_at(1), world.stage(ids[100:200])).events == 0


def test_a_container_rolls_over_once_it_has_reached_the_wanted_size(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ContainerSet", partial(ContainerSet, step_bytes=50_000))
    listed = world.stage(some_ids(20_000))
    sealed = SealedHour("click", FIRST, listed)
    (task,) = plan_tasks([sealed], {}, limits := WriteLimits(1 << 30, 1, 1, "deflate"))
    done = writing.write_task(
        task,
        storage=world.storage,
        schemas={1: json.dumps(SCHEMAS[1])},
        folder="made",
        limits=limits,
    )
    files = done.files
    assert (
        len(files) >= 10
        and not any(f.read_back_error for f in files)
        and sum(f.records for f in files) == 20_000
    )
    assert [run.first_row for f in files for run in f.index] == list(
        itertools.accumulate([0, *(f.records for f in files[:-1])])
    )


def test_an_hour_whose_events_are_nearly_all_of_one_second_is_written_in_parts(
    tmp_path: Path,
) -> None:
    """Each part is in memory by itself, and all go into one container, in turn."""
    world = World(tmp_path, unit_bytes_max=1 << 20, tasks=1)
    at_ms = FIRST.start_s * 1000 + 1_800_000
    burst = [(at_ms + n % 1000).to_bytes(6, "big") + an_id(FIRST, n)[6:] for n in range(100, 6_000)]
    ids = [*some_ids(100), *burst]
    listed = [
        g for part in (ids[::2], ids[1::2], burst[:50]) for g in world.stage(part, size=2_000)
    ]
    sizes: list[int] = []

    def measured(datums: pa.LargeBinaryArray) -> tuple[Counts, pa.Buffer]:
        sizes.append(datums.nbytes)
        return binary_buffers(datums)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hourmark_etl.closing.write.writing.binary_buffers", measured)
        manifest = world.close(FIRST, listed)
    assert (manifest.events, manifest.duplicates_removed) == (len(ids), 50)
    assert sum(sizes) > 11 << 20 and max(sizes) < 2.1 * (1 << 20)
    assert [event["event_id"] for event in world.events(FIRST, manifest)] == sorted(ids)


def test_small_types_share_units_and_tasks_and_a_large_one_is_spread(world: World) -> None:
    (group,) = world.stage(some_ids(10))
    small = [SealedHour(f"t{n}", FIRST, (group,)) for n in range(1000)]
    tasks = plan_tasks(small, {}, WriteLimits(128 << 20, 1, 2, "deflate"))
    assert [len(t.units) for t in tasks] == [1] * len(tasks) and 2 <= len(tasks) <= 3
    assert sum(len(u.listings) for t in tasks for u in t.units) == 1000


def test_a_damaged_bucket_is_the_trouble_of_its_type_alone(world: World) -> None:
    manifest = world.close(FIRST, world.stage(some_ids(50)), indexed=False)
    container = world.root / FIRST.bucket_path("click") / manifest.files[0].name
    content = container.read_bytes()
    container.write_bytes(content[:-20])
    listed = world.stage([an_id(FIRST, 1), an_id(hour_at(1), 1)])
    written = world.write(hour_at(1), listed)
    with pytest.raises(Finding, match="closed bucket is damaged"):
        publish_written(world, written, listed)
    assert not world.storage.exists(hour_at(1).bucket_path("click"))
    container.write_bytes(content)
    assert world.close(hour_at(1), listed).events == 1


def publish_written(
    world: World, written: WrittenHour, listed: object, attempt: str = "one"
) -> None:
    f = frontier(hour_at(1))
    made = build_manifest(
        f,
        written,
        listed=listed,  # type: ignore[arg-type]
        fingerprints=dict.fromkeys(SCHEMAS, "m"),
        previous=None,
        ledger=("l", 1),
        attempt=attempt,
        now_ms=0,
    )
    publish(world.storage, f, written, made)


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone on"])
def test_what_does_not_read_back_is_named(world: World, damage: str) -> None:
    (written,) = world.write(FIRST, world.stage(some_ids(50))).files
    assert written.read_back_error == "" and verify_written_file(world.storage, written) == ""
    file = world.root / written.path
    content = file.read_bytes()
    flipped = content[:-30] + bytes([content[-30] ^ 1]) + content[-29:]
    file.write_bytes({"cut": content[:-1], "flipped": flipped, "gone on": content + b"x"}[damage])
    assert written.path in verify_written_file(world.storage, written)


NUMBER = {"name": "n", "type": "long"}
# What a registry that was recreated, or restored from an older copy, may give for the id of
# SCHEMAS[1].
OTHERS = {
    "swap": (
        event_schema("view", [NUMBER]),
        "its schema is of hourmark.events.view, not of the event type click",
    ),
    "type": (event_schema("click", [{"name": "n", "type": "double"}]), "rows cannot be written"),
    "narrow": (event_schema("click", []), "bytes follow the end of the datum"),
    "grown": (
        event_schema("click", [NUMBER, {"name": "w", "type": ["null", "string"], "default": None}]),
        "ends before its schema",
    ),
    "reordered": (
        event_schema("click", [NUMBER, *ENVELOPE]) | {"fields": [*reversed(ENVELOPE), NUMBER]},
        "stands for no schema",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", OTHERS)
@pytest.mark.parametrize("events", [1, 2, 5000])
def test_a_container_under_a_schema_with_which_its_datums_were_not_written_is_not_published(
    world: World, monkeypatch: pytest.MonkeyPatch, variant: str, events: int
) -> None:
    schema, why = OTHERS[variant]
    listed = world.stage(some_ids(events), size=300)
    assert world.write(FIRST, listed).publish_error == ""
    monkeypatch.setitem(SCHEMAS, 1, schema)
    written = world.write(FIRST, listed, "two")
    assert why in (written.publish_error or written.unwritable)
    with pytest.raises(Finding, match=r"schema|cannot be written"):
        publish_written(world, written, listed, "two")


@pytest.mark.parametrize("other", ["the first", "the last", "all but the first", "the later half"])
def test_each_datum_of_another_schema_among_others_is_noticed(world: World, other: str) -> None:
    """As the registry began to give another schema for the same id in the middle of an hour."""
    ids = sorted(some_ids(1000))
    mine = {
        "the first": ids[1:],
        "the last": ids[:-1],
        "all but the first": ids[:1],
        "the later half": ids[:500],
    }[other]
    known = set(mine)
    datums = {i: datum(i, 1 if i in known else 2, 300) for i in ids}
    written = world.write(FIRST, world.stage(ids, datums=datums))
    assert written.unwritable.startswith(f"{len(ids) - len(mine)} rows cannot be written: event ")
    assert sum(of.events for of in written.left_out.values()) == len(ids) - len(mine)


def test_a_datum_with_another_id_than_its_key_is_not_published(world: World) -> None:
    one, other = an_id(FIRST, 1), an_id(FIRST, 2)
    written = world.write(FIRST, world.stage([one], datums={one: datum(other)}))
    assert written.unwritable == (
        f"1 rows cannot be written: event {one.hex()}: its event id differs from the one in its key"
    )


def test_of_two_rows_with_one_id_the_valid_one_is_written(world: World) -> None:
    """Version 0.3.0 staged what it did not check, so a damaged key may have made a second row of an
    id.
    """
    one, other = an_id(FIRST, 1), an_id(FIRST, 2)
    listed = [
        g
        for datums in ({one: datum(other)}, {one: datum(one)})
        for g in world.stage([one], datums=datums)
    ]
    for groups in (listed, listed[::-1]):
        written = world.write(FIRST, groups, uuid.uuid4().hex)
        assert (written.publish_error, written.unwritable, written.left_out) == ("", "", {})
        assert [f.records for f in written.files] == [1]
        assert sum(of.events for of in written.duplicates.values()) == 1


def test_a_staged_file_that_is_gone_is_named_to_whoever_can_stage_it_again(world: World) -> None:
    listed = world.stage([an_id(FIRST, 1)])
    (world.root / listed[0].path).unlink()
    with pytest.raises(Unreadable) as caught:
        world.write(FIRST, listed)
    assert caught.value.path == listed[0].path


def test_datums_are_copied_byte_for_byte(world: World) -> None:
    ids = sorted(some_ids(40))
    (written,) = world.write(FIRST, world.stage(ids, 2, size=7)).files
    with world.storage.open(written.path) as file:
        container = ContainerReader(file)
        assert b"".join(map(container.content, container)) == b"".join(datum(i, 2, 7) for i in ids)


def test_an_hour_without_rows_gives_no_file(world: World) -> None:
    assert world.write(FIRST, ()).files == ()
    assert world.close(FIRST, ()).files == []
    assert Runner().map(len, []) == []


def rows_lost(table: pa.Table, counts: Counts) -> tuple[pa.Table, Counts]:
    """As a reader lost a row group by a flipped bit in a footer."""
    return table.slice(10), counts - 10


def a_row_for_its_neighbour(table: pa.Table, counts: Counts) -> tuple[pa.Table, Counts]:
    return pa.concat_tables([table.slice(1, 1), table.slice(1)]), counts


def another_schema(table: pa.Table, counts: Counts) -> tuple[pa.Table, Counts]:
    at = table.column_names.index("schema_id")
    return table.set_column(at, "schema_id", pa.array([2] * len(table), pa.int32())), counts


@pytest.mark.slow
@pytest.mark.parametrize("fault", [rows_lost, a_row_for_its_neighbour, another_schema])
@pytest.mark.parametrize("unit_bytes_max", [128 << 20, 1 << 20], ids=["whole", "slots"])
def test_other_rows_than_are_listed_make_their_file_unreadable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pa.Table, Counts], tuple[pa.Table, Counts]],
    unit_bytes_max: int,
) -> None:
    world = World(tmp_path, unit_bytes_max=unit_bytes_max)
    listed = world.stage(some_ids(15_000), size=100)
    monkeypatch.setattr("hourmark_etl.closing.units.read_rows", lambda *of: fault(*read_rows(*of)))
    with pytest.raises(Unreadable) as caught:
        world.write(FIRST, listed)
    assert caught.value.path == listed[0].path


def test_a_group_whose_digest_is_not_the_listed_one_makes_its_file_unreadable(world: World) -> None:
    (group,) = world.stage(some_ids(50))
    replaced = functools.partial(dataclasses.replace, group)
    shorter = replaced(rows=49)
    other_values = replaced(value_sum=(group.value_sum or 0) ^ 1)
    for wrong in (
        replaced(low64_sum=group.low64_sum ^ 1),
        shorter,
        replaced(rows=49, first_row=1),
        replaced(schema_ids=(2,)),
        other_values,
    ):
        with pytest.raises(Unreadable, match=group.path):
            world.write(FIRST, [wrong])


def dropped(run: DatumRun) -> DatumRun:
    return run.part(1, len(run.ids))


def of_another_hour(run: DatumRun) -> DatumRun:
    return dataclasses.replace(run, hours=run.hours - 3600)


def other_rows(run: DatumRun) -> DatumRun:
    return dataclasses.replace(run, digests=run.digests + np.uint64(1))


def other_values(run: DatumRun) -> DatumRun:
    """As a bit flipped in memory between what was read and the container."""
    data = bytearray(run.data)
    data[int(run.offsets[1]) - 1] ^= 1
    return dataclasses.replace(run, data=memoryview(bytes(data)))


@pytest.mark.parametrize("fault", [dropped, of_another_hour, other_rows, other_values])
def test_an_hour_of_which_not_all_listed_rows_were_written_or_proven_duplicates_is_not_published(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Callable[[DatumRun], DatumRun]
) -> None:
    ids = some_ids(50, hour_at(1))
    listed = world.stage([*ids, *ids[:5], an_id(FIRST, 1)])
    real = ContainerSet.write
    with monkeypatch.context() as patch:
        patch.setattr(
            ContainerSet, "write", lambda self, run: real(self, run if run.late else fault(run))
        )
        written = world.write(hour_at(1), listed)
    assert "rows of click" in written.publish_error and "are listed" in written.publish_error
    with pytest.raises(Finding, match="not published and will be written again"):
        publish_written(world, written, listed)
    assert world.close(hour_at(1), listed).duplicates_removed == 5


def test_duplicates_are_counted_not_what_is_missing(world: World) -> None:
    ids = some_ids(50)
    world.close(FIRST, world.stage(ids[:20]))
    written = world.write(hour_at(1), world.stage([*ids, *ids[:3]]))
    assert {hour: rows.events for hour, rows in written.duplicates.items()} == {FIRST.start_s: 23}
