"""A producer of confluent_kafka that is served, and the way by which packed records reach it
without an object each.

That way is librdkafka's own `rd_kafka_produce_batch`, called by the compiled module on the very
producer that confluent_kafka made: the module is one of its plugins, by which it learns of the
producer and of each acknowledgement. Where there is no such way (no compiled module, a librdkafka
without plugins) packed records go as dicts like all others.
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
from hourmark.kafka.clients import quiet_logger, serves
from hourmark_delivery_service.message import PackedMessages
from hourmark_delivery_service.parsing import native

PATIENCE_S: Final = 1.0
LINGER_MS: Final = 5  # a range comes at once; waiting longer adds delay and little batching
_OPEN_S: Final = LINGER_MS / 1000 - 0.001  # handing over takes time too


class AppendPacer:
    """Of one topic, in one event loop."""

    def __init__(self) -> None:
        self._under_way = 0
        self._closes_s = 0.0
        self._opens: asyncio.Event = asyncio.Event()

    async def wait(self) -> None:
        """Wait until all that went through before has landed. Those who wait go through
        together.
        """
        if self._under_way and asyncio.get_running_loop().time() > self._closes_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._opens.wait()

    def add_pending(self) -> None:
        """A part goes through."""
        if not self._under_way:
            self._closes_s = asyncio.get_running_loop().time() + _OPEN_S
        self._under_way += 1
        self._opens.clear()

    def remove_pending(self) -> None:
        """It has ended, however it did."""
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
    """Return librdkafka's own producer.

    Raises: ConfigError: If librdkafka does not accept a property. The message names it, without its
        value, which may be a secret.
    """
    try:
        return Producer(settings, logger=quiet_logger())
    except KafkaException as error:
        why = str(error.args[0].str())
        named = _PROPERTY.search(why) or _FAILED.search(why)
        property_name = f' "{named[1]}"' if named is not None else ""
        wrong = (
            "there is no such property" if why.startswith("No such") else "its value cannot be used"
        )
        raise ConfigError(
            f"kafka.edge.properties{property_name}: {wrong}. Next step: correct it; "
            "CONFIGURATION.md of librdkafka lists all"
        ) from None


def is_fatal(error: KafkaError) -> bool:
    """Whether the producer will never deliver anything again."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


class RunningProducer:
    """Whoever polls it has its callbacks run."""

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
        """Whether `send` works."""
        return self._sender is not None

    def pacer(self, topic: str) -> AppendPacer:
        """Of what is sent to this topic. It opens by the news of what was sent."""
        return self._gates[topic]

    def send_packed(
        self, topic: str, records: PackedMessages, start: int, on_report: News
    ) -> tuple[int, KafkaError | None, bool]:
        """Hand over records from `at` on.

        The first for which the memory had no room; why another was refused; whether any are under
        way, of which `news` comes.
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
        """The cluster's metadata; KafkaException if it does not answer."""
        return self._producer.list_topics(timeout=timeout_s)

    def purge(self) -> None:
        """Fail what is under way (its callbacks run), and end."""
        self._producer.purge()
        self.close(_GRACE_S)

    def close(self, timeout_s: float) -> int:
        """Deliver what is under way within the time; how many records were not."""
        left: int | None = None
        with self._fatal_seen():
            left = self._producer.flush(timeout_s)
        self._tell_news()
        return len(self._producer) if left is None else left  # it will deliver none of them

    def poll(self) -> None:
        """Run the callbacks of what was reported so far."""
        try:
            with self._fatal_seen():
                self._producer.poll(0)
        # of a callback; unless others are served, nothing would ever be acknowledged again
        except Exception:  # noqa: BLE001
            _LOG.exception("a delivery report could not be handled")
        self._tell_news()

    @contextlib.contextmanager
    def _fatal_seen(self) -> Iterator[None]:
        """A fatal error is raised where callbacks run, instead of `error_cb`."""
        try:
            yield
        except KafkaException as error:
            self._on_error(error.args[0])

    def _tell_news(self) -> None:
        if native.MODULE is None or self._sender is None:
            return
        while (found := native.MODULE.news(self._sender)) is not None:
            tell, failed, code, landed = found
            tell(failed, _error(code) if failed else None, landed)

    def _on_error(self, error: KafkaError) -> None:
        self.fatal = self.fatal or is_fatal(error)
        _LOG.log(logging.ERROR if self.fatal else logging.DEBUG, "Kafka producer: %s", error)


def _error(code: int) -> KafkaError | None:
    return KafkaError(code) if code else None


def _made(make: MakeProducer, settings: dict[str, Any]) -> tuple[Any, Any]:
    """A producer, and its sender if there can be one."""
    if native.MODULE is None or not serves(native.MODULE):
        return make(settings), None
    others = settings.get("plugin.library.paths")
    ours = native.MODULE.__file__
    try:
        return make(
            {**settings, "plugin.library.paths": f"{others};{ours}" if others else ours}
        ), native.MODULE.sender()
    except KafkaException as error:
        native.MODULE.sender()  # that of none
        _LOG.debug("librdkafka does not take the native pass as a plugin: %s", error)
        return make(settings), None
