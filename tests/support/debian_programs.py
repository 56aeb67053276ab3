"""Real programs that the tests run beside Hourmark: the machine's own, or Debian's packages
unpacked in a folder.

Packages come by the machine's own apt, from wherever that is set up to fetch them, and are
installed nowhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

_SBIN: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
KEPT: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hourmark" / "debian"
)


class Program(NamedTuple):
    """How it is run. `libraries`: folders of shared libraries that came along with it."""

    path: Path
    libraries: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        """For its process."""
        if not self.libraries:
            return dict(os.environ)
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, self.libraries))}


def program(name: str, *packages: str) -> Program:
    """`name` of the machine, else of these packages.

    Skips where there is neither it nor apt; fails where apt cannot fetch it.
    """
    found = shutil.which(name) or shutil.which(name, path=":".join(_SBIN))
    if found is not None:
        return Program(Path(found))
    root = unpacked(*packages)
    (path,) = [
        root / folder / name
        for folder in ("usr/sbin", "usr/bin", "sbin", "bin")
        if (root / folder / name).is_file()
    ]
    return Program(path, tuple(sorted({library.parent for library in root.rglob("lib*.so.*")})))


def unpacked(*packages: str) -> Path:
    """A folder with these packages' files, fetched once and kept."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip(
            f"{packages[0]} is not installed, and without apt it cannot be fetched; install it"
        )
    root = KEPT / "-".join(packages)
    if not root.is_dir():
        fetched = KEPT / f"fetching-{os.getpid()}"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir(parents=True)
        _fetch(packages, fetched)
        for package in fetched.glob("*.deb"):
            _run("dpkg-deb", "-x", str(package), str(fetched / "root"))
        try:
            (fetched / "root").rename(root)
        except OSError:
            assert root.is_dir(), "another test run has it by now"
        shutil.rmtree(fetched, ignore_errors=True)
    return root


def _fetch(packages: tuple[str, ...], into: Path) -> None:
    try:
        _run("apt-get", "download", "-qq", *packages, cwd=into)
    except AssertionError:
        _run("apt-get", "update", "-qq")  # lists may be absent, or older than the archive
        _run("apt-get", "download", "-qq", *packages, cwd=into)


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
