"""Looks at this machine: Python, limits, disks, Java. Changes nothing."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from hourmark.config.loading import Config
from hourmark.java_version import ALLOWED, java_major_version
from hourmark_declare.doctor.finding import Answer, not_asked
from hourmark_declare.doctor.machine_judged import (
    CHECK,
    Room,
    java_judged,
    open_files_judged,
    python_judged,
    room_judged,
)
from hourmark_delivery_service.limits.connections import OTHER_FILES
from hourmark_etl.ledger.engines import sqlite_file


def ask(config: Config) -> Iterator[Answer]:
    """What components need of the machine that they would run on."""
    yield python_judged(sys.version_info[:3])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield open_files_judged(
        None if hard == resource.RLIM_INFINITY else hard,
        config.service.connections_max,
        OTHER_FILES,
    )
    for setting, folder in _folders(config):
        yield room_judged(setting, str(folder), _room(folder))
    if config.kafka.mirrored:
        yield java_judged(
            "mirror.java", config.mirror.java, java_major_version(Path(config.mirror.java)), ALLOWED
        )
    else:
        yield not_asked(CHECK, "Java of mirror.java", "without kafka.central there is no mirror")


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


def _room(folder: Path) -> Room | None:
    try:
        told = os.statvfs(folder)
    except OSError:
        return None
    return Room(told.f_bavail * told.f_frsize, told.f_favail if told.f_files else None)
