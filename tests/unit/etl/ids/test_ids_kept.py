"""Index files of ids: kept beside closed buckets, found again, forgotten."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.support.asked_ids import asked, bucket_of, small_blocks
from tests.support.bucket_world import FIRST, World, an_id, hour_at, some_ids

from hourmark_etl.closing.write.id_indexes import clean_indexes, publish_indexes
from hourmark_etl.ids.index_files import list_index_files, read_bucket_runs
from hourmark_etl.storage import AccessDenied, BadBlocks, LocalDisk, NotFound, StorageError
from hourmark_etl.storage.folders import INDEX_FOLDER

HOUR_MS = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_index_is_kept_only_for_buckets_of_its_own_attempt(world: World) -> None:
    listed = world.stage([an_id(FIRST, 1)])
    written = world.write(FIRST, listed, "mine")
    manifest = world.close(FIRST, listed, indexed=False)  # another closer was first
    assert manifest.attempt != "mine"
    publish_indexes(world.storage, world.database, world.lease, "mine", [manifest], [written], 0)
    assert not bucket_of(world).is_indexed
    assert not world.storage.exists(INDEX_FOLDER)


def test_what_an_index_says_of_buckets_is_found_again_by_their_markers(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small_blocks(monkeypatch, 7)
    manifests = {
        n: world.close(hour_at(n), world.stage([*some_ids(30, hour_at(n)), an_id(FIRST, n)]))
        for n in range(3)
    }
    world.storage.write_new(f"{INDEX_FOLDER}/20300101T000000-before-names-told-it.ids", b"")
    files = list_index_files(world.storage)
    assert sorted(files.values()) == sorted(m.attempt for m in manifests.values())
    for n, manifest in manifests.items():
        (path,) = (path for path, attempt in files.items() if attempt == manifest.attempt)
        others = [("click", hour_at(n + 1).start_s), ("view", hour_at(n).start_s)]
        found = read_bucket_runs(world.storage, path, [("click", hour_at(n).start_s), *others])
        bucket = dataclasses.replace(bucket_of(world, n), index=tuple(run for *_, run in found))
        assert {(event_type, hour_s) for event_type, hour_s, _ in found} == {
            ("click", hour_at(n).start_s)
        }
        assert (
            bucket.is_indexed and sum(asked(world.storage, bucket, some_ids(30, hour_at(n)))) == 30
        )
        assert read_bucket_runs(world.storage, path, others) == []
    (world.root / path).write_bytes((world.root / path).read_bytes()[:-1])
    assert read_bucket_runs(world.storage, path, [("click", hour_at(2).start_s)]) == []
    assert "late events will read the buckets instead" in caplog.text


@pytest.mark.parametrize(
    ("trouble", "goes_on"),
    [(BadBlocks, True), (NotFound, True), (AccessDenied, True), (StorageError, False)],
)
def test_an_index_that_is_lost_is_left_out_and_a_server_that_is_away_is_waited_for(
    trouble: type[StorageError], goes_on: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that no row names is deleted after a day, so an outage must not leave rows out."""
    world.close(FIRST, world.stage(some_ids(5)))
    (path,) = list_index_files(world.storage)

    def refused(self: LocalDisk, path: str, *, size: int | None = None) -> BinaryIO:
        raise trouble(path, self.url(path), "no answer")

    monkeypatch.setattr(LocalDisk, "open", refused)
    if goes_on:
        assert read_bucket_runs(world.storage, path, [("click", FIRST.start_s)]) == []
        return
    with pytest.raises(trouble, match="no answer"):
        read_bucket_runs(world.storage, path, [("click", FIRST.start_s)])


def test_two_copies_of_one_index_are_one(world: World) -> None:
    """Their rows would stand for those of an index that is lost."""
    world.close(FIRST, world.stage(some_ids(5)))
    (path,) = list_index_files(world.storage)
    kept_by = path.partition("-")[2]
    world.storage.write_new(f"{INDEX_FOLDER}/20990101T000000-{kept_by}", world.storage.read(path))
    assert len(world.storage.list(INDEX_FOLDER)) == 2 and len(list_index_files(world.storage)) == 1


def test_a_storage_that_refuses_an_index_holds_nothing_up(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def refuse(self: LocalDisk, source: str, target: str, **_: object) -> None:
        raise (
            AccessDenied(target, "file:///x", "denied")
            if target.startswith(INDEX_FOLDER)
            else AssertionError(source)
        )

    listed = world.stage([an_id(FIRST, 1)])
    manifest = world.close(FIRST, listed, indexed=False).model_copy(update={"attempt": "mine"})
    written = world.write(FIRST, listed, "mine")
    monkeypatch.setattr(LocalDisk, "rename_new", refuse)
    publish_indexes(world.storage, world.database, world.lease, "mine", [manifest], [written], 0)
    assert "not indexed" in caplog.text


def test_old_and_large_indexes_are_forgotten_and_their_files_deleted(world: World) -> None:
    for number in range(6):
        world.close(hour_at(number), world.stage(some_ids(10, hour_at(number))))
    world.storage.write_new(f"{INDEX_FOLDER}/20990101T000000-fresh.ids", b"its row is on its way")
    now_ms = hour_at(5).start_s * 1000 + 48 * HOUR_MS

    def clean(hours_max: int, bytes_max: int) -> list[bool]:
        clean_indexes(
            world.storage,
            world.database,
            world.lease,
            hours_max=hours_max,
            bytes_max=bytes_max,
            now_ms=now_ms,
            files_max=2,
        )
        return [bucket_of(world, number).is_indexed for number in range(6)]

    assert clean(1000, 10**6) == [True] * 6
    assert clean(48 + 3, 10**6) == [False, False, True, True, True, True]
    assert clean(1000, 2 * 160 + 159) == [False] * 4 + [True, True]
    names = [entry.name for entry in world.storage.list(INDEX_FOLDER)]
    assert len(names) == 3 and "20990101T000000-fresh.ids" in names
    assert world.close(hour_at(6), world.stage([an_id(FIRST, 1), an_id(hour_at(5), 1)])).events == 0
