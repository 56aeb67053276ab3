"""The running service: its parts started in order, served by uvicorn, drained on SIGTERM, and gone with a goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from typing import Final

import uvicorn
import uvloop

from hourmark.clock import Clock, SystemClock
from hourmark.config import Config
from hourmark.errors import ConfigError
from hourmark.ranges import LINE_BYTES_MAX
from hourmark.registry import SchemaRegistry
from hourmark_delivery_service.app import create_app
from hourmark_delivery_service.errors import NotNow, QueueError
from hourmark_delivery_service.framing import find
from hourmark_delivery_service.http_protocol import protocol_of
from hourmark_delivery_service.identity import Identity, take_identity
from hourmark_delivery_service.kafka_queue import KafkaQueue
from hourmark_delivery_service.metrics import Metrics
from hourmark_delivery_service.parsing import EVENT_BYTES_MAX
from hourmark_delivery_service.parsing.parser_check import check_parser
from hourmark_delivery_service.reporter import Reporter
from hourmark_delivery_service.rules_follower import RulesFollower
from hourmark_delivery_service.rules_store import RulesStore
from hourmark_delivery_service.service import Service, clock_trouble

_LOG = logging.getLogger(__name__)

_GOODBYE_S: Final = 10.0
_LOOK_S: Final = 0.05  # between looks whether there are rules
_RECORD_OVERHEAD: Final = 1 << 20  # Kafka's batch around the largest event, with room to spare


def run(config: Config, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then drain; `on_listening` gets the URL.

    ConfigError, or Finding where this software does not parse as it did, before anything is started.
    """
    check_limits(config)
    check_machines_clock(SystemClock())
    check_parser()
    identity = take_identity(config.service.state_dir)
    listener = _listen(config.service.host, config.service.port)
    uvloop.run(_run(config, identity, listener, on_listening))


def check_limits(config: Config) -> None:
    """What HTTP accepts must fit into Kafka, or it could be accepted and never delivered. ConfigError names the setting."""
    needed = EVENT_BYTES_MAX + _RECORD_OVERHEAD
    if config.kafka.max_message_bytes < needed:
        raise ConfigError(
            f"kafka.max_message_bytes = {config.kafka.max_message_bytes}: events may be large, set at least {needed}"
        )
    if config.service.line_bytes_max > LINE_BYTES_MAX:
        raise ConfigError(f"service.line_bytes_max = {config.service.line_bytes_max}: allowed are up to {LINE_BYTES_MAX}")


def check_machines_clock(clock: Clock) -> None:
    """Tailers write this clock's time into ranges, which would be refused for ever if it could not be right. ConfigError."""
    if trouble := clock_trouble(clock.now_ms()):
        raise ConfigError(f"{trouble}, then start again")


async def _run(config: Config, identity: Identity, listener: socket.socket, on_listening: Callable[[str], None]) -> None:
    metrics = Metrics()
    rules = RulesStore(metrics)
    queue = KafkaQueue(config, metrics)
    service = Service(config, SystemClock(), queue, rules, metrics)
    follower = RulesFollower(config, rules)
    follower.start()
    reporter = Reporter(service, identity)
    background = asyncio.create_task(_report(service, reporter, config))
    server = Server(uvicorn_config(service, config))
    host, port = listener.getsockname()[:2]
    on_listening(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    await server.serve(sockets=[listener])
    _LOG.info("drained; saying goodbye")
    background.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await background
    await _say_goodbye(service, reporter)
    await queue.close(_GOODBYE_S)
    await asyncio.to_thread(follower.stop)


async def _report(service: Service, reporter: Reporter, config: Config) -> None:
    with contextlib.closing(SchemaRegistry(config.registry)) as registry:
        while service.rules.latest is None:
            await asyncio.sleep(_LOOK_S)
        await _find_framing(service, registry)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reporter.run())
            tasks.create_task(_follow_framing(service, registry))


async def _follow_framing(service: Service, registry: SchemaRegistry) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        if service.lacks_framing():
            await _find_framing(service, registry)


async def _find_framing(service: Service, registry: SchemaRegistry) -> None:
    needed = service.rules.counting_blanks
    service.framing = await find(registry, needed, service.rules.types_of_ids, service.waits_for_framing)


async def _say_goodbye(service: Service, reporter: Reporter) -> None:
    """Only after everything under way is answered; and without it, hours wait until their deadline."""
    if not service.reported or service.inflight.requests:
        return
    try:
        async with asyncio.timeout(_GOODBYE_S):
            await reporter.report(goodbye=True)
    except (QueueError, NotNow, TimeoutError) as error:
        _LOG.warning("no goodbye could be said: %s", error)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"service.port = {port} on {host} cannot be used: {error.strerror}; 0 takes a free one") from error
    return listener


def uvicorn_config(service: Service, config: Config) -> uvicorn.Config:
    """How the HTTP server is set up."""
    return uvicorn.Config(
        create_app(service),
        http=protocol_of(config.service),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(config.service.idle_seconds) + 1,
        timeout_graceful_shutdown=int(config.service.delivery_timeout_seconds) + 5,
    )


class Server(uvicorn.Server):
    """uvicorn, but a signal ends it with exit code 0, after the drain."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
