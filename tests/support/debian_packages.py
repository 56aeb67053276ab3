"""The Debian packages as their tool makes them, and what they say of themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def made(folder: Path, *names: str, revisions: Sequence[str] = ("1", "2")) -> list[Path]:
    """Each package, and its next revision."""
    numbered = [word for revision in revisions for word in ("--revision", revision)]
    command = [sys.executable, "-m", "tools.debian_package", str(folder), *names, *numbered]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


def control(package: Path) -> dict[str, str]:
    said = subprocess.run(
        ["dpkg-deb", "--field", str(package)], capture_output=True, text=True, check=True
    ).stdout
    return dict(re.findall(r"^([A-Z][\w-]*): (.*)$", said, re.MULTILINE))
