"""Runs closing, one poll at a time, and resumes after a crash.

A frozen hour without a seal was interrupted: it is unfrozen and proved again. A sealed hour is
written and published again; if its bucket already exists, that bucket's marker is authoritative.
Every step can therefore be interrupted at any point and repeated.

The decisions are pure functions in other modules: which sources are awaited (`readiness`), when a
cut is complete (`cut`), how many hours a round includes and how a proof is graded (`sealing`),
which types are paused and until when (`holds`). Servers are accessed through `CloserDependencies`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hourmark.config.loading import Config
from hourmark.errors import Finding, Unavailable
from hourmark.kafka.topic_names import AUDIT as AUDIT_TOPIC
from hourmark.kafka.topic_names import CONTROL, events_topic
from hourmark.records.hours import Hour
from hourmark_etl.closing.backfill import advance_backfill
from hourmark_etl.closing.codec import choose_codec
from hourmark_etl.closing.cut.cut import ClosingCut, CutTaker, Waiting, limit_lines
from hourmark_etl.closing.cut.forced import select_overridden_frontiers, take_forced_cut
from hourmark_etl.closing.cut.readiness import DuplicateHostWatch
from hourmark_etl.closing.holds import RETRY_SECONDS, ClosingHolds, HoldReason
from hourmark_etl.closing.notices import BackfillNotices
from hourmark_etl.closing.ownership import check_foreign_root, check_not_published
from hourmark_etl.closing.ports import CloserDependencies
from hourmark_etl.closing.proof.readings import build_conflicts
from hourmark_etl.closing.proof.unaudited import find_leftover_files
from hourmark_etl.closing.publication.port import Unwritable
from hourmark_etl.closing.publishing import LedgerChanged, Publisher, PublishResult
from hourmark_etl.closing.reporting import BlockerWriter, format_closed_buckets
from hourmark_etl.closing.sealing import ClosingRound, RoundDecisions, Sealer, plan_round
from hourmark_etl.errors import BadRecord, DamagedRow, DataLoss, ForeignLedger, Unreadable
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger.conflicts import (
    conflicts,
    format_blocking_conflicts,
    record_compared_files,
    reset_damaged_conflicts,
)
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.hosts.sites import check_sites
from hourmark_etl.ledger.overrides import OVERRIDABLE_SEALED, Override, overrides
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap
from hourmark_etl.ledger.partitions.read_errors import read_errors
from hourmark_etl.ledger.staged.staged_files import (
    find_types_needing_file,
    format_spans,
    read_ledger_file,
    remove_lost_file,
)
from hourmark_etl.model import AUDIT, ClosingPhase, Frontier, HourState
from hourmark_etl.storage import StorageError, delete_all
from hourmark_etl.topics import CentralTopicNames

CHECK_SECONDS: Final = 30.0  # between searches for gaps; retention takes days to overtake a mirror
_LOG = logging.getLogger(__name__)


class Closer:
    """Closes the hourly buckets of all event types, in the order of their hours.

    A bucket contains the events of one event type and hour. Closing a bucket publishes it on
    storage and records it in the ledger (the ETL's state database). A bucket is closed when its
    content has been verified as complete, when its deadline has passed, or when an operator orders
    it. Creating an instance acquires a lease, so that an older closer can no longer change
    anything. Call `step` repeatedly. Not thread-safe.

    Args:
        ports: Storage, ledger, Kafka clusters and other services to use.
        config: The complete configuration.

    Attributes:
        lease: The acquired lease. Cleanup also uses it.
    """

    def __init__(self, ports: CloserDependencies, config: Config) -> None:
        self._ports, self._config, self._database, self._clock = (
            ports,
            config,
            ports.database,
            ports.clock,
        )
        self.lease = ports.database.acquire(CLOSER)  # fences this closer; cleanup uses it too
        self._sites = ports.sites(self.lease)
        self._audits = CentralTopicNames.from_settings(config.kafka).audits
        check_sites(ports.database, self.lease, self._audits)
        self._taker = CutTaker(
            self._sites, ports.progress, self._audits, ports.clock, config.etl.deadline_seconds
        )
        self._publisher = Publisher(
            engine=ports.engine,
            storage=ports.storage,
            database=ports.database,
            lease=self.lease,
            clock=ports.clock,
            executor=ports.executor,
            codec=choose_codec(ports.database, config.etl.avro_codec),
        )
        self._sealer = Sealer(
            engine=ports.engine,
            database=ports.database,
            lease=self.lease,
            sites=self._sites,
            progress=ports.progress,
            clock=ports.clock,
            deadline_ms=round(config.etl.deadline_seconds * 1000),
        )
        self._blockers = BlockerWriter(
            ports.database, self.lease, ports.clock, config.parsing.bucket_seconds
        )
        self._duplicate_hosts = DuplicateHostWatch()
        self._holds = ClosingHolds()
        self._notices = BackfillNotices(ports.database, self.lease, ports.clock)
        self._checked_at_s: float | None = None
        self._interrupted = True  # assume that the previous closer crashed
        self._old_attempts: list[str] = []

    def close(self) -> None:
        """Close the connections to the Kafka clusters.

        The lease is not released; it is valid until another closer acquires it.
        """
        self._sites.close()

    def step(self) -> Waiting | int:
        """Close all hourly buckets that can be closed now, for all event types.

        Progress is stored in the ledger (the ETL's state database). After an error or a crash, the
        next call continues from there. If a staged file (a copy of Kafka records) cannot be read,
        this call reads its records from Kafka again and returns 0.

        Returns:
            The number of buckets that were closed; 0 if an attempt closed none. If no bucket can be
            closed yet, a `Waiting` that describes what the next buckets wait for.

        Raises:
            Unavailable: A server does not respond. The next call continues.
            Finding: An operator must first fix the problem that the message describes.
            EtlStop: The process must end, for example because another closer has taken over the
                lease.
        """
        try:
            try:
                if self._interrupted:
                    self._recover()
                self._interrupted = True
                outcome = self._poll()
            except Unreadable as error:
                self._stage_again(error)
                return 0
        except Unavailable as error:
            if not isinstance(error, DamagedRow) or error.event_type is None:
                self._report_unavailable(error)
                raise
            _LOG.error("%s", error)
            self._hold_types({error.event_type}, ClosingPhase.LEDGER, str(error))
            return 0
        self._interrupted = False
        return outcome

    def _poll(self) -> Waiting | int:
        frontiers, given = self._frontiers(), overrides(self._database)
        self._delete_old_attempts(frontiers)
        if self._apply_overrides(select_overridden_frontiers(frontiers, given), given):
            frontiers = self._frontiers()
        for alarm in self._duplicate_hosts.observe(self._ports.progress.reporters()):
            _LOG.error("%s", alarm)
        if sealed := self._due_frontiers(frontiers, HourState.SEALED):
            published, publication = self._publisher.publish(sealed), self._publisher.publication
            if published.failures and publication.can_select_deleted:
                self._old_attempts = publication.list_attempts()
            return self._record_published_hours(published)
        opened = self._due_frontiers(frontiers, HourState.OPEN)
        if forced := select_overridden_frontiers(opened, given):
            return self._close_forced(forced, given)
        if advance_backfill(self._database, self.lease, opened, None).has_moved:
            frontiers = self._frontiers()
            opened = self._due_frontiers(frontiers, HourState.OPEN)
        opened = self._notices.apply(opened)
        self._check_if_due([f.event_type for f in frontiers])
        conflicting = self._conflicts_by_type(frontiers)
        unread, for_all = self._read_errors_by_type()
        out = conflicting.keys() | unread.keys()
        cut = self._taker.poll([f for f in opened if f.event_type not in out])
        if isinstance(cut, Waiting):
            self._update_blockers(
                frontiers,
                {
                    **cut.by_type,
                    **dict.fromkeys(
                        self._ended_types(frontiers) if for_all else (),
                        (ClosingPhase.UNREADABLE, for_all),
                    ),
                    **{t: (ClosingPhase.UNREADABLE, what) for t, what in unread.items()},
                    **{
                        t: (ClosingPhase.CONFLICT, limit_lines(what))
                        for t, what in conflicting.items()
                    },
                    **{
                        f.event_type: (ClosingPhase.LEDGER, f.alarm)
                        for f in frontiers
                        if f.state is HourState.DAMAGED
                    },
                },
            )
            return cut
        self._sites.check(
            cut.watermarks_ms
        )  # a topic may have been recreated while the cut was taken
        gaps = self._sites.gaps()
        if any(topic in gaps for topic in CONTROL):
            return 0
        cut = cut.without_types({t for t in cut.watermarks_ms if events_topic(t) in gaps})
        self._compare_audit_files(cut)
        return self._close_hours_of_cut(cut)

    def _apply_overrides(
        self, chosen: Sequence[Frontier], overrides_by_type: Mapping[str, Override]
    ) -> bool:
        # An override is an operator's instruction to close an hour despite missing data. Checks
        # against an unreadable closed bucket are skipped only if the override is newer than the
        # seal. Return whether a seal was changed, so that frontiers must be read again.
        changed = False
        for f in chosen:
            held, seal = self._holds.reason(f.event_type), f.seal
            override = overrides_by_type[f.event_type]
            if held is None or held.phase not in OVERRIDABLE_SEALED:
                continue
            self._holds.allow_retry(f.event_type)
            if held.phase is ClosingPhase.UNWRITABLE and seal is not None:
                gives_up = override.requested_at_ms > seal.cut_at_ms
                if not seal.leaves_out or (gives_up and not seal.gives_up):
                    ledger.omit_unwritable_rows(
                        self._database, self.lease, f, override.manifest_text, gives_up=gives_up
                    )
                    changed = True
        return changed

    def _read_errors_by_type(self) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        # Return the messages by event type, and those of control topics, which block all types.
        naming, of_type, for_all = (
            CentralTopicNames.from_settings(self._config.kafka),
            dict[str, tuple[str, ...]](),
            tuple[str, ...](),
        )
        for _, error in sorted(read_errors(self._database).items()):
            event_type = naming.type_of(error.topic)
            if event_type is None:
                for_all = (*for_all, str(error))
            else:
                of_type[event_type] = (*of_type.get(event_type, ()), str(error))
        return of_type, for_all

    def _ended_types(self, frontiers: Collection[Frontier]) -> list[str]:
        now_ms = self._clock.now_ms()
        return [f.event_type for f in frontiers if f.hour.end_ms <= now_ms]

    def _conflicts_by_type(self, frontiers: Collection[Frontier]) -> dict[str, tuple[str, ...]]:
        found = conflicts(self._database)
        return {
            f.event_type: what for f in frontiers if (what := format_blocking_conflicts(found, f))
        }

    def _compare_audit_files(self, cut: ClosingCut) -> None:
        # Contradictory audit records are stored as conflicts, which block their hours, before
        # anything is frozen. An unreadable audit file is skipped as long as no type in the cut needs it.
        if damaged := reset_damaged_conflicts(self._database, self.lease):
            _LOG.error("%s. All audit files are compared again", damaged)
        lost = {
            path
            for path in self._holds.unrestorable_files
            if not find_types_needing_file(self._database, path) & cut.watermarks_ms.keys()
        }
        while compared := self._ports.engine.compare(lost):
            frontiers, now_ms = {f.event_type: f for f in self._frontiers()}, self._clock.now_ms()
            length_s = self._config.parsing.bucket_seconds
            found = [
                c
                for d in compared.differences
                for c in build_conflicts(d, frontiers, length_s, now_ms)
            ]
            record_compared_files(self._database, self.lease, compared.files, found)
            if compared.differences:
                _LOG.error(
                    "%d ranges have audit records that differ, and %d buckets wait for an "
                    "override (`hourmark bucket why`); check whether delivery services run "
                    "different versions:\n  %s",
                    len(compared.differences),
                    len({(c.event_type, c.hour_s) for c in found}),
                    "\n  ".join(limit_lines([d.text(length_s) for d in compared.differences])),
                )

    def _stage_again(self, unreadable: Unreadable) -> None:
        _LOG.error("%s", unreadable)
        reason = (
            "its records were staged again, but still cannot be read"
            if self._holds.is_restaged(unreadable.path)
            else ""
        )
        types = find_types_needing_file(self._database, unreadable.path) | (
            {unreadable.event_type} if unreadable.event_type else set()
        )
        phase = ClosingPhase.STAGED  # an override can resolve this
        try:
            self._holds.add_restaged_file(self._ports.restage(self.lease, unreadable.path))
        except DamagedRow as damaged:
            phase, reason = ClosingPhase.LEDGER, str(damaged)
        except (DataLoss, BadRecord) as lost:
            reason = str(lost)
            types -= self._accept_lost_file(unreadable.path, types)
        except Unavailable as error:
            if not types:
                raise
            phase, reason = _phase_of(error), f"{unreadable}: {error}"
        if reason:
            self._holds.add_unrestorable_file(unreadable.path)
            if types:
                _LOG.error(
                    "%s; these event types cannot close until the file can be read: %s",
                    reason,
                    ", ".join(sorted(types)),
                )
                self._hold_types(types, phase, reason)

    def _hold_types(self, types: Collection[str], phase: ClosingPhase, reason: str) -> None:
        for f in self._frontiers():
            if f.event_type in types:
                self._holds.hold_with_backoff(
                    f.event_type,
                    HoldReason(f.hour, phase, (reason,)),
                    self._clock.monotonic_s(),
                )

    def _accept_lost_file(self, path: str, types: Collection[str]) -> set[str]:
        # Only types whose hour has an operator's override accept the loss. They are returned.
        given, known = overrides(self._database), read_ledger_file(self._database, path)
        chosen = select_overridden_frontiers(
            (f for f in self._frontiers() if f.event_type in types), given
        )
        for f in chosen:
            override, is_audit = given[f.event_type], known.file.kind == AUDIT
            topics = self._audits.keys() if is_audit else self._topics([f]).types.keys()
            what = (
                f"{format_spans([s for s in known.file.spans if s.topic in topics])} are lost with "
                f"the staged file {path}"
            )
            topic, of_type = (
                (AUDIT_TOPIC, f.event_type) if is_audit else (events_topic(f.event_type), None)
            )
            now_ms, reason = self._clock.now_ms(), override.reason
            gap = OffsetGap(
                topic=topic,
                accepted_at_ms=now_ms,
                what=what,
                reason=reason,
                type=of_type,
                lost_end=False,
            )
            remove_lost_file(self._database, self.lease, known, f, gap, override.manifest_text)
            _LOG.error("%s %s: %s; an override accepted this loss", f.event_type, f.hour, what)
        return {f.event_type for f in chosen}

    def _check_if_due(self, types: Collection[str]) -> None:
        now_s = self._clock.monotonic_s()
        if self._checked_at_s is None or now_s - self._checked_at_s >= CHECK_SECONDS:
            self._sites.check(types)
            self._checked_at_s = now_s

    def _close_hours_of_cut(self, cut: ClosingCut) -> int:
        # A type whose hour fails its proof takes no further part in this cut.
        closed = 0
        while chosen := self._allowed_frontiers(cut):
            backfill = advance_backfill(
                self._database, self.lease, chosen, cut.audit_next, cut.watermarks_ms
            )
            if backfill.has_moved:
                continue
            is_backlog = any(
                f.hour.next().end_ms <= cut.watermarks_ms[f.event_type] for f in chosen
            )
            hours = plan_round(
                chosen,
                cut.watermarks_ms,
                ledger.sum_unassigned_bytes(self._database) if is_backlog else {},
                backfill.hours,
            )
            taken = [f for f in chosen if f.event_type in hours]
            closed += self._close_hours(taken, hours, cut, {})
            now = {f.event_type: f.hour for f in self._frontiers()}
            cut = cut.without_types({f.event_type for f in taken if now[f.event_type] == f.hour})
        return closed

    def _allowed_frontiers(self, cut: ClosingCut) -> list[Frontier]:
        frontiers = self._frontiers()
        conflicting = self._conflicts_by_type(frontiers)
        return [
            f
            for f in self._notices.apply(self._due_frontiers(frontiers, HourState.OPEN))
            if f.event_type not in conflicting and _is_under(cut, f)
        ]

    def _close_forced(self, forced: Sequence[Frontier], given: Mapping[str, Override]) -> int:
        for f in forced:
            _LOG.warning(
                "closing %s %s by force because of an override: %s",
                f.event_type,
                f.hour,
                given[f.event_type].reason,
            )
        cut = take_forced_cut(forced, self._sites, self._ports.progress, self._audits, self._clock)
        self._compare_audit_files(cut)
        hours = {f.event_type: (f.hour,) for f in forced}
        closed = self._close_hours(forced, hours, cut, given)
        # All promises below this cut are staged too, so empty hours need no override of their own.
        following = [
            f
            for f in self._due_frontiers(self._frontiers(), HourState.OPEN)
            if f.event_type in hours
            and f.previous_hour is not None
            and cut.audit_next.reaches(f.settled_next)
        ]
        ended_ms = dict.fromkeys(hours, cut.taken_at_ms)
        advance_backfill(self._database, self.lease, following, cut.audit_next, ended_ms)
        return closed

    def _close_hours(
        self,
        chosen: Sequence[Frontier],
        hours: Mapping[str, Sequence[Hour]],
        cut: ClosingCut,
        overrides_by_type: Mapping[str, Override],
    ) -> int:
        # Hours that are not proved complete are unfrozen and stay open.
        if not (chosen := self._frontiers_without_bucket(chosen)):
            return 0
        hours = {f.event_type: hours[f.event_type] for f in chosen}
        offsets = ledger.freeze(
            self._database, self.lease, chosen, self._topics(chosen).by_type(), hours
        )
        frozen = [dataclasses.replace(f, state=HourState.FROZEN) for f in chosen]
        round_ = ClosingRound(
            frozen=frozen, hours=hours, offsets=offsets, cut=cut, overrides=overrides_by_type
        )
        verdict = self._sealer.prove_round(round_)
        if verdict.refused or verdict.unwritable:
            self._unfreeze_refused(verdict)
        if not verdict.chains:
            return 0
        self._sealer.seal(round_, verdict, {f.event_type for f in self._frontiers()})
        if overrides_by_type:
            self._checked_at_s = None  # gaps may have been accepted
        for event_type in verdict.chains:
            self._holds.resolve(event_type)
        return self._record_published_hours(
            self._publisher.publish(self._due_frontiers(self._frontiers(), HourState.SEALED))
        )

    def _frontiers_without_bucket(self, chosen: Sequence[Frontier]) -> list[Frontier]:
        # Types whose bucket folder denies access are put on hold and left out.
        try:
            storage = self._ports.storage
            unchecked = [f for f in chosen if f.event_type in self._holds.unchecked_types]
            failures = [
                *check_foreign_root(storage, unchecked, ()),
                *check_not_published(storage, chosen),
            ]
        except ForeignLedger:
            # If another closer has published it in the meantime, this closer is stale, not the
            # ledger.
            self._database.check_lease(self.lease)
            raise
        for f, error in failures:
            self._hold(f, ClosingPhase.STORAGE, (str(error),))
            _LOG.error("%s %s stays open: %s", f.event_type, f.hour, error)
        held = {f.event_type for f, _ in failures}
        self._holds.remove_unchecked_types({f.event_type for f in unchecked} - held)
        return [f for f in chosen if f.event_type not in held]

    def _unfreeze_refused(self, verdict: RoundDecisions) -> None:
        unwritable = [(f, ()) for f, *_ in verdict.unwritable]
        ledger.unfreeze_hours(self._database, self.lease, [*verdict.refused, *unwritable])
        for f, phase, why in verdict.unwritable:
            self._hold(f, phase, why)
            _LOG.error(
                "%s %s stays open, because some of its rows cannot be written to a bucket: %s",
                f.event_type,
                f.hour,
                "; ".join(why),
            )
        if verdict.conflicts:
            record_compared_files(self._database, self.lease, (), verdict.conflicts)
        for conflict in verdict.conflicts:
            _LOG.error(
                "%s waits for an override (`hourmark bucket why`): %s",
                conflict.event_type,
                conflict.what,
            )
            self._holds.resolve(conflict.event_type)
        conflicting = {c.event_type for c in verdict.conflicts}
        for f, findings in verdict.refused:
            if f.event_type not in conflicting:
                self._hold(f, ClosingPhase.PROOF, findings)
                _LOG.error(
                    "%s %s is not proved and stays open; retrying in %.0f s. Missing:\n  %s",
                    f.event_type,
                    f.hour,
                    RETRY_SECONDS,
                    "\n  ".join(findings),
                )

    def _recover(self) -> None:
        frontiers = self._frontiers()
        failures = check_foreign_root(
            self._ports.storage, frontiers, ledger.read_closed_types(self._database)
        )
        self._holds.set_unchecked_types({f.event_type for f, _ in failures})
        if frozen := [f for f in frontiers if f.state is HourState.FROZEN]:
            names = ", ".join(f"{f.event_type} {f.hour}" for f in frozen[:20])
            _LOG.info(
                "unfroze %d hours that an interrupted closer had frozen; their proofs are "
                "repeated (%s)",
                len(frozen),
                names,
            )
            ledger.unfreeze_hours(self._database, self.lease, [(f, ()) for f in frozen])
        sealed = [f for f in frontiers if f.state is HourState.SEALED]
        if (
            recovered := self._record_published_hours(self._publisher.find_published(sealed))
            if sealed
            else 0
        ):
            _LOG.info("closed %d hours that an interrupted closer had published", recovered)
        left_over = find_leftover_files(self._ports.storage, self._database)
        self._old_attempts = self._publisher.publication.list_attempts()
        self._database.check_lease(
            self.lease
        )  # a closer that was replaced stops here and deletes nothing
        delete_all(self._ports.storage, left_over)
        self._delete_old_attempts(self._frontiers())

    def _delete_old_attempts(self, frontiers: Collection[Frontier]) -> None:
        # Attempts of interrupted closers and of failed rounds. `frontiers` must have been read after
        # the attempts were listed: see `BucketPublication.can_select_deleted`.
        undecided = any(f.state in (HourState.SEALED, HourState.DAMAGED) for f in frontiers)
        if not self._old_attempts or (undecided and self._publisher.publication.can_select_deleted):
            return
        self._database.check_lease(self.lease)
        delete_all(self._ports.storage, self._old_attempts)
        self._old_attempts = []

    def _record_published_hours(self, published: PublishResult) -> int:
        if published.closings:
            ledger.record_closed_hours(self._database, self.lease, published.closings)
        for closing in published.closings:
            f, manifest = closing.frontier, closing.manifest
            self._holds.release(f.event_type)
            self._ports.metrics.count_closed_bucket(f.due_ms, manifest)
        for line in format_closed_buckets(closing.manifest for closing in published.closings):
            _LOG.info("%s", line)
        for f, error in published.failures:
            self._hold(f, _phase_of_failure(error), (str(error),))
            _LOG.error("%s %s is sealed, but cannot be published: %s", f.event_type, f.hour, error)
        return len(published.closings)

    def _hold(self, f: Frontier, phase: ClosingPhase, what: tuple[str, ...]) -> None:
        self._holds.hold(f.event_type, HoldReason(f.hour, phase, what), self._clock.monotonic_s())

    def _update_blockers(
        self,
        frontiers: Collection[Frontier],
        blockers: Mapping[str, tuple[ClosingPhase, tuple[str, ...]]],
    ) -> None:
        waiting = {
            f.event_type: HoldReason(f.hour, *blockers[f.event_type])
            for f in frontiers
            if f.event_type in blockers
        }
        self._blockers.update({**waiting, **self._holds.reasons})

    def _report_unavailable(self, error: Unavailable) -> None:
        phase = _phase_of(error)
        now_ms, frontiers = self._clock.now_ms(), self._frontiers()
        self._update_blockers(
            frontiers,
            {f.event_type: (phase, (str(error),)) for f in frontiers if f.hour.end_ms <= now_ms},
        )

    def _frontiers(self) -> list[Frontier]:
        return ledger.frontiers(self._database, self._config.parsing.bucket_seconds)

    def _topics(self, chosen: Collection[Frontier]) -> CentralTopicNames:
        return CentralTopicNames.from_settings(self._config.kafka, [f.event_type for f in chosen])

    def _due_frontiers(self, frontiers: Collection[Frontier], state: HourState) -> list[Frontier]:
        now_s = self._clock.monotonic_s()
        return [
            f for f in frontiers if f.state is state and self._holds.is_due(f.event_type, now_s)
        ]


def _phase_of_failure(error: Finding | StorageError) -> ClosingPhase:
    if isinstance(error, Unwritable):
        return ClosingPhase.UNWRITABLE
    if isinstance(error, LedgerChanged):
        return ClosingPhase.LEDGER
    return ClosingPhase.STORAGE if isinstance(error, StorageError) else ClosingPhase.PUBLISHING


def _phase_of(error: Unavailable) -> ClosingPhase:
    return ClosingPhase.STORAGE if isinstance(error, StorageError) else ClosingPhase.SERVERS


def _is_under(cut: ClosingCut, f: Frontier) -> bool:
    return f.awaited_ms <= cut.watermarks_ms.get(f.event_type, 0) and cut.audit_next.reaches(
        f.settled_next
    )
