"""Control of the local stack: start, stop, status and deletion.

Used by the command line, `hourmark run`, the demo and the tests. A lock file next to the stack's
folder serializes processes that change the same stack. The operating system releases the lock when
its holder exits.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from hourmark.clock import SystemClock
from hourmark.commands.server_status import ServerStatus
from hourmark.errors import Unavailable, UsageError
from hourmark.state_folder import StateFolder
from hourmark_infra import jars
from hourmark_infra.jars.cache import Reporter, print_progress
from hourmark_infra.java.find import export_java_home, java_executable
from hourmark_infra.locks import exclusive_lock
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
    is_port_free,
    stack_root,
)
from hourmark_infra.stack.lifecycle import check_host_name
from hourmark_infra.stack.options import Clusters, Workers
from hourmark_infra.stack.process import (
    Process,
    find_by_mark,
    find_by_mark_prefix,
    is_alive,
    memory_mb,
    send_signal,
    spawn,
)
from hourmark_infra.stack.registry import unpack_registry
from hourmark_infra.stack.servers import Programs, Server, server_table
from hourmark_infra.stack.settings import write_settings
from hourmark_infra.stack.state import StackState, load_state, new_state, save_state, state_file


class LocalStack:
    """The Kafka, HDFS, schema registry and MirrorMaker 2 servers of one stack on this machine.

    Each server is a daemon process. All data is in the subfolder `stack` of a `HOURMARK_HOME`
    folder. Server names are those in `names`, such as `edge-1`. Thread-safe. Use `load` or
    `load_or_create` to create an object.

    Args:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.
        state: State of the stack, such as its ports.
        report: Function that receives progress messages, one line each.
    """

    def __init__(self, home: Path, state: StackState, report: Reporter) -> None:
        self.home = home
        self.layout = Layout(home, state.ports, state.shape)
        self._state = state
        self._clock = SystemClock()
        self._report = report
        self._guard = threading.Lock()
        self._servers = self._table()
        self._unhealthy: dict[str, Health] = {}

    @classmethod
    def load(cls, home: Path, report: Reporter = print_progress) -> Self:
        """Open the existing stack in a `HOURMARK_HOME` folder without starting servers.

        Args:
            home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.
            report: Function that receives progress messages, one line each.

        Raises:
            UsageError: The folder contains no stack.
            HourmarkError: The state file of the stack cannot be read.
        """
        home = home.absolute()
        state = load_state(home)
        if state is None:
            raise UsageError(f"there is no stack in {home}; start one with `hourmark up`")
        return cls(home, state, report)

    @classmethod
    def load_or_create(
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
        report: Reporter = print_progress,
    ) -> Self:
        """Open the stack in a `HOURMARK_HOME` folder, or create it, without starting servers.

        For an existing stack, `spread`, `workers` and `preferred_ports` are ignored.

        Args:
            home: The `HOURMARK_HOME` folder.
            clusters: Number of Kafka clusters. None keeps the existing number; a new stack has 2.
            mirror: Whether the stack runs MirrorMaker 2.
            bucket_seconds: Bucket length. None keeps the existing length; a new stack uses 3600.
            spread: Whether there are three central brokers and DataNodes instead of one each.
            workers: Number of MirrorMaker 2 workers.
            jmx: Whether brokers expose metrics through JMX.
            preferred_ports: TCP ports to use if they are free, by port name.
            report: Function that receives lines of progress.

        Raises:
            UsageError: The existing stack has a different number of Kafka clusters.
            HourmarkError: The state file cannot be read.
            Unavailable: No free port was found.
        """
        home = home.absolute()
        with _stack_lock(home, report):
            state = load_state(home) or new_state(
                preferred_ports, clusters or 2, spread=spread, workers=workers
            )
            if clusters not in (None, state.clusters):
                raise UsageError(
                    f"the stack in {home} has {state.clusters} Kafka cluster(s) that contain its "
                    "events; omit --clusters, or delete the stack and its data with `hourmark "
                    "purge` first"
                )
            # A stack of an earlier version lacks some ports.
            missing = tuple(name for name in PORT_NAMES if name not in state.ports)
            state = replace(
                state,
                ports={**state.ports, **free_ports(missing)},
                mirror=mirror,
                jmx=jmx,
                bucket_seconds=bucket_seconds or state.bucket_seconds,
            )
            save_state(home, state)
        return cls(home, state, report)

    @cached_property
    def programs(self) -> Programs:
        """Download the programs of the servers if they are not cached, and return their paths.

        The first access may take several minutes.

        Raises:
            Finding: The digest of a downloaded file differs from the lock file.
            Unavailable: A program cannot be downloaded or stored.
        """
        kafka, hadoop, registry = (
            jars.ensure(name, java_executable, self._report)
            for name in ("kafka", "hadoop", "registry")
        )
        return Programs(export_java_home(), kafka, hadoop, unpack_registry(registry))

    @property
    def bucket_seconds(self) -> int:
        """Return the bucket length in seconds, 3600 by default.

        The length cannot be changed after event types have been applied to the stack.
        """
        return self._state.bucket_seconds

    @property
    def jmx(self) -> bool:
        """Return whether brokers expose their metrics through JMX.

        A broker that is already running keeps its previous setting until it is restarted.
        """
        return self._state.jmx

    @property
    def clusters(self) -> Clusters:
        """Return the number of Kafka clusters of this stack.

        Returns:
            2 for an edge and a central cluster, 1 for a single cluster.
        """
        return self._state.clusters

    @property
    def brokers(self) -> tuple[str, ...]:
        """Return the names of the brokers in the edge cluster.

        Returns:
            Server names, such as `edge-1`, for use with the other methods.
        """
        return EDGE_NAMES

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all servers of this stack, in start order.

        The other methods accept these names.
        """
        return tuple(self._servers)

    def server(self, name: str) -> Server:
        """Return the definition of a server: its command, address, folders and health check.

        Args:
            name: Name of the server, such as `edge-1`.

        Raises:
            UsageError: The stack has no server of this name. The message lists the valid names.
        """
        if name not in self._servers:
            raise UsageError(f"unknown server {name!r}; allowed: {', '.join(self._servers)}")
        return self._servers[name]

    def process(self, name: str) -> Process | None:
        """Return the running process of a server.

        The state file is read again for each call, because another process may have started the
        server.

        Args:
            name: Name of the server, such as `edge-1`.

        Returns:
            The process; None if the server is not running or the stack has no server of this name.
        """
        # Read from the disk, because another process's `up` may have started it.
        known = (load_state(self.home) or self._state).processes.get(name)
        return known if is_alive(known) else None

    def up(self, only: Container[str] | None = None) -> dict[str, str]:
        """Start all servers that are not running, and wait until all of them are healthy.

        Args:
            only: Names of the servers to start; None for all servers.

        Returns:
            Maps each server name to `started`, or to `running` if the server was running before the
            call.

        Raises:
            Finding: The digest of a downloaded program differs from the lock file.
            Unavailable: A server exited or did not become healthy in time, a program cannot be
                downloaded, or this machine's host name does not resolve. Servers that were started
                keep running.
        """
        check_host_name()
        programs = self.programs  # before the lock: a download takes minutes
        with _stack_lock(self.home, self._report):
            self._record_running_servers()
            self.replace_taken_ports()
            self.write_settings(programs)
            wanted = [name for name in self._servers if only is None or name in only]
            before = {name: "running" if self.process(name) else "started" for name in wanted}
            self._start_in_order(wanted)
        return before

    def describe_waits(self) -> str:
        """Describe the servers that a running `up` waits for, such as `edge-1: does not listen`.

        May be called from another thread.

        Returns:
            The servers with the results of their last health checks; empty if there are none.
        """
        return "; ".join(
            f"{name}: {health.detail}" for name, health in sorted(self._unhealthy.copy().items())
        )

    def down(self) -> dict[str, str]:
        """Stop all servers, MirrorMaker 2 first. Data and ports are kept.

        Returns:
            Maps each server name to `stopped`, to `killed` if the server did not exit on SIGTERM,
            or to `not running`.
        """
        with _stack_lock(self.home, self._report):
            first = (*self.layout.shape.mirrors, WATCH)
            outcome = {name: self._stop(name) for name in self._servers if name in first}
            others = [name for name in reversed(self._servers) if name not in outcome]
            with ThreadPoolExecutor(len(others)) as pool:
                outcome |= dict(zip(others, pool.map(self._stop, others), strict=True))
            with suppress(OSError):  # a full disk; `status` then lists the servers as not running
                self._change(lambda state: replace(state, stopped_at_ms=self._clock.now_ms()))
            return outcome

    @property
    def stopped_at_ms(self) -> int | None:
        """Return when `down` stopped the stack, in Unix milliseconds.

        Returns:
            The time; None if a server was started since, or if the stack was never stopped.
        """
        return (load_state(self.home) or self._state).stopped_at_ms

    def status(self) -> list[ServerStatus]:
        """Check the health of all servers in parallel.

        Returns:
            The status of each server, in start order. The call takes at most a few seconds.
        """
        with ThreadPoolExecutor(len(self._servers)) as pool:
            return list(pool.map(self._status, self._servers.values()))

    def kill(self, name: str) -> None:
        """Send SIGKILL to a server and its child processes, and wait for them to exit.

        Does nothing if the server is not running.

        Args:
            name: Name of the server.

        Raises:
            UsageError: The stack has no server of this name.
        """
        lifecycle.kill_processes(self._processes(name), self._clock)
        self._record_process(name, None)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a server and its child processes.

        Args:
            name: Name of the server.
            number: Signal to send.

        Raises:
            UsageError: The stack has no server of this name.
            Unavailable: The server is not running.
        """
        if not [process for process in self._processes(name) if send_signal(process, number)]:
            raise Unavailable(f"cannot send {number.name} to {name}: it is not running")

    def stop(self, name: str) -> None:
        """Stop a server and its child processes.

        The server receives SIGTERM. Processes that do not exit within 20 seconds are killed. Does
        nothing if the server is not running.

        Args:
            name: Name of the server.

        Raises:
            UsageError: The stack has no server of this name.
        """
        self._stop(name)

    def start(self, name: str) -> None:
        """Start a server without waiting until it is healthy.

        Does nothing if the server is already running.

        Args:
            name: Name of the server.

        Raises:
            UsageError: The stack has no server of this name.
            Unavailable: The program cannot be downloaded, or the data folder cannot be formatted.
        """
        server = self.server(name)
        if self.process(name) is not None:
            return
        lifecycle.kill_processes(
            self._processes(name), self._clock
        )  # children of a parent that was killed
        environment = lifecycle.server_environment(self.programs.java)
        lifecycle.prepare_data_folder(server, environment)
        self._record_process(
            name, spawn(server.command(), environment, self._mark(name), server.log)
        )

    def is_running(self, name: str) -> bool:
        """Return whether the process of a server is running, without checking its health.

        Args:
            name: Name of the server, such as `edge-1`.

        Returns:
            True if the process is running. False otherwise, including when the stack has no server
            of this name.
        """
        return self.process(name) is not None

    def log(self, name: str) -> Path:
        """Return the path of the log file to which a server's stdout and stderr are written.

        Args:
            name: Name of the server.

        Raises:
            UsageError: The stack has no server of this name.
        """
        return self.server(name).log

    def wait_ready(self, name: str, seconds: float = lifecycle.READY_SECONDS) -> Health:
        """Wait until a server is healthy.

        Args:
            name: Name of the server.
            seconds: Timeout in seconds.

        Returns:
            The result of the successful health check.

        Raises:
            UsageError: The stack has no server of this name.
            Unavailable: The server exited, or did not become healthy in time.
        """
        return lifecycle.wait_ready(
            self.server(name), lambda: self.process(name), self._clock, seconds
        )

    def _start_in_order(self, wanted: Sequence[str]) -> None:
        failed = threading.Event()
        done: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(len(wanted)) as pool:
            for name in wanted:
                done[name] = pool.submit(self._start_and_wait, name, done, failed.is_set)
            try:
                for future in as_completed(done.values()):
                    future.result()
            except BaseException:  # the first failure, or Ctrl-C: cancel the other waits
                failed.set()
                raise

    def _start_and_wait(
        self, name: str, done: dict[str, Future[None]], abandoned: Callable[[], bool]
    ) -> None:
        for dependency in self._servers[name].depends_on:
            done[dependency].result()
        was_running = self.process(name) is not None
        began = self._clock.monotonic_s()
        self.start(name)
        # All brokers of a cluster are being started, so each must see all of them.
        health = lifecycle.wait_ready(
            self.server(name),
            lambda: self.process(name),
            self._clock,
            abandoned=abandoned,
            whole_cluster=True,
            on_unhealthy=lambda found: self._unhealthy.update({name: found}),
        )
        self._unhealthy.pop(name, None)
        seconds = self._clock.monotonic_s() - began
        outcome = "running" if was_running else f"ready after {seconds:.1f} s"
        self._report(f"{name}: {outcome} ({health.detail})")

    def _stop(self, name: str) -> str:
        processes = self._processes(name)
        stopped = lifecycle.stop_processes(processes, self._clock)
        with suppress(OSError):  # a full disk; a process that has exited is recognized anyway
            self._record_process(name, None)
        outcome = ("stopped" if stopped else "killed") if processes else "not running"
        self._report(f"{name}: {outcome}")
        return outcome

    def _status(self, server: Server) -> ServerStatus:
        process = self.process(server.name)
        health = (
            server.check_health()
            if process
            else Health(False, "not running; `hourmark up` starts it")
        )
        return ServerStatus(
            name=server.name,
            pid=process.pid if process else None,
            address=server.address,
            memory_mb=sum(map(memory_mb, self._processes(server.name))),
            healthy=health.ok,
            detail=health.detail,
            log=str(server.log),
            do=health.do,
        )

    def write_settings(self, programs: Programs) -> None:
        """Write the settings files of all servers, and `hourmark.toml` for other commands.

        `up` calls this method before it starts servers.

        Args:
            programs: Programs that run the servers.
        """
        text = render_config(
            self.layout, programs, getpass.getuser(), self.bucket_seconds, self.clusters
        )
        write_settings(self.layout, text)

    def _mark(self, name: str) -> str:
        return f"{self.layout.root}::{self.server(name).name}"

    def _processes(self, name: str) -> list[Process]:
        return find_by_mark(self._mark(name))

    def _record_running_servers(self) -> None:
        # An earlier `up` may have been killed before it could save a server's process ID.
        running = find_by_mark_prefix(f"{self.layout.root}::")
        for name in self._servers:
            found = running.get(self._mark(name), [])
            if self.process(name) is None and found:
                self._record_process(name, found[0])

    def replace_taken_ports(self) -> None:
        """Assign new ports to servers whose ports are in use by other programs.

        The new ports are saved in the state file. Does nothing while any server of the stack is
        running. The ETL's metrics port never changes, nor does the port of a delivery service that
        is running in this stack.

        Raises:
            Unavailable: No free port was found.
        """
        if any(self.process(name) for name in self._servers):
            return
        serves = StateFolder(self.layout.state / SERVICE, SERVICE).holder() is not None
        # The ETL runs without metrics if its port is taken, and logs that.
        own = {METRICS, *((SERVICE,) if serves else ())}
        taken = tuple(
            name
            for name, port in self._state.ports.items()
            if name not in own and not is_port_free(port)
        )
        if taken:
            self._report(
                f"new ports chosen, because other programs use the old ones: {', '.join(taken)}"
            )
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

    def _record_process(self, name: str, process: Process | None) -> None:
        self._change(lambda state: state.with_process(name, process))

    def _change(self, change: Callable[[StackState], StackState]) -> None:
        with self._guard:
            # Another process may have saved a newer state, for example a test that kills servers
            # during an `up`, so the change is applied to the state on disk.
            self._state = change(load_state(self.home) or self._state)
            save_state(self.home, self._state)


def _stack_lock(home: Path, report: Reporter) -> AbstractContextManager[None]:
    return exclusive_lock(
        home / "stack.lock",
        lambda: report("waiting for another hourmark process that changes this stack"),
    )


def purge_stack(home: Path, report: Reporter) -> bool:
    """Stop the local stack of a `HOURMARK_HOME` folder and delete all its data.

    Without a state file, the folder is not regarded as a stack and is not deleted. If the deletion
    is interrupted, the next call completes it.

    Args:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.
        report: Function that receives progress messages, one line each.

    Returns:
        True if data was deleted, False if there was nothing to delete.

    Raises:
        HourmarkError: The state file of the stack cannot be read.
    """
    if state_file(home).exists():
        LocalStack.load(home, report).down()
        stack_root(home).rename(home / f"stack.purged-{os.getpid()}")
    purged = [*home.glob("stack.purged-*")]
    for folder in purged:
        shutil.rmtree(folder)
    return bool(purged)
