"""Problems of event types, hosts and clocks, derived from the ledger, for `status` and `doctor`.

`find_problems` is pure. `types_status` reads one row per event type and per reporting source, so
the cost does not depend on the number of closed buckets. Types that wait for the same cause are one
problem with a count.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hourmark.commands.component_status import ComponentState, ComponentStatus, format_age
from hourmark.commands.problems import (
    EXAMPLES_MAX,
    SERVICE_REPLACED_MS,
    CauseClass,
    Problem,
    silent_host_problem,
)
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.printing import name_some
from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, CLOCKS_APART_MS_REPORTED
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_etl.closing.cut.readiness import SILENT_MS
from hourmark_etl.humanize import format_count, format_iso
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.heartbeat import DriverSigns, read_driver_signs
from hourmark_etl.ledger.hosts.reporters import reporters
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.maintenance.overview import read_closed_manifest
from hourmark_etl.ledger.overrides import Blocker, blockers
from hourmark_etl.ledger.partitions.read_errors import read_errors
from hourmark_etl.ledger.staged.set_aside import count_unreviewed_records
from hourmark_etl.model import Frontier, HourState, ReportedSource
from hourmark_etl.operators.explain import HourFacts, explain_hour

FAULT_MS: Final = 20_000  # a phase that is no regular step may last so long without being reported
OVERDUE_MS: Final = 300_000  # since the end of an hour that waits for a regular step
UNEXPLAINED_MS: Final = 1_800_000  # the same without a known cause, as the alarm in docs/metrics.md
BEHIND_MS: Final = 300_000  # a host reports, and has delivered nothing for so long
_AGREE_MS: Final = 10_000  # clocks that differ by less agree
_RECENT_MS: Final = 2 * 3_600_000  # dead letters in buckets that ended earlier are not counted
_NEWEST_BUCKETS: Final = 15
_NO_DRIVER: Final = "no driver"
_NO_REPORTS: Final = "no reports"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFacts:
    """Ledger contents from which `find_problems` derives the problems to report to an operator.

    The ledger is the state database of the ETL. The driver is the process that closes hourly
    buckets.

    Attributes:
        now_ms: Current time, Unix milliseconds.
        deadline_seconds: Seconds after the end of an hour after which its bucket is closed even if
            data of some log sources is missing.
        frontiers: The oldest hour of each event type whose bucket is not closed.
        blockers: Maps each event type to the condition that keeps its next bucket from being
            closed. Types without a known condition are absent.
        reporters: Latest report of each log source of each host.
        driver: Last heartbeat and shutdown of the driver.
        set_aside: Number of records that no bucket can contain and that no operator has reviewed.
        unreadable: Names of the Kafka topic-partitions that cannot be read.
        progressing: Event types that work through a backlog, so that an overdue hour without a
            blocker is not reported; empty if there is no backlog.
        dead_letters: Number of dead letters (lines that could not be parsed) in the newest closed
            buckets, of at most an hour.
    """

    now_ms: int
    deadline_seconds: float
    frontiers: Sequence[Frontier]
    blockers: Mapping[str, Blocker]
    reporters: Sequence[ReportedSource]
    driver: DriverSigns
    set_aside: int = 0
    unreadable: tuple[str, ...] = ()
    progressing: frozenset[str] = frozenset()
    dead_letters: int = 0

    @property
    def missing_driver(self) -> str | None:
        """Return a human-readable message if no ETL driver is running; None if one is running."""
        return self.driver.describe_missing(self.now_ms)


def types_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return the status of all event types: their number, overdue buckets and problems.

    The function reads the ledger, which is the state database of the ETL. Errors are part of the
    status and are not raised.

    Args:
        config: Configuration with the ledger and the length of buckets.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The state `RUNNING` with the problems that `find_problems` yields, such as a type whose
        bucket cannot be closed or a host that no longer reports. If the ledger cannot be read, the
        state `UNKNOWN` without problems; `driver_status` then reports the problem.
    """
    try:
        with open_existing_ledger(config) as database:
            facts = _read_facts(database, config, now_ms)
    except HourmarkError as error:
        return ComponentStatus(ComponentState.UNKNOWN, str(error))
    return ComponentStatus(
        ComponentState.RUNNING, _summary(facts), problems=tuple(find_problems(facts))
    )


