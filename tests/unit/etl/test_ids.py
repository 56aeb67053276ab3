"""Which ids closed buckets hold: the same answer by index and by containers, and little is read for few ids."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.bucket_world import FIRST, SCHEMAS, World, an_id, datum, hour_at, some_ids
from tests.support.containers import append_all
from tests.support.memory_storage import MemoryStorage

from hourmark.errors import Finding
from hourmark_etl.buckets.avro_container import ContainerReader, ContainerWriter
from hourmark_etl.closing.write.id_indexes import clean_indexes, keep_indexes
from hourmark_etl.folders import INDEX_FOLDER
from hourmark_etl.ids import lookups as ids_module
from hourmark_etl.ids.kept import kept_files, kept_runs
from hourmark_etl.ids.lookups import Asked, Ids, held
from hourmark_etl.ledger.closed import ClosedBucket, IdRun, closed_buckets
from hourmark_etl.storage import AccessDenied, BadBlocks, LocalDisk, Storage, StorageError

HOUR_MS = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def bucket_of(world: World, number: int = 0) -> ClosedBucket:
    (found,) = closed_buckets(world.database, {"click": {hour_at(number).start_s}}, 3600)["click"]
    return found


def asked(storage: Storage, bucket: ClosedBucket, ids: list[bytes]) -> list[bool]:
    (found,) = held(storage, [Asked([bucket], np.array(ids, "S16"))])
    if isinstance(found, Finding):
        raise found
    return list(found)


class Opened(MemoryStorage):
    """Remembers what was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        self.opened.append(path)
        return super().open(path, size=size)


def put_index(storage: Storage, buckets: Mapping[str, list[bytes]]) -> dict[str, ClosedBucket]:
    """The index of one task, of one bucket of each type; nothing else of them is there."""
    with storage.create("written.ids") as file:
        index = ids_module.IndexWriter(file, "written.ids")
        rows = [np.frombuffer(b"".join(sorted(ids)), np.uint8).reshape(-1, 16) for ids in buckets.values()]
        firsts = [index.write(event_type, 0, own) for event_type, own in zip(buckets, rows, strict=True)]
        index.finish()
    storage.rename_new("written.ids", path := f"index-{index.digest}.ids")
    return {
        event_type: ClosedBucket(
            event_type=event_type, hour_s=0, events=len(ids), index=(IdRun(path, first, len(ids)),), files=(("gone", ""),)
        )
        for (event_type, ids), first in zip(buckets.items(), firsts, strict=True)
    }


def test_an_index_is_opened_once_for_all_types_that_it_speaks_of() -> None:
    storage = Opened()
    own = {f"type-{n}": [an_id(FIRST, 100 * n + i) for i in range(9)] for n in range(50)}
    buckets, others = put_index(storage, own), put_index(storage, {t: [an_id(FIRST, -1)] for t in own})
    wanted = {t: [*ids[::2], an_id(FIRST, 9_999)] for t, ids in own.items()}
    storage.opened.clear()
    found = held(storage, [Asked([buckets[t], others[t]], np.array(ids, "S16")) for t, ids in wanted.items()])
    assert [list(f) for f in found if not isinstance(f, Finding)] == [[True] * 5 + [False]] * 50
    assert sorted(storage.opened) == sorted({run.path for b in (buckets, others) for run in b["type-0"].index})


def test_ids_that_cannot_be_used_concern_their_own_bucket_alone(caplog: pytest.LogCaptureFixture) -> None:
    storage = Opened()
    own = {t: [an_id(FIRST, n) for n in range(9)] for t in ("click", "damaged", "view")}
    buckets = put_index(storage, own)
    (run,) = buckets["damaged"].index
    content = bytearray(storage.read(run.path))
    content[run.first_row * 16] ^= 1
    storage.delete(run.path)
    storage.write_new(run.path, bytes(content))
    first, of_it, last = held(storage, [Asked([buckets[t]], np.array(ids, "S16")) for t, ids in own.items()])
    assert not isinstance(first, Finding) and not isinstance(last, Finding) and [*first, *last] == [True] * 18
    assert isinstance(of_it, Finding) and "it is listed by a closed bucket" in str(of_it)
    assert "an index of ids cannot be used" in caplog.text and "damaged" in caplog.text


