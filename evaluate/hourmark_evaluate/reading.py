"""Ordinary consumers that read back a trial's records.

`read_all` reads everything once, `Follower` reads a growing copy repeatedly, and `Group` is a
consumer group that can fall behind.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Offset, Partition, consumer_settings, librdkafka_logger
from hourmark.kafka.committed_reader import CommittedReader, MessageRun
from hourmark_evaluate.accounting import Floats, Readings
from hourmark_evaluate.records import Form

_BATCH: Final = 2_000
_NOT_ALLOWED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class Known:
    """A set of record numbers that were seen before.

    Attributes:
        count: Number of different record numbers seen.
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen = bytearray()  # one byte per record number, 1 if seen

    def is_new(self, number: int | None) -> bool:
        """Add a number and return whether it was not in the set before.

        Args:
            number: Record number, at least 0; None for a message that is not a record, which is
                ignored.

        Returns:
            True if the number is new; False if it was seen before or is None.
        """
        if number is None:
            return False
        self._seen.extend(bytes(max(0, number + 1 - len(self._seen))))
        before, self._seen[number] = self._seen[number], 1
        self.count += not before
        return not before


class Follower:
    """A reader that consumes topics from their beginning, up to the current end at each poll.

    It reads committed records only. It is not thread-safe.

    Args:
        cluster: The cluster.
        form: Format of the records.
        topics: Names of existing topics.
        partitions: Number of partitions of each topic.
        reader: Reader of the cluster's records, which `close` closes; by default a new one.

    Attributes:
        readings: All record numbers read so far, by partition.
        read_to: By partition, the next offset to read; empty before the first poll.
        new: Record numbers read by the last `poll`.
    """

    def __init__(
        self,
        cluster: Cluster,
        form: Form,
        topics: Sequence[str],
        partitions: int,
        reader: CommittedReader | None = None,
    ) -> None:
        self.readings = Readings()
        self._offsets: dict[
            Partition, array[int]
        ] = {}  # offsets of the first reading of each record, ascending
        self._known = Known()
        self._cluster, self._form = cluster, form
        self._partitions = [Partition(topic, n) for topic in topics for n in range(partitions)]
        self.read_to: dict[Partition, Offset] = {}
        self._reader = reader or CommittedReader(cluster.settings, cluster.name)
        self.new: list[int] = []

    def poll(self) -> None:
        """Read all records up to the current end of the topics.

        The results are added to `readings`, and `new` is replaced.

        Raises:
            Unavailable: The cluster does not answer. The next call continues after the last record
                read.
        """
        # Records deleted before the start offsets are missing, and count as missing.
        self.read_to = self.read_to or self._cluster.starts(self._partitions)
        ends = self._cluster.ends(self._partitions)
        self.new = []
        for runs in self._reader.read({p: (self.read_to[p], end) for p, end in ends.items()}):
            for run in runs:
                self._take(run)
                self.read_to[run.partition] = Offset(
                    run.next_offset
                )  # if reading fails later, this run is not read again
        self.read_to = ends

    def _take(self, run: MessageRun) -> None:
        numbers = [self._form.number_of(message.value()) for message in run.records]
        self.readings.add(run.partition.topic, run.partition.partition, numbers)
        offsets = self._offsets.setdefault(run.partition, array("q"))
        offsets.extend(
            m.offset() or 0
            for m, number in zip(run.records, numbers, strict=True)
            if self._known.is_new(number)
        )
        self.new += [number for number in numbers if number is not None]

    @property
    def distinct(self) -> int:
        """Return the number of records read so far, each counted once."""
        return self._known.count

    def ends(self) -> dict[Partition, Offset]:
        """Return the high watermark of each partition, which includes records of open transactions.

        Raises:
            Unavailable: The cluster does not answer.
        """
        return self._cluster.ends(self._partitions, committed=False)

    def held_below(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return, per partition, how many different records were read below the given offset."""
        return {p: bisect.bisect_left(self._offsets.get(p, ()), end) for p, end in ends.items()}

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()


def read_all(cluster: Cluster, form: Form, topics: Sequence[str], partitions: int) -> Readings:
    """Read all committed records of the topics and return their numbers by partition.

    Args:
        cluster: The cluster.
        form: Format of the records.
        topics: Names of the topics.
        partitions: Number of partitions of each topic.

    Raises:
        Unavailable: The cluster does not answer.
    """
    with contextlib.closing(Follower(cluster, form, topics, partitions)) as follower:
        follower.poll()
        return follower.readings


class Copied:
    """The times at which records were first read from the target cluster, by record number."""

    def __init__(self) -> None:
        self._seen_s = array("d")
        self._first_missing = 0

    @property
    def first_missing(self) -> int:
        """Return the lowest record number that was not read yet."""
        while (
            self._first_missing < len(self._seen_s)
            and self._seen_s[self._first_missing] == self._seen_s[self._first_missing]
        ):
            self._first_missing += 1
        return self._first_missing

    def note(self, numbers: Sequence[int], now_s: float) -> None:
        """Store the time for those record numbers that were not read before.

        Args:
            numbers: Record numbers that were read.
            now_s: Seconds since the start of the load.
        """
        if numbers and (missing := max(numbers) + 1 - len(self._seen_s)) > 0:
            self._seen_s.extend([float("nan")] * missing)
        for number in numbers:
            if self._seen_s[number] != self._seen_s[number]:
                self._seen_s[number] = now_s

    def of(self, sent: int) -> Floats:
        """Return when each of the first `sent` records was first read.

        Returns:
            By record number, seconds since the start of the load; NaN for records that were not
            read.
        """
        seen: Floats = np.full(sent, np.nan)
        known = np.array(self._seen_s[:sent])
        seen[: len(known)] = known
        return seen


class Group:
    """A consumer group with one member, which reads topics from the beginning in its own thread.

    It reads committed records and commits its offsets automatically.

    Args:
        cluster: Connection settings.
        form: Format of the records.
        topics: Names of the topics.
        name: The group id.

    Attributes:
        readings: All record numbers read, by partition; valid after `stop`.
        error: The error that stopped the consumer; "" while it is reading.
    """

    def __init__(self, cluster: KafkaCluster, form: Form, topics: Sequence[str], name: str) -> None:
        self.readings = Readings()
        self.error = ""
        self._known = Known()
        self._form = form
        self._ending = threading.Event()
        settings = consumer_settings(
            cluster,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            isolation_level="read_committed",
        )
        self._consumer = Consumer(settings, logger=librdkafka_logger())
        self._topics = list(topics)
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)

    def start(self) -> None:
        """Subscribe to the topics and start reading."""
        self._consumer.subscribe(self._topics)
        self._thread.start()

    @property
    def read(self) -> int:
        """Return the number of records read so far, each counted once."""
        return self._known.count

    def stop(self) -> None:
        """Stop reading and leave the group. Further calls have no effect if reading did not fail.

        Raises:
            Unavailable: Reading failed earlier. Each call raises this error.
        """
        self._ending.set()
        self._thread.join()
        self._consumer.close()
        if self.error:
            raise Unavailable(f"the consumer group could not read: {self.error}")

    def _run(self) -> None:
        try:
            while not self._ending.is_set() and not self.error:
                self._take(self._consumer.consume(_BATCH, 0.1))
        except KafkaException as error:
            self.error = str(error)

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            if (error := message.error()) is None:
                number = self._form.number_of(message.value())
                self.readings.add(str(message.topic()), message.partition() or 0, [number])
                self._known.is_new(number)
            elif error.fatal() or error.code() in _NOT_ALLOWED:  # all other errors are temporary
                self.error = error.str()
