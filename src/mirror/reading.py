"""Reads a span of one topic-partition's committed records, in bounded memory, each as a digest of its key and value."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from hourmark.errors import Unavailable
from hourmark.kafka import Cluster, Partition, consumed, read_only_consumer

STALL_TIMEOUT_S: Final = 60.0
QUEUE_KB: Final = 16 * 1024  # librdkafka's own default is 64 MiB for each consumer
BATCH: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What is compared of a record: its content as 16 bytes of BLAKE2b over length-prefixed key and value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    digest: bytes


def digest_of(key: bytes | None, value: bytes | None) -> bytes:
    """Differs wherever key or value differ, also between absent and empty."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()


class SpanReader:
    """A stock consumer (read_committed, no group) that reads one span after the other. Close it at the end."""

    def __init__(self, cluster: Cluster, max_message_bytes: int) -> None:
        self._name = cluster.name
        self._consumer = read_only_consumer(
            cluster.settings,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=max_message_bytes,
            queued_max_messages_kbytes=QUEUE_KB,
        )

    def read(self, partition: Partition, start: int, end: int) -> Iterator[Record]:
        """Records with start ≤ offset < end. Raises Unavailable when no progress is made for STALL_TIMEOUT_S."""
        if start >= end:
            return
        self._consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
        position, moved_s = start, time.monotonic()
        try:
            while position < end:
                messages = self._consumer.consume(BATCH, timeout=0.1)
                if messages:
                    moved_s = time.monotonic()
                elif time.monotonic() - moved_s > STALL_TIMEOUT_S:
                    raise Unavailable(f"{partition} of the {self._name} cluster: no record after {position} (end {end})")
                for _, after, record in consumed(messages):
                    position = max(position, after)
                    if record is not None and after <= end:
                        key = record.key()
                        yield Record(after - 1, record.timestamp()[1], key, digest_of(key, record.value()))
        except KafkaException as error:
            raise Unavailable(f"reading {partition} of the {self._name} cluster failed: {error}") from error
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()
