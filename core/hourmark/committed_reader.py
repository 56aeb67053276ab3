"""Reads [start, end) of topic-partitions, only what is committed, outside of any group: the one way to read a topic here.

Transaction markers and aborted records leave gaps that no reader is given. So a partition is read once a record at or past its
end comes, or once the end of its log is told and is not before it. Memory is bounded by `batch` records and by librdkafka's
queue, whatever the length of a span. How much to read, and what an offset means that the log no longer has, is the caller's.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import operator
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from hourmark.config_groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import Partition, client_settings, quiet_logger

BATCH: Final = 2_000  # 500 or 50,000 cost half as much again: the client's objects stay in the processor's cache
STALL_S: Final = 60.0
_POLL_S: Final = 0.05  # markers are counted on and never come, so most spans end in one such wait
_QUEUE_KB: Final = 32 * 1024  # librdkafka's own default is 64 MiB for each consumer
_GONE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
_offset: Final = operator.methodcaller("offset")


class OutOfRange(Unavailable):
    """A broker refused an offset: its log has it no longer, or not yet again."""

    def __init__(self, message: str, partition: Partition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The next committed records of a partition, all of them below `next_offset`; none where only a gap was passed."""

    partition: Partition
    records: list[Message]
    next_offset: int


class CommittedReader:
    """One consumer, for one `read` after the other. `more` are settings of librdkafka, with `_` for `.`. Not thread-safe."""

    def __init__(
        self,
        cluster: KafkaCluster,
        name: str,
        *,
        batch: int = BATCH,
        stall_s: float = STALL_S,
        queue_kb: int = _QUEUE_KB,
        **more: Any,
    ) -> None:
        self._name = name
        self._batch = batch
        self._stall_s = stall_s
        self._behind: dict[Partition, tuple[int, int]] = {}
        settings = {
            "group_id": "hourmark-read-only",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "enable_partition_eof": True,
            "auto_offset_reset": "error",
            "fetch_wait_max_ms": 10,  # the end of a partition is told one empty fetch after its last record
            "fetch_queue_backoff_ms": 10,  # of a second, the default, a reader that found the queue full idles half
            "queued_max_messages_kbytes": queue_kb,
        }
        self._consumer = Consumer(client_settings(cluster, **(settings | more)), logger=quiet_logger())

    def read(self, spans: Mapping[Partition, tuple[int, int]]) -> Generator[list[Run], None, None]:
        """All committed records with start ≤ offset < end of each partition, in its order, as they come.

        OutOfRange for an offset that the log does not have; Unavailable, naming a partition, for an error that does not pass by
        itself, and after `stall_s` in which nothing came of any.
        """
        self._behind = {p: (start, end) for p, (start, end) in spans.items() if start < end}
        if not self._behind:
            return
        try:
            self._consumer.assign([TopicPartition(p.topic, p.partition, start) for p, (start, _) in self._behind.items()])
            moved_s = time.monotonic()
            while self._behind:
                # No more than can come: a batch is waited for until it is full. Each partition's end is told as one more.
                wanted = sum(end - at for at, end in self._behind.values()) + len(self._behind)
                runs = list(self._runs(self._consumer.consume(min(self._batch, wanted), _POLL_S)))
                if runs:
                    moved_s = time.monotonic()
                    yield runs
                elif time.monotonic() - moved_s > self._stall_s:
                    raise self._stalled()
        except KafkaException as error:
            raise Unavailable(f"reading {', '.join(map(str, spans))} of the {self._name} cluster failed: {error}") from error
        finally:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._consumer.unassign()

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Read no more of these partitions, although their ends are not reached."""
        left = [p for p in partitions if self._behind.pop(p, None) is not None]
        if left and self._behind:
            self._consumer.incremental_unassign([TopicPartition(p.topic, p.partition) for p in left])

    def close(self) -> None:
        """Leave the cluster."""
        with contextlib.suppress(KafkaException):  # it is not used again, and other errors have been told
            self._consumer.close()

    def _runs(self, messages: list[Message]) -> Iterator[Run]:
        """What the messages say of partitions that are read.

        Records come first: the end of a partition is told after its last record, often among the same messages.
        """
        told = [(m, error) for m in messages if (error := m.error()) is not None]
        records = [m for m in messages if m.error() is None] if told else messages
        done, high = [], 0
        places: Any = zip([m.topic() for m in records], [m.partition() for m in records], strict=True)
        for (topic, number), run in itertools.groupby(places):
            low, high = high, high + len(list(run))
            partition = Partition(topic, number)
            if partition not in self._behind:
                continue
            after, end = _offset(records[high - 1]) + 1, self._behind[partition][1]
            cut = high if after <= end else bisect.bisect_left(records, end, low, high, key=_offset)
            self._behind[partition] = (min(after, end), end)
            yield Run(partition, records[low:cut], min(after, end))
            if after >= end:
                done.append(partition)
        self.leave(done)
        for message, error in told:
            yield from self._told(message, error)

    def _told(self, message: Message, error: KafkaError) -> Iterator[Run]:
        topic, number = message.topic(), message.partition()
        partition = Partition(topic or "", -1 if number is None else number)  # a fatal error may be of none
        at, end = self._behind.get(partition, (None, 0))
        if error.code() == KafkaError._PARTITION_EOF:
            reached = min(_offset(message), end)
            if at is not None and reached > at:
                self._behind[partition] = (reached, end)
                yield Run(partition, [], reached)
            if at is not None and reached >= end:
                del self._behind[partition]
        elif at is not None and error.code() in _GONE:
            raise OutOfRange(f"{partition} of the {self._name} cluster has no offset {at}: {error}", partition, at)
        elif error.fatal() or (at is not None and not error.retriable() and error.code() != KafkaError._TRANSPORT):
            raise Unavailable(f"reading {partition if topic else 'records'} of the {self._name} cluster failed: {error}")

    def _stalled(self) -> Unavailable:
        partition, (at, end) = next(iter(self._behind.items()))
        return Unavailable(
            f"topic {partition.topic} partition {partition.partition} of the {self._name} cluster: nothing came after offset "
            f"{at} (of {end}) for {self._stall_s:g} s; is the cluster healthy? `hourmark status` shows the local stack"
        )
