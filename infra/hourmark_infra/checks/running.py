"""Runs checks so that they end with `hourmark test`: SIGTERM, SIGHUP and Ctrl-C are passed on, and
their end is waited for.

Checks stand in lanes: those of one lane are run one after the other, the lanes beside each other.
Tests on servers mostly wait, so that all else is done meanwhile. What holds the system to a time
has the machine for itself, after all others.

A test session takes its servers down when it is told to end (tests/support/ending.py), which takes
as long as they need. Each check has a session of its own, so that a terminal's Ctrl-C reaches it
once, from here, and not again in the middle of that.
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
AGAIN_SECONDS: Final = (
    5.0  # a signal may reach a process that is only just starting, or is busy with another one
)


class Output(Enum):
    """When what a check says is shown."""

    WHERE_IT_FAILED = auto()
    AT_ITS_END = auto()
    AS_IT_COMES = auto()  # for one lane at most, lest two be mixed


class Check(NamedTuple):
    """One check."""

    name: str
    command: tuple[str, ...]
    output: Output = Output.WHERE_IT_FAILED


def run_checks(lanes: Sequence[Sequence[Check]], root: Path, last: Sequence[Check] = ()) -> int:
    """The exit code: 0, 1 where one failed, 128 and the signal's number where one ended it.

    `last`: when all lanes have ended.
    """
    with _Told().listening() as told:
        with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
            failed = [
                name
                for names in pool.map(lambda lane: _failed(lane, root, told), lanes)
                for name in names
            ]
        failed += _failed(last, root, told)
        if told.number is not None:
            click.echo(
                f"ended by {signal.Signals(told.number).name}, with all that the checks "
                "had started",
                err=True,
            )
            return 128 + told.number
    click.echo(f"FAILED: {', '.join(failed)}" if failed else "all checks passed", err=True)
    return 1 if failed else 0


@dataclass
class _Told:
    """Whether to end, and which process is to be told so."""

    number: int | None = None
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    saying: threading.Lock = field(
        default_factory=threading.Lock
    )  # for what a check said, as a whole

    @contextlib.contextmanager
    def listening(self) -> Iterator[_Told]:
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number
        os.write(
            sys.stderr.fileno(), b"ending: what the checks started is taken down first\n"
        )  # print may be interrupted in itself
        self.pass_on()

    def pass_on(self) -> None:
        for process in list(self.running):
            process.terminate()


def environment() -> dict[str, str]:
    """Return the environment of a check, with a cache of compiled Python modules.

    The checks start some thousand Python processes. Without a cache, each compiles every module
    that it imports, which doubles the time to start a command and triples the time to collect
    tests. The cache is in the virtual environment, so the checkout stays free of `__pycache__`
    where `PYTHONDONTWRITEBYTECODE` asks for that. A `PYTHONPYCACHEPREFIX` that is set is kept.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "bytecode"), **inherited}


def _failed(lane: Sequence[Check], root: Path, told: _Told) -> list[str]:
    """Names of those that failed; none is begun once all are to end."""
    return [check.name for check in lane if told.number is None and not _passes(check, root, told)]


def _passes(check: Check, root: Path, told: _Told) -> bool:
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
        told.running.append(process)
        said = _to_its_end(process, told)
        told.running.remove(process)
    passed = process.returncode == 0
    with told.saying:
        if not passed or check.output is Output.AT_ITS_END:
            sys.stdout.buffer.write(said)
            sys.stdout.flush()
        click.echo(
            f"{check.name:<22} {'passed' if passed else 'FAILED'}  "
            f"{clock.monotonic_s() - began:6.1f} s",
            err=True,
        )
    return passed


def _to_its_end(process: subprocess.Popen[bytes], told: _Told) -> bytes:
    """What it said; it is told again and again to end, once this is to end."""
    while True:
        if told.number is not None:
            told.pass_on()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=AGAIN_SECONDS)[0] or b""
