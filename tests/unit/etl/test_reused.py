"""What PySpark does between two tasks of a worker is not paid for by what the worker has loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ARCHIVE = """
import gc, importlib, sys, zipimport
read, original = [], zipimport._read_directory
zipimport._read_directory = lambda archive: read.append(archive) or original(archive)
sys.path.insert(0, {archive!r})
import packed.inner
"""
SPARED = "from hourmark_etl.execution.worker_reuse import freeze_loaded_modules\nfreeze_loaded_modules()\n"


def said_by(tmp_path: Path, code: str) -> list[str]:
    """What a process prints that has imported modules of an archive, as workers import PySpark."""
    archive = tmp_path / "archive.zip"
    with ZipFile(archive, "w") as file:
        for name in ("packed/__init__.py", "packed/inner.py", "packed/later.py"):
            file.writestr(name, "")
    done = subprocess.run(
        [sys.executable, "-c", ARCHIVE.format(archive=str(archive)) + code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_archive_is_not_read_again_between_tasks(tmp_path: Path) -> None:
    again = "read.clear()\nimportlib.invalidate_caches()\nprint(len(read))\n"
    assert (
        sys.version_info >= (3, 12) or int(said_by(tmp_path, again)[0]) > 0
    )  # later ones read it when they need it
    assert said_by(tmp_path, SPARED + again) == ["0"]


def test_modules_of_an_archive_are_still_found(tmp_path: Path) -> None:
    code = "importlib.invalidate_caches()\nimport packed.later\nprint(packed.later.__file__)"
    assert said_by(tmp_path, SPARED + code) == [str(tmp_path / "archive.zip/packed/later.py")]


def test_what_is_loaded_is_not_looked_at_by_the_collector_and_what_tasks_leave_is(
    tmp_path: Path,
) -> None:
    code = (
        "print(len(gc.get_objects()) < 1000)\nfrozen = gc.get_freeze_count()\nround = "
        "[]\nround.append(round)\ndel round\n"
    )
    assert said_by(
        tmp_path, f"{SPARED}{code}{SPARED}print(gc.get_freeze_count() == frozen, gc.collect() > 0)"
    ) == [
        "True",
        "True True",
    ]
