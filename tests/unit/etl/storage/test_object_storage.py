"""A conditional put is what it says, whatever the store answered; a store that lets several writers
win is refused.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
import time

import pytest
from tests.support.object_clients import FaultyClient, MemoryClient, memory_objects
from tests.support.s3_server import CREDENTIALS

from hourmark.config.groups import StorageSettings
from hourmark_etl.errors import UnsafeStorage
from hourmark_etl.storage import (
    AlreadyExists,
    NotFound,
    ObjectStorage,
    StorageError,
    open_storage,
)
from hourmark_etl.storage.race_probe import check_conditional_puts


def faulty(*faults: str) -> tuple[ObjectStorage, FaultyClient]:
    client = FaultyClient(MemoryClient(), dict(enumerate(faults, 1)))  # type: ignore[arg-type]
    return ObjectStorage(client, retry_pauses_s=(0.0, 0.0)), client


@pytest.mark.parametrize(
    ("faults", "puts"),
    [
        (["lost"], 1),
        (["refused"], 1),
        (["dropped"], 2),
        (["conflict"], 2),
        (["late"], 2),
        (["dropped", "lost"], 2),
        (["conflict", "dropped", "refused"], 3),
    ],
)
def test_a_put_without_a_clear_response_is_resolved_by_reading_back(
    faults: list[str], puts: int
) -> None:
    storage, client = faulty(*faults)
    storage.write_new("key", b"content")
    assert storage.read("key") == b"content"
    assert len(client.changes) == puts
    client.deliver_late()
    assert storage.read("key") == b"content"


@pytest.mark.parametrize("fault", ["lost", "refused", "dropped", "conflict", "late"])
def test_an_object_of_another_writer_is_never_taken_for_the_own_one(fault: str) -> None:
    storage, client = faulty(fault)
    dataclasses.replace(storage, client=client.client).write_new("key", b"content")
    with pytest.raises(AlreadyExists):
        storage.write_new("key", b"content")  # even with the same content
    client.deliver_late()
    assert storage.read("key") == b"content"


@pytest.mark.parametrize("fault", ["dropped", "conflict"])
def test_a_put_that_never_succeeds_ends_with_an_error(fault: str) -> None:
    storage, client = faulty(*[fault] * 9)
    with pytest.raises(StorageError) as caught:
        storage.write_new("key", b"content")
    assert not isinstance(caught.value, AlreadyExists)
    assert len(client.changes) == 3
    assert not storage.exists("key")


def test_a_forked_process_gets_an_error_instead_of_waiting_forever() -> None:
    storage = memory_objects()
    storage.write_new("key", b"content")
    child = os.fork()
    if child == 0:
        try:
            storage.read("key")
        except StorageError as error:
            os._exit(0 if "was forked" in str(error) else 2)
        except BaseException:  # noqa: BLE001  # the child must not go on with the parent's tests
            os._exit(3)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_import_and_a_client_start_no_thread() -> None:
    program = """
import os
from hourmark_etl.storage.obstore_client import S3Client
client = S3Client(bucket="b", prefix="p", endpoint="http://127.0.0.1:1", region="r")
client.open_store()
assert len(os.listdir("/proc/self/task")) == 1, os.listdir("/proc/self/task")
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **CREDENTIALS})


def test_settings_of_s3_lead_to_a_client_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    settings = StorageSettings(root="s3://bucket/a/prefix/", s3_endpoint="http://host:1/")
    storage = open_storage(settings)
    assert storage.url("type/file") == "s3://bucket/a/prefix/type/file"
    assert pickle.loads(pickle.dumps(storage)) == storage
    assert b"secret" not in pickle.dumps(storage)


def test_an_upload_that_is_interrupted_creates_no_object() -> None:
    storage = memory_objects()
    with pytest.raises(RuntimeError), storage.create("key", unpublished=True) as file:
        file.write(b"x" * 20_000_000)
        raise RuntimeError
    assert not storage.exists("key")
    with storage.create("key", unpublished=True) as file:
        file.write(b"x" * 20_000_000)
    assert storage.size("key") == 20_000_000


def test_an_object_that_became_shorter_is_an_error_of_its_reader() -> None:
    storage = memory_objects()
    storage.write_new("key", b"content")
    with storage.open("key", size=100) as file, pytest.raises(StorageError):
        file.read()


def test_a_file_is_moved_by_a_copy() -> None:
    storage = memory_objects()
    storage.write_new("here/file", b"content")
    storage.move_file("here/file", "there/file")
    assert storage.read("there/file") == b"content"
    assert not storage.exists("here")
    with pytest.raises(NotFound):
        storage.move_file("here/file", "elsewhere")


class IgnoresConditions(MemoryClient):
    """As versitygw without metadata: every put succeeds."""

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        self.delete([key])
        return super().put_new(key, content, write_id)


class ChecksThenWrites(MemoryClient):
    """As s3s-fs: refuses the second of two writers, unless they come at the same time."""

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        if self.find_object(key) is not None:
            return False
        time.sleep(0.05)
        self.delete([key])
        return super().put_new(key, content, write_id)


class LosesContent(MemoryClient):
    """Tells one writer that it won, and keeps what another one wrote."""

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        return super().put_new(key, b"torn", write_id)


@pytest.mark.parametrize("client", [IgnoresConditions, ChecksThenWrites, LosesContent])
def test_a_store_without_one_winner_is_refused(client: type[MemoryClient]) -> None:
    storage = ObjectStorage(client(), retry_pauses_s=())
    with pytest.raises(UnsafeStorage, match="If-None-Match"):
        check_conditional_puts(storage)
    assert not storage.exists("_probe")


def test_two_writes_one_after_the_other_would_not_find_such_a_store() -> None:
    storage = ObjectStorage(ChecksThenWrites(), retry_pauses_s=())
    storage.write_new("key", b"one")
    with pytest.raises(AlreadyExists):
        storage.write_new("key", b"two")


def test_a_store_with_one_winner_is_accepted_and_left_as_it_was() -> None:
    storage = memory_objects()
    check_conditional_puts(storage)
    assert not storage.exists("")
