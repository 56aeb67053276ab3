"""What the model is made of: events, ranges, logs, staged files, the ledger and the store.

One type; hours are integers.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

PARTITIONS = ("audit", "ev0", "ev1")


class Broken(AssertionError):
    """The promise does not hold in this history."""


class Unreadable(Exception):
    """A file that is missing or whose digest does not match; the argument is its name."""


@dataclasses.dataclass(frozen=True)
class Event:
    """`id`: made once, the same on every retry. `line`: what was written on the host, which only
    the judge knows.
    """

    id: int
    hour: int
    line: int


@dataclasses.dataclass(kw_only=True)
class Range:
    """Durable on its host before its first send. `abandoned`: will never be sent again."""

    id: int
    host: int
    events: tuple[Event, ...]
    acked: bool = False
    abandoned: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """An event's record."""

    event: Event
    range_id: int


@dataclasses.dataclass(frozen=True)
class Audit:
    """An audit record: for each hour how many distinct ids were promised, and their sum."""

    range_id: int
    promised: tuple[tuple[int, int, int], ...]


Record = Row | Audit
Sums = tuple[
    int, int, int
]  # events, sum of ids, sum of range ids: how a proof by sums tells rows from promises


def audit_of(sent: Range) -> Audit:
    """What the service promises of a range."""
    by_hour: dict[int, set[int]] = collections.defaultdict(set)
    for e in sent.events:
        by_hour[e.hour].add(e.id)
    return Audit(sent.id, tuple(sorted((h, len(s), sum(s)) for h, s in by_hour.items())))


@dataclasses.dataclass
class Log:
    """A partition: records with the time at which they were appended at the edge. `start`: below
    it, retention has deleted.
    """

    records: list[tuple[Record, int]] = dataclasses.field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return len(self.records)


@dataclasses.dataclass(kw_only=True)
class File:
    """A staged file. `damaged`: its digest, which stands in its name, does not match any more."""

    name: str
    spans: dict[str, tuple[int, int]]
    records: list[tuple[int, Record]]  # offset in its partition, record
    number: int  # of its batch, counted by the ledger that made it
    hour: int  # of the wall clock
    damaged: bool = False

    def rows(self, hour: int) -> list[Row]:
        """Its group of this hour."""
        return [r for _, r in self.records if isinstance(r, Row) and r.event.hour == hour]


@dataclasses.dataclass
class Group:
    """Rows of one hour in one file, as the ledger knows them; of no bucket until a freeze
    lists it.
    """

    file: str
    hour: int
    sums: Sums
    listed: int | None = None


@dataclasses.dataclass(frozen=True)
class Known:
    """An audit record as the ledger knows it: its offset and file."""

    at: int
    record: Audit
    file: str


@dataclasses.dataclass(kw_only=True)
class Cut:
    """`begun`: when, in hours of the wall clock; the central audit end is taken when the mirror has
    reached the edge's.
    """

    begun: int
    waived: frozenset[int]
    edge_control: int
    audit_next: int | None = None
    edge_events: dict[str, int] | None = None
    barrier: dict[str, int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seal:
    """What a bucket will say. `named`: what it goes without, as ("promise", range id, hour),
    ("rows" or "promises", partition, start, end).
    """

    grade: str
    audit_next: int
    edge_audit: int
    begun: int
    offsets: tuple[tuple[str, int], ...]
    named: frozenset[tuple[object, ...]] = frozenset()


@dataclasses.dataclass(kw_only=True)
class Ledger:
    """All of it can be copied, restored and lost."""

    uuid: int = 0
    offsets: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(PARTITIONS, 0)
    )
    batches: int = 0
    groups: list[Group] = dataclasses.field(default_factory=list)
    promises: list[Known] = dataclasses.field(default_factory=list)
    unaudited: list[int] = dataclasses.field(default_factory=list)  # numbers of files
    frontier: int = 0
    last_closed: int | None = None  # the bucket before the frontier's; None: nothing is closed
    settled_next: int = 0
    state: str = "open"
    seal: Seal | None = None
    lost: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # offsets of promises
    only_forced_to: int = -1  # hours up to this one: nobody knows what they were promised

    def files(self) -> set[str]:
        """Names of the staged files that it knows."""
        return {g.file for g in self.groups} | {k.file for k in self.promises}


def copied(ledger: Ledger) -> Ledger:
    """A copy that goes its own way."""
    return dataclasses.replace(
        ledger,
        offsets=dict(ledger.offsets),
        groups=[dataclasses.replace(g) for g in ledger.groups],
        promises=list(ledger.promises),
        unaudited=list(ledger.unaudited),
        lost=list(ledger.lost),
    )


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A closed bucket, for ever. `ledger`: who closed it. `at`: when, in hours of the wall
    clock.
    """

    events: frozenset[Event]
    seal: Seal
    ledger: int
    at: int


@dataclasses.dataclass
class Unaudited:
    """Rows of a bucket that no audit record had promised: (range id, hour, id)."""

    hour: int
    rows: frozenset[tuple[int, int, int]]
    damaged: bool = False


@dataclasses.dataclass(kw_only=True)
class Store:
    """Files; a bucket appears by one rename that fails if it is there already."""

    files: dict[str, File] = dataclasses.field(default_factory=dict)
    unaudited: dict[int, Unaudited] = dataclasses.field(default_factory=dict)
    ledger: int = 0  # the newest ledger that a rebuild has made
    closed: dict[int, Bucket] = dataclasses.field(default_factory=dict)
    bad_indexes: set[int] = dataclasses.field(
        default_factory=set
    )  # hours whose index of ids is damaged


def sums_of(rows: Iterable[Row]) -> Sums:
    """Of listed rows."""
    found = list(rows)
    return len(found), sum(r.event.id for r in found), sum(r.range_id for r in found)


def add(parts: Iterable[Sums]) -> Sums:
    """All together."""
    found = list(parts)
    return sum(p[0] for p in found), sum(p[1] for p in found), sum(p[2] for p in found)
