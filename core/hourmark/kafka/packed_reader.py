"""Reader of committed records as columns, for callers that move many records without decoding them.

See `partitions_reader` for its guarantees. The reader uses its own librdkafka client in the
compiled module: confluent_kafka creates an object for each record, which costs more than
everything that librdkafka does.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from hourmark.config.groups import KafkaCluster
from hourmark.kafka.clients import Partition, consumer_settings
from hourmark.kafka.partitions_reader import (
    BATCH,
    QUEUE_KB,
    STALL_S,
    PartitionEvent,
    PartitionsReader,
    StartOffset,
    reader_settings,
)

NO_KEY: Final = 1
NO_VALUE: Final = 2
_INT64: Final = "q"
_NO_EPOCH: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class PackedRecords:
    """Consecutive records of one topic-partition, stored as columns.

    Attributes:
        offsets: The offset of each record, ascending.
        key_ends: int32 values in native byte order: 0, then the end of each key in `keys`.
        keys: The bytes of all keys.
        value_ends: int32 values in native byte order: 0, then the end of each value in `values`.
        values: The bytes of all values.
        nulls: One byte for each record: `NO_KEY` if it has no key, plus `NO_VALUE` if it has no
            value. Empty if all records have a key and a value.
    """

    offsets: Sequence[int] = ()
    key_ends: bytes = b"\0\0\0\0"
    keys: bytes = b""
    value_ends: bytes = b"\0\0\0\0"
    values: bytes = b""
    nulls: bytes = b""

    def __len__(self) -> int:
        return len(self.offsets)

    def first(self, count: int) -> PackedRecords:
        """Return a new object with the first records of this one.

        The new object shares the bytes of keys and values with this object.

        Args:
            count: Number of records, at most the number in this object.
        """
        ends = 4 * (count + 1)
        return PackedRecords(
            self.offsets[:count],
            self.key_ends[:ends],
            self.keys,
            self.value_ends[:ends],
            self.values,
            self.nulls[:count],
        )


class PackedReader(PartitionsReader[PackedRecords]):
    """A reader of committed records that returns them as `PackedRecords` columns.

    It reads offset ranges of topic-partitions without a consumer group; see `read`.

    Args:
        module: The compiled module, which must support this librdkafka (`supports_native_client`).
        cluster: The cluster.
        name: Name of the cluster in error messages, such as `edge`.
        batch: Maximum number of records per fetch.
        stall_s: A read fails after this number of seconds without a record.
        queue_kb: Size limit of librdkafka's fetch queue, in KiB.
        overrides: Additional librdkafka settings. Their names have `_` in place of `.`.
    """

    def __init__(
        self,
        module: ModuleType,
        cluster: KafkaCluster,
        name: str,
        *,
        batch: int = BATCH,
        stall_s: float = STALL_S,
        queue_kb: int = QUEUE_KB,
        **overrides: Any,
    ) -> None:
        super().__init__(name, batch=batch, stall_s=stall_s)
        self._module = module
        settings = consumer_settings(cluster, **(reader_settings(queue_kb) | overrides))
        try:
            self._reader = module.reader(
                tuple((key.encode(), _text(value).encode()) for key, value in settings.items())
            )
        except ValueError as error:  # the same exception as from confluent_kafka
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(error))) from error

    def _close_client(self) -> None:
        self._module.close(self._reader)

    def _assign(self, places: Mapping[Partition, StartOffset]) -> None:
        wanted = tuple(
            (
                p.topic.encode(),
                p.partition,
                s.offset,
                _NO_EPOCH if s.leader_epoch is None else s.leader_epoch,
            )
            for p, s in places.items()
        )
        _check(self._module.assign(self._reader, wanted))

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        self._module.leave(
            self._reader, tuple((p.topic.encode(), p.partition, 0, _NO_EPOCH) for p in partitions)
        )

    def _poll(
        self, count: int, wait_s: float
    ) -> tuple[list[tuple[Partition, int | None, PackedRecords]], list[PartitionEvent]]:
        taken = self._module.consume(self._reader, count, round(wait_s * 1000))
        if isinstance(taken, int):
            _check(taken)
        runs, events = taken
        return (
            [
                (
                    Partition(topic.decode(), number),
                    None if epoch < 0 else epoch,
                    PackedRecords(memoryview(offsets).cast(_INT64), *columns),
                )
                for topic, number, epoch, offsets, *columns in runs
            ],
            [
                PartitionEvent(
                    _error(code, text.decode(errors="replace")),
                    Partition(topic.decode(), number),
                    offset,
                )
                for code, topic, number, offset, text in events
            ],
        )

    def _records_below(self, records: PackedRecords, end: int) -> tuple[PackedRecords, int, int]:
        first, last = records.offsets[0], records.offsets[-1]
        return (
            records if last < end else records.first(bisect.bisect_left(records.offsets, end)),
            first,
            last,
        )

    def _count(self, records: PackedRecords) -> int:
        return len(records)

    def _high_watermark(self, partition: Partition) -> int:
        return int(self._module.high(self._reader, partition.topic.encode(), partition.partition))

    def _empty(self) -> PackedRecords:
        return PackedRecords()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(code: int, text: str) -> KafkaError:
    return KafkaError(code, text or None, code == KafkaError._FATAL)


def _check(code: int) -> None:
    if code:
        raise KafkaException(_error(code, ""))
