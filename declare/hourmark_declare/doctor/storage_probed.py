"""Whether storage refuses what it must refuse: tried in a folder of its own, which is deleted
again.

Closing rests on it: a marker that is written over, or a bucket that is renamed into another, would
be a closed one that changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Final

from hourmark_declare.doctor.finding import Answer, finding, well
from hourmark_declare.doctor.storage_judged import CHECK
from hourmark_etl.storage import AlreadyExists, Storage, StorageError

FOLDER: Final = "_doctor-"
_SUBJECT: Final = "storage.root"
_USE_ANOTHER: Final = (
    "use another storage, or another way to it (storage.webhdfs): with this one closed "
    "buckets may change"
)


def probed(storage: Storage) -> Iterator[Answer]:
    """Write, read back, write over, rename over a file and an empty folder."""
    folder = f"{FOLDER}{uuid.uuid4().hex}"
    try:
        answers = list(_tried(storage, folder))
    finally:
        left = list(_deleted(storage, folder))
    yield from (*answers, *left)


def _deleted(storage: Storage, folder: str) -> Iterator[Answer]:
    try:
        storage.delete(folder)
    except StorageError as error:  # as in safe mode: what was found before is told all the same
        yield finding(
            CHECK,
            _SUBJECT,
            f"what was tried cannot be deleted: {error}",
            f"delete {folder} there, if it stands, once storage takes changes",
        )


def _tried(storage: Storage, folder: str) -> Iterator[Answer]:
    try:
        storage.write_new(f"{folder}/one/file", b"one")
        storage.write_new(f"{folder}/two/file", b"two")
        storage.make_folder(f"{folder}/empty")
    except StorageError as error:
        yield finding(
            CHECK,
            _SUBJECT,
            f"nothing can be written: {error}",
            "give the user of the ETL the right to write there, and room",
        )
    else:
        wrong = list(_taken(storage, folder))
        yield from wrong
        if not wrong:
            yield well(
                CHECK,
                _SUBJECT,
                "what is written is read; what stands is neither written over nor renamed over",
            )


def _taken(storage: Storage, folder: str) -> Iterator[Answer]:
    one, two = f"{folder}/one", f"{folder}/two"
    if (
        not _refused(lambda: storage.write_new(f"{one}/file", b"another"))
        or storage.read(f"{one}/file") != b"one"
    ):
        yield finding(CHECK, _SUBJECT, "a file that stands is written over", _USE_ANOTHER)
    if not _refused(lambda: storage.rename_new(two, one)) or not storage.exists(f"{two}/file"):
        yield finding(
            CHECK, _SUBJECT, "a folder is renamed onto one that stands, or into it", _USE_ANOTHER
        )
    elif not _refused(lambda: storage.rename_new(two, f"{folder}/empty")):
        yield finding(
            CHECK, _SUBJECT, "a folder is renamed onto an empty one that stands", _USE_ANOTHER
        )


def _refused(change: Callable[[], None]) -> bool:
    try:
        change()
    except AlreadyExists:
        return True
    return False
