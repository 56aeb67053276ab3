"""Storages for contract suites: every implementation keeps the same promises.

An ETL at work, for modules with `TYPES`.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.memory_storage import MemoryStorage
from tests.support.object_clients import memory_objects

from hourmark.config.groups import StorageSettings
from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark_etl.storage import FolderStorage, Storage, open_storage
from hourmark_infra.stack import LocalStack


@pytest.fixture
def own_hdfs(config: Config) -> Iterator[StorageSettings]:
    """The stack's HDFS, with a root of the test's own."""
    name = f"hourmark-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    yield config.storage.model_copy(update={"root": f"{config.storage.root}/{name}"})
    open_storage(config.storage).delete(name)


_KINDS = ["local", "memory", pytest.param("hdfs", marks=pytest.mark.stack)]


def _open(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if kind == "local":
        return open_storage(StorageSettings(root=f"file://{tmp_path}/root"))
    if kind == "memory":  # what other tests stand on must keep the same promises
        return MemoryStorage()
    if kind == "objects":
        return memory_objects()
    if kind == "s3":
        settings: StorageSettings = request.getfixturevalue("s3")
        return open_storage(
            settings.model_copy(update={"root": f"{settings.root}/{uuid.uuid4().hex}"})
        )
    return open_storage(request.getfixturevalue("own_hdfs"))


@pytest.fixture(params=[*_KINDS, "objects", pytest.param("s3", marks=pytest.mark.long)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty root of each kind."""
    return _open(request.param, request, tmp_path)


@pytest.fixture(params=_KINDS)
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> FolderStorage:
    """An empty root of each kind that has folders and renames."""
    return cast(FolderStorage, _open(request.param, request, tmp_path))


@pytest.fixture(scope="module")
def first_hour() -> Hour:
    """Twenty minutes ago: hours of the past can be closed at once."""
    return Hour.containing(time.time_ns() // 1_000_000 - 1_200_000, 60)


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest,
    stack: LocalStack,
    tmp_path_factory: pytest.TempPathFactory,
    first_hour: Hour,
) -> Iterator[EtlRun]:
    """With the types of the module; on HDFS, unless it is parametrized with "s3"."""
    folder = tmp_path_factory.mktemp(f"etl-{uuid.uuid4().hex[:6]}-")
    on_s3 = getattr(request, "param", "hdfs") == "s3"
    root = request.getfixturevalue("s3_root") if on_s3 else None
    with EtlRun(
        stack.layout.config_file, folder, list(request.module.TYPES), first_hour, root=root
    ) as made:
        yield made


@pytest.fixture(scope="module")
def delivery(run: EtlRun) -> DirectDelivery:
    return DirectDelivery(run.config)
