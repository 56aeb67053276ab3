"""Which ids closed buckets hold: the same answer by index and by containers, and little is read for
few ids.
"""

from __future__ import annotations

import dataclasses
import io
import json
import random
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, get_args

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.asked_ids import Opened, asked, bucket_of, small_blocks, watched
from tests.support.bucket_world import (
    FIRST,
    PARSED,
    SCHEMAS,
    World,
    an_id,
    datum,
    hour_at,
    some_ids,
)
from tests.support.containers import append_all

from hourmark.config.groups import AvroCodec
from hourmark.errors import Finding
from hourmark_etl.buckets.avro_container import ContainerReader, ContainerWriter
from hourmark_etl.closing.write import writing
from hourmark_etl.closing.write.containers import ContainerSet
from hourmark_etl.ids import lookups as ids_module
from hourmark_etl.ids.lookups import IdQuery, Ids, find_contained_ids
from hourmark_etl.ledger.closed import ClosedBucket, IdIndexSegment, closed_buckets
from hourmark_etl.storage import BadBlocks, LocalDisk, NotFound, Storage, StorageError
from hourmark_etl.storage.folders import INDEX_FOLDER


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def incompressible(event_id: bytes) -> bytes:
    """The datum of an event of some 1.2 kB."""
    file, drawn = io.BytesIO(), random.Random(event_id)
    value = {
        "event_id": event_id,
        "event_time": 0,
        "host": drawn.randbytes(600).hex(),
        "source": "s",
        "position": 1,
        "n": 5,
    }
    fastavro.schemaless_writer(file, PARSED[1], value)
    return file.getvalue()


def put_index(storage: Storage, buckets: Mapping[str, list[bytes]]) -> dict[str, ClosedBucket]:
    """The index of one task, of one bucket of each type; nothing else of them is there."""
    with storage.create("written.ids") as file:
        index = ids_module.IndexWriter(file, "written.ids")
        rows = [
            np.frombuffer(b"".join(sorted(ids)), np.uint8).reshape(-1, 16)
            for ids in buckets.values()
        ]
        firsts = [
            index.write(event_type, 0, own) for event_type, own in zip(buckets, rows, strict=True)
        ]
        index.finish()
    storage.move_file("written.ids", path := f"index-{index.digest}.ids")
    return {
        event_type: ClosedBucket(
            event_type=event_type,
            hour_s=0,
            origin_hours=(FIRST,),
            events=len(ids),
            index=(IdIndexSegment(path, first, len(ids)),),
            files=(("gone", ""),),
        )
        for (event_type, ids), first in zip(buckets.items(), firsts, strict=True)
    }


def test_an_index_is_opened_once_for_all_types_that_it_speaks_of() -> None:
    storage = Opened()
    own = {f"type-{n}": [an_id(FIRST, 100 * n + i) for i in range(9)] for n in range(50)}
    buckets, others = (
        put_index(storage, own),
        put_index(storage, {t: [an_id(FIRST, -1)] for t in own}),
    )
    wanted = {t: [*ids[::2], an_id(FIRST, 9_999)] for t, ids in own.items()}
    storage.opened.clear()
    found = find_contained_ids(
        storage,
        [IdQuery([buckets[t], others[t]], np.array(ids, "S16")) for t, ids in wanted.items()],
    )
    assert [list(f) for f in found if not isinstance(f, Finding)] == [[True] * 5 + [False]] * 50
    assert sorted(storage.opened) == sorted(
        {run.path for b in (buckets, others) for run in b["type-0"].index}
    )


