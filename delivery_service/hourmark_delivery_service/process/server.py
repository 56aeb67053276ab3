"""The running service: startup, serving by uvicorn, draining on SIGTERM, and the final report."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import multiprocessing
import resource
import signal
import socket
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import uvicorn
import uvloop

from hourmark.clock import Clock, SystemClock
from hourmark.config.loading import Config
from hourmark.config.redaction import print_traceback
from hourmark.errors import ConfigError
from hourmark.log import set_up_logging
from hourmark.process.allocator import use_one_arena
from hourmark.records.ranges import LINE_BYTES_MAX
from hourmark_delivery_service.edge.app import create_app
from hourmark_delivery_service.limits.connections import OTHER_FILES
from hourmark_delivery_service.limits.http_protocol import check_uvicorn, protocol_class_for
from hourmark_delivery_service.limits.tls import ServerTls
from hourmark_delivery_service.parsing import EVENT_BYTES_MAX, native
from hourmark_delivery_service.parsing.parser_check import check_parser
from hourmark_delivery_service.process.lifecycle import (
    ProgressReporter,
    progress_reporting,
    running_service,
)
from hourmark_delivery_service.process.reports import ServiceReporter, take_identity
from hourmark_delivery_service.process.supervisor import ReadConfig, supervise
from hourmark_delivery_service.process.worker import WorkerStatusReporter
from hourmark_delivery_service.process.worker_status import WorkerStatusTable
from hourmark_delivery_service.work.service import DeliveryService, clock_problem

_LOG = logging.getLogger(__name__)

_INFLIGHT_BYTES_LEAST: Final = 1 << 20  # as of the setting
_BACKLOG: Final = 2048  # as uvicorn's
_GARBAGE: Final = (
    50_000  # objects made beyond those that went, before the youngest are looked through
)
_SWITCH_S: Final = 0.0005
_TICKS_PER_TRIM: Final = 50
_malloc_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries have none
_RECORD_OVERHEAD: Final = 1 << 20  # Kafka's batch around the largest event, with room to spare


def run(config: Config, on_listening: Callable[[str], None], read_config: ReadConfig) -> None:
    """Run the delivery service until SIGTERM or SIGINT, then answer all requests in flight.

    Blocks until the service has stopped.

    Args:
        config: Configuration of the service.
        on_listening: Called with the service's URL once clients can connect.
        read_config: Reads the configuration again. It is called on SIGHUP if there are several
            workers.

    Raises:
        ConfigError: If a setting is invalid or cannot be used on this machine.
        Finding: If the parser does not reproduce its recorded results, or the installed uvicorn is
            not the tested version.
    """
    check_limits(config)
    raise_open_file_limit(config.service.connections_max)
    check_system_clock(SystemClock())
    check_parser()
    check_uvicorn()
    if native.WHY_NOT:
        _LOG.warning("%s", native.WHY_NOT)
    identity = take_identity(config.service.state_dir)
    tls = _tls(config)
    listener = _listen(config.service.host, config.service.port)
    if config.service.workers > 1:
        listener.listen(
            _BACKLOG
        )  # before any worker does, so that clients can connect once the URL is printed
        on_listening(_url(listener, tls))
        supervise(config, read_config, identity, listener, _work)
    else:
        serving = _serve(
            config,
            listener,
            tls,
            lambda service: ServiceReporter(service, identity, service.inflight),
            on_listening,
        )
        uvloop.run(serving)


def tune_interpreter() -> None:
    """Configure garbage collection and thread switching of this process for low latency.

    Call this function once at the end of startup. All objects that exist at that time are
    permanently excluded from garbage collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE, 10, 10)  # more would keep the memory of closed connections
    sys.setswitchinterval(_SWITCH_S)


def check_limits(config: Config) -> None:
    """Check that Kafka accepts events of the maximum size that the configuration allows.

    Args:
        config: Configuration of the service.

    Raises:
        ConfigError: If `kafka.max_message_bytes` is too small or `service.line_bytes_max` is too
            large. The message contains the limit.
    """
    needed = EVENT_BYTES_MAX + _RECORD_OVERHEAD
    if config.kafka.max_message_bytes < needed:
        raise ConfigError(
            f"kafka.max_message_bytes = {config.kafka.max_message_bytes} is too small for the "
            f"largest possible event; set at least {needed}"
        )
    if config.service.line_bytes_max > LINE_BYTES_MAX:
        raise ConfigError(
            f"service.line_bytes_max = {config.service.line_bytes_max}: the maximum is "
            f"{LINE_BYTES_MAX}"
        )


