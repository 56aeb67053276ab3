"""Checks Python, resource limits, disks and Java of this machine. Changes nothing."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from hourmark.config.loading import Config
from hourmark.java_version import ALLOWED, java_major_version
from hourmark_declare.doctor.check_result import DoctorCheckResult, skipped_result
from hourmark_declare.doctor.machine_evaluation import (
    CHECK,
    FreeSpace,
    evaluate_free_space,
    evaluate_java,
    evaluate_open_files,
    evaluate_python,
)
from hourmark_delivery_service.limits.connections import OTHER_FILES
from hourmark_etl.ledger.engines import sqlite_file


def check_machine(config: Config) -> Iterator[DoctorCheckResult]:
    """Check the Python version, open file limit, disk space and Java version of this machine.

    Args:
        config: Configuration of the components that run on this machine.

    Yields:
        One result for each requirement, and one for each folder that components write to.
    """
    yield evaluate_python(sys.version_info[:3])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield evaluate_open_files(
        None if hard == resource.RLIM_INFINITY else hard,
        config.service.connections_max,
        OTHER_FILES,
    )
    for setting, folder in _folders(config):
        yield evaluate_free_space(setting, str(folder), _room(folder))
    if config.kafka.mirrored:
        yield evaluate_java(
            "mirror.java", config.mirror.java, java_major_version(Path(config.mirror.java)), ALLOWED
        )
    else:
        yield skipped_result(
            CHECK, "Java of mirror.java", "without kafka.central there is no mirror"
        )


def _folders(config: Config) -> Iterator[tuple[str, Path]]:
    yield "service.state_dir", config.service.state_dir
    yield "tailer.state_dir", config.tailer.state_dir
    if config.kafka.mirrored:
        yield "mirror.work_dir", config.mirror.work_dir
    yield "etl.scratch_dir", config.etl.scratch_dir
    if ledger := sqlite_file(config.etl.ledger):
        yield "etl.ledger", ledger.parent
    if config.storage.root.startswith("file://"):
        yield "storage.root", Path(config.storage.root.removeprefix("file://"))


def _room(folder: Path) -> FreeSpace | None:
    try:
        told = os.statvfs(folder)
    except OSError:
        return None
    return FreeSpace(told.f_bavail * told.f_frsize, told.f_favail if told.f_files else None)
