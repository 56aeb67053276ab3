"""`hourmark audit`: the books, from the ledger and the manifests that it keeps. Exit 1 where they do not add up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from etl.book_ranges import OFFSET_MAX, unkept_ranges
from etl.book_sources import Window, facts_of, origins_of
from etl.books import Books, Difference, HourBook, Stage, TypeFacts, books_of, excuses, total
from etl.bucket_text import table
from etl.errors import Unreadable
from etl.ledger.database import Database, existing_ledger
from etl.ledger.listings import FileDifference
from etl.options import hour_of, json_option, say
from etl.storage import open_storage
from hourmark.clock import SystemClock
from hourmark.config import Config, config_option
from hourmark.errors import Finding, UsageError
from hourmark.hours import Hour
from hourmark.manifest import Grade

_COUNTS: Final = (
    "promised", "staged", "closed", "late", "open", "duplicates_removed", "surplus", "excused", "on_its_way"
)  # fmt: skip
_MARGIN_SECONDS: Final = 24 * 3600  # audit files are kept so much longer than topics


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@click.option("--from", "from_hour", metavar="HOUR", help="First hour. Default: as far back as audit records are kept.")
@click.option("--to", "to_hour", metavar="HOUR", help="Last hour. Default: the newest.")
@click.option("--ranges", is_flag=True, help="Compare range by range over distinct ids too; reads staged files.")
@json_option
@config_option
def audit(
    event_type: str | None, from_hour: str | None, to_hour: str | None, ranges: bool, as_json: bool, config: Config
) -> None:
    """Show the books: per type and hour of event time, what was promised and what became of it. Exit 1 on a difference.

    \b
    promised            events that audit records promise (a range that was retried may count each time)
    staged              rows staged = closed + open + duplicates removed
    closed              events in closed buckets; `late` of them in later hours' buckets
    open                rows staged that no closed bucket holds yet
    duplicates removed  rows dropped because their id stood in a bucket already
    surplus             events in closed buckets that no audit record had promised
    excused             at least so many events a bucket was closed without (timed_out, forced)
    on its way          at least so many events promised and not staged yet

    Without TYPE one line a type, with TYPE one line an hour. A difference names the stage, and hosts and ranges where it can.

    \b
    Examples:
      hourmark audit
      hourmark audit end-song --from 2026-11-21T00 --to 2026-11-21T23
      hourmark audit end-song --from 2026-11-21T05 --to 2026-11-21T05 --ranges --json
    """
    window = _window(config, event_type, from_hour, to_hour)
    with existing_ledger(config) as database:
        found, files = _books(database, config, window, ranges)
    differences = [*(d for books in found.values() for d in books.differences)]
    say(_printed(found, differences, files, by_hour=event_type is not None, as_json=as_json))
    if differences or files:
        raise Finding(
            f"{len(differences) + len(files)} differences in the books; docs/operations.md says what each stage means. "
            "Nothing was changed"
        )


def _window(config: Config, event_type: str | None, from_hour: str | None, to_hour: str | None) -> Window:
    length_s = config.parsing.bucket_seconds
    kept_ms = (config.kafka.retention_hours * 3600 + _MARGIN_SECONDS) * 1000
    first = hour_of(from_hour, config) if from_hour else Hour.of(max(0, SystemClock().now_ms() - kept_ms), length_s)
    last_s = hour_of(to_hour, config).start_s if to_hour else (1 << 62)
    if last_s < first.start_s:
        raise UsageError(f"--to {to_hour} lies before --from {first}")
    return Window(event_type, first.start_s, last_s)


def _books(database: Database, config: Config, window: Window, ranges: bool) -> tuple[dict[str, Books], list[FileDifference]]:
    found: dict[str, Books] = {}
    of_types, files = facts_of(database, config.parsing.bucket_seconds, window)
    for facts in of_types:
        books = books_of(facts, origins_of(facts, window))
        found[facts.event_type] = _with_ranges(database, config, facts, books, deep=ranges)
    if window.event_type is not None and not found:
        raise UsageError(f"the ledger knows no event type {window.event_type}; `hourmark types list` names those declared")
    return found, files


def _with_ranges(database: Database, config: Config, facts: TypeFacts, books: Books, *, deep: bool) -> Books:
    """Name the ranges of differences that concern promises; `deep`: look into every hour whose promises ought to be kept."""
    by_label = {book.hour: book for book in books.hours}
    differences = []
    for d in books.differences:
        named = None
        if d.stage in (Stage.PROOF, Stage.ARRIVAL) and d.hour in by_label:
            named = _ranges(database, config, facts, by_label[d.hour])
        differences.append(dataclasses.replace(d, ranges=named or ()))
    told = {d.hour for d in differences if d.stage is Stage.PROOF}
    for label, book in by_label.items() if deep else ():
        proved = book.state == Grade.PROVED.value and not excuses(facts, Hour.parse(label, facts.length_s).start_s)
        if proved and label not in told and (named := _ranges(database, config, facts, book)):
            detail = "promises of a proved bucket are not kept by what is staged"
            differences.append(Difference(facts.event_type, label, Stage.PROOF, detail, named))
    return Books(books.hours, tuple(differences))


def _ranges(database: Database, config: Config, facts: TypeFacts, book: HourBook) -> tuple[str, ...] | None:
    """Ranges that are not kept; None where staged files are gone already, so that nobody can tell."""
    below = OFFSET_MAX if book.state == "open" else facts.settled_next
    storage, hour_s = open_storage(config.storage), Hour.parse(book.hour, facts.length_s).start_s
    try:
        return unkept_ranges(storage, database, facts.event_type, hour_s, below, book.staged, config.etl.unit_bytes_max)
    except Unreadable as error:
        return (f"ranges cannot be told: {error}",)


def _printed(
    found: Mapping[str, Books], differences: Collection[Difference], files: Collection[FileDifference], *, by_hour: bool,
    as_json: bool,
) -> Iterator[str]:  # fmt: skip
    if as_json:
        yield json.dumps(
            {
                "types": {name: total(books.hours) for name, books in found.items()},
                "hours": [dataclasses.asdict(book) for books in found.values() for book in books.hours],
                "differences": [dataclasses.asdict(d) for d in differences],
                "files": [dataclasses.asdict(f) for f in files],
            },
            indent=1,
        )
        return
    rows: Sequence[dict[str, Any]]
    if by_hour:
        rows = [dataclasses.asdict(book) for books in found.values() for book in books.hours]
        yield from table(rows, ("hour", "state", *_COUNTS), ("hour", "state"))
    else:
        rows = [{"type": name, "hours": len(books.hours), **total(books.hours)} for name, books in sorted(found.items())]
        yield from table(rows, ("type", "hours", *_COUNTS), ("type",))
    yield from map(str, differences)
    for f in files:
        yield f"{f.path} [staging] the file holds {f.rows} rows of {f.kind}, the ledger's groups of it {f.in_groups}"
    if not differences and not files:
        yield "the books add up"