def _read_facts(database: Database, config: Config, now_ms: int) -> LedgerFacts:
    length_s = config.parsing.bucket_seconds
    facts = LedgerFacts(
        now_ms=now_ms,
        deadline_seconds=config.etl.deadline_seconds,
        frontiers=frontiers(database, length_s),
        blockers=blockers(database, length_s),
        reporters=reporters(database),
        driver=read_driver_signs(database),
        set_aside=count_unreviewed_records(database),
        unreadable=tuple(sorted(map(str, read_errors(database)))),
    )
    facts = dataclasses.replace(facts, dead_letters=_count_dead_letters(database, facts))
    stuck = min((f for f in facts.frontiers if _is_unexplained(facts, f)), key=_age, default=None)
    if stuck is None or not _closed_lately(database, stuck, now_ms):
        return facts
    # A backlog is closed hour by hour; the oldest type stands for the others.
    return dataclasses.replace(facts, progressing=frozenset(f.event_type for f in facts.frontiers))


def _count_dead_letters(database: Database, facts: LedgerFacts) -> int:
    # A few buckets of one type: the cost does not depend on the number of closed buckets.
    found = [f for f in facts.frontiers if f.event_type == DEAD_LETTERS.name]
    if not found or found[0].state is HourState.DAMAGED:
        return 0
    count, hour = 0, found[0].hour
    hours = min(_NEWEST_BUCKETS, 3600 // hour.length_s, hour.start_s // hour.length_s)
    for _ in range(hours):
        hour = hour.previous()
        try:
            manifest = read_closed_manifest(database, DEAD_LETTERS.name, hour)
        except HourmarkError:  # `hourmark ledger check` reports it
            break
        if manifest is None or facts.now_ms - hour.end_ms > _RECENT_MS:
            break
        count += manifest.events
    return count


def _closed_lately(database: Database, f: Frontier, now_ms: int) -> bool:
    if f.previous_hour is None:
        return False
    try:
        manifest = read_closed_manifest(database, f.event_type, f.previous_hour)
    except HourmarkError:
        return False
    return manifest is not None and now_ms - manifest.closed_at_ms < 2 * OVERDUE_MS


def _summary(facts: LedgerFacts) -> str:
    ended = [
        f
        for f in facts.frontiers
        if f.state is not HourState.DAMAGED and f.hour.end_ms <= facts.now_ms
    ]
    text = format_count(len(facts.frontiers), "event type")
    if facts.dead_letters:
        text += (
            f"; {format_count(facts.dead_letters, 'dead letter')} in the newest closed buckets: "
            "`hourmark dead-letters ls`"
        )
    if not ended:
        return f"{text}; every hour that has ended is closed" if facts.frontiers else text
    oldest = min(ended, key=_age)
    return (
        f"{text}; {len(ended)} of them with an ended hour that is not closed; the oldest is "
        f"{oldest.event_type} {oldest.hour}"
    )


def find_problems(facts: LedgerFacts) -> Iterator[Problem]:
    """Yield the problems that an operator must resolve, as derived from the ledger.

    The ledger is the state database of the ETL. The function performs no I/O. Hosts and clocks are
    checked only while the driver is running and reads reports, because otherwise their latest
    reports are outdated.

    Args:
        facts: The contents of the ledger.

    Yields:
        One problem for each of the following, if it applies:

        - the driver reads no reports of hosts
        - a clock is wrong, a host no longer reports, or a log source is behind
        - Kafka topic-partitions cannot be read
        - buckets of one or more event types are not closed, for a common reason
        - records that no bucket can contain have not been reviewed
    """
    heard_ms = max((r.heard_at_ms for r in facts.reporters), default=None)
    overriding = _overriding_cause(facts, heard_ms)
    if overriding == _NO_REPORTS:
        yield _no_reports(heard_ms, facts.now_ms)
    elif overriding is None and heard_ms is not None:
        yield from _clocks(facts.reporters)
        yield from _silent_hosts(facts, heard_ms)
        yield from _hosts_behind(facts, heard_ms)
    if facts.unreadable:
        yield Problem(
            cause=CauseClass.SERVER,
            key="unreadable",
            subject="central cluster",
            what=f"cannot be read: {name_some(facts.unreadable)}",
            do="check whether another replica can lead the partition, or its disk can be "
            "repaired; otherwise, `hourmark etl skip-unreadable TOPIC PARTITION` skips the "
            "unreadable offsets",
            count=len(facts.unreadable),
        )
    groups: dict[tuple[str, str], list[Frontier]] = {}
    for f in facts.frontiers:
        if (cause := _cause(facts, f, overriding)) is not None:
            groups.setdefault(cause, []).append(f)
    yield from (_waiting_types(facts, cause, found) for cause, found in groups.items())
    if facts.set_aside:
        yield Problem(
            cause=CauseClass.TYPES,
            key="set-aside",
            subject="records set aside",
            what=f"{format_count(facts.set_aside, 'record')} on event topics cannot be stored in "
            "a bucket and have not been reviewed",
            do="`hourmark etl set-aside ls` lists them with their reasons",
            count=facts.set_aside,
        )


def _overriding_cause(facts: LedgerFacts, heard_ms: int | None) -> str | None:
    # What makes everything else in the ledger old, and every type wait.
    if facts.missing_driver:
        return _NO_DRIVER
    if heard_ms is not None and facts.now_ms - heard_ms > SILENT_MS:
        return _NO_REPORTS
    is_overdue = any(
        f.state is not HourState.DAMAGED and facts.now_ms - f.due_ms > OVERDUE_MS
        for f in facts.frontiers
    )
    return _NO_REPORTS if heard_ms is None and is_overdue else None


def _no_reports(heard_ms: int | None, now_ms: int) -> Problem:
    read = (
        "the driver has not read any report"
        if heard_ms is None
        else f"the newest report that the driver has read is {format_age(heard_ms, now_ms)} old"
    )
    return Problem(
        cause=CauseClass.COMPONENT,
        key="reports",
        subject="host reports",
        what=f"{read}, so no bucket closes: no delivery service reports, the mirror or staging "
        "does not work, or a clock is wrong",
        do="if no delivery service is running, start one: `hourmark serve`; otherwise check "
        "`hourmark mirror lag`, then the log of `hourmark etl run`",
        since_ms=heard_ms,
    )


def _clocks(reports: Sequence[ReportedSource]) -> Iterator[Problem]:
    # The age of a report when it was read consists of its way, which is common to all services, and
    # of the difference of the clocks. The shortest is taken as the way of all.
    live = [r for r in reports if r.kind == "service" and not r.goodbye]
    ages_ms = [r.heard_at_ms - r.received_at_ms for r in live]
    shortest_ms = max(0, min(ages_ms, default=0))
    wrong = [
        (r, age_ms - shortest_ms)
        for r, age_ms in zip(live, ages_ms, strict=True)
        if abs(age_ms - shortest_ms) > CLOCKS_APART_MS_REPORTED
    ]
    hosts = {r.host_id for r in live}
    if len(hosts) > 1 and len(wrong) == len(live) and max(ages_ms) - min(ages_ms) < _AGREE_MS:
        yield _driver_clock(-max(ages_ms), len(hosts))  # all reports come from its future
        return
    for r, behind_ms in wrong:
        where = "behind" if behind_ms > 0 else "ahead of"
        yield Problem(
            cause=CauseClass.CLOCK,
            key=f"clock:{r.host_id}",
            subject=f"clock of delivery service {r.host_name}",
            what=f"it is about {abs(behind_ms) // 1000} s {where} the driver's clock; no bucket "
            f"closes if the difference is {CLOCKS_APART_MS_MAX // 1000} s or more",
            do=f"on {r.host_name} and the driver's machine: `timedatectl`, `chronyc tracking`",
            group="clocks of delivery services that are wrong",
        )


def _driver_clock(behind_ms: int, services: int) -> Problem:
    return Problem(
        cause=CauseClass.CLOCK,
        key="clock:driver",
        subject="clock of the etl driver",
        what=f"it is about {behind_ms // 1000} s behind the clocks of all {services} delivery "
        "services, which agree; no bucket closes if the difference is "
        f"{CLOCKS_APART_MS_MAX // 1000} s or more",
        do="on the driver's machine: `timedatectl`, `chronyc tracking`",
    )


def _silent_hosts(facts: LedgerFacts, heard_ms: int) -> Iterator[Problem]:
    for r in _first_of_each_host(facts.reporters):
        silent_ms = heard_ms - r.heard_at_ms
        if r.goodbye or r.waived or silent_ms <= SILENT_MS:
            continue
        if r.kind == "service" and silent_ms > SERVICE_REPLACED_MS:
            continue
        yield silent_host_problem(r.kind, r.host_name, r.host_id, r.heard_at_ms)


def _first_of_each_host(reports: Sequence[ReportedSource]) -> list[ReportedSource]:
    by_host: dict[str, ReportedSource] = {}
    for r in reports:
        by_host.setdefault(r.host_id, r)
    return list(by_host.values())


def _hosts_behind(facts: LedgerFacts, heard_ms: int) -> Iterator[Problem]:
    for r in facts.reporters:
        caught_up_ms = r.caught_up_at_ms
        is_fresh = not r.goodbye and heard_ms - r.heard_at_ms <= SILENT_MS
        if (
            is_fresh
            and r.kind == "tailer"
            and r.pending_bytes
            and (caught_up_ms is None or facts.now_ms - caught_up_ms > BEHIND_MS)
        ):
            since = (
                "has never delivered everything"
                if caught_up_ms is None
                else f"has not delivered everything for {format_age(caught_up_ms, facts.now_ms)}"
            )
            yield Problem(
                cause=CauseClass.HOST,
                key=f"behind:{r.host_id}:{r.source}",
                subject=f"tailer {r.host_name} source {r.source}",
                what=f"it reports, but {since}: {format_count(r.pending_bytes, 'byte')} pending",
                do=f"on {r.host_name}: check whether `hourmark tail status` shows a rejected "
                "range and its reason, or that the tailer is catching up",
                since_ms=caught_up_ms,
                group="sources of tailers that are behind",
            )


def _age(f: Frontier) -> tuple[int, str]:
    return f.hour.start_s, f.event_type


def _own_blocker(facts: LedgerFacts, f: Frontier) -> Blocker | None:
    blocker = facts.blockers.get(f.event_type)
    return blocker if blocker is not None and blocker.applies_to(f) else None


def _is_unexplained(facts: LedgerFacts, f: Frontier) -> bool:
    return (
        f.state is not HourState.DAMAGED
        and _own_blocker(facts, f) is None
        and facts.now_ms - f.due_ms > UNEXPLAINED_MS
    )


def _cause(facts: LedgerFacts, f: Frontier, overriding: str | None) -> tuple[str, str] | None:
    # What types have in common that are reported together; None if the type is not in trouble.
    if f.state is HourState.DAMAGED:
        return "damaged", ""
    ended_ms = facts.now_ms - f.due_ms
    blocker = _own_blocker(facts, f)
    is_regular = blocker is None or blocker.phase.is_regular
    if overriding == _NO_DRIVER or (overriding == _NO_REPORTS and is_regular):
        return (overriding, "") if ended_ms > OVERDUE_MS else None
    if blocker is None:
        is_stuck = _is_unexplained(facts, f) and f.event_type not in facts.progressing
        return ("unexplained", "") if is_stuck else None
    waits_ms = facts.now_ms - blocker.since_ms
    if blocker.phase.is_regular:
        if ended_ms <= OVERDUE_MS or waits_ms <= SILENT_MS:
            return None
    elif waits_ms <= FAULT_MS:
        return None
    return blocker.phase.value, re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", _cause_text(blocker, f))


def _cause_text(blocker: Blocker | None, f: Frontier) -> str:
    return "; ".join(blocker.what).replace(f.event_type, "…") if blocker is not None else ""


def _waiting_types(
    facts: LedgerFacts, cause: tuple[str, str], found: Sequence[Frontier]
) -> Problem:
    oldest = min(found, key=_age)
    names = sorted(f.event_type for f in found)
    since_ms = min(f.due_ms for f in found)
    if cause[0] == _NO_DRIVER:
        what = "hours have ended and are not closed, because no driver is running"
        if (goodbye_ms := facts.driver.goodbye_ms) is not None:
            what = (
                "hours have ended and are not closed, because the driver was stopped at "
                f"{format_iso(goodbye_ms)}"
            )
        do = f"{facts.driver.restart_step}; hours then close automatically, the oldest first"
    elif cause[0] == _NO_REPORTS:
        what = "hours have ended and are not closed, because the driver reads no reports"
        do = "resolve the problems above; hours then close automatically, the oldest first"
    else:
        what, do = _explained(facts, oldest)
        if len({_cause_text(facts.blockers.get(f.event_type), f) for f in found}) > 1:
            do = (
                f"{do}; other types wait for the same condition with other names or numbers: "
                "`hourmark bucket ls --state open`"
            )
    subject = f"{names[0]} {oldest.hour}" if len(names) == 1 else f"{len(names)} types"
    if oldest.state is HourState.DAMAGED:
        subject = name_some(names)
    elif len(names) > 1:
        what = f"{what} (oldest: {oldest.event_type} {oldest.hour}, since {format_iso(since_ms)})"
    return Problem(
        cause=CauseClass.TYPES,
        key="types:" + ":".join(cause),
        subject=subject,
        what=what,
        do=do,
        since_ms=None if oldest.state is HourState.DAMAGED else since_ms,
        count=len(names),
        examples=tuple(names[:EXAMPLES_MAX]) if len(names) > 1 else (),
    )


def _explained(facts: LedgerFacts, f: Frontier) -> tuple[str, str]:
    # The first reason that `hourmark bucket why` would name.
    explanation = explain_hour(
        HourFacts(
            event_type=f.event_type,
            hour=f.hour,
            now_ms=facts.now_ms,
            deadline_seconds=facts.deadline_seconds,
            frontier=f,
            reporters=tuple(facts.reporters),
            blocker=facts.blockers.get(f.event_type),
            driver=facts.driver,
        )
    )
    reason = explanation.reasons[0]
    if f.state is HourState.DAMAGED:
        return f"{explanation.summary}: {reason.what}", reason.do
    more = len(explanation.reasons) - 1
    return (
        f"not closed; waits for: {reason.what}{f' and {more} more' if more else ''}",
        f"`hourmark bucket why {f.event_type} {f.hour}` lists all reasons; first: {reason.do}",
    )
