"""What checking and rebuilding a ledger ask of the central cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hourmark.config import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import Partition, TopicInfo, client_settings, quiet_logger

_AT_ONCE: Final = 10_000
_IDLE_S: Final = 30.0  # without a record or an end: the cluster is in trouble


class Central(Protocol):
    """`hourmark.kafka.Cluster`, as far as it is asked here."""

    def cluster_id(self) -> str:
        """The id the cluster was formatted with."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of `names` that exist."""
        ...

    def starts(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Log start offsets."""
        ...

    def ends(self, partitions: Sequence[Partition], *, committed: bool = True) -> Mapping[Partition, int]:
        """Last stable offsets, or high watermarks."""
        ...


# Values of the committed records of a partition from one offset up to (not including) another.
Values = Callable[[Partition, int, int], Iterable[bytes]]


def values_of(settings: KafkaCluster) -> Values:
    """Reads them, in the order of the partition. Unavailable, naming the partition, where the cluster does not answer."""

    def read(partition: Partition, start: int, end: int) -> Iterator[bytes]:
        consumer = Consumer(
            client_settings(
                settings,
                group_id="hourmark-read-only",
                enable_auto_commit=False,
                isolation_level="read_committed",
                enable_partition_eof=True,
                auto_offset_reset="error",
            ),
            logger=quiet_logger(),
        )
        try:
            consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
            yield from _until(consumer, partition, start, end)
        finally:
            consumer.close()

    return read


def _until(consumer: Consumer, partition: Partition, start: int, end: int) -> Iterator[bytes]:
    reached, give_up = start, time.monotonic() + _IDLE_S
    while reached < end:
        for message in consumer.consume(num_messages=_AT_ONCE, timeout=0.1):
            offset, error, value = message.offset(), message.error(), message.value()
            give_up = time.monotonic() + _IDLE_S
            if error is None:
                assert offset is not None, "a record of an assigned partition"
                reached = offset + 1
                if offset < end and value is not None:
                    yield value
            elif error.code() == KafkaError._PARTITION_EOF:
                reached = max(reached, end)  # whatever is left below the end is a transaction's marker
            elif not error.retriable():
                raise Unavailable(f"reading {partition} from offset {reached} failed: {error}; is the central cluster healthy?")
        if time.monotonic() > give_up:
            raise Unavailable(
                f"{partition} was not read from offset {reached} to {end}: nothing came for {_IDLE_S:g} s; is the central "
                "cluster healthy?"
            )
