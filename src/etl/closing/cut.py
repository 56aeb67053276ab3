"""The cut: in offsets and not in times, what must be on the central cluster, and staged, before an hour may freeze.

Five phases, each waiting for one thing:

    reports   every live source is past the hour's end, by reports that are staged already
    control   the edge's ends of hosts, then of audit, are taken; the mirror reaches them
    promises  the central ends of both are taken; the ledger reaches them; nobody new has appeared in the reports
    events    the edge's ends of the types' topics are taken; the mirror reaches them
    arrival   the central ends of those are taken; the ledger reaches them

Audit offsets are compared on the central cluster only: the promises that count are those below the central audit end taken in
`promises`. Every one of them was at the edge before, and its events before it, so the events' edge ends, taken afterwards,
lie past them: no promise that counts can have an event beyond the cut, and the offsets of the two clusters need no translation.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from etl.closing.readiness import carries, newcomers, readiness, ready
from etl.ledger.rows import Frontier, Reporter, State
from hourmark.clock import Clock
from hourmark.errors import Finding
from hourmark.kafka import Partition
from hourmark.topics import CONTROL, events_topic

OVERDUE_MS: Final = 30_000  # after its end, an hour that waits for somebody says for whom
LAGGARD_SECONDS: Final = 10.0  # how long a topic that the mirror lags on may hold up the types beside it


class Sites(Protocol):
    """What a cut asks of the two clusters. Edge names throughout; offsets are the next to read."""

    def edge_ends(self, topics: Sequence[str]) -> dict[Partition, int]:
        """End offsets at the edge, topic by topic in this order."""
        ...

    def not_mirrored(self, cut: Mapping[Partition, int]) -> dict[str, str]:
        """Topics of which the mirror has yet to copy something below the cut, and what, for people; empty: it has reached it."""
        ...

    def holes(self) -> dict[str, str]:
        """Topics of which records may never arrive (retention, a topic made anew), and why: nothing of them may freeze."""
        ...

    def central_ends(self, topics: Collection[str]) -> dict[Partition, int]:
        """High watermarks, on the central cluster, of the topics mirrored from these."""
        ...


class Progress(Protocol):
    """What a cut asks of the ledger."""

    def reporters(self) -> list[Reporter]:
        """Latest staged reports."""
        ...

    def not_staged(self, ends: Mapping[Partition, int]) -> list[str]:
        """What is below these central ends and not yet staged, for people; empty: the ledger has reached them."""
        ...


class Phase(enum.Enum):
    """What a cut waits for; see the module."""

    REPORTS = "reports"
    CONTROL = "control"
    PROMISES = "promises"
    EVENTS = "events"
    ARRIVAL = "arrival"


@dataclasses.dataclass(frozen=True)
class Cut:
    """A finished cut: the hours of these types that end at or before their horizon may freeze."""

    taken_at_ms: int
    horizons_ms: Mapping[str, int]
    audit_next: int  # central offset: promises below it count
    edge_ends: Mapping[Partition, int]
    central_ends: Mapping[Partition, int]

    def without(self, types: Collection[str]) -> Cut:
        """The same cut, of which these types take no part."""
        return dataclasses.replace(self, horizons_ms={t: h for t, h in self.horizons_ms.items() if t not in types})


@dataclasses.dataclass(frozen=True)
class Waiting:
    """What a cut waits for now, for people."""

    phase: Phase
    what: tuple[str, ...] = ()


class CutTaker:
    """Takes one cut after another; `poll` goes on as far as it can and never blocks on a condition."""

    def __init__(self, sites: Sites, progress: Progress, audit_central: str, clock: Clock) -> None:
        self._sites, self._progress, self._clock = sites, progress, clock
        self._audit_central = audit_central
        self._phase = Phase.REPORTS
        self._taken_at_ms = 0
        self._events_since_s = 0.0
        self._begin_anew()

    def poll(self, frontiers: Collection[Frontier]) -> Cut | Waiting:
        """One look. Each phase hands over to the next until one has to wait; a finished cut makes room for a new one."""
        while True:
            step = getattr(self, f"_{self._phase.value}")(frontiers)
            if isinstance(step, Phase):
                self._phase = step
                continue
            if isinstance(step, Cut):
                self._begin_anew()
            return step  # type: ignore[no-any-return]  # Cut or Waiting

    def _begin_anew(self) -> None:
        self._phase = Phase.REPORTS
        self._seen: list[Reporter] = []
        self._horizons: dict[str, int] = {}
        self._edge: dict[Partition, int] = {}
        self._central: dict[Partition, int] | None = None
        self._audit_next = 0

    def _reports(self, frontiers: Collection[Frontier]) -> Phase | Waiting:
        self._taken_at_ms = self._clock.now_ms()
        self._seen = self._progress.reporters()
        holes = self._sites.holes()
        if any(topic in holes for topic in CONTROL):
            return Waiting(Phase.REPORTS, tuple(holes.values()))
        horizons = ready(frontiers, self._seen, self._taken_at_ms)
        self._horizons = {t: horizon for t, horizon in horizons.items() if events_topic(t) not in holes}
        if not self._horizons:
            return Waiting(Phase.REPORTS, (*holes.values(), *self._overdue(frontiers)))
        self._edge = self._sites.edge_ends(CONTROL)
        return Phase.CONTROL

    def _overdue(self, frontiers: Collection[Frontier]) -> list[str]:
        """Whom the oldest hour waits for, once it is overdue."""
        opened = [f for f in frontiers if f.state is State.OPEN and f.hour.end_ms + OVERDUE_MS <= self._taken_at_ms]
        if not opened:
            return []
        oldest = min(opened, key=lambda f: (f.hour, f.event_type))
        waits = readiness(oldest, self._seen, self._taken_at_ms).waits_for
        return [f"{oldest.event_type} {oldest.hour} waits for {who}" for who in waits]

    def _control(self, _: Collection[Frontier]) -> Phase | Waiting:
        if behind := self._sites.not_mirrored(self._edge):
            return Waiting(Phase.CONTROL, tuple(behind.values()))
        self._central = self._sites.central_ends(CONTROL)
        audit = [end for p, end in self._central.items() if p.topic == self._audit_central]
        if len(audit) != 1:
            raise Finding(
                f"topic {self._audit_central} has {len(audit)} partitions; closing needs one order of promises. "
                "Make it anew with one partition"
            )
        self._audit_next = audit[0]
        return Phase.PROMISES

    def _promises(self, frontiers: Collection[Frontier]) -> Phase | Waiting:
        assert self._central is not None
        if behind := self._progress.not_staged(self._central):
            return Waiting(Phase.PROMISES, tuple(behind))
        new = newcomers(self._seen, self._progress.reporters())
        for f in frontiers:
            if any(carries(f, r) for r in new):  # what a newcomer promises may lie past the audit cut: the next cut will know it
                self._horizons.pop(f.event_type, None)
        if not self._horizons:
            self._begin_anew()
            return Waiting(Phase.REPORTS, tuple(f"{r.name} has just appeared" for r in new))
        self._edge = self._sites.edge_ends([events_topic(t) for t in sorted(self._horizons)])
        self._events_since_s = self._clock.monotonic_s()
        return Phase.EVENTS

    def _events(self, _: Collection[Frontier]) -> Phase | Waiting:
        if behind := self._sites.not_mirrored(self._edge):
            if self._clock.monotonic_s() - self._events_since_s < LAGGARD_SECONDS:
                return Waiting(Phase.EVENTS, tuple(behind.values()))
            self._drop_topics(behind)
            if not self._horizons:
                self._begin_anew()
                return Waiting(Phase.REPORTS, tuple(behind.values()))
        self._central = self._sites.central_ends(sorted({p.topic for p in self._edge}))
        return Phase.ARRIVAL

    def _drop_topics(self, behind: Collection[str]) -> None:
        """Leave laggards to the next cut, so that they hold up nobody else."""
        self._horizons = {t: horizon for t, horizon in self._horizons.items() if events_topic(t) not in behind}
        self._edge = {p: end for p, end in self._edge.items() if p.topic not in behind}

    def _arrival(self, _: Collection[Frontier]) -> Cut | Waiting:
        assert self._central is not None
        if behind := self._progress.not_staged(self._central):
            return Waiting(Phase.ARRIVAL, tuple(behind))
        return Cut(self._taken_at_ms, dict(self._horizons), self._audit_next, dict(self._edge), dict(self._central))
