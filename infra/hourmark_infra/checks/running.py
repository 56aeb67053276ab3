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
from hourmark_infra.checks.class_archive import submit_arguments
from hourmark_infra.checks.reports import describe_failed_tests, failed_node_ids

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# The signal is repeated, because a starting process may miss the first one.
AGAIN_SECONDS: Final = 5.0
_TESTS_FAILED: Final = 1  # exit code of pytest after it has run all tests


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
        report: JUnit XML report that the command writes, relative to the root folder of the
            checkout, or None. If the check fails, the failed tests in the report are listed at the
            end.
        repeats_max: If pytest ran all tests and at most this many failed, these run once more, one
            at a time, when all other checks have finished. Those that then pass are listed at the
            end, but do not count as failed. Requires `report`.
        folders: Folders that pytest searches for tests; empty for its default folders. Failed tests
            that are repeated take their place.
    """

    name: str
    command: tuple[str, ...]
    output: Output = Output.WHERE_IT_FAILED
    report: Path | None = None
    repeats_max: int = 0
    folders: tuple[str, ...] = ()

    def repetition(self, root: Path) -> Check | None:
        """Return a check that runs the failed tests of this check once more.

        Args:
            root: Root folder of the checkout.

        Returns:
            The check; None if no test failed, or if more than `repeats_max` tests failed.
        """
        if self.report is None:
            return None
        tests = failed_node_ids(root / self.report)
        if not 0 < len(tests) <= self.repeats_max:
            return None
        report = self.report.with_stem(f"{self.report.stem}-repeated")
        alone = ("--numprocesses", "0", f"--junitxml={report}", *tests)
        return Check(f"{self.name} again", (*self.command, *alone), report=report)


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
                failure
                for failures in pool.map(lambda lane: _failed(lane, root, forwarder), lanes)
                for failure in failures
            ]
        failed += _failed(last, root, forwarder)
        still, repeated = _repeat(failed, root, forwarder)
        if forwarder.signal_number is not None:
            click.echo(
                f"ended by {signal.Signals(forwarder.signal_number).name}, together with all "
                "processes that the checks had started",
                err=True,
            )
            return 128 + forwarder.signal_number
    if repeated:
        click.echo("passed only when they were repeated alone:", err=True)
        _list_failed_tests(repeated, root)
    if not still:
        click.echo("all checks passed", err=True)
        return 0
    click.echo(f"FAILED: {', '.join(check.name for check in still)}", err=True)
    _list_failed_tests(still, root)
    return 1


class _Failure(NamedTuple):
    check: Check
    exit_code: int


def _repeat(
    failed: Sequence[_Failure], root: Path, forwarder: _SignalForwarder
) -> tuple[list[Check], list[Check]]:
    # The checks that have still failed, and those whose failed tests passed when repeated.
    still, repeated = list[Check](), list[Check]()
    for check, exit_code in failed:
        may_repeat = forwarder.signal_number is None and exit_code == _TESTS_FAILED
        repetition = check.repetition(root) if may_repeat else None
        passes = repetition is not None and _run(repetition, root, forwarder) == 0
        (repeated if passes else still).append(check)
    return still, repeated


def _list_failed_tests(checks: Sequence[Check], root: Path) -> None:
    for check in checks:
        for line in describe_failed_tests(root / check.report) if check.report else ():
            click.echo(f"  {line}", err=True)


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

    The result is a copy of this process's environment with changes that make programs start twice
    as fast. `PYTHONPYCACHEPREFIX` is set if it is not set yet, so that all checks share compiled
    modules in the virtual environment. `PYTHONDONTWRITEBYTECODE`, which would disable this cache,
    is removed. `PYSPARK_SUBMIT_ARGS` names the class-data archive if there is one.

    Returns:
        Names and values of the variables.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    bytecode = {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "bytecode")}
    return bytecode | submit_arguments() | inherited


def _failed(lane: Sequence[Check], root: Path, forwarder: _SignalForwarder) -> list[_Failure]:
    # After a signal, no further check is started.
    return [
        _Failure(check, exit_code)
        for check in lane
        if forwarder.signal_number is None and (exit_code := _run(check, root, forwarder))
    ]


def _run(check: Check, root: Path, forwarder: _SignalForwarder) -> int:
    # Return the exit code.
    clock = SystemClock()
    began = clock.monotonic_s()
    output = None if check.output is Output.AS_IT_COMES else subprocess.PIPE
    if check.report is not None:
        (root / check.report).unlink(missing_ok=True)  # of an earlier run
    with subprocess.Popen(
        (*check.command, *check.folders),
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
    return process.returncode


def _to_its_end(process: subprocess.Popen[bytes], forwarder: _SignalForwarder) -> bytes:
    # Returns the captured output. After a signal, SIGTERM is sent repeatedly until the process exits.
    while True:
        if forwarder.signal_number is not None:
            forwarder.terminate_all()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=AGAIN_SECONDS)[0] or b""
