"""The running service: its parts started in order, served by uvicorn, drained on SIGTERM, and gone with a goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn
import uvloop

from hourmark.clock import Clock, SystemClock
from hourmark.config import Config
from hourmark.errors import ConfigError
from hourmark.ranges import LINE_BYTES_MAX
from hourmark.registry import SchemaRegistry
from hourmark.topics import TOKENS, TYPES
from hourmark_delivery_service.app import create_app
from hourmark_delivery_service.errors import NotNow, QueueError
from hourmark_delivery_service.framing import find
from hourmark_delivery_service.http_protocol import protocol_of
from hourmark_delivery_service.identity import Identity, take_identity
from hourmark_delivery_service.kafka_queue import KafkaQueue
from hourmark_delivery_service.metrics import Metrics
from hourmark_delivery_service.parsing import EVENT_BYTES_MAX, native
from hourmark_delivery_service.parsing.parser_check import check_parser
from hourmark_delivery_service.reporter import Reporter
from hourmark_delivery_service.rules_store import RulesStore
from hourmark_delivery_service.service import Service, clock_trouble
from hourmark_delivery_service.store_follower import StoreFollower
from hourmark_delivery_service.tls import Tls

_LOG = logging.getLogger(__name__)

_GARBAGE: Final = 100_000  # objects made beyond those that went, before the youngest are looked through
_GOODBYE_S: Final = 10.0
_HANDSHAKE_S: Final = 10.0
_LOOK_S: Final = 0.05  # between looks whether there are rules
_OTHER_FILES: Final = 256
_SWITCH_S: Final = 0.0005
_TICKS_PER_TRIM: Final = 50
_malloc_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries have none
_RECORD_OVERHEAD: Final = 1 << 20  # Kafka's batch around the largest event, with room to spare


def run(config: Config, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then drain; `on_listening` gets the URL.

    ConfigError, or Finding where this software does not parse as it did, before anything is started.
    """
    check_limits(config)
    allow_connections(config.service.connections_max)
    check_machines_clock(SystemClock())
    check_parser()
    if native.WHY_NOT:
        _LOG.warning(
            "%s. Next step: install hourmark-delivery-service anew; its wheel or a C compiler holds what is missing",
            native.WHY_NOT,
        )
    identity = take_identity(config.service.state_dir)
    tls = Tls(config.service.tls) if config.service.tls.certificate is not None else None
    listener = _listen(config.service.host, config.service.port)
    tune_interpreter()
    uvloop.run(_run(config, identity, listener, tls, on_listening), loop_factory=Loop)


def tune_interpreter() -> None:
    """Few collections, and short turns between threads.

    Each long list in JSON made the collector go over all that lives: half a second for one line of 4 MiB. And whoever wants the
    interpreter waits 5 ms by default while another thread is busy, as the event loop does several times for each request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # more would keep the memory of closed connections
    sys.setswitchinterval(_SWITCH_S)


def check_limits(config: Config) -> None:
    """What HTTP accepts must fit into Kafka, or it could be accepted and never delivered. ConfigError names the setting."""
    needed = EVENT_BYTES_MAX + _RECORD_OVERHEAD
    if config.kafka.max_message_bytes < needed:
        raise ConfigError(
            f"kafka.max_message_bytes = {config.kafka.max_message_bytes}: events may be large, set at least {needed}"
        )
    if config.service.line_bytes_max > LINE_BYTES_MAX:
        raise ConfigError(f"service.line_bytes_max = {config.service.line_bytes_max}: allowed are up to {LINE_BYTES_MAX}")


def allow_connections(connections_max: int) -> None:
    """As many open files as these connections and all else may need. ConfigError where this process may not have them."""
    needed = connections_max + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"service.connections_max = {connections_max}: this process may open {hard} files, of which {_OTHER_FILES} are "
            f"for Kafka and its own; set at most {max(0, hard - _OTHER_FILES)}, or allow more (ulimit -Hn, LimitNOFILE)"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def check_machines_clock(clock: Clock) -> None:
    """Tailers write this clock's time into ranges, which would be refused for ever if it could not be right. ConfigError."""
    if trouble := clock_trouble(clock.now_ms()):
        raise ConfigError(f"{trouble}, then start again")


async def _run(
    config: Config, identity: Identity, listener: socket.socket, tls: Tls | None, on_listening: Callable[[str], None]
) -> None:
    metrics = Metrics()
    rules = RulesStore(metrics)
    queue = KafkaQueue(config, metrics)
    service = Service(config, SystemClock(), queue, rules, metrics)
    followers = [StoreFollower(config, TYPES, rules)]
    if config.service.tokens_required:
        followers.append(StoreFollower(config, TOKENS, service.access.book))
    for follower in followers:
        follower.start()
    reporter = Reporter(service, identity)
    background = [asyncio.create_task(_report(service, reporter, config))]
    if tls is not None:
        background.append(asyncio.create_task(tls.watch()))
    server = Server(uvicorn_config(service, config, tls), on_hangup=tls.reload if tls is not None else None)
    host, port = listener.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    on_listening(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")
    rarely_collect()
    await server.serve(sockets=[listener])
    _LOG.info("drained; saying goodbye")
    for task in background:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await _say_goodbye(service, reporter)
    await queue.close(_GOODBYE_S)
    for follower in followers:
        await asyncio.to_thread(follower.stop)


def rarely_collect() -> None:
    """What the start made stays; and records come by the thousand, have no cycles, and are gone within seconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE, 20, 50)


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


def uvicorn_config(service: Service, config: Config, tls: Tls | None = None) -> uvicorn.Config:
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
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )


class Loop(uvloop.Loop):
    """uvloop, but a client has not a minute for its TLS handshake: uvicorn leaves that to the loop."""

    async def create_server(  # type: ignore[override]  # what uvicorn gives it is passed on
        self, *given: Any, **named: Any
    ) -> asyncio.AbstractServer:
        if named.get("ssl") is not None:
            named = {"ssl_handshake_timeout": _HANDSHAKE_S, **named}
        return await super().create_server(*given, **named)


class Server(uvicorn.Server):
    """uvicorn, but a signal ends it with exit code 0, after the drain. `on_hangup` is what SIGHUP does."""

    def __init__(self, config: uvicorn.Config, on_hangup: Callable[[], object] | None = None) -> None:
        super().__init__(config)
        self._handlers: dict[signal.Signals, Callable[[], object]] = {
            number: functools.partial(self.handle_exit, number, None) for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._handlers[signal.SIGHUP] = on_hangup or (lambda: _LOG.info("SIGHUP: there are no certificates to be read again"))

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second. glibc keeps what was freed between what is in use: a wave of requests would stay resident."""
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
