"""Which hours every live source is past: the first condition of a cut. Pure.

A source is live until its host has said goodbye. How far it has caught up is told by the delivery
services' clocks, and when it was heard by the driver's: the earlier of the two decides, so a clock
that runs ahead, whosever it is, closes nothing early. Where they are minutes apart, nothing closes
at all, because a deadline would be judged by a wrong clock; nor where no service is live: then
there is no clock to compare with, and nobody who could say that an hour has all of its events.

Past its deadline an hour goes without the sources that have not caught up with its end: they are
waived, and named. A source that was waived because it has fallen silent is not awaited again until
it reports.

`DuplicateHostWatch` tells of two live incarnations of one host id: a machine was cloned with its
tailer's identity, or two tailers share a state folder. Reports replace each other in the ledger, so
two that live show as a change to another incarnation and back. It is an alarm and no more: what
each delivers has its own ranges and ids, and hours wait for whichever reported last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.host_reports import API_SOURCE, CLOCKS_APART_MS_MAX
from hourmark_etl.model import Frontier, Reporter, State

SILENT_MS: Final = 60_000  # thirty reports of the default pace
WITHIN_MS: Final = 60_000  # of a host's two incarnations, from one report to the other


class Readiness(NamedTuple):
    """How far a type's hours may be cut: those that end at or before `watermark_ms`.

    `waits_for` names who holds the next one.

    `waived` are the sources that every hour up to the watermark goes without, because its deadline
    has passed.
    """

    watermark_ms: int
    waits_for: tuple[str, ...]
    waived: tuple[Reporter, ...] = ()


class Reports:
    """The latest reports, arranged so that a thousand types ask in little time."""

    def __init__(self, reporters: Iterable[Reporter]) -> None:
        self.all = {(r.host_id, r.source): r for r in reporters}
        self.services = [r for r in self.all.values() if r.kind == "service" and not r.goodbye]
        heard_ms = max((r.heard_at_ms for r in self.services), default=0)
        self._by_source: dict[str, list[Reporter]] = {}
        for r in sorted((r for r in self.all.values() if _is_live(r, heard_ms)), key=_caught_up_ms):
            self._by_source.setdefault(r.source, []).append(r)

    def awaited(self, frontier: Frontier) -> Iterator[list[Reporter]]:
        """The live reporters that carry the type: a list for each source, in the order of how far
        they have caught up.
        """
        return (self._by_source[source] for source in sorted(self.sources_of(frontier)))

    def sources_of(self, frontier: Frontier) -> frozenset[str]:
        """The sources with live reporters that carry the type."""
        live = self._by_source.keys()
        return frozenset(
            live if frontier.event_type == DEAD_LETTERS else live & {*frontier.sources, API_SOURCE}
        )


def carries(frontier: Frontier, reporter: Reporter) -> bool:
    """Whether the reporter's lines or requests may become events of the type."""
    return (
        reporter.source in frontier.sources
        or reporter.source == API_SOURCE
        or frontier.event_type == DEAD_LETTERS
    )


def _is_live(r: Reporter, heard_ms: int) -> bool:
    """Whether hours wait for it.

    A delivery service that has fallen silent while another reports is not awaited: what it never
    acknowledged is not promised, and hosts that wait for its answer hold the hour themselves.
    """
    return (
        not r.goodbye
        and not r.waived
        and not (r.kind == "service" and heard_ms - r.heard_at_ms > SILENT_MS)
    )


def readiness(frontier: Frontier, reports: Reports, now_ms: int, deadline_ms: int) -> Readiness:
    """How far the type may be cut, given the latest reports and the closer's clock; the deadline
    counts from the hour's end.
    """
    end = frontier.hour.end_ms
    behind: list[Reporter] = []
    others_ms = now_ms
    for group in reports.awaited(frontier):
        for r in group:
            if _caught_up_ms(r) >= end:
                others_ms = min(others_ms, _caught_up_ms(r))
                break
            behind.append(r)
    if behind and now_ms >= end + deadline_ms:
        return Readiness(min(others_ms, now_ms - deadline_ms), (), tuple(behind))
    waits_for = [_waits_for(r, end) for r in behind]
    if now_ms < end:
        waits_for.append(
            f"the hour has not ended by the closer's clock ({_seconds(end - now_ms)} to go)"
        )
    return Readiness(min([others_ms, *map(_caught_up_ms, behind)]), tuple(waits_for))


def still_waived(frontier: Frontier, waived: Iterable[Reporter], later: Reports) -> bool:
    """Whether these sources are all still behind by later reports: whoever has caught up meanwhile
    is to be awaited after all.
    """
    for r in waived:
        now = later.all.get((r.host_id, r.source))
        if now is None or now.goodbye or _caught_up_ms(now) >= frontier.hour.end_ms:
            return False
    return True


def fallen_silent(waived: Iterable[Reporter], latest: Iterable[Reporter]) -> list[Reporter]:
    """Those of the waived from whom nothing has been heard for a minute, while others report: later
    hours do not await them.

    One that reports and stays behind is awaited for each hour anew, up to that hour's own deadline.
    """
    heard_ms = max((r.heard_at_ms for r in latest), default=0)
    return [r for r in waived if heard_ms - r.heard_at_ms > SILENT_MS]


