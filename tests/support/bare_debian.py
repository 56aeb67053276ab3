"""A machine with Python and not much else: a clean Debian in namespaces of its own, with this
checkout in somebody's home.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from tests.support.debian_root import ENVIRONMENT, DebianRoot, clean_root

ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
_USER: Final = "somebody"
_HOME: Final = f"/home/{_USER}"
# Its processes end with whoever started them. It has this machine's network, and nothing else of
# it.
_INSIDE: Final = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot --userspec=%s "$root" sh -c 'cd %s/hourmark && exec "$@"' sh "$@"
""" % (_USER, _HOME)  # noqa: UP031 - braces are the shell's


class BareDebian:
    """Commands are run in the checkout, by one who is not root."""

    def __init__(self, root: DebianRoot) -> None:
        self.root = root

    def run(self, *command: str, seconds: float) -> subprocess.CompletedProcess[str]:
        alone = (
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            _INSIDE,
            "sh",
            str(self.root.folder),
        )
        environment = {**ENVIRONMENT, "HOME": _HOME, **_index_settings()}
        return subprocess.run(
            [*alone, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )


def bare_debian(into: Path) -> BareDebian:
    """Skips where this machine cannot have one."""
    root = clean_root(into, _PACKAGES)
    root.must("useradd", "--create-home", _USER)
    subprocess.run(
        ["git", "clone", "--quiet", str(ROOT), str(root.at(f"{_HOME}/hourmark"))], check=True
    )
    root.must("chown", "--recursive", _USER, _HOME)
    root.at("/etc/hosts").write_text(
        f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n"
    )  # as Debian's installer does
    _trust_as_here(root)
    return BareDebian(root)


def _trust_as_here(root: DebianRoot) -> None:
    """Packages come from where this machine gets them, and are trusted as here."""
    shutil.rmtree(root.at("/etc/ssl/certs"))
    shutil.copytree("/etc/ssl/certs", root.at("/etc/ssl/certs"), ignore_dangling_symlinks=True)
    if Path("/etc/pip.conf").is_file():
        shutil.copy("/etc/pip.conf", root.at("/etc/pip.conf"))


def _index_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
