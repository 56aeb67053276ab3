"""What the doctor says of a storage that does not refuse what closing rests on: each fault planted
is found, nothing is left.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.support.memory_storage import MemoryStorage
from tests.support.object_clients import memory_objects
from tests.support.simulator.objects import DictionaryClient

from hourmark.clock import SystemClock
from hourmark.config.groups import StorageSettings as Settings
from hourmark.config.loading import Config
from hourmark_declare.doctor import storage_check
from hourmark_declare.doctor.check_result import CheckStatus, DoctorCheckResult
from hourmark_declare.doctor.storage_probe import probe_storage
from hourmark_etl.storage import (
    AccessDenied,
    AlreadyExists,
    NoSpace,
    ObjectStorage,
    StorageEntry,
    list_if_exists,
)
from hourmark_etl.storage.errors import ObjectAccessDenied


class WritesOver(MemoryStorage):
    """A store that ignores conditions."""

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        try:
            super().write_new(path, content)
        except AlreadyExists:
            self._files[path] = bytes(content)


class RefusesAfterwards(WritesOver):
    """It says no, and has done it."""

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        stood = self.exists(path)
        super().write_new(path, content)
        if stood:
            raise AlreadyExists(path, self.url(path), "exists already")


class RenamesInto(MemoryStorage):
    """As WebHDFS does it in its plain form."""

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        into = f"{target}/{source.rpartition('/')[2]}" if self.exists(target) else target
        super().rename_new(source, into)


class RenamesOntoEmpty(MemoryStorage):
    """As os.rename does it."""

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        if self.exists(target) and not self.list(target):
            self.delete(target)
        super().rename_new(source, target)


class Full(MemoryStorage):
    """After a first file."""

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        if self._files:
            raise NoSpace(path, self.url(path), "no space")
        super().write_new(path, content)


class ReadOnly(MemoryStorage):
    """For this user."""

    def write_new(
        self, path: str, content: bytes | memoryview, *, unpublished: bool = False
    ) -> None:
        raise AccessDenied(path, self.url(path), "no right")


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        (WritesOver(), "an existing file is overwritten"),
        (RefusesAfterwards(), "an existing file is overwritten"),
        (RenamesInto(), "a folder is renamed onto an existing one, or into it"),
        (RenamesOntoEmpty(), "a folder is renamed onto an existing empty one"),
        (ReadOnly(), "nothing can be written: "),
        (Full(), "nothing can be written: "),
    ],
)
def test_a_storage_that_closing_cannot_rest_on_is_found(storage: MemoryStorage, said: str) -> None:
    found = [answer for answer in probe_storage(storage) if answer.verdict is CheckStatus.FINDING]
    assert found and all(answer.to_do for answer in found)
    assert found[0].seen.startswith(said)
    assert list_if_exists(storage, "") == []


def test_one_that_refuses_is_well_and_nothing_is_left() -> None:
    storage = MemoryStorage()
    (answer,) = probe_storage(storage)
    assert answer.verdict is CheckStatus.PASSED
    assert list_if_exists(storage, "") == []


def asked(root: Path) -> list[DoctorCheckResult]:
    return list(storage_check.check_storage(Config(storage=Settings(root=f"file://{root}"))))


def test_a_local_root_is_tried(tmp_path: Path) -> None:
    assert [answer.verdict for answer in asked(tmp_path)] == [
        CheckStatus.PASSED,
        CheckStatus.PASSED,
    ]
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() or path.name.startswith("_doctor")
    ] == []


def test_a_root_that_this_user_may_not_list_has_the_next_step_of_the_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Denied(MemoryStorage):
        def list(self, path: str) -> list[StorageEntry]:
            raise AccessDenied(path, self.url(path), "permission denied: user=ops")

    monkeypatch.setattr(storage_check, "open_storage", lambda _: Denied())
    (found,) = asked(Path("/nowhere"))
    assert found.subject == "storage.root" and "permission denied: user=ops" in found.seen
    assert found.to_do == (
        "check storage.user or storage.principal, and the folder's owner and permissions"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_root_of_another_user_is_not_tried_as_files_would_be_this_ones(tmp_path: Path) -> None:
    os.chown(tmp_path, 4242, 4242)
    assert [answer.verdict for answer in asked(tmp_path)] == [
        CheckStatus.PASSED,
        CheckStatus.SKIPPED,
    ]
    assert list(tmp_path.iterdir()) == []


def test_what_a_doctor_that_was_ended_left_behind_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_doctor-1").mkdir()  # of one that may be at work
    assert [answer.verdict for answer in asked(tmp_path)] == [
        CheckStatus.PASSED,
        CheckStatus.PASSED,
    ]
    later_ms = time.time_ns() // 1_000_000 + 3_700_000
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: later_ms)
    (found,) = [answer for answer in asked(tmp_path) if answer.verdict is CheckStatus.FINDING]
    assert (
        found.seen == "a doctor that was ended left _doctor-1 behind"
        and f"{tmp_path}/_doctor-1" in found.to_do
    )


def asked_of_objects(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> list[DoctorCheckResult]:
    monkeypatch.setattr(storage_check, "open_storage", lambda _: storage)
    return list(storage_check.check_storage(Config(storage=Settings(root="s3://bucket/root"))))


def test_an_object_store_is_tried_by_a_race_even_if_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = memory_objects()
    for number in range(2):
        listed, raced = asked_of_objects(storage, monkeypatch)
        assert listed.verdict is raced.verdict is CheckStatus.PASSED
        assert "exactly one" in raced.seen
        storage.write_new(f"click/{number}", b"")
    assert [entry.name for entry in storage.list("")] == ["click"], "the probe leaves nothing"


def test_an_object_store_that_ignores_conditions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ignoring(DictionaryClient):
        def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
            self.objects.pop(key, None)
            return super().put_new(key, content, write_id)

    storage = ObjectStorage(Ignoring(), retry_pauses_s=())
    *_, raced = asked_of_objects(storage, monkeypatch)
    assert raced.verdict is CheckStatus.FINDING and "If-None-Match" in raced.seen


def test_an_object_store_that_denies_writing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Denying(DictionaryClient):
        def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
            raise ObjectAccessDenied(key, self.url(key), "403 Forbidden")

    *_, raced = asked_of_objects(ObjectStorage(Denying()), monkeypatch)
    assert raced.verdict is CheckStatus.FINDING and "403" in raced.seen
    assert "credentials" in raced.to_do
