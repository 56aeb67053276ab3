"""`hourmark audit`: compares promised, staged and closed events, as recorded in the ledger.

The ledger also has copies of the manifests. The command exits with 1 if the counts do not add up.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import click

from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding, UsageError
from hourmark.printing import json_option
from hourmark.records.hours import Hour
from hourmark.records.manifest import Grade
from hourmark_etl.errors import Unreadable
from hourmark_etl.humanize import format_count
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.staged.listings import FileDifference
from hourmark_etl.operators.buckets.text import format_table
from hourmark_etl.operators.reconciled_ranges import unmet_ranges
from hourmark_etl.operators.reconciled_sources import (
    ReconciliationWindow,
    known_origin_hours,
    oldest_bucket_s,
    read_type_facts,
)
from hourmark_etl.operators.reconciliation import (
    CountDifference,
    HourAccount,
    ReconciliationStage,
    TypeFacts,
    TypeReconciliation,
    make_difference,
    may_have_waived,
    reconcile_type,
    sum_accounts,
)
from hourmark_etl.options import parse_first_hour, parse_last_hour, print_lines
from hourmark_etl.storage import open_storage

_COUNTS: Final = (
    "promised",
    "staged",
    "closed",
    "late",
    "open",
    "duplicates_removed",
    "unaudited",
    "waived",
    "on_its_way",
    "set_aside",
)
_MARGIN_SECONDS: Final = 24 * 3600  # audit files are kept for this much longer than topics
_NO_END: Final = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationSummary:
    """Scope and result of comparing the counts of promised, staged and closed events.

    The ledger is the state database of the ETL. A promised event is listed in an audit record, a
    staged event was read from Kafka, and a closed event is in a closed hourly bucket.

    Attributes:
        event_type: Name of the event type that was compared; None if all types were compared.
        first_hour: First hour of the comparison, as text.
        last_hour: Last hour of the comparison, as text; None if there was no limit.
        type_count: Number of event types compared.
        hour_count: Number of hours with any staged, promised or closed events, summed over types.
        closed_count: Number of these hours that have a closed bucket, or events in one.
        oldest_bucket: The oldest closed bucket in the ledger, as text; None if there is none.
        difference_count: Number of differences found.
    """

    event_type: str | None
    first_hour: str
    last_hour: str | None
    type_count: int
    hour_count: int
    closed_count: int
    oldest_bucket: str | None
    difference_count: int

    @property
    def verdict(self) -> str:
        """Return the overall result of the comparison as a short text.

        Returns:
            "differences" if any difference was found; otherwise "adds up", or "nothing to compare"
            if no hour is closed.
        """
        return (
            "differences"
            if self.difference_count
            else "adds up"
            if self.closed_count
            else "nothing to compare"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON-serializable dict.

        `hourmark audit --json` prints it under the key `looked_at`.

        Returns:
            Keys `type`, `from` and `to` (first and last hour), `types`, `hours` and `closed`
            (numbers of types, hours and closed hours), and `verdict`.
        """
        return {
            "type": self.event_type,
            "from": self.first_hour,
            "to": self.last_hour,
            "types": self.type_count,
            "hours": self.hour_count,
            "closed": self.closed_count,
            "verdict": self.verdict,
        }

    def __str__(self) -> str:
        of, to = (
            (f" of {self.event_type}" if self.event_type else ""),
            (f"to {self.last_hour}" if self.last_hour else "on"),
        )
        span = f"{of} from {self.first_hour} {to}"
        are = "is" if self.closed_count == 1 else "are"
        if self.closed_count:
            return (
                f"all counts agree: of {format_count(self.hour_count, 'hour')}{span}, "
                f"{self.closed_count:,} {are} closed"
            )
        known = f"there are no events, promises or buckets of hours{span}"
        if self.hour_count:
            known = (
                f"{format_count(self.hour_count, 'hour')}{span} {'is' if self.hour_count == 1 else 'are'} "
                "open, and none is closed"
            )
        if self.oldest_bucket is None:
            return (
                f"nothing to compare yet: {known}; `hourmark bucket ls` shows what each type's "
                "next hour waits for"
            )
        named = f"{self.event_type} " if self.event_type else ""
        more = (
            f"the oldest bucket is of {self.oldest_bucket}: `hourmark audit {named}--from "
            f"{self.oldest_bucket}` compares all buckets"
        )
        return f"nothing to compare: {known}; {more}"


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.option(
    "--from",
    "from_hour",
    metavar="HOUR",
    help="First hour to compare. Default: as far back as audit records are kept.",
)
@click.option("--to", "to_hour", metavar="HOUR", help="Last hour to compare. Default: the newest.")
@click.option(
    "--ranges",
    is_flag=True,
    help="Also compare the distinct event ids of each byte range, which are read from staged files.",
)
@json_option
@config_option
def audit(
    event_type: str | None,
    from_hour: str | None,
    to_hour: str | None,
    ranges: bool,
    as_json: bool,
    config: Config,
) -> None:
    """Compare promised, staged and closed events, per type and hour of event time.

    The exit code is 1 if the counts do not add up. The following counts are compared:

    \b
    promised            events counted in audit records (a retried range may count once per retry)
    staged              staged rows = closed + open + duplicates removed
    closed              events in closed buckets, of which `late` are in buckets of later hours
    open                staged rows that are in no closed bucket yet
    duplicates removed  rows dropped because a bucket already has their event id
    unaudited           events that had no audit record when their bucket was closed
    waived              minimum number of events missing in buckets closed as timed_out or forced
    on its way          minimum number of promised events that are not staged yet
    set aside           records that cannot be in a bucket (`hourmark etl set-aside ls`)

    The command prints one line per type, or one line per hour if TYPE is given. It prints each
    difference with the pipeline stage, and with hosts and byte ranges if they are known. If no hour
    in the time span is closed, there is nothing to compare, and the exit code is 0.

    \b
    Examples:
      hourmark audit
      hourmark audit end-song --from 2026-11-21T00 --to 2026-11-21T23
      hourmark audit end-song --from 2026-11-21T05 --to 2026-11-21T05 --ranges --json
    """
    window = _window(config, event_type, from_hour, to_hour)
    with open_existing_ledger(config) as database:
        found, files = _books(database, config, window, ranges)
        oldest_s = oldest_bucket_s(database, event_type)
    differences = [*(d for books in found.values() for d in books.differences)]
    count = len(differences) + len(files)
    seen = _summarize(window, config.parsing.bucket_seconds, found, oldest_s, count)
    print_lines(
        _printed(found, differences, files, seen, by_hour=event_type is not None, as_json=as_json)
    )
    if count:
        raise Finding(
            f"{count} differences between the counts; docs/operate/monitor.md explains the stages. "
            "Nothing was changed"
        )


