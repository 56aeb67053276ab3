"""Determines which hours all live sources have delivered: the first condition of a cut. Pure.

A source is live until its host signs off. How far it has caught up is measured by the delivery
services' clocks, and when it was heard by the driver's clock. The earlier of the two decides, so a
clock that runs ahead closes nothing early. If clocks are minutes apart, nothing closes, because
deadlines would be judged by a wrong clock. Nothing closes either while no service is live, because
there is no clock to compare with and no service to confirm that an hour has all of its events.

After its deadline an hour closes without the sources that have not caught up with its end: they are
waived and named. A back-filled hour waits until every source has caught up with the moment at which
the closer noticed it, so an old file that is being delivered is awaited. Its deadline counts from
that moment, or from the end of the type's first hour if that is later, as its lines may be delivered
years after they were written. A source that was waived because it fell silent is not awaited again
until it reports.

`DuplicateHostWatch` detects two live incarnations of one host id: a machine was cloned with its
tailer's identity, or two tailers share a state folder. Reports replace each other in the ledger, so
two live incarnations appear as a change to another incarnation and back. This only raises an alarm:
each incarnation has its own ranges and ids, and hours wait for the one that reported last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.host_reports import API_SOURCE, CLOCKS_APART_MS_MAX
from hourmark_etl.model import Frontier, HourState, ReportedSource

SILENT_MS: Final = 60_000  # thirty reports at the default interval
WITHIN_MS: Final = 60_000  # between reports of a host's two incarnations


class Readiness(NamedTuple):
    """The time up to which the log sources of an event type have delivered all events.

    Attributes:
        watermark_ms: Time in Unix milliseconds. Hours that end at or before it may be closed.
        waits_for: Human-readable descriptions of what the next hour waits for.
        waived: Sources that have not delivered all events, but that hours up to the watermark no
            longer wait for, because the deadline has passed.
    """

    watermark_ms: int
    waits_for: tuple[str, ...]
    waived: tuple[ReportedSource, ...] = ()


class LatestReports:
    """The latest reports of all log sources, with lookups of the sources that closing waits for.

    In a report, a host or delivery service states the time up to which it has delivered all data of
    a log source. A bucket is closed only after every source of its event type has reported a time
    past the end of its hour.

    Args:
        reporters: Latest report of each source on each host and delivery service.

    Attributes:
        all: Reports by host id and source name.
        services: Reports of delivery services that have not signed off.
    """

    def __init__(self, reporters: Iterable[ReportedSource]) -> None:
        self.all = {(r.host_id, r.source): r for r in reporters}
        self.services = [r for r in self.all.values() if r.kind == "service" and not r.goodbye]
        heard_ms = max((r.heard_at_ms for r in self.services), default=0)
        self._by_source: dict[str, list[ReportedSource]] = {}
        for r in sorted((r for r in self.all.values() if _is_live(r, heard_ms)), key=_caught_up_ms):
            self._by_source.setdefault(r.source, []).append(r)

    def awaited_reporters(self, frontier: Frontier) -> Iterator[list[ReportedSource]]:
        """Return the reports of all log sources that must catch up before a bucket is closed.

        Hosts that have signed off are omitted. Sources for which an earlier bucket stopped waiting
        (waived sources) are also omitted.

        Args:
            frontier: The next hour to close of an event type.

        Returns:
            An iterator that yields the reports of one source at a time, in the order of source
            names. The reports of a source are sorted by the time up to which data was delivered.
        """
        return (self._by_source[source] for source in sorted(self.live_sources(frontier)))

    def live_sources(self, frontier: Frontier) -> frozenset[str]:
        """Return the names of the log sources that must catch up before a bucket is closed.

        Args:
            frontier: The next hour to close of an event type.

        Returns:
            Names of the sources that may deliver the type and that at least one active host or
            service reports. Empty if there is none.
        """
        live = self._by_source.keys()
        return frozenset(
            live if frontier.event_type == DEAD_LETTERS else live & {*frontier.sources, API_SOURCE}
        )


def may_deliver(frontier: Frontier, reporter: ReportedSource) -> bool:
    """Return whether a log source may deliver events of an event type.

    The delivery service's API may deliver every type. Every source may deliver dead letters (lines
    that could not be parsed).

    Args:
        frontier: The event type, with the names of its sources.
        reporter: A report of the log source.

    Returns:
        True if the source is one of the type's sources or the API, or if the type is the
        dead-letter type.
    """
    return (
        reporter.source in frontier.sources
        or reporter.source == API_SOURCE
        or frontier.event_type == DEAD_LETTERS
    )


def _is_live(r: ReportedSource, heard_ms: int) -> bool:
    # Return whether hours wait for the reporter. A delivery service that has fallen silent while
    # another one reports is not awaited: events that it did not acknowledge are not promised, and
    # hosts that wait for its response delay the hour themselves.
    return (
        not r.goodbye
        and not r.waived
        and not (r.kind == "service" and heard_ms - r.heard_at_ms > SILENT_MS)
    )


def readiness(
    frontier: Frontier, reports: LatestReports, now_ms: int, deadline_ms: int
) -> Readiness:
    """Compute the time up to which all events of a type have been delivered.

    An hour waits for log sources that have not delivered all events up to the end of the hour.
    After the deadline, it no longer waits for them, and they are returned as waived.

    Args:
        frontier: The next hour to close of the event type.
        reports: The latest reports of all sources.
        now_ms: Current time in Unix milliseconds.
        deadline_ms: Time from the end of an hour to its deadline, in milliseconds.

    Returns:
        The time, and the sources that the next hour waits for or that are waived.
    """
    end, waived_ms = frontier.awaited_ms, frontier.times_out_ms(deadline_ms)
    behind: list[ReportedSource] = []
    others_ms = now_ms
    for group in reports.awaited_reporters(frontier):
        for r in group:
            if _caught_up_ms(r) >= end:
                others_ms = min(others_ms, _caught_up_ms(r))
                break
            behind.append(r)
    if behind and now_ms >= waived_ms:
        return Readiness(min(others_ms, now_ms - deadline_ms), (), tuple(behind))
    event = "the back-fill began" if frontier.noticed_ms else "its end"
    waits_for = [_waits_for(r, end, event) for r in behind]
    if now_ms < frontier.hour.end_ms:
        waits_for.append(
            f"the hour has not ended according to the closer's clock ({_seconds(end - now_ms)} "
            "to go)"
        )
    return Readiness(min([others_ms, *map(_caught_up_ms, behind)]), tuple(waits_for))


def are_still_behind(
    frontier: Frontier, waived: Iterable[ReportedSource], later: LatestReports
) -> bool:
    """Return whether all waived log sources of an hour are still behind.

    A source is behind if it has not delivered all events up to the end of the hour. It is waived if
    the deadline has passed, so that the hour no longer waits for it.

    Args:
        frontier: The next hour to close of an event type.
        waived: The waived sources of this hour.
        later: Later reports of all sources.

    Returns:
        True if all of them are behind, or if `waived` is empty. False if a source has caught up,
        has signed off or is no longer reported. The hour must then wait for the next cut, which
        includes the events of the source.
    """
    for r in waived:
        now = later.all.get((r.host_id, r.source))
        if now is None or now.goodbye or _caught_up_ms(now) >= frontier.awaited_ms:
            return False
    return True


def find_silent_sources(
    waived: Iterable[ReportedSource], latest: Iterable[ReportedSource]
) -> list[ReportedSource]:
    """Return the waived log sources that have stopped reporting.

    A source is waived if a bucket was closed without waiting for it. A source is silent if it has
    not reported for a minute while other sources have. Later hours do not wait for silent sources.
    They do wait, until their deadline, for waived sources that still report.

    Args:
        waived: The waived sources, as reported when they were waived.
        latest: The latest reports of all sources.

    Returns:
        The silent entries of `waived`; empty if all of these sources still report.
    """
    heard_ms = max((r.heard_at_ms for r in latest), default=0)
    return [r for r in waived if heard_ms - r.heard_at_ms > SILENT_MS]


def describe_missing_service(reports: LatestReports) -> str | None:
    """Return an error message if no delivery service is running, according to the reports.

    Args:
        reports: The latest reports of all sources, including delivery services.

    Returns:
        The message; None if at least one delivery service has reported and has not signed off.
    """
    if reports.services:
        return None
    gone = [r for r in reports.all.values() if r.kind == "service"]
    if not gone:
        return (
            "no delivery service has reported yet. A service that was just started reports "
            "within seconds; otherwise start one (`hourmark serve`)"
        )
    last = max(gone, key=lambda r: r.heard_at_ms)
    return (
        f"every delivery service was shut down, the last one was {last.name} ({last.host_id}). "
        "No bucket closes until a service reports, not even after the deadline; start one "
        "(`hourmark serve`)"
    )


def describe_clock_difference(reports: LatestReports, now_ms: int) -> str | None:
    """Return an error message if the clocks of this process and the delivery services differ.

    The current time is compared with the newest report of a delivery service. Services that have
    not reported for a minute while others have are ignored.

    Args:
        reports: The latest reports of all sources.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The message if the difference is more than 5 minutes or if no delivery service is running;
        otherwise None.
    """
    if not reports.services:
        return describe_missing_service(reports)
    heard_ms = max(r.heard_at_ms for r in reports.services)
    newest = max(
        (r for r in reports.services if heard_ms - r.heard_at_ms <= SILENT_MS),
        key=lambda r: r.received_at_ms,
    )
    ahead_ms = newest.received_at_ms - now_ms
    if ahead_ms > CLOCKS_APART_MS_MAX:
        return (
            f"{newest.name} ({newest.host_id}) reported at a time that is {_seconds(ahead_ms)} "
            "ahead of the closer's clock. One of the two clocks is wrong, and no bucket closes "
            "until they agree; check the clock of that service and of this machine"
        )
    if -ahead_ms > CLOCKS_APART_MS_MAX:
        return (
            f"the newest staged report of a delivery service ({newest.name}) is "
            f"{_seconds(-ahead_ms)} old according to the closer's clock. Staging is behind (as "
            "after a pause of the ETL), no service reports, or a clock is wrong. No bucket "
            "closes until a newer report is staged"
        )
    return None


def adjust_for_new_sources(
    frontier: Frontier,
    readiness_before: Readiness,
    new_sources: Sequence[ReportedSource],
    now_ms: int,
    deadline_ms: int,
) -> Readiness | None:
    """Adjust the readiness of an event type for log sources that appeared while a cut was taken.

    A cut is a set of end offsets, which may not cover the events of the new sources. Before the
    deadline, the type must therefore wait for the next cut. After the deadline, the hour does not
    wait for the new sources.

    Args:
        frontier: The next hour to close of the event type.
        readiness_before: Readiness at the start of the cut.
        new_sources: Sources that have appeared since then and may deliver the type.
        now_ms: Start time of the cut in Unix milliseconds.
        deadline_ms: Time from the end of an hour to its deadline, in milliseconds.

    Returns:
        `readiness_before` if there are no new sources; None if the type must wait for the next cut.
        After the deadline, a copy of `readiness_before` with the new sources added to `waived`.
    """
    if not new_sources:
        return readiness_before
    if now_ms < frontier.times_out_ms(deadline_ms):
        return None
    return readiness_before._replace(
        watermark_ms=min(readiness_before.watermark_ms, now_ms - deadline_ms),
        waived=(*readiness_before.waived, *new_sources),
    )


def find_new_sources(
    before: Collection[ReportedSource], after: Collection[ReportedSource]
) -> list[ReportedSource]:
    """Return the log sources that have appeared or come back since the start of a cut.

    The cut (a set of end offsets) may not cover their events. A source comes back if it signed off
    and a new process reports it, or if it reports again after closing no longer waited for it
    (waived). Delivery services, and hosts that restarted without signing off, are not included.

    Args:
        before: Reports at the start of the cut.
        after: Current reports.

    Returns:
        The entries of `after` for these sources; empty if there are none.
    """
    known = {(r.host_id, r.source): r for r in before}
    return [
        r for r in after if r.kind != "service" and _is_new(known.get((r.host_id, r.source)), r)
    ]


def _is_new(before: ReportedSource | None, after: ReportedSource) -> bool:
    return (
        before is None
        or (before.goodbye and before.incarnation != after.incarnation)
        or (before.waived and not after.waived)
    )


def compute_readiness_by_type(
    frontiers: Iterable[Frontier], reports: LatestReports, now_ms: int, deadline_ms: int
) -> dict[str, Readiness]:
    """Compute the time up to which all events of each event type have been delivered.

    Types whose next hour has not ended or is not open are omitted. The result is computed once for
    all types that have the same hour and sources, because there may be thousands of hosts and
    types.

    Args:
        frontiers: The next hour to close for each event type.
        reports: The latest reports of all sources.
        now_ms: Current time in Unix milliseconds.
        deadline_ms: Time from the end of an hour to its deadline, in milliseconds. After the
            deadline, the hour no longer waits for sources that have not delivered all events.

    Returns:
        Readiness by event type; empty if no open hour has ended.
    """
    known: dict[tuple[int, int, frozenset[str]], Readiness] = {}
    found = {}
    for f in frontiers:
        if f.state is HourState.OPEN and f.hour.end_ms <= now_ms:
            of = (f.awaited_ms, f.due_ms, reports.live_sources(f))
            found[f.event_type] = known[of] = known.get(of) or readiness(
                f, reports, now_ms, deadline_ms
            )
    return found


def _caught_up_ms(reporter: ReportedSource) -> int:
    return reporter.caught_up_at_ms or 0


def _waits_for(r: ReportedSource, end_ms: int, event: str) -> str:
    if r.caught_up_at_ms is None:
        return f"{r.name} ({r.host_id}): has never caught up"
    return (
        f"{r.name} ({r.host_id}): caught up {_seconds(end_ms - r.caught_up_at_ms)} before {event}"
    )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


class DuplicateHostWatch:
    """Detects tailers (log agents) or services that run concurrently with the same host id.

    Call `observe` with the latest reports in every poll. The instance compares them with the
    reports of earlier calls.
    """

    def __init__(self) -> None:
        self._last: dict[str, ReportedSource] = {}  # by host id: its last report
        self._left: dict[
            str, ReportedSource
        ] = {}  # by host id: the last report of the previous incarnation

    def observe(self, reporters: Iterable[ReportedSource]) -> list[str]:
        """Compare the latest reports with earlier ones to detect duplicate host ids.

        Each run of a tailer or service is an incarnation with its own id. A host id is a duplicate
        if an incarnation reports again within a minute after another incarnation has replaced it.

        Args:
            reporters: Latest report of each source.

        Returns:
            One human-readable alarm per duplicate host id; empty if there is none.
        """
        found = []
        for r in {r.host_id: r for r in reporters}.values():
            before, left = self._last.get(r.host_id), self._left.get(r.host_id)
            if before and before.incarnation != r.incarnation:
                if (
                    left
                    and left.incarnation == r.incarnation
                    and 0 <= r.received_at_ms - left.received_at_ms <= WITHIN_MS
                ):
                    found.append(
                        f"host {r.host_name} ({r.host_id}) has two live incarnations, "
                        f"{before.incarnation} and {r.incarnation}, that report alternately. "
                        "Check whether the machine was cloned or two tailers use copies of one "
                        "state folder, and stop one of them"
                    )
                self._left[r.host_id] = before
            self._last[r.host_id] = r
        return found
