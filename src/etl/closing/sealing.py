"""Proves a round of frozen hours and seals what is proved, a backlog's hours of a type in turn.

A round asks the engine once for every type's frontier hour, once for every type's next hour, and so on: later hours have no late
promises of their own, because their frontier hour's seal settles all below the same cut.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from etl.closing.cut import Cut, Progress, Sites
from etl.closing.deciding import Rule, decide
from etl.closing.engine import Engine
from etl.closing.forcing import accepted_topics
from etl.closing.readiness import fallen_silent
from etl.ledger import frontiers as ledger
from etl.ledger.database import Database, Lease
from etl.ledger.holes import accepted_holes
from etl.ledger.orders import Order
from etl.ledger.rows import Frontier, Position, Seal
from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.hours import Hour

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Round:
    """What is frozen: the frontier hours, by type the last hour that takes part, and how far each topic was staged then."""

    frozen: Sequence[Frontier]
    last: Mapping[str, Hour]
    offsets: Mapping[str, tuple[Position, ...]]
    cut: Cut
    orders: Mapping[str, Order]


@dataclasses.dataclass(frozen=True)
class SealableHour:
    """An hour that may be sealed, and its row of the table `surplus`, if it has any."""

    seal: Seal
    surplus: Mapping[str, Any] | None


@dataclasses.dataclass
class Verdict:
    """By type, its first hours that may be sealed; and the types whose frontier hour may not, with what is missing."""

    chains: dict[str, list[SealableHour]] = dataclasses.field(default_factory=dict)
    refused: list[tuple[Frontier, tuple[str, ...]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Sealer:
    """Frozen hours → sealed ones."""

    engine: Engine
    database: Database
    lease: Lease
    sites: Sites
    progress: Progress
    clock: Clock
    deadline_ms: int

    def judge(self, of: Round) -> Verdict:
        """Prove every hour of the round; changes nothing."""
        rule = Rule(of.cut, accepted_holes(self.database), self.deadline_ms)
        verdict, asked = Verdict(), list(of.frozen)
        while asked:
            proofs = self.engine.prove(asked, of.cut.audit_next)
            following = []
            for f in asked:
                proof, order = proofs[f.event_type], of.orders.get(f.event_type)
                seal = decide(f, proof, of.offsets[f.event_type], order, rule)
                if seal is not None:
                    file = proof.surplus_file
                    row = None if file is None else file.ledger_row(of.cut.audit_next, self.clock.now_ms())
                    verdict.chains.setdefault(f.event_type, []).append(SealableHour(seal, row))
                    if f.hour < of.last[f.event_type]:
                        following.append(dataclasses.replace(f, hour=f.hour.next(), settled_next=of.cut.audit_next))
                elif f.event_type not in verdict.chains:
                    verdict.refused.append((f, proof.findings))
            asked = following
        return verdict

    def seal(self, of: Round, chains: Mapping[str, Sequence[SealableHour]], all_types: set[str]) -> None:
        """Seal them, in one transaction with all that belongs to their seals."""
        sealed = [f for f in of.frozen if f.event_type in chains]
        seals = {t: [h.seal for h in hours] for t, hours in chains.items()}
        named = {(r.host_id, r.source): r for f in sealed for r in of.cut.excused.get(f.event_type, ())}
        together = self._accepted(
            ledger.WithSeals(
                fallen_silent(named.values(), self.progress.reporters()),
                [h.surplus for hours in chains.values() for h in hours if h.surplus is not None],
            ),
            [f.event_type for f in sealed if f.event_type in of.orders],
            of.orders,
            all_types,
        )
        ledger.seal(self.database, self.lease, seals, sealed, together)

    def _accepted(
        self, together: ledger.WithSeals, forced: Sequence[str], orders: Mapping[str, Order], all_types: set[str]
    ) -> ledger.WithSeals:
        """With the holes that these orders accept, if there are any."""
        topics = accepted_topics(forced, all_ordered=all_types <= set(orders)) & self.sites.holes().keys()
        if not forced or not topics:
            return together
        try:
            found, checks = self.sites.acceptable(topics)
        except Unavailable as error:  # then the holes stay, and later hours need orders of their own
            _LOG.error("the holes of %s are not accepted yet: %s", sorted(topics), error)
            return together
        if stale := sorted(topics - {h.topic for h in found}):
            _LOG.error(
                "the holes of %s are not accepted: the topic is gone, or the mirror's position in it is an older one's. Make "
                "the mirror begin anew there, and order again", stale,
            )  # fmt: skip
        now_ms, reason = self.clock.now_ms(), orders[forced[0]].reason
        accepted = [dataclasses.replace(h, accepted_at_ms=now_ms, reason=reason) for h in found]
        return dataclasses.replace(together, accepted=accepted, checks=checks)
