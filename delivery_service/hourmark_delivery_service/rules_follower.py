"""Follows the topic of rules revisions in a thread of its own, from its beginning, for as long as the service runs."""

from __future__ import annotations

import logging
import threading
from typing import Final

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.topic_follower import TopicFollower
from hourmark.topics import TYPES
from hourmark_delivery_service.rules_store import RulesStore

_LOG = logging.getLogger(__name__)

POLL_S = 1.0  # a new revision is named to tailers that much later
_RETRY_MAX_S: Final = 5.0


class RulesFollower:
    """Feeds a `RulesStore`. Kafka being away only means that nothing new is learned."""

    def __init__(self, config: Config, store: RulesStore) -> None:
        self._store = store
        self._follower = TopicFollower(config.kafka.edge, TYPES, cluster_name="edge")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rules-follower", daemon=True)

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
                self._store.feed(records, anew=anew)
                self._store.trouble, pause_s = "", POLL_S
            except Exception as error:  # noqa: BLE001  # a thread that ended would leave the service with yesterday's rules
                self._store.trouble = f": {error}"
                _LOG.warning("rules cannot be read for now: %s", error, exc_info=not isinstance(error, Unavailable))
                pause_s = min(pause_s * 2, _RETRY_MAX_S)
            self._stopping.wait(pause_s)
        self._follower.close()
