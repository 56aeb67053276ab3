"""Another network namespace of this machine, as another host sees it: one cable, no other way."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

_HERE: Final = "10.213.77.1"
_THERE: Final = "10.213.77.2"


class OtherHost(NamedTuple):
    """`address`: this machine, as seen from there; `its_address`: that one, from here.

    `run`: what commands there begin with.
    """

    address: str
    run: tuple[str, ...]
    its_address: str = _THERE
    cable: str = ""

    def pull(self) -> None:
        """Nothing comes through any more, without a word to anybody."""
        _ip("link", "set", self.cable, "down")

    def plug(self) -> None:
        """The cable is in again."""
        _ip("link", "set", self.cable, "up")


@contextlib.contextmanager
def other_host() -> Iterator[OtherHost]:
    """For as long as it is needed; skips the test where this machine cannot have one."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and iproute2 (`ip netns`)")
    name = f"hm{os.getpid()}"
    near, far = f"{name}a", f"{name}b"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine has no network namespaces: {error.stderr.strip()}")
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("addr", "add", f"{_HERE}/30", "dev", near)
        _ip("link", "set", near, "up")
        for command in (
            ("addr", "add", f"{_THERE}/30", "dev", far),
            ("link", "set", far, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", name, *command)
        yield OtherHost(_HERE, ("ip", "netns", "exec", name), cable=near)
    finally:
        _ip("netns", "del", name)  # the cable goes with it


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
