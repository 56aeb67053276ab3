"""`hourmark test`, ended in the middle: the real servers that its tests started, or are just
starting, end with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.waiting import wait_for

from hourmark.config.loading import load_config
from hourmark_infra.stack.process import find_by_mark_prefix

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def servers(folder: Path) -> int:
    """How many of the stack below this folder run."""
    return len(find_by_mark_prefix(f"{folder}/"))


def first_ones_start(folder: Path) -> bool:
    return servers(folder) >= 2


def all_are_up(folder: Path) -> bool:
    configs = list(folder.glob("*/stack/hourmark.toml"))
    return (
        servers(folder) == 8
        and bool(configs)
        and load_config(configs[0]).mirror.work_dir.joinpath("mm2.properties").exists()
    )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name
)
@pytest.mark.parametrize("moment", [first_ones_start, all_are_up])
def test_no_server_outlives_it(
    tmp_path: Path, number: signal.Signals, moment: Callable[[Path], bool]
) -> None:
    folder = tmp_path / "session"
    command = [
        sys.executable,
        "-m",
        "hourmark",
        "test",
        "tests/integration/test_stack.py",
        "--basetemp",
        str(folder),
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HOURMARK_")
    }
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    ) as run:
        try:
            wait_for(lambda: moment(folder), "servers of the tests run", 600)
            os.killpg(run.pid, number)
            assert run.wait(120) == 128 + number
            assert servers(folder) == 0
        finally:
            run.kill()
            for processes in find_by_mark_prefix(f"{folder}/").values():
                for process in processes:
                    os.kill(process.pid, signal.SIGKILL)
