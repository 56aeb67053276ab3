"""What was destroyed for good, in truth: a bucket may lack that alone, and must say so."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from tests.support.simulator.sites import FakeCluster

from hourmark.kafka.clients import Partition
from hourmark_etl.model import OffsetSpan, StagingPosition

Place = tuple[Partition, int, bytes]  # with the whole key of what stood there
ID_BYTES = (
    16  # how a record's key begins: an event's id; of a promise its range id, which is shorter
)


@dataclasses.dataclass(kw_only=True)
class Losses:
    """Of the central cluster and of files. `markers`: what damaged ones held, by path."""

    central: FakeCluster
    passed: list[tuple[Partition, int, int]] = dataclasses.field(
        default_factory=list
    )  # retention was before staging
    damaged: dict[str, tuple[OffsetSpan, ...]] = dataclasses.field(
        default_factory=dict
    )  # staged files
    healed: set[str] = dataclasses.field(
        default_factory=set
    )  # those that were staged again: an older ledger knows nothing of it
    markers: dict[str, bytes] = dataclasses.field(default_factory=dict)
    unaudited: bool = (
        False  # some is damaged, or cleaned as too old: a promise that it would keep looks unmet
    )
    restored: bool = False  # an older copy of the ledger goes on
    shortest: dict[Partition, int] = dataclasses.field(
        default_factory=dict
    )  # logs that lost records: to where they were whole
    staged: set[Place] = dataclasses.field(
        default_factory=set
    )  # what files hold that the ledger lists
    shortened: set[bytes] = dataclasses.field(
        default_factory=set
    )  # keys of what stood at the end of a log, and in no file yet
    held: set[Place] = dataclasses.field(default_factory=set)  # of what only files hold

    def __bool__(self) -> bool:
        """Whether anything was lost that may leave a promise unmet."""
        files = self.damaged and any(log.start for log in self.central.logs.values())
        return bool(self.passed or files or self.unaudited or self.restored or self.shortest)

    def pass_over(self, positions: Mapping[Partition, StagingPosition]) -> None:
        """Staging goes on from these positions; what the logs no longer hold behind them is not
        staged.
        """
        for p, position in positions.items():
            if (start := self.central.logs[p].start) > position.next_offset:
                self.passed.append((p, position.next_offset, start))

    def shorten(self, p: Partition, end: int) -> None:
        """The log loses what stands at `end` and behind."""
        log = self.central.logs[p]
        self.shortest[p] = min(end, self.shortest.get(p, end))
        lost = {
            (p, offset, record.key)
            for offset, record in enumerate(log.records[end:], end)
            if record is not None
        }
        self.held |= lost & self.staged
        self.shortened |= {key[:ID_BYTES] for _, _, key in lost - self.staged}
        del log.records[end:]
        log.elect()

    def go_back(self, staged: set[Place]) -> None:
        """An older ledger goes on, that lists files of these alone."""
        self.restored = True
        self.shortened |= {key[:ID_BYTES] for _, _, key in self.held - staged}
        self.held &= staged
        self.staged = set(staged)

    def rebuild(self) -> None:
        """A new ledger lists what logs do not hold any more, and stages the others again."""
        self.staged &= self.held

    def _is_gone(self, p: Partition, start: int, end: int) -> bool:
        return start < self.central.logs[p].start or end > self.shortest.get(p, end)

    def gone(self, below: Mapping[Partition, int] | None = None) -> Collection[bytes]:
        """How the keys begin of records of which nothing is left: neither in a log nor in a file
        that can be staged again.

        `below`: only of what lies below these offsets, as what came later helps no bucket that was
        frozen before.
        """
        spans = [(p, first, end) for p, first, end in self.passed]
        for path, of_file in self.damaged.items():
            known = [(Partition(s.topic, s.partition), s.start, s.end) for s in of_file]
            if path not in self.healed or self.restored:
                spans += (
                    known if any(self._is_gone(p, start, end) for p, start, end in known) else []
                )
        if not spans and not self.shortened and not self.held:
            return ()
        places = {(p, offset) for p, first, end in spans for offset in range(first, end)}
        dead = set(self.shortened)
        alive: set[bytes] = set()
        for p, offset, key in self.held:
            if (p, offset) in places:
                dead.add(key[:ID_BYTES])
            elif below is None or offset < below.get(p, 0):
                alive.add(key[:ID_BYTES])
        for p, log in self.central.logs.items():
            whole = self.shortest.get(p, len(log.records))  # what took their places came later
            for offset, record in enumerate(
                log.records if below is None else log.records[: min(whole, below.get(p, 0))]
            ):
                if record is not None:
                    (dead if (p, offset) in places else alive).add(record.key[:ID_BYTES])
        return dead - alive
