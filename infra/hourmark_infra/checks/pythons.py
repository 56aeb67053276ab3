"""Which of the supported Pythons this machine has, and a check for each: wheels in an empty
environment, and tests there.
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


def checks_of(interpreters: dict[str, Path | None]) -> Sequence[Check]:
    """One for each that is here."""
    return [
        Check(f"Python {version}", (sys.executable, "-m", "tools.try_python", str(python)))
        for version, python in interpreters.items()
        if python is not None
    ]


def found() -> dict[str, Path | None]:
    """Each supported version's interpreter, or None: where `python3.12` is on the path, where uv
    knows one, or pyenv has one.
    """
    return {
        version: next((path for path in _candidates(version) if _runs(path, version)), None)
        for version in SUPPORTED
    }


def untested(interpreters: dict[str, Path | None]) -> list[str]:
    """A line for each that is not here, in the form of the checks' own."""
    return [
        f"{f'Python {version}':<22} untested: no interpreter is found here"
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
    """Whether it is what its name says: pyenv's shims may be of a version that is not there."""
    told = [str(python), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version
