"""Reads the ledger into what the books compute on: one `TypeFacts` a type."""

from __future__ import annotations

from collections import defaultdict

from etl.books import ClosedBucket, Entry, Promised, TypeFacts
from etl.ledger.book_rows import (
    FileDifference,
    Window,
    file_differences,
    frontier_facts,
    listed_rows,
    manifests,
    promised_sums,
)
from etl.ledger.database import Database
from hourmark.hours import Hour
from hourmark.manifest import Manifest


def facts_of(database: Database, length_s: int, window: Window) -> tuple[list[TypeFacts], list[FileDifference]]:
    """Of each type of the window, by name; and staged files that the ledger's groups do not add up to. One consistent view."""
    listed: dict[str, dict[tuple[int | None, int], int]] = defaultdict(dict)
    promised: dict[str, dict[int, Promised]] = defaultdict(dict)
    buckets: dict[str, dict[int, ClosedBucket]] = defaultdict(dict)
    with database.reading() as connection:
        known = frontier_facts(connection)
        for row in listed_rows(connection, window):
            listed[row.event_type][row.listed_s, row.origin_s] = row.rows
        for p in promised_sums(connection, window):
            promised[p.event_type][p.origin_s] = Promised(p.settled, p.promised - p.settled)
        for event_type, hour_s, manifest in manifests(connection, window):
            buckets[event_type][hour_s] = closed_bucket(manifest, hour_s)
        files = file_differences(connection)
    facts = [
        TypeFacts(
            f.event_type, length_s, f.hour_s, f.settled_next, f.alarm, listed[f.event_type], promised[f.event_type],
            buckets[f.event_type],
        )
        for f in known
        if window.event_type in (None, f.event_type)
    ]  # fmt: skip
    return facts, files


def origins_of(facts: TypeFacts, window: Window) -> set[int]:
    """The origin hours of the window of which anything is known."""
    known = {origin_s for _, origin_s in facts.listed} | {*facts.promised} | {*facts.buckets}
    known |= {origin_s for bucket in facts.buckets.values() for origin_s in bucket.late}
    return {origin_s for origin_s in known if window.from_s <= origin_s <= window.to_s}


def closed_bucket(manifest: Manifest, hour_s: int) -> ClosedBucket:
    """What the books take of a manifest. One without books may be of an empty bucket, or older than they are."""
    length_s = manifest.bucket_seconds
    entries = {
        Hour.parse(label, length_s).start_s: Entry(book.rows, book.events, book.promised, book.surplus)
        for label, book in manifest.books.items()
    }
    has_books = bool(entries) or (manifest.events, manifest.duplicates_removed, manifest.evidence.promised) == (0, 0, 0)
    return ClosedBucket(
        hour_s,
        manifest.grade,
        manifest.events,
        sum(file.records for file in manifest.files),
        {Hour.parse(label, length_s).start_s: count for label, count in manifest.late.items()},
        manifest.duplicates_removed,
        manifest.evidence.promised,
        manifest.surplus,
        entries if has_books else None,
    )