def no_service(reports: Reports) -> str | None:
    """Why no delivery service can speak for the clock and for requests, human-readable; None where
    one is live.
    """
    if reports.services:
        return None
    gone = [r for r in reports.all.values() if r.kind == "service"]
    if not gone:
        return (
            "no delivery service has reported yet; one that was just started does in a "
            "moment, else start it (`hourmark serve`)"
        )
    last = max(gone, key=lambda r: r.heard_at_ms)
    return (
        f"every delivery service has said goodbye, {last.name} ({last.host_id}) last: nothing "
        "closes until one reports, not even "
        "past the deadline; is one to be started? (`hourmark serve`)"
    )


def clocks_apart(reports: Reports, now_ms: int) -> str | None:
    """Which clock cannot be trusted, human-readable; None where the closer's and the live services'
    agree.

    One that has fallen silent while another reports says nothing: its time would stop closing until
    that time has come.
    """
    if not reports.services:
        return no_service(reports)
    heard_ms = max(r.heard_at_ms for r in reports.services)
    newest = max(
        (r for r in reports.services if heard_ms - r.heard_at_ms <= SILENT_MS),
        key=lambda r: r.received_at_ms,
    )
    ahead_ms = newest.received_at_ms - now_ms
    if ahead_ms > CLOCKS_APART_MS_MAX:
        return (
            f"{newest.name} ({newest.host_id}) reported at a time that is {_seconds(ahead_ms)} "
            "ahead of the closer's clock; one "
            "of the two is wrong, and nothing closes until they agree: look at the clock of "
            "that service, and of this machine"
        )
    if -ahead_ms > CLOCKS_APART_MS_MAX:
        return (
            f"the closer's clock is {_seconds(-ahead_ms)} ahead of the newest report of any "
            f"delivery service ({newest.name}): no "
            "service reports, reports are not staged, or a clock is wrong; nothing closes "
            "until one arrives"
        )
    return None


def without_newly_seen(
    f: Frontier, chosen: Readiness, new: Sequence[Reporter], now_ms: int, deadline_ms: int
) -> Readiness | None:
    """How far the type may be cut although these appeared meanwhile; None before its deadline, as
    the next cut will know them.
    """
    if not new:
        return chosen
    if now_ms < f.hour.end_ms + deadline_ms:
        return None
    return chosen._replace(
        watermark_ms=min(chosen.watermark_ms, now_ms - deadline_ms), waived=(*chosen.waived, *new)
    )


def newly_seen(before: Collection[Reporter], after: Collection[Reporter]) -> list[Reporter]:
    """Hosts' sources that were not known, or had said goodbye or been waived, and came back: a cut
    may miss their promises.

    They count even if they have said goodbye again by now. A known host that was restarted is none:
    it had caught up. Nor is a service: what it acknowledges after the cut arrives late, and nobody
    was promised otherwise.
    """
    known = {(r.host_id, r.source): r for r in before}
    return [
        r for r in after if r.kind != "service" and _is_new(known.get((r.host_id, r.source)), r)
    ]


def _is_new(before: Reporter | None, after: Reporter) -> bool:
    return (
        before is None
        or (before.goodbye and before.incarnation != after.incarnation)
        or (before.waived and not after.waived)
    )


def ready(
    frontiers: Iterable[Frontier], reports: Reports, now_ms: int, deadline_ms: int
) -> dict[str, Readiness]:
    """Open types whose frontier hour has ended by the closer's clock, with how far they may be cut.

    Types of the same sources and hour share an answer: at an hour's end thousands of hosts are
    behind, for a thousand types.
    """
    known: dict[tuple[int, frozenset[str]], Readiness] = {}
    found = {}
    for f in frontiers:
        if f.state is State.OPEN and f.hour.end_ms <= now_ms:
            of = (f.hour.end_ms, reports.sources_of(f))
            found[f.event_type] = known[of] = known.get(of) or readiness(
                f, reports, now_ms, deadline_ms
            )
    return found


def _caught_up_ms(reporter: Reporter) -> int:
    return reporter.caught_up_at_ms or 0


def _waits_for(r: Reporter, end_ms: int) -> str:
    if r.caught_up_at_ms is None:
        return f"{r.name} ({r.host_id}): never caught up yet"
    return (
        f"{r.name} ({r.host_id}): caught up {_seconds(end_ms - r.caught_up_at_ms)} before its end"
    )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


class DuplicateHostWatch:
    """Remembers the last incarnations of each host. Feed it every poll."""

    def __init__(self) -> None:
        self._last: dict[str, Reporter] = {}  # by host id: its last report
        self._left: dict[
            str, Reporter
        ] = {}  # by host id: the last one of the incarnation before that

    def feed(self, reporters: Iterable[Reporter]) -> list[str]:
        """What is new, human-readable: each time an incarnation that had been replaced within a
        minute reports again.
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
                        f"{before.incarnation} and {r.incarnation}, "
                        "that report in turn: was the machine cloned, or do two tailers share "
                        "one state folder? Stop one of them"
                    )
                self._left[r.host_id] = before
            self._last[r.host_id] = r
        return found
