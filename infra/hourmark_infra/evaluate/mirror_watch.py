"""The mirror from outside: what it has committed as copied, what the target holds, and since when."""

from __future__ import annotations

from collections.abc import Mapping

from hourmark.errors import Unavailable
from hourmark.kafka import Partition
from hourmark.mirror_positions import MirrorPositions
from hourmark.topics import central_topic
from hourmark_infra.evaluate.brokers import Brokers
from hourmark_infra.evaluate.load import Load
from hourmark_infra.evaluate.reading import Copied, Follower
from hourmark_infra.evaluate.records import Form, Plan
from hourmark_infra.evaluate.results import Claims


class MirrorWatch:
    """Of the topics of one load. Not thread-safe."""

    def __init__(self, central: Brokers, alias: str, form: Form, load: Load) -> None:
        self.plan = Plan(tuple(central_topic(t, alias) for t in load.plan.topics), load.plan.shares, load.plan.partitions)
        self.copied = Copied()
        self.claims = Claims(samples=0, false_records=0, waiting_max=0)
        self._alias, self._load = alias, load
        self.follower = Follower(central.cluster, form, self.plan.topics, self.plan.partitions)
        self._positions = MirrorPositions(central.settings, alias)

    def look(self) -> None:
        """Ask the mirror first, then read the target: what it claimed must be there by then."""
        try:
            claimed = self._positions.refresh()
            sent = self._load.sent
            self.follower.poll()
        except Unavailable:
            return  # the target is away: nothing can be compared, and the next look reads on
        self.copied.note(self.follower.new, self._load.now_s)
        self.claims = asked(self.claims, self._expected(claimed), self.follower.held, sent - self.arrived)

    def through(self, number: int) -> bool:
        """Whether all records before this number are on the target."""
        return self.copied.first_missing >= number

    @property
    def arrived(self) -> int:
        """Records read from the target so far."""
        return len(self.follower.readings)

    def close(self) -> None:
        """Leave the cluster."""
        self.follower.close()
        self._positions.close()

    def _expected(self, claimed: Mapping[Partition, int]) -> dict[Partition, int]:
        """What the target must hold by these claims, by its own partitions; our topics are new, so each offset is a record."""
        return {
            Partition(central_topic(p.topic, self._alias), p.partition): offset
            for p, offset in claimed.items()
            if p.topic in self._load.plan.topics
        }


def asked(before: Claims, claimed: Mapping[Partition, int], held: Mapping[Partition, int], waiting: int) -> Claims:
    """The account after one more time. Pure."""
    return Claims(
        samples=before.samples + any(claimed.values()),
        false_records=max(before.false_records, sum(max(0, count - held.get(p, 0)) for p, count in claimed.items())),
        waiting_max=max(before.waiting_max, waiting),
    )
