"""The mirror from outside: what it has committed as copied, what the target holds, and since
when.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.mirror import MirrorPositions
from hourmark.kafka.topic_names import central_topic
from hourmark_evaluate.brokers import Brokers
from hourmark_evaluate.load import Load
from hourmark_evaluate.reading import Copied, Follower
from hourmark_evaluate.records import Form, Plan
from hourmark_evaluate.results import Claims

Ends = Mapping[Partition, int]
HeldBelow = Callable[
    [Ends], Mapping[Partition, int]
]  # records that readers were given, by partition


@dataclass
class _Asked:
    """What was claimed at a time. `early`: some of it is not given to readers yet."""

    at_s: float
    claimed: Ends
    ends: Ends
    waiting: int
    early: bool


class Account:
    """Of the mirror's claims, each held against what lay in the target's logs then.

    A position may be committed a moment before the marker of its transaction reaches another
    partition. So it is told once the transactions that were under way are over.
    """

    def __init__(self) -> None:
        self.claims = Claims(samples=0, false_records=0, waiting_max=0, early_max=0)
        self._asked = deque[_Asked]()

    def ask(self, now_s: float, claimed: Ends, ends: Ends, given: Ends, waiting: int) -> None:
        """Of the target's partitions: what was claimed, how far the logs reached right afterwards,
        what readers had by then.
        """
        early = short_of(claimed, given)
        self.claims = dataclasses.replace(
            self.claims, early_max=max(self.claims.early_max or 0, early)
        )
        self._asked.append(_Asked(now_s, claimed, ends, waiting, early > 0))

    def tell(self, now_s: float, read_to: Ends, held_below: HeldBelow) -> None:
        """Of what can be told, now that readers were given all below `read_to`."""
        for one in self._asked:
            if one.early and not short_of(one.claimed, held_below(one.ends)):
                one.early = False
                self.claims = dataclasses.replace(
                    self.claims, early_s=max(self.claims.early_s, round(now_s - one.at_s, 1))
                )
        while self._asked and all(
            read_to.get(p, 0) >= end for p, end in self._asked[0].ends.items()
        ):
            self._tell(held_below)

    def settle(self, held_below: HeldBelow) -> None:
        """Of the rest: what readers were not given by now is not there."""
        while self._asked:
            self._tell(held_below)

    def _tell(self, held_below: HeldBelow) -> None:
        one = self._asked.popleft()
        self.claims = asked(self.claims, one.claimed, held_below(one.ends), one.waiting)


class MirrorWatch:
    """Of the topics of one load. Not thread-safe."""

    def __init__(self, central: Brokers, alias: str, form: Form, load: Load) -> None:
        self.plan = Plan(
            tuple(central_topic(t, alias) for t in load.plan.topics),
            load.plan.shares,
            load.plan.partitions,
        )
        self.copied = Copied()
        self._account = Account()
        self._alias, self._load = alias, load
        self.follower = Follower(central.cluster, form, self.plan.topics, self.plan.partitions)
        self._positions = MirrorPositions(central.settings, alias)
        self.trouble = ""  # why the last look saw nothing; "" where it did

    def look(self) -> None:
        """Ask the mirror first, then the target how far its logs reach: what was claimed must lie
        below that.
        """
        try:
            claimed = self._positions.refresh()
            sent, ends = self._load.sent, self.follower.ends()
            self.follower.poll()
        except Unavailable as error:
            self.trouble = str(error)
            return  # the target is away: nothing can be compared, and the next look reads on
        self.trouble = ""
        self.copied.note(self.follower.new, self._load.now_s)
        given = self.follower.held_below(self.follower.read_to)
        now_s = self._load.now_s
        self._account.ask(now_s, self._expected(claimed), ends, given, sent - self.arrived)
        self._account.tell(now_s, self.follower.read_to, self.follower.held_below)

    def claims(self) -> Claims:
        """The account of all looks, at the end."""
        self._account.settle(self.follower.held_below)
        return self._account.claims

    def through(self, number: int) -> bool:
        """Whether all records before this number are on the target."""
        return self.copied.first_missing >= number

    @property
    def arrived(self) -> int:
        """Records read from the target so far, each counted once: a mirror may copy some again."""
        return self.follower.distinct

    def close(self) -> None:
        """Leave the cluster."""
        self.follower.close()
        self._positions.close()

    def _expected(self, claimed: Mapping[Partition, int]) -> dict[Partition, int]:
        """What the target must hold by these claims, by its own partitions; our topics are new, so
        each offset is a record.
        """
        return {
            Partition(central_topic(p.topic, self._alias), p.partition): offset
            for p, offset in claimed.items()
            if p.topic in self._load.plan.topics
        }


def asked(
    before: Claims, claimed: Mapping[Partition, int], held: Mapping[Partition, int], waiting: int
) -> Claims:
    """The account after one more time. Pure."""
    return dataclasses.replace(
        before,
        samples=before.samples + any(claimed.values()),
        false_records=max(before.false_records, short_of(claimed, held)),
        waiting_max=max(before.waiting_max, waiting),
    )


def short_of(claimed: Mapping[Partition, int], held: Mapping[Partition, int]) -> int:
    """How many records of those claimed are not held. Pure."""
    return sum(max(0, count - held.get(p, 0)) for p, count in claimed.items())
