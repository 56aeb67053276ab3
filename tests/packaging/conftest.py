"""The rooms' wheels and sdists, built once a session, and empty environments to install them in.

Both come from uv's cache, and from the network only for what is not there. An environment holds
modules of other people before anything of Hourmark: named as the rooms' folders, and each notes
that it was imported.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from tests.packaging.rooms import ROOMS, ROOT, Room, needs
from tests.support.debian_packages import made
from tests.support.debian_programs import program
from tools.uv import Done, run_uv, uv

from hourmark_infra.stack.registry import extract_archive

BUILD_LOCK: Final = ROOT / "infra" / "launcher" / "build.lock"
OTHERS: Final = tuple(room.folder.name for room in ROOMS.values())
_NOTES: Final = "imported-of-other-people"
_OTHER: Final = f"""from pathlib import Path
OWNER = "other people"
with (Path(__file__).parents[PARENT] / "{_NOTES}").open("a") as file:
    file.write(__name__ + "\\n")
"""
# The hooks that pip and uv call (PEP 517), in the room's folder as they do.
_BUILD: Final = """
import os, sys
from hatchling.build import build_sdist, build_wheel
for argument in sys.argv[1:]:
    folder, _, target = argument.partition("=")
    kind, _, into = target.partition(":")
    os.makedirs(into, exist_ok=True)
    os.chdir(folder)
    {"sdist": build_sdist, "wheel": build_wheel}[kind](into)
"""


@dataclasses.dataclass(frozen=True)
class Built:
    """Of one room: the wheel of the tree, the sdist of the tree, and the wheel of that sdist."""

    room: Room
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@dataclasses.dataclass(frozen=True)
class Environment:
    """One environment, with `site` its site-packages."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        return (
            self.folder
            / "lib"
            / f"python{sys.version_info[0]}.{sys.version_info[1]}"
            / "site-packages"
        )

    def install(self, wheels: Collection[Path], pinned: Collection[str]) -> None:
        """No more than these; `uv pip check` then says whether they suffice each other."""
        build = [
            "--build-constraints",
            str(BUILD_LOCK),
        ]  # as the launcher does: pyspark is built once for both
        must(
            uv(
                [
                    "pip",
                    "install",
                    "--python",
                    str(self.python),
                    "--no-deps",
                    *build,
                    *map(str, wheels),
                    *pinned,
                ]
            )
        )

    def check(self) -> Done:
        """Exit code 1 where what is installed lacks something that it declares, or has another
        version of it.
        """
        return run_uv(["pip", "check", "--python", str(self.python)])

    def distributions(self) -> set[str]:
        return {
            folder.name.partition("-")[0].replace("_", "-").lower()
            for folder in self.site.glob("*.dist-info")
        }

    def run(self, *command: str, **variables: str) -> Done:
        """A program of the environment, which knows nothing of this checkout."""
        clean = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8", **variables}
        program = [str(self.folder / "bin" / command[0]), *command[1:]]
        return subprocess.run(
            program, cwd=self.folder, env=clean, capture_output=True, text=True, check=False
        )

    def others(self) -> dict[str, Path]:
        """Where the modules of other people stand: every second one is a package."""
        return {
            name: self.site / (f"{name}/__init__.py" if index % 2 else f"{name}.py")
            for index, name in enumerate(OTHERS)
        }

    def imported(self) -> list[str]:
        """Modules of other people that were imported, in turn."""
        notes = self.site / _NOTES
        return notes.read_text().split() if notes.exists() else []

    def forget_imports(self) -> None:
        (self.site / _NOTES).unlink(missing_ok=True)


def other_text(file: Path) -> str:
    return _OTHER.replace("PARENT", str(int(file.name == "__init__.py")))


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Environment]]:
    """Makes an environment that holds modules of other people, and nothing else; gone after the
    session.
    """
    all_made: list[Environment] = []

    def make(name: str) -> Environment:
        made = Environment(tmp_path_factory.mktemp(name) / "env")
        must(uv(["venv", "--python", sys.executable, str(made.folder)]))
        for file in made.others().values():
            file.parent.mkdir(exist_ok=True)
            file.write_text(other_text(file))
        all_made.append(made)
        return made

    yield make
    for environment in all_made:
        shutil.rmtree(environment.folder)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """All rooms' wheels and sdists, by name."""
    into = tmp_path_factory.mktemp("built")
    builder = Environment(into / "builder")
    must(uv(["venv", "--python", sys.executable, str(builder.folder)]))
    must(
        uv(
            [
                "pip",
                "install",
                "--python",
                str(builder.python),
                "--no-deps",
                "--require-hashes",
                "-r",
                str(BUILD_LOCK),
            ]
        )
    )
    tree = [room.folder for room in ROOMS.values()]
    _build(
        builder,
        [f"{folder}={kind}:{into / kind}" for folder in tree for kind in ("wheel", "sdist")],
    )
    sdists = {
        name: into / "sdist" / f"{room.package}-{room.project['version']}.tar.gz"
        for name, room in ROOMS.items()
    }
    for sdist in sdists.values():
        with tarfile.open(sdist) as archive:
            extract_archive(archive, into / "unpacked")
    unpacked = [into / "unpacked" / sdist.name.removesuffix(".tar.gz") for sdist in sdists.values()]
    _build(builder, [f"{folder}=wheel:{into / 'wheel-of-sdist'}" for folder in unpacked])
    found = {}
    for name, room in ROOMS.items():
        (wheel,) = (into / "wheel").glob(f"{room.package}-{room.project['version']}-*.whl")
        found[name] = Built(room, wheel, sdists[name], into / "wheel-of-sdist" / wheel.name)
    return found


@pytest.fixture(scope="session")
def place(
    built: dict[str, Built], empty: Callable[[str], Environment]
) -> Callable[[str], Environment]:
    """An environment with what one asks of pip (`hourmark-etl[arrow]`) installed; the same for the
    same.
    """
    made: dict[str, Environment] = {}

    def get(asked: str) -> Environment:
        if asked not in made:
            requirement = Requirement(asked)
            environment = empty(requirement.name)
            wheels = [built[name].wheel for name in rooms_of(requirement)]
            environment.install(
                wheels, [f"{name}=={version}" for name, version in needs([requirement]).items()]
            )
            made[asked] = environment
        return made[asked]

    return get


def rooms_of(requirement: Requirement) -> set[str]:
    """The rooms that one needs, itself among them."""
    found = {requirement.name}
    for below in ROOMS[requirement.name].declared(requirement.extras):
        if below.name in ROOMS and below.name not in found:
            found |= rooms_of(below)
    return found


def _build(builder: Environment, arguments: Sequence[str]) -> None:
    must(builder.run("python", "-c", _BUILD, *arguments))


def must(done: Done) -> str:
    """It ended well; what it said."""
    assert done.returncode == 0, f"{done.args}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def tailer_packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The tailer's Debian package, and its next revision."""
    program("dpkg-deb", "dpkg")
    first, second = made(tmp_path_factory.mktemp("deb"), "tailer")
    return first, second
