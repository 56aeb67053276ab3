"""Rows and summaries of `hourmark bucket ls`, read from the ledger or from markers on storage.

The ledger is read first. Each condition is part of the query. Open hours cost one row per selected
type, regardless of the number of closed buckets. Closed buckets are read by type and time span,
with the primary key. While the ledger cannot be read, closed buckets are listed from their markers
on storage, one file each.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

import click
from pydantic_core import from_json

from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError, UsageError
from hourmark.printing import cut_text
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Grade, Manifest
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_etl.buckets.expiry import RETENTION_MS_MIN
from hourmark_etl.buckets.reader import (
    BadMarker,
    BucketRemoved,
    NotClosed,
    is_between,
    list_dates,
    list_hours,
    list_types,
    read_manifest,
)
from hourmark_etl.buckets.tombstones import (
    find_tombstone,
    list_removed_dates,
    read_removed_buckets,
)
from hourmark_etl.humanize import format_duration
from hourmark_etl.ledger.bucket_rows import (
    BucketRow,
    make_damaged_bucket_error,
    select_bucket_rows,
)
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers, read_type_names
from hourmark_etl.ledger.heartbeat import read_driver_signs
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.maintenance.overview import read_oldest_staged_hours
from hourmark_etl.ledger.overrides import Blocker, blockers
from hourmark_etl.model import Frontier, HourState
from hourmark_etl.operators.explain import describe_running_step
from hourmark_etl.storage import Storage, map_concurrently, open_storage

COLUMNS: Final = (
    "type",
    "hour",
    "grade",
    "events",
    "late",
    "duplicates_removed",
    "unaudited",
    "bytes",
    "closed_after_s",
    "waits_for",
)
CLOSED: Final = "closed"  # `state` of a closed bucket; an open one has that of its frontier
DAMAGED: Final = "damaged"
REMOVED: Final = "removed"  # `state` of a bucket that was closed, and removed by retention
_NO_VALUES: Final = dict.fromkeys(COLUMNS)
_WAITS_SHOWN: Final = 100  # characters in a table
_TYPES_SHOWN: Final = 20
_NEVER_S: Final = 1 << 40  # after every hour, Unix seconds

Row = dict[str, Any]
_Rows = Iterable[tuple[Row, bool]]  # with whether the bucket is closed
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketSelection:
    """The buckets that a listing includes.

    A bucket must meet all conditions.

    Attributes:
        patterns: Shell patterns of event types, such as `page-*`; empty includes all types.
        first: First hour; None sets no limit.
        last: Last hour, inclusive; None sets no limit.
        is_open: True for open hours only, False for closed buckets only, None for both.
        grades: Grades of closed buckets; empty includes all grades. Open hours have no grade.
    """

    patterns: tuple[str, ...] = ()
    first: Hour | None = None
    last: Hour | None = None
    is_open: bool | None = None
    grades: frozenset[Grade] = frozenset()

    @property
    def wants_open(self) -> bool:
        """Return whether buckets that are not closed yet are included."""
        return self.is_open is not False and not self.grades

    @property
    def wants_closed(self) -> bool:
        """Return whether closed buckets are included."""
        return self.is_open is not True

    @property
    def grade_names(self) -> frozenset[str]:
        """Return the names of the included grades; empty if all grades are included."""
        return frozenset(grade.value for grade in self.grades)

    def includes_hour(self, hour: Hour) -> bool:
        """Return whether an hour is in the time span of this selection.

        Args:
            hour: The hour. It must have the same length as `first` and `last`.
        """
        return is_between(hour, self.first, self.last)

    def match_types(self, names: Sequence[str], where: str) -> list[str]:
        """Return the names of the included event types.

        Args:
            names: All names.
            where: Origin of the names, for the error message.

        Returns:
            Matching names in the given order; all names if there is no pattern.

        Raises:
            NotClosed: A pattern matches no name. The message contains known names.
        """
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                more = len(names) - _TYPES_SHOWN
                known = ", ".join(names[:_TYPES_SHOWN]) or "none"
                raise NotClosed(
                    f"no event type in {where} matches {pattern!r}; known types: {known}"
                    f"{f' and {more} more' if more > 0 else ''}"
                )
        return [
            name
            for name in names
            if not self.patterns or any(fnmatchcase(name, p) for p in self.patterns)
        ]


@dataclasses.dataclass(slots=True)
class _TypeTotals:
    # Accumulates the rows of one event type.
    buckets: int = 0
    events: int = 0
    damaged: int = 0
    removed: int = 0
    grades: Counter[str] = dataclasses.field(default_factory=Counter)
    hours: tuple[str, str] | None = None  # first and last closed one
    next_row: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, row: Mapping[str, Any], *, is_closed: bool) -> None:
        if not is_closed:
            self.next_row = row
            return
        hour = row["hour"]
        first, last = self.hours or (hour, hour)
        self.hours = min(first, hour), max(last, hour)
        self.buckets += 1
        self.damaged += row["state"] == DAMAGED
        self.removed += row["state"] == REMOVED
        self.events += row["events"] or 0
        if row["grade"] is not None:
            self.grades[row["grade"]] += 1


def list_buckets(config: Config, selection: BucketSelection, now_ms: int) -> list[Row]:
    """Return one table row per closed bucket, and one for the next hour of each type to close.

    Args:
        config: Configuration with the ledger (the ETL's state database) and the storage root.
        selection: The buckets to include.
        now_ms: Current time, Unix milliseconds.

    Returns:
        Rows sorted by type and hour, dead letters (unparsable lines) last; empty if nothing is
        selected. The keys are `COLUMNS` and `state`: `closed`, `removed`, `open`, `frozen` (being
        checked), `sealed` (being written) or `damaged`. Open hours have `overdue_s` (seconds since
        the end of the hour, at least 0) and `staged_hour` (the oldest hour with events that were
        copied from Kafka and are in no bucket yet), and damaged buckets `problem`. If the ledger
        cannot be read, a message is printed to stderr, and open hours are missing.

    Raises:
        NotClosed: A pattern matches no event type.
        HourmarkError: Neither ledger nor storage can be read, or only open hours are selected and
            the ledger cannot be read.
    """
    return _collect(
        config, selection, now_ms, lambda rows: sorted((row for row, _ in rows), key=_order)
    )


def summarize_buckets(config: Config, selection: BucketSelection, now_ms: int) -> list[Row]:
    """Return one table row per event type, with totals of its closed buckets and its next hour.

    Buckets are streamed, so memory use depends only on the number of types.

    Args:
        config: Configuration with the ledger (the ETL's state database) and the storage root.
        selection: The buckets to include. Columns about closed buckets are None if only open hours
            are selected.
        now_ms: Current time, Unix milliseconds.

    Returns:
        Rows sorted by type; types without a selected bucket are omitted. The keys are `type`,
        `buckets`, `events`, `proved`, `timed_out`, `forced`, `damaged`, `removed` (numbers of
        buckets; removed ones also have a grade), `first_hour`, `last_hour` (of closed buckets),
        `next_hour`, `next_state`, `waits_for` and `overdue_s` (of the next hour to close).

    Raises:
        NotClosed: A pattern matches no event type.
        HourmarkError: Neither ledger nor storage can be read, or only open hours are selected and
            the ledger cannot be read.
    """
    return _collect(
        config, selection, now_ms, lambda rows: _summarize(rows, with_closed=selection.wants_closed)
    )


def make_row(event_type: str, hour: Hour, state: str, **values: object) -> Row:
    """Create a row of a bucket listing. Columns without a given value are None.

    Args:
        event_type: Name of the event type.
        hour: The hour.
        state: Value of the key `state`, such as `open` or `closed`.
        **values: Further values by column name.

    Returns:
        A dict with the key `state` and a key for each of `COLUMNS`.
    """
    return {**_NO_VALUES, "type": event_type, "hour": str(hour), "state": state, **values}


def open_bucket_row(
    frontier: Frontier,
    blocker: Blocker | None,
    missing_driver: str | None,
    now_ms: int,
    waits_max: int = _WAITS_SHOWN,
) -> Row:
    """Return the listing row for the next bucket of an event type to be closed.

    The function performs no I/O.

    Args:
        frontier: The oldest hour of the type whose bucket is not closed.
        blocker: Why the bucket is not closed; None if no reason is known.
        missing_driver: Human-readable message that no ETL driver (the process that closes buckets)
            is running; None if one is.
        now_ms: Current time, Unix milliseconds.
        waits_max: Maximum length of `waits_for` in characters; a longer text is cut at the end of a
            word.

    Returns:
        A dict with a key for each of `COLUMNS`, such as `hour`, `grade`, `events` and `waits_for`,
        and the key `state`. `overdue_s` is added: seconds since the end of the hour, at least 0.
        Columns about closed buckets are None.
    """
    ended_s = (now_ms - frontier.hour.end_ms) / 1000
    is_own = blocker is not None and blocker.applies_to(frontier)
    text = "; ".join(blocker.what) if blocker is not None and is_own else ""
    if missing_driver and ended_s >= 0:
        text = f"{missing_driver}; then: {text}" if text else missing_driver
    if not text or frontier.state is HourState.DAMAGED:
        text = _describe_step(frontier, ended_s)
    return make_row(
        frontier.event_type,
        frontier.hour,
        frontier.state.value,
        waits_for=cut_text(text, waits_max),
        overdue_s=round(max(0.0, (now_ms - frontier.due_ms) / 1000), 1),
    )


def _describe_step(f: Frontier, ended_s: float) -> str:
    # What an hour waits for if nothing else is known. Damaged rows have no known state.
    if f.state is HourState.DAMAGED:
        return "; ".join(f.alarm)
    if running := describe_running_step(f):
        return running
    return f"its end in {format_duration(-ended_s)}" if ended_s < 0 else "the closer's next poll"


def closed_bucket_row(
    event_type: str, hour: Hour, grade: str, closed_at_ms: int, manifest: Mapping[str, Any]
) -> Row:
    """Return the listing row for a closed bucket.

    Args:
        event_type: Name of the event type.
        hour: Hour of the bucket.
        grade: Grade of the bucket: `proved`, `timed_out` or `forced`.
        closed_at_ms: Time of closing, Unix milliseconds.
        manifest: The decoded JSON of the bucket's `_SUCCESS` file.

    Returns:
        A dict with a key for each of `COLUMNS`, such as `hour`, `grade`, `events` and `waits_for`,
        and the key `state`. `state` is `closed`, and `waits_for` is None.

    Raises:
        KeyError: The manifest lacks a field. A field of another type raises TypeError or
            AttributeError.
    """
    return make_row(
        event_type,
        hour,
        CLOSED,
        grade=grade,
        events=manifest["events"],
        late=sum(manifest["late"].values()),
        duplicates_removed=manifest["duplicates_removed"],
        unaudited=manifest["unaudited"],
        bytes=sum(file["bytes"] for file in manifest["files"]),
        closed_after_s=round((closed_at_ms - hour.end_ms) / 1000, 1),
    )


def manifest_row(event_type: str, hour: Hour, manifest: Manifest) -> Row:
    """Return the listing row for a closed bucket whose `_SUCCESS` file was validated.

    Args:
        event_type: Name of the event type.
        hour: Hour of the bucket.
        manifest: The validated content of this file.

    Returns:
        A dict with a key for each of `COLUMNS`, such as `hour`, `grade`, `events` and `waits_for`,
        and the key `state`. `state` is `closed`, and `waits_for` is None.
    """
    return closed_bucket_row(
        event_type, hour, manifest.grade.value, manifest.closed_at_ms, manifest.model_dump()
    )


def _collect(
    config: Config,
    selection: BucketSelection,
    now_ms: int,
    collect: Callable[[_Rows], _Result],
) -> _Result:
    # Rows of the ledger; if any of them cannot be read, those of the markers instead.
    try:
        with open_existing_ledger(config) as database:
            return collect(_ledger_rows(database, config, selection, now_ms))
    except (NotClosed, UsageError):
        raise
    except HourmarkError as error:
        if not selection.wants_closed:
            raise
        click.echo(
            "listing only closed buckets, from their markers on storage, because the ledger "
            f"cannot be read: {redact(str(error))}",
            err=True,
        )
    storage = open_storage(config.storage)
    return collect(_storage_rows(storage, config.parsing.bucket_seconds, selection))


def _ledger_rows(
    database: Database, config: Config, selection: BucketSelection, now_ms: int
) -> Iterator[tuple[Row, bool]]:
    length_s = config.parsing.bucket_seconds
    types = None
    if selection.patterns:
        types = selection.match_types(read_type_names(database), "the ledger")
    found = frontiers(database, length_s, types)
    if selection.wants_open:
        waiting = blockers(database, length_s, types)
        silent = read_driver_signs(database).describe_missing(now_ms)
        staged = read_oldest_staged_hours(database, types)
        for f in found:
            if f.state is HourState.DAMAGED or selection.includes_hour(f.hour):
                open_row = open_bucket_row(f, waiting.get(f.event_type), silent, now_ms)
                at_s = staged.get(f.event_type)
                yield (
                    {
                        **open_row,
                        "staged_hour": None if at_s is None else str(Hour(at_s, length_s)),
                    },
                    False,
                )
    if selection.wants_closed:
        first_s = selection.first.start_s if selection.first else 0
        ends_s = {f.event_type: _end_of_closed_s(f, selection) for f in found}
        hour_of = functools.cache(functools.partial(Hour, length_s=length_s))
        removed = _list_removed(open_storage(config.storage), list(ends_s), selection, now_ms)
        with database.reading() as connection:
            for row in select_bucket_rows(connection, ends_s, first_s, selection.grade_names):
                known = _known_row(row, hour_of(row.hour_s))
                names = ((row.event_type, known["hour"]), (row.event_type, known["hour"][:10]))
                if known["state"] == CLOSED and not removed.isdisjoint(names):
                    known["state"] = REMOVED
                yield known, True


def _list_removed(
    storage: Storage, types: Sequence[str], selection: BucketSelection, now_ms: int
) -> set[tuple[str, str]]:
    # Pairs of type and day whose buckets are removed, which the ledger does not know; or of type
    # and hour, if the day still has a folder. A day that ended less than a day ago cannot be removed.
    if selection.first is not None and now_ms - selection.first.end_ms < RETENTION_MS_MIN:
        return set()
    try:
        found = map_concurrently(lambda name: _list_removed_of_type(storage, name), types)
        return {(name, label) for name, of in zip(types, found, strict=True) for label in of}
    except HourmarkError as error:
        click.echo(
            f"removed buckets are listed as closed, because the storage cannot be read: "
            f"{redact(str(error))}",
            err=True,
        )
        return set()


def _list_removed_of_type(storage: Storage, event_type: str) -> set[str]:
    days = {*list_removed_dates(storage, event_type)}
    unfinished = days.intersection(list_dates(storage, event_type) if days else ())
    labels = days - unfinished
    for date in unfinished:
        if tombstone := find_tombstone(storage, event_type, date):
            labels |= {
                bucket.hour
                for bucket in tombstone.buckets
                if not storage.exists(
                    f"{Hour.parse(bucket.hour, tombstone.bucket_seconds).bucket_path(event_type)}/"
                    f"{MARKER}"
                )
            }
    return labels


def _end_of_closed_s(f: Frontier, selection: BucketSelection) -> int:
    # An hour that closed after the frontier was read is listed as open, and not twice.
    ends_s = [_NEVER_S]
    ends_s += [] if f.state is HourState.DAMAGED else [f.hour.start_s]
    ends_s += [selection.last.end_s] if selection.last else []
    return min(ends_s)


def _known_row(row: BucketRow, hour: Hour) -> Row:
    try:
        # Without validation, which would take most of the time; the ledger wrote it.
        manifest = from_json(row.manifest)
        return closed_bucket_row(row.event_type, hour, row.grade, row.closed_at_ms, manifest)
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = make_damaged_bucket_error(row.event_type, row.hour_s)
        return make_row(row.event_type, hour, DAMAGED, problem=str(problem))


def _storage_rows(
    storage: Storage, bucket_seconds: int, selection: BucketSelection
) -> Iterator[tuple[Row, bool]]:
    for name in selection.match_types(list_types(storage), storage.url("")):
        hours = list_hours(storage, name, bucket_seconds, selection.first, selection.last)
        removed = read_removed_buckets(storage, name, bucket_seconds)
        for hour in sorted({*hours, *filter(selection.includes_hour, removed)}):
            row = _row_of_marker(storage, name, hour)
            if not selection.grades or row["grade"] in selection.grade_names:
                yield row, True


def _row_of_marker(storage: Storage, event_type: str, hour: Hour) -> Row:
    try:
        manifest = read_manifest(storage, event_type, hour)
    except BucketRemoved as error:
        return manifest_row(event_type, hour, error.bucket.manifest) | {"state": REMOVED}
    except (NotClosed, BadMarker) as error:
        return make_row(event_type, hour, DAMAGED, problem=str(error))
    return manifest_row(event_type, hour, manifest)


def _summarize(rows: _Rows, *, with_closed: bool) -> list[Row]:
    by_type: dict[str, _TypeTotals] = {}
    for row, is_closed in rows:
        by_type.setdefault(row["type"], _TypeTotals()).add(row, is_closed=is_closed)
    return [
        _summary_row(name, totals, with_closed=with_closed)
        for name, totals in sorted(by_type.items())
    ]


def _summary_row(event_type: str, totals: _TypeTotals, *, with_closed: bool) -> Row:
    first, last = totals.hours or (None, None)
    closed = {
        "buckets": totals.buckets,
        "events": totals.events,
        **{grade.value: totals.grades[grade.value] for grade in Grade},
        "damaged": totals.damaged,
        "removed": totals.removed,
        "first_hour": first,
        "last_hour": last,
    }
    return {
        "type": event_type,
        **(closed if with_closed else dict.fromkeys(closed)),
        "next_hour": totals.next_row.get("hour"),
        "next_state": totals.next_row.get("state"),
        "waits_for": totals.next_row.get("waits_for"),
        "overdue_s": totals.next_row.get("overdue_s"),
    }


def _order(row: Row) -> tuple[bool, str, str]:
    # Dead letters last: most of their buckets are empty, and every site has them.
    return row["type"] == DEAD_LETTERS.name, row["type"], row["hour"]
