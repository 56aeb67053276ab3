"""Hourmark's own daemons as child processes: service, tailer, ETL, canary.

Chaos tests use them too, and a mirror's worker.

Each carries a mark in its environment, as the stack's servers do, and so do its children (Spark's
JVM): by that they are found and ended again, also those of a demo that was killed before it could.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark_infra.stack.lifecycle import end, kill, last_lines
from hourmark_infra.stack.process import Process, is_alive, of_mark, spawn

_STOP_SECONDS: Final = 10.0
_RETRIES: Final = 3
_RETRY_SECONDS: Final = 2.0

COMMANDS: Final = {
    "service": ("serve",),
    "tailer": ("tail",),
    "etl": ("etl", "run"),
    "mirror": ("mirror", "run"),
    "canary": ("canary", "run"),
    "canary-check": (
        "canary",
        "check",
        "--every",
        "10",
    ),  # so that it is named a bucket's length and two minutes after
}
CANARIES: Final = ("canary", "canary-check")  # of a site whose types declare it


@dataclass
class Components:
    """The daemons of one configuration. `home` makes their mark; their logs are in `logs`."""

    home: Path
    config: Path
    logs: Path
    clock: Clock
    running: dict[str, Process] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start one; it is not ready yet."""
        self.running[name] = spawn(
            self.command(*COMMANDS[name]), environment(), self._mark(name), self.log(name)
        )

    def runs(self, name: str) -> bool:
        """Whether one that was started has not ended."""
        return name in self.running and is_alive(self.running[name])

    def kill(self, name: str) -> None:
        """SIGKILL one with all of its children."""
        self.running.pop(name, None)
        kill(of_mark(self._mark(name)), self.clock, _STOP_SECONDS)

    def stop(self, name: str) -> None:
        """End one as an operator would, by SIGTERM first."""
        self.running.pop(name, None)
        end(of_mark(self._mark(name)), self.clock, _STOP_SECONDS)

    def stop_all(self) -> None:
        """End all, side by side; those of a run before this one, too."""
        with ThreadPoolExecutor(len(COMMANDS)) as pool:
            list(pool.map(self.stop, COMMANDS))

    def check(self) -> None:
        """Unavailable, naming the log and its last lines, if one that was started has ended by
        itself.
        """
        for name, process in self.running.items():
            if not is_alive(process):
                raise Unavailable(
                    f"the {name} has ended; its log {self.log(name)} ends "
                    f"with:\n{last_lines(self.log(name))}"
                )

    def run(self, *arguments: str, seconds: float) -> None:
        """Run a command of Hourmark to its end; Unavailable with what it said if it fails."""
        command = self.command(*arguments)
        shown = shlex.join(["hourmark", *command[3:]])
        try:
            subprocess.run(
                command,
                env=environment(),
                check=True,
                timeout=seconds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{shown} was not done after {seconds:.0f} s") from error
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{shown} failed:\n{error.stdout[-4000:]}") from error

    def run_repeatable(self, *arguments: str, seconds: float) -> None:
        """As `run`, again after a pause where it fails: for what can be repeated, while servers
        that just came up settle.
        """
        for _ in range(_RETRIES):
            with suppress(Unavailable):
                return self.run(*arguments, seconds=seconds)
            self.clock.sleep(_RETRY_SECONDS)
        return self.run(*arguments, seconds=seconds)

    def wait_ready(self, address: str, seconds: float) -> None:
        """Wait until the service's /readyz says yes."""
        wait_for(
            lambda: is_ready(address),
            f"the service to be ready at {address}",
            seconds,
            self.clock,
            self.check,
        )

    def log(self, name: str) -> Path:
        """Where one's stdout and stderr go."""
        return self.logs / f"hourmark-{name}.log"

    def command(self, *arguments: str) -> Sequence[str]:
        """Of Hourmark, with this configuration."""
        return (sys.executable, "-m", "hourmark", *arguments, "--config", str(self.config))

    def _mark(self, name: str) -> str:
        return f"{self.home}/components::{name}"


def environment() -> dict[str, str]:
    """This process's, without settings of Hourmark that would override the file they are given."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOURMARK_")}


def wait_for(
    condition: Callable[[], bool],
    what: str,
    seconds: float,
    clock: Clock,
    each: Callable[[], None],
    *,
    pause_s: float = 0.25,
) -> None:
    """Wait until the condition holds, calling `each` between looks; Unavailable, saying `what` was
    awaited, if it never does.
    """
    until = clock.monotonic_s() + seconds
    while not condition():
        each()
        if clock.monotonic_s() >= until:
            raise Unavailable(f"waited {seconds:.0f} s in vain for {what}")
        clock.sleep(pause_s)


def is_ready(address: str) -> bool:
    """Whether the service's /readyz says yes."""
    try:
        return httpx.get(f"{address}/readyz", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
