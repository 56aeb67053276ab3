"""What the ledger holds, as domain types."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import PlainSerializer, PlainValidator

from hourmark.kafka.clients import Partition
from hourmark.records.hours import Hour

DEFAULT_SHARD: Final = "default"
# of `kafka.edge`, the only one as a rule; a further site goes by its alias, which begins with a
# letter
FIRST_SITE: Final = "0"
EVENTS: Final = "events"
AUDIT: Final = "audit"
# In a group's digest, range ids count by this odd number: equal digests tell equal ids and equal
# ranges (`closing.proof`).
RANGE_WEIGHT: Final = 0x9E37_79B9_7F4A_7C15
_MODULUS: Final = 1 << 64
# Events of an hour come no earlier than 15 minutes before it (`closing.sealing.EARLY_MS`), by
# clocks that agree within 5.
EARLIEST_MS: Final = 3_600_000
_COLUMNS: Final = {
    "event_type": "type",
    "hour_s": "hour",
    "datum_bytes": "bytes",
}  # of fields that are called otherwise
_Record = TypeVar("_Record")


def from_row(kind: type[_Record], values: Iterable[object]) -> _Record:
    """A record of values that stand in the order of its fields: a row of a query, or a list in
    JSON.
    """
    # a dataclass
    names = (field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    return kind(**dict(zip(names, values, strict=True)))


def from_columns(kind: type[_Record], row: Mapping[Any, Any], **converted: object) -> _Record:
    """A record of a row of the ledger. `converted`: fields that are kept there in another form."""
    # hashable, as all classes
    return kind(**{field: row[column] for field, column in _columns(kind)} | converted)  # type: ignore[arg-type]


def to_columns(record: object, **converted: object) -> dict[str, Any]:
    """The inverse; `converted`: columns."""
    # as above
    return {column: getattr(record, field) for field, column in _columns(type(record))} | converted  # type: ignore[arg-type]


@functools.cache
def _columns(kind: type) -> tuple[tuple[str, str], ...]:
    """By field."""
    return tuple(
        (field.name, _COLUMNS.get(field.name, field.name)) for field in dataclasses.fields(kind)
    )


def storable(text: str) -> str:
    """As every ledger takes it: PostgreSQL refuses a NUL in a text."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def to_signed(value: int) -> int:
    """A sum modulo 2^64 as SQL and Arrow keep it: a signed 64-bit integer."""
    value %= _MODULUS
    return value - _MODULUS if value >= _MODULUS >> 1 else value


def to_unsigned(value: int) -> int:
    """The inverse of `to_signed`."""
    return value % _MODULUS


class Phase(enum.StrEnum):
    """What a type's frontier hour waits for: the phases of a cut in turn; then what keeps it from
    being proved or published.
    """

    REPORTS = "reports"
    CONTROL = "control"
    PROMISES = "promises"
    EVENTS = "events"
    ARRIVAL = "arrival"
    UNREADABLE = "unreadable"
    UNWRITABLE = "unwritable"
    CONFLICT = "conflict"
    STAGED = "staged"
    PROOF = "proof"
    PUBLISHING = "publishing"
    LEDGER = "ledger"
    SERVERS = "servers"
    STORAGE = "storage"


