"""A released version beside this one: its sources from git's objects, its locked packages in a
virtual environment of its own.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hourmark_infra.stack.registry import extract_archive

CHECKOUT: Final = Path(__file__).resolve().parents[2]
# Where a version was released. Tags are not in every clone, commits are; a shallow one has neither.
COMMITS: Final[Mapping[str, str]] = {
    "0.2.0": "5ababa6182e2e1d8d6db3d97a84bbf4154cda48c",
    "0.3.0": "4308b2af207963171220c64173d011849c054849",
}
_SET_UP_SECONDS: Final = 1800  # half a minute where its packages were downloaded before


def why_not_there(version: str) -> str | None:
    """Why the version's sources cannot be had from this checkout; None where they can."""
    commit = COMMITS[version]
    if subprocess.run(
        ["git", "cat-file", "-e", commit], cwd=CHECKOUT, capture_output=True, check=False
    ).returncode:
        return (
            f"this checkout has no commit {commit[:12]}, where {version} was released: git "
            "fetch --unshallow"
        )
    return None


def interpreter(version: str) -> Path:
    """Python of the version's environment, made at the first call and kept beside the servers'
    jars.
    """
    root = _cache() / f"{version}-{COMMITS[version][:12]}"
    if not root.is_dir():
        _unpack(version, root)
    told = subprocess.run(
        [root / "hourmark", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SET_UP_SECONDS,
    )
    assert told.stdout.strip() == f"hourmark, version {version}", told.stdout
    return root / ".venv" / "bin" / "python"


def _unpack(version: str, root: Path) -> None:
    command = ["git", "archive", "--format=tar", COMMITS[version]]
    packed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=True).stdout
    unfinished = root.with_name(f"{root.name}.{uuid.uuid4().hex[:8]}")
    with tarfile.open(fileobj=io.BytesIO(packed)) as sources:
        extract_archive(sources, unfinished)
    unfinished.rename(root)


def _cache() -> Path:
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hourmark" / "released"
    )
