"""The README's session, word for word, as a new user types it: every command of every console block is run or accounted for."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourmark.hours import Hour
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
# Run by tests of their own: the demo by test_demo.py, the tests by whoever runs this.
ELSEWHERE = ("./hourmark demo", "./hourmark demo --lines /var/log/dpkg.log --keep", "./hourmark test")


def commands() -> list[str]:
    """The commands of the README's console blocks, continued lines joined."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", "")
    return [re.sub(r"\s{2,}", " ", line[2:]) for line in joined.splitlines() if line.startswith("$ ")]


class Shell:
    """Runs what a user types, in the checkout, with a home of its own and buckets of a minute."""

    def __init__(self, home: Path) -> None:
        self.env = {**os.environ, "HOURMARK_HOME": str(home), "HOURMARK_PARSING__BUCKET_SECONDS": "60"}
        self.env.pop("HOURMARK_CONFIG", None)
        self.logs = home / "session"
        self.logs.mkdir(parents=True)
        self.background: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> str:
        """Its stdout; it must succeed."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """A command that runs until it is stopped."""
        with (self.logs / f"{len(self.background)}.log").open("wb") as log:
            started = subprocess.Popen(
                ["sh", "-c", command], cwd=ROOT, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        self.background.append(started)
        return started

    def stop_all(self) -> None:
        """End everything that was started and runs still."""
        for process in self.background:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("readme"))
    yield made
    made.stop_all()
    subprocess.run(["sh", "-c", "./hourmark purge --yes"], cwd=ROOT, env=made.env, check=False, capture_output=True)


def documented(start: str) -> str:
    """The README's one command that begins so."""
    (found,) = (c for c in commands() if c.startswith(start) and c not in ELSEWHERE)
    return found


def bucket_with_events(shell: Shell, since: Hour) -> str | None:
    """The hour of a closed bucket from `since` on that holds a page view."""
    rows = json.loads(shell.run("./hourmark bucket ls --json"))
    found = [
        row["hour"] for row in rows if row["type"] == "page-viewed" and row["events"] and Hour.parse(row["hour"], 60) >= since
    ]
    return found[0] if found else None


def post_and_find(shell: Shell) -> str:
    """Post the documented event, and wait for it in a closed bucket."""
    now = Hour.of(time.time_ns() // 1_000_000, 60)
    answer = json.loads(shell.run(documented("curl")))
    assert (answer["events"], answer["dead_letters"]) == (1, 0)
    wait_for(lambda: bucket_with_events(shell, now) is not None, "the posted event in a closed bucket", 240)
    hour = bucket_with_events(shell, now)
    assert hour is not None
    return hour


def test_no_command_of_the_readme_is_left_out() -> None:
    covered = (
        "./hourmark up", "./hourmark types check", "./hourmark types apply", "./hourmark serve", "./hourmark etl run &", "curl",
        "./hourmark bucket ls", "./hourmark bucket cat", "./hourmark etl run", "PYSPARK_PYTHON=",
    )  # fmt: skip
    for command in commands():
        assert command in ELSEWHERE or command.startswith(covered), f"{command}: documented, but not tested here"


def test_the_session_works_as_it_is_written(shell: Shell) -> None:
    for start in ("./hourmark up", "./hourmark types check", "./hourmark types apply"):
        shell.run(documented(start))
    shell.start(documented("./hourmark serve").removesuffix(" &"))
    etl = shell.start(documented("./hourmark etl run &").removesuffix(" &"))

    def service_is_ready() -> bool:
        try:
            with urllib.request.urlopen("http://127.0.0.1:8780/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    wait_for(service_is_ready, "the service ready", 60)
    hour = post_and_find(shell)
    shell.run(documented("./hourmark bucket ls"))
    seen = shell.run(documented("./hourmark bucket cat").replace("2026-11-21T05", hour))
    assert '"/start"' in seen
    os.killpg(etl.pid, signal.SIGTERM)
    etl.wait(timeout=60)
    assert shlex.split(documented("PYSPARK_PYTHON="))[-1] == "src/etl/job.py"
    shell.start(documented("PYSPARK_PYTHON="))
    post_and_find(shell)
