"""Checks the storage root, the NameNode, and whether storage refuses to overwrite files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark_declare.doctor.check_result import (
    DoctorCheckResult,
    finding_result,
    passed_result,
    skipped_result,
)
from hourmark_declare.doctor.storage_evaluation import CHECK, evaluate_namenode
from hourmark_declare.doctor.storage_probe import FOLDER, probe_storage
from hourmark_etl.storage import NotFound, ObjectStorage, StorageEntry, StorageError, open_storage
from hourmark_etl.storage.namenode import NameNodeReport, find_serving, read_namenodes

_ENDED_MS: Final = 3_600_000  # a folder of this age belongs to no running doctor
_ANSWER_S: Final = 10.0


def check_storage(config: Config) -> Iterator[DoctorCheckResult]:
    """Check whether the bucket storage is available and refuses to overwrite files.

    Creates a temporary folder below `storage.root` and deletes it. For HDFS, the states
    of the NameNodes are also checked.

    Args:
        config: Configuration with the settings group `storage`.

    Yields:
        One result for each aspect. The overwrite test is skipped if `storage.root` is a local
        folder owned by another user.
    """
    storage = open_storage(config.storage)
    is_hdfs = config.storage.root.startswith("hdfs://")
    reports = read_namenodes(config.storage, _ANSWER_S) if is_hdfs else []
    serving = find_serving(reports)
    bean = serving.info if serving is not None else None
    yield from _unusable_namenodes(reports, serving)
    try:
        entries = storage.list("")
        names = [entry.name for entry in entries if not entry.name.startswith(FOLDER)]
        yield passed_result(CHECK, "storage.root", f"{len(names)} names at {config.storage.root}")
        yield from _left_behind(entries, config.storage.root)
        if others := _owner_of(config.storage.root):
            yield skipped_result(
                CHECK,
                "what it must refuse",
                f"the root is the user {others}'s: ask as that one, whose files must lie there",
            )
        elif bean is not None and bean.get("Safemode"):
            yield skipped_result(
                CHECK, "storage.root", "nothing can be written while the NameNode is in safe mode"
            )
        else:
            yield from probe_storage(storage)
    except NotFound:  # the first writer creates and owns it
        yield passed_result(
            CHECK, "storage.root", f"it answers; nothing was written yet at {config.storage.root}"
        )
        if isinstance(storage, ObjectStorage):  # nothing that the probe creates has an owner
            yield from _probe_first(storage)
    except StorageError as error:
        yield finding_result(CHECK, "storage.root", f"{error.what} ({error.url})", error.next_step)
        if bean is None:
            return  # without a response of the server, a second result would only repeat this one
    if bean is not None:
        yield from evaluate_namenode(bean, config.storage.replication)
    elif serving is not None:
        yield skipped_result(
            CHECK, "NameNode", "storage.webhdfs has no /jmx that can be read: is it a gateway?"
        )


def _probe_first(storage: ObjectStorage) -> Iterator[DoctorCheckResult]:
    try:
        yield from probe_storage(storage)
    except StorageError as error:
        yield finding_result(CHECK, "storage.root", f"{error.what} ({error.url})", error.next_step)


def _unusable_namenodes(
    reports: Iterable[NameNodeReport], serving: NameNodeReport | None
) -> Iterator[DoctorCheckResult]:
    for report in reports:
        if report.state == "observer":
            yield finding_result(
                CHECK,
                "NameNode",
                f"{report.address} is an observer, whose responses may be outdated",
                "remove its address from storage.webhdfs",
            )
        elif report.failure and serving is not None:
            yield finding_result(
                CHECK,
                "NameNode",
                f"{report.address} does not respond ({report.failure}): it cannot take over if "
                f"{serving.address} fails",
                "check that it is running, or correct storage.webhdfs",
            )


def _left_behind(entries: Iterable[StorageEntry], root: str) -> Iterator[DoctorCheckResult]:
    until_ms = SystemClock().now_ms() - _ENDED_MS
    if old := [
        entry.name
        for entry in entries
        if entry.name.startswith(FOLDER) and entry.changed_ms < until_ms
    ]:
        yield finding_result(
            CHECK,
            "storage.root",
            f"a doctor that was ended left {', '.join(old)} behind",
            f"delete {', '.join(f'{root}/{name}' for name in old)}",
        )


def _owner_of(root: str) -> str | None:
    if not root.startswith("file://"):
        return None
    owner = Path(root.removeprefix("file://")).stat().st_uid
    return None if owner == os.geteuid() else str(owner)
