"""What is in the topics, by ordinary consumers: all of it once, a copy as it grows, and a group
that falls behind.
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
    """Numbers that were seen, each counted once."""

    def __init__(self) -> None:
        self.count = 0
        self._seen = bytearray()  # by number

    def is_new(self, number: int | None) -> bool:
        """Whether it was not seen before; None, of what is no record, never counts."""
        if number is None:
            return False
        self._seen.extend(bytes(max(0, number + 1 - len(self._seen))))
        before, self._seen[number] = self._seen[number], 1
        self.count += not before
        return not before


class Follower:
    """Reads topics from their beginning, each time up to the end that they have then.

    Not thread-safe.
    """

    def __init__(
        self, cluster: Cluster, form: Form, topics: Sequence[str], partitions: int
    ) -> None:
        self.readings = Readings()
        self._offsets: dict[
            Partition, array[int]
        ] = {}  # of the first reading of each record, ascending
        self._known = Known()
        self._cluster, self._form = cluster, form
        self._partitions = [Partition(topic, n) for topic in topics for n in range(partitions)]
        self.read_to: dict[Partition, Offset] = {}
        self._reader = CommittedReader(cluster.settings, cluster.name)
        self.new: list[int] = []  # numbers that the last `poll` brought

    def poll(self) -> None:
        """Read what is new; Unavailable where the cluster does not answer."""
        # What was deleted before them is missing, and counts so.
        self.read_to = self.read_to or self._cluster.starts(self._partitions)
        ends = self._cluster.ends(self._partitions)
        self.new = []
        for runs in self._reader.read({p: (self.read_to[p], end) for p, end in ends.items()}):
            for run in runs:
                self._take(run)
                self.read_to[run.partition] = Offset(
                    run.next_offset
                )  # where reading fails later, this is not read again
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
        """Records read so far, each counted once."""
        return self._known.count

    def ends(self) -> dict[Partition, Offset]:
        """How far the logs reach now, transactions that are under way among it. Unavailable."""
        return self._cluster.ends(self._partitions, committed=False)

    def held_below(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Records read below these offsets, each counted once."""
        return {p: bisect.bisect_left(self._offsets.get(p, ()), end) for p, end in ends.items()}

    def close(self) -> None:
        """Leave the cluster."""
        self._reader.close()


def read_all(cluster: Cluster, form: Form, topics: Sequence[str], partitions: int) -> Readings:
    """All that is in them now."""
    with contextlib.closing(Follower(cluster, form, topics, partitions)) as follower:
        follower.poll()
        return follower.readings


class Copied:
    """When each record was first seen on the target, by number."""

    def __init__(self) -> None:
        self._seen_s = array("d")
        self._first_missing = 0

    @property
    def first_missing(self) -> int:
        """The lowest number that was not seen yet."""
        while (
            self._first_missing < len(self._seen_s)
            and self._seen_s[self._first_missing] == self._seen_s[self._first_missing]
        ):
            self._first_missing += 1
        return self._first_missing

    def note(self, numbers: Sequence[int], now_s: float) -> None:
        """These are there now."""
        if numbers and (missing := max(numbers) + 1 - len(self._seen_s)) > 0:
            self._seen_s.extend([float("nan")] * missing)
        for number in numbers:
            if self._seen_s[number] != self._seen_s[number]:
                self._seen_s[number] = now_s

    def of(self, sent: int) -> Floats:
        """For so many numbers; NaN: never seen."""
        seen: Floats = np.full(sent, np.nan)
        known = np.array(self._seen_s[:sent])
        seen[: len(known)] = known
        return seen


class Group:
    """A consumer group of one, in a thread; its offsets are committed, and it begins where the
    topics begin.

    `error`: why it reads no more, "" while it does.
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
        """Begin to read."""
        self._consumer.subscribe(self._topics)
        self._thread.start()

    @property
    def read(self) -> int:
        """Records read so far, each counted once."""
        return self._known.count

    def stop(self) -> None:
        """Leave the group; Unavailable where reading had failed. May be called again."""
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
            elif error.fatal() or error.code() in _NOT_ALLOWED:  # all others pass
                self.error = error.str()
