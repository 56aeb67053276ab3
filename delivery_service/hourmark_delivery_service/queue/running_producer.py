"""A confluent_kafka producer that is driven by polling, and a fast path for packed records.

The fast path is librdkafka's `rd_kafka_produce_batch`. The compiled module calls it on the producer
that confluent_kafka created: it is loaded as a librdkafka plugin, and so receives the producer
handle and all acknowledgements. Without the compiled module, or with a librdkafka without plugins,
packed records are sent as dicts like all others.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from hourmark.errors import ConfigError
from hourmark.kafka.clients import librdkafka_logger, supports_native_client
from hourmark_delivery_service.message import PackedMessages
from hourmark_delivery_service.parsing import native

PATIENCE_S: Final = 1.0
LINGER_MS: Final = 5  # a range comes at once; waiting longer adds delay and little batching
OPEN_S: Final = LINGER_MS / 1000 - 0.001  # handing over takes time too


class AppendPacer:
    """Delays appends to one Kafka topic while earlier ones are pending, to form larger batches.

    Call `wait` before an append, `add_pending` when its records are enqueued, and `remove_pending`
    when they have been delivered or have failed. Not thread-safe: use it in one event loop.

    Args:
        open_s: For this number of seconds after the start of the first pending append, other
            appends do not wait.
        patience_s: Maximum number of seconds that `wait` blocks.
    """

    def __init__(self, open_s: float = OPEN_S, patience_s: float = PATIENCE_S) -> None:
        self._open_s, self._patience_s = open_s, patience_s
        self._under_way = 0
        self._closes_s = 0.0
        self._opens: asyncio.Event = asyncio.Event()

    async def wait(self) -> None:
        """Wait until no append is pending, for at most `patience_s` seconds.

        The method returns immediately if no append is pending, or if new records can still join the
        batch of the first pending append, which started at most `open_s` seconds ago. A timeout
        raises no exception. All waiting callers continue at the same time.
        """
        if self._under_way and asyncio.get_running_loop().time() > self._closes_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s):
                    await self._opens.wait()

    def add_pending(self) -> None:
        """Register an append whose records were enqueued.

        Call `remove_pending` once when the records have been delivered or have failed. Until then,
        other appends may have to `wait`.
        """
        if not self._under_way:
            self._closes_s = asyncio.get_running_loop().time() + self._open_s
        self._under_way += 1
        self._opens.clear()

    def remove_pending(self) -> None:
        """Mark one pending append as finished, whether it succeeded or failed.

        All callers of `wait` continue when the last pending append is finished.
        """
        self._under_way -= 1
        if not self._under_way:
            self._opens.set()


_LOG = logging.getLogger(__name__)

_GRACE_S: Final = 5.0
_PROPERTY: Final = re.compile(
    r'configuration property:? "([A-Za-z0-9._]+)"'
)  # in librdkafka's messages
_FAILED: Final = re.compile(r"Failed to create producer: ([a-z]+\.[a-z.]+)")

MakeProducer = Callable[[dict[str, Any]], Any]
Report = Callable[[KafkaError | None, Any], None]
News = Callable[
    [int, KafkaError | None, bool], None
]  # how many records failed just now, and why; whether all have ended


def make_producer(settings: dict[str, Any]) -> Producer:
    """Create a confluent_kafka producer, which connects to Kafka in the background.

    Args:
        settings: librdkafka configuration properties.

    Raises:
        ConfigError: If librdkafka rejects a property. The message contains the name of the property
            but not its value, which may be a secret.
    """
    try:
        return Producer(settings, logger=librdkafka_logger())
    except KafkaException as error:
        why = str(error.args[0].str())
        named = _PROPERTY.search(why) or _FAILED.search(why)
        property_name = f' "{named[1]}"' if named is not None else ""
        wrong = "unknown property" if why.startswith("No such") else "its value is invalid"
        raise ConfigError(
            f"kafka.edge.properties{property_name}: {wrong}. Correct it; CONFIGURATION.md of "
            "librdkafka lists all properties"
        ) from None


def is_fatal(error: KafkaError) -> bool:
    """Return whether an error of librdkafka is fatal.

    After a fatal error, the producer can no longer deliver records and must be replaced.

    Args:
        error: Error reported by librdkafka.
    """
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


class RunningProducer:
    """A Kafka producer whose delivery callbacks run in the thread that calls `poll`.

    Args:
        make_producer: Creates the confluent_kafka producer from its settings.
        settings: librdkafka configuration properties, including `bootstrap.servers`.

    Attributes:
        fatal: Whether a fatal error occurred. The producer then delivers no more records and must
            be replaced.
        bootstrap: Value of `bootstrap.servers` in `settings`.
        produce_batch: Method `produce_batch` of the confluent_kafka producer.
    """

    def __init__(self, make_producer: MakeProducer, settings: dict[str, Any]) -> None:
        self.fatal = False
        self.bootstrap: str = settings["bootstrap.servers"]
        self._gates: collections.defaultdict[str, AppendPacer] = collections.defaultdict(
            AppendPacer
        )
        self._producer, self._sender = _made(
            make_producer, {**settings, "error_cb": self._on_error}
        )
        self.produce_batch: Callable[..., int] = self._producer.produce_batch

    @property
    def supports_packed(self) -> bool:
        """Return whether `send_packed` is available, which requires the compiled module.

        If it is not, use `produce_batch`.
        """
        return self._sender is not None

    def pacer(self, topic: str) -> AppendPacer:
        """Return the object that delays appends to a topic in order to form larger batches.

        The first call for a topic creates the object. Later calls return the same object.

        Args:
            topic: Name of the Kafka topic.
        """
        return self._gates[topic]

    def send_packed(
        self, topic: str, records: PackedMessages, start: int, on_report: News
    ) -> tuple[int, KafkaError | None, bool]:
        """Enqueue packed records from a start index until the producer's buffer is full.

        The call does not block. If the buffer becomes full, call the method again later with the
        returned index as `start`. Requires `supports_packed`.

        Args:
            topic: Topic to append to.
            records: Packed records. Records before `start` are skipped.
            start: Index of the first record to enqueue.
            on_report: Called from `poll` with three arguments: the number of records that failed
                since the last call, their error or None, and whether the results of all enqueued
                records are known.

        Returns:
            - the index of the first record that was not enqueued, or `len(records)`
            - the error if a record was rejected for a reason other than a full buffer, or None
            - whether any record was enqueued; only then is `on_report` called
        """
        assert native.MODULE is not None
        assert self._sender is not None
        taken = native.MODULE.send(
            self._sender,
            topic.encode(),
            records.keys,
            records.values,
            records.ends,
            start,
            len(records),
            on_report,
        )
        return taken[0], _error(taken[1]), taken[2]

    def list_topics(self, timeout_s: float) -> Any:
        """Return the cluster metadata of all topics, as confluent_kafka's `ClusterMetadata`.

        Blocks until the cluster responds.

        Args:
            timeout_s: Maximum time to wait in seconds.

        Raises:
            KafkaException: If the cluster does not respond within this time.
        """
        return self._producer.list_topics(timeout=timeout_s)

    def purge(self) -> None:
        """Discard all records in flight and run their delivery callbacks with an error.

        The call blocks until the callbacks have run, for at most five seconds. Call it before you
        replace the producer.
        """
        self._producer.purge()
        self.close(_GRACE_S)

    def close(self, timeout_s: float) -> int:
        """Wait until the records in flight are delivered or the timeout expires.

        No exception is raised if records remain.

        Args:
            timeout_s: Maximum time to wait in seconds.

        Returns:
            The number of records that were not delivered.
        """
        left: int | None = None
        with self._fatal_seen():
            left = self._producer.flush(timeout_s)
        self._run_native_callbacks()
        return len(self._producer) if left is None else left  # it will deliver none of them

    def poll(self) -> None:
        """Run the delivery callbacks of all records whose delivery has succeeded or failed.

        The call does not block. Call this method frequently, because results are reported only
        here. Exceptions of callbacks are logged, not raised.
        """
        try:
            with self._fatal_seen():
                self._producer.poll(0)
        # of a callback; unless others are served, nothing would ever be acknowledged again
        except Exception:  # noqa: BLE001
            _LOG.exception("handling a delivery report failed")
        self._run_native_callbacks()

    @contextlib.contextmanager
    def _fatal_seen(self) -> Iterator[None]:
        # librdkafka raises a fatal error where callbacks run, instead of passing it to `error_cb`.
        try:
            yield
        except KafkaException as error:
            self._on_error(error.args[0])

    def _run_native_callbacks(self) -> None:
        if native.MODULE is None or self._sender is None:
            return
        while (found := native.MODULE.news(self._sender)) is not None:
            callback, failed, code, landed = found
            callback(failed, _error(code) if failed else None, landed)

    def _on_error(self, error: KafkaError) -> None:
        self.fatal = self.fatal or is_fatal(error)
        _LOG.log(logging.ERROR if self.fatal else logging.DEBUG, "Kafka producer: %s", error)


def _error(code: int) -> KafkaError | None:
    return KafkaError(code) if code else None


def _made(make: MakeProducer, settings: dict[str, Any]) -> tuple[Any, Any]:
    if native.MODULE is None or not supports_native_client(native.MODULE):
        return make(settings), None
    others = settings.get("plugin.library.paths")
    ours = native.MODULE.__file__
    try:
        return make(
            {**settings, "plugin.library.paths": f"{others};{ours}" if others else ours}
        ), native.MODULE.sender()
    except KafkaException as error:
        native.MODULE.sender()  # that of none
        _LOG.debug("librdkafka cannot load the native module as a plugin: %s", error)
        return make(settings), None
