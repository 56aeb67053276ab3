"""Execution of uv as in the launcher: with the machine's trusted CAs, without user settings."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def uv(arguments: Sequence[str], cwd: Path | None = None) -> Done:
    """Run uv offline, and again with network access if the cache lacks a file.

    Args:
        arguments: Command and options of uv.
        cwd: Working directory; None for the current one.

    Returns:
        The result of the last attempt.
    """
    offline = run_uv([*arguments, "--offline"], cwd)
    return offline if offline.returncode == 0 else run_uv(arguments, cwd)


def run_uv(arguments: Sequence[str], cwd: Path | None = None) -> Done:
    variables = {**os.environ, "UV_NO_CONFIG": "1"}
    if ssl.get_default_verify_paths().cafile:
        variables.setdefault("UV_SYSTEM_CERTS", "1")
    variables.pop("VIRTUAL_ENV", None)
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
