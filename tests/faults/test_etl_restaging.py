"""A staged file is damaged before its hour closes: it is staged again from Kafka, and the bucket holds what was promised."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.crash import CrashOrder
from tests.support.etl_scene import DUPLICATES, EVENTS, Scene, scene

from hourmark_infra.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp(f"restaging-{uuid.uuid4().hex[:6]}-")
    with scene(stack.layout.config_file, folder, ("one", "two"), crashing=True, root=f"file://{folder}/root") as made:
        made.closed(made.begin_hour())
        yield made


def test_a_staged_file_that_is_damaged_before_its_hour_closes_is_staged_again(running: Scene) -> None:
    running.run.revive()
    crash = CrashOrder("freeze", "before")
    running.run.order(crash)
    hour = running.begin_hour()
    running.crashed(crash)
    damaged = [damage(path) for path in staged_files(Path(running.run.config.storage.root.removeprefix("file://")))]
    assert damaged
    closed = running.closed(hour)
    assert (closed.events, closed.duplicates_removed, closed.grade.value) == (EVENTS, DUPLICATES, "proved")
    assert running.run.logged("staged again")


def staged_files(root: Path) -> list[Path]:
    """Staged events, the newest batch's last."""
    return sorted((root / "_staging").glob("*/events-*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def damage(path: Path) -> Path:
    """Cut it in half, as a disk that lost its last blocks."""
    os.truncate(path, path.stat().st_size // 2)
    return path