def _window(
    config: Config, event_type: str | None, from_hour: str | None, to_hour: str | None
) -> ReconciliationWindow:
    length_s = config.parsing.bucket_seconds
    kept_ms = (config.kafka.retention_hours * 3600 + _MARGIN_SECONDS) * 1000
    first = (
        parse_first_hour(from_hour, config)
        if from_hour is not None
        else Hour.containing(max(0, SystemClock().now_ms() - kept_ms), length_s)
    )
    last_s = _NO_END if to_hour is None else parse_last_hour(to_hour, config).start_s
    if last_s < first.start_s:
        raise UsageError(f"--to {to_hour} is before --from {first}")
    return ReconciliationWindow(event_type, first.start_s, last_s)


def _summarize(
    window: ReconciliationWindow,
    length_s: int,
    found: Mapping[str, TypeReconciliation],
    oldest_s: int | None,
    differences: int,
) -> ReconciliationSummary:
    hours = [book for books in found.values() for book in books.hours]
    return ReconciliationSummary(
        event_type=window.event_type,
        first_hour=str(Hour(window.from_s, length_s)),
        last_hour=str(Hour(window.to_s, length_s)) if window.to_s != _NO_END else None,
        type_count=len(found),
        hour_count=len(hours),
        closed_count=sum(book.state != "open" or book.closed > 0 for book in hours),
        oldest_bucket=str(Hour(oldest_s, length_s)) if oldest_s is not None else None,
        difference_count=differences,
    )


