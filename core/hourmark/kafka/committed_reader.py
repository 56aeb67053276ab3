"""Reader of committed records as confluent_kafka messages, for callers that process each record.

See `partitions_reader` for its guarantees.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Partition, consumer_settings, librdkafka_logger
from hourmark.kafka.partitions_reader import (
    BATCH,
    QUEUE_KB,
    STALL_S,
    PartitionEvent,
    PartitionsReader,
    RecordRun,
    StartOffset,
    reader_settings,
)

MessageRun = RecordRun[list[Message]]
_offset: Final = operator.methodcaller("offset")


class CommittedReader(PartitionsReader[list[Message]]):
    """A reader of committed records that returns each record as a confluent_kafka `Message`.

    It reads offset ranges of topic-partitions without a consumer group; see `read`.

    Args:
        cluster: The cluster.
        name: Name of the cluster in error messages, such as `edge`.
        batch: Maximum number of records per fetch.
        stall_s: A read fails after this number of seconds without a record.
        queue_kb: Size limit of librdkafka's fetch queue, in KiB.
        overrides: Additional librdkafka settings. Their names have `_` in place of `.`.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        name: str,
        *,
        batch: int = BATCH,
        stall_s: float = STALL_S,
        queue_kb: int = QUEUE_KB,
        **overrides: Any,
    ) -> None:
        super().__init__(name, batch=batch, stall_s=stall_s)
        self._consumer = Consumer(
            consumer_settings(cluster, **(reader_settings(queue_kb) | overrides)),
            logger=librdkafka_logger(),
        )

    def _close_client(self) -> None:
        with contextlib.suppress(
            KafkaException
        ):  # the client is not used again, and earlier errors were reported
            self._consumer.close()

    def _assign(self, places: Mapping[Partition, StartOffset]) -> None:
        if places:
            self._consumer.assign([_from(p, start) for p, start in places.items()])
        else:
            self._consumer.unassign()

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        self._consumer.incremental_unassign(
            [TopicPartition(p.topic, p.partition) for p in partitions]
        )

    def _poll(
        self, count: int, wait_s: float
    ) -> tuple[list[tuple[Partition, int | None, list[Message]]], list[PartitionEvent]]:
        messages = self._consumer.consume(count, wait_s)
        events = [
            PartitionEvent(error, _place(m), _offset(m))
            for m in messages
            if (error := m.error()) is not None
        ]
        records = [m for m in messages if m.error() is None] if events else messages
        high, taken = 0, []
        places: Any = zip(
            [m.topic() for m in records],
            [m.partition() for m in records],
            [m.leader_epoch() for m in records],
            strict=True,
        )
        for (topic, number, epoch), run in itertools.groupby(places):
            low, high = high, high + len(list(run))
            taken += [
                (Partition(topic, number), epoch, part) for part in _ascending(records[low:high])
            ]
        return taken, events

    def _records_below(self, records: list[Message], end: int) -> tuple[list[Message], int, int]:
        first, last = _offset(records[0]), _offset(records[-1])
        return (
            records if last < end else records[: bisect.bisect_left(records, end, key=_offset)],
            first,
            last,
        )

    def _count(self, records: list[Message]) -> int:
        return len(records)

    def _high_watermark(self, partition: Partition) -> int:
        known = self._consumer.get_watermark_offsets(
            TopicPartition(partition.topic, partition.partition), cached=True
        )
        return -1 if known is None else int(known[1])

    def _empty(self) -> list[Message]:
        return []


def _from(p: Partition, start: StartOffset) -> TopicPartition:
    if start.leader_epoch is None:
        return TopicPartition(p.topic, p.partition, start.offset)
    return TopicPartition(p.topic, p.partition, start.offset, leader_epoch=start.leader_epoch)


def _ascending(records: list[Message]) -> list[list[Message]]:
    """Split a list of records wherever an offset is not greater than the previous one.

    Such an offset means that the base offset of a batch is corrupt in the broker's log.

    Args:
        records: Records of one partition, in arrival order.

    Returns:
        Non-empty lists with ascending offsets.
    """
    offsets = [*map(_offset, records)]
    cuts = [n for n, (a, b) in enumerate(itertools.pairwise(offsets), 1) if b <= a]
    return (
        [records[low:high] for low, high in itertools.pairwise((0, *cuts, len(records)))]
        if cuts
        else [records]
    )


def _place(message: Message) -> Partition:
    number = message.partition()
    return Partition(
        message.topic() or "", -1 if number is None else number
    )  # a fatal error may concern no partition
