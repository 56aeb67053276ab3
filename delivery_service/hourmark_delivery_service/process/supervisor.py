"""Supervision of `hourmark serve --workers N`: processes that share one port and one identity.

- Each worker is a complete service with its own rules, queue and memory. Limits of the whole
  service are divided among the workers.
- A worker that exits is restarted, with increasing delays if it exits soon after its start. A
  worker without a heartbeat for `HANGS_S` seconds is killed first.
- SIGTERM drains all workers. The final report is sent only if all requests were answered.
- SIGHUP replaces the workers one by one with the current configuration. Each new worker serves
  before the worker that it replaces is drained.
- The supervisor reports for all workers: the reported time is the minimum over the workers
  (`worker_status`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import multiprocessing
import os
import shutil
import signal
import socket
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from prometheus_client import multiprocess

from hourmark.clock import Clock, SystemClock
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.kafka.clients import bootstrap_addresses
from hourmark_delivery_service.metrics import METRICS_VARIABLE
from hourmark_delivery_service.process.lifecycle import progress_reporting, running_service
from hourmark_delivery_service.process.reports import ServiceIdentity, ServiceReporter
from hourmark_delivery_service.process.worker_status import WorkerStatusTable

_LOG = logging.getLogger(__name__)

HANGS_S: Final = 60.0
_POLL_S: Final = 0.1
_PAUSE_S_MAX: Final = 30.0
_LIVES_S: Final = 10.0  # a worker that lived for so long is started again at once
SERVES_S: Final = 30.0  # a new worker that does not serve by then does not replace any

WorkerMain = Callable[
    [Config, socket.socket, Path, int], None
]  # config, listener, the claims' file, slot
ReadConfig = Callable[[], Config]


@dataclasses.dataclass(slots=True, eq=False)
class _Child:
    """A worker process and its state as observed by the supervisor.

    Attributes:
        process: Handle of the process.
        slot: Row of the worker in the status table.
        began_s: Monotonic time in seconds at which the process was started.
        heard_s: Monotonic time in seconds of the last observed heartbeat.
        heartbeats: The worker's heartbeat count at `heard_s`.
        drains: Whether the worker was asked to finish its requests and exit.
    """

    process: SpawnProcess
    slot: int
    began_s: float
    heard_s: float
    heartbeats: int = 0
    drains: bool = False


class WorkerSupervisor:
    """Starts, restarts and replaces the worker processes of a delivery service.

    Not thread-safe: call all methods from one event loop.

    Args:
        config: Configuration of the service, with the number of workers.
        listener: Listening socket that the workers share.
        status_table: Table in shared memory that each worker writes its status to.
        clock: Source of monotonic time.
        worker_main: Main function of a worker process.
        serves_s: Seconds that `replace` waits until a new worker serves requests.
        hangs_s: Seconds without a heartbeat after which a worker is killed.
    """

    def __init__(
        self,
        config: Config,
        listener: socket.socket,
        status_table: WorkerStatusTable,
        clock: Clock,
        worker_main: WorkerMain,
        serves_s: float = SERVES_S,
        hangs_s: float = HANGS_S,
    ) -> None:
        """Create a supervisor without workers. The first call of `check_workers` starts them.

        Args:
            config: Configuration of the service, with the number of workers.
            listener: Listening socket that the workers share.
            status_table: Table in shared memory that each worker writes its status to.
            clock: Source of monotonic time.
            worker_main: Main function of a worker process.
            serves_s: Seconds that `replace` waits until a new worker serves requests.
            hangs_s: Seconds without a heartbeat after which a worker is killed.
        """
        self._serves_s, self._hangs_s = serves_s, hangs_s
        self._config = config
        self._listener = listener
        self._claims = status_table
        self._clock = clock
        self._work = worker_main
        self._context = multiprocessing.get_context("spawn")
        self._children: list[_Child] = []
        self._pause_s = 0.0
        self._not_before_s = 0.0
        self._ending = False

    @property
    def worker_count(self) -> int:
        """Return the number of running worker processes.

        The number includes workers that were asked to exit but have not exited yet. An exit is
        noticed by `check_workers`.
        """
        return len(self._children)

    def check_workers(self) -> None:
        """Start missing workers, restart workers that have exited, and kill workers that hang.

        Call this method periodically. A worker hangs if it has sent no heartbeat for `hangs_s`
        seconds. If a worker exits within 10 seconds of its start, new workers start after
        increasing delays of up to 30 seconds. After `drain`, no workers are started.
        """
        for child in list(self._children):
            self._check_worker(child)
        missing = (
            0
            if self._ending
            else self._config.service.workers - sum(not child.drains for child in self._children)
        )
        if missing > 0 and self._clock.monotonic_s() >= self._not_before_s:
            for _ in range(missing):
                self._start()

    def drain(self) -> None:
        """Ask all workers to answer their requests in flight and then exit.

        The call returns immediately, before the workers have exited. No workers are started
        afterwards.
        """
        self._ending = True
        for child in self._children:
            self._end(child)

    async def replace(self, config: Config) -> None:
        """Replace all running workers one by one with workers that use a new configuration.

        Each old worker is asked to exit once its replacement serves requests.

        Args:
            config: New configuration, which may have another number of workers.

        Raises:
            TimeoutError: If a new worker exits, or does not serve requests within `serves_s`
                seconds. The remaining old workers keep running, and later workers start with the
                old configuration.
        """
        before, self._config = self._config, config
        for index, old in enumerate([child for child in self._children if not child.drains]):
            new = self._start() if index < config.service.workers else None
            try:
                if new is not None:
                    await self._until_it_serves(new)
            except TimeoutError:
                self._config = before
                if new in self._children:
                    self._end(new)
                raise
            self._end(old)

    async def _until_it_serves(self, child: _Child) -> None:
        async with asyncio.timeout(self._serves_s):
            while not child.heartbeats:
                if child not in self._children:
                    raise TimeoutError
                await asyncio.sleep(_POLL_S)

    def _start(self) -> _Child:
        slot = self._claims.allocate_slot()
        process = self._context.Process(
            target=self._work,
            args=(_informed(self._config), self._listener, self._claims.path, slot),
            name=f"hourmark-worker-{slot}",
        )
        process.start()
        now_s = self._clock.monotonic_s()
        child = _Child(process, slot, now_s, now_s)
        self._children.append(child)
        return child

    def _end(self, child: _Child) -> None:
        child.drains = True
        child.process.terminate()

    def _check_worker(self, child: _Child) -> None:
        now_s = self._clock.monotonic_s()
        heartbeats = self._claims.get(child.slot).heartbeats
        if heartbeats != child.heartbeats:
            child.heartbeats, child.heard_s = heartbeats, now_s
        if child.process.exitcode is not None:
            self._ended(child, now_s)
        elif child.heartbeats and now_s - child.heard_s > self._hangs_s:
            _LOG.error(
                "worker pid=%d sent no heartbeat for %.0f s; it is killed and restarted",
                child.process.pid,
                self._hangs_s,
            )
            child.process.kill()

    def _ended(self, child: _Child, now_s: float) -> None:
        code, claim = child.process.exitcode, self._claims.get(child.slot)
        if (
            self._ending and claim.heartbeats and (code or claim.requests)
        ):  # a worker without a heartbeat has not accepted requests yet
            self._claims.count_unanswered_worker()
        if not child.drains:
            quick = now_s - child.began_s < _LIVES_S
            self._pause_s = min(max(2 * self._pause_s, 1.0), _PAUSE_S_MAX) if quick else 0.0
            self._not_before_s = now_s + self._pause_s
            _LOG.error(
                "worker pid=%d exited with code %s; a new one starts in %.0f s",
                child.process.pid,
                code,
                self._pause_s,
            )
        assert child.process.pid is not None
        # the library's
        multiprocess.mark_process_dead(child.process.pid)  # type: ignore[no-untyped-call]
        child.process.close()
        self._children.remove(child)
        self._claims.release_slot(child.slot)


def _informed(config: Config) -> Config:
    # Passes on the brokers that the cluster has named meanwhile.
    edge = config.kafka.edge.model_copy(
        update={"bootstrap": bootstrap_addresses(config.kafka.edge)}
    )
    return config.model_copy(update={"kafka": config.kafka.model_copy(update={"edge": edge})})


def supervise(
    config: Config,
    read_config: ReadConfig,
    identity: ServiceIdentity,
    listener: socket.socket,
    worker_main: WorkerMain,
) -> None:
    """Run the worker processes of a service until SIGTERM or SIGINT.

    After the signal, the workers answer their requests in flight and exit. The function blocks
    until all have exited. On SIGHUP, it replaces the workers one by one.

    Args:
        config: Configuration of the service.
        read_config: Reads the configuration again. It is called on SIGHUP.
        identity: Identity of the service in its host reports.
        listener: Listening socket that the workers share.
        worker_main: Main function of a worker. Its arguments are the configuration, the listener,
            the path of the worker status table and the worker's slot.
    """
    folder = config.service.state_dir / "metrics"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ[METRICS_VARIABLE] = str(
        folder
    )  # of the workers: here prometheus_client is loaded already
    claims = WorkerStatusTable(config.service.state_dir / "claims", SystemClock(), create=True)
    asyncio.run(
        _supervise(
            config,
            read_config,
            identity,
            WorkerSupervisor(config, listener, claims, SystemClock(), worker_main),
            claims,
        )
    )


async def _supervise(
    config: Config,
    read_config: ReadConfig,
    identity: ServiceIdentity,
    supervisor: WorkerSupervisor,
    claims: WorkerStatusTable,
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reload = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    async with (
        running_service(config) as service,
        progress_reporting(service, config, ServiceReporter(service, identity, claims)),
    ):
        reloading = asyncio.create_task(_reload(reload, read_config, supervisor))
        while not stop.is_set():
            supervisor.check_workers()
            if service.first_report_sent:
                claims.mark_reported()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await stop.wait()
        reloading.cancel()
        _LOG.info("draining %d workers", supervisor.worker_count)
        supervisor.drain()
        while supervisor.worker_count:
            supervisor.check_workers()
            await asyncio.sleep(_POLL_S)


async def _reload(
    asked: asyncio.Event, read_config: ReadConfig, supervisor: WorkerSupervisor
) -> None:
    while True:
        await asked.wait()
        asked.clear()
        try:
            await supervisor.replace(read_config())
        except HourmarkError as error:
            _LOG.error(
                "SIGHUP: the configuration is invalid, and the workers keep the previous one: %s",
                error,
            )
        except TimeoutError:
            _LOG.error(
                "SIGHUP: a new worker was not ready within %.0f s; the other workers keep the "
                "previous configuration. Check the log of the new worker",
                SERVES_S,
            )
        else:
            _LOG.info(
                "SIGHUP: %d workers run with the new configuration",
                supervisor.worker_count,
            )
