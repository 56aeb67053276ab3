"""A thread that follows a compacted topic (rules or tokens) while the service runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final, Protocol

from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.compacted_topic import KeyValue, TopicFollower

_LOG = logging.getLogger(__name__)

POLL_S = 1.0  # a new revision is named to tailers, and a revoked token is refused, that much later
_RETRY_MAX_S: Final = 3.0


class TopicStore(Protocol):
    """An in-memory store for a compacted Kafka topic, kept up to date by `StoreFollower`.

    Attributes:
        read_error: Reason why the topic currently cannot be read, or an empty string.
    """

    read_error: str

    def feed(
        self, records: Iterable[tuple[bytes | None, bytes | None]], *, from_start: bool
    ) -> None:
        """Add the records that were read since the previous call.

        Args:
            records: Keys and values of the records in order, up to the current end of the topic.
            from_start: Whether the records start at the beginning of the topic, or the topic was
                deleted. The topic then contains exactly these records.
        """
        ...


class TopicReader(Protocol):
    """Interface of a reader that returns the new records of a topic at each poll.

    `TopicFollower` implements it for a Kafka topic.
    """

    def poll(self) -> tuple[bool, list[KeyValue]]:
        """Return the records since the previous poll, up to the current end of the topic.

        Returns:
            A flag, and the key and value of each new record. If the flag is True, the topic was
            read from its beginning or was deleted, and the caller must discard the records of
            earlier polls.

        Raises:
            Unavailable: If the topic cannot be read. A later poll may succeed.
        """
        ...

    def close(self) -> None:
        """Close the connection to Kafka."""
        ...


class StoreFollower:
    """A background thread that reads a compacted Kafka topic and passes its records to a store.

    The thread polls the topic every second. If the topic cannot be read, the thread sets the
    store's `read_error` and retries after at most three seconds. The store keeps its contents.

    Args:
        config: Configuration with the edge Kafka cluster.
        topic: Name of the topic.
        store: Store that receives the records. Its methods are called from the thread.
        reader: Reader of the topic. By default, the topic is read from the edge cluster.
    """

    def __init__(
        self, config: Config, topic: str, store: TopicStore, reader: TopicReader | None = None
    ) -> None:
        """Create a follower. It reads nothing until `start` is called.

        Args:
            config: Configuration with the edge Kafka cluster.
            topic: Name of the topic.
            store: Store that receives the records. Its methods are called from the thread.
            reader: Reader of the topic. By default, the topic is read from the edge cluster.
        """
        self._topic = topic
        self._store = store
        self._follower = reader or TopicFollower(config.kafka.edge, topic, cluster_name="edge")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follower-{topic}", daemon=True)

    def start(self) -> None:
        """Start the background thread. Call this method only once.

        The call returns immediately, before the topic is read.
        """
        self._thread.start()

    def stop(self) -> None:
        """Ask the background thread to stop, and wait up to 5 seconds for it.

        No exception is raised if the thread does not stop in time.
        """
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._stopping.is_set():
            try:
                from_start, records = self._follower.poll()
                self._store.feed(records, from_start=from_start)
                self._store.read_error, pause_s = "", POLL_S
            # a thread that ended would leave the service with what was yesterday
            except Exception as error:  # noqa: BLE001
                if (
                    trouble := f": {error}"
                ) != self._store.read_error:  # each error is logged once, however long it lasts
                    _LOG.warning(
                        "the topic %s cannot be read, retrying: %s",
                        self._topic,
                        error,
                        exc_info=not isinstance(error, Unavailable),
                    )
                self._store.read_error = trouble
                pause_s = min(pause_s * 2, _RETRY_MAX_S)
            self._stopping.wait(pause_s)
        self._follower.close()
