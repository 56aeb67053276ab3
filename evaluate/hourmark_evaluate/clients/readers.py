"""Consumers that read back a trial's records.

`read_all` reads everything once, `IncrementalReader` reads a growing copy repeatedly, and
`GroupConsumer` is a consumer group that can fall behind.
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
from hourmark_evaluate.accounting import ConsumedRecords, Floats
from hourmark_evaluate.record_format import RecordFormat

_BATCH: Final = 2_000
_NOT_ALLOWED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class RecordNumberSet:
    """A set of record numbers that a consumer has read, used to detect duplicates.

    It needs one byte of memory for each number up to the highest.

    Attributes:
        count: Number of distinct record numbers in the set.
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen = bytearray()  # one byte per record number, 1 if seen

    def add(self, number: int | None) -> bool:
        """Add a record number and return whether it is new.

        Args:
            number: Record number, at least 0. None, for a message that is not a record, is ignored.

        Returns:
            True if the number was not in the set; False if it was, or if it is None.
        """
        if number is None:
            return False
        self._seen.extend(bytes(max(0, number + 1 - len(self._seen))))
        before, self._seen[number] = self._seen[number], 1
        self.count += not before
        return not before


class IncrementalReader:
    """A consumer that reads topics from the beginning, up to the current end at each `poll`.

    It collects the numbers of the test records of one evaluation run. It reads only committed
    records. It is not thread-safe.

    Args:
        cluster: The cluster.
        record_format: Format of the records.
        topics: Names of existing topics.
        partitions: Number of partitions of each topic.

    Attributes:
        records_read: All record numbers read so far, by topic and partition.
        next_offsets: Next offset to read from each partition; empty before the first poll.
        last_numbers: Record numbers read by the last `poll`.
    """

    def __init__(
        self, cluster: Cluster, record_format: RecordFormat, topics: Sequence[str], partitions: int
    ) -> None:
        self.records_read = ConsumedRecords()
        self._offsets: dict[
            Partition, array[int]
        ] = {}  # offsets of the first reading of each record, ascending
        self._known = RecordNumberSet()
        self._cluster, self._format = cluster, record_format
        self._partitions = [Partition(topic, n) for topic in topics for n in range(partitions)]
        self.next_offsets: dict[Partition, Offset] = {}
        self._reader = CommittedReader(cluster.settings, cluster.name)
        self.last_numbers: list[int] = []

    def poll(self) -> None:
        """Read all records up to the current end of the topics.

        Each test record contains its sequence number. The numbers of the records that were read are
        added to `records_read`; `last_numbers` contains those of this call only.

        Raises:
            Unavailable: The cluster does not answer. The next call continues after the last record
                read.
        """
        # Records deleted before the start offsets are missing, and count as missing.
        self.next_offsets = self.next_offsets or self._cluster.starts(self._partitions)
        ends = self._cluster.ends(self._partitions)
        self.last_numbers = []
        for runs in self._reader.read({p: (self.next_offsets[p], end) for p, end in ends.items()}):
            for run in runs:
                self._add_run(run)
                self.next_offsets[run.partition] = Offset(
                    run.next_offset
                )  # if reading fails later, this run is not read again
        self.next_offsets = ends

    def _add_run(self, run: MessageRun) -> None:
        numbers = [self._format.decode_number(message.value()) for message in run.records]
        self.records_read.add(run.partition.topic, run.partition.partition, numbers)
        offsets = self._offsets.setdefault(run.partition, array("q"))
        offsets.extend(
            m.offset() or 0
            for m, number in zip(run.records, numbers, strict=True)
            if self._known.add(number)
        )
        self.last_numbers += [number for number in numbers if number is not None]

    @property
    def distinct_count(self) -> int:
        """Number of distinct records read so far."""
        return self._known.count

    def high_watermarks(self) -> dict[Partition, Offset]:
        """Return the high watermark of each partition, which includes records of open transactions.

        Raises:
            Unavailable: The cluster does not answer.
        """
        return self._cluster.ends(self._partitions, committed=False)

    def count_below(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Count the distinct records that were read below a given offset of each partition.

        Args:
            ends: Offset by partition. The record at this offset is not counted.
        """
        return {p: bisect.bisect_left(self._offsets.get(p, ()), end) for p, end in ends.items()}

    def close(self) -> None:
        """Close the Kafka consumer. `poll` must not be called afterwards."""
        self._reader.close()


def read_all(
    cluster: Cluster, record_format: RecordFormat, topics: Sequence[str], partitions: int
) -> ConsumedRecords:
    """Read all committed records of the topics and return their numbers by partition.

    Args:
        cluster: The cluster.
        record_format: Format of the records.
        topics: Names of the topics.
        partitions: Number of partitions of each topic.

    Raises:
        Unavailable: The cluster does not answer.
    """
    with contextlib.closing(
        IncrementalReader(cluster, record_format, topics, partitions)
    ) as follower:
        follower.poll()
        return follower.records_read


class FirstReadTimes:
    """The time at which each record that a mirror copied was first read from the target cluster.

    Records are identified by their numbers, from 0. All times are in seconds since the start of the
    load.
    """

    def __init__(self) -> None:
        self._seen_s = array("d")
        self._first_missing = 0

    @property
    def first_missing(self) -> int:
        """Lowest record number that has not been read yet; 0 if no record has been read."""
        while (
            self._first_missing < len(self._seen_s)
            and self._seen_s[self._first_missing] == self._seen_s[self._first_missing]
        ):
            self._first_missing += 1
        return self._first_missing

    def record(self, numbers: Sequence[int], now_s: float) -> None:
        """Store the current time for each record that is read for the first time.

        Args:
            numbers: Record numbers that were read.
            now_s: Current time, in seconds since the start of the load.
        """
        if numbers and (missing := max(numbers) + 1 - len(self._seen_s)) > 0:
            self._seen_s.extend([float("nan")] * missing)
        for number in numbers:
            if self._seen_s[number] != self._seen_s[number]:
                self._seen_s[number] = now_s

    def as_array(self, sent: int) -> Floats:
        """Return the times at which records were first read, as an array.

        Args:
            sent: Number of records sent, which is the length of the array.

        Returns:
            Seconds since the start of the load, indexed by record number; NaN for records that were
            not read.
        """
        seen: Floats = np.full(sent, np.nan)
        known = np.array(self._seen_s[:sent])
        seen[: len(known)] = known
        return seen


class GroupConsumer:
    """A consumer group with one member, which reads topics from the beginning in its own thread.

    It reads only committed records, and commits its offsets automatically.

    Args:
        cluster: Connection settings.
        record_format: Format of the records.
        topics: Names of the topics.
        name: The group id.

    Attributes:
        records_read: All record numbers read, by partition; valid after `stop`.
        error: Message of the error that stopped the consumer; "" if there was none.
    """

    def __init__(
        self, cluster: KafkaCluster, record_format: RecordFormat, topics: Sequence[str], name: str
    ) -> None:
        self.records_read = ConsumedRecords()
        self.error = ""
        self._known = RecordNumberSet()
        self._format = record_format
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
        """Subscribe to the topics and start the thread that reads them."""
        self._consumer.subscribe(self._topics)
        self._thread.start()

    @property
    def distinct_count(self) -> int:
        """Number of distinct records read so far."""
        return self._known.count

    def stop(self) -> None:
        """Stop reading and leave the group; do nothing if already stopped.

        Raises:
            Unavailable: The consumer stopped earlier with an error. Each call raises this error.
        """
        self._ending.set()
        self._thread.join()
        self._consumer.close()
        if self.error:
            raise Unavailable(f"the consumer group could not read: {self.error}")

    def _run(self) -> None:
        try:
            while not self._ending.is_set() and not self.error:
                self._add_messages(self._consumer.consume(_BATCH, 0.1))
        except KafkaException as error:
            self.error = str(error)

    def _add_messages(self, messages: list[Message]) -> None:
        for message in messages:
            if (error := message.error()) is None:
                number = self._format.decode_number(message.value())
                self.records_read.add(str(message.topic()), message.partition() or 0, [number])
                self._known.add(number)
            elif error.fatal() or error.code() in _NOT_ALLOWED:  # all other errors are temporary
                self.error = error.str()
