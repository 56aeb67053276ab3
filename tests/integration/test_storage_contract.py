"""One contract over every storage: local disk, HDFS through WebHDFS on the real stack, and object
stores. What needs folders and renames is asked of `folders`, which are no object stores.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.memory_storage import MemoryStorage

from hourmark_etl.storage import (
    AlreadyExists,
    FolderStorage,
    NotFound,
    ObjectStorage,
    Storage,
    StorageEntry,
    StorageError,
    list_if_exists,
)

# Every character that a URL, a shell or WebHDFS treats in its own way and that HDFS allows in a
# name.
AWKWARD = [
    "with space",
    "ünïcödé-日本",
    "100%",
    "a+b",
    "a%20b",
    "q?x=1&y=2",
    "hash#tag",
    "semi;colon",
    "date=2026-11-21",
    "_SUCCESS",
]


def test_a_file_is_read_as_it_was_written(storage: Storage) -> None:
    storage.write_new("a/b/file", b"content")
    assert storage.read("a/b/file") == b"content"
    assert storage.size("a/b/file") == 7
    assert storage.exists("a/b/file") and storage.exists("a/b") and storage.exists("")
    assert storage.list("a") == [StorageEntry("b", 0, True)]
    assert storage.list("a/b") == [StorageEntry("file", 7, False)]


def test_a_listing_tells_when_something_changed(storage: Storage) -> None:
    began_ms = time.time_ns() // 1_000_000
    storage.write_new("folder/file", b"content")
    for entry in storage.list("folder"):
        assert began_ms - 2000 <= entry.changed_ms <= time.time_ns() // 1_000_000 + 2000


def test_an_unfinished_file_that_is_taken_away_is_an_error_of_its_writer(storage: Storage) -> None:
    if isinstance(storage, (MemoryStorage, ObjectStorage)):
        pytest.skip("it has no unfinished files")
    with pytest.raises(StorageError), storage.create("folder/file") as file:
        file.write(b"x" * 3_000_000)
        for entry in storage.list(".unfinished"):
            storage.delete(f".unfinished/{entry.name}")
    assert not storage.exists("folder/file")


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.write_new("empty", b"")
    assert storage.read("empty") == b""
    assert storage.size("empty") == 0


def test_a_file_is_never_overwritten(storage: Storage) -> None:
    storage.write_new("file", b"first")
    with pytest.raises(AlreadyExists) as caught:
        storage.write_new("file", b"second")
    assert "file" in str(caught.value) and storage.url("file") in str(caught.value)
    assert storage.read("file") == b"first"


def test_a_folder_is_not_overwritten_by_a_file(folders: FolderStorage) -> None:
    folders.make_folder("folder")
    with pytest.raises(AlreadyExists):
        folders.write_new("folder", b"second")
    assert folders.list("folder") == []


def test_two_writers_of_one_name_leave_one_whole_content(storage: Storage) -> None:
    with pytest.raises(AlreadyExists), storage.create("file") as first:
        first.write(b"slow")
        storage.write_new("file", b"fast")
    assert storage.read("file") == b"fast"


def test_a_file_is_not_visible_before_it_is_finished(storage: Storage) -> None:
    with storage.create("folder/file") as file:
        file.write(b"x" * 3_000_000)
        assert not storage.exists("folder/file")
        assert not storage.exists("folder") or storage.list("folder") == []
    assert storage.size("folder/file") == 3_000_000


def test_an_exception_inside_create_leaves_nothing(storage: Storage) -> None:
    with pytest.raises(RuntimeError, match="planted"), storage.create("folder/file") as file:
        file.write(b"x" * 3_000_000)
        raise RuntimeError("planted")
    assert not storage.exists("folder/file")
    assert list_if_exists(storage, "folder") == []
    assert list_if_exists(storage, ".unfinished") == []


def test_what_a_crash_left_disturbs_nobody(storage: Storage) -> None:
    crashed = storage.create("folder/file")
    file = crashed.__enter__()
    file.write(b"half")
    storage.write_new("folder/file", b"whole")  # the next attempt
    assert storage.list("folder") == [StorageEntry("file", 5, False)]
    assert storage.read("folder/file") == b"whole"
    with pytest.raises(AlreadyExists):
        crashed.__exit__(None, None, None)
    assert storage.read("folder/file") == b"whole"


def test_twenty_megabytes_stream_through(storage: Storage) -> None:
    piece = os.urandom(1 << 16)
    expected = hashlib.blake2b()
    with storage.create("large") as file:
        for number in range(320):
            data = number.to_bytes(8, "big") + piece
            expected.update(data)
            file.write(data)
    found = hashlib.blake2b()
    with storage.open("large") as reader:
        while data := reader.read(1_000_003):
            found.update(data)
    assert found.digest() == expected.digest()
    assert storage.size("large") == 320 * (8 + (1 << 16))


def test_a_reader_seeks(storage: Storage) -> None:
    content = os.urandom(9_000_000)  # more than one window
    storage.write_new("file", content)
    with storage.open("file") as reader:
        assert reader.seekable()
        assert reader.seek(-8, io.SEEK_END) == len(content) - 8
        assert reader.read() == content[-8:]
        reader.seek(5_000_000)
        assert reader.read(10) == content[5_000_000:5_000_010]
        reader.seek(-5, io.SEEK_CUR)
        assert reader.tell() == 5_000_005
        reader.seek(0)
        assert reader.read() == content
        reader.seek(len(content) + 10)
        assert reader.read() == b""


def test_parquet_reads_through_it(storage: Storage) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {"id": pa.array(range(1000)), "datum": pa.array([os.urandom(20) for _ in range(1000)])}
    )
    with storage.create("staged.parquet") as file:
        pq.write_table(table, file)
    with storage.open("staged.parquet") as reader:
        assert pq.read_table(reader).equals(table)


def test_what_is_missing_is_not_found(storage: Storage) -> None:
    storage.write_new("folder/file", b"")
    for attempt in (storage.read, storage.open, storage.size, storage.list):
        with pytest.raises(NotFound):
            attempt("missing/name")
    assert not storage.exists("missing/name")
    for attempt in (storage.read, storage.open, storage.size):
        with pytest.raises(NotFound):
            attempt("folder")
    storage.write_new("file", b"")
    with pytest.raises(NotFound):
        storage.list("file")


def test_a_file_in_the_place_of_a_folder_is_refused(folders: FolderStorage) -> None:
    folders.write_new("file", b"")
    folders.make_folder("source")
    attempts: list[Callable[[], None]] = [
        lambda: folders.make_folder("file"),
        lambda: folders.make_folder("file/below"),
        lambda: folders.write_new("file/below", b""),
        lambda: folders.rename_new("source", "file/below"),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()
    assert folders.exists("source")
    assert not folders.exists("file/below")


def test_folders_are_made_and_deleted_again_and_again(folders: FolderStorage) -> None:
    folders.make_folder("a/b/c")
    folders.make_folder("a/b/c")
    folders.write_new("a/b/c/file", b"")
    folders.delete("a")
    assert not folders.exists("a")
    folders.make_folder("a/b/c")


def test_a_file_or_a_folder_is_deleted_once_or_again(storage: Storage) -> None:
    for name in ("a/b/c/file", "a/b/file", "ab/file"):
        storage.write_new(name, b"")
    storage.delete("a/b")
    storage.delete("a/b")
    assert not storage.exists("a/b")
    assert storage.exists("ab/file")
    storage.delete("ab/file")
    storage.delete("ab/file")
    assert not storage.exists("ab/file")


def test_a_folder_is_published_at_once(folders: FolderStorage) -> None:
    folders.write_new("attempt/part-00000.avro", b"part")
    folders.write_new("attempt/_SUCCESS", b"{}")
    folders.rename_new("attempt", "type/date=2026-11-21/hour=05")
    assert not folders.exists("attempt")
    assert [entry.name for entry in folders.list("type/date=2026-11-21/hour=05")] == [
        "_SUCCESS",
        "part-00000.avro",
    ]
    assert folders.read("type/date=2026-11-21/hour=05/part-00000.avro") == b"part"


@pytest.mark.parametrize("standing", ["empty folder", "folder", "file"])
@pytest.mark.parametrize("moved", ["folder", "file"])
def test_nothing_is_published_over_what_stands(
    folders: FolderStorage, standing: str, moved: str
) -> None:
    folders.write_new("source/file" if moved == "folder" else "source", b"new")
    if standing == "empty folder":
        folders.make_folder("deep/target")
    else:
        folders.write_new("deep/target/file" if standing == "folder" else "deep/target", b"old")
    with pytest.raises(AlreadyExists):
        folders.rename_new("source", "deep/target")
    assert folders.read("source/file" if moved == "folder" else "source") == b"new"
    if standing == "file":
        assert folders.read("deep/target") == b"old"
    else:
        assert [entry.name for entry in folders.list("deep/target")] == (
            [] if standing == "empty folder" else ["file"]
        )


def test_a_missing_source_is_not_found_even_where_the_target_stands(folders: FolderStorage) -> None:
    with pytest.raises(NotFound):
        folders.rename_new("missing", "target")
    assert not folders.exists("target")
    folders.make_folder("target")
    with pytest.raises(NotFound):
        folders.rename_new("missing", "target")


@pytest.mark.parametrize("round_", range(3))
def test_of_eight_concurrent_renames_exactly_one_wins(folders: FolderStorage, round_: int) -> None:
    for number in range(8):
        folders.write_new(f"attempts/{number}/file", b"%d" % number)
    barrier = threading.Barrier(8)

    def publish(number: int) -> bool:
        barrier.wait()
        try:
            folders.rename_new(f"attempts/{number}", "type/target")
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(publish, range(8)))
    assert won.count(True) == 1
    assert folders.list("type/target") == [StorageEntry("file", 1, False)]
    assert folders.read("type/target/file") == b"%d" % won.index(True)
    assert [entry.name for entry in folders.list("attempts")] == [
        str(n) for n in range(8) if n != won.index(True)
    ]


def test_awkward_names_stay_what_they_are(storage: Storage) -> None:
    for name in AWKWARD:
        storage.write_new(f"{name}/{name}", name.encode())
        storage.move_file(f"{name}/{name}", f"moved/{name}")
    assert [entry.name for entry in storage.list("moved")] == sorted(AWKWARD)
    for name in AWKWARD:
        assert storage.read(f"moved/{name}") == name.encode()
        assert list_if_exists(storage, name) == []
        storage.delete(f"moved/{name}")
    assert list_if_exists(storage, "moved") == []


@pytest.mark.parametrize(
    "path", ["", "/absolute", "a//b", "a/", ".", "a/../b", "a:b", "a\nb", "a\0b"]
)
def test_paths_that_some_backend_refuses_are_refused_by_all(storage: Storage, path: str) -> None:
    with pytest.raises(ValueError, match="not a valid storage path"):
        storage.write_new(path, b"")
    with pytest.raises(ValueError, match="not a valid storage path"):
        storage.delete(path)


def test_it_travels_to_a_worker(storage: Storage) -> None:
    storage.write_new("file", b"content")
    travelled: Storage = pickle.loads(pickle.dumps(storage))
    assert travelled == storage
    assert travelled.read("file") == b"content"
    with pytest.raises(NotFound) as caught:
        travelled.read("missing")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_it_works_in_a_forked_worker(storage: Storage) -> None:
    if isinstance(storage, MemoryStorage):
        pytest.skip("a process has its own memory")
    if isinstance(storage, ObjectStorage):
        pytest.skip("its client refuses this: test_object_storage.py")
    storage.write_new("before", b"parent")  # the parent's connections are open
    child = os.fork()
    if child == 0:
        try:
            storage.write_new("child", storage.read("before"))
            os._exit(0)
        except BaseException:  # noqa: BLE001  # the child must not go on with the parent's tests
            os._exit(1)
    assert storage.read("before") == b"parent"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert storage.read("child") == b"parent"
