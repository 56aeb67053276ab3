"""A staged file is damaged before its hour closes: it is staged again from Kafka, and the bucket
holds what was promised.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.outcome import LONG, assert_whole
from tests.support.crash import CrashOrder
from tests.support.etl_scene import Scene

pytestmark = LONG
SCENE = {"names": ("one", "two"), "crashing": True}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{tmp_path_factory.mktemp('root')}"


def test_a_staged_file_that_is_damaged_before_its_hour_closes_is_staged_again(
    running: Scene,
) -> None:
    running.run.revive()
    crash = CrashOrder("freeze", "before")
    running.run.order(crash)
    hour = running.begin_hour()
    running.crashed(crash)
    damaged = [
        damage(path)
        for path in staged_files(Path(running.run.config.storage.root.removeprefix("file://")))
    ]
    assert damaged
    assert_whole(running.closed(hour))
    assert running.run.logged("staged again")


def staged_files(root: Path) -> list[Path]:
    """Staged events, the newest batch's last."""
    return sorted(
        (root / "_staging").glob("*/events-*.parquet"), key=lambda path: path.stat().st_mtime_ns
    )


def damage(path: Path) -> Path:
    """Cut it in half, as a disk that lost its last blocks."""
    os.truncate(path, path.stat().st_size // 2)
    return path
