"""A clean Debian that systemd was booted in, without a virtual machine: by namespaces of this one's
kernel.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.support.debian_root import ENVIRONMENT, DebianRoot
from tests.support.waiting import wait_for

PACKAGES: Final = ("dbus", "systemd", "systemd-sysv")
_BOOT: Final = Path(__file__).with_name("boot_debian.sh")
_CGROUPS: Final = Path("/sys/fs/cgroup")


class BootedDebian:
    """Commands run within. `pid`: of its systemd, as seen from here."""

    def __init__(self, root: DebianRoot, pid: int) -> None:
        self.root = root
        self._pid = pid

    def run(self, *command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        inside = [
            "nsenter",
            f"--target={self._pid}",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--root",
            "--wd",
            *command,
        ]
        return subprocess.run(
            inside, env=ENVIRONMENT, capture_output=True, text=True, timeout=seconds, check=False
        )

    def must(self, *command: str, seconds: float = 120) -> str:
        """It ended well; what it said."""
        done = self.run(*command, seconds=seconds)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit, as systemd has it."""
        return self.must("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def journal(self, unit: str) -> str:
        return self.must("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")


@contextlib.contextmanager
def booted(root: DebianRoot, log: Path) -> Iterator[BootedDebian]:
    """Until the block ends. Skips where this machine lets nobody boot so."""
    legacy = _CGROUPS / "systemd"
    group = (legacy if legacy.is_dir() else _CGROUPS) / f"hourmark-test-{os.getpid()}"
    with log.open("wb") as said:
        process = subprocess.Popen(
            ["sh", str(_BOOT), str(root.folder), str(group)], stdout=said, stderr=said
        )
    try:
        wait_for(lambda: process.poll() is not None or _boots(process.pid), "systemd boots")
        if process.poll() is not None:
            pytest.skip(
                f"systemd cannot be booted beside this machine's: {log.read_text().strip()[-300:]}"
            )
        (child,) = psutil.Process(process.pid).children()
        made = BootedDebian(root, child.pid)
        wait_for(
            lambda: (
                made.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")
            ),
            "it has booted",
        )
        yield made
    finally:
        process.kill()
        process.wait()
        _remove(group)


def _boots(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(child.name() == "systemd" for child in psutil.Process(pid).children())
    return False


def _remove(group: Path) -> None:
    """Cgroups that are left are empty, as soon as the kernel has ended what was in them."""

    def gone() -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        return not group.exists()

    wait_for(gone, "the cgroups are empty")
