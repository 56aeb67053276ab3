"""The disk is full: it is named, nothing half is published, and it goes on by itself when there is
room.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.outcome import LONG, assert_whole
from tests.support.etl_scene import Scene

pytestmark = LONG
SCENE = {"names": ("one", "two")}

DISK_MIB = 32


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small file system of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system to fill")
    folder = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "hourmark-test", folder],
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"this machine mounts no tmpfs: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def root(disk: Path) -> str:
    return f"file://{disk}/root"


def fill(disk: Path) -> Path:
    """Take all the room that is left; returns the file that has it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


def test_a_full_disk_is_named_publishes_nothing_and_closing_goes_on_when_there_is_room(
    running: Scene, disk: Path
) -> None:
    ballast = fill(disk)
    hour = running.begin_hour()
    running.says("No space left on device")
    assert not any(running.run.storage.exists(hour.bucket_path(t)) for t in running.types)
    ballast.unlink()
    assert_whole(running.closed(hour))
