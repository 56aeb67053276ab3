"""Storages for contract suites: every implementation keeps the same promises."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.memory_storage import MemoryStorage

from hourmark.config import Storage as StorageSettings
from hourmark_etl.storage import Storage, open_storage


@pytest.fixture(params=["local", "memory", pytest.param("hdfs", marks=pytest.mark.stack)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """An empty root of each kind."""
    if request.param == "local":
        yield open_storage(StorageSettings(root=f"file://{tmp_path}/root"))
        return
    if request.param == "memory":  # what other tests stand on must keep the same promises
        yield MemoryStorage()
        return
    settings: StorageSettings = request.getfixturevalue("config").storage
    name = f"hourmark-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    yield open_storage(settings.model_copy(update={"root": f"{settings.root}/{name}"}))
    open_storage(settings).delete(name)
