"""Follows a compacted topic (rules, tokens) in a thread of its own, from its beginning, for as long
as the service runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final, Protocol

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.compacted_topic import TopicFollower

_LOG = logging.getLogger(__name__)

POLL_S = 1.0  # a new revision is named to tailers, and a revoked token is refused, that much later
_RETRY_MAX_S: Final = 3.0


class TopicStore(Protocol):
    """What is known of a topic. `trouble`: why it cannot be read at the moment."""

    read_error: str

    def feed(
        self, records: Iterable[tuple[bytes | None, bytes | None]], *, from_start: bool
    ) -> None:
        """All records up to the topic's end. `anew`: it begins from its start, or is gone."""
        ...


class StoreFollower:
    """Feeds a store. Kafka being away only means that nothing new is learned."""

    def __init__(self, config: Config, topic: str, store: TopicStore) -> None:
        self._topic = topic
        self._store = store
        self._follower = TopicFollower(config.kafka.edge, topic, cluster_name="edge")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follower-{topic}", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End within a few seconds; the thread is a daemon and cannot hold up the process."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._stopping.is_set():
            try:
                anew, records = self._follower.poll()
                self._store.feed(records, from_start=anew)
                self._store.read_error, pause_s = "", POLL_S
            # a thread that ended would leave the service with what was yesterday
            except Exception as error:  # noqa: BLE001
                if (
                    trouble := f": {error}"
                ) != self._store.read_error:  # each is told once, however long it lasts
                    _LOG.warning(
                        "%s cannot be read for now: %s",
                        self._topic,
                        error,
                        exc_info=not isinstance(error, Unavailable),
                    )
                self._store.read_error = trouble
                pause_s = min(pause_s * 2, _RETRY_MAX_S)
            self._stopping.wait(pause_s)
        self._follower.close()
