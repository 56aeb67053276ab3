"""The Python environments of the container images: what their roles need, by the lock, no more."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.packaging.conftest import Environment, must
from tests.packaging.rooms import ROOMS, ROOT, needs, pins
from tests.packaging.test_wheels import IMPORT_ALL
from tools.uv import run_uv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CONTAINERFILE = (ROOT / "infra" / "containers" / "Containerfile").read_text()
SPARK = {"pyspark", "py4j", "pandas", "pyarrow", "numpy"}
LEFT_OUT: dict[str, set[str]] = {
    "python": {"evaluate", "reading", "verify"},
    "java": set(),
}  # rooms that no role runs
TOOLS = {"pip", "uv", "setuptools"}  # which install the others


def extras_of(image: str) -> set[str]:
    """The extras with which the Containerfile makes the environment of this image."""
    stage = "jars" if image == "java" else f"built-{image}"
    [extras] = re.findall(r'^ENV HOURMARK_EXTRAS="(.*?)"', stage_text(stage), re.MULTILINE)
    return {*extras.split()}


def stage_text(stage: str) -> str:
    return CONTAINERFILE.split(f" AS {stage}\n")[1].split("\nFROM ")[0]


def test_packages_are_installed_from_the_projects_of_the_rooms_in_an_image() -> None:
    copied = {
        stage: {*re.findall(r"^COPY (\w+)/pyproject.toml \1/$", stage_text(stage), re.MULTILINE)}
        for stage in ("packages", "jars")
    }
    rooms = {room.folder.name for room in ROOMS.values()}
    assert copied == {"packages": rooms - LEFT_OUT["python"], "jars": LEFT_OUT["python"]}
    removed = re.findall(r"rm -r (.*?) &&", stage_text("built-python"))
    assert [set(names.split()) for names in removed] == [LEFT_OUT["python"]]


@pytest.fixture(scope="module", params=["python", "java"])
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def environment(image: str, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Made as the build of the image makes it, in a checkout of its own."""
    here = tmp_path_factory.mktemp(image) / "hourmark"
    shutil.copytree(ROOT / "infra" / "launcher", here / "infra" / "launcher")
    shutil.copy2(ROOT / "requirements.lock", here)
    shutil.copy2(ROOT / "hourmark", here)
    for room in ROOMS.values():
        if room.folder.name not in LEFT_OUT[image]:
            (here / room.folder.name).mkdir(exist_ok=True)
            shutil.copy2(room.folder / "pyproject.toml", here / room.folder.name)
    program = str(here / "infra" / "launcher" / "make_venv.py")
    run_launcher(image, here, sys.executable, "-I", program, str(here))
    shutil.copytree(ROOT, here, ignore=left_out_files(image), dirs_exist_ok=True)
    updated = run_launcher(image, here, str(here / "hourmark"), "--version")
    assert "making .venv" not in updated, "packages of others are installed twice"
    return Environment(here / ".venv")


def run_launcher(image: str, here: Path, *command: str) -> str:
    """What it says on stderr."""
    done = subprocess.run(
        command,
        input=f"{here}\n",
        env={**os.environ, "HOURMARK_EXTRAS": " ".join(sorted(extras_of(image)))},
        capture_output=True,
        text=True,
        check=False,
    )
    if "No matching distribution" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip("neither a cache nor the network has what installing needs")
    assert done.returncode == 0, done.stderr
    return done.stderr


def left_out_files(image: str) -> Callable[[str, list[str]], set[str]]:
    """What the context of the build leaves out, for `shutil.copytree`."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()[1:]
    anywhere = shutil.ignore_patterns(
        *(line.removeprefix("**/") for line in lines if line.startswith("**/"))
    )
    at_top = {line for line in lines if "/" not in line} | LEFT_OUT[image]

    def left_out(folder: str, names: list[str]) -> set[str]:
        return anywhere(folder, names) | (at_top & {*names} if Path(folder) == ROOT else set())

    return left_out


@pytest.mark.long
def test_an_image_has_what_its_rooms_need_in_locked_versions_and_no_tool(
    image: str, environment: Environment
) -> None:
    there = {
        canonicalize_name(each.metadata["Name"]): each.version
        for each in importlib.metadata.distributions(path=[str(environment.site)])
    }
    rooms = {name: room for name, room in ROOMS.items() if room.folder.name not in LEFT_OUT[image]}
    asked = [
        Requirement(f"{name}[{','.join(room.extras & extras_of(image))}]")
        for name, room in rooms.items()
    ]
    assert there.keys() == needs(asked).keys() | rooms.keys()
    locked = pins()
    assert all(there[name] in locked[name] for name in there.keys() - rooms.keys())
    must(run_uv(["pip", "check", "--python", str(environment.python)]))
    development = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    tools = TOOLS | {Requirement(line).name for line in development}
    assert not tools & there.keys()
    assert (there.keys() & SPARK) == (SPARK if image == "java" else set())


@pytest.mark.long
def test_modules_of_an_image_load(image: str, environment: Environment) -> None:
    packages = {room.package for room in ROOMS.values() if room.folder.name not in LEFT_OUT[image]}
    missing = {*must(environment.run("python", "-c", IMPORT_ALL, *sorted(packages))).split()}
    assert missing == (SPARK - {"pandas"} | {"obstore"} if image == "python" else set())
