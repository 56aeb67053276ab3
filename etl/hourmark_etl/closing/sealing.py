"""A round: how many hours of each type it takes on, its proof, and what becomes of each frozen
hour.

It asks the engine once for every type's frontier hour, once for every type's next hour, and so on:
later hours have no late promises of their own, because their frontier hour's seal settles all below
the same cut.

`decide` is pure: an hour is sealed, under which grade and with what waived, or unfrozen.

proved      every promise below the cut is kept, and every awaited source had caught up
timed_out   past the deadline: sources that had not caught up, or promises that are not kept, are waived, and named
forced      by an override, the only thing that closes an hour with a conflict (`readings`, `copies`); or the hour had begun
            before an override accepted a gap, which nobody can fill: in promises or reports, as
            what it was promised is not known for certain; or in its type's events, and promises of
            it are not kept

`plan_round` is pure. Every type that is ready takes part with its frontier hour; while there is
room, a backlog's later hours join, one of each type at a time, so that a long backlog of one type
holds up nobody else's newest hour by more than a round.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.kafka.topic_names import CONTROL, events_topic
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.closing.cut.cut import Cut, Sites, StagingProgress, shortened
from hourmark_etl.closing.cut.forced import accepted_topics
from hourmark_etl.closing.cut.readiness import fallen_silent
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import FINDINGS_MAX, Proof, lacking, named
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger.conflicts import Conflict, conflict_texts, conflicts, conflicts_holding
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.host_losses import HostLoss, losses, losses_in_hour, unrepeatable_sources
from hourmark_etl.ledger.listings import listed_schema_ids
from hourmark_etl.ledger.offset_gaps import EdgeCheck, OffsetGap, accepted_gaps
from hourmark_etl.ledger.overrides import Override
from hourmark_etl.ledger.reporters import reporters
from hourmark_etl.ledger.schemas import schema_problem, schemas_by_id
from hourmark_etl.model import Frontier, Phase, Position, Reporter, Seal

_LOG = logging.getLogger(__name__)
EARLY_MS: Final = (
    15 * 60_000
)  # how far past its receipt an event's time may lie: design, "plausibility"
HOURS_MAX: Final = (
    4096  # (type, hour) pairs: some thousand folders are published in a minute or two
)
BYTES_MAX: Final = 8 << 30  # of datums: a round publishes nothing before all of it is written


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """What is frozen: the frontier hours, by type the last hour that takes part, and how far each
    topic was staged then.
    """

    frozen: Sequence[Frontier]
    last: Mapping[str, Hour]
    offsets: Mapping[str, tuple[Position, ...]]
    cut: Cut
    overrides: Mapping[str, Override]


@dataclasses.dataclass
class Grading:
    """By type, seals of its first hours that may be sealed; and the types whose frontier hour may
    not, with what is missing.

    `unwritable`: types whose frontier hour has rows under a schema id that stands for no schema of
    theirs, and why. `unaudited`: rows of the table `unaudited` of those that may. `conflicts`: what
    holds some of those that may not, until an override.
    """

    chains: dict[str, list[Seal]] = dataclasses.field(default_factory=dict)
    unaudited: list[Mapping[str, Any]] = dataclasses.field(default_factory=list)
    refused: list[tuple[Frontier, tuple[str, ...]]] = dataclasses.field(default_factory=list)
    unwritable: list[tuple[Frontier, Phase, tuple[str, ...]]] = dataclasses.field(
        default_factory=list
    )
    conflicts: list[Conflict] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sealer:
    """Frozen hours → sealed ones."""

    engine: Engine
    database: Database
    lease: Lease
    sites: Sites
    progress: StagingProgress
    clock: Clock
    deadline_ms: int

    def judge(self, of: Round) -> Grading:
        """Prove every hour of the round; changes nothing."""
        rule = Rule(
            of.cut,
            accepted_gaps(self.database),
            self.deadline_ms,
            conflicts(self.database),
            losses(self.database),
            reporters(self.database),
        )
        verdict, asked = Grading(), list(of.frozen)
        while asked:
            unwritable = self._unwritable(asked, of.overrides)
            verdict.unwritable += [
                (f, *unwritable[f.event_type])
                for f in asked
                if f.event_type in unwritable and f.event_type not in verdict.chains
            ]
            asked = [f for f in asked if f.event_type not in unwritable]
            proofs = self.engine.prove(asked, of.cut.audit_next)
            following = []
            for f in asked:
                proof = proofs[f.event_type]
                if seal := decide(
                    f, proof, of.offsets[f.event_type], of.overrides.get(f.event_type), rule
                ):
                    verdict.chains.setdefault(f.event_type, []).append(seal)
                    if file := proof.unaudited_file:
                        verdict.unaudited.append(
                            file.ledger_row(of.cut.audit_next, self.clock.now_ms())
                        )
                    if f.hour < of.last[f.event_type]:
                        following.append(
                            dataclasses.replace(
                                f, hour=f.hour.next(), settled_next=of.cut.audit_next
                            )
                        )
                elif f.event_type not in verdict.chains:
                    verdict.refused.append((f, (*proof.findings, *proof.unknown)))
                    verdict.conflicts += [
                        Conflict(
                            event_type=f.event_type,
                            hour_s=f.hour.start_s,
                            range_id=range_id,
                            what=what,
                            found_at_ms=self.clock.now_ms(),
                        )
                        for range_id, what in proof.otherwise[:FINDINGS_MAX]
                    ]
            asked = following
        return verdict

    def _unwritable(
        self, asked: Sequence[Frontier], given: Collection[str]
    ) -> dict[str, tuple[Phase, tuple[str, ...]]]:
        """By type, why some rows that are listed for its hour can be in no bucket.

        Nothing of it may be sealed.

        Types that have an override (`given`) go on without such rows; but not where the ledger's
        row of the schema is damaged, which can be repaired.
        """
        ids = listed_schema_ids(self.database, asked)
        schemas = schemas_by_id(self.database, set().union(*ids)) if any(ids) else {}
        found = {}
        for f, own in zip(asked, ids, strict=True):
            is_damaged = any(isinstance(schemas.get(s), DamagedRow) for s in own)
            why = tuple(
                str(x)
                for s in sorted(own)
                if (x := schema_problem(f.event_type, s, schemas.get(s)))
            )
            if why and (is_damaged or f.event_type not in given):
                found[f.event_type] = (Phase.LEDGER if is_damaged else Phase.UNWRITABLE, why)
        return found

    def seal(self, of: Round, verdict: Grading, all_types: set[str]) -> None:
        """Seal what may be, in one transaction with all that belongs to the seals."""
        sealed = [f for f in of.frozen if f.event_type in verdict.chains]
        named = {
            (r.host_id, r.source): r for f in sealed for r in of.cut.waived.get(f.event_type, ())
        }
        silent = fallen_silent(named.values(), self.progress.reporters())
        forced = [f.event_type for f in sealed if f.event_type in of.overrides]
        gaps, checks = self._accepted(forced, of.overrides, all_types)
        together = ledger.SealEffects(silent, verdict.unaudited, gaps, checks)
        ledger.seal(self.database, self.lease, verdict.chains, sealed, together)

    def _accepted(
        self, forced: Sequence[str], overrides: Mapping[str, Override], all_types: set[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        """The gaps that these overrides accept, and from where their topics are watched again."""
        topics = (
            accepted_topics(forced, all_overridden=all_types <= set(overrides))
            & self.sites.gaps().keys()
        )
        if not forced or not topics:
            return [], []
        try:
            found, checks = self.sites.acceptable(topics)
        except (
            Unavailable
        ) as error:  # then the gaps stay, and later hours need overrides of their own
            _LOG.error("the gaps of %s are not accepted yet: %s", sorted(topics), error)
            return [], []
        if stale := sorted(topics - {h.topic for h in found}):
            _LOG.error(
                "the gaps of %s are not accepted: the topic is gone, or the mirror's position "
                "in it is an older one's, or it is "
                "shorter on the central cluster than what was staged of it. Make the mirror "
                "begin anew there (`hourmark mirror "
                "reset-offsets`), and order again",
                stale,
            )
        now_ms, reason = self.clock.now_ms(), overrides[forced[0]].reason
        return [dataclasses.replace(h, accepted_at_ms=now_ms, reason=reason) for h in found], checks


class Rule(NamedTuple):
    """What a decision rests on besides the proof."""

    cut: Cut
    accepted: Collection[OffsetGap]
    deadline_ms: int
    conflicts: Mapping[str, Sequence[Conflict]] = {}
    losses: Sequence[HostLoss] = ()
    reporters: Sequence[Reporter] = ()


def decide(
    frontier: Frontier,
    proof: Proof,
    offsets: tuple[Position, ...],
    override: Override | None,
    rule: Rule,
) -> Seal | None:
    """The seal of this hour, or None: it is not proved, and waits.

    `override`: the one for this very hour, if any. A deadline is judged by the time of the cut,
    when clocks were compared; no conflict is waived by it, as nothing is missing.
    """
    late = rule.cut.taken_at_ms >= frontier.hour.end_ms + rule.deadline_ms
    conflicting = tuple(
        dict.fromkeys(
            (*conflict_texts(rule.conflicts, frontier), *(what for _, what in proof.otherwise))
        )
    )
    if override is None and (conflicting or proof.unknown or (proof.findings and not late)):
        return None
    sources = [
        f"source {r.source} of {r.kind} {r.host_name} ({r.host_id}) {_why_waived(r, frontier.hour)}"
        for r in rule.cut.waived.get(frontier.event_type, ())
    ]
    promises = [f"not kept: {finding}" for finding in proof.findings]
    gaps = [
        f"accepted: {h.what} ({h.reason})"
        for h in rule.accepted
        if _concerns(h, frontier, proof, override)
    ]
    if override is not None:
        skipped = [
            f"not verified: {what}"
            for what in (*rule.cut.unverified.get(frontier.event_type, ()), *proof.unknown)
        ]
        twice = named([f"read otherwise: {what}" for what in conflicting], 0)
        grade, waived = (
            Grade.FORCED,
            (override.manifest_text, *twice, *skipped, *sources, *promises, *gaps),
        )
    else:
        grade = Grade.FORCED if gaps else Grade.TIMED_OUT if sources or promises else Grade.PROVED
        waived = (*shortened(sources), *promises, *gaps)
    twice_read = [c.range_id for c in conflicts_holding(rule.conflicts, frontier)] + [
        range_id for range_id, _ in proof.otherwise
    ]
    lacks = proof.lacks | lacking([*dict.fromkeys(twice_read)], len(gaps))
    lost, unknown = losses_in_hour(frontier.hour, frontier.sources, rule.losses)
    return Seal(
        grade=grade.value,
        method=proof.method,
        cut_at_ms=rule.cut.taken_at_ms,
        audit_next=rule.cut.audit_next,
        audit_records=proof.audit_records,
        promised=proof.promised,
        unaudited=proof.unaudited,
        checked=proof.checked,
        waived=waived,
        offsets=offsets,
        listed=proof.listed,
        books=proof.books,
        lost=lost,
        unknown=unknown,
        unrepeatable=unrepeatable_sources(frontier.hour, frontier.sources, rule.reporters),
        leaves_out=override is not None,
        lacks=None if grade is Grade.PROVED else lacks,
    )


def _why_waived(r: Reporter, hour: Hour) -> str:
    behind = (r.caught_up_at_ms or 0) < hour.end_ms
    return (
        "had not caught up with the hour's end"
        if behind
        else "appeared while the hour was being cut"
    )


def _concerns(gap: OffsetGap, f: Frontier, proof: Proof, override: Override | None) -> bool:
    """Promises or reports that are missing leave no hour verified that had begun by then; missing
    events are told by promises.

    An hour closed by an override names the events that it gives up, whatever is promised: a second
    reading may stand for them.
    """
    assert gap.accepted_at_ms is not None
    if (
        gap.type not in (None, f.event_type)
        or f.hour.start_s * 1000 > gap.accepted_at_ms + EARLY_MS
    ):
        return False
    return gap.topic in CONTROL or (
        gap.topic == events_topic(f.event_type) and bool(proof.findings or override)
    )


def plan_round(
    ready: Sequence[Frontier],
    watermarks_ms: Mapping[str, int],
    unlisted_bytes: Mapping[tuple[str, int], int],
    *,
    hours_max: int = HOURS_MAX,
    bytes_max: int = BYTES_MAX,
) -> dict[str, Hour]:
    """By type: the last hour of it in this round.

    `unlisted_bytes`: by type and hour (start, Unix seconds), of what is staged.
    """
    chosen = sorted(ready, key=lambda f: (f.hour, f.event_type))[:hours_max]
    last = {f.event_type: f.hour for f in chosen}
    room_hours = hours_max - len(chosen)
    room_bytes = bytes_max - sum(
        unlisted_bytes.get((f.event_type, f.hour.start_s), 0) for f in chosen
    )
    growing = collections.deque(last)
    while growing and room_hours > 0:
        event_type = growing.popleft()
        following = last[event_type].next()
        size = unlisted_bytes.get((event_type, following.start_s), 0)
        if following.end_ms <= watermarks_ms[event_type] and size <= room_bytes:
            last[event_type] = following
            room_hours, room_bytes = room_hours - 1, room_bytes - size
            growing.append(event_type)
    return last
