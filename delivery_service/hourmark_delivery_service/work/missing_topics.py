"""Recreates the topic of a declared event type that does not exist at the edge.

A byte range of a log file may contain lines of several types and is acknowledged as a whole, so one
missing topic would block all types of the file. Only the records of the deleted topic are lost, and
the loss remains detectable: a recreated topic has another id, which the ETL and `hourmark mirror
verify` compare with the id that they recorded.

The controller of the cluster decides whether the topic exists. A broker with outdated metadata, or
two services at once, can therefore not replace an existing topic.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Final

from hourmark.clock import Clock
from hourmark.errors import HourmarkError
from hourmark.kafka.topic_names import events_topic
from hourmark.rules.event_types import EventType
from hourmark_delivery_service.work.rules_store import RulesStore

_LOG = logging.getLogger(__name__)

CONFIRM_S: Final = 5.0  # an operator who replaces a topic may still be between the two steps
FORGET_S: Final = 60.0
RETRY_S: Final = 30.0

CreateTopic = Callable[[EventType], None]


@dataclasses.dataclass
class _MissingTopic:
    first_s: float
    last_s: float
    next_attempt_s: float
    error: str = ""
    task: asyncio.Task[None] | None = None


class MissingTopics:
    """Recreates missing Kafka topics of event types, after a delay.

    A topic is created only if it is still missing some seconds after the first report, because an
    operator may be replacing it. Not thread-safe: use it in one event loop.

    Args:
        create: Blocking function that creates the topic of an event type, or does nothing if the
            topic exists. It raises `HourmarkError` if it fails.
        rules: Declared event types.
        clock: Source of the current time.
    """

    def __init__(self, create: CreateTopic, rules: RulesStore, clock: Clock) -> None:
        self._create, self._rules, self._clock = create, rules, clock
        self._missing: dict[str, _MissingTopic] = {}

    def report(self, event_type: str) -> None:
        """Report that the topic of an event type does not exist.

        If the topic is reported again at least `CONFIRM_S` seconds after the first report, it is
        created in the background. If this fails, a report after `RETRY_S` seconds starts a retry.

        Args:
            event_type: Name of the event type. Types without a known declaration are ignored.
        """
        declaration = self._rules.declaration(event_type)
        if declaration is None:
            return
        now_s = self._clock.monotonic_s()
        topic = self._missing.get(event_type)
        if topic is None or (now_s - topic.last_s > FORGET_S and topic.task is None):
            topic = self._missing[event_type] = _MissingTopic(now_s, now_s, now_s + CONFIRM_S)
        topic.last_s = now_s
        if now_s >= topic.next_attempt_s and topic.task is None:
            topic.next_attempt_s = now_s + RETRY_S
            topic.task = asyncio.create_task(self._create_topic(declaration, topic))

    def creation_error(self, event_type: str) -> str:
        """Return the error of the last failed attempt to create the topic of an event type.

        Args:
            event_type: Name of the event type.

        Returns:
            The error message; an empty string if no attempt has failed.
        """
        topic = self._missing.get(event_type)
        return "" if topic is None else topic.error

    async def _create_topic(self, declaration: EventType, topic: _MissingTopic) -> None:
        name = events_topic(declaration.name)
        try:
            await asyncio.to_thread(self._create, declaration)
        except HourmarkError as error:
            if not topic.error:
                _LOG.error("the missing topic %s could not be created: %s", name, error)
            topic.error = str(error)
            topic.task = None
            return
        _LOG.error(
            "topic %s did not exist at the edge and was created again. If it was deleted, its "
            "records that the mirror had not copied are lost: docs/runbooks/"
            "mirror-topic-recreated.md describes what to do",
            name,
        )
        self._missing.pop(declaration.name, None)
