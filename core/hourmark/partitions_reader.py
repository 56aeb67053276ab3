"""Reads [start, end) of topic-partitions, only what is committed, outside of any group: the one way to read a topic here.

Transaction markers and aborted records leave gaps that no reader is given. So a partition is read once a record at or past its
end comes, or once the end of its log is told and is not before it. Memory is bounded by `batch` records and by librdkafka's
queue, whatever the length of a span. How much to read, and what an offset means that the log no longer has, is the caller's.

Records come as confluent_kafka's messages (`committed_reader`), or as columns (`packed_reader`).
"""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from hourmark.ending import end_in_time
from hourmark.errors import Unavailable
from hourmark.kafka import Partition

BATCH: Final = 2_000  # 500 or 50,000 cost half as much again: the client's objects stay in the processor's cache
STALL_S: Final = 60.0
_POLL_S: Final = 0.05  # markers are counted on and never come, so most spans end in one such wait
QUEUE_KB: Final = 32 * 1024  # librdkafka's own default is 64 MiB for each consumer
_GONE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)

RecordsT = TypeVar("RecordsT")  # of one partition, in its order


class OutOfRange(Unavailable):
    """A broker refused an offset: its log has it no longer, or not yet again."""

    def __init__(self, message: str, partition: Partition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


@dataclasses.dataclass(frozen=True, slots=True)
class Run(Generic[RecordsT]):
    """The next committed records of a partition, all of them below `next_offset`; none where only a gap was passed."""

    partition: Partition
    records: RecordsT
    next_offset: int


class Told(NamedTuple):
    """What is told in a record's place: a partition's end, or an error. Of no partition: topic "", -1."""

    error: KafkaError
    partition: Partition
    offset: int


def reading_settings(queue_kb: int) -> dict[str, Any]:
    """librdkafka's, with `_` for `.`: of a consumer without a group that hears of each partition's end."""
    return {
        "group_id": "hourmark-read-only",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "enable_partition_eof": True,
        "auto_offset_reset": "error",
        "fetch_wait_max_ms": 10,  # the end of a partition is told one empty fetch after its last record
        "fetch_queue_backoff_ms": 10,  # of a second, the default, a reader that found the queue full idles half
        "queued_max_messages_kbytes": queue_kb,
    }


class PartitionsReader(abc.ABC, Generic[RecordsT]):
    """One consumer, for one `read` after the other. Not thread-safe. Its client's errors are KafkaException."""

    def __init__(self, name: str, *, batch: int, stall_s: float) -> None:
        self._name = name
        self._batch = batch
        self._stall_s = stall_s
        self._behind: dict[Partition, tuple[int, int]] = {}
        self._closed = False

    def read(self, spans: Mapping[Partition, tuple[int, int]]) -> Generator[list[Run[RecordsT]], None, None]:
        """All committed records with start ≤ offset < end of each partition, in its order, as they come.

        OutOfRange for an offset that the log does not have; Unavailable, naming a partition, for an error that does not pass by
        itself, and after `stall_s` in which nothing came of any.
        """
        self._behind = {p: (start, end) for p, (start, end) in spans.items() if start < end}
        if not self._behind:
            return
        try:
            self._assign({p: start for p, (start, _) in self._behind.items()})
            moved_s = time.monotonic()
            while self._behind:
                # No more than can come: a batch is waited for until it is full. Each partition's end is told as one more.
                wanted = sum(end - at for at, end in self._behind.values()) + len(self._behind)
                runs = list(self._runs(min(self._batch, wanted)))
                if runs:
                    yield runs
                    moved_s = time.monotonic()  # whoever takes long with them is no stall
                elif time.monotonic() - moved_s > self._stall_s:
                    raise self._stalled()
        except KafkaException as error:
            raise Unavailable(f"reading {', '.join(map(str, spans))} of the {self._name} cluster failed: {error}") from error
        finally:
            if not self._closed:
                self._assign({})

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Read no more of these partitions, although their ends are not reached."""
        left = [p for p in partitions if self._behind.pop(p, None) is not None]
        if left and self._behind:
            self._unassign(left)

    def close(self) -> None:
        """Leave the cluster. May be called again."""
        if not self._closed:
            self._closed = True
            end_in_time(self._end, f"a reader of the {self._name} cluster")

    @abc.abstractmethod
    def _end(self) -> None:
        """End the client, however long that takes."""

    @abc.abstractmethod
    def _assign(self, places: Mapping[Partition, int]) -> None:
        """Read these from these offsets on, and no others."""

    @abc.abstractmethod
    def _unassign(self, partitions: Iterable[Partition]) -> None:
        """Read no more of these, which are read."""

    @abc.abstractmethod
    def _take(self, count: int, wait_s: float) -> tuple[list[tuple[Partition, RecordsT]], list[Told]]:
        """So many at most, records and what was told: neighbours of one partition together, none without a record."""

    @abc.abstractmethod
    def _part(self, records: RecordsT, end: int) -> tuple[RecordsT, int]:
        """Those below the offset `end`, and the last of all their offsets."""

    @abc.abstractmethod
    def _nothing(self) -> RecordsT:
        """No records."""

    def _runs(self, count: int) -> Iterator[Run[RecordsT]]:
        """What came says of partitions that are read.

        Records come first: the end of a partition is told after its last record, often among the same messages.
        """
        taken, told = self._take(count, _POLL_S)
        done = []
        for partition, records in taken:
            if partition not in self._behind:
                continue
            _, end = self._behind[partition]
            below, last = self._part(records, end)
            after = min(last + 1, end)
            self._behind[partition] = (after, end)
            yield Run(partition, below, after)
            if after >= end:
                done.append(partition)
        self.leave(done)
        for each in told:
            yield from self._heard(each)

    def _heard(self, told: Told) -> Iterator[Run[RecordsT]]:
        error, partition, _ = told
        at, end = self._behind.get(partition, (None, 0))
        if error.code() == KafkaError._PARTITION_EOF:
            reached = min(told.offset, end)
            if at is not None and reached > at:
                self._behind[partition] = (reached, end)
                yield Run(partition, self._nothing(), reached)
            if at is not None and reached >= end:
                del self._behind[partition]
        elif at is not None and error.code() in _GONE:
            raise OutOfRange(f"{partition} of the {self._name} cluster has no offset {at}: {error}", partition, at)
        elif error.fatal() or (at is not None and not error.retriable() and error.code() != KafkaError._TRANSPORT):
            what = partition if partition.topic else "records"
            raise Unavailable(f"reading {what} of the {self._name} cluster failed: {error}")

    def _stalled(self) -> Unavailable:
        partition, (at, end) = next(iter(self._behind.items()))
        return Unavailable(
            f"topic {partition.topic} partition {partition.partition} of the {self._name} cluster: nothing came after offset "
            f"{at} (of {end}) for {self._stall_s:g} s; is the cluster healthy? `hourmark status` shows the local stack"
        )
