"""Probes whether storage refuses to overwrite files and folders, in a temporary folder.

Closing buckets relies on it: if a marker could be overwritten, or a bucket renamed into another
one, a closed bucket would change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Final, cast

from hourmark_declare.doctor.check_result import DoctorCheckResult, finding_result, passed_result
from hourmark_declare.doctor.storage_evaluation import CHECK
from hourmark_etl.errors import UnsafeStorage
from hourmark_etl.storage import (
    AlreadyExists,
    FolderStorage,
    ObjectStorage,
    Storage,
    StorageError,
)
from hourmark_etl.storage.race_probe import check_conditional_puts

FOLDER: Final = "_doctor-"
_SUBJECT: Final = "storage.root"
_USE_ANOTHER: Final = (
    "use another storage, or another way to it (storage.webhdfs): with this one closed "
    "buckets may change"
)


def probe_storage(storage: Storage) -> Iterator[DoctorCheckResult]:
    """Test whether a storage system refuses to overwrite existing files and folders.

    Uses a new temporary folder, which is deleted at the end.

    Args:
        storage: Storage to test.

    Yields:
        A finding for each accepted overwrite, for a failed write, and for a failed deletion of the
        temporary folder. A passed result if all writes succeeded and all overwrites were refused.

    Raises:
        StorageError: An operation failed for a reason other than an existing target.
    """
    if isinstance(storage, ObjectStorage):
        yield _probe_objects(storage)
        return
    folders = cast(FolderStorage, storage)  # each other storage has folders
    folder = f"{FOLDER}{uuid.uuid4().hex}"
    try:
        answers = list(_probe(folders, folder))
    finally:
        left = list(_delete(storage, folder))
    yield from (*answers, *left)


def _probe_objects(storage: ObjectStorage) -> DoctorCheckResult:
    try:
        check_conditional_puts(storage)
    except UnsafeStorage as error:
        return finding_result(CHECK, _SUBJECT, str(error), "use another store")
    return passed_result(
        CHECK, _SUBJECT, "of eight writers at the same time, exactly one creates an object"
    )


def _delete(storage: Storage, folder: str) -> Iterator[DoctorCheckResult]:
    try:
        storage.delete(folder)
    except StorageError as error:  # such as safe mode: report the earlier results nevertheless
        yield finding_result(
            CHECK,
            _SUBJECT,
            f"the test folder cannot be deleted: {error}",
            f"delete {folder}, if it exists, once storage accepts changes",
        )


def _probe(storage: FolderStorage, folder: str) -> Iterator[DoctorCheckResult]:
    try:
        storage.write_new(f"{folder}/one/file", b"one")
        storage.write_new(f"{folder}/two/file", b"two")
        storage.make_folder(f"{folder}/empty")
    except StorageError as error:
        yield finding_result(
            CHECK,
            _SUBJECT,
            f"nothing can be written: {error.what} ({error.url})",
            error.next_step,
        )
    else:
        wrong = list(_accepted_overwrites(storage, folder))
        yield from wrong
        if not wrong:
            yield passed_result(
                CHECK,
                _SUBJECT,
                "written files can be read; existing ones are neither overwritten nor renamed over",
            )


def _accepted_overwrites(storage: FolderStorage, folder: str) -> Iterator[DoctorCheckResult]:
    one, two = f"{folder}/one", f"{folder}/two"
    if (
        not _refused(lambda: storage.write_new(f"{one}/file", b"another"))
        or storage.read(f"{one}/file") != b"one"
    ):
        yield finding_result(CHECK, _SUBJECT, "an existing file is overwritten", _USE_ANOTHER)
    if not _refused(lambda: storage.rename_new(two, one)) or not storage.exists(f"{two}/file"):
        yield finding_result(
            CHECK, _SUBJECT, "a folder is renamed onto an existing one, or into it", _USE_ANOTHER
        )
    elif not _refused(lambda: storage.rename_new(two, f"{folder}/empty")):
        yield finding_result(
            CHECK, _SUBJECT, "a folder is renamed onto an existing empty one", _USE_ANOTHER
        )


def _refused(change: Callable[[], None]) -> bool:
    try:
        change()
    except AlreadyExists:
        return True
    return False
