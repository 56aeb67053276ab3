"""Drives closing, one look at a time, and picks up whatever a crash left.

A frozen hour without a seal was interrupted: it is unfrozen and proved anew. A sealed hour is
written and published again; if its bucket stands already, its marker is the truth. So every step
may be cut off anywhere and repeated.

What is decided stands elsewhere, as pure functions: who is awaited (`readiness`), when a cut is
finished (`cut`), how many hours a round takes on and what becomes of a proof (`sealing`). Servers
stand behind `Ports`.
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
from hourmark_etl.closing.blockers import BlockersKeeper
from hourmark_etl.closing.cut.cut import Cut, CutTaker, Waiting, shortened
from hourmark_etl.closing.cut.forced import forced_cut, overridden
from hourmark_etl.closing.cut.readiness import DuplicateHostWatch
from hourmark_etl.closing.ports import Ports
from hourmark_etl.closing.proof.readings import held
from hourmark_etl.closing.proof.unaudited import unaudited_left_over
from hourmark_etl.closing.publishing import (
    LedgerChanged,
    Published,
    Publisher,
    Unwritable,
    check_foreign_root,
    check_published,
)
from hourmark_etl.closing.sealing import Grading, Round, Sealer, plan_round
from hourmark_etl.closing.told import closed_lines
from hourmark_etl.errors import BadRecord, DamagedRow, DataLoss, ForeignLedger, Unreadable
from hourmark_etl.folders import ATTEMPTS_FOLDER
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger.conflicts import (
    conflict_texts,
    conflicts,
    record_compared,
    reset_if_damaged,
)
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.offset_gaps import OffsetGap
from hourmark_etl.ledger.overrides import Override, overrides
from hourmark_etl.ledger.read_errors import read_errors
from hourmark_etl.ledger.sites import check_sites
from hourmark_etl.ledger.staged_files import (
    format_spans,
    give_up_file,
    read_ledger_file,
    types_needing,
)
from hourmark_etl.model import AUDIT, Frontier, Phase, State
from hourmark_etl.storage import StorageError, delete_all
from hourmark_etl.topics import CentralTopics

RETRY_SECONDS: Final = 10.0  # after a proof that failed: what is missing may be on its way
PAUSE_SECONDS_MAX: Final = (
    600.0  # after a staged file that cannot be made again: somebody has to bring it back
)
CHECK_SECONDS: Final = 30.0  # between looks for gaps; retention takes days to overtake a mirror
_LOG = logging.getLogger(__name__)


class Closer:
    """Closes hours of all types of the ledger; one at work at a time, fenced by its lease."""

    def __init__(self, ports: Ports, config: Config) -> None:
        self._ports, self._config, self._database, self._clock = (
            ports,
            config,
            ports.database,
            ports.clock,
        )
        self.lease = ports.database.acquire(
            CLOSER
        )  # what fences this closer; cleaning up goes by it too
        self._sites = ports.sites(self.lease)
        self._audits = CentralTopics.of(config.kafka).audits
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
            publishers=ports.publishers,
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
        self._blockers = BlockersKeeper(
            ports.database, self.lease, ports.clock, config.parsing.bucket_seconds
        )
        self._duplicate_hosts = DuplicateHostWatch()
        self._not_before_s: dict[str, float] = {}
        self._pauses_s: dict[str, float] = {}
        self._again: set[str] = set()  # files that were staged again
        self._lost: set[str] = set()  # files that could not be
        self._unseen: set[str] = (
            set()
        )  # types of which storage may hold buckets, for all that could be seen
        self._troubles: dict[str, tuple[Hour, Phase, tuple[str, ...]]] = {}
        self._checked_at_s: float | None = None
        self._interrupted = True  # by a crash, for all this closer knows

    def close(self) -> None:
        """Let go of the clusters."""
        self._sites.close()

    def step(self) -> Waiting | int:
        """One poll: how many hours it closed, or what it waits for.

        Unavailable where a server does not answer; the next poll picks up what this one left.
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
                self._say_unavailable(error)
                raise
            _LOG.error("%s", error)
            self._hold_types({error.event_type}, Phase.LEDGER, str(error))
            return 0
        self._interrupted = False
        return outcome

    def _poll(self) -> Waiting | int:
        frontiers, given = self._frontiers(), overrides(self._database)
        if self._give_up_unwritable(overridden(frontiers, given), given):
            frontiers = self._frontiers()
        for alarm in self._duplicate_hosts.feed(self._ports.progress.reporters()):
            _LOG.error("%s", alarm)
        if sealed := self._in_turn(frontiers, State.SEALED):
            return self._finish(self._publisher.publish(sealed))
        opened = self._in_turn(frontiers, State.OPEN)
        if forced := overridden(opened, given):
            return self._close_forced(forced, given)
        self._check_if_due([f.event_type for f in frontiers])
        conflicting = self._conflicting(frontiers)
        unread, for_all = self._unreadable()
        out = conflicting.keys() | unread.keys()
        cut = self._taker.poll([f for f in opened if f.event_type not in out])
        if isinstance(cut, Waiting):
            self._say(
                frontiers,
                {
                    **cut.by_type,
                    **dict.fromkeys(
                        self._ended(frontiers) if for_all else (), (Phase.UNREADABLE, for_all)
                    ),
                    **{t: (Phase.UNREADABLE, what) for t, what in unread.items()},
                    **{t: (Phase.CONFLICT, shortened(what)) for t, what in conflicting.items()},
                    **{
                        f.event_type: (Phase.LEDGER, f.alarm)
                        for f in frontiers
                        if f.state is State.DAMAGED
                    },
                },
            )
            return cut
        self._sites.check(
            cut.watermarks_ms
        )  # again, as a topic may have been recreated while the cut was taken
        gaps = self._sites.gaps()
        if any(topic in gaps for topic in CONTROL):
            return 0
        cut = cut.without({t for t in cut.watermarks_ms if events_topic(t) in gaps})
        self._compare(cut)
        return self._close_under(cut)

    def _give_up_unwritable(
        self, chosen: Sequence[Frontier], given: Mapping[str, Override]
    ) -> bool:
        """Carry out overrides for hours that lack a staged file, or are sealed and cannot be
        written.

        An override that was given before its hour was sealed does not give up a lost bucket:
        storage may be back at the next try. Returns whether seals changed.
        """
        changed = False
        for f in chosen:
            trouble, seal, override = self._troubles.get(f.event_type), f.seal, given[f.event_type]
            if trouble is None or trouble[1] not in (Phase.STAGED, Phase.UNWRITABLE):
                continue
            self._not_before_s.pop(f.event_type, None)
            if trouble[1] is Phase.UNWRITABLE and seal is not None:
                gives_up = override.requested_at_ms > seal.cut_at_ms
                if not seal.leaves_out or (gives_up and not seal.gives_up):
                    ledger.leave_out_rows(
                        self._database, self.lease, f, override.manifest_text, gives_up=gives_up
                    )
                    changed = True
        return changed

    def _unreadable(self) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """By type, which of its partitions cannot be read and why; and the same of promises and
        reports, for which all wait.
        """
        naming, of_type, for_all = (
            CentralTopics.of(self._config.kafka),
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

    def _ended(self, frontiers: Collection[Frontier]) -> list[str]:
        now_ms = self._clock.now_ms()
        return [f.event_type for f in frontiers if f.hour.end_ms <= now_ms]

    def _conflicting(self, frontiers: Collection[Frontier]) -> dict[str, tuple[str, ...]]:
        """Types whose frontier hour an override alone may close, and why."""
        found = conflicts(self._database)
        return {f.event_type: what for f in frontiers if (what := conflict_texts(found, f))}

    def _compare(self, cut: Cut) -> None:
        """Look for ranges that were read twice, and otherwise the second time, before anything is
        frozen by the cut.

        A file that nothing makes readable is left out until a type that needs it is in the cut.
        """
        if damaged := reset_if_damaged(self._database, self.lease):
            _LOG.error("%s. All audit files are compared again", damaged)
        lost = {
            path
            for path in self._lost
            if not types_needing(self._database, path) & cut.watermarks_ms.keys()
        }
        while compared := self._ports.engine.compare(lost):
            frontiers, now_ms = {f.event_type: f for f in self._frontiers()}, self._clock.now_ms()
            length_s = self._config.parsing.bucket_seconds
            found = [c for d in compared.differences for c in held(d, frontiers, length_s, now_ms)]
            record_compared(self._database, self.lease, compared.files, found)
            if compared.differences:
                _LOG.error(
                    "%d ranges have audit records that differ, and %d buckets wait for an "
                    "override (`hourmark bucket why`): do "
                    "delivery services run different versions?\n  %s",
                    len(compared.differences),
                    len({(c.event_type, c.hour_s) for c in found}),
                    "\n  ".join(shortened([d.text(length_s) for d in compared.differences])),
                )

    def _stage_again(self, unreadable: Unreadable) -> None:
        """Where that cannot be, or did not help, the types that need the file are set back; the
        others go on.
        """
        _LOG.error("%s", unreadable)
        trouble = (
            "its records were staged again, and cannot be read again"
            if unreadable.path in self._again
            else ""
        )
        types = types_needing(self._database, unreadable.path) | (
            {unreadable.event_type} if unreadable.event_type else set()
        )
        phase = Phase.STAGED  # which an override ends
        try:
            self._again.add(self._ports.restage(self.lease, unreadable.path))
        except DamagedRow as damaged:
            phase, trouble = Phase.LEDGER, str(damaged)
        except (DataLoss, BadRecord) as lost:
            trouble = str(lost)
            types -= self._give_up(unreadable.path, types)
        except Unavailable as error:
            if not types:
                raise
            phase, trouble = _phase_of(error), f"{unreadable}: {error}"
        if trouble:
            self._lost.add(unreadable.path)
            if types:
                _LOG.error(
                    "%s; until that file can be read, these types cannot close: %s",
                    trouble,
                    ", ".join(sorted(types)),
                )
                self._hold_types(types, phase, trouble)

    def _hold_types(self, types: Collection[str], phase: Phase, trouble: str) -> None:
        for f in self._frontiers():
            if f.event_type in types:
                pause_s = min(
                    2 * self._pauses_s.get(f.event_type, RETRY_SECONDS), PAUSE_SECONDS_MAX
                )
                self._pauses_s[f.event_type] = (
                    pause_s  # growing: a poll finds one such file or row, and there may be many
                )
                self._set_back(f, phase, (trouble,), pause_s)

    def _give_up(self, path: str, types: Collection[str]) -> set[str]:
        """What an override gives up of the file; returns whose."""
        given, known = overrides(self._database), read_ledger_file(self._database, path)
        chosen = overridden((f for f in self._frontiers() if f.event_type in types), given)
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
            give_up_file(self._database, self.lease, known, f, gap, override.manifest_text)
            _LOG.error("%s %s: %s; given up by an override", f.event_type, f.hour, what)
        return {f.event_type for f in chosen}

    def _check_if_due(self, types: Collection[str]) -> None:
        now_s = self._clock.monotonic_s()
        if self._checked_at_s is None or now_s - self._checked_at_s >= CHECK_SECONDS:
            self._sites.check(types)
            self._checked_at_s = now_s

    def _close_under(self, cut: Cut) -> int:
        """All hours that the cut allows, each type's in turn.

        A type that is refused once is left to the next cut.
        """
        closed = 0
        while chosen := self._allowed(cut):
            is_backlog = any(
                f.hour.next().end_ms <= cut.watermarks_ms[f.event_type] for f in chosen
            )
            last = plan_round(
                chosen,
                cut.watermarks_ms,
                ledger.unlisted_bytes(self._database) if is_backlog else {},
            )
            taken = [f for f in chosen if f.event_type in last]
            closed += self._close_hours(taken, last, cut, {})
            now = {f.event_type: f.hour for f in self._frontiers()}
            cut = cut.without({f.event_type for f in taken if now[f.event_type] == f.hour})
        return closed

    def _allowed(self, cut: Cut) -> list[Frontier]:
        frontiers = self._frontiers()
        conflicting = self._conflicting(frontiers)
        return [
            f
            for f in self._in_turn(frontiers, State.OPEN)
            if f.event_type not in conflicting and _is_under(cut, f)
        ]

    def _close_forced(self, forced: Sequence[Frontier], given: Mapping[str, Override]) -> int:
        for f in forced:
            _LOG.warning(
                "%s %s is forced by an override: %s",
                f.event_type,
                f.hour,
                given[f.event_type].reason,
            )
        cut = forced_cut(forced, self._sites, self._ports.progress, self._audits, self._clock)
        self._compare(cut)
        return self._close_hours(forced, {f.event_type: f.hour for f in forced}, cut, given)

    def _close_hours(
        self,
        chosen: Sequence[Frontier],
        last: Mapping[str, Hour],
        cut: Cut,
        given: Mapping[str, Override],
    ) -> int:
        """One round: freeze, prove, seal, write, publish, close.

        `last`: the last hour of each type that takes part.
        """
        if not (chosen := self._unpublished(chosen)):
            return 0
        last = {f.event_type: last[f.event_type] for f in chosen}
        offsets = ledger.freeze(
            self._database, self.lease, chosen, self._topics(chosen).of_types(), last
        )
        frozen = [dataclasses.replace(f, state=State.FROZEN) for f in chosen]
        round_ = Round(frozen=frozen, last=last, offsets=offsets, cut=cut, overrides=given)
        verdict = self._sealer.judge(round_)
        if verdict.refused or verdict.unwritable:
            self._refuse(verdict)
        if not verdict.chains:
            return 0
        self._sealer.seal(round_, verdict, {f.event_type for f in self._frontiers()})
        if given:
            self._checked_at_s = None  # gaps may have been accepted
        for event_type in verdict.chains:
            self._troubles.pop(event_type, None)
        return self._finish(self._publisher.publish(self._in_turn(self._frontiers(), State.SEALED)))

    def _unpublished(self, chosen: Sequence[Frontier]) -> list[Frontier]:
        """Those of which storage lets it be seen, the others are set back.

        ForeignLedger where one is published.
        """
        try:
            storage, unseen = (
                self._ports.storage,
                [f for f in chosen if f.event_type in self._unseen],
            )
            troubles = [*check_foreign_root(storage, unseen, ()), *check_published(storage, chosen)]
        except ForeignLedger:
            # Another closer may have published it meanwhile: then this one is stale, and the ledger
            # is not.
            self._database.check_lease(self.lease)
            raise
        for f, error in troubles:
            self._set_back(f, Phase.STORAGE, (str(error),))
            _LOG.error("%s %s stays open: %s", f.event_type, f.hour, error)
        held = {f.event_type for f, _ in troubles}
        self._unseen -= {f.event_type for f in unseen} - held
        return [f for f in chosen if f.event_type not in held]

    def _refuse(self, verdict: Grading) -> None:
        unwritable = [(f, ()) for f, *_ in verdict.unwritable]
        ledger.unfreeze_all(self._database, self.lease, [*verdict.refused, *unwritable])
        for f, phase, why in verdict.unwritable:
            self._set_back(f, phase, why)
            _LOG.error(
                "%s %s stays open, as some of its rows can be in no bucket: %s",
                f.event_type,
                f.hour,
                "; ".join(why),
            )
        if verdict.conflicts:
            record_compared(self._database, self.lease, (), verdict.conflicts)
        for conflict in verdict.conflicts:
            _LOG.error(
                "%s waits for an override (`hourmark bucket why`): %s",
                conflict.event_type,
                conflict.what,
            )
            self._troubles.pop(conflict.event_type, None)
        conflicting = {c.event_type for c in verdict.conflicts}
        for f, findings in verdict.refused:
            if f.event_type not in conflicting:
                self._set_back(f, Phase.PROOF, findings)
                _LOG.error(
                    "%s %s is not proved and stays open; trying again in %.0f s. Missing:\n  %s",
                    f.event_type,
                    f.hour,
                    RETRY_SECONDS,
                    "\n  ".join(findings),
                )

    def _recover(self) -> None:
        frontiers = self._frontiers()
        unseen = check_foreign_root(
            self._ports.storage, frontiers, ledger.closed_types(self._database)
        )
        self._unseen = {f.event_type for f, _ in unseen}
        if frozen := [f for f in frontiers if f.state is State.FROZEN]:
            names = ", ".join(f"{f.event_type} {f.hour}" for f in frozen[:20])
            _LOG.info(
                "%d hours were frozen when a closer ended: unfrozen, to be proved anew (%s)",
                len(frozen),
                names,
            )
            ledger.unfreeze_all(self._database, self.lease, [(f, ()) for f in frozen])
        sealed = [f for f in frontiers if f.state is State.SEALED]
        if recovered := self._finish(self._publisher.standing(sealed)) if sealed else 0:
            _LOG.info("%d hours that were published when a closer ended are closed", recovered)
        left_over = unaudited_left_over(self._ports.storage, self._database)
        self._database.check_lease(
            self.lease
        )  # a closer that was taken over stops here, and deletes nothing
        delete_all(
            self._ports.storage, [ATTEMPTS_FOLDER, *left_over]
        )  # attempts of closers that were interrupted

    def _finish(self, published: Published) -> int:
        """Remember what was published; returns how many hours."""
        if published.closings:
            ledger.close_all(self._database, self.lease, published.closings)
        for closing in published.closings:
            f, manifest = closing.frontier, closing.manifest
            for kept in (self._not_before_s, self._pauses_s, self._troubles):
                kept.pop(f.event_type, None)
            self._ports.metrics.closed(f.hour, manifest)
        for line in closed_lines(closing.manifest for closing in published.closings):
            _LOG.info("%s", line)
        for f, error in published.troubles:
            self._set_back(f, _phase_of_trouble(error), (str(error),))
            _LOG.error("%s %s is sealed and cannot be published: %s", f.event_type, f.hour, error)
        return len(published.closings)

    def _set_back(
        self, f: Frontier, phase: Phase, what: tuple[str, ...], pause_s: float = RETRY_SECONDS
    ) -> None:
        self._not_before_s[f.event_type] = self._clock.monotonic_s() + pause_s
        self._troubles[f.event_type] = (f.hour, phase, what)

    def _say(
        self, frontiers: Collection[Frontier], blockers: Mapping[str, tuple[Phase, tuple[str, ...]]]
    ) -> None:
        said = {
            f.event_type: (f.hour, *blockers[f.event_type])
            for f in frontiers
            if f.event_type in blockers
        }
        self._blockers.say(said | self._troubles)

    def _say_unavailable(self, error: Unavailable) -> None:
        phase = _phase_of(error)
        now_ms, frontiers = self._clock.now_ms(), self._frontiers()
        self._say(
            frontiers,
            {f.event_type: (phase, (str(error),)) for f in frontiers if f.hour.end_ms <= now_ms},
        )

    def _frontiers(self) -> list[Frontier]:
        return ledger.frontiers(self._database, self._config.parsing.bucket_seconds)

    def _topics(self, chosen: Collection[Frontier]) -> CentralTopics:
        return CentralTopics.of(self._config.kafka, [f.event_type for f in chosen])

    def _in_turn(self, frontiers: Collection[Frontier], state: State) -> list[Frontier]:
        """Those in this state that are not set back."""
        now_s = self._clock.monotonic_s()
        return [
            f
            for f in frontiers
            if f.state is state and now_s >= self._not_before_s.get(f.event_type, 0.0)
        ]


def _phase_of_trouble(error: Finding | StorageError) -> Phase:
    if isinstance(error, Unwritable):
        return Phase.UNWRITABLE
    if isinstance(error, LedgerChanged):
        return Phase.LEDGER
    return Phase.STORAGE if isinstance(error, StorageError) else Phase.PUBLISHING


def _phase_of(error: Unavailable) -> Phase:
    return Phase.STORAGE if isinstance(error, StorageError) else Phase.SERVERS


def _is_under(cut: Cut, f: Frontier) -> bool:
    """Whether the cut allows the hour.

    Not if an override closed the one before it under a later cut of promises meanwhile.
    """
    return f.hour.end_ms <= cut.watermarks_ms.get(f.event_type, 0) and cut.audit_next.reaches(
        f.settled_next
    )
