"""One contract of publishing over every storage: once, whole, read back, and whoever was first
stands.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.bucket_world import SCHEMAS, World, an_id, frontier, hour_at, publish

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import NotClosed, find_manifest, read_manifest
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.publication.attempts import attempt_folder
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.model import StagedGroup
from hourmark_etl.storage import FolderStorage, NotFound, Storage, StorageError

HOUR = hour_at(0)
BUCKET = HOUR.bucket_path("click")
IDS = [an_id(HOUR, n) for n in range(30)]


@pytest.fixture
def world(storage: Storage, tmp_path: Path) -> World:
    return World(tmp_path, storage)


@pytest.fixture
def rename_world(folders: FolderStorage, tmp_path: Path) -> World:
    """For what is different on an object store: tests/unit/etl/closing/test_selection.py."""
    return World(tmp_path, folders)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A written hour, and the manifest that is to be published with it."""

    files: WrittenHour
    manifest: Manifest


def attempt(world: World, listed: tuple[StagedGroup, ...]) -> Attempt:
    name = uuid.uuid4().hex
    files = world.write(HOUR, listed, name)
    manifest = build_manifest(
        frontier(HOUR),
        files,
        listed=listed,
        fingerprints=dict.fromkeys(SCHEMAS, "mark"),
        previous=None,
        ledger=("ledger", 1),
        attempt=name,
        now_ms=HOUR.end_ms,
    )
    return Attempt(files, manifest)


def published(world: World, one: Attempt) -> Manifest:
    return publish(world.storage, frontier(HOUR), one.files, one.manifest)


def standing(world: World) -> Manifest | None:
    return find_manifest(world.storage, frontier(HOUR).event_type, HOUR)


def contents(world: World) -> dict[str, bytes]:
    return {
        entry.name: world.storage.read(f"{BUCKET}/{entry.name}")
        for entry in world.storage.list(BUCKET)
    }


def ids_in_bucket(world: World) -> list[bytes]:
    events = world.events(HOUR, read_manifest(world.storage, "click", HOUR))
    return sorted(event["event_id"] for event in events)


def test_a_bucket_holds_the_manifests_files_and_nothing_else(world: World) -> None:
    late = an_id(hour_at(-1), 1)
    one = attempt(world, world.stage([*IDS, *IDS[:5], late]) + world.stage(IDS[:2], 2))
    assert published(world, one) == one.manifest == standing(world)
    assert contents(world).keys() == {MARKER, *(f.name for f in one.manifest.files)}
    assert ids_in_bucket(world) == sorted([*IDS, late])
    assert one.manifest.late == {str(hour_at(-1)): 1}
    books = {hour: (b.rows, b.events) for hour, b in one.manifest.books.items()}
    assert books == {str(hour_at(-1)): (1, 1), str(HOUR): (37, 30)}


def test_an_hour_without_events_is_a_marker_alone(world: World) -> None:
    one = attempt(world, ())
    assert published(world, one).files == []
    assert [*contents(world)] == [MARKER]


def test_what_stands_is_never_replaced(world: World) -> None:
    listed = world.stage(IDS)
    first, second = attempt(world, listed), attempt(world, listed)
    assert published(world, first) == first.manifest
    before = contents(world)
    assert published(world, second) == first.manifest
    assert contents(world) == before


def test_of_many_closers_one_publishes_and_all_agree(world: World) -> None:
    listed = world.stage(IDS)
    attempts = [attempt(world, listed) for _ in range(4)]
    with ThreadPoolExecutor(len(attempts)) as pool:
        told = list(pool.map(lambda one: published(world, one), attempts))
    assert len({m.attempt for m in told}) == 1
    assert ids_in_bucket(world) == sorted(IDS)


def test_a_folder_without_a_marker_is_nobodys_bucket(world: World) -> None:
    world.storage.write_new(f"{BUCKET}/stray", b"x")
    with pytest.raises(Finding, match="has no _SUCCESS"):
        published(world, attempt(world, world.stage(IDS)))
    assert [*contents(world)] == ["stray"]


def more(world: World, one: Attempt) -> Attempt:
    world.storage.write_new(f"{attempt_folder(frontier(HOUR), one.manifest.attempt)}/stray", b"x")
    return one


def shorter(world: World, one: Attempt) -> Attempt:
    (file,) = one.manifest.files
    return Attempt(
        one.files,
        one.manifest.model_copy(
            update={"files": [file.model_copy(update={"bytes": file.bytes - 1})]}
        ),
    )


def troubled(_: World, one: Attempt) -> Attempt:
    return Attempt(
        dataclasses.replace(one.files, publish_error="it does not read back"), one.manifest
    )


@pytest.mark.parametrize("spoil", [shorter, troubled])
def test_what_does_not_read_back_is_not_published(
    world: World, spoil: Callable[[World, Attempt], Attempt]
) -> None:
    assert_not_published(world, spoil)


def test_more_than_the_manifest_lists_is_not_published(rename_world: World) -> None:
    assert_not_published(rename_world, more)


def assert_not_published(world: World, spoil: Callable[[World, Attempt], Attempt]) -> None:
    listed = world.stage(IDS)
    with pytest.raises(Finding, match=r"not published|read back"):
        published(world, spoil(world, attempt(world, listed)))
    with pytest.raises(NotClosed):
        read_manifest(world.storage, "click", HOUR)
    again = attempt(world, listed)
    assert published(world, again) == again.manifest


class Interrupted(Exception):
    """A crash."""


class Interrupting:
    """A storage on which the process ends at the n-th call that changes something; before it, or
    just after it.
    """

    def __init__(self, storage: Storage, calls: int, after: bool) -> None:
        self._storage, self._calls, self._after = storage, calls, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._storage, name)
        if name not in ("make_folder", "rename_new", "write_new"):
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            self._calls -= 1
            if self._calls == 0 and not self._after:
                raise Interrupted
            answer = real(*arguments, **named)
            if self._calls == 0:
                raise Interrupted
            return answer

        return call


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_anywhere_leaves_no_bucket_or_a_whole_one(rename_world: World, after: bool) -> None:
    world = rename_world
    listed = world.stage(IDS)
    told = Counter[str]()
    for calls in range(1, 5):
        one = attempt(world, listed)
        try:
            publish(
                Interrupting(world.storage, calls, after), frontier(HOUR), one.files, one.manifest
            )
        except Interrupted:
            told["interrupted"] += 1
        if standing(world) is None:
            with pytest.raises(NotFound):
                world.storage.list(BUCKET)
        else:
            told["stands"] += 1
            assert ids_in_bucket(world) == sorted(IDS)
    assert told["interrupted"] >= 3 and told["stands"] >= 1


def test_the_answer_of_the_rename_that_is_lost_is_settled_by_the_marker(
    rename_world: World,
) -> None:
    world = rename_world
    one = attempt(world, world.stage(IDS))
    target = Interrupting(world.storage, 3, after=True)  # marker, file, bucket
    with pytest.raises(Interrupted):
        publish(target, frontier(HOUR), one.files, one.manifest)
    assert standing(world) == one.manifest
    with pytest.raises((StorageError, Finding)):
        published(
            world, one
        )  # its files are in the bucket already: whoever comes back reads the marker instead


def test_manifests_from_before_the_books_are_read(world: World) -> None:
    one = attempt(world, world.stage(IDS))
    told = one.manifest.model_dump(mode="json")
    del told["books"]
    told["software"] = "hourmark 0.2.0"
    old = Manifest.model_validate(told)
    assert old.books == {} and Manifest.decode(old.encode()) == old
