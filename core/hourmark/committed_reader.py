"""Committed records as confluent_kafka's messages: for whoever looks at each of them. See `partitions_reader`."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from hourmark.config_groups import KafkaCluster
from hourmark.kafka import Partition, client_settings, quiet_logger
from hourmark.partitions_reader import BATCH, QUEUE_KB, STALL_S, PartitionsReader, Run, Told, reading_settings

MessageRun = Run[list[Message]]
_offset: Final = operator.methodcaller("offset")


class CommittedReader(PartitionsReader[list[Message]]):
    """`more` are settings of librdkafka, with `_` for `.`."""

    def __init__(
        self, cluster: KafkaCluster, name: str, *, batch: int = BATCH, stall_s: float = STALL_S, queue_kb: int = QUEUE_KB,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, batch=batch, stall_s=stall_s)
        self._consumer = Consumer(client_settings(cluster, **(reading_settings(queue_kb) | more)), logger=quiet_logger())

    def _end(self) -> None:
        with contextlib.suppress(KafkaException):  # it is not used again, and other errors have been told
            self._consumer.close()

    def _assign(self, places: Mapping[Partition, int]) -> None:
        if places:
            self._consumer.assign([TopicPartition(p.topic, p.partition, start) for p, start in places.items()])
        else:
            self._consumer.unassign()

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        self._consumer.incremental_unassign([TopicPartition(p.topic, p.partition) for p in partitions])

    def _take(self, count: int, wait_s: float) -> tuple[list[tuple[Partition, list[Message]]], list[Told]]:
        messages = self._consumer.consume(count, wait_s)
        told = [Told(error, _place(m), _offset(m)) for m in messages if (error := m.error()) is not None]
        records = [m for m in messages if m.error() is None] if told else messages
        high, taken = 0, []
        places: Any = zip([m.topic() for m in records], [m.partition() for m in records], strict=True)
        for place, run in itertools.groupby(places):
            low, high = high, high + len(list(run))
            taken.append((Partition(*place), records[low:high]))
        return taken, told

    def _part(self, records: list[Message], end: int) -> tuple[list[Message], int]:
        last: int = _offset(records[-1])
        return records if last < end else records[: bisect.bisect_left(records, end, key=_offset)], last

    def _nothing(self) -> list[Message]:
        return []


def _place(message: Message) -> Partition:
    number = message.partition()
    return Partition(message.topic() or "", -1 if number is None else number)  # a fatal error may be of none