def raise_open_file_limit(connections_max: int) -> None:
    """Raise the open file limit of this process to what its connections need.

    The limit is not changed if it is already high enough.

    Args:
        connections_max: Maximum number of client connections.

    Raises:
        ConfigError: If the hard limit of the process is too low.
    """
    needed = connections_max + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"service.connections_max = {connections_max}: this process can open at most {hard} "
            f"files, and needs {OTHER_FILES} of them for Kafka and its own files; set at most "
            f"{max(0, hard - OTHER_FILES)}, or raise the limit of open files (ulimit -Hn, "
            "LimitNOFILE)"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def check_system_clock(clock: Clock) -> None:
    """Check that the system clock is between the years 2000 and 8999.

    Tailers copy the service's time into their requests, and the service rejects times outside of
    this period.

    Args:
        clock: Clock to check.

    Raises:
        ConfigError: If the clock is outside of this period.
    """
    if trouble := clock_problem(clock.now_ms()):
        raise ConfigError(f"{trouble}, then start the service again")


async def _serve(
    config: Config,
    listener: socket.socket,
    tls: ServerTls | None,
    claimant_of: Callable[[DeliveryService], ProgressReporter],
    on_listening: Callable[[str], None] | None = None,
    end_with: int | None = None,
) -> None:
    use_one_arena()
    async with (
        running_service(config) as service,
        progress_reporting(service, config, claimant_of(service)),
    ):
        server = HttpServer(
            uvicorn_config(service, config, tls), on_hangup=tls.reload if tls is not None else None
        )
        watching = asyncio.create_task(tls.watch()) if tls is not None else None
        if end_with is not None:
            asyncio.get_running_loop().add_reader(
                end_with, server.handle_exit, signal.SIGTERM, None
            )
        if on_listening is not None:
            on_listening(_url(listener, tls))
        tune_interpreter()
        await server.serve(sockets=[listener])
        _LOG.info("drained")
        if watching is not None:
            watching.cancel()


def _work(config: Config, listener: socket.socket, claims_file: Path, slot: int) -> None:
    set_up_logging(config.log_level)
    try:
        _run_worker(config, listener, claims_file, slot)
    # multiprocessing would print it, with the secrets that it may quote
    except Exception as error:  # noqa: BLE001
        print_traceback(type(error), error, error.__traceback__)
        sys.exit(1)


def _run_worker(config: Config, listener: socket.socket, claims_file: Path, slot: int) -> None:
    claims = WorkerStatusTable(claims_file, SystemClock(), create=False)
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None, "a supervisor started it"
    work = _serve(
        per_worker_config(config),
        listener,
        _tls(config),
        lambda service: WorkerStatusReporter(service, claims, slot),
        end_with=int(supervisor.sentinel),
    )
    uvloop.run(work)


def per_worker_config(config: Config) -> Config:
    """Return the configuration of one worker process, with its share of the service's limits.

    The limits on memory and on connections are divided by the number of workers, but not below 1
    MiB and one connection. All other settings are unchanged.

    Args:
        config: Configuration of the whole service.
    """
    service, workers = config.service, config.service.workers
    limits = {
        "inflight_bytes_max": max(service.inflight_bytes_max // workers, _INFLIGHT_BYTES_LEAST),
        "connections_max": max(service.connections_max // workers, 1),
    }
    return config.model_copy(update={"service": service.model_copy(update=limits)})


def _tls(config: Config) -> ServerTls | None:
    return ServerTls(config.service.tls) if config.service.tls.certificate is not None else None


def _url(listener: socket.socket, tls: ServerTls | None) -> str:
    scheme, (host, port) = "http" if tls is None else "https", listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"service.port = {port} on {host} cannot be used: {error.strerror}; set another "
            "port, or 0 to use a free one"
        ) from error
    return listener


def uvicorn_config(
    service: DeliveryService, config: Config, tls: ServerTls | None = None
) -> uvicorn.Config:
    """Return the uvicorn configuration for the HTTP server of a delivery service.

    Args:
        service: Service that handles the requests.
        config: Configuration with limits and timeouts.
        tls: TLS certificates, or None to serve plain HTTP.
    """
    return uvicorn.Config(
        create_app(service),
        http=protocol_class_for(config.service, None if tls is None else tls.context),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(config.service.idle_seconds) + 1,
        timeout_graceful_shutdown=int(config.service.delivery_timeout_seconds) + 5,
    )


class HttpServer(uvicorn.Server):
    """A uvicorn server that drains and exits with code 0 after SIGTERM or SIGINT.

    Draining means that the server accepts no new requests and answers those in flight.

    Args:
        config: uvicorn configuration.
        on_hangup: Called on SIGHUP. Without it, SIGHUP is only logged.
    """

    def __init__(
        self, config: uvicorn.Config, on_hangup: Callable[[], object] | None = None
    ) -> None:
        super().__init__(config)
        self._handlers: dict[signal.Signals, Callable[[], object]] = {
            number: functools.partial(self.handle_exit, number, None)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._handlers[signal.SIGHUP] = on_hangup or (
            lambda: _LOG.info("SIGHUP: there are no certificates to reload")
        )

    async def on_tick(self, counter: int) -> bool:
        # Called ten times a second. glibc keeps freed memory between blocks in use, so the memory
        # of a burst of requests would stay resident.
        if counter % _TICKS_PER_TRIM == 0 and _malloc_trim is not None:
            _malloc_trim(0)  # 0.2 to 5 ms, as measured
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in self._handlers:
                loop.remove_signal_handler(number)
