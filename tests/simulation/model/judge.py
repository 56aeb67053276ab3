"""What must hold in the model, whatever happened: looks at the store, and at what producers know to
be true.
"""

from __future__ import annotations

import collections

from tests.simulation.model.parts import Audit, Broken, Bucket, Event
from tests.simulation.model.recovery import Recovery


class World(Recovery):
    """A history's world, judged at every bucket and at the end."""

    def check_published(self, h: int, bucket: Bucket) -> None:
        """A closed bucket never changes, no event is in two, and `proved` is true."""
        before = self.store.closed.get(h)
        if before is not None and before.events != bucket.events:
            raise Broken(f"bucket {h} changed after closing")
        if before is None and any(other > h for other in self.store.closed):
            raise Broken(f"bucket {h} was closed after a later one")
        if h > self.first_hour and h - 1 not in self.store.closed:
            raise Broken(f"bucket {h} was closed, and the hour before it has none")
        for other, old in self.store.closed.items():
            if other != h and old.events & bucket.events:
                raise Broken(f"an event is in bucket {other} and in {h}")
        if bucket.seal.grade == "proved":
            self._check_proof(h, bucket)

    def _check_proof(self, h: int, bucket: Bucket) -> None:
        """Nothing promised before the cut is missing, but what an earlier bucket names, of its own
        hour or an earlier one.
        """
        inside = bucket.events.union(*(b.events for b in self.store.closed.values()))
        promised = self.edge["audit"].records[: bucket.seal.edge_audit]
        promised += self.central["audit"].records[: max(0, bucket.seal.audit_next)]
        for record, _ in promised:
            assert isinstance(record, Audit)
            for e in self.ranges[record.range_id].events:
                if e.hour <= h and e not in inside and not self._named(e, range(e.hour, h)):
                    raise Broken(
                        f"bucket {h} is 'proved' without an event of hour {e.hour}, "
                        "promised before its cut"
                    )

    def _named(self, event: Event, hours: range) -> bool:
        """Whether a bucket of these hours says that the event may be missing."""
        named = {
            n for h in hours if h in self.store.closed for n in self.store.closed[h].seal.named
        }
        ids = {x.id for x in self.ranges.values() if event in x.events}
        if any(("promise", i, event.hour) in named for i in ids):
            return True
        for kind, p, start, end in (n for n in named if n[0] != "promise"):
            assert isinstance(p, str) and isinstance(start, int) and isinstance(end, int)
            for record, _ in self.central[p].records[start:end]:
                if (
                    (record.range_id in ids)
                    if isinstance(record, Audit)
                    else (record.event == event)
                ):
                    self.seen[f"named: {kind}"] += 1
                    return True
        return False

    def check_end(self) -> None:
        """Every acknowledged line is in one closed bucket, once, or named by one that
        was forced.
        """
        where = collections.Counter(e.line for b in self.store.closed.values() for e in b.events)
        everything = range(max(self.store.closed, default=0) + 1)
        for event in {e for x in self.ranges.values() if x.acked for e in x.events}:
            if where[event.line] != 1 and not (
                where[event.line] == 0 and self._named(event, everything)
            ):
                raise Broken(f"an acknowledged line is in closed buckets {where[event.line]} times")
        self.seen["events in closed buckets"] += sum(where.values())
        self.seen["late events"] += sum(
            e.hour < h for h, b in self.store.closed.items() for e in b.events
        )
        for b in self.store.closed.values():
            self.seen[f"buckets {b.seal.grade}"] += 1
