"""Comparison of records sent with records read back. All functions are pure: arrays to results.

Record numbers are those of `record_format.RecordFormat`: they start at 0 and follow the order of
sending. The arrays `sent_s` and `answered_s` are indexed by record number. They contain the times
at which a record was passed to the producer, and at which it was acknowledged or refused (NaN if
neither happened).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hourmark_evaluate.record_format import RecordPlacement
from hourmark_evaluate.results import RecordCounts, TimelinePoint

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass
class ConsumedRecords:
    """The sequence numbers of the test records that a consumer read, by topic and partition.

    Sequence numbers start at 0. `len()` returns the number of all messages read, including those
    without a valid number.

    Attributes:
        numbers: Maps each (topic, partition) to its record numbers in reading order. A record that
            was read twice occurs twice.
        foreign: Number of messages that do not belong to this run or were altered.
    """

    numbers: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    foreign: int = 0

    def add(self, topic: str, partition: int, numbers: Iterable[int | None]) -> None:
        """Append the record numbers of messages that were read from one partition.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            numbers: Record numbers in reading order; None for each message that is not a valid
                record of this run.
        """
        partition_numbers = self.numbers.setdefault((topic, partition), [])
        for number in numbers:
            if number is None:
                self.foreign += 1
            else:
                partition_numbers.append(number)

    def __len__(self) -> int:
        return sum(map(len, self.numbers.values())) + self.foreign


def count_records(
    place: str, placement: RecordPlacement, acknowledged: Flags, readings: ConsumedRecords
) -> RecordCounts:
    """Compare the records sent with those read back, and count lost, duplicated and other records.

    Sent and read records are compared by their sequence numbers, which start at 0.

    Args:
        place: Where the records were read, copied to the result: "edge" or "central" (the Kafka
            clusters), or "consumer" (a consumer group on the edge cluster).
        placement: The topic and partition to which each record was sent. A record that was read
            from any other partition counts as a phantom, a message that was never sent.
        acknowledged: Whether Kafka acknowledged each record, indexed by record number. Its length
            is the number of records sent.
        readings: The records that a consumer read at this place.

    Returns:
        The number of records that were sent, acknowledged, read, lost, duplicated, phantom, out of
        order, or read although not acknowledged.
    """
    sent = len(acknowledged)
    placed = {
        at: _in_assigned_partition(placement, at, np.array(numbers, dtype=np.int64), sent)
        for at, numbers in readings.numbers.items()
    }
    everything = np.concatenate([*placed.values(), np.empty(0, dtype=np.int64)])
    times = np.bincount(everything, minlength=sent)
    return RecordCounts(
        place=place,
        sent=sent,
        acknowledged=int(acknowledged.sum()),
        read=len(readings),
        lost=int((acknowledged & (times == 0)).sum()),
        doubled=int((times[times > 1] - 1).sum()),
        phantom=len(readings) - len(everything),
        disordered=sum(map(count_disordered, placed.values())),
        unacknowledged=int((~acknowledged & (times > 0)).sum()),
    )


def _in_assigned_partition(
    placement: RecordPlacement, at: tuple[str, int], numbers: Numbers, sent: int
) -> Numbers:
    inside = numbers[(numbers >= 0) & (numbers < sent)]
    topics, partitions = placement.assign_many(inside)
    where = placement.topics.index(at[0]) if at[0] in placement.topics else -1
    faithful: Numbers = inside[(topics == where) & (partitions == at[1])]
    return faithful


def count_disordered(numbers: Numbers) -> int:
    """Count the records of one partition that a consumer read out of order.

    A record is out of order if it was first read after a record with a higher number.

    Args:
        numbers: Record numbers of one partition in reading order. Repetitions are ignored.

    Returns:
        The number of such records; 0 if all records are in order.
    """
    _, first = np.unique(numbers, return_index=True)
    in_order = numbers[np.sort(first)]
    return int((in_order < np.maximum.accumulate(in_order)).sum()) if len(in_order) else 0


def longest_wait_seconds(
    sent_s: Floats, answered_s: Floats, began_s: float, healed_s: float
) -> float:
    """Return the longest time that Kafka took to answer a record in flight during an interval.

    A record is in flight from the time it is sent until it is answered, that is, acknowledged or
    refused.

    Args:
        sent_s: Send time of each record in seconds, indexed by record number.
        answered_s: Answer time of each record in seconds; NaN if it was never answered.
        began_s: Start of the interval, in seconds.
        healed_s: End of the interval, in seconds.

    Returns:
        Seconds; 0.0 if no record in flight was answered. Records without an answer are ignored.
    """
    under_way = (sent_s <= healed_s) & (answered_s >= began_s)
    waits = (answered_s - sent_s)[under_way]
    return float(waits.max()) if len(waits) else 0.0


def recovery_seconds(
    sent_s: Floats, answered_s: Floats, acknowledged: Flags, healed_s: float, gave_up_s: float
) -> float | None:
    """Return how many seconds a load took to recover after the end of a fault.

    The load has recovered when all records sent before the end of the fault are answered, that is,
    acknowledged or refused, and at least one record sent since then is acknowledged.

    Args:
        sent_s: Send time of each record in seconds, indexed by record number.
        answered_s: Answer time of each record in seconds; NaN if it was never answered.
        acknowledged: Whether each record was acknowledged.
        healed_s: End of the fault, in seconds.
        gave_up_s: End of the observation, in seconds.

    Returns:
        Seconds from `healed_s` until the last of the earlier records was answered, at least 0.0.
        None if the load did not recover by `gave_up_s`.
    """
    before = answered_s[sent_s < healed_s]
    answered = answered_s <= gave_up_s
    if (
        not (before <= gave_up_s).all()
        or not (acknowledged & answered & (sent_s >= healed_s)).any()
    ):
        return None
    return max(0.0, float(before.max(initial=healed_s)) - healed_s)


def count_per_second(
    sent_s: Floats, answered_s: Floats, acknowledged: Flags
) -> tuple[TimelinePoint, ...]:
    """Count the records that were sent and acknowledged in each second of a load.

    Args:
        sent_s: Send time of each record, in seconds since the start of the load, indexed by record
            number.
        answered_s: Time at which each record was acknowledged or refused; NaN if neither happened.
        acknowledged: Whether each record was acknowledged.

    Returns:
        One point per second, from 0 to the last event; empty if no record was sent.
    """
    answered_s = answered_s[acknowledged]
    if not len(sent_s):
        return ()
    seconds = int(max(sent_s.max(), answered_s.max(initial=0.0))) + 1
    edges = np.arange(seconds + 1)
    sent, answered = (np.histogram(times, edges)[0] for times in (sent_s, answered_s))
    return tuple(
        TimelinePoint(at_s=n, sent=int(sent[n]), acknowledged=int(answered[n]))
        for n in range(seconds)
    )
