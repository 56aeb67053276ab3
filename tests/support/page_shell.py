"""A shell in which tests run the commands of documentation pages as a reader types them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path


class PageShell:
    """Runs the commands of a page in one folder, with a Hourmark home of its own.

    Variables `HOURMARK_…` of the test run are removed, so only settings that the page names apply.

    Attributes:
        folder: The current folder of each command.
        env: The environment of each command. Tests add the variables that a page sets.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("HOURMARK_")
        }
        self.folder = folder
        self.env = {**kept, "HOURMARK_HOME": str(home)}
        self._logs = home / "session"
        self._logs.mkdir(parents=True)
        self._background: list[subprocess.Popen[bytes]] = []

    def run(
        self, command: str, exit_codes: Collection[int] = (0,), timeout_s: float = 300.0
    ) -> str:
        """Run a command to its end.

        Args:
            command: The text after `$ `.
            exit_codes: The exit codes that are expected.
            timeout_s: Time limit in seconds.

        Returns:
            The standard output.
        """
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode in exit_codes, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command that runs until it is stopped. A trailing `&` is ignored."""
        with self._log(len(self._background)).open("wb") as log:
            started = subprocess.Popen(
                ["sh", "-c", command.removesuffix("&")],
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._background.append(started)
        return started

    def output(self, started: subprocess.Popen[bytes]) -> str:
        """Return what a command that was started has printed so far."""
        return self._log(self._background.index(started)).read_text()

    def stop(self, started: subprocess.Popen[bytes]) -> None:
        """End a command that was started, in order."""
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(timeout=60)

    def kill_all(self) -> None:
        """Kill everything that was started and still runs."""
        for process in self._background:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _log(self, number: int) -> Path:
        return self._logs / f"{number}.log"


@contextlib.contextmanager
def page_shell(folder: Path, home: Path, launcher: str = "./hourmark") -> Iterator[PageShell]:
    """Yield a shell. At the end, what it started is killed, and the local stack of its home deleted.

    Args:
        folder: The current folder of the commands.
        home: The value of `$HOURMARK_HOME`.
        launcher: The command of Hourmark in `folder`.
    """
    shell = PageShell(folder, home)
    try:
        yield shell
    finally:
        shell.kill_all()
        shell.run(f"{launcher} purge --yes")
