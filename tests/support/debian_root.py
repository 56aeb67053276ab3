"""A clean Debian in a folder, as debootstrap makes it, and commands in it.

Kept between test runs, and copied for each use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.support.debian_programs import KEPT, unpacked

RELEASE: Final = "bookworm"  # its python3 is the one that the package is made for
ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
# What stands in for systemctl: it notes what it is told, where a file says that systemd runs.
_SYSTEMCTL: Final = '#!/bin/sh\necho "$@" >> /run/systemd/told\n'


class DebianRoot:
    """The folder is another system's root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def at(self, path: str) -> Path:
        """Where a path of that system is on this one."""
        return self.folder / path.removeprefix("/")

    def command(self, *command: str) -> list[str]:
        return ["chroot", str(self.folder), *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*command),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def must(self, *command: str) -> str:
        """It ended well; what it said."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """All that it says goes into the log."""
        with log.open("ab") as said:
            return subprocess.Popen(
                self.command(*command), env=ENVIRONMENT, stdout=said, stderr=said
            )

    def pretend_systemd(self) -> None:
        """From now on maintainer scripts find systemd running."""
        self.at("/run/systemd/system").mkdir(parents=True)
        stub = self.at("/usr/bin/systemctl")
        stub.write_text(_SYSTEMCTL)
        stub.chmod(0o755)

    def told_systemd(self) -> list[str]:
        """What systemd was told since the last call."""
        told = self.at("/run/systemd/told")
        lines = told.read_text().splitlines() if told.exists() else []
        told.unlink(missing_ok=True)
        return lines


def clean_root(into: Path, packages: Sequence[str]) -> DebianRoot:
    """The smallest system, with these packages. Skips where this machine cannot have one."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("a Debian in a folder needs root, and apt to fetch it")
    kept = KEPT / f"{RELEASE}-{'-'.join(packages)}"
    if not kept.is_dir():
        making = kept.with_name(f"making-{os.getpid()}")
        _bootstrap(making, packages)
        making.rename(kept)
    subprocess.run(["cp", "-a", str(kept), str(into)], check=True)
    return DebianRoot(into)


def _bootstrap(into: Path, packages: Sequence[str]) -> None:
    tool = unpacked("debootstrap")
    asked = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Component: main",
    ]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    mirror = min(told, key=len)  # the others are of security updates
    environment = {**os.environ, "DEBOOTSTRAP_DIR": str(tool / "usr/share/debootstrap")}
    fetching = [
        str(tool / "usr/sbin/debootstrap"),
        "--foreign",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        RELEASE,
        str(into),
        mirror,
    ]
    try:
        _run(fetching, environment)
        # dpkg would wait for the disk after each file, and slow down all other tests' servers, too
        (into / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
        _run(["chroot", str(into), "/debootstrap/debootstrap", "--second-stage"], ENVIRONMENT)
    except BaseException:
        for mounted in ("proc", "sys"):  # by debootstrap, and left when it was ended
            subprocess.run(["umount", str(into / mounted)], capture_output=True, check=False)
        if not os.path.ismount(into / "proc") and not os.path.ismount(into / "sys"):
            shutil.rmtree(into, ignore_errors=True)
        raise
    for package in (into / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
