"""`hourmark run` with a mirror where the types declare the canary: to a closed bucket, and what is
said where the mirror ends.

A stack of its own, of two clusters. Took 11 minutes, on two cores with some 17 processes waiting
for them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.waiting import wait_for

from hourmark.commands.canary import CANARY, DECLARATION, CanaryStep
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1500)]

BUCKET_S: Final = 60
UP_S: Final = 600.0
ALARM_S: Final = BUCKET_S + 120.0  # what is promised
TASK_STOPPED_S: Final = 60.0
CONFIG: Final = f"""
[parsing]
bucket_seconds = {BUCKET_S}
[types]
dir = "types"
[[tailer.sources]]
name = "app"
paths = ["LOG"]
"""


class Site:
    """`hourmark run` of a folder, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.home, self.log = folder / "home", folder / "run.log"
        command = [
            sys.executable,
            "-m",
            "hourmark",
            "run",
            "--config",
            "hourmark.toml",
            "--clusters",
            "2",
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=self.environment(), stdout=log, stderr=log
            )

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command with the run's own configuration."""
        command = [
            sys.executable,
            "-m",
            "hourmark",
            *arguments,
            "--config",
            str(self.home / "run" / "hourmark.toml"),
        ]
        return subprocess.run(
            command,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOURMARK_HOME": str(self.home)}

    def closed(self) -> list[dict[str, Any]]:
        """The canary's closed buckets that hold any; none where nobody can be asked yet."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        done = self.ask("bucket", "ls", "--json")
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return [
            row
            for row in rows
            if row["type"] == CANARY and row["state"] == "closed" and row["events"]
        ]

    def seen(self) -> dict[str, Any]:
        """What `canary check` says."""
        done = self.ask("canary", "check", "--json")
        said: dict[str, Any] = json.loads(done.stdout)
        assert said["ok"] == (done.returncode == 0), done.stderr
        return said

    def says(self, pattern: str, until_s: float, since: int) -> None:
        """Wait until the one log says so, past this place."""
        found = re.compile(pattern)
        wait_for(
            lambda: found.search(self.log.read_text(), since) is not None,
            pattern,
            until_s - time.monotonic(),
            0.1,
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """It runs, as far as its servers and components came."""
    (tmp_path / "types").mkdir()
    (tmp_path / "types" / f"{CANARY}.toml").write_text(DECLARATION)
    (tmp_path / "hourmark.toml").write_text(CONFIG.replace("LOG", str(tmp_path / "app.log")))
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.process.send_signal(signal.SIGINT)
        made.process.wait(120)
        subprocess.run(
            [sys.executable, "-m", "hourmark", "purge", "--yes"],
            env=made.environment(),
            check=False,
        )


def test_a_canary_comes_to_its_closed_bucket_and_where_the_mirror_has_ended_both_are_named(
    site: Site,
) -> None:
    wait_for(
        lambda: bool(site.closed()), f"a canary in a closed bucket (see {site.log})", UP_S, 1.0
    )
    assert {row["grade"] for row in site.closed()} == {"proved"}
    seen = site.seen()
    assert seen["ok"] and [*seen["age_seconds"]["edge"]] == [*CanaryStep]

    stack = LocalStack.load(site.home)
    before, stopped_s = len(site.log.read_text()), time.monotonic()
    stack.stop("mirror")
    site.says(r"mirror-watch +\| .*ALARM mirror-task-stopped", stopped_s + TASK_STOPPED_S, before)
    by_watch_s = time.monotonic() - stopped_s
    site.says(r"canary-check +\| .*ALARM canary-late: .* mirrored ", stopped_s + ALARM_S, before)
    print(
        f"named after {by_watch_s:.0f} s by the watch, {time.monotonic() - stopped_s:.0f} "
        "s by the canary"
    )
    stack.start("mirror")
    for name in (
        "mirror-watch +\\| .*resolved: mirror-task-stopped",
        "canary-check +\\| .*resolved: canary-late",
    ):
        site.says(name, time.monotonic() + ALARM_S, before)

    watch = stack.process("mirror-watch")
    stack.kill("mirror-watch")
    wait_for(
        lambda: LocalStack.load(site.home).process("mirror-watch") not in (None, watch),
        "it is watched again",
    )
