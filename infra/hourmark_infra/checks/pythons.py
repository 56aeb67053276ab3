"""Checks with each supported Python version that is installed on this machine.

Each check installs the wheels in an empty environment and runs tests there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hourmark_infra.checks.running import Check

SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14")


def installation_checks(interpreters: dict[str, Path | None]) -> Sequence[Check]:
    """Return one check for each Python version that is installed on this machine.

    Each check installs Hourmark's wheels in a new virtual environment and runs tests in it.

    Args:
        interpreters: Maps each version, such as `3.12`, to the path of its interpreter, as returned
            by `find_interpreters`; None if the version is not installed.

    Returns:
        Checks in the order of `interpreters`; empty if no version is installed.
    """
    return [
        Check(f"Python {version}", (sys.executable, "-m", "tools.try_python", str(python)))
        for version, python in interpreters.items()
        if python is not None
    ]


def find_interpreters() -> dict[str, Path | None]:
    """Find an installed interpreter for each Python version that Hourmark supports.

    `PATH` is searched first, followed by the installations of uv and of pyenv.

    Returns:
        Maps each version, such as `3.12`, to the path of its interpreter; None if it is not
        installed.
    """
    return {
        version: next((path for path in _candidates(version) if _runs(path, version)), None)
        for version in SUPPORTED
    }


def describe_missing_versions(interpreters: dict[str, Path | None]) -> list[str]:
    """Return a message for each supported Python version that is not installed on this machine.

    The messages inform the user that tests for these versions are omitted.

    Args:
        interpreters: Maps each version, such as `3.12`, to the path of its interpreter, as returned
            by `find_interpreters`; None if the version is not installed.

    Returns:
        One line for each version that is not installed, in the order of `interpreters`; empty if
        all versions are installed.
    """
    return [
        f"{f'Python {version}':<22} untested: no interpreter was found on this machine"
        for version in interpreters
        if not interpreters[version]
    ]


def _candidates(version: str) -> Iterator[Path]:
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    asked = [
        sys.executable,
        "-m",
        "uv",
        "python",
        "find",
        "--no-python-downloads",
        "--no-project",
        "--system",
        version,
    ]
    known = subprocess.run(asked, capture_output=True, text=True, check=False)
    if known.returncode == 0:
        yield Path(known.stdout.strip())
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))


def _runs(python: Path, version: str) -> bool:
    # pyenv's shims exist for versions that are not installed.
    command = [str(python), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version
