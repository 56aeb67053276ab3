"""Explains why an hour of an event type is not closed, or how it was closed. Pure.

An explanation states what the hour waits for, from which source or server, and since when. It uses
only what the ledger contains, and each reason ends with the operator's next step.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade, Manifest
from hourmark.records.tombstone import RemovedBucket, Tombstone
from hourmark_etl.closing.cut.readiness import (
    LatestReports,
    describe_clock_difference,
    describe_missing_service,
)
from hourmark_etl.humanize import format_count, format_duration, format_iso
from hourmark_etl.ledger.heartbeat import NO_SIGNS, DriverSigns
from hourmark_etl.ledger.overrides import Blocker, Override
from hourmark_etl.model import ClosingPhase, Frontier, HourState, ReportedSource

SILENT_SECONDS: Final = 60.0  # a source reports every few seconds
# Some source always reports, so without a newer report nothing is being staged. A report is read
# seconds after it was sent; a mirror and a large batch delay it further.
STALE_SECONDS: Final = 30.0
REASONS_SHOWN: Final = 20

_DO_MIRROR: Final = (
    "check the lag of the mirror: `hourmark mirror lag`; if it makes no progress, check the log "
    "of `hourmark mirror run`"
)
_DO_STAGING: Final = (
    "check in the log of `hourmark etl run` that batches are staged; a backlog is processed "
    "automatically"
)
_DO_BY_PHASE: Final[Mapping[ClosingPhase, str]] = {
    ClosingPhase.REPORTS: (
        "for a source, check that it runs and reports; for a clock, correct it; for records "
        "that may be missing, `hourmark mirror verify` lists them, and if they are permanently "
        "lost, `hourmark bucket force` closes the bucket without them"
    ),
    ClosingPhase.CONTROL: _DO_MIRROR,
    ClosingPhase.PROMISES: _DO_STAGING,
    ClosingPhase.EVENTS: _DO_MIRROR,
    ClosingPhase.ARRIVAL: _DO_STAGING,
    ClosingPhase.UNREADABLE: (
        "check whether another replica can lead the partition, or its disk can be repaired; "
        "reading is retried automatically. Otherwise, `hourmark etl skip-unreadable TOPIC "
        "PARTITION` skips the unreadable offsets, and `hourmark bucket force {type} {hour}` "
        "then closes the bucket without them"
    ),
    ClosingPhase.UNWRITABLE: (
        "for an unknown schema id, `hourmark types repair` copies missing schemas from "
        "hourmark.types to the ledger; for files of a closed bucket, restore them from a copy. "
        "Otherwise, `hourmark bucket force {type} {hour}` closes the bucket without the rows "
        "that cannot be written, or without the content of the lost bucket, and the marker "
        "states this"
    ),
    ClosingPhase.STAGED: (
        "restore the file from a copy of the storage root, because Kafka no longer has its "
        "records; it is then read automatically"
    ),
    ClosingPhase.PROOF: (
        "events in transit arrive automatically, and the proof is repeated; `hourmark audit "
        "{type} --from {hour} --to {hour}` shows at which stage events are missing"
    ),
    ClosingPhase.CONFLICT: (
        "run the same version of all delivery services. No event is missing, but waiting does "
        "not resolve this: `hourmark bucket force {type} {hour}` closes the bucket with the "
        "events of both readings, and its marker states the range"
    ),
    ClosingPhase.PUBLISHING: (
        "move files that Hourmark did not create away from the bucket's path; publishing is "
        "retried automatically"
    ),
    ClosingPhase.LEDGER: (
        "list all damaged rows with `hourmark ledger check`; restore the newest copy of the "
        "ledger, or recreate it with `hourmark ledger rebuild`"
    ),
    ClosingPhase.SERVERS: (
        "check that the named server is running and can be reached from the driver; closing "
        "then continues automatically"
    ),
    ClosingPhase.STORAGE: (
        "check that the file system is available, has free space, is not in safe mode, and "
        "allows storage.user to write; closing then continues automatically"
    ),
}
# In any other phase an hour also waits after its deadline (`etl.deadline_seconds`).
_ENDED_BY_DEADLINE: Final = (ClosingPhase.REPORTS, ClosingPhase.PROOF)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HourFacts:
    """Ledger contents that `explain_hour` needs to explain the state of one hourly bucket.

    The ledger is the state database of the ETL. The driver is the process that closes buckets
    (`hourmark etl run`).

    Attributes:
        event_type: Event type to explain.
        hour: Hour to explain.
        now_ms: Current time, Unix milliseconds.
        deadline_seconds: Number of seconds after the end of an hour at which it is closed even if
            sources are missing.
        frontier: The oldest open hour of the type; None if the ledger does not have the type.
        known_types: All event types in the ledger.
        reporters: Latest report of each log source about how far its events have been delivered.
        blocker: Condition that prevents the type's oldest open hour from closing, as last recorded
            by the driver; None if there is none.
        override: Pending order of an operator to force an hour of the type closed; None if there is
            none.
        set_aside: Number of the type's records that cannot be stored in a bucket and have not been
            reviewed by an operator.
        manifest: Manifest (content of the `_SUCCESS` file) of the hour's closed bucket; None if the
            hour is not closed.
        following: Manifest of the first closed bucket after an hour that precedes the type's first
            hour and has no bucket; None in all other cases.
        driver: Last heartbeat and shutdown of the driver.
    """

    event_type: str
    hour: Hour
    now_ms: int
    deadline_seconds: float
    frontier: Frontier | None
    known_types: tuple[str, ...] = ()
    reporters: tuple[ReportedSource, ...] = ()
    blocker: Blocker | None = None
    override: Override | None = None
    set_aside: int = 0
    manifest: Manifest | None = None
    following: Manifest | None = None
    driver: DriverSigns = NO_SIGNS

    @property
    def missing_driver(self) -> str | None:
        """Return a human-readable message if no ETL driver (`hourmark etl run`) is running.

        Returns:
            The message; None if the driver's last heartbeat is at most 20 seconds old, and it was
            not shut down.
        """
        return self.driver.describe_missing(self.now_ms)


@dataclasses.dataclass(frozen=True, slots=True)
class Reason:
    """Reason why an hourly bucket is or is not closed, with the next step for the operator.

    Attributes:
        what: Human-readable cause.
        do: Human-readable next step.
        since_ms: Time at which the cause began, Unix milliseconds; None if unknown.
    """

    what: str
    do: str
    since_ms: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explanation of why an hourly bucket of an event type is not closed, or of how it was closed.

    The state of the hour is one of:

    - `closed`: its bucket is closed.
    - `removed`: its bucket was closed, and was later removed by retention.
    - `open`, `frozen`, `sealed`: it is the next hour to close. It waits for records, is being
      compared with the audit records, or is being written.
    - `later`: other hours must be closed first, or it is not certain yet that it gets a bucket.
    - `skipped`: it had no events when later hours were closed, so it has no bucket.
    - `before-first`: it precedes the type's first bucket.
    - `damaged`: the ledger row of the type is damaged.
    - `unknown-type`: the event type does not exist.

    Attributes:
        event_type: The event type.
        hour: The hour, as text.
        state: State of the hour.
        summary: One human-readable sentence.
        frontier: The type's oldest open hour as text, to which the reasons apply; None for a closed
            hour, a damaged type and an unknown type.
        reasons: Reasons, the most important first.
        times_out_at_ms: Time at which the hour closes even if sources and promised events are
            missing, Unix milliseconds; None if no such time is known.
        grade: Grade of the closed bucket (`proved`, `timed_out` or `forced`); for a skipped hour,
            that of the bucket after it. None if the hour is not closed, or if the ledger has no
            bucket for it.
    """

    event_type: str
    hour: str
    state: str
    summary: str
    frontier: str | None = None
    reasons: tuple[Reason, ...] = ()
    times_out_at_ms: int | None = None
    grade: str | None = None


