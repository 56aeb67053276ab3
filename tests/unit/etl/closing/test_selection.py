"""On an object store one attempt becomes the bucket of an hour, wherever closers are killed, paused
or not answered, and whoever completes what another one began.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest
from tests.support.bucket_chains import remove_bucket
from tests.support.object_clients import FAULTS, Fault, FaultyClient, Killed, MemoryClient
from tests.support.records import HOUR, frontier, seal

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import find_manifest, list_bucket_files
from hourmark_etl.buckets.selections import find_interrupted, record_path, selection_path
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.publication.port import PreparedBucket
from hourmark_etl.closing.publication.selection import SelectPublication
from hourmark_etl.closing.write.containers import WrittenFile, WrittenHour
from hourmark_etl.closing.write.parquet_files import WrittenParquet
from hourmark_etl.model import HourState
from hourmark_etl.storage import ObjectStorage, StorageError, delete_all, list_if_exists
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

F = frontier(state=HourState.SEALED, seal=seal())
BUCKET = HOUR.bucket_path("click")
SELECTION = selection_path("click", HOUR)
CHANGES_MAX = 12  # more than any closer makes


@dataclasses.dataclass
class Store:
    """One object store, its closers, and a judge who looks after every request."""

    client: MemoryClient = dataclasses.field(default_factory=MemoryClient)
    seen: bytes = b""  # the marker that a reader has seen

    @property
    def storage(self) -> ObjectStorage:
        return ObjectStorage(self.client, retry_pauses_s=(0.0, 0.0))

    def closer(self, name: str, faults: dict[int, Fault] | None = None) -> Closer:
        return Closer(self, name, FaultyClient(self.client, faults))

    def records(self) -> list[str]:
        """Of attempts that may be selected."""
        return [p for p in self.storage.list_files(ATTEMPTS_FOLDER) if p.endswith(MARKER)]

    def judge(self) -> Manifest | None:
        """A bucket with a marker is whole, is of one attempt, and never changes."""
        manifest = find_manifest(self.storage, "click", HOUR)
        if manifest is None:
            assert not self.seen, "a bucket is gone"
            return None
        marker = self.storage.read(f"{BUCKET}/{MARKER}")
        assert self.seen in (b"", marker), "a bucket has changed"
        self.seen = marker
        found = {
            name: self.storage.read(f"{BUCKET}/{name}")
            for name in list_bucket_files(self.storage, BUCKET)
        }
        assert found.pop(MARKER) == marker
        assert found == contents(manifest.attempt)
        return manifest


def contents(attempt: str) -> dict[str, bytes]:
    """What an attempt writes: with other content, and of other sizes, than any other one."""
    names = ("part-00000.avro", "part-00001.avro", "_parquet/part-00000.parquet")
    return {
        name: f"{attempt} {n}".encode() * (len(attempt) + n + 1) for n, name in enumerate(names)
    }


def written_file(path: str, size: int, *parquet: WrittenParquet) -> WrittenFile:
    return WrittenFile(
        event_type="click",
        hour_s=HOUR.start_s,
        late=False,
        schema_id=1,
        path=path,
        records=1,
        bytes=size,
        blake2b="",
        id_sum=0,
        hours={},
        codec="deflate",
        parquet=parquet,
    )


def written_hour(*files: WrittenFile) -> WrittenHour:
    return WrittenHour(
        event_type="click", hour_s=HOUR.start_s, files=files, duplicates={}, publish_error=""
    )


class Closer:
    """Publishes an attempt of its own."""

    def __init__(self, store: Store, name: str, client: FaultyClient) -> None:
        self.store, self.name, self.client = store, name, client
        self.publication = SelectPublication(ObjectStorage(client, retry_pauses_s=(0.0, 0.0)))
        client.before_change = lambda number: self._before(number)
        self.pauses: dict[int, Callable[[], object]] = {}

    def _before(self, number: int) -> None:
        self.store.judge()
        self.pauses.pop(number, lambda: None)()

    def prepare(self) -> PreparedBucket:
        paths = list[str]()
        for n, content in enumerate(contents(self.name).values()):
            paths.append(f"{ATTEMPTS_FOLDER}/{self.name}/_tasks/{n}")
            self.store.storage.write_new(paths[n], content)
        first, second, columns = contents(self.name).values()
        parquet = WrittenParquet(
            path=paths[2], hour_s=HOUR.start_s, records=1, bytes=len(columns), blake2b=""
        )
        written = written_hour(
            written_file(paths[0], len(first), parquet), written_file(paths[1], len(second))
        )
        manifest = build_manifest(
            F,
            written,
            listed=(),
            fingerprints={1: "mark"},
            previous=None,
            ledger=("ledger", 1),
            attempt=self.name,
            now_ms=HOUR.end_ms,
        )
        return SelectPublication(self.store.storage).prepare(F, written, manifest)

    def publish(self) -> Manifest | None:
        """None if it was killed or has given up for now."""
        prepared = self.prepare()
        try:
            (published,) = self.publication.publish([prepared], is_folder_complete=False)
        except (Killed, StorageError):
            return None
        return published


def complete(store: Store, *interrupted: Closer) -> None:
    """A driver without faults starts and publishes; then whatever is late arrives."""
    started = store.closer("last-closer")
    started.publication.complete_interrupted()
    assert store.storage.exists(SELECTION) == (store.judge() is not None)
    last = started.publish()
    assert last == store.judge() is not None
    for closer in interrupted:
        closer.client.deliver_late()
        assert store.judge() == last
        closer.client.faults = {}
        if not closer.client.is_killed:
            assert closer.publication.find(F) == last
    assert store.judge() == last


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_late_early", [False, True])
def test_a_closer_that_is_interrupted_anywhere_leaves_one_bucket(
    fault: Fault, is_late_early: bool
) -> None:
    published = set[str]()
    for number in range(1, CHANGES_MAX):
        store = Store()
        closer = store.closer("first", {number: fault})
        closer.publish()
        if is_late_early:
            closer.client.deliver_late()
        complete(store, closer)
        manifest = store.judge()
        assert manifest is not None
        published.add(manifest.attempt)
        if len(closer.client.changes) < number:
            break
    else:
        pytest.fail("more requests than expected")
    if fault == "killed before":
        assert published == {"first", "last-closer"}, "before the selection, and after it"
    else:
        assert published == {"first"}, "which was selected, or tried again"


@pytest.mark.parametrize("faults", list(itertools.product(FAULTS, repeat=2)))
def test_two_interruptions_one_after_the_other_leave_one_bucket(
    faults: tuple[Fault, Fault],
) -> None:
    for number in range(1, CHANGES_MAX):
        store = Store()
        closer = store.closer("first", {number: faults[0], number + 1: faults[1]})
        closer.publish()
        complete(store, closer)


@pytest.mark.parametrize("fault", [None, "killed before", "killed after", "lost", "late"])
def test_a_closer_that_is_paused_anywhere_while_another_one_publishes_changes_nothing(
    fault: Fault | None,
) -> None:
    published = set[str]()
    for paused_at in range(1, CHANGES_MAX):
        for number in range(1, CHANGES_MAX if fault else 2):
            store = Store()
            paused = store.closer("paused")
            rival = store.closer("the-rival", {number: fault} if fault else {})
            paused.pauses[paused_at] = lambda rival=rival: rival.publish()  # type: ignore[misc]
            paused.publish()
            complete(store, paused, rival)
            manifest = store.judge()
            assert manifest is not None
            published.add(manifest.attempt)
    assert {"paused", "the-rival"} <= published


def test_deleted_attempts_cannot_be_selected_once_the_hour_is_closed() -> None:
    store = Store()
    late = store.closer("late", {1: "late", 2: "dropped", 3: "dropped"})
    assert late.publish() is None
    attempts = late.publication.list_attempts()
    assert attempts == [f"{ATTEMPTS_FOLDER}/late"]
    published = store.closer("other").publish()  # and the ledger records the hour as closed
    delete_all(store.storage, attempts)
    late.client.deliver_late()
    assert late.publication.find(F) == published == store.judge()


def test_an_attempt_that_is_deleted_too_early_and_then_selected_is_reported() -> None:
    store = Store()
    late = store.closer("late", {1: "late", 2: "dropped", 3: "dropped"})
    assert late.publish() is None
    delete_all(store.storage, late.publication.list_attempts())  # while the hour is sealed
    late.client.deliver_late()
    other = store.closer("other")
    with pytest.raises(Finding, match="Restore the file") as caught:
        other.publish()
    assert SELECTION in str(caught.value)
    store.storage.delete(SELECTION)  # as the message says
    store.storage.delete(BUCKET)
    assert other.publication.find(F) is None
    complete(store)


def test_an_attempt_is_kept_while_one_of_its_hours_is_open() -> None:
    store = Store()
    closer = store.closer("first")
    closer.prepare()
    closer.publication.delete_attempt("first", is_closed=False)
    assert len(store.storage.list_files(f"{ATTEMPTS_FOLDER}/first")) == 4
    closer.publication.delete_attempt("first", is_closed=True)
    assert not store.storage.exists(ATTEMPTS_FOLDER)


def test_sources_of_a_published_bucket_are_deleted() -> None:
    store = Store()
    assert store.closer("first").publish() is not None
    assert list_if_exists(store.storage, ATTEMPTS_FOLDER) == []
    assert store.storage.exists(SELECTION), "which keeps every later attempt out"


def test_a_bucket_that_was_removed_by_retention_is_not_published_again() -> None:
    store = Store()
    first = store.closer("first")
    prepared = first.prepare()
    (published,) = first.publication.publish([prepared], is_folder_complete=False)
    for name, source in prepared.sources.items():  # as if they had not been deleted yet
        store.storage.write_new(source, contents("first")[name])
    record = record_path("click", HOUR, "first")
    store.storage.write_new(record, published.encode())
    remove_bucket(store.storage, "click", HOUR)
    started = SelectPublication(store.storage)
    assert find_interrupted(store.storage) == []
    assert started.complete_interrupted() == [published] == [started.find(F)]
    (found,) = started.publish([prepared], is_folder_complete=False)
    assert found == published
    assert list_if_exists(store.storage, BUCKET) == []


@pytest.mark.parametrize("name", ["stray", "part-00000.avro"])
def test_objects_of_other_programs_are_not_published(name: str) -> None:
    store = Store()
    store.storage.write_new(f"{BUCKET}/{name}", b"x")
    with pytest.raises(Finding, match="not created by Hourmark"):
        store.closer("first").publish()
    assert not store.storage.exists(SELECTION)
    store.storage.delete(f"{BUCKET}/{name}")
    complete(store)


@pytest.mark.parametrize("name", ["stray", "part-00001.avro", "_parquet/stray"])
def test_objects_that_appear_after_the_selection_are_not_published(name: str) -> None:
    store = Store()
    closer = store.closer("first")
    closer.pauses[1] = lambda: store.storage.write_new(f"{BUCKET}/{name}", b"other content")
    prepared = closer.prepare()
    with pytest.raises(Finding, match="its selection lists"):
        list(closer.publication.publish([prepared], is_folder_complete=False))
    assert store.judge() is None
    store.storage.delete(f"{BUCKET}/{name}")
    complete(store)


def test_a_marker_of_another_program_is_not_overwritten() -> None:
    store = Store()
    closer = store.closer("first")
    closer.pauses[5] = lambda: store.storage.write_new(f"{BUCKET}/{MARKER}", b"")
    prepared = closer.prepare()
    with pytest.raises(Finding, match="another program created it"):
        list(closer.publication.publish([prepared], is_folder_complete=False))
    assert store.storage.read(f"{BUCKET}/{MARKER}") == b""
    store.storage.delete(f"{BUCKET}/{MARKER}")
    complete(store)


def test_a_selection_that_cannot_be_read_is_reported() -> None:
    store = Store()
    store.storage.write_new(SELECTION, b"{}")
    with pytest.raises(Finding, match="not a valid selection"):
        store.closer("first").publish()


def test_files_that_are_not_stored_as_they_were_written_are_not_selected() -> None:
    store = Store()
    closer = store.closer("first")
    prepared = closer.prepare()
    delete_all(store.storage, [prepared.sources["part-00000.avro"], *store.records()])
    written = written_hour(*(written_file(of, 1) for of in prepared.sources.values()))
    with pytest.raises(Finding, match="is not published"):
        closer.publication.prepare(F, written, prepared.manifest)
    assert not store.storage.exists(SELECTION)
