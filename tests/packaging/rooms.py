"""The rooms as their pyproject files declare them, and what the lock says of what they need."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
LOCK: Final = ROOT / "requirements.lock"
KERBEROS_LOCK: Final = ROOT / "kerberos.lock"  # what is compiled with headers of the system


@dataclasses.dataclass(frozen=True)
class Room:
    """One distribution of the workspace."""

    folder: Path

    @cached_property
    def project(self) -> Mapping[str, Any]:
        """Its `[project]` table."""
        table: Mapping[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text())[
            "project"
        ]
        return table

    @property
    def name(self) -> str:
        return str(self.project["name"])

    @property
    def package(self) -> str:
        return self.name.replace("-", "_")

    def declared(self, extras: Collection[str]) -> list[Requirement]:
        """What it asks for, with these of its extras."""
        optional = self.project.get("optional-dependencies", {})
        return [
            Requirement(line)
            for part in (self.project["dependencies"], *(optional[e] for e in extras))
            for line in part
        ]

    @property
    def extras(self) -> frozenset[str]:
        return frozenset(self.project.get("optional-dependencies", {}))


ROOMS: Final = {
    room.name: room
    for room in (Room(file.parent) for file in sorted(ROOT.glob("*/pyproject.toml")))
}


def pins() -> dict[str, list[str]]:
    """Versions by distribution, as locked; more than one where they differ by Python."""
    found: dict[str, list[str]] = {}
    for lock in (LOCK, KERBEROS_LOCK):
        for name, version in re.findall(
            r"^([a-z0-9-]+)==([^ ;\\]+)", lock.read_text(), re.MULTILINE
        ):
            if version not in found.setdefault(name, []):
                found[name].append(version)
    return found


def needs(wanted: Iterable[Requirement]) -> dict[str, str]:
    """All that these need on this machine, however far down, by the version in use here; the rooms
    are not among it.
    """
    seen: set[tuple[str, str]] = set()
    found: dict[str, str] = {}
    open_ends = [(requirement, "") for requirement in wanted]
    while open_ends:
        requirement, of_extra = open_ends.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in ROOMS:
            found[name] = importlib.metadata.version(name)
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            open_ends += [(below, extra) for below in _below(name, extra)]
    return found


def _below(name: str, extra: str) -> list[Requirement]:
    if (
        room := ROOMS.get(name)
    ) is not None:  # what is installed here may be of an older pyproject.toml
        optional = room.project.get("optional-dependencies", {})
        return [
            Requirement(line)
            for line in (optional[extra] if extra else room.project["dependencies"])
        ]
    return [Requirement(line) for line in importlib.metadata.requires(name) or ()]