def explain_hour(facts: HourFacts) -> Explanation:
    """Explain why an hourly bucket of an event type is not closed, or how it was closed.

    The function accesses neither storage nor the ledger, which is the ETL's state database.

    Args:
        facts: Ledger contents that concern the hour.

    Returns:
        The explanation; unknown event types and hours without a bucket are explained too. It has at
        most 20 reasons (`REASONS_SHOWN`), plus one that states how many were omitted.
    """
    f = facts.frontier
    if f is None:
        return _unknown(facts)
    if f.state is HourState.DAMAGED:
        reasons = [Reason(what, _DO_BY_PHASE[ClosingPhase.LEDGER]) for what in f.alarm]
        return _said(facts, f.state.value, "the ledger's row of the type is damaged", reasons)
    if facts.hour < f.hour:
        if facts.manifest is None and facts.hour < f.first_hour:
            return _without_bucket(facts, f)
        return explain_closed_hour(facts.event_type, facts.hour, facts.manifest)
    reasons = [*_reasons(facts, f)]
    if more := len(reasons[REASONS_SHOWN:]):
        reasons[REASONS_SHOWN:] = [Reason(f"and {more} more", "resolve the ones above first")]
    found = _said(
        facts, f.state.value if facts.hour == f.hour else "later", _summary(facts, f), reasons, f
    )
    return dataclasses.replace(found, times_out_at_ms=_times_out_at_ms(facts, f))


