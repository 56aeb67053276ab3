"""The balancer's image by itself: it listens under the limits that engines give."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.compose import MISSING, built, program
from tests.support.waiting import wait_for

from hourmark_infra.containers.site_setup import create_site_files

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

FILES_MAX = (
    512,
    1024,
)  # the latter is what an engine gives where the machine's limits are not raised
LISTENS = "</dev/tcp/localhost/8780"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> str:
    command = program()
    if command is None:
        pytest.skip(MISSING)
    built(command, ("balancer",), tmp_path_factory.mktemp("build") / "build.log")
    return command[0].removesuffix("-compose")


@pytest.mark.parametrize("files", FILES_MAX)
def test_it_listens_however_few_files_it_may_open(engine: str, files: int, tmp_path: Path) -> None:
    limited = ("-c", f"ulimit -n {files} && exec haproxy -db -f /etc/haproxy/hourmark.cfg")
    with listening(engine, tmp_path, "--entrypoint=bash", command=limited) as container:
        assert ends_well(engine, "exec", container, "bash", "-c", LISTENS)


def test_it_stops_when_the_engine_stops_it(engine: str, tmp_path: Path) -> None:
    # It ignored SIGTERM, so that each stop took the engine's 30 seconds and ended with SIGKILL.
    with listening(engine, tmp_path) as container:
        said(engine, "stop", "--time=60", container)
        ended = said(engine, "inspect", container, "--format", "{{.State.ExitCode}}")
        assert ended.strip() == "0"


@contextlib.contextmanager
def listening(engine: str, site: Path, *options: str, command: Sequence[str] = ()) -> Iterator[str]:
    """A balancer's container of its own, which listens."""
    create_site_files(site)
    limits = ("--read-only", "--cap-drop=ALL", f"--user={os.getuid()}", "-v", f"{site}:/site:ro")
    container = said(engine, "run", "-d", *limits, *options, image(engine), *command).strip()
    try:
        wait_for(
            lambda: ends_well(engine, "exec", container, "bash", "-c", LISTENS),
            "the balancer listens",
            60,
            0.5,
        )
        yield container
    finally:
        said(engine, "rm", "--force", "--time=0" if engine == "podman" else "--volumes", container)


def image(engine: str) -> str:
    """The newest of those that compose built."""
    return said(engine, "images", "--quiet", "--filter", "reference=*hourmark-balancer").split()[0]


def said(*command: str) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def ends_well(*command: str) -> bool:
    return (
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        ).returncode
        == 0
    )
