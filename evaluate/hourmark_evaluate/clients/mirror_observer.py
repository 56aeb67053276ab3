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
from hourmark_evaluate.results import PositionClaims

Ends = Mapping[Partition, int]
HeldBelow = Callable[
    [Ends], Mapping[Partition, int]
]  # end offsets -> number of different records read below them


@dataclass
class _Sample:
    at_s: float
    claimed: Ends
    ends: Ends
    waiting: int
    early: bool  # some claimed records are not readable by consumers yet


class PositionChecker:
    """Comparison of a mirror's committed positions with the records in the target's logs.

    A position may be committed shortly before the marker of its transaction reaches another
    partition. A sample is therefore evaluated only after the transactions open at its time have
    completed.

    Attributes:
        claims: The result of all samples evaluated so far.
    """

    def __init__(self) -> None:
        self.claims = PositionClaims(samples=0, false_records=0, waiting_max=0, early_max=0)
        self._asked = deque[_Sample]()

    def ask(self, now_s: float, claimed: Ends, ends: Ends, given: Ends, waiting: int) -> None:
        """Add one sample, which `tell` or `settle` evaluates later.

        All mappings are by partition of the target cluster. Each record occupies one offset of the
        source.

        Args:
            now_s: Time of the sample, in seconds.
            claimed: Number of records that the mirror has committed as copied.
            ends: High watermarks read immediately afterwards.
            given: Number of records that consumers could read by then.
            waiting: Number of records that were sent but not copied yet.
        """
        early = count_missing(claimed, given)
        self.claims = dataclasses.replace(
            self.claims, early_max=max(self.claims.early_max or 0, early)
        )
        self._asked.append(_Sample(now_s, claimed, ends, waiting, early > 0))

    def tell(self, now_s: float, read_to: Ends, held_below: HeldBelow) -> None:
        """Evaluate those samples whose transactions have completed.

        Args:
            now_s: Current time, in seconds, on the clock of `ask`.
            read_to: By partition of the target, the offset up to which committed records were read.
            held_below: Function that returns the number of different records read below given
                offsets, by partition.
        """
        for one in self._asked:
            if one.early and not count_missing(one.claimed, held_below(one.ends)):
                one.early = False
                self.claims = dataclasses.replace(
                    self.claims, early_s=max(self.claims.early_s, round(now_s - one.at_s, 1))
                )
        while self._asked and all(
            read_to.get(p, 0) >= end for p, end in self._asked[0].ends.items()
        ):
            self._tell(held_below)

    def settle(self, held_below: HeldBelow) -> None:
        """Evaluate all remaining samples; records that were not read by now count as missing.

        Args:
            held_below: Function that returns the number of different records read below given
                offsets, by partition.
        """
        while self._asked:
            self._tell(held_below)

    def _tell(self, held_below: HeldBelow) -> None:
        one = self._asked.popleft()
        self.claims = add_sample(self.claims, one.claimed, held_below(one.ends), one.waiting)


class MirroredLoadObserver:
    """The observer of a mirror that copies the topics of one load to the central cluster.

    Not thread-safe. Call `look` repeatedly, then `claims`, then `close`.

    Args:
        central: The central cluster, with the copies of the load's topics.
        alias: The mirror's alias of the edge cluster, which prefixes the names of copies.
        form: Format of the records.
        load: The load whose topics are copied.

    Attributes:
        plan: Topics and partitions of the copies on the central cluster.
        copied: When each record was first read from the central cluster.
        follower: The reader of the copies.
        trouble: Why the last `look` failed; "" if it succeeded.
    """

    def __init__(
        self, central: EvaluatedCluster, alias: str, form: RecordFormat, load: LoadProducer
    ) -> None:
        self.plan = RecordPlacement(
            tuple(central_topic(t, alias) for t in load.plan.topics),
            load.plan.shares,
            load.plan.partitions,
        )
        self.copied = FirstReadTimes()
        self._account = PositionChecker()
        self._alias, self._load = alias, load
        self.follower = IncrementalReader(
            central.cluster, form, self.plan.topics, self.plan.partitions
        )
        self._positions = MirrorPositions(central.settings, alias)
        self.trouble = ""

    def look(self) -> None:
        """Read the mirror's committed positions and then the target cluster, and compare them.

        The positions are read first, so the records they cover must be in the target's logs
        afterwards. If a cluster does not answer, the error is stored in `trouble` and nothing is
        compared.
        """
        try:
            claimed = self._positions.refresh()
            sent, ends = self._load.sent, self.follower.ends()
            self.follower.poll()
        except Unavailable as error:
            self.trouble = str(error)
            return  # nothing can be compared now; the next call continues reading
        self.trouble = ""
        self.copied.note(self.follower.new, self._load.now_s)
        given = self.follower.held_below(self.follower.read_to)
        now_s = self._load.now_s
        self._account.ask(now_s, self._expected(claimed), ends, given, sent - self.arrived)
        self._account.tell(now_s, self.follower.read_to, self.follower.held_below)

    def claims(self) -> PositionClaims:
        """Evaluate the remaining samples and return the result of all of them."""
        self._account.settle(self.follower.held_below)
        return self._account.claims

    def through(self, number: int) -> bool:
        """Return whether the target cluster has all records with a lower number than this."""
        return self.copied.first_missing >= number

    @property
    def arrived(self) -> int:
        """Return the number of records read from the target so far, each counted once.

        A mirror may copy some records more than once.
        """
        return self.follower.distinct

    def close(self) -> None:
        """Close the consumers."""
        self.follower.close()
        self._positions.close()

    def _expected(self, claimed: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return, by partition of the target, how many records the mirror has committed.

        The topics are new, so each source offset is one record.
        """
        return {
            Partition(central_topic(p.topic, self._alias), p.partition): offset
            for p, offset in claimed.items()
            if p.topic in self._load.plan.topics
        }


def add_sample(
    before: PositionClaims,
    claimed: Mapping[Partition, int],
    held: Mapping[Partition, int],
    waiting: int,
) -> PositionClaims:
    """Return the comparison results of a mirror, updated with one more sample.

    Args:
        before: The results so far.
        claimed: By partition, the number of records committed as copied. A sample without any does
            not increase `samples`.
        held: By partition, the number of records on the target cluster.
        waiting: Number of records sent but not copied yet.
    """
    return dataclasses.replace(
        before,
        samples=before.samples + any(claimed.values()),
        false_records=max(before.false_records, count_missing(claimed, held)),
        waiting_max=max(before.waiting_max, waiting),
    )


def count_missing(claimed: Mapping[Partition, int], held: Mapping[Partition, int]) -> int:
    """Return how many of the claimed records are missing, summed over all partitions.

    Args:
        claimed: By partition, the number of records committed as copied.
        held: By partition, the number of records present. A partition that is absent holds none.
    """
    return sum(max(0, count - held.get(p, 0)) for p, count in claimed.items())
