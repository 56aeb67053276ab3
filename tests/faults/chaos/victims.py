"""Whoever a fault may hit: a server of the stack, a component of Hourmark, the ledger's database,
with all its processes.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from typing import Protocol

import psutil
from tests.support.postgres import Postgres
from tests.support.servers import come_back

from hourmark_infra.components import Components
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.lifecycle import last_lines
from hourmark_infra.stack.process import Process, is_alive, send_signal, start_id


class Victim(Protocol):
    """One of them."""

    def is_alive(self) -> bool:
        """Whether its process is there."""

    def last_words(self) -> str:
        """The end of its log."""

    def start(self) -> None:
        """Start it if it does not run."""

    def come_back(self) -> None:
        """Start it, and wait until it is well."""

    def kill(self) -> None:
        """SIGKILL, with all its children; it is gone afterwards."""

    def terminate(self) -> None:
        """End it as an operator would; it is gone afterwards."""

    def processes(self) -> list[Process]:
        """All of them, the first one first."""


def pause(victim: Victim) -> None:
    """SIGSTOP, for all."""
    for process in victim.processes():
        send_signal(process, signal.SIGSTOP)


def resume(victim: Victim) -> None:
    """SIGCONT."""
    for process in victim.processes():
        send_signal(process, signal.SIGCONT)


@dataclasses.dataclass
class Server:
    """Of the stack."""

    stack: LocalStack
    name: str

    def is_alive(self) -> bool:
        return self.stack.process(self.name) is not None

    def last_words(self) -> str:
        return last_lines(self.stack.server(self.name).log)

    def start(self) -> None:
        self.stack.start(self.name)

    def come_back(self) -> None:
        come_back(self.stack, self.name)

    def kill(self) -> None:
        self.stack.kill(self.name)

    def terminate(self) -> None:
        self.stack.stop(self.name)

    def processes(self) -> list[Process]:
        first = self.stack.process(self.name)
        return [] if first is None else [first, *_children(first)]


@dataclasses.dataclass
class Component:
    """Of Hourmark: tailer, service or etl."""

    components: Components
    name: str

    def is_alive(self) -> bool:
        return is_alive(self.components.running.get(self.name))

    def last_words(self) -> str:
        return last_lines(self.components.log(self.name))

    def start(self) -> None:
        if not self.is_alive():
            self.components.kill(self.name)  # children of a parent that was killed
            self.components.start(self.name)

    def come_back(self) -> None:
        self.start()  # whether it is well is seen by what it does

    def kill(self) -> None:
        self.components.kill(self.name)

    def terminate(self) -> None:
        self.components.stop(self.name)

    def processes(self) -> list[Process]:
        first = self.components.running.get(self.name)
        return [first, *_children(first)] if first is not None and is_alive(first) else []


@dataclasses.dataclass
class Database:
    """PostgreSQL, with the ledger in it. Killed by SIGQUIT: all its processes end at once, and the
    next start recovers.
    """

    server: Postgres
    name: str

    def is_alive(self) -> bool:
        return self.server.pid is not None

    def last_words(self) -> str:
        return last_lines(self.server.folder / "log")

    def start(self) -> None:
        if not self.is_alive():
            self.server.start()

    def come_back(self) -> None:
        self.start()

    def kill(self) -> None:
        self.server.stop(signal.SIGQUIT)

    def terminate(self) -> None:
        self.server.stop()

    def empty(self) -> None:
        """The ledger is lost."""
        self.server.empty(self.name)

    def copy(self) -> None:
        """Of the ledger as it is; the driver must not run."""
        self.server.copy(self.name, f"{self.name}-copy")

    def put_back(self) -> None:
        """The copy, in the ledger's place."""
        self.server.put_back(self.name, f"{self.name}-copy")

    def is_written_to(self) -> bool:
        """Whether somebody has written in a transaction that is not over."""
        return self.server.is_written_to(self.name)

    def processes(self) -> list[Process]:
        pid = self.server.pid
        first = Process(pid, start_id(pid) or "") if pid is not None else None
        return [] if first is None else [first, *_children(first)]


def _children(parent: Process) -> Iterator[Process]:
    try:
        found = psutil.Process(parent.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for child in found:
        if started := start_id(child.pid):
            yield Process(child.pid, started)