class State(enum.Enum):
    """Of a type's frontier hour."""

    OPEN = "open"
    FROZEN = "frozen"  # groups are listed, not yet proved
    SEALED = "sealed"  # proved: what the bucket holds is fixed, for ever
    DAMAGED = (
        "damaged"  # its row is not as it was written: the type waits for an operator; never stored
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next offset to stage of a partition of the central cluster."""

    cluster_id: str
    topic_id: str
    topic: str
    partition: int
    next_offset: int
    shard: str = DEFAULT_SHARD
    leader_epoch: int | None = None  # of the last record that was staged; None: unknown
    epoch_next: int | None = (
        # the offset after that record: transaction markers may lie between it and `next_offset`
        None
    )

    def at(self, offset: int) -> Position:
        """Return the position at another offset, of which no epoch is known."""
        return dataclasses.replace(self, next_offset=offset, leader_epoch=None, epoch_next=None)

    @property
    def of(self) -> Partition:
        """Of which topic-partition it is the position."""
        return Partition(self.topic, self.partition)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets [start, end) of a partition: what a staged file was read from.

    Attributes: leader_epoch: The leader epoch of the last record in it; None if unknown, or if it
        has no record. epoch_next: The offset after that record: transaction markers may lie between
        it and `end`. None if it has no record.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader_epoch: int | None = None
    epoch_next: int | None = None

    @classmethod
    def of(cls, values: Sequence[Any]) -> Span:
        """Return the span of `to_list`; version 0.3.0 wrote no epochs."""
        return cls(**dict(zip((f.name for f in dataclasses.fields(cls)), values, strict=False)))

    def to_list(self) -> list[Any]:
        """Return the fields in turn, without epochs if they are unknown, as version 0.3.0 wrote
        them.
        """
        fields = list(dataclasses.astuple(self))
        return fields if self.leader_epoch is not None else fields[:5]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One file of a batch; its rows are all records of its kind in its spans.

    `observed_ms`: of audit records, least and greatest `observed_at` of their ranges.
    """

    path: str
    kind: str  # EVENTS or AUDIT
    rows: int
    spans: tuple[Span, ...]
    observed_ms: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedGroup:
    """Rows of one type and hour in one staged file: [first_row, first_row + rows) of it, sorted by
    event id.

    `datum_bytes`: of all its datums. `low64_sum`: its digest, the sum modulo 2^64, unsigned, of
    each row's low 64 bits of an id (its last 8 bytes) and RANGE_WEIGHT times its range id,
    duplicates counted each time. `value_sum`: the sum modulo 2^64, unsigned, of its rows' value
    hashes (`hourmark.avro.value_hash`); None in groups that version 0.3.0 staged.
    """

    path: str
    event_type: str
    hour_s: int
    rows: int
    datum_bytes: int
    low64_sum: int
    schema_ids: tuple[int, ...]
    first_row: int
    first_id: bytes
    last_id: bytes
    value_sum: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AuditOffsets:
    """How far promises are meant, site by site: those below the offset of its audit topic on the
    central cluster.

    Each site has an audit topic of its own, and offsets of two topics have no order. So neither
    have these: they reach others only if they do so at every site. Of a site that they do not name,
    no promise is meant.
    """

    by_site: tuple[tuple[str, int], ...] = ()  # sorted

    @classmethod
    def of(cls, offsets: Mapping[str, int] | int) -> AuditOffsets:
        """By site, or of the first site alone, as all of before there were several; a marker's
        `audit_next` is such a mapping.
        """
        known = {FIRST_SITE: offsets} if isinstance(offsets, int) else offsets
        return cls(tuple(sorted((site, int(offset)) for site, offset in known.items())))

    def told(self) -> dict[str, int] | int:
        """The inverse, in the ledger's JSON: of the first site alone it is a number, which every
        version reads.
        """
        return self.at(FIRST_SITE) if not self.further else dict(self.by_site)

    def in_marker(self) -> dict[str, int]:
        """By partition of the first site's audit topic, of which there is one, and by further
        sites.
        """
        return {FIRST_SITE: self.at(FIRST_SITE), **dict(self.by_site)}

    @property
    def further(self) -> dict[str, int]:
        """Those of all sites but the first."""
        return {site: offset for site, offset in self.by_site if site != FIRST_SITE}

    def at(self, site: str) -> int:
        """The site's; 0 where it is not named."""
        return dict(self.by_site).get(site, 0)

    def reaches(self, other: AuditOffsets) -> bool:
        """Whether all that the other means is meant by these, too."""
        return all(self.at(site) >= offset for site, offset in other.by_site)

    def joined(self, other: AuditOffsets) -> AuditOffsets:
        """The least that reach both."""
        return AuditOffsets.of(
            {
                site: max(self.at(site), other.at(site))
                for site, _ in (*self.by_site, *other.by_site)
            }
        )

    def shared(self, other: AuditOffsets) -> AuditOffsets:
        """The greatest that both reach."""
        return AuditOffsets.of(
            {
                site: min(self.at(site), other.at(site))
                for site, _ in (*self.by_site, *other.by_site)
            }
        )


NONE_MEANT: Final = AuditOffsets()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditGroup:
    """Promises of one type and hour in one staged file of audit records, from this span of central
    offsets (inclusive).

    All of a file are of one site's audit topic.

    `promised` adds up the promised counts, an audit record that occurs twice counted twice.
    `low64_sum`: the digest that the promised rows would have as a `StagedGroup`: the promised sums,
    and RANGE_WEIGHT times range id times count. `value_sum`: the sum of those checksums that the
    promises have, modulo 2^64, unsigned. `unchecked`: promised events without a checksum. Both are
    None in groups that version 0.3.0 staged, whose promises have no checksums.
    """

    path: str
    event_type: str
    hour_s: int
    rows: int
    first_offset: int
    last_offset: int
    promised: int
    low64_sum: int
    site: str = FIRST_SITE
    value_sum: int | None = None
    unchecked: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """The latest report of one source of one host."""

    host_id: str
    source: str
    host_name: str
    kind: str
    incarnation: str
    sequence: int
    received_at_ms: int
    caught_up_at_ms: int | None
    pending_bytes: int
    lost_bytes: int
    goodbye: bool
    # by the staging driver's clock, which is one for all; of a report older than clocks may be
    # apart, its own
    heard_at_ms: int
    waived: bool = False  # a bucket timed out without it; until it reports again
    unknown_losses: int = 0
    unrepeatable: bool = False  # its senders cannot be asked again

    @property
    def name(self) -> str:
        """Human-readable."""
        return f"{self.kind} {self.host_name} source {self.source}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Records in one partition of a topic of events that cannot be in a bucket, all for the same
    reason.

    Attributes:
        topic: Name in the central cluster.
        offsets: Of the records, ascending; at least one.
    """

    topic: str
    topic_id: str
    partition: int
    event_type: str
    reason: str
    offsets: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """What one micro-batch commits, whole or not at all. `folder` holds all its files, and is its
    name.
    """

    folder: str
    starts: tuple[Position, ...]
    ends: tuple[Position, ...]
    files: tuple[StagedFile, ...]
    groups: tuple[StagedGroup, ...]
    audit_groups: tuple[AuditGroup, ...]
    reports: tuple[tuple[Reporter, ...], ...]  # each of one host, in the order of the topic
    set_aside: tuple[SetAside, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Sums:
    """What rows, or promises, add up to.

    Attributes:
        records: Audit records.
        events: Events.
        digest: The digest of these events' ids and ranges (`StagedGroup.low64_sum`), modulo 2^64.
        values: The sum of the value hashes of those events whose hash is known, modulo 2^64.
        unchecked: Events whose value hash is not known.
    """

    records: int = 0
    events: int = 0
    digest: int = 0
    values: int = 0
    unchecked: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.records + other.records,
            self.events + other.events,
            to_unsigned(self.digest + other.digest),
            to_unsigned(self.values + other.values),
            self.unchecked + other.unchecked,
        )

    def __sub__(self, other: Sums) -> Sums:
        return Sums(
            self.records - other.records,
            self.events - other.events,
            to_unsigned(self.digest - other.digest),
            to_unsigned(self.values - other.values),
            self.unchecked - other.unchecked,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class OriginHourSums:
    """What a seal says of one origin hour: distinct ids promised by records it settles, listed ones
    that nobody promised yet.
    """

    hour_s: int
    promised: int
    unaudited: int


@dataclasses.dataclass(frozen=True)
class Lacking:
    """Ranges whose rows closed buckets may lack, or may hold in two readings; see
    `hourmark.records.manifest.MissingRanges`.
    """

    ranges: tuple[str, ...] = ()  # range ids, hex
    more: bool = False

    def __or__(self, other: Lacking) -> Lacking:
        """Return what either lacks."""
        return Lacking(tuple(dict.fromkeys((*self.ranges, *other.ranges))), self.more or other.more)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seal:
    """The proof of a bucket: fixed before it is written, and copied into its manifest."""

    grade: str
    method: str
    cut_at_ms: int
    audit_next: Annotated[
        AuditOffsets, PlainValidator(AuditOffsets.of), PlainSerializer(AuditOffsets.told)
    ]
    audit_records: int
    promised: int
    unaudited: int
    waived: tuple[str, ...]
    offsets: tuple[Position, ...]
    books: tuple[OriginHourSums, ...] = ()  # by origin hour
    listed: Sums = dataclasses.field(
        default_factory=Sums
    )  # of its listed rows, duplicates and all: these are written, no others
    lost: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # by source: bytes that hosts know to be lost
    unknown: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # by source: losses that nobody can measure
    unrepeatable: tuple[str, ...] = ()  # sources whose senders cannot be asked again
    checked: int | None = (
        None  # promised events whose values a checksum proved; None in seals of version 0.3.0
    )
    leaves_out: bool = False  # rows that cannot be written, as an override says
    gives_up: bool = False  # what an override ordered after the seal: see `SealedHour`
    lacks: Lacking | None = None  # None in seals of `proved`, and in those of version 0.3.0


def hours_on(hour: Hour, count: int) -> Hour:
    """The hour `count` hours later."""
    return Hour(hour.start_s + count * hour.length_s, hour.length_s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frontier:
    """The one hour of a type that is next to close; those before it are closed, for ever."""

    event_type: str
    first_hour: Hour
    hour: Hour
    state: State
    sources: frozenset[str]
    settled_next: AuditOffsets  # promises below, of hours before `hour`, are kept
    seal: Seal | None
    alarm: tuple[str, ...]
    shard: str = DEFAULT_SHARD  # whose query stages the type
    later_seals: tuple[
        Seal, ...
    ] = ()  # of the hours that follow, where a backlog's were sealed together

    @property
    def sealed_hours(self) -> tuple[Frontier, ...]:
        """Every sealed hour as a frontier of its own, in turn; none where the frontier is not
        sealed.
        """
        seals = () if self.seal is None else (self.seal, *self.later_seals)
        return tuple(
            dataclasses.replace(
                self,
                hour=hours_on(self.hour, n),
                seal=seal,
                later_seals=seals[n + 1 :],
            )
            for n, seal in enumerate(seals)
        )
