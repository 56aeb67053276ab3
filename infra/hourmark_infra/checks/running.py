"""Execution of checks in child processes that stop together with `hourmark test`.

SIGTERM, SIGHUP and Ctrl-C are passed to all running checks, and their exit is awaited.

Checks are grouped in lanes. The checks of one lane run one after the other; lanes run in parallel.
Tests with servers mostly wait, so the other checks run in the meantime. Tests with time limits run
alone after all others.

On SIGTERM a test session stops its servers (tests/support/ending.py) and waits for them. Each check
runs in its own process session, so it receives Ctrl-C only once, from this process, and not again
from the terminal while it stops its servers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import click

from hourmark.clock import SystemClock

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# The signal is repeated, because a starting process may miss the first one.
AGAIN_SECONDS: Final = 5.0


class Output(Enum):
    """When `hourmark test` prints the output of a check.

    Attributes:
        WHERE_IT_FAILED: When the check has finished, and only if it failed.
        AT_ITS_END: When the check has finished, whether it passed or failed.
        AS_IT_COMES: Immediately. Only one of the sequences of checks that run in parallel may use
            this value, because otherwise their output would be mixed.
    """

    WHERE_IT_FAILED = auto()
    AT_ITS_END = auto()
    AS_IT_COMES = auto()  # in one lane at most, because output of two lanes would be mixed


class Check(NamedTuple):
    """A command that `hourmark test` runs. The check passes if its exit code is 0.

    Attributes:
        name: Name of the check, shown with its result.
        command: Path of the program and its arguments.
        output: When to print the output of the command.
    """

    name: str
    command: tuple[str, ...]
    output: Output = Output.WHERE_IT_FAILED


def run_checks(lanes: Sequence[Sequence[Check]], root: Path, last: Sequence[Check] = ()) -> int:
    """Run checks in child processes and print one result line for each to stderr.

    If this process receives SIGTERM, SIGHUP or SIGINT, it sends SIGTERM to the running checks and
    waits for them to exit. No more checks are started.

    Args:
        lanes: Sequences of checks. The sequences run in parallel, and the checks within each
            sequence run one after another.
        root: Root folder of the checkout, used as the working directory.
        last: Checks that run one after another when all sequences have finished.

    Returns:
        0 if all checks passed, 1 if a check failed, or 128 plus the number of the received signal.
    """
    with _SignalForwarder().installed() as forwarder:
        with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
            failed = [
                name
                for names in pool.map(lambda lane: _failed(lane, root, forwarder), lanes)
                for name in names
            ]
        failed += _failed(last, root, forwarder)
        if forwarder.signal_number is not None:
            click.echo(
                f"ended by {signal.Signals(forwarder.signal_number).name}, with all that the checks "
                "had started",
                err=True,
            )
            return 128 + forwarder.signal_number
    click.echo(f"FAILED: {', '.join(failed)}" if failed else "all checks passed", err=True)
    return 1 if failed else 0


@dataclass
class _SignalForwarder:
    # The signal that this process received, and the running checks that must receive it.
    # `print_lock` keeps the output of one check together.

    signal_number: int | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    print_lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def installed(self) -> Iterator[_SignalForwarder]:
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.signal_number = self.signal_number or number
        # os.write, because a signal handler may interrupt a running print.
        os.write(sys.stderr.fileno(), b"ending: what the checks started is taken down first\n")
        self.terminate_all()

    def terminate_all(self) -> None:
        for process in list(self.processes):
            process.terminate()


def environment() -> dict[str, str]:
    """Return the environment variables for checks.

    The result is a copy of this process's environment with two changes, which make commands start
    twice as fast. `PYTHONPYCACHEPREFIX` is set if it is not set yet, so that all checks share
    compiled modules in the virtual environment. `PYTHONDONTWRITEBYTECODE`, which would disable this
    cache, is removed.

    Returns:
        Names and values of the variables.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "bytecode"), **inherited}


def _failed(lane: Sequence[Check], root: Path, forwarder: _SignalForwarder) -> list[str]:
    # After a signal, no further check is started.
    return [
        check.name
        for check in lane
        if forwarder.signal_number is None and not _passes(check, root, forwarder)
    ]


def _passes(check: Check, root: Path, forwarder: _SignalForwarder) -> bool:
    clock = SystemClock()
    began = clock.monotonic_s()
    output = None if check.output is Output.AS_IT_COMES else subprocess.PIPE
    with subprocess.Popen(
        check.command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output and subprocess.STDOUT,
        env=environment(),
        start_new_session=True,
    ) as process:
        forwarder.processes.append(process)
        captured = _to_its_end(process, forwarder)
        forwarder.processes.remove(process)
    passed = process.returncode == 0
    with forwarder.print_lock:
        if not passed or check.output is Output.AT_ITS_END:
            sys.stdout.buffer.write(captured)
            sys.stdout.flush()
        click.echo(
            f"{check.name:<22} {'passed' if passed else 'FAILED'}  "
            f"{clock.monotonic_s() - began:6.1f} s",
            err=True,
        )
    return passed


def _to_its_end(process: subprocess.Popen[bytes], forwarder: _SignalForwarder) -> bytes:
    # Returns the captured output. After a signal, SIGTERM is sent repeatedly until the process exits.
    while True:
        if forwarder.signal_number is not None:
            forwarder.terminate_all()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=AGAIN_SECONDS)[0] or b""