def _said(
    facts: HourFacts, state: str, summary: str, reasons: Iterable[Reason], f: Frontier | None = None
) -> Explanation:
    return Explanation(
        event_type=facts.event_type,
        hour=str(facts.hour),
        state=state,
        summary=summary,
        frontier=str(f.hour) if f else None,
        reasons=tuple(reasons),
    )


def _times_out_at_ms(facts: HourFacts, f: Frontier) -> int | None:
    # None if the hour does not close by time alone in the present situation.
    at_ms = f.times_out_ms(round(facts.deadline_seconds * 1000))
    if f.state is not HourState.OPEN or not f.hour.end_ms <= facts.now_ms < at_ms:
        return None
    waits = facts.blocker is not None and facts.blocker.phase not in _ENDED_BY_DEADLINE
    # The oldest hour to back-fill counts from when the closer notices it.
    is_unnoticed = f.hour < f.first_hour and f.previous_hour is None and not f.noticed_ms
    if waits or is_unnoticed or facts.override is not None or facts.missing_driver:
        return None
    return (
        None if describe_clock_difference(LatestReports(facts.reporters), facts.now_ms) else at_ms
    )


def _unknown(facts: HourFacts) -> Explanation:
    near = difflib.get_close_matches(facts.event_type, facts.known_types, 3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    reason = Reason(
        "only declared types have buckets",
        "`hourmark types list` shows the declared types; `hourmark types apply --dir types` "
        "declares new ones",
    )
    return _said(
        facts, "unknown-type", f"the ledger has no event type {facts.event_type}{meant}", [reason]
    )


def _without_bucket(facts: HourFacts, f: Frontier) -> Explanation:
    # The hour is before the frontier and before the type's first hour.
    if f.previous_hour is None:
        summary = (
            f"it has no bucket yet: nothing of {f.event_type} is closed, and no event of the hour "
            "is staged"
        )
        reason = Reason(
            f"events of the hour that arrive before the next hour, {f.hour}, is closed are "
            "back-filled; later ones are late events",
            "none, unless there are events to deliver",
        )
        return _said(facts, "later", summary, [reason], f)
    if facts.following is None:
        summary = (
            f"it had no events and was skipped; the marker of the next bucket, {f.hour}, will "
            "state it"
        )
        return _said(facts, "later", summary, [*_reasons(facts, f)], f)
    if facts.following.previous is None:
        return _before_first(facts, f)
    after = facts.following
    summary = (
        f"closed without a bucket, because it had no events. The marker of {after.hour}, closed "
        f"as {after.grade.value} at {format_iso(after.closed_at_ms)}, follows that of "
        f"{facts.following.previous.hour}"
    )
    reason = Reason(
        "a back-fill skips hours without events; events that arrived later are late events of "
        "later buckets",
        f"`hourmark bucket show {f.event_type} {after.hour}` shows that marker",
    )
    skipped = _said(facts, "skipped", summary, [reason])
    return dataclasses.replace(skipped, grade=after.grade.value)


def _before_first(facts: HourFacts, f: Frontier) -> Explanation:
    first = f.first_hour if facts.following is None else facts.following.hour
    reason = Reason(
        "events of this hour that arrive are carried as late events, by the bucket that "
        f"is open then (now {f.hour})",
        f"search for them in later buckets; `hourmark bucket ls {facts.event_type}` shows which "
        "buckets contain late events",
    )
    summary = (
        f"it has no bucket and will never have one, because buckets of {facts.event_type} begin "
        f"at {first}"
    )
    return _said(facts, "before-first", summary, [reason], f)


def explain_closed_hour(event_type: str, hour: Hour, manifest: Manifest | None) -> Explanation:
    """Explain how a bucket was closed, based on its manifest.

    Args:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.
        manifest: Manifest of the bucket (content of its `_SUCCESS` file); None if the ledger (the
            ETL's state database) has no bucket for the closed hour.

    Returns:
        An explanation with the state `closed`. Without a manifest, it describes an inconsistent
        ledger and refers to `hourmark ledger check`.
    """
    if manifest is None:
        summary = "closed by its frontier, but not found"
        reasons = [
            Reason(
                "according to the ledger, later hours are closed, but this hour has no bucket",
                "`hourmark ledger check` reports the inconsistency",
            )
        ]
    else:
        assert manifest.grade is not Grade.PROVED or not manifest.evidence.waived, (
            "a proved bucket waives nothing"
        )
        delay = format_duration(max(0, manifest.closed_at_ms - hour.end_ms) / 1000)
        summary = (
            f"closed as {manifest.grade.value} at {format_iso(manifest.closed_at_ms)}, {delay} after its end, with "
            f"{format_count(manifest.events, 'event')}"
        )
        evidence = f"evidence ({manifest.evidence.method}): {format_count(manifest.evidence.promised, 'event')} promised by "
        evidence += (
            f"{format_count(manifest.evidence.audit_records, 'audit record')}; "
            f"{format_count(manifest.unaudited, 'unaudited event')}"
        )
        reasons = [
            Reason(evidence, f"`hourmark bucket show {event_type} {hour}` shows files and evidence")
        ]
        reasons += [
            Reason(
                f"closed without: {waived}",
                "none: if it arrives, a later bucket contains it as a late event",
            )
            for waived in manifest.evidence.waived
        ]
    return Explanation(
        event_type=event_type,
        hour=str(hour),
        state="closed",
        summary=summary,
        reasons=tuple(reasons),
        grade=manifest.grade.value if manifest else None,
    )


def explain_removed_hour(
    closed: Explanation, tombstone: Tombstone, bucket: RemovedBucket
) -> Explanation:
    """Explain that a closed bucket was removed.

    Args:
        closed: Explanation of how the bucket was closed.
        tombstone: Tombstone of its day.
        bucket: Entry of the bucket in the tombstone.

    Returns:
        An explanation with the state `removed`, and the grade with which the bucket was closed.
    """
    removal = Reason(
        f"by {tombstone.setting} = {tombstone.days} days, as {tombstone.removed_by}",
        f"none: its events are deleted; `hourmark bucket show {closed.event_type} {closed.hour}` "
        "shows its manifest",
    )
    return dataclasses.replace(
        closed,
        state="removed",
        summary=f"removed at {format_iso(tombstone.removed_at_ms)}; it was {closed.summary}",
        reasons=(removal, *closed.reasons),
        grade=bucket.grade.value,
    )


def _summary(facts: HourFacts, f: Frontier) -> str:
    since = (facts.now_ms - f.hour.end_ms) / 1000
    when = (
        f"ended {format_duration(since)} ago"
        if since >= 0
        else f"ends in {format_duration(-since)}"
    )
    state = {
        HourState.OPEN: "open",
        HourState.FROZEN: "frozen: its rows are fixed and are being proved",
        HourState.SEALED: (
            f"sealed as {f.seal.grade if f.seal else '?'}: its content is fixed and is being "
            "written and published"
        ),
    }[f.state]
    if facts.hour == f.hour:
        return f"{state}; it is the next hour of {f.event_type} to close, and {when}"
    before = format_hours_before(f, facts.hour, "hour")
    own = (facts.hour.end_ms - facts.now_ms) / 1000
    ends = f"; it ends in {format_duration(own)} itself" if own > 0 else ""
    return (
        f"not its turn yet{ends}: {before} of {f.event_type} close before "
        f"it, first {f.hour}, which is {state}"
    )


def format_hours_before(f: Frontier, hour: Hour, noun: str) -> str:
    """Describe how many hours of an event type must be closed before a given hour.

    Args:
        f: Oldest open hour of the type.
        hour: The given hour, which must be later.
        noun: Singular noun for an hour, such as `earlier hour`.

    Returns:
        A phrase such as `3 earlier hours`. While hours before the type's first hour are being
        closed, the number is unknown, because empty hours are skipped; the phrase is then
        `non-empty earlier hours`.
    """
    if f.hour < f.first_hour:
        return f"non-empty {noun}s"
    return format_count((hour.start_s - f.hour.start_s) // f.hour.length_s, noun)


def _reasons(facts: HourFacts, f: Frontier) -> Iterator[Reason]:
    is_begun = facts.now_ms >= f.hour.end_ms or facts.driver.goodbye_ms is None
    if (silent := facts.missing_driver) and is_begun:
        yield _no_driver(silent, facts.driver)
    if facts.override is not None and facts.override.hour_s == f.hour.start_s:
        yield _ordered(facts.override, f)
    if facts.now_ms < f.hour.end_ms:
        yield Reason(
            f"the hour ends in {format_duration((f.hour.end_ms - facts.now_ms) / 1000)}",
            "none: wait for its end"
            if is_begun
            else "none: it is closed by the next `hourmark run --once` after its end, or by a "
            "driver that is running then (`hourmark etl run`); the last one was stopped at "
            f"{format_iso(facts.driver.goodbye_ms or 0)}",
        )
        return
    heard_ms = max((r.received_at_ms for r in facts.reporters), default=facts.now_ms)
    if stale := not silent and facts.now_ms - heard_ms > STALE_SECONDS * 1000:
        yield _stale_reports(facts, heard_ms)
    unread = ""
    if silent:
        unread = "start the driver, and run the command again: later reports have not been read yet"
    elif stale:
        unread = "resolve the reason above: later reports have not been read yet"
    behind = list(_behind(facts, f, unread)) if f.state is HourState.OPEN else []
    yield from behind
    wait = facts.blocker if facts.blocker is not None and facts.blocker.applies_to(f) else None
    if wait is not None:
        yield from _waiting(wait, behind)
    if f.alarm and not (wait is not None and wait.phase is ClosingPhase.PROOF):
        do = _DO_BY_PHASE[ClosingPhase.PROOF].format(type=f.event_type, hour=f.hour)
        yield from (Reason(f"unmet promise: {what}", do) for what in f.alarm)
    if not (silent or stale or behind or wait or f.alarm or facts.override):
        yield _nothing_known(f)
    if facts.set_aside:
        yield Reason(
            f"{format_count(facts.set_aside, 'record')} on the type's topic cannot be in a "
            "bucket and were set aside. If one of them was an acknowledged event, its promise "
            "is unmet",
            f"`hourmark etl set-aside ls {f.event_type}` lists them with their reasons",
        )


def _stale_reports(facts: HourFacts, heard_ms: int) -> Reason:
    what = (
        f"the newest report in the ledger is {format_duration((facts.now_ms - heard_ms) / 1000)} "
        "old, so the following reasons may be outdated"
    )
    do = (
        "check in `hourmark status` that services, storage and Kafka work, with `hourmark "
        "mirror lag` that the mirror copies, and in the log of `hourmark etl run` that batches "
        "are staged"
    )
    read_ms = max(r.heard_at_ms for r in facts.reporters)
    if facts.now_ms - read_ms <= STALE_SECONDS * 1000:
        # Reports are read, each of them old: their way is long, or a clock is wrong.
        what += f"; it was read {format_duration(max(0, facts.now_ms - read_ms) / 1000)} ago"
        do = f"compare clocks: `hourmark doctor --only clocks`; if they agree: {do}"
    return Reason(what, do, heard_ms)


def _no_driver(silent: str, driver: DriverSigns) -> Reason:
    if driver.heartbeat_ms is None:
        return Reason(f"{silent}; nothing is staged, and no bucket closes", driver.restart_step)
    do = driver.restart_step
    if driver.goodbye_ms is None:
        do = f"{do}; the log of the last driver states why it stopped"
    return Reason(f"{silent}, so the following reasons are from that time", do, driver.heartbeat_ms)


def _nothing_known(f: Frontier) -> Reason:
    if running := describe_running_step(f):
        return Reason(running, "none: if it takes long, check the log of `hourmark etl run`")
    return Reason(
        "no reason is recorded in the ledger",
        "the closer polls every second: run the command again, and check the log of `hourmark "
        "etl run`",
    )


def describe_running_step(frontier: Frontier) -> str | None:
    """Describe the step that is running to close an event type's oldest open hour.

    Args:
        frontier: The oldest open hour of the type.

    Returns:
        A phrase such as `its proof, which is running` or `its bucket, which is being written`; None
        if the hour still waits for records or its ledger row is damaged.
    """
    if frontier.state is HourState.FROZEN:
        return "its proof, which is running"
    if frontier.state is not HourState.SEALED:
        return None
    further = len(frontier.later_seals)
    together = f", together with {format_count(further, 'further bucket')}" if further else ""
    return f"its bucket, which is being written{together}"


def _ordered(override: Override, f: Frontier) -> Reason:
    do = "none: the closer executes the override at its next poll"
    if f.state is HourState.SEALED and f.seal is not None:
        do = (
            f"none: it is sealed as {f.seal.grade} and closes with this grade; the override only "
            "permits closing it without lost staged files and rows that cannot be written"
        )
    return Reason(
        f"{override.requested_by} ordered to close it by force: {override.reason}",
        do,
        override.requested_at_ms,
    )


def _behind(facts: HourFacts, f: Frontier, unread: str) -> Iterator[Reason]:
    # `unread`: the next step if reports may exist that were not read; otherwise empty.
    reports = LatestReports(facts.reporters)
    if missing := describe_missing_service(reports):
        if (
            facts.reporters or not facts.missing_driver
        ):  # otherwise reports may exist that no driver has read
            yield Reason(
                missing,
                "start one: `hourmark serve`; alternatively, `hourmark bucket force` closes "
                "the bucket without a service",
            )
        return
    for group in reports.awaited_reporters(f):
        for r in group:
            if (r.caught_up_at_ms or 0) >= f.awaited_ms:
                break
            yield _source(r, f, facts, unread)


def _source(r: ReportedSource, f: Frontier, facts: HourFacts, unread: str) -> Reason:
    silent = facts.missing_driver
    known_ms = (
        facts.driver.heartbeat_ms
        if silent and facts.driver.heartbeat_ms is not None
        else facts.now_ms
    )
    age_s = max(0.0, (known_ms - r.heard_at_ms) / 1000)
    if r.caught_up_at_ms is None:
        caught_up = "has never caught up"
    else:
        event = "the back-fill began" if f.noticed_ms > f.hour.end_ms else "the hour's end"
        caught_up = (
            f"had caught up {format_duration((f.awaited_ms - r.caught_up_at_ms) / 1000)} before "
            f"{event}"
        )
    pending = f", {format_count(r.pending_bytes, 'byte')} pending" if r.pending_bytes else ""
    age = f"was {format_duration(age_s)} old then" if silent else f"is {format_duration(age_s)} old"
    what = f"{r.name} ({r.host_id}) {caught_up}; its last report {age}{pending}"
    if unread:
        do = unread
    elif age_s <= SILENT_SECONDS and r.kind == "service":
        do = (
            "it reports, but a request has been in progress since then: check its log and the "
            "edge cluster"
        )
    elif age_s <= SILENT_SECONDS:
        do = (
            f"it reports: it is catching up, or a file of source {r.source} on {r.host_name} "
            "cannot be read: check the log of its tailer"
        )
    elif r.kind == "service":
        do = (
            f"start the delivery service on {r.host_name} again (`hourmark serve`), or find out "
            "why its reports do not arrive"
        )
    else:
        do = (
            f"start the tailer on {r.host_name} (`hourmark tail`); before a host is removed, "
            "drain it (`hourmark tail --drain`); a permanently lost host is waived at the "
            "deadline"
        )
    return Reason(what, do, r.caught_up_at_ms)


def _waiting(wait: Blocker, behind: Sequence[Reason]) -> Iterator[Reason]:
    # Sources that `behind` already names are omitted.
    do = _DO_BY_PHASE[wait.phase].format(type=wait.event_type, hour=wait.hour)
    named = [reason.what for reason in behind]
    for what in wait.what or (f"its phase {wait.phase}",):
        who = what.partition("):")[0]
        if not any(who in reason for reason in named):
            yield Reason(f"({wait.phase}) {what}", do, wait.since_ms)


def format_explanation(explanation: Explanation, now_ms: int) -> Iterator[str]:
    """Yield an explanation as lines of text.

    Args:
        explanation: Explanation from `explain_hour`.
        now_ms: Current time, Unix milliseconds. It is used to compute the time until the deadline.

    Yields:
        A headline; the reasons, one per line, each group of reasons with its common next step; and
        the deadline, if there is one.
    """
    yield f"{explanation.event_type} {explanation.hour}: {explanation.summary}"
    word = "waits for" if explanation.state in ("open", "frozen", "sealed", "later") else "because"
    for do, reasons in groupby(explanation.reasons, lambda reason: reason.do):
        for reason in reasons:
            since = f" (since {format_iso(reason.since_ms)})" if reason.since_ms else ""
            yield f"  {word:10}{reason.what}{since}"
        yield f"  {'do':10}{do}"
    if explanation.times_out_at_ms is not None:
        left = format_duration((explanation.times_out_at_ms - now_ms) / 1000)
        yield (
            f"  {'deadline':10}{format_iso(explanation.times_out_at_ms)}, in {left}: then it "
            "closes as timed_out, and its marker lists the sources that are behind and the "
            "unmet promises. It still waits for the mirror, for staging, for servers that do "
            "not respond, and for records that may be missing"
        )
