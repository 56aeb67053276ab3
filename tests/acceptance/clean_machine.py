"""A clean Debian with Python alone, a user, and a clone of this checkout in that user's home."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.debian_root import ENVIRONMENT, DebianRoot, clean_root

ROOT: Final = Path(__file__).parents[2]
USER: Final = "somebody"
HOME: Final = f"/home/{USER}"
CHECKOUT: Final = f"{HOME}/hourmark"
_PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
# By what this machine reaches package indexes, which is no part of what is tested.
_NETWORK: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")


class CleanMachine:
    """Commands of its user, in the clone."""

    def __init__(self, root: DebianRoot) -> None:
        self.root = root

    def run(self, *command: str, seconds: float) -> subprocess.CompletedProcess[str]:
        inside = [
            "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-C", CHECKOUT, f"HOME={HOME}", *command,
        ]  # fmt: skip
        return subprocess.run(
            self.root.command(*inside), env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip

    def must(self, *command: str, seconds: float) -> str:
        """It ended well; what it said on stdout."""
        done = self.run(*command, seconds=seconds)
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done.stdout


@contextlib.contextmanager
def clean_machine(folder: Path) -> Iterator[CleanMachine]:
    """Skips where this machine cannot have one."""
    root = clean_root(folder / "root", _PACKAGES)
    mounts: list[Path] = []
    try:
        for kind, at in (("proc", "/proc"), ("tmpfs", "/dev/shm")):  # of that system
            root.at(at).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", kind, kind, str(root.at(at))], check=True)
            mounts.append(root.at(at))
        for path in _NETWORK:
            _copied(Path(path), root.at(path))
        root.must("useradd", "--create-home", USER)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(root.at(CHECKOUT))], check=True)
        root.must("chown", "-R", f"{USER}:{USER}", CHECKOUT)
        yield CleanMachine(root)
    finally:
        for mount in reversed(mounts):
            subprocess.run(["umount", str(mount)], check=True)
        subprocess.run(["rm", "-rf", "--one-file-system", str(root.folder)], check=True)


def _copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    elif source.exists():
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
