"""`Stack`: the whole local stack in one hand. Used by the command line, the demo and the tests.

Two at once wait for each other on a lock beside the stack's folder, which the operating system
frees when its holder dies.
"""

from __future__ import annotations

import getpass
import signal
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from hourmark.clock import SystemClock
from hourmark.errors import Unavailable, UsageError
from hourmark.state_folder import StateFolder
from hourmark_infra import jars
from hourmark_infra.jars.cache import Say, say_on_stderr
from hourmark_infra.java.find import export_java_home, java_executable
from hourmark_infra.locks import one_at_a_time
from hourmark_infra.stack import lifecycle
from hourmark_infra.stack.config_file import render_config
from hourmark_infra.stack.health import Health
from hourmark_infra.stack.layout import (
    ANY_PORTS,
    EDGE_NAMES,
    METRICS,
    PORT_NAMES,
    SERVICE,
    WATCH,
    Layout,
    free_ports,
    is_free,
)
from hourmark_infra.stack.options import Clusters, Workers
from hourmark_infra.stack.own_name import check_own_name
from hourmark_infra.stack.process import Process, is_alive, marked, memory_mb, of_mark, send, spawn
from hourmark_infra.stack.registry import unpacked
from hourmark_infra.stack.servers import Programs, Server, server_table
from hourmark_infra.stack.settings import write_settings
from hourmark_infra.stack.state import State, load_state, new_state, save_state


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What `status` shows of a server."""

    name: str
    pid: int | None
    address: str
    memory_mb: int
    healthy: bool
    detail: str
    log: str


class Stack:
    """The stack of one HOURMARK_HOME.

    Methods may be called from several threads; each states what it waits for.
    """

    def __init__(self, home: Path, state: State, say: Say) -> None:
        self.home = home
        self.layout = Layout(home, state.ports, state.shape)
        self._state = state
        self._clock = SystemClock()
        self._say = say
        self._guard = threading.Lock()
        self._servers = self._table()

    @classmethod
    def load(cls, home: Path, say: Say = say_on_stderr) -> Self:
        """The stack that `up` made before. UsageError where there is none."""
        home = home.absolute()
        state = load_state(home)
        if state is None:
            raise UsageError(f"there is no stack in {home}; start one with `hourmark up`")
        return cls(home, state, say)

    @classmethod
    def load_or_make(
        cls,
        home: Path,
        *,
        clusters: Clusters | None = None,
        mirror: bool = True,
        bucket_seconds: int | None = None,
        spread: bool = False,
        workers: Workers = 1,
        jmx: bool = False,
        preferred_ports: Mapping[str, int] = ANY_PORTS,
        say: Say = say_on_stderr,
    ) -> Self:
        """The stack of this home, with new ports and no data where there was none yet.

        None for `bucket_seconds` and `clusters`: as before. UsageError for another number of
        clusters than before. `spread` and `workers`: of one that is made (`state.State`).
        """
        home = home.absolute()
        with _one_at_a_time(home, say):
            state = load_state(home) or new_state(
                preferred_ports, clusters or 2, spread=spread, workers=workers
            )
            if clusters not in (None, state.clusters):
                raise UsageError(
                    f"the stack in {home} has {state.clusters} Kafka cluster(s), and its events "
                    "are there; leave --clusters "
                    "out, or delete the stack and its data by `hourmark purge` first"
                )
            missing = tuple(
                name for name in PORT_NAMES if name not in state.ports
            )  # of a stack of an earlier version
            state = replace(
                state,
                ports={**state.ports, **free_ports(missing)},
                mirror=mirror,
                jmx=jmx,
                bucket_seconds=bucket_seconds or state.bucket_seconds,
            )
            save_state(home, state)
        return cls(home, state, say)

    @cached_property
    def programs(self) -> Programs:
        """What servers are started from; fetched where the cache lacks it, which only a start may
        cause.
        """
        kafka, hadoop, registry = (
            jars.ensure(name, java_executable, self._say)
            for name in ("kafka", "hadoop", "registry")
        )
        return Programs(export_java_home(), kafka, hadoop, unpacked(registry))

    @property
    def bucket_seconds(self) -> int:
        """The length of buckets in `hourmark.toml`."""
        return self._state.bucket_seconds

    @property
    def jmx(self) -> bool:
        """Whether brokers are started so that they tell their metrics."""
        return self._state.jmx

    @property
    def clusters(self) -> Clusters:
        """How many of Kafka."""
        return self._state.clusters

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the edge brokers."""
        return EDGE_NAMES

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all servers, in the order of their start."""
        return tuple(self._servers)

    def server(self, name: str) -> Server:
        """One server's entry in the table; UsageError where there is none of that name."""
        if name not in self._servers:
            raise UsageError(f"no server {name!r}; there are {', '.join(self._servers)}")
        return self._servers[name]

    def process(self, name: str) -> Process | None:
        """The server's process if it runs."""
        # From the disk, as an `up` of somebody else may have started it.
        known = (load_state(self.home) or self._state).processes.get(name)
        return known if is_alive(known) else None

    def up(self, only: Container[str] | None = None) -> dict[str, str]:
        """Start what does not run and wait until all are well; says of each server "started" or
        "running". `only`: of these.
        """
        check_own_name()
        programs = self.programs  # before the lock: a download takes minutes
        with _one_at_a_time(self.home, self._say):
            self._adopt()
            self.renew_taken_ports()
            self.write_settings(programs)
            wanted = [name for name in self._servers if only is None or name in only]
            before = {name: "running" if self.process(name) else "started" for name in wanted}
            self._bring_up(wanted)
        return before

    def down(self) -> dict[str, str]:
        """End what was started here, the mirror and its watch first; says of each "stopped",
        "killed" or "not running".
        """
        with _one_at_a_time(self.home, self._say):
            self._adopt()
            first = (*self.layout.shape.mirrors, WATCH)
            outcome = {name: self._end(name) for name in self._servers if name in first}
            others = [name for name in reversed(self._servers) if name not in outcome]
            with ThreadPoolExecutor(len(others)) as pool:
                return {**outcome, **dict(zip(others, pool.map(self._end, others), strict=True))}

    def status(self) -> list[ServerStatus]:
        """Ask each server; takes as long as the slowest answer, at most a few seconds."""
        with ThreadPoolExecutor(len(self._servers)) as pool:
            return list(pool.map(self._status, self._servers.values()))

    def kill(self, name: str) -> None:
        """SIGKILL the server and its children, and wait until they are gone."""
        lifecycle.kill(self._processes(name), self._clock)
        self._remember(name, None)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send it to the server and its children. Unavailable where it does not run."""
        if not [process for process in self._processes(name) if send(process, number)]:
            raise Unavailable(f"{name} does not run, so it cannot be sent {number.name}")

    def stop(self, name: str) -> None:
        """End one server as `down` does."""
        self._end(name)

    def start(self, name: str) -> None:
        """Start the server if it does not run; does not wait until it is ready."""
        server = self.server(name)
        if self.process(name) is not None:
            return
        lifecycle.kill(self._processes(name), self._clock)  # children of a parent that was killed
        environment = lifecycle.server_environment(self.programs.java)
        lifecycle.prepare(server, environment)
        self._remember(name, spawn(server.command(), environment, self._mark(name), server.log))

    def runs(self, name: str) -> bool:
        """Whether it runs, well or not."""
        return self.process(name) is not None

    def log(self, name: str) -> Path:
        """Where its stdout and stderr go."""
        return self.server(name).log

    def wait_ready(self, name: str, seconds: float = lifecycle.READY_SECONDS) -> Health:
        """Wait until the server is well; Unavailable where it ends or is not well in time."""
        return lifecycle.wait_ready(
            self.server(name), lambda: self.process(name), self._clock, seconds
        )

    def _bring_up(self, wanted: Sequence[str]) -> None:
        """Start these, each after what it needs; the first failure ends the waiting for the others,
        which stay up.
        """
        failed = threading.Event()
        done: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(len(wanted)) as pool:
            for name in wanted:
                done[name] = pool.submit(self._start_and_wait, name, done, failed.is_set)
            try:
                for future in as_completed(done.values()):
                    future.result()
            except (
                BaseException
            ):  # the first failure, or Ctrl-C: who waits for a server need not wait on
                failed.set()
                raise

    def _start_and_wait(
        self, name: str, done: dict[str, Future[None]], abandoned: Callable[[], bool]
    ) -> None:
        for needed in self._servers[name].needs:
            done[needed].result()
        ran = self.process(name) is not None
        began = self._clock.monotonic_s()
        self.start(name)
        # Of a cluster, all brokers are being started, so each must come to see all of them.
        health = lifecycle.wait_ready(
            self.server(name),
            lambda: self.process(name),
            self._clock,
            abandoned=abandoned,
            whole=True,
        )
        seconds = self._clock.monotonic_s() - began
        self._say(f"{name}: {'runs' if ran else f'ready after {seconds:.1f} s'} ({health.detail})")

    def _end(self, name: str) -> str:
        processes = self._processes(name)
        gently = lifecycle.end(processes, self._clock)
        self._remember(name, None)
        outcome = ("stopped" if gently else "killed") if processes else "not running"
        self._say(f"{name}: {outcome}")
        return outcome

    def _status(self, server: Server) -> ServerStatus:
        process = self.process(server.name)
        health = server.ask() if process else Health(False, "does not run; `hourmark up` starts it")
        return ServerStatus(
            name=server.name,
            pid=process.pid if process else None,
            address=server.address,
            memory_mb=sum(map(memory_mb, self._processes(server.name))),
            healthy=health.ok,
            detail=health.detail,
            log=str(server.log),
        )

    def write_settings(self, programs: Programs) -> None:
        """What servers and commands read, as each `up` writes it before anything starts."""
        text = render_config(
            self.layout, programs, getpass.getuser(), self.bucket_seconds, self.clusters
        )
        write_settings(self.layout, text)

    def _mark(self, name: str) -> str:
        return f"{self.layout.root}::{self.server(name).name}"

    def _processes(self, name: str) -> list[Process]:
        """The server's processes that run, the parent first."""
        return of_mark(self._mark(name))

    def _adopt(self) -> None:
        """Take over servers whose pid an earlier `up` could not write down any more."""
        running = marked(f"{self.layout.root}::")
        for name in self._servers:
            found = running.get(self._mark(name), [])
            if self.process(name) is None and found:
                self._remember(name, found[0])

    def renew_taken_ports(self) -> None:
        """Where no server runs and somebody else took a port meanwhile, choose another for it.

        The delivery service's is not taken while it is this stack's own service that listens there;
        nor is the driver's.
        """
        if any(self.process(name) for name in self._servers):
            return
        serves = StateFolder(self.layout.state / SERVICE, SERVICE).holder() is not None
        own = {
            METRICS,
            *((SERVICE,) if serves else ()),
        }  # a driver whose port is taken says so, and goes on without
        taken = tuple(
            name
            for name, port in self._state.ports.items()
            if name not in own and not is_free(port)
        )
        if taken:
            self._say(f"ports taken by others since the last time, chosen anew: {', '.join(taken)}")
            self._change(lambda state: replace(state, ports={**state.ports, **free_ports(taken)}))
            self.layout = Layout(self.home, self._state.ports, self._state.shape)
            self._servers = self._table()

    def _table(self) -> dict[str, Server]:
        state = self._state
        return server_table(
            self.layout,
            lambda: self.programs,
            state.cluster_ids,
            mirror=state.mirror,
            clusters=self.clusters,
            jmx=state.jmx,
        )

    def _remember(self, name: str, process: Process | None) -> None:
        self._change(lambda state: state.with_process(name, process))

    def _change(self, change: Callable[[State], State]) -> None:
        with self._guard:
            # Another process may have written since (a test that kills, beside an `up`): change
            # what is there now.
            self._state = change(load_state(self.home) or self._state)
            save_state(self.home, self._state)


def _one_at_a_time(home: Path, say: Say) -> AbstractContextManager[None]:
    return one_at_a_time(
        home / "stack.lock", lambda: say("waiting for another hourmark that works on this stack")
    )
