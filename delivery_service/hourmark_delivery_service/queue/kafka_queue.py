"""The durable queue on Kafka: one idempotent producer with acknowledgement by all in-sync replicas.

Guarantees beyond the contract of `port.Queue`:

- One producer serves the whole process, independent of the number of connections.
- If too few replicas are in sync, or a leader fails, pauses or moves, librdkafka retries within
  `delivery_timeout_seconds`.
- A producer that cannot recover is replaced within the process: after a fatal error, or if it only
  fails for long while the cluster is healthy or has brokers unknown to the producer. Requests in
  flight get `NotDelivered`; their clients retry with the same event ids.
- Memory is bounded. If the producer's buffer is full, `append` waits and then fails.
- An unavailable topic does not delay records of other topics (`topic_monitor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from hourmark.config.loading import Config
from hourmark.kafka.clients import bootstrap_addresses, client_settings
from hourmark_delivery_service.errors import NotDelivered, QueueUnavailable
from hourmark_delivery_service.message import Message, PackedMessages, message_chunks
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import native
from hourmark_delivery_service.queue.running_producer import (
    LINGER_MS,
    MakeProducer,
    Report,
    RunningProducer,
    is_fatal,
    make_producer,
)
from hourmark_delivery_service.queue.topic_monitor import SLOW_S, TopicMonitor

_LOG = logging.getLogger(__name__)

FAILING_TIMEOUTS: Final = (
    2  # delivery timeouts of nothing but failures, before the producer itself is suspected
)
_BATCH: Final = 1024  # records produced before other tasks get their turn: about a millisecond
_FULL_PAUSE_S: Final = 0.02
_REPORTS_S: Final = (
    0.002  # between polls for delivery reports: little compared to the brokers' latency
)
_IDLE_S: Final = 0.2  # the same while nothing is under way: of errors that are no record's
_PROBE_TIMEOUT_S: Final = 3.0
_GRACE_S: Final = (
    5.0  # past librdkafka's own limit, before an append gives up waiting for its callbacks
)


class KafkaQueue:
    """A durable queue on the edge Kafka cluster, which implements the `Queue` protocol.

    The queue uses one idempotent producer for the whole process and replaces it after a fatal
    error. Create the queue inside the event loop that uses it.

    Args:
        config: Configuration of the Kafka cluster and of the time and memory limits.
        metrics: Metrics that count failed records.
        make_producer: Creates the Kafka producer. Tests replace it.
    """

    def __init__(
        self, config: Config, metrics: ServiceMetrics, make_producer: MakeProducer = make_producer
    ) -> None:
        self._metrics = metrics
        self._timeout_s = config.service.delivery_timeout_seconds
        self._config = config
        self._make_producer = make_producer
        self._failing_since: float | None = None
        self._suspicion: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._current = RunningProducer(make_producer, producer_settings(config))
        self._topics = TopicMonitor(
            lambda: self._current.list_topics(_PROBE_TIMEOUT_S).topics,
            config.kafka.edge.min_insync_replicas,
            metrics,
        )
        self._under_way = 0  # appends that wait for their reports
        self._wanted = asyncio.Event()
        self._reports = asyncio.create_task(self._serve_reports())

    async def append(self, messages: Mapping[str, Sequence[Message]]) -> None:
        if not any(messages.values()):
            return
        await self._topics.check(messages.keys())
        producer = self._current
        delivery = _Delivery(self._loop, functools.partial(self._count, producer))
        deadline = self._loop.time() + self._timeout_s
        self._under_way += 1
        self._wanted.set()
        try:
            for topic, some in messages.items():
                if producer.supports_packed:
                    await producer.pacer(topic).wait()
                for chunk in message_chunks(some):
                    if isinstance(chunk, PackedMessages) and producer.supports_packed:
                        await self._send(producer, topic, chunk, delivery, deadline)
                    else:
                        await self._produce_all(producer, topic, chunk, delivery, deadline)
            delivery.landed()
            await self._wait_for_delivery(delivery, messages.keys())
        except (NotDelivered, QueueUnavailable, TimeoutError) as error:
            if not producer.fatal and (problem := await self._topics.examine(messages.keys())):
                raise problem.to_error() from error
            self._after_failure(producer, set(messages))
            if isinstance(error, TimeoutError):
                raise NotDelivered(
                    f"Kafka did not respond within {self._timeout_s + _GRACE_S:g} s"
                ) from error
            raise
        finally:
            self._under_way -= 1
            delivery.abandon()
        self._failing_since = None

    async def problems(self, topics: Sequence[str]) -> list[str]:
        found = await self._cluster_problems(topics)
        if (
            self._failing_since is not None
        ):  # brokers without a controller continue to report replicas that no longer exist
            failing_s = self._loop.time() - self._failing_since
            found.append(f"nothing has been delivered for {failing_s:.0f} s")
        return found

    async def topic_problems(self, topics: Sequence[str]) -> Mapping[str, str]:
        try:
            found = await self._topics.problems(topics)
        except KafkaException:
            return {}
        return {topic: problem.message for topic, problem in found.items()}

    async def close(self, timeout_s: float) -> None:
        self._reports.cancel()
        left = await asyncio.to_thread(self._current.close, timeout_s)
        if left:
            _LOG.warning(
                "%d records were not delivered before the shutdown; they were never acknowledged",
                left,
            )

    async def _serve_reports(self) -> None:
        # Runs librdkafka's callbacks in the event loop: a thread would compete for the interpreter
        # with every delivery report.
        while True:
            self._current.poll()
            if self._current.fatal:
                self._renew(self._current, "it had a fatal error")
            if self._under_way:
                await asyncio.sleep(_REPORTS_S)
                continue
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_S):
                    await self._wanted.wait()

    async def _cluster_problems(self, topics: Sequence[str]) -> list[str]:
        try:
            found = await self._topics.problems(topics)
        except KafkaException as error:
            return [
                f"Kafka does not respond at {self._current.bootstrap} (kafka.edge.bootstrap): "
                f"{error.args[0]}"
            ]
        return [problem.message for problem in found.values()]

    async def _wait_for_delivery(self, delivery: _Delivery, topics: Collection[str]) -> None:
        done, _ = await asyncio.wait([delivery.done], timeout=min(SLOW_S, self._timeout_s))
        if not done:
            problem = await self._topics.examine(topics)
            if problem is not None and problem.is_missing:  # there is no leader to wait for
                raise problem.to_error()
        async with asyncio.timeout(self._timeout_s + _GRACE_S):
            await delivery.done

    async def _send(
        self,
        producer: RunningProducer,
        topic: str,
        records: PackedMessages,
        delivery: _Delivery,
        deadline: float,
    ) -> None:
        at, gate = 0, producer.pacer(topic)
        while at < len(records):
            delivery.expect()
            gate.add_pending()
            at, error, under_way = producer.send_packed(
                topic, records, at, functools.partial(delivery.news, gate.remove_pending)
            )
            if not under_way:
                delivery.landed()
                gate.remove_pending()
            if error is not None:
                raise self._refused(producer, error)
            if at < len(records):
                await self._wait_for_room(deadline)
        await asyncio.sleep(0)

    async def _produce_all(
        self,
        producer: RunningProducer,
        topic: str,
        messages: Sequence[Message],
        delivery: _Delivery,
        deadline: float,
    ) -> None:
        for at in range(0, len(messages), _BATCH):
            left = list(messages[at : at + _BATCH])
            report = delivery.report_of(len(left))
            while left := self._produce(producer, topic, left, report):
                await self._wait_for_room(deadline)
            await asyncio.sleep(0)

    async def _wait_for_room(self, deadline: float) -> None:
        if self._loop.time() > deadline:
            raise QueueUnavailable(
                "the producer's buffer is full: Kafka accepts records more slowly than they arrive"
            )
        await asyncio.sleep(_FULL_PAUSE_S)

    def _produce(
        self, producer: RunningProducer, topic: str, messages: list[Message], report: Report
    ) -> list[Message]:
        # Returns the messages for which the producer's buffer had no room. Each of the others gets
        # a delivery report.
        try:
            taken = producer.produce_batch(topic, messages, on_delivery=report)
        except BufferError:
            return messages
        except KafkaException as error:
            raise self._refused(producer, error.args[0]) from error
        if taken == len(messages):
            return []
        refused: list[tuple[Message, Any]] = [
            (message, message.pop("_error")) for message in messages if "_error" in message
        ]
        assert taken + len(refused) == len(messages), "a message is taken, or it says why not"
        for _, why in refused:
            if why.code() != KafkaError._QUEUE_FULL:
                raise self._refused(producer, why)
        return [message for message, _ in refused]

    def _refused(self, producer: RunningProducer, error: KafkaError) -> QueueUnavailable:
        self._count(producer, error)
        return QueueUnavailable(f"the producer rejects records: {error}")

    def _count(self, producer: RunningProducer, error: KafkaError, records: int = 1) -> None:
        self._metrics.produce_errors.labels(error.name()).inc(records)
        producer.fatal = producer.fatal or is_fatal(error)

    def _after_failure(self, producer: RunningProducer, topics: set[str]) -> None:
        if producer is not self._current:
            return  # it was replaced already
        now_s = self._loop.time()
        self._failing_since = now_s if self._failing_since is None else self._failing_since
        if producer.fatal:
            self._renew(producer, "it had a fatal error")
        elif (
            now_s - self._failing_since > FAILING_TIMEOUTS * self._timeout_s
            and self._suspicion is None
        ):
            self._suspicion = asyncio.create_task(self._suspect(producer, topics))

    async def _suspect(self, producer: RunningProducer, topics: set[str]) -> None:
        # Nothing was delivered for a long time. If the cluster is healthy, or the producer does not
        # know its current brokers, the producer is at fault.
        try:
            problems = await self._cluster_problems(sorted(topics))
            if self._failing_since is None:
                return
            if not problems:
                self._renew(producer, "it delivers nothing although the cluster is healthy")
            elif producer.bootstrap != bootstrap_addresses(self._config.kafka.edge):
                self._renew(
                    producer,
                    "it delivers nothing, and the cluster's brokers have changed since it was "
                    "created",
                )
        finally:
            self._suspicion = None

    def _renew(self, producer: RunningProducer, why: str) -> None:
        if producer is not self._current:
            return
        _LOG.warning("the Kafka producer is recreated: %s", why)
        self._failing_since = None
        self._metrics.producer_renewals.inc()
        self._current = RunningProducer(self._make_producer, producer_settings(self._config))
        threading.Thread(target=producer.purge, name="retired-producer", daemon=True).start()


class _Delivery:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, failed: Callable[[KafkaError, int], None]
    ) -> None:
        # completes once all parts are delivered; fails with `NotDelivered` once one part fails
        self.done: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._left = 1  # the handing over itself
        self._failed = failed

    def expect(self) -> None:
        self._left += 1

    def landed(self) -> None:
        self._settle(0, None, True)

    def news(
        self, ended: Callable[[], None], failed: int, error: KafkaError | None, landed: bool
    ) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, failed, error, landed)
            if landed:
                self._loop.call_soon_threadsafe(ended)

    def report_of(self, records: int) -> Report:
        # The callback is not kept here: the garbage collector could not see a cycle through C.
        self.expect()
        return (
            _report(records, self._report_delivery)
            if native.MODULE is None
            else native.MODULE.tally(records, self._report_delivery)
        )

    def abandon(self) -> None:
        if not self.done.done():
            self.done.cancel()
        elif not self.done.cancelled():
            self.done.exception()  # seen

    def _report_delivery(self, error: KafkaError | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(
                self._settle, int(error is not None), error, error is None
            )

    def _settle(self, failed: int, error: KafkaError | None, landed: bool) -> None:
        if error is not None:
            self._failed(error, failed)
        self._left -= landed
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(NotDelivered(f"Kafka did not accept a record: {error}"))
        elif self._left == 0:
            self.done.set_result(None)


def _report(records: int, on_result: Callable[[KafkaError | None], None]) -> Report:
    left = records

    def report(error: KafkaError | None, _: Any) -> None:
        nonlocal left
        left -= 1
        if error is not None or left == 0:
            on_result(error)

    return report


def producer_settings(config: Config) -> dict[str, Any]:
    """Return the librdkafka configuration properties of the service's producer.

    The producer is idempotent and requires acknowledgement by all in-sync replicas. Its limits on
    memory and time are taken from the configuration.

    Args:
        config: Configuration of the Kafka cluster and of the service.
    """
    timeout_ms = int(config.service.delivery_timeout_seconds * 1000)
    return client_settings(
        config.kafka.edge,
        acks="all",
        enable_idempotence=True,  # no duplicates, no reordering by the client's own retries
        compression_type="lz4",  # the cheapest for the brokers' and our CPU
        linger_ms=LINGER_MS,
        message_max_bytes=config.kafka.max_message_bytes,
        queue_buffering_max_messages=500_000,
        queue_buffering_max_kbytes=max(2 * config.service.inflight_bytes_max // 1024, 32 * 1024),
        delivery_timeout_ms=timeout_ms,
        request_timeout_ms=max(
            1000, min(10_000, timeout_ms // 3)
        ),  # a paused leader must not use up the whole time
        reconnect_backoff_max_ms=1000,
        topic_metadata_refresh_interval_ms=60_000,
    )
