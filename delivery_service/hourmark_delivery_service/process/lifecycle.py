"""Startup and shutdown of a service's components, in a single process, worker or supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from typing import Final, Protocol

from hourmark.avro.registry import SchemaRegistry
from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_names import TOKENS, TYPES
from hourmark.kafka.topic_setup import create_topics
from hourmark.rules.event_types import EventType
from hourmark.rules.topics import event_topic_spec
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.process.store_follower import StoreFollower
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue
from hourmark_delivery_service.work.framing import find_framing
from hourmark_delivery_service.work.missing_topics import MissingTopics
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_delivery_service.work.service import DeliveryService

_CLOSE_S: Final = 10.0
_POLL_S: Final = 0.05  # between checks for the first rules revision at startup
_LOG: Final = logging.getLogger(__name__)
_FOLLOW_S: Final = 1.0  # between checks for a revision that needs another schema


class ProgressReporter(Protocol):
    """Sends periodic progress reports of a service process.

    A progress report states the time up to which all requests have been answered. A service with a
    single process sends its reports to Kafka. With several worker processes, each worker reports to
    the supervisor.
    """

    async def run(self) -> None:
        """Send a report at regular intervals until the task is cancelled.

        The first successful report sets `first_report_sent` of the service. Before that, the
        service does not accept events.
        """
        ...

    async def send_goodbye(self) -> None:
        """Send the final report before the service shuts down.

        The report states that the service has answered all requests. Call this method once, after
        the service has stopped accepting requests.
        """
        ...


@contextlib.asynccontextmanager
async def running_service(config: Config) -> AsyncIterator[DeliveryService]:
    """Return an async context manager that runs a service with its queue, rules and tokens.

    The block receives the running service. At the end of the block, the manager delivers pending
    records for up to 10 seconds and closes the queue.

    Args:
        config: Configuration of the service.
    """
    metrics = ServiceMetrics()
    rules = RulesStore(metrics)
    queue = KafkaQueue(config, metrics)
    service = DeliveryService(config, SystemClock(), queue, rules, metrics)
    if _creates_topics(config):
        create = functools.partial(_create_topic, config.kafka)
        service.missing_topics = MissingTopics(create, rules, service.clock)
    followers = [StoreFollower(config, TYPES, rules)]
    if config.service.tokens_required:
        followers.append(StoreFollower(config, TOKENS, service.access.token_store))
    for follower in followers:
        follower.start()
    try:
        yield service
    finally:
        await queue.close(_CLOSE_S)
        for follower in followers:
            await asyncio.to_thread(follower.stop)


def _creates_topics(config: Config) -> bool:
    chosen = config.service.create_missing_topics
    return config.kafka.mirrored if chosen is None else chosen


def _create_topic(kafka: KafkaSettings, event_type: EventType) -> None:
    create_topics(Cluster(kafka.edge, "edge"), [event_topic_spec(kafka, event_type)])


@contextlib.asynccontextmanager
async def progress_reporting(
    service: DeliveryService, config: Config, reporter: ProgressReporter
) -> AsyncIterator[None]:
    """Return an async context manager that sends progress reports of a service during its block.

    A progress report states the time up to which the service has answered all requests. The first
    report is sent once the service has read its rules and the schema registry has returned the
    schema ids. The final report is sent at the end of the block.

    Args:
        service: Service whose progress is reported.
        config: Configuration with the schema registry.
        reporter: Sends the reports.
    """
    task = asyncio.create_task(_claim(service, config, reporter))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await reporter.send_goodbye()


async def _claim(service: DeliveryService, config: Config, claimant: ProgressReporter) -> None:
    with contextlib.closing(SchemaRegistry(config.registry)) as registry:
        while service.rules.latest is None:
            await asyncio.sleep(_POLL_S)
        await _find_framing(service, registry)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(claimant.run())
            tasks.create_task(_follow_framing(service, registry))


async def _follow_framing(service: DeliveryService, registry: SchemaRegistry) -> None:
    while True:
        await asyncio.sleep(_FOLLOW_S)
        if service.framing is None or service.lacks_framing() or not service.framing.is_newest:
            await _find_framing(service, registry)


async def _find_framing(service: DeliveryService, registry: SchemaRegistry) -> None:
    needed = service.rules.counting_blanks
    found = await find_framing(
        registry, needed, service.rules.types_by_schema_id, service.set_framing_error
    )
    if not found.has_checksums and (service.framing is None or service.framing.has_checksums):
        _LOG.warning(
            "the schema registry does not have the audit schema of this version: audit records "
            "carry no checksums of values, so buckets are proved by event ids only. Run "
            "`hourmark types apply`; the service then notices within %d s",
            _FOLLOW_S,
        )
    service.framing = found
