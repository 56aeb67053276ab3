"""Plans a round of hours, proves them, and decides how each is sealed.

The engine proves every type's frontier hour in one call. Later hours have no late promises of their
own, because the frontier hour's seal settles all promises below the same cut. So all of them are
compared by sums at once, from the ledger. Where the sums of an hour differ, the engine proves it
in its turn: every type's second hour in one call, then every type's third, and so on.

`decide_seal` is pure: it seals an hour with a grade and a list of what was waived, or refuses it.

proved      every promise below the cut is kept, and every awaited source had caught up
timed_out   past the deadline: sources that had not caught up, or promises that are not kept, are waived and named
forced      by an override, the only way to close an hour with a conflict (`readings`, `copies`); or the hour began before
            an override accepted a gap: in audit records or host reports, because what was promised is not known for
            certain; or in the type's events, if promises of the hour are not kept

`plan_round` is pure. Every ready type takes part with its frontier hour. While there is room, later
hours of a backlog join, one per type at a time, so a long backlog of one type delays other types by
at most one round. Before a type's first hour, hours that hold nothing are passed over.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.kafka.topic_names import CONTROL, events_topic
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.closing.cut.cut import ClosingCut, SiteClusters, StagingProgress, limit_lines
from hourmark_etl.closing.cut.forced import list_accepted_topics
from hourmark_etl.closing.cut.readiness import find_silent_sources
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import (
    FINDINGS_MAX,
    Proof,
    limit_findings,
    to_incomplete_ranges,
)
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger.conflicts import (
    Conflict,
    conflicts,
    find_blocking_conflicts,
    format_blocking_conflicts,
)
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.hosts.host_losses import (
    HostLoss,
    find_unrepeatable_sources,
    losses,
    sum_losses_in_hour,
)
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.overrides import Override
from hourmark_etl.ledger.partitions.offset_gaps import EdgeCheck, OffsetGap, accepted_gaps
from hourmark_etl.ledger.schemas import find_schema_error, read_schemas_by_id
from hourmark_etl.ledger.staged.listings import read_assigned_schema_ids
from hourmark_etl.model import ClosingPhase, Frontier, ReportedSource, Seal, StagingPosition

_LOG = logging.getLogger(__name__)
EARLY_MS: Final = (
    15 * 60_000
)  # how far after its receipt an event's time may lie: design, "plausibility"
HOURS_MAX: Final = (
    4096  # (type, hour) pairs: some thousand folders are published in a minute or two
)
BYTES_MAX: Final = 8 << 30  # of datums: a round publishes nothing before all of it is written
_Key = tuple[str, int]  # event type, and Unix seconds at the start of an hour


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosingRound:
    """A set of hourly buckets, of many event types, that are proved, sealed and published together.

    The round contains the next hour to close of each type, and possibly some of the hours after it.

    Attributes:
        frozen: The first hour of each type in the round. Staged rows have already been assigned to
            the buckets of the round; rows that are staged later belong to later buckets.
        hours: By type, all hours of the round in ascending order.
        offsets: By type, the staging positions (next Kafka offsets to stage) at the time when rows
            were assigned.
        cut: The cut (a set of offsets up to which records count) that allows the buckets to be
            closed.
        overrides: By type, an operator's order to close the bucket although data is missing; empty
            for a regular round.
    """

    frozen: Sequence[Frontier]
    hours: Mapping[str, Sequence[Hour]]
    offsets: Mapping[str, tuple[StagingPosition, ...]]
    cut: ClosingCut
    overrides: Mapping[str, Override]

    def following_hours(self, types: Collection[str]) -> list[tuple[Frontier, ...]]:
        """Return the hours of the round after the first hour of each type.

        The first hour of a type is compared with all audit records that arrived late, so the
        returned hours are compared only with the audit records of their own hour.

        Args:
            types: Event types to include, whose first hour can be sealed (its content fixed).

        Returns:
            The hours of each type in ascending order; types with only one hour are omitted.
        """
        return [
            tuple(
                dataclasses.replace(f, hour=hour, settled_next=self.cut.audit_next)
                for hour in hours
            )
            for f in self.frozen
            if f.event_type in types and (hours := self.hours[f.event_type][1:])
        ]


@dataclasses.dataclass
class RoundDecisions:
    """Decisions about the hourly buckets of one round: which are sealed, and which stay open.

    A round is a set of buckets that are verified together. A seal fixes the content of a bucket and
    its grade, which states whether the bucket is complete.

    Attributes:
        chains: Seals of consecutive hours by event type, starting with the first hour of the round.
            Types whose first bucket stays open are omitted.
        unaudited: Rows for the ledger's table `unaudited`, one for each bucket with events that
            have no audit record.
        refused: Buckets that are incomplete, with human-readable descriptions of what is missing.
        unwritable: Buckets with rows that cannot be written. Each element contains the hour, the
            failed step of closing, and human-readable reasons.
        conflicts: New conflicts (contradictory audit records), which require an operator's
            override.
    """

    chains: dict[str, list[Seal]] = dataclasses.field(default_factory=dict)
    unaudited: list[Mapping[str, Any]] = dataclasses.field(default_factory=list)
    refused: list[tuple[Frontier, tuple[str, ...]]] = dataclasses.field(default_factory=list)
    unwritable: list[tuple[Frontier, ClosingPhase, tuple[str, ...]]] = dataclasses.field(
        default_factory=list
    )
    conflicts: list[Conflict] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sealer:
    """Decides which hourly buckets can be closed, and seals them in the ledger.

    A seal fixes the content and the grade of a bucket before the bucket is written to storage. The
    grade states whether the bucket is complete.

    Attributes:
        engine: Compares rows with audit records.
        database: Database of the ledger.
        lease: Lease of the closer, the process that closes buckets.
        sites: Interface to the Kafka clusters of all sites.
        progress: Interface to the progress of staging (copying Kafka records to storage).
        clock: Clock for the current time.
        deadline_ms: Time from the end of an hour to its deadline, in milliseconds. After the
            deadline, a bucket is closed even if sources or events are missing.
    """

    engine: Engine
    database: Database
    lease: Lease
    sites: SiteClusters
    progress: StagingProgress
    clock: Clock
    deadline_ms: int

    def prove_round(self, closing_round: ClosingRound) -> RoundDecisions:
        """Verify the buckets of a round, and decide which of them to seal.

        A round is a set of hourly buckets that are closed together. Sealing a bucket fixes its
        content. The buckets of a type are verified in order, up to the first one that must stay
        open. The ledger (the ETL's state database) is not changed; pass the result to `seal`.

        Args:
            closing_round: The buckets. Staged rows must already be assigned to them.

        Returns:
            The seals to store, and the buckets that must stay open with the reasons.

        Raises:
            Unreadable: A staged file is missing or damaged and must be staged again first.
            Unavailable: Storage or the ledger does not answer.
        """
        context = DecisionContext(
            closing_round.cut,
            accepted_gaps(self.database),
            self.deadline_ms,
            conflicts(self.database),
            losses(self.database),
            reporters(self.database),
        )
        decisions = RoundDecisions()
        self._prove_chains(
            [(f,) for f in closing_round.frozen], {}, closing_round, context, decisions
        )
        later = closing_round.following_hours(decisions.chains)
        asked = [f for chain in later for f in chain]
        proofs = self.engine.prove_by_sums(asked, closing_round.cut.audit_next)
        known = {_key(f): proof for f, proof in zip(asked, proofs, strict=True) if proof}
        self._prove_chains(later, known, closing_round, context, decisions)
        return decisions

    def _prove_chains(
        self,
        chains: Sequence[Sequence[Frontier]],
        known: Mapping[_Key, Proof],
        closing_round: ClosingRound,
        context: DecisionContext,
        decisions: RoundDecisions,
    ) -> None:
        # Decide on the hours of each type in turn, up to the first one that must stay open. Hours
        # without a known proof are proved together with those of other types.
        unwritable = self._find_unwritable(
            [f for chain in chains for f in chain], closing_round.overrides
        )
        alive = list(chains)
        for at in range(max(map(len, chains), default=0)):
            alive = [chain for chain in alive if at < len(chain)]
            asked = [chain[at] for chain in alive if _key(chain[at]) not in unwritable]
            decisions.unwritable += [
                (f, *unwritable[_key(f)])
                for f in (chain[at] for chain in alive)
                if _key(f) in unwritable and f.event_type not in decisions.chains
            ]
            unknown = [f for f in asked if _key(f) not in known]
            proofs = self.engine.prove(unknown, closing_round.cut.audit_next) if unknown else {}
            sealed = {
                f.event_type
                for f in asked
                if self._decide(
                    f, known.get(_key(f)) or proofs[f.event_type], closing_round, context, decisions
                )
            }
            alive = [chain for chain in alive if chain[at].event_type in sealed]

    def _decide(
        self,
        f: Frontier,
        proof: Proof,
        closing_round: ClosingRound,
        context: DecisionContext,
        decisions: RoundDecisions,
    ) -> bool:
        # Add the decision on one hour, and return whether the hour can be sealed.
        override = closing_round.overrides.get(f.event_type)
        offsets = closing_round.offsets[f.event_type]
        if seal := decide_seal(f, proof, offsets, override, context):
            decisions.chains.setdefault(f.event_type, []).append(seal)
            if file := proof.unaudited_file:
                decisions.unaudited.append(
                    file.ledger_row(closing_round.cut.audit_next, self.clock.now_ms())
                )
        elif f.event_type not in decisions.chains:
            decisions.refused.append((f, (*proof.findings, *proof.unknown)))
            decisions.conflicts += [
                Conflict(
                    event_type=f.event_type,
                    hour_s=f.hour.start_s,
                    range_id=range_id,
                    what=what,
                    found_at_ms=self.clock.now_ms(),
                )
                for range_id, what in proof.second_readings[:FINDINGS_MAX]
            ]
        return seal is not None

    def _find_unwritable(
        self, frontiers: Sequence[Frontier], overridden: Collection[str]
    ) -> dict[_Key, tuple[ClosingPhase, tuple[str, ...]]]:
        # Return the hours that have rows with unusable schemas, and the reasons. Types with an
        # override close without such rows, unless the ledger's row of the schema is damaged,
        # because that can be repaired.
        ids = read_assigned_schema_ids(self.database, frontiers)
        schemas = read_schemas_by_id(self.database, set().union(*ids)) if any(ids) else {}
        found = {}
        for f, own in zip(frontiers, ids, strict=True):
            is_damaged = any(isinstance(schemas.get(s), DamagedRow) for s in own)
            why = tuple(
                str(x)
                for s in sorted(own)
                if (x := find_schema_error(f.event_type, s, schemas.get(s)))
            )
            if why and (is_damaged or f.event_type not in overridden):
                found[_key(f)] = (
                    ClosingPhase.LEDGER if is_damaged else ClosingPhase.UNWRITABLE,
                    why,
                )
        return found

    def seal(
        self, closing_round: ClosingRound, decisions: RoundDecisions, all_types: set[str]
    ) -> None:
        """Store the seals of a round in the ledger (the ETL's state database) in one transaction.

        A seal fixes the content and the grade of a bucket. Lost records that are accepted by an
        operator's override are recorded in the same transaction.

        Args:
            closing_round: The round, which is a set of hourly buckets that are closed together.
            decisions: Result of `prove_round` for this round.
            all_types: All event types. Lost records of control topics (audit records, host reports)
                are accepted only if every type has an override.

        Raises:
            StaleDriver: Another closer has taken over the lease.
        """
        sealed = [f for f in closing_round.frozen if f.event_type in decisions.chains]
        by_source = {
            (r.host_id, r.source): r
            for f in sealed
            for r in closing_round.cut.waived.get(f.event_type, ())
        }
        silent = find_silent_sources(by_source.values(), self.progress.reporters())
        forced = [f.event_type for f in sealed if f.event_type in closing_round.overrides]
        gaps, checks = self._acceptable_gaps(forced, closing_round.overrides, all_types)
        together = ledger.SealEffects(silent, decisions.unaudited, gaps, checks)
        ledger.seal(self.database, self.lease, decisions.chains, sealed, together)

    def _acceptable_gaps(
        self, forced: Sequence[str], overrides: Mapping[str, Override], all_types: set[str]
    ) -> tuple[list[OffsetGap], list[EdgeCheck]]:
        # Return the offset gaps that the overrides accept, and new edge checks of their topics.
        topics = (
            list_accepted_topics(forced, all_overridden=all_types <= set(overrides))
            & self.sites.gaps().keys()
        )
        if not forced or not topics:
            return [], []
        try:
            found, checks = self.sites.find_acceptable_gaps(topics)
        except Unavailable as error:  # the gaps remain, and later hours need overrides of their own
            _LOG.error("the gaps of %s are not accepted yet: %s", sorted(topics), error)
            return [], []
        if stale := sorted(topics - {h.topic for h in found}):
            _LOG.error(
                "the gaps of %s are not accepted: the topic does not exist, or the mirror's "
                "position belongs to a deleted topic of this name, or on the central cluster "
                "the topic ends before the staged offsets. Reset the mirror's position "
                "(`hourmark mirror reset-offsets`), then repeat the override",
                stale,
            )
        now_ms, reason = self.clock.now_ms(), overrides[forced[0]].reason
        return [dataclasses.replace(h, accepted_at_ms=now_ms, reason=reason) for h in found], checks


def _key(frontier: Frontier) -> _Key:
    return frontier.event_type, frontier.hour.start_s


class DecisionContext(NamedTuple):
    """Inputs of `decide_seal` that are the same for all buckets of one round.

    Attributes:
        cut: The Kafka offsets of the round, and the log sources that its hours no longer wait for.
        accepted: Lost records (offset gaps) that operators' overrides have accepted.
        deadline_ms: Time from the end of an hour to its deadline, in milliseconds. After the
            deadline, a bucket is closed even if sources or events are missing.
        conflicts: Known conflicts (contradictory audit records) by event type.
        losses: Data losses that hosts have reported.
        reporters: Latest report of each log source on each host.
    """

    cut: ClosingCut
    accepted: Collection[OffsetGap]
    deadline_ms: int
    conflicts: Mapping[str, Sequence[Conflict]] = {}
    losses: Sequence[HostLoss] = ()
    reporters: Sequence[ReportedSource] = ()


def decide_seal(
    frontier: Frontier,
    proof: Proof,
    offsets: tuple[StagingPosition, ...],
    override: Override | None,
    context: DecisionContext,
) -> Seal | None:
    """Decide whether an hourly bucket can be sealed, and with which grade.

    A seal fixes the content of a bucket before it is written. Its grade is one of these:

    - `proved`: All sources have delivered, and the rows match the audit records.
    - `timed_out`: Sources or events are missing, and the deadline has passed.
    - `forced`: An operator's override closes the bucket, or has accepted lost records that may
      belong to it.

    Contradictory audit records keep the bucket open even after the deadline, unless an override
    closes it. The function performs no I/O.

    Args:
        frontier: Event type and hour of the bucket.
        proof: Comparison of the bucket's rows with the audit records.
        offsets: Next Kafka offsets to stage when the bucket's rows were fixed.
        override: The operator's order to close this bucket; None if there is none.
        context: Inputs that are the same for all buckets of the round.

    Returns:
        The seal; None if the bucket must stay open.
    """
    late = context.cut.taken_at_ms >= frontier.times_out_ms(context.deadline_ms)
    conflicting = tuple(
        dict.fromkeys(
            (
                *format_blocking_conflicts(context.conflicts, frontier),
                *(what for _, what in proof.second_readings),
            )
        )
    )
    if override is None and (conflicting or proof.unknown or (proof.findings and not late)):
        return None
    sources = [
        f"source {r.source} of {r.kind} {r.host_name} ({r.host_id}) {_why_waived(r, frontier)}"
        for r in context.cut.waived.get(frontier.event_type, ())
    ]
    promises = [f"not kept: {finding}" for finding in proof.findings]
    gaps = [
        f"accepted: {h.what} ({h.reason})"
        for h in context.accepted
        if _must_be_named(h, frontier, proof, override)
    ]
    if override is not None:
        skipped = [
            f"not verified: {what}"
            for what in (*context.cut.unverified.get(frontier.event_type, ()), *proof.unknown)
        ]
        twice = limit_findings([f"read otherwise: {what}" for what in conflicting], 0)
        grade, waived = (
            Grade.FORCED,
            (override.manifest_text, *twice, *skipped, *sources, *promises, *gaps),
        )
    else:
        grade = Grade.FORCED if gaps else Grade.TIMED_OUT if sources or promises else Grade.PROVED
        waived = (*limit_lines(sources), *promises, *gaps)
    twice_read = [c.range_id for c in find_blocking_conflicts(context.conflicts, frontier)] + [
        range_id for range_id, _ in proof.second_readings
    ]
    lacks = proof.lacks | to_incomplete_ranges([*dict.fromkeys(twice_read)], len(gaps))
    lost, unknown = sum_losses_in_hour(frontier.hour, frontier.sources, context.losses)
    return Seal(
        grade=grade.value,
        method=proof.method,
        cut_at_ms=context.cut.taken_at_ms,
        audit_next=context.cut.audit_next,
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
        unrepeatable=find_unrepeatable_sources(frontier.hour, frontier.sources, context.reporters),
        leaves_out=override is not None,
        lacks=None if grade is Grade.PROVED else lacks,
        hour_s=frontier.hour.start_s,
    )


def _why_waived(r: ReportedSource, f: Frontier) -> str:
    if (r.caught_up_at_ms or 0) >= f.awaited_ms:
        return "appeared while the hour was being cut"
    event = "the start of the back-fill" if f.noticed_ms > f.hour.end_ms else "the hour's end"
    return f"had not caught up with {event}"


def _must_be_named(gap: OffsetGap, f: Frontier, proof: Proof, override: Override | None) -> bool:
    # Return whether an accepted gap must be named in the seal of this hour. Missing audit records
    # or reports concern every hour that had begun by then. Missing events matter only if promises
    # are not kept, or if an override closes the hour: a second version of them may satisfy the
    # promise.
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
    to_backfill: Mapping[str, Sequence[int]] = {},
    *,
    hours_max: int = HOURS_MAX,
    bytes_max: int = BYTES_MAX,
) -> dict[str, tuple[Hour, ...]]:
    """Choose the hourly buckets of the next round, which are closed together.

    The next hour of each type is chosen, oldest first. If the limits allow it, later hours of the
    same types are added in turn, one per type at a time.

    Args:
        ready: The next hour to close of each type that may close.
        watermarks_ms: By type, the time in Unix milliseconds up to which hours may close.
        unlisted_bytes: By type and hour (Unix seconds), bytes of staged events that are not
            assigned to a bucket yet; 0 for missing hours.
        to_backfill: By type, the hours before its first hour (Unix seconds, ascending) that get a
            bucket. Other hours before the first hour are skipped.
        hours_max: Maximum number of hours of all types.
        bytes_max: Maximum total bytes. Later hours that exceed it are not added.

    Returns:
        By type, the hours of the round in ascending order. If there are more than `hours_max`
        types, the types with the newest next hours are missing.
    """
    chosen = sorted(ready, key=lambda f: (f.hour, f.event_type))[:hours_max]
    planned = {f.event_type: [f.hour] for f in chosen}
    later = {f.event_type: _later_hours(f, to_backfill.get(f.event_type, ())) for f in chosen}
    room_hours = hours_max - len(chosen)
    room_bytes = bytes_max - sum(
        unlisted_bytes.get((f.event_type, f.hour.start_s), 0) for f in chosen
    )
    growing = collections.deque(planned)
    while growing and room_hours > 0:
        event_type = growing.popleft()
        following = next(later[event_type])
        size = unlisted_bytes.get((event_type, following.start_s), 0)
        if following.end_ms <= watermarks_ms[event_type] and size <= room_bytes:
            planned[event_type].append(following)
            room_hours, room_bytes = room_hours - 1, room_bytes - size
            growing.append(event_type)
    return {event_type: tuple(hours) for event_type, hours in planned.items()}


def _later_hours(frontier: Frontier, to_backfill: Sequence[int]) -> Iterator[Hour]:
    # Yield the hours after the frontier's in the order in which they close, without end.
    hour, first = frontier.hour, frontier.first_hour
    yield from (Hour(s, hour.length_s) for s in to_backfill if hour.start_s < s < first.start_s)
    hour = max(hour.next(), first)
    while True:
        yield hour
        hour = hour.next()
