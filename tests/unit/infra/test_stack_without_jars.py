"""`status`, `down` and `purge` ask about what runs: they need no jar, no Java and no network, and
fetch nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hourmark_infra.stack.state import new_state, save_state, state_file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a stack that does not run."""
    save_state(tmp_path / "home", new_state())
    return tmp_path / "home"


def _hourmark(home: Path, code: int, *arguments: str) -> str:
    """As on a machine with an empty cache, without Java, and without a network to fetch either
    from; it fetches nothing.
    """
    cut_off = {
        "PATH": "/nowhere",
        "XDG_CACHE_HOME": str(home.parent / "cache"),
        "PIP_NO_INDEX": "1",
        "HOURMARK_HOME": str(home),
    }
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "JAVA_HOME" and not name.startswith("HOURMARK_")
    }
    command = [sys.executable, "-P", "-m", "hourmark", *arguments]
    done = subprocess.run(
        command,
        env={**kept, **cut_off},
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert not (home.parent / "cache").exists()
    return done.stdout


@pytest.mark.slow
def test_status_says_that_nothing_runs(home: Path) -> None:
    found = json.loads(_hourmark(home, 1, "status", "--json"))
    assert {server["detail"] for server in found["servers"]} == {
        "not running; `hourmark up` starts it"
    }


@pytest.mark.slow
def test_down_ends_what_there_is(home: Path) -> None:
    assert set(json.loads(_hourmark(home, 0, "down", "--json"))["servers"].values()) == {
        "not running"
    }


@pytest.mark.slow
def test_purge_deletes_the_data(home: Path) -> None:
    _hourmark(home, 0, "purge", "--yes")
    assert not state_file(home).exists()