def _books(
    database: Database, config: Config, window: ReconciliationWindow, ranges: bool
) -> tuple[dict[str, TypeReconciliation], list[FileDifference]]:
    found: dict[str, TypeReconciliation] = {}
    of_types, files = read_type_facts(database, config.parsing.bucket_seconds, window)
    for facts in of_types:
        books = reconcile_type(facts, known_origin_hours(facts, window))
        found[facts.event_type] = _with_ranges(database, config, facts, books, deep=ranges)
    if window.event_type is not None and not found:
        raise UsageError(
            f"the ledger has no event type {window.event_type}; `hourmark types list` shows the "
            "declared types"
        )
    return found, files


def _with_ranges(
    database: Database, config: Config, facts: TypeFacts, books: TypeReconciliation, *, deep: bool
) -> TypeReconciliation:
    # `deep` also compares the ranges of proved hours whose counts show no difference, because
    # duplicates can hide a loss from counts.
    by_label = {book.hour: book for book in books.hours}
    ranges_of = functools.partial(_ranges, database, config, facts)
    differences = []
    for d in books.differences:
        concerned = (
            d.stage in (ReconciliationStage.PROOF, ReconciliationStage.ARRIVAL)
            and d.hour in by_label
        )
        named = ranges_of(by_label[d.hour]) if concerned else None
        differences.append(dataclasses.replace(d, ranges=named or ()))
    reported_hours = {d.hour for d in differences if d.stage is ReconciliationStage.PROOF}
    for label, book in by_label.items() if deep else ():
        hour_s = Hour.parse(label, facts.bucket_seconds).start_s
        proved = book.state == Grade.PROVED.value and not may_have_waived(facts, hour_s)
        if proved and label not in reported_hours and (named := ranges_of(book)):
            found = make_difference(
                facts,
                hour_s,
                ReconciliationStage.PROOF,
                "the staged rows do not fulfill the promises of a proved bucket",
            )
            differences.append(dataclasses.replace(found, ranges=named))
    return TypeReconciliation(books.hours, tuple(differences))


def _ranges(
    database: Database, config: Config, facts: TypeFacts, book: HourAccount
) -> tuple[str, ...] | None:
    # None if staged files were already deleted: the ranges cannot be determined then.
    below = None if book.state == "open" else facts.settled_below
    storage, hour_s = (
        open_storage(config.storage),
        Hour.parse(book.hour, facts.bucket_seconds).start_s,
    )
    try:
        return unmet_ranges(
            storage,
            database,
            facts.event_type,
            hour_s,
            below,
            book.staged,
            config.etl.unit_bytes_max,
        )
    except Unreadable as error:
        return (f"the byte ranges cannot be determined: {error}",)


def _printed(
    found: Mapping[str, TypeReconciliation],
    differences: Collection[CountDifference],
    files: Collection[FileDifference],
    seen: ReconciliationSummary,
    *,
    by_hour: bool,
    as_json: bool,
) -> Iterator[str]:
    hours = [dataclasses.asdict(book) for books in found.values() for book in books.hours]
    if as_json:
        document = {
            "types": {name: sum_accounts(books.hours) for name, books in found.items()},
            "hours": hours,
            "differences": [dataclasses.asdict(d) for d in differences],
            "files": [dataclasses.asdict(f) for f in files],
            "looked_at": seen.to_json(),
        }
        yield json.dumps(document, indent=1)
        return
    if by_hour:
        yield from format_table(hours, ("hour", "state", *_COUNTS), ("hour", "state"))
    else:
        rows = [
            {"type": name, "hours": len(books.hours), **sum_accounts(books.hours)}
            for name, books in sorted(found.items())
        ]
        yield from format_table(rows, ("type", "hours", *_COUNTS), ("type",))
    yield from map(str, differences)
    for f in files:
        yield (
            f"{f.path} [staging] the file contains {f.rows} rows of {f.kind}, but its groups in "
            f"the ledger have {f.in_groups}"
        )
    if not seen.difference_count:
        yield str(seen)