def test_the_index_of_an_hour_of_several_containers_spares_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that is full ends a run of rows anywhere within a block of the index."""
    monkeypatch.setattr(writing, "ContainerSet", partial(ContainerSet, step_bytes=64 << 10))
    world = World(tmp_path, storage := Opened(), target_file_bytes=1 << 20, tasks=1)
    ids = some_ids(1_800)
    manifest = world.close(FIRST, world.stage(ids, datums={i: incompressible(i) for i in ids}))
    storage.opened.clear()
    assert asked(storage, bucket := bucket_of(world), [ids[5], an_id(FIRST, -1)]) == [True, False]
    assert len(manifest.files) == 2 and bucket.is_indexed
    assert storage.opened == [run.path for run in bucket.index], "the index, once, and no container"


@pytest.mark.parametrize("indexed", [True, False])
def test_a_bucket_is_asked_only_for_ids_of_hours_that_it_holds(
    tmp_path: Path, indexed: bool
) -> None:
    """Else each of K units that were staged again reads all of K buckets."""
    world = World(tmp_path, storage := Opened())
    late = {n: an_id(hour_at(n), 99) for n in range(6)}  # each comes two buckets later
    own = {n: some_ids(10, hour_at(n)) for n in range(8)}
    for n, ids in own.items():
        world.close(
            hour_at(n), world.stage([*ids, *([late[n - 2]] if n > 1 else [])]), indexed=indexed
        )
    origins = {hour_at(n).start_s for n in own}
    buckets = closed_buckets(world.database, {"click": origins}, 3600)["click"]
    storage.opened.clear()
    (found,) = find_contained_ids(
        storage, [IdQuery(buckets, np.array([*own[3], late[3], an_id(hour_at(3), 77)], "S16"))]
    )
    assert not isinstance(found, Finding) and list(found) == [True] * 11 + [False]
    of = [buckets[3], buckets[5]]
    expected = (
        [run.path for b in of for run in b.index]
        if indexed
        else [path for b in of for path, _ in b.files]
    )
    assert sorted(storage.opened) == sorted(expected)


@pytest.mark.parametrize("trouble", [BadBlocks, NotFound])
def test_a_bucket_of_which_the_storage_lost_content_concerns_its_own_type_alone(
    trouble: type[StorageError], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {n: some_ids(10, hour_at(n)) for n in range(2)}
    for n, ids in own.items():
        world.close(hour_at(n), world.stage(ids), indexed=False)
    lost, whole = bucket_of(world, 0), bucket_of(world, 1)
    real = LocalDisk.open

    def refused(self: LocalDisk, path: str, *, size: int | None = None) -> BinaryIO:
        if path == lost.files[0][0]:
            raise trouble(path, self.url(path), "no live replica has it")
        return real(self, path, size=size)

    monkeypatch.setattr(LocalDisk, "open", refused)
    first, second = find_contained_ids(
        world.storage, [IdQuery([b], np.array(own[n], "S16")) for n, b in enumerate((lost, whole))]
    )
    assert not isinstance(second, Finding) and second.all()
    assert (
        isinstance(first, Finding)
        and lost.files[0][0] in str(first)
        and "no live replica has it" in str(first)
    )
    assert "Restore the file; closing then continues automatically" in str(first)


@pytest.mark.parametrize(
    "trouble", [MemoryError(), StorageError("part", "hdfs://x/part", "no answer")]
)
def test_what_is_no_fault_of_a_bucket_is_not_said_to_be_one(
    trouble: Exception, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.close(FIRST, world.stage(ids := some_ids(10)), indexed=False)

    def fails(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(fastavro, "reader", fails)
    with pytest.raises(type(trouble)):
        asked(world.storage, bucket_of(world), ids)


def test_ids_that_cannot_be_used_concern_their_own_bucket_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Opened()
    own = {t: [an_id(FIRST, n) for n in range(9)] for t in ("click", "damaged", "view")}
    buckets = put_index(storage, own)
    (run,) = buckets["damaged"].index
    content = bytearray(storage.read(run.path))
    content[run.first_row * 16] ^= 1
    storage.delete(run.path)
    storage.write_new(run.path, bytes(content))
    first, of_it, last = find_contained_ids(
        storage, [IdQuery([buckets[t]], np.array(ids, "S16")) for t, ids in own.items()]
    )
    assert (
        not isinstance(first, Finding)
        and not isinstance(last, Finding)
        and [*first, *last] == [True] * 18
    )
    assert isinstance(of_it, Finding) and "a closed bucket lists the file" in str(of_it)
    assert "an event id index cannot be used" in caplog.text and "damaged" in caplog.text


@given(
    st.sets(st.integers(0, 300)),
    st.lists(st.integers(0, 300), max_size=20),
    st.integers(20, 2000),
    st.sampled_from(get_args(AvroCodec)),
)
@settings(max_examples=40, deadline=None)
def test_index_and_containers_give_the_same_exact_answer(
    tmp_path_factory: pytest.TempPathFactory,
    inside: set[int],
    wanted: list[int],
    block_bytes: int,
    codec: AvroCodec,
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    storage = LocalDisk(folder)
    own = sorted(an_id(FIRST, n) for n in inside)
    with storage.create("index.ids") as file:
        index = ids_module.IndexWriter(file, "index.ids", rows_in_block=7)
        index.write("click", 1, np.frombuffer(b"\xff" * 16, np.uint8).reshape(1, 16))
        first = index.write("click", 0, np.frombuffer(b"".join(own), np.uint8).reshape(-1, 16))
        index.finish()
    path = f"index-{index.digest}.ids"
    storage.rename_new("index.ids", path)
    with storage.create("part") as file:
        writer = ContainerWriter(file, json.dumps(SCHEMAS[1]), codec=codec, block_bytes=block_bytes)
        append_all(writer, (datum(event_id) for event_id in own))
        digest = writer.close().blake2b
    indexed = ClosedBucket(
        event_type="click",
        hour_s=0,
        origin_hours=(FIRST,),
        events=len(own),
        index=(IdIndexSegment(path, first, len(own)),),
        files=(),
    )
    read = ClosedBucket(
        event_type="click",
        hour_s=0,
        origin_hours=(FIRST,),
        events=len(own),
        index=(),
        files=(("part", digest),),
    )
    ids = [an_id(FIRST, n) for n in wanted] + [b"\xff" * 16, bytes(16)]
    expected = [n in inside for n in wanted] + [False, False]
    assert asked(storage, indexed, ids) == expected
    assert asked(storage, read, ids) == expected if own else True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "read"), [(BadBlocks, ["type-3"]), (StorageError, [f"type-{n}" for n in range(3, 9)])]
)
def test_a_place_that_cannot_be_read_concerns_its_own_bucket_and_a_server_that_is_away_those_behind(
    error: type[StorageError],
    read: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = Opened()
    own = {f"type-{n}": [an_id(FIRST, 100 * n + i) for i in range(5000)] for n in range(9)}
    buckets = put_index(storage, own)
    (run,) = buckets["type-3"].index

    def refused(start: int, size: int) -> None:
        if start == run.first_row * 16:
            raise error(run.path, run.path, "no answer")

    watched(monkeypatch, storage, refused)
    found = find_contained_ids(
        storage, [IdQuery([buckets[t]], np.array(ids[:3], "S16")) for t, ids in own.items()]
    )
    assert [t for t, of in zip(own, found, strict=True) if isinstance(of, Finding)] == read, (
        "their containers are gone"
    )
    assert [list(of) for of in found if not isinstance(of, Finding)] == [[True] * 3] * (
        9 - len(read)
    )
    assert caplog.text.count("an event id index cannot be used") == 1


def test_a_block_is_believed_whatever_byte_its_digest_ends_with(tmp_path: Path) -> None:
    """numpy drops zeros at the end of a text: of 256 blocks one seemed damaged."""
    storage, own = LocalDisk(tmp_path), sorted(an_id(FIRST, n) for n in range(2000))
    with storage.create("index.ids") as file:
        index = ids_module.IndexWriter(file, "index.ids", rows_in_block=1)
        index.write("click", 0, np.frombuffer(b"".join(own), np.uint8).reshape(-1, 16))
        index.finish()
    path = f"index-{index.digest}.ids"
    storage.rename_new("index.ids", path)
    indexed = ClosedBucket(
        event_type="click",
        hour_s=0,
        origin_hours=(FIRST,),
        events=len(own),
        index=(IdIndexSegment(path, 0, len(own)),),
        files=(),
    )
    assert all(asked(storage, indexed, own))


def test_few_ids_read_few_row_groups_and_decode_few_blocks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 100)
    monkeypatch.setattr(
        ContainerWriter.__init__, "__kwdefaults__", {**_defaults(), "block_bytes": 2_000}
    )
    ids = some_ids(5_000)
    world.close(FIRST, world.stage(ids))
    bucket = bucket_of(world)
    asked_for: list[int] = []
    watched(monkeypatch, storage := LocalDisk(world.root), lambda _, size: asked_for.append(size))
    assert asked(storage, bucket, [ids[7], ids[8]]) == [True, True]
    assert len(asked_for[1:]) <= 2 and set(asked_for[1:]) == {1600}
    decoded: list[object] = []
    whole = fastavro.reader

    def counted(container: BinaryIO, schema: Any) -> Any:
        decoded.append(container)
        return whole(container, schema)

    monkeypatch.setattr(fastavro, "reader", counted)
    assert asked(
        LocalDisk(world.root), dataclasses.replace(bucket, index=()), [ids[7], ids[8]]
    ) == [True, True]
    assert 1 <= len(decoded) <= 2


def test_late_ids_of_many_hours_are_each_compared_with_their_own_bucket_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = Counter[str]()
    whole = np.intersect1d

    def counted(candidates: Ids, own: Ids) -> Ids:
        compared["ids"] += len(candidates)
        return whole(candidates, own)

    ids = {n: [an_id(hour_at(n), i) for i in range(10)] for n in range(12)}
    for n, own in ids.items():
        world.close(hour_at(n), world.stage(own), indexed=False)
    buckets = [bucket_of(world, n) for n in ids]
    monkeypatch.setattr(np, "intersect1d", counted)
    late = np.array([i for own in ids.values() for i in own], "S16")
    (found,) = find_contained_ids(world.storage, [IdQuery(buckets, late)])
    assert not isinstance(found, Finding) and found.all()
    assert compared["ids"] == len(late)


def _defaults() -> dict[str, object]:
    return dict(ContainerWriter.__init__.__kwdefaults__ or {})


def test_containers_that_are_not_sorted_are_decoded_whole(tmp_path: Path) -> None:
    storage, ids = LocalDisk(tmp_path), some_ids(60)  # drawn times: in no order
    with storage.create("part") as file:
        writer = ContainerWriter(file, json.dumps(SCHEMAS[1]), block_bytes=1)
        append_all(writer, (datum(event_id) for event_id in ids))
        digest = writer.close().blake2b
    read = ClosedBucket(
        event_type="click",
        hour_s=0,
        origin_hours=(FIRST,),
        events=60,
        index=(),
        files=(("part", digest),),
    )
    assert all(asked(storage, read, ids))


def test_a_lost_index_costs_reading_the_bucket_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ids = some_ids(20)
    world.close(FIRST, world.stage(ids))
    for file in (world.root / INDEX_FOLDER).iterdir():
        file.unlink()
    assert all(asked(LocalDisk(world.root), bucket_of(world), ids))
    assert "reading the bucket instead" in caplog.text


def test_blocks_of_buckets_are_walked_as_they_were_written(world: World) -> None:
    world.close(FIRST, world.stage(some_ids(20)))
    ((path, _),) = bucket_of(world).files
    assert (
        sum(block.records for block in ContainerReader(io.BytesIO(world.storage.read(path)))) == 20
    )


def test_no_flipped_bit_of_an_index_or_a_container_hides_an_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 8)
    ids = some_ids(50)
    world.close(FIRST, world.stage(ids))
    bucket = bucket_of(world)
    ((container, _),) = bucket.files
    (index,) = {run.path for run in bucket.index}
    seed = random.randrange(2**32)
    print("seed", seed)
    outcomes: Counter[str] = Counter()
    for path, of in ((index, bucket), (container, dataclasses.replace(bucket, index=()))):
        file = world.root / path
        good = file.read_bytes()
        for bit in random.Random(seed).sample(range(8 * len(good)), 400):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            file.write_bytes(bad)
            try:
                assert all(asked(LocalDisk(world.root), of, ids)), f"bit {bit} of {path}"
                outcomes[path] += 1
            except Finding as error:
                assert "of a closed bucket is damaged" in str(error)
        file.write_bytes(good)
    assert outcomes == {index: 400}  # the bucket itself was read; of it nothing flipped is believed


def test_rows_of_another_bucket_are_not_an_index_of_this_one(world: World) -> None:
    """As if a row of the ledger had changed."""
    ids = some_ids(20)
    world.close(FIRST, world.stage(ids))
    world.close(hour_at(1), world.stage(some_ids(20, hour_at(1))))
    first, second = bucket_of(world), bucket_of(world, 1)
    for run in (
        second.index[0],
        dataclasses.replace(first.index[0], first_row=1),
        dataclasses.replace(first.index[0], path="x"),
    ):
        assert all(asked(LocalDisk(world.root), dataclasses.replace(first, index=(run,)), ids))
