"""Observation of a mirror from outside: committed positions compared with records on the target."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import MirrorPositions
from hourmark.kafka.topic_names import central_topic
from hourmark_evaluate.clients.cluster import EvaluatedCluster
from hourmark_evaluate.clients.load_producer import LoadProducer
from hourmark_evaluate.clients.readers import FirstReadTimes, IncrementalReader
from hourmark_evaluate.record_format import RecordFormat, RecordPlacement
from hourmark_evaluate.results import MirrorPositionResult

Offsets = Mapping[Partition, int]
# End offsets by partition -> number of different records read below them, by partition.
CountBelow = Callable[[Offsets], Mapping[Partition, int]]


@dataclass
class _Sample:
    at_s: float
    claimed: Mapping[Partition, int]
    ends: Offsets
    waiting: int
    is_early: bool  # some claimed records are not readable by consumers yet


class PositionChecker:
    """A checker that compares the offsets that MirrorMaker 2 committed with the copied records.

    MirrorMaker 2, called the mirror, commits for each source partition the offset up to which it
    has copied records to the target cluster. The caller takes samples of these offsets. A sample is
    evaluated only after the transactions that were open at its time have completed, because the
    mirror may commit an offset shortly before all records of the same transaction are readable.

    Attributes:
        result: The result of all samples evaluated so far.
    """

    def __init__(self) -> None:
        self.result = MirrorPositionResult(samples=0, false_records=0, waiting_max=0, early_max=0)
        self._pending = deque[_Sample]()

    def add_sample(
        self,
        now_s: float,
        claimed: Mapping[Partition, int],
        ends: Offsets,
        readable: Mapping[Partition, int],
        waiting: int,
    ) -> None:
        """Store one sample of the mirror's committed offsets, to be evaluated later.

        Call `evaluate_completed` or `evaluate_remaining` to evaluate it. The keys of all mappings
        are partitions of the target cluster, to which the mirror copies.

        Args:
            now_s: Time of the sample, in seconds.
            claimed: Number of records that the mirror has committed as copied.
            ends: High watermarks of the target, read immediately after `claimed`.
            readable: Number of records that consumers of the target could read at that time.
            waiting: Number of records that were sent but not copied yet.
        """
        early = count_missing(claimed, readable)
        self.result = dataclasses.replace(
            self.result, early_max=max(self.result.early_max or 0, early)
        )
        self._pending.append(_Sample(now_s, claimed, ends, waiting, early > 0))

    def evaluate_completed(
        self, now_s: float, next_offsets: Offsets, count_below: CountBelow
    ) -> None:
        """Evaluate the samples whose transactions have completed, and update `result`.

        The transactions of a sample have completed when the target has been read up to all high
        watermarks that were passed to `add_sample`.

        Args:
            now_s: Current time, in seconds, on the clock of `add_sample`.
            next_offsets: Next offset to read from each partition of the target; all committed
                records below it have been read.
            count_below: Function that takes an offset for each partition and returns the number of
                distinct records read below it.
        """
        for sample in self._pending:
            if sample.is_early and not count_missing(sample.claimed, count_below(sample.ends)):
                sample.is_early = False
                self.result = dataclasses.replace(
                    self.result, early_s=max(self.result.early_s, round(now_s - sample.at_s, 1))
                )
        while self._pending and all(
            next_offsets.get(p, 0) >= end for p, end in self._pending[0].ends.items()
        ):
            self._evaluate_oldest(count_below)

    def evaluate_remaining(self, count_below: CountBelow) -> None:
        """Evaluate all remaining samples, even if their transactions have not completed.

        Records that the mirror committed as copied, but that have not been read by now, count as
        missing.

        Args:
            count_below: Function that takes an offset for each partition and returns the number of
                distinct records read below it.
        """
        while self._pending:
            self._evaluate_oldest(count_below)

    def _evaluate_oldest(self, count_below: CountBelow) -> None:
        sample = self._pending.popleft()
        self.result = merge_sample(
            self.result, sample.claimed, count_below(sample.ends), sample.waiting
        )


class MirroredLoadObserver:
    """An observer that checks under load whether MirrorMaker 2 copies what it commits as copied.

    MirrorMaker 2, called the mirror, copies the topics of the load from the edge cluster to the
    central cluster, the target. Call `poll` repeatedly while records are copied, then `finish` for
    the result, then `close`. Not thread-safe.

    Args:
        central: The central cluster, to which the records are copied.
        alias: The mirror's alias of the edge cluster. The name of each copied topic begins with it.
        record_format: Format of the test records.
        load: The producer of the test records on the edge cluster.

    Attributes:
        placement: Topics and partitions of the copies on the central cluster.
        first_read_times: Time at which each record was first read from the central cluster.
        reader: Consumer of the copied topics.
        error: Error message of the last `poll`; "" if it succeeded.
    """

    def __init__(
        self, central: EvaluatedCluster, alias: str, record_format: RecordFormat, load: LoadProducer
    ) -> None:
        self.placement = RecordPlacement(
            tuple(central_topic(t, alias) for t in load.placement.topics),
            load.placement.shares,
            load.placement.partitions,
        )
        self.first_read_times = FirstReadTimes()
        self._checker = PositionChecker()
        self._alias, self._load = alias, load
        self.reader = IncrementalReader(
            central.cluster, record_format, self.placement.topics, self.placement.partitions
        )
        self._positions = MirrorPositions(central.settings, alias)
        self.error = ""

    def poll(self) -> None:
        """Read the mirror's committed offsets, and compare them with the records on the target.

        Records that are below the committed offsets, but not on the target cluster, are counted in
        the result of `finish`. If a cluster does not answer, the error is stored in `error` and
        nothing is compared.
        """
        try:
            claimed = self._positions.refresh()
            sent, ends = self._load.sent, self.reader.high_watermarks()
            self.reader.poll()
        except Unavailable as error:
            self.error = str(error)
            return  # nothing can be compared now; the next call continues reading
        self.error = ""
        self.first_read_times.record(self.reader.last_numbers, self._load.now_s)
        readable = self.reader.count_below(self.reader.next_offsets)
        now_s = self._load.now_s
        self._checker.add_sample(
            now_s, self._claimed_by_target(claimed), ends, readable, sent - self.copied_count
        )
        self._checker.evaluate_completed(now_s, self.reader.next_offsets, self.reader.count_below)

    def finish(self) -> MirrorPositionResult:
        """Evaluate all pending samples and return the overall result.

        Call this method once, after the last `poll`.

        Returns:
            The result of comparing the mirror's committed offsets with the records on the target
            cluster, over all calls of `poll`.
        """
        self._checker.evaluate_remaining(self.reader.count_below)
        return self._checker.result

    def has_copied_below(self, number: int) -> bool:
        """Return whether the mirror has copied all records of the load below a given number.

        A record counts as copied once `poll` has read it from the target cluster.

        Args:
            number: Record number, exclusive.
        """
        return self.first_read_times.first_missing >= number

    @property
    def copied_count(self) -> int:
        """Number of distinct records read from the target cluster so far."""
        return self.reader.distinct_count

    def close(self) -> None:
        """Close the Kafka consumers that read the copies and the mirror's positions."""
        self.reader.close()
        self._positions.close()

    def _claimed_by_target(self, claimed: Mapping[Partition, int]) -> dict[Partition, int]:
        # The topics of the load are new, so each offset is one record.
        return {
            Partition(central_topic(p.topic, self._alias), p.partition): offset
            for p, offset in claimed.items()
            if p.topic in self._load.placement.topics
        }


def merge_sample(
    before: MirrorPositionResult,
    claimed: Mapping[Partition, int],
    present: Mapping[Partition, int],
    waiting: int,
) -> MirrorPositionResult:
    """Add one sample of a mirror's committed offsets to the result of earlier samples.

    Args:
        before: Result of the earlier samples. It is not modified.
        claimed: Number of records that the mirror committed as copied, by partition. If all are 0,
            `samples` does not increase.
        present: Number of records on the target cluster, by partition.
        waiting: Number of records sent but not copied yet.

    Returns:
        A copy of `before` with updated `samples`, `false_records` and `waiting_max`.
    """
    return dataclasses.replace(
        before,
        samples=before.samples + any(claimed.values()),
        false_records=max(before.false_records, count_missing(claimed, present)),
        waiting_max=max(before.waiting_max, waiting),
    )


def count_missing(claimed: Mapping[Partition, int], present: Mapping[Partition, int]) -> int:
    """Return the number of records that a mirror committed as copied, but that were not found.

    Args:
        claimed: Number of records committed as copied, by partition.
        present: Number of records found, by partition; 0 for an absent partition.
    """
    return sum(max(0, count - present.get(p, 0)) for p, count in claimed.items())