@given(st.sets(st.integers(0, 300)), st.lists(st.integers(0, 300), max_size=20), st.integers(20, 2000))
@settings(max_examples=40, deadline=None)
def test_index_and_containers_give_the_same_exact_answer(
    tmp_path_factory: pytest.TempPathFactory, inside: set[int], wanted: list[int], block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    storage = LocalDisk(folder)
    own = sorted(an_id(FIRST, n) for n in inside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_module, "_ROWS_IN_BLOCK", 7)
        with storage.create("index.ids") as file:
            index = ids_module.IndexWriter(file, "index.ids")
            index.write("click", 1, np.frombuffer(b"\xff" * 16, np.uint8).reshape(1, 16))
            first = index.write("click", 0, np.frombuffer(b"".join(own), np.uint8).reshape(-1, 16))
            index.finish()
    path = f"index-{index.digest}.ids"
    storage.rename_new("index.ids", path)
    with storage.create("part") as file:
        writer = ContainerWriter(file, json.dumps(SCHEMAS[1]), block_bytes=block_bytes)
        append_all(writer, (datum(event_id) for event_id in own))
        digest = writer.close().blake2b
    indexed = ClosedBucket(event_type="click", hour_s=0, events=len(own), index=(IdRun(path, first, len(own)),), files=())
    read = ClosedBucket(event_type="click", hour_s=0, events=len(own), index=(), files=(("part", digest),))
    ids = [an_id(FIRST, n) for n in wanted] + [b"\xff" * 16, bytes(16)]
    expected = [n in inside for n in wanted] + [False, False]
    assert asked(storage, indexed, ids) == expected
    assert asked(storage, read, ids) == expected if own else True


@pytest.mark.parametrize(("error", "read"), [(BadBlocks, ["type-3"]), (StorageError, [f"type-{n}" for n in range(3, 9)])])
def test_a_place_that_cannot_be_read_concerns_its_own_bucket_and_a_server_that_is_away_those_behind(
    error: type[StorageError], read: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Opened()
    own = {f"type-{n}": [an_id(FIRST, 100 * n + i) for i in range(5000)] for n in range(9)}
    buckets, real = put_index(storage, own), ids_module._read_at
    (run,) = buckets["type-3"].index

    def refused(file: BinaryIO, start: int, size: int) -> bytes:
        if start == run.first_row * 16:
            raise error(run.path, run.path, "no answer")
        return real(file, start, size)

    monkeypatch.setattr(ids_module, "_read_at", refused)
    found = held(storage, [Asked([buckets[t]], np.array(ids[:3], "S16")) for t, ids in own.items()])
    assert [t for t, of in zip(own, found, strict=True) if isinstance(of, Finding)] == read, "their containers are gone"
    assert [list(of) for of in found if not isinstance(of, Finding)] == [[True] * 3] * (9 - len(read))
    assert caplog.text.count("an index of ids cannot be used") == 1


def test_a_block_is_believed_whatever_byte_its_digest_ends_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy drops zeros at the end of a text: of 256 blocks one seemed damaged."""
    monkeypatch.setattr(ids_module, "_ROWS_IN_BLOCK", 1)
    storage, own = LocalDisk(tmp_path), sorted(an_id(FIRST, n) for n in range(2000))
    with storage.create("index.ids") as file:
        index = ids_module.IndexWriter(file, "index.ids")
        index.write("click", 0, np.frombuffer(b"".join(own), np.uint8).reshape(-1, 16))
        index.finish()
    path = f"index-{index.digest}.ids"
    storage.rename_new("index.ids", path)
    indexed = ClosedBucket(event_type="click", hour_s=0, events=len(own), index=(IdRun(path, 0, len(own)),), files=())
    assert all(asked(storage, indexed, own))


def test_few_ids_read_few_row_groups_and_decode_few_blocks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "_ROWS_IN_BLOCK", 100)
    monkeypatch.setattr(ContainerWriter.__init__, "__kwdefaults__", {**_defaults(), "block_bytes": 2_000})
    ids = some_ids(5_000)
    world.close(FIRST, world.stage(ids))
    bucket = bucket_of(world)
    asked_for: list[int] = []
    real = ids_module._read_at

    def recorded(file: BinaryIO, start: int, size: int) -> bytes:
        asked_for.append(size)
        return real(file, start, size)

    monkeypatch.setattr(ids_module, "_read_at", recorded)
    assert asked(LocalDisk(world.root), bucket, [ids[7], ids[8]]) == [True, True]
    assert len(asked_for[1:]) <= 2 and set(asked_for[1:]) == {1600}
    decoded: list[int] = []
    whole = ids_module._ids_of

    def counted(container: bytes) -> Iterator[bytes]:
        decoded.append(len(container))
        return whole(container)

    monkeypatch.setattr(ids_module, "_ids_of", counted)
    assert asked(LocalDisk(world.root), dataclasses.replace(bucket, index=()), [ids[7], ids[8]]) == [True, True]
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
    (found,) = held(world.storage, [Asked(buckets, late)])
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
    read = ClosedBucket(event_type="click", hour_s=0, events=60, index=(), files=(("part", digest),))
    assert all(asked(storage, read, ids))


def test_a_lost_index_costs_reading_the_bucket_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    ids = some_ids(20)
    world.close(FIRST, world.stage(ids))
    for file in (world.root / INDEX_FOLDER).iterdir():
        file.unlink()
    assert all(asked(LocalDisk(world.root), bucket_of(world), ids))
    assert "the bucket itself is read" in caplog.text


def test_an_index_is_kept_only_for_buckets_of_its_own_attempt(world: World) -> None:
    listed = world.stage([an_id(FIRST, 1)])
    written = world.write(FIRST, listed, "mine")
    manifest = world.close(FIRST, listed, indexed=False)  # another closer was first
    assert manifest.attempt != "mine"
    keep_indexes(world.storage, world.database, world.lease, "mine", [manifest], [written], 0)
    assert not bucket_of(world).is_indexed
    assert not world.storage.exists(INDEX_FOLDER)


def test_what_an_index_says_of_buckets_is_found_again_by_their_markers(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ids_module, "_ROWS_IN_BLOCK", 7)
    manifests = {n: world.close(hour_at(n), world.stage([*some_ids(30, hour_at(n)), an_id(FIRST, n)])) for n in range(3)}
    world.storage.write_new(f"{INDEX_FOLDER}/20300101T000000-before-names-told-it.ids", b"")
    files = kept_files(world.storage)
    assert sorted(files.values()) == sorted(m.attempt for m in manifests.values())
    for n, manifest in manifests.items():
        (path,) = (path for path, attempt in files.items() if attempt == manifest.attempt)
        others = [("click", hour_at(n + 1).start_s), ("view", hour_at(n).start_s)]
        found = kept_runs(world.storage, path, [("click", hour_at(n).start_s), *others])
        bucket = dataclasses.replace(bucket_of(world, n), index=tuple(run for *_, run in found))
        assert {(event_type, hour_s) for event_type, hour_s, _ in found} == {("click", hour_at(n).start_s)}
        assert bucket.is_indexed and sum(asked(world.storage, bucket, some_ids(30, hour_at(n)))) == 30
        assert kept_runs(world.storage, path, others) == []
    (world.root / path).write_bytes((world.root / path).read_bytes()[:-1])
    assert kept_runs(world.storage, path, [("click", hour_at(2).start_s)]) == []
    assert "late events will read the buckets instead" in caplog.text


def test_a_storage_that_refuses_an_index_holds_nothing_up(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def refuse(self: LocalDisk, source: str, target: str) -> None:
        raise AccessDenied(target, "file:///x", "denied") if target.startswith(INDEX_FOLDER) else AssertionError(source)

    listed = world.stage([an_id(FIRST, 1)])
    manifest = world.close(FIRST, listed, indexed=False).model_copy(update={"attempt": "mine"})
    written = world.write(FIRST, listed, "mine")
    monkeypatch.setattr(LocalDisk, "rename_new", refuse)
    keep_indexes(world.storage, world.database, world.lease, "mine", [manifest], [written], 0)
    assert "not indexed" in caplog.text


def test_old_and_large_indexes_are_forgotten_and_their_files_deleted(world: World) -> None:
    for number in range(6):
        world.close(hour_at(number), world.stage(some_ids(10, hour_at(number))))
    world.storage.write_new(f"{INDEX_FOLDER}/20990101T000000-fresh.ids", b"its row is on its way")
    now_ms = hour_at(5).start_s * 1000 + 48 * HOUR_MS

    def clean(hours_max: int, bytes_max: int) -> list[bool]:
        clean_indexes(
            world.storage, world.database, world.lease, hours_max=hours_max, bytes_max=bytes_max, now_ms=now_ms, files_max=2
        )
        return [bucket_of(world, number).is_indexed for number in range(6)]

    assert clean(1000, 10**6) == [True] * 6
    assert clean(48 + 3, 10**6) == [False, False, True, True, True, True]
    assert clean(1000, 2 * 160 + 159) == [False] * 4 + [True, True]
    names = [entry.name for entry in world.storage.list(INDEX_FOLDER)]
    assert len(names) == 3 and "20990101T000000-fresh.ids" in names
    assert world.close(hour_at(6), world.stage([an_id(FIRST, 1), an_id(hour_at(5), 1)])).events == 0


def test_blocks_of_buckets_are_walked_as_they_were_written(world: World) -> None:
    world.close(FIRST, world.stage(some_ids(20)))
    ((path, _),) = bucket_of(world).files
    assert sum(block.records for block in ContainerReader(io.BytesIO(world.storage.read(path)))) == 20


def test_no_flipped_bit_of_an_index_or_a_container_hides_an_id(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "_ROWS_IN_BLOCK", 8)
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
    for run in (second.index[0], dataclasses.replace(first.index[0], first_row=1), dataclasses.replace(first.index[0], path="x")):
        assert all(asked(LocalDisk(world.root), dataclasses.replace(first, index=(run,)), ids))
