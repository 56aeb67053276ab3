"""A second `hourmark mirror run` beside the first is refused in one line, before Kafka or Java is
asked for anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hourmark.state_folder import StateFolder


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    config = folder / "hourmark.toml"
    config.write_text(
        f'[kafka.edge]\nbootstrap = "127.0.0.1:1"\n[kafka.central]\nbootstrap = "127.0.0.1:1"\n'
        f'[mirror]\nwork_dir = "{folder / "mirror"}"\n'
    )
    command = [sys.executable, "-P", "-m", "hourmark", "mirror", "run", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_second_mirror_is_told_the_first_ones_pid_and_what_to_do(tmp_path: Path) -> None:
    with StateFolder(tmp_path / "mirror", "mirror").lock():
        done = _run(tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"process {os.getpid()}" in line
    assert "`hourmark mirror lag`" in line and f"`kill {os.getpid()}`" in line
