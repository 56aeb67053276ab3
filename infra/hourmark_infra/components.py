"""Hourmark's own daemons as child processes: service, tailer, ETL, mirror and canary.

Each daemon has a mark in its environment, as the stack's servers do, and its children (Spark's JVM)
inherit it. Daemons are found and stopped by this mark, including those of a run that was killed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from hourmark.clock import Clock
from hourmark.errors import Unavailable, UsageError
from hourmark_infra.stack.health import SERVER_HTTP
from hourmark_infra.stack.lifecycle import kill_processes, last_lines, stop_processes
from hourmark_infra.stack.process import MARK, Process, find_by_mark, is_alive, spawn

_NO_SETTINGS: Final = ("HOURMARK_HOME", "HOURMARK_CALLED")
_STOP_SECONDS: Final = 10.0
_RETRIES: Final = 3
_RETRY_SECONDS: Final = 2.0

COMMANDS: Final = {
    "service": ("serve",),
    "tailer": ("tail",),
    "etl": ("etl", "run"),
    "mirror": ("mirror", "run"),
    "canary": ("canary", "run"),
    # Every ten seconds: a missing canary is reported a bucket's length and two minutes later.
    "canary-check": ("canary", "check", "--every", "10"),
}
CANARIES: Final = ("canary", "canary-check")  # for a site whose types declare the canary


@dataclass
class Components:
    """Runner that starts the Hourmark daemons of one configuration as child processes.

    The daemon names are the keys of `COMMANDS`: service, tailer, etl, mirror, canary, canary-check.

    Attributes:
        home: Folder whose path identifies the daemons. Another object with the same path can find
            and stop them.
        config: Path of the configuration file, passed to every command.
        logs: Folder for the log files, one for each daemon.
        clock: Clock used for waiting.
        running: Maps the name of each daemon that this object started to its process.
    """

    home: Path
    config: Path
    logs: Path
    clock: Clock
    running: dict[str, Process] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a daemon as a child process, without waiting until it is ready.

        Call `wait_ready` to wait for the delivery service.

        Args:
            name: Name of the daemon, a key of `COMMANDS`.

        Raises:
            KeyError: There is no such daemon.
        """
        self.running[name] = spawn(
            self.command(*COMMANDS[name]), child_environment(), self._mark(name), self.log(name)
        )

    def is_running(self, name: str) -> bool:
        """Return whether a daemon that this object started is still running.

        Args:
            name: Name of the daemon, a key of `COMMANDS`.

        Returns:
            True if the daemon is running. False otherwise, including when another object started
            the daemon or the name is unknown.
        """
        return name in self.running and is_alive(self.running[name])

    def kill(self, name: str) -> None:
        """Send SIGKILL to a daemon and its child processes, and wait for them to exit.

        The daemon may have been started by another object with the same `home`. Does nothing if the
        daemon is not running.

        Args:
            name: Name of the daemon, a key of `COMMANDS`.
        """
        self.running.pop(name, None)
        kill_processes(find_by_mark(self._mark(name)), self.clock, _STOP_SECONDS)

    def stop(self, name: str) -> None:
        """Stop a daemon and its child processes.

        The daemon receives SIGTERM. Processes that are still running after 10 seconds are killed.
        Does nothing if the daemon is not running.

        Args:
            name: Name of the daemon, a key of `COMMANDS`.
        """
        self.running.pop(name, None)
        stop_processes(find_by_mark(self._mark(name)), self.clock, _STOP_SECONDS)

    def stop_all(self) -> None:
        """Stop all daemons with the same `home` in parallel.

        This includes daemons that were started by another object or process. Each daemon receives
        SIGTERM, and is killed if it does not exit within 10 seconds.
        """
        with ThreadPoolExecutor(len(COMMANDS)) as pool:
            list(pool.map(self.stop, COMMANDS))

    def check(self) -> None:
        """Check that the daemons that this object started have not exited.

        Call this method regularly while waiting for a daemon. Daemons that were stopped with `stop`
        or `kill` are not checked.

        Raises:
            Unavailable: A daemon has exited. The message contains the path and the last lines of
                its log.
        """
        for name, process in self.running.items():
            if not is_alive(process):
                raise Unavailable(
                    f"{name} exited unexpectedly; its log {self.log(name)} ends "
                    f"with:\n{last_lines(self.log(name))}"
                )

    def run(self, *arguments: str, seconds: float) -> None:
        """Run an `hourmark` command and wait until it exits.

        Args:
            arguments: Subcommand and options; `--config` is appended.
            seconds: Timeout in seconds, after which the command is killed.

        Raises:
            Unavailable: The command timed out or failed. In the latter case, the message contains
                the end of its output.
            UsageError: The command failed because an argument, a setting or a declaration is
                invalid (exit code 2). A retry fails again.
        """
        self._call(arguments, seconds, stderr=subprocess.STDOUT)

    def query_json(self, *arguments: str, seconds: float) -> Any:
        """Run an `hourmark` command with the option `--json`, and return its decoded output.

        Args:
            arguments: Subcommand and options; `--json` and `--config` are appended.
            seconds: Timeout in seconds, after which the command is killed.

        Returns:
            The decoded JSON.

        Raises:
            Unavailable: The command timed out or failed. In the latter case, the message contains
                the end of its error output.
            UsageError: The command failed because an argument, a setting or a declaration is
                invalid (exit code 2). A retry fails again.
        """
        return json.loads(self._call((*arguments, "--json"), seconds, stderr=subprocess.PIPE))

    def _call(self, arguments: Sequence[str], seconds: float, *, stderr: int) -> str:
        command = self.command(*arguments)
        shown = shlex.join(["hourmark", *command[3:]])
        try:
            done = subprocess.run(
                command,
                env=child_environment(),
                check=True,
                timeout=seconds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"{shown} did not finish within {seconds:.0f} s; the machine may be overloaded: "
                "repeat the command"
            ) from error
        except subprocess.CalledProcessError as error:
            output = error.stdout if error.stderr is None else error.stderr
            failure = UsageError if error.returncode == UsageError.exit_code else Unavailable
            raise failure(f"{shown} failed:\n{output[-4000:]}") from error
        return done.stdout

    def run_repeatable(self, *arguments: str, seconds: float) -> None:
        """Run an idempotent `hourmark` command, and retry it up to three times if it fails.

        There is a pause of two seconds before each retry.

        Args:
            arguments: Subcommand and options; `--config` is appended.
            seconds: Timeout of each attempt in seconds.

        Raises:
            Unavailable: The last attempt timed out or failed.
            UsageError: An argument, a setting or a declaration is invalid (exit code 2). The
                command is not retried.
        """
        for _ in range(_RETRIES):
            with suppress(Unavailable):
                return self.run(*arguments, seconds=seconds)
            self.clock.sleep(_RETRY_SECONDS)
        return self.run(*arguments, seconds=seconds)

    def wait_ready(self, address: str, seconds: float) -> None:
        """Wait until the delivery service reports that it is ready.

        Args:
            address: Base URL of the service, such as `http://127.0.0.1:8780`.
            seconds: Timeout in seconds.

        Raises:
            Unavailable: The service did not become ready in time, or a daemon that this object
                started has exited.
        """
        wait_for(
            lambda: is_service_ready(address),
            f"the service to be ready at {address}",
            seconds,
            self.clock,
            self.check,
        )

    def log(self, name: str) -> Path:
        """Return the path of the log file to which a daemon's stdout and stderr are written.

        The file is created when the daemon is started for the first time.

        Args:
            name: Name of the daemon, a key of `COMMANDS`.
        """
        return self.logs / f"hourmark-{name}.log"

    def command(self, *arguments: str) -> Sequence[str]:
        """Return the command line that runs `hourmark` with this object's configuration file.

        Args:
            arguments: Subcommand and options; `--config` is appended.

        Returns:
            The path of the Python interpreter, followed by its arguments.
        """
        return (sys.executable, "-m", "hourmark", *arguments, "--config", str(self.config))

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment variables for a command that runs in place of a daemon.

        With these variables, `stop`, `stop_all` and `kill` also stop the command, even if the
        process that started it no longer exists.

        Args:
            name: Name of the daemon, a key of `COMMANDS`.
        """
        return {**child_environment(), MARK: self._mark(name)}

    def _mark(self, name: str) -> str:
        return f"{self.home}/components::{name}"


def child_environment() -> dict[str, str]:
    """Return the environment variables for child processes that run Hourmark commands.

    Variables named `HOURMARK_*` are omitted, because they would override settings in the
    configuration file. `HOURMARK_HOME` and `HOURMARK_CALLED` are kept: they are no settings.

    Returns:
        Names and values of the variables. The environment of this process is not changed.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in _NO_SETTINGS or not name.startswith("HOURMARK_")
    }


