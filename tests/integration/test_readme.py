"""The README's session, word for word, as a new user types it: every command of every console block
is run or accounted for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import wait_for

from hourmark.records.hours import Hour
from hourmark_etl.operators.buckets.exits import BucketExit

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
# Run by tests of their own: the demo by test_demo.py, `init` and `run` by test_run.py, `evaluate` by
# test_evaluate.py; the tests by you.
# from the event to the closed bucket: the README's three minutes, and two for a busy machine
FIRST_BUCKET_S = 300.0
ELSEWHERE = (
    "./hourmark demo",
    "./hourmark demo --lines /var/log/dpkg.log --keep",
    "./hourmark test",
    "./hourmark init /var/log/dpkg.log",
    "./hourmark run --once",
)


def commands() -> list[str]:
    """The commands of the README's console blocks, continued lines joined."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", "")
    return [
        re.sub(r"\s{2,}", " ", line[2:]) for line in joined.splitlines() if line.startswith("$ ")
    ]


class Shell:
    """Runs what a user types, in the checkout, with a home of its own and no setting but what the
    README has.
    """

    def __init__(self, home: Path) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("HOURMARK_")
        }
        self.env = {**kept, "HOURMARK_HOME": str(home)}
        self.service = ""
        self.logs = home / "session"
        self.logs.mkdir(parents=True)
        self.background: list[subprocess.Popen[bytes]] = []

    def run(self, command: str, exit_codes: Collection[int] = (0,)) -> str:
        """Its stdout; it must end with one of these exit codes."""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in exit_codes, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """A command that runs until it is stopped."""
        with (self.logs / f"{len(self.background)}.log").open("wb") as log:
            started = subprocess.Popen(
                ["sh", "-c", command],
                cwd=ROOT,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
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
    subprocess.run(
        ["sh", "-c", "./hourmark purge --yes"],
        cwd=ROOT,
        env=made.env,
        check=False,
        capture_output=True,
    )


def documented(start: str) -> str:
    """The README's one command that begins so; it may be there twice."""
    (found,) = {c for c in commands() if c.startswith(start) and c not in ELSEWHERE}
    return found


def curl(shell: Shell, start: str) -> str:
    """The README's one `curl` that begins so, to the address that `up` named: another where
    somebody has the README's port.
    """
    return documented(f"curl -fsS --retry 30 {start}").replace(
        "http://127.0.0.1:8780", shell.service
    )


def bucket_with_events(shell: Shell, since: Hour) -> str | None:
    """The hour of a closed bucket from `since` on that holds a page view."""
    rows = json.loads(shell.run("./hourmark bucket ls --json"))
    found = [
        row["hour"]
        for row in rows
        if row["type"] == "page-viewed" and row["events"] and Hour.parse(row["hour"], 60) >= since
    ]
    return found[0] if found else None


def post(shell: Shell) -> Hour:
    """Post the documented event; the minute whose bucket it belongs to."""
    answer = json.loads(shell.run(curl(shell, "-H")))
    assert (answer["events"], answer["dead_letters"], answer["delivery"]) == (1, 0, "exactly once")
    return Hour.containing(int(answer["repeat"]["Hourmark-Observed-At"]), 60)


def test_no_command_of_the_readme_is_left_out() -> None:
    covered = (
        "./hourmark up",
        "./hourmark types check",
        "./hourmark types apply",
        "./hourmark serve",
        "./hourmark etl run &",
        "curl",
        "minute=",
        "./hourmark status",
        "./hourmark bucket ls",
        "./hourmark bucket why",
        "./hourmark bucket show",
        "./hourmark bucket cat",
        "./hourmark etl run",
        "PYSPARK_PYTHON=",
        "./hourmark evaluate",
    )
    for command in commands():
        assert command in ELSEWHERE or command.startswith(covered), (
            f"{command}: documented, but not tested here"
        )


def test_the_session_works_as_it_is_written(shell: Shell) -> None:
    (shell.service,) = re.findall(
        r"^Service: +(\S+),", shell.run(documented("./hourmark up")), re.MULTILINE
    )
    for start in ("./hourmark types check", "./hourmark types apply"):
        shell.run(documented(start))
    shell.start(documented("./hourmark serve").removesuffix(" &"))
    etl = shell.start(documented("./hourmark etl run &").removesuffix(" &"))
    shell.run(
        curl(shell, "--retry-connrefused")
    )  # at once, as one who pastes all of it: the service need not be ready
    minute = post(shell)
    posted_s = time.monotonic()
    said = Hour.parse(shell.run(f'{documented("minute=")}; echo "$minute"').strip(), 60)
    assert said in (minute, minute.next()), "the clock may have passed the minute's end in between"
    shell.env["minute"] = str(minute)
    ends = (BucketExit.OPEN, BucketExit.PROVED)
    why = documented("./hourmark bucket why")
    assert shell.run(why, ends).startswith(f"page-viewed {minute}: ")
    shell.run(documented("./hourmark status"))
    wait_for(
        lambda: f"page-viewed {minute}: closed as proved" in shell.run(why, ends),
        "the first bucket closed",
        FIRST_BUCKET_S,
    )
    print(f"the first bucket was closed {time.monotonic() - posted_s:.0f} s after its event")
    assert f"page-viewed {minute}: proved, 1 event" in shell.run(
        documented("./hourmark bucket show")
    )
    assert '"/start"' in shell.run(documented("./hourmark bucket cat"))
    assert str(minute) in shell.run(documented("./hourmark bucket ls"))
    os.killpg(etl.pid, signal.SIGTERM)
    etl.wait(timeout=60)
    assert shlex.split(documented("PYSPARK_PYTHON="))[-1] == "etl/job.py"
    shell.start(documented("PYSPARK_PYTHON="))
    minute = post(shell)
    wait_for(
        lambda: bucket_with_events(shell, minute) is not None,
        "the posted event in a closed bucket",
        240,
    )
