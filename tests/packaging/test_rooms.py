"""The rooms' pyproject files against each other, against what the rooms import, and against the
lock.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.packaging.rooms import KERBEROS_LOCK, LOCK, ROOMS, ROOT, Room, pins
from tools.uv import uv

pytestmark = pytest.mark.slow

DECISION = ROOT / "docs" / "internals" / "decisions" / "2026-11-21-libraries.md"
EXTRAS = [(room.name, extra) for room in ROOMS.values() for extra in ("", *sorted(room.extras))]

# Declared, though no line imports it: who does.
BY_OTHERS = {
    "hourmark": {"tzdata": "zoneinfo, where the host has no zone files"},
    "hourmark-etl": {
        "gssapi": "storage/spnego.py, by its name, because it may be missing",
        "psycopg": "SQLAlchemy, by the ledger's URL",
        "pandas": "Spark's Python workers",
    },
    "hourmark-reading": {"requests": "fsspec, to speak WebHDFS"},
}


def imported(room: Room) -> set[str]:
    """Distributions of which the room imports something, wherever the import stands."""
    providers = importlib.metadata.packages_distributions()
    packages = {other.package: other.name for other in ROOMS.values()}
    found: set[str] = set()
    for name in {
        name for file in (room.folder / room.package).rglob("*.py") for name in _imports(file)
    }:
        if name not in sys.stdlib_module_names and name != room.package:
            found |= (
                {packages[name]}
                if name in packages
                else {canonicalize_name(d) for d in providers[name]}
            )
    return found


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{file} imports relatively"
            yield node.module.partition(".")[0]


def asked(room: Room) -> dict[str, set[str]]:
    """What a room declares, with all its extras, by distribution: the extras it asks of it.

    Not itself.
    """
    found: dict[str, set[str]] = {}
    for requirement in room.declared(room.extras):
        if requirement.name != room.name:
            found.setdefault(canonicalize_name(requirement.name), set()).update(requirement.extras)
    return found


def of_extras(declared: dict[str, set[str]]) -> set[str]:
    """What comes with the extras that are named: whoever asks for `uvicorn[standard]` asks for
    uvloop.
    """
    found: set[str] = set()
    for name, extras in declared.items():
        for line in importlib.metadata.requires(name) or () if extras and name not in ROOMS else ():
            below = Requirement(line)
            if below.marker and any(
                below.marker.evaluate({"extra": e}) and not below.marker.evaluate() for e in extras
            ):
                found.add(canonicalize_name(below.name))
    return found


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_declares_what_it_imports_and_no_more(name: str) -> None:
    room = ROOMS[name]
    own, uses = asked(room), imported(room)
    given = {*own, *of_extras(own)}
    if "hourmark" in own:  # what all share comes with it, as its version is pinned
        shared = ROOMS["hourmark"].declared(own["hourmark"])
        given |= {canonicalize_name(requirement.name) for requirement in shared}
    assert uses - given == set(), "imported, not declared"
    assert own.keys() - uses == BY_OTHERS.get(name, {}).keys(), "declared, not imported"


def test_all_rooms_have_one_version_and_pin_each_other_to_it() -> None:
    versions = {room.project["version"] for room in ROOMS.values()}
    assert len(versions) == 1
    between = [r for room in ROOMS.values() for r in room.declared(room.extras) if r.name in ROOMS]
    assert {str(requirement.specifier) for requirement in between} == {f"=={versions.pop()}"}
    asking = {
        room.name for room in ROOMS.values() if any(r.name == "hourmark" for r in room.declared(()))
    }
    assert asking == ROOMS.keys() - {"hourmark", "hourmark-native", "hourmark-reading"}


@pytest.mark.parametrize(("name", "extra"), EXTRAS)
def test_the_lock_has_what_a_room_asks_for(name: str, extra: str) -> None:
    locked, room = pins(), ROOMS[name]
    for requirement in room.declared({extra} - {""}):
        if requirement.name not in ROOMS:
            versions = locked[canonicalize_name(requirement.name)]
            assert versions, requirement
            assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_what_is_installed_is_what_is_locked() -> None:
    for name, versions in pins().items():
        with contextlib.suppress(
            importlib.metadata.PackageNotFoundError
        ):  # what is for another Python or system
            assert importlib.metadata.version(name) in versions


@pytest.mark.parametrize("lock", [LOCK, KERBEROS_LOCK], ids=lambda lock: str(lock.name))
def test_a_lock_is_what_its_command_makes_of_the_rooms(lock: Path, tmp_path: Path) -> None:
    """By the very command that the decision gives.

    Versions and digests of the old file stay, so no release changes it.
    """
    commands = [
        shlex.split(block.replace("\\\n", ""))[1:]
        for block in re.findall(
            r"^\$ (uv pip compile .*?)\n```$", DECISION.read_text(), re.DOTALL | re.MULTILINE
        )
    ]
    [arguments] = [
        words for words in commands if words[words.index("--output-file") + 1] == lock.name
    ]
    made = shutil.copy(lock, tmp_path)
    arguments[arguments.index("--output-file") + 1] = str(made)
    expanded = [
        name
        for word in arguments
        for name in (
            sorted(str(file.relative_to(ROOT)) for file in ROOT.glob(word))
            if "*" in word
            else [word]
        )
    ]
    done = uv(expanded, cwd=ROOT)
    if done.returncode != 0 and "Failed to fetch" in done.stderr:
        pytest.skip("neither uv's cache nor the network has what resolving needs")
    assert done.returncode == 0, done.stderr
    assert Path(made).read_text() == lock.read_text()


def test_two_locks_agree_and_the_default_installation_compiles_nothing_of_kerberos() -> None:
    assert "gssapi" not in LOCK.read_text()
    assert [
        name
        for name in re.findall(r"^[a-z0-9-]+", KERBEROS_LOCK.read_text(), re.MULTILINE)
        if len(pins()[name]) > 1
    ] == []