def wait_for(
    condition: Callable[[], bool],
    description: str,
    seconds: float,
    clock: Clock,
    on_retry: Callable[[], None],
    *,
    pause_s: float = 0.25,
) -> None:
    """Call a function repeatedly until it returns True.

    Args:
        condition: Function to call.
        description: Description of the condition, for the error message.
        seconds: Timeout in seconds.
        clock: Clock used for the timeout and the pauses.
        on_retry: Function called whenever `condition` returns False. It may raise an exception to
            stop waiting.
        pause_s: Pause between calls in seconds.

    Raises:
        Unavailable: The condition did not become true in time.
    """
    until = clock.monotonic_s() + seconds
    while not condition():
        on_retry()
        if clock.monotonic_s() >= until:
            raise Unavailable(f"timed out after {seconds:.0f} s waiting for {description}")
        clock.sleep(pause_s)


def is_service_ready(address: str) -> bool:
    """Return whether the delivery service at a base URL is ready for requests.

    Args:
        address: Base URL of the service, such as `http://127.0.0.1:8780`.

    Returns:
        True if the service reports that it is ready. False otherwise, including when it cannot be
        reached or does not respond within five seconds.
    """
    try:
        return SERVER_HTTP.get(f"{address}/readyz").is_success
    except httpx.HTTPError:
        return False
