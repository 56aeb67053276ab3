"""Domain types for the contents of the ledger."""

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
}  # columns whose names differ from the fields'
_Record = TypeVar("_Record")


def from_row(kind: type[_Record], values: Iterable[object]) -> _Record:
    """Create a dataclass instance from values in the order of its fields.

    Args:
        kind: The class to instantiate; it must be a dataclass.
        values: One value per field, for example a query's row or a JSON list.

    Returns:
        The new instance.

    Raises:
        ValueError: The number of values differs from the number of fields.
    """
    # a dataclass
    names = (field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    return kind(**dict(zip(names, values, strict=True)))


def from_columns(kind: type[_Record], row: Mapping[Any, Any], **converted: object) -> _Record:
    """Create a dataclass instance from a ledger row.

    The ledger is the state database of the ETL. The name of a field may differ from the name of
    its column, for example `event_type` and `type`.

    Args:
        kind: The dataclass.
        row: Values by column name. It must have a column for each field, including those in
            `converted`.
        **converted: Values by field name that replace the value of the column, for fields that the
            ledger stores in another form.

    Returns:
        The new instance.

    Raises:
        KeyError: A column is missing.
    """
    # hashable, as all classes
    return kind(**{field: row[column] for field, column in _columns(kind)} | converted)  # type: ignore[arg-type]


def to_columns(record: object, **converted: object) -> dict[str, Any]:
    """Convert a dataclass instance to the column values of a ledger row.

    This is the reverse of `from_columns`. The ledger is the state database of the ETL.

    Args:
        record: The dataclass instance.
        **converted: Values by column name that replace or extend the record's fields.

    Returns:
        Values by column name.
    """
    # as above
    return {column: getattr(record, field) for field, column in _columns(type(record))} | converted  # type: ignore[arg-type]


@functools.cache
def _columns(kind: type) -> tuple[tuple[str, str], ...]:
    return tuple(
        (field.name, _COLUMNS.get(field.name, field.name)) for field in dataclasses.fields(kind)
    )


def replace_nul(text: str) -> str:
    """Replace each NUL character in a text with U+FFFD (the replacement character).

    Use it for texts that are stored in the ledger (the ETL's state database), because PostgreSQL
    rejects NUL.

    Args:
        text: Any text.

    Returns:
        The text without NUL characters; it has the same length.
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def to_signed(value: int) -> int:
    """Convert an unsigned 64-bit integer to the signed integer with the same bits.

    SQL and Arrow store digests and checksums as signed integers. `to_unsigned` is the reverse
    function.

    Args:
        value: An integer. Values outside 0 to 2^64 - 1 are first reduced modulo 2^64.

    Returns:
        An integer from -2^63 to 2^63 - 1.
    """
    value %= _MODULUS
    return value - _MODULUS if value >= _MODULUS >> 1 else value


def to_unsigned(value: int) -> int:
    """Convert a signed 64-bit integer to the unsigned integer with the same bits.

    Args:
        value: An integer, for example a checksum that SQL or Arrow stores.

    Returns:
        The value modulo 2^64, from 0 to 2^64 - 1.
    """
    return value % _MODULUS


class ClosingPhase(enum.StrEnum):
    """The condition that an event type's next hourly bucket waits for before it can be closed.

    The first five members are the regular steps of closing, in order. The others are problems that
    prevent the proof or the publication of the bucket. `hourmark bucket why` shows the value.

    Attributes:
        REPORTS: Log sources must report that they have delivered all events of the hour.
        CONTROL: The mirror must copy audit records and host reports from the edge cluster.
        PROMISES: The ETL must stage these records (copy them from Kafka to storage).
        EVENTS: The mirror must copy the events.
        ARRIVAL: The ETL must stage the events.
        UNREADABLE: A topic-partition of the type cannot be read.
        UNWRITABLE: Some rows cannot be written to a bucket.
        CONFLICT: Two audit records contradict each other.
        STAGED: A staged file is lost, and Kafka no longer has its records.
        PROOF: Events that are counted in audit records are missing.
        PUBLISHING: The bucket cannot be published, for example because its path is taken.
        LEDGER: A row of the ledger (the ETL's state database) is damaged.
        SERVERS: A server does not respond.
        STORAGE: The storage does not respond.
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

    @property
    def is_regular(self) -> bool:
        """Return whether this is a regular step of closing a bucket, and not a problem."""
        return self in (
            ClosingPhase.REPORTS,
            ClosingPhase.CONTROL,
            ClosingPhase.PROMISES,
            ClosingPhase.EVENTS,
            ClosingPhase.ARRIVAL,
        )


class HourState(enum.Enum):
    """The processing state of an event type's oldest hour that is not yet closed.

    - `OPEN`: the hour waits for records.
    - `FROZEN`: its rows are fixed temporarily, while they are compared with the audit records.
    - `SEALED`: the content of its bucket is fixed permanently, but the bucket may not exist yet.
    - `DAMAGED`: the hour's ledger row does not match its digest.
    """

    OPEN = "open"
    FROZEN = "frozen"  # groups are listed, not yet proved
    SEALED = "sealed"  # proved: the bucket's content is fixed permanently
    DAMAGED = (
        "damaged"  # its row does not match its digest; the type waits for an operator; never stored
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagingPosition:
    """The next offset to stage in one partition of the central Kafka cluster.

    Staging copies records from Kafka to files on storage.

    Attributes:
        cluster_id: Kafka cluster id.
        topic_id: Kafka topic id.
        topic: Topic name in the central cluster.
        partition: Partition number.
        next_offset: Next offset to read; all smaller offsets are staged.
        shard: Name of the shard (the set of topics that one consumer reads) to which the partition
            belongs.
        leader_epoch: Leader epoch of the last staged record; None if unknown.
        epoch_next: Offset after the last staged record; at most `next_offset`, because transaction
            markers may lie between them. None if unknown.
    """

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

    def with_next_offset(self, offset: int) -> StagingPosition:
        """Return a copy of this position with a different next offset.

        The leader epoch of the copy is unknown (None).

        Args:
            offset: The next offset to stage.
        """
        return dataclasses.replace(self, next_offset=offset, leader_epoch=None, epoch_next=None)

    @property
    def topic_partition(self) -> Partition:
        """Return the topic-partition on the central cluster to which this position belongs."""
        return Partition(self.topic, self.partition)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """A range of offsets in one topic-partition whose records were copied to a staged file.

    Attributes:
        topic: Topic name in the central cluster.
        topic_id: Kafka topic id.
        partition: Partition number.
        start: First offset (inclusive).
        end: End offset (exclusive).
        leader_epoch: Leader epoch of the last record in the range; None if unknown or if the range
            has no record.
        epoch_next: Offset after the last record; transaction markers may lie between it and `end`.
            None if the range has no record.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader_epoch: int | None = None
    epoch_next: int | None = None

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> OffsetSpan:
        """Create a span from the JSON list that `to_list` returned.

        Args:
            values: Fields in order. Lists that version 0.3.0 wrote, without leader epochs, are
                accepted.

        Returns:
            The span; its epochs are None if the list has none.
        """
        return cls(**dict(zip((f.name for f in dataclasses.fields(cls)), values, strict=False)))

    def to_list(self) -> list[Any]:
        """Convert the span to a JSON list of its fields, in their order.

        If the leader epoch is unknown, the list ends after `end`, as in version 0.3.0.
        """
        fields = list(dataclasses.astuple(self))
        return fields if self.leader_epoch is not None else fields[:5]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A Parquet file of Kafka records, written by one staging task.

    A file contains either events or audit records, which state how many events a byte range of a
    log file contains.

    Attributes:
        path: HDFS path relative to the storage root.
        kind: `EVENTS` or `AUDIT`.
        rows: Number of rows: one per event, or one for each event type and hour of each audit
            record.
        spans: The offset ranges that were read to write the file.
        observed_ms: Smallest and largest `observed_at` of the audit records in Unix milliseconds,
            which is the time at which a service first received the byte range; None for events.
    """

    path: str
    kind: str  # EVENTS or AUDIT
    rows: int
    spans: tuple[OffsetSpan, ...]
    observed_ms: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedGroup:
    """The rows of one event type and hour in one staged file, sorted by event id.

    A staged file contains records that were copied from Kafka.

    Attributes:
        path: Path of the staged file, relative to the storage root.
        event_type: Name of the event type.
        hour_s: Unix seconds at the start of the hour.
        rows: Number of rows.
        datum_bytes: Total size of the rows' Avro datums in bytes.
        low64_sum: Digest of the event ids and range ids of all rows, including duplicates: the sum
            modulo 2^64 of (last 8 bytes of the event id + RANGE_WEIGHT * range id). A range id
            identifies the byte range of a log file, or the API batch, that contains the event.
        schema_ids: Distinct schema ids, ascending.
        first_row: Index of the first row in the file.
        first_id: Smallest event id.
        last_id: Largest event id.
        value_sum: Sum modulo 2^64 of the rows' value hashes (`hourmark.avro.value_hash`), unsigned;
            None in groups that version 0.3.0 staged.
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
    """An upper limit on audit records: for each site, an offset in the site's audit topic.

    An audit record states how many events a byte range of a log file contains. A site is an edge
    cluster; each site has its own audit topic. An audit record is below the limit if its offset is
    smaller than the limit's offset for its site. If the limit does not name a site, none of the
    site's records is below it.

    Attributes:
        by_site: Pairs of site name and offset, sorted by site. Offsets refer to the topics on the
            central cluster. The first site, which is the cluster in the setting `kafka.edge`, is
            named "0".
    """

    by_site: tuple[tuple[str, int], ...] = ()  # sorted

    @classmethod
    def from_offsets(cls, offsets: Mapping[str, int] | int) -> AuditOffsets:
        """Create a limit from the offsets that the ledger (the ETL's state database) stores.

        Args:
            offsets: Offsets (exclusive) by site name, or a single offset for the first site.
                Ledgers of versions that supported only one site contain a single number.

        Returns:
            The limit that consists of these offsets.
        """
        known = {FIRST_SITE: offsets} if isinstance(offsets, int) else offsets
        return cls(tuple(sorted((site, int(offset)) for site, offset in known.items())))

    def to_json(self) -> dict[str, int] | int:
        """Convert the limit to the JSON value that the ledger (the ETL's state database) stores.

        Returns:
            A mapping from site name to offset. If no site except the first is named, only its
            offset, which every version can read.
        """
        return self.offset_of(FIRST_SITE) if not self.further_sites else dict(self.by_site)

    def to_marker_json(self) -> dict[str, int]:
        """Convert the limit to the JSON object `audit_next` of a bucket's manifest.

        Returns:
            Offsets by site name (edge cluster). The first site is always present.
        """
        return {FIRST_SITE: self.offset_of(FIRST_SITE), **dict(self.by_site)}

    @property
    def further_sites(self) -> dict[str, int]:
        """Return the offsets of all sites except the first, which is the cluster `kafka.edge`.

        Returns:
            Offsets by site name; empty if no other site is named.
        """
        return {site: offset for site, offset in self.by_site if site != FIRST_SITE}

    def offset_of(self, site: str) -> int:
        """Return this limit's offset (exclusive) for one site.

        The site's audit records with smaller offsets are below the limit.

        Args:
            site: Name of the site (edge cluster).

        Returns:
            The offset; 0 if the limit does not name the site.
        """
        return dict(self.by_site).get(site, 0)

    def reaches(self, other: AuditOffsets) -> bool:
        """Return whether this limit is at least as large as another limit for every site.

        If each of two limits has the larger offset for some site, neither reaches the other.

        Args:
            other: The limit to compare with.

        Returns:
            True if every audit record below `other` is also below this limit.
        """
        return all(self.offset_of(site) >= offset for site, offset in other.by_site)

    def maximum(self, other: AuditOffsets) -> AuditOffsets:
        """Combine two limits by taking the larger offset of each site.

        Args:
            other: The other limit. If a limit does not name a site, its offset for the site is 0.

        Returns:
            The smallest limit that reaches both.
        """
        return AuditOffsets.from_offsets(
            {
                site: max(self.offset_of(site), other.offset_of(site))
                for site, _ in (*self.by_site, *other.by_site)
            }
        )

    def minimum(self, other: AuditOffsets) -> AuditOffsets:
        """Combine two limits by taking the smaller offset of each site.

        Args:
            other: The other limit. If a limit does not name a site, its offset for the site is 0.

        Returns:
            The largest limit that both limits reach.
        """
        return AuditOffsets.from_offsets(
            {
                site: min(self.offset_of(site), other.offset_of(site))
                for site, _ in (*self.by_site, *other.by_site)
            }
        )


NO_AUDIT_OFFSETS: Final = AuditOffsets()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditGroup:
    """The audit records of one event type and hour in one staged file of audit records.

    An audit record states which events a delivery service wrote for one byte range of a log file.
    These are the promised events. Staged files hold copies of Kafka records. All records of a file
    come from one site (edge cluster).

    Attributes:
        path: Path of the staged file, relative to the storage root.
        event_type: Name of the event type.
        hour_s: Unix seconds at the start of the hour.
        rows: Number of audit records.
        first_offset: Smallest offset in the central audit topic.
        last_offset: Largest offset in the central audit topic, inclusive.
        promised: Sum of the promised event counts; a duplicate audit record counts twice.
        low64_sum: Digest of the ids of the promised events, to be compared with the
            `StagedGroup.low64_sum` of the staged events. A duplicate audit record counts twice.
        site: Name of the site whose audit topic contains the records.
        value_sum: Sum modulo 2^64 of the promises' value checksums; None in groups that version
            0.3.0 staged.
        unchecked: Number of promised events without a checksum; None if `value_sum` is None.
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
class ReportedSource:
    """The latest report on the delivery progress of one log source on one host.

    Attributes:
        host_id: Unique id of the host.
        source: Name of the source.
        host_name: Host name for messages.
        kind: Kind of the reporting component, for example `service`.
        incarnation: Id of one run of the reporting component.
        sequence: Sequence number of the report within the incarnation.
        received_at_ms: Time at which a delivery service received the report, Unix milliseconds.
        caught_up_at_ms: Time up to which all lines are delivered, Unix milliseconds; None if the
            source has never caught up.
        pending_bytes: Number of bytes that are not delivered yet.
        lost_bytes: Number of bytes that are lost.
        goodbye: Whether the source signed off, so that buckets no longer wait for it.
        heard_at_ms: Time at which the ETL read the report from Kafka, by the clock of the ETL
            driver; for a report older than the clock tolerance, the time at which it was received.
        waived: Whether a bucket was closed without waiting for this source; reset by the next
            report.
        unknown_losses: Number of losses of unknown size.
        unrepeatable: Whether the source's senders cannot resend lost data.
    """

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
    unrepeatable: bool = False  # its senders cannot resend

    @property
    def name(self) -> str:
        """Return a human-readable name for messages, which consists of kind, host and source."""
        return f"{self.kind} {self.host_name} source {self.source}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedRecords:
    """Kafka records of one topic-partition that are excluded from buckets for the same reason.

    Attributes:
        topic: Topic name in the central cluster.
        topic_id: Kafka topic id.
        partition: Partition number.
        event_type: Event type of the topic.
        reason: Human-readable reason.
        offsets: Offsets of the records, ascending; at least one.
    """

    topic: str
    topic_id: str
    partition: int
    event_type: str
    reason: str
    offsets: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """The result of one micro-batch of staging, which the ledger commits in one transaction.

    Staging copies Kafka records to files on storage. The ledger is the state database of the ETL. A
    staging position is the next offset of a partition to copy.

    Attributes:
        folder: Path of the folder that contains all files of the batch; also the batch's name.
        starts: Staging positions before the batch.
        ends: Staging positions after the batch, in the order of `starts`.
        files: The files that the batch wrote.
        groups: Totals of the staged events by file, type and hour.
        audit_groups: Totals of the staged audit records, which state how many events were sent, by
            file, type and hour.
        reports: Host reports in the order of the topic, each with one entry per source.
        set_aside: Malformed records that could not be staged.
    """

    folder: str
    starts: tuple[StagingPosition, ...]
    ends: tuple[StagingPosition, ...]
    files: tuple[StagedFile, ...]
    groups: tuple[StagedGroup, ...]
    audit_groups: tuple[AuditGroup, ...]
    reports: tuple[tuple[ReportedSource, ...], ...]  # each of one host, in the order of the topic
    set_aside: tuple[ExcludedRecords, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class EventTotals:
    """Number and checksums of staged rows, or of the events that audit records count.

    Audit records state how many events were sent. Staged rows are events that were copied from
    Kafka to storage. An hourly bucket is proved complete if the totals of its staged rows equal the
    totals of its audit records. Instances support `+` and `-`.

    Attributes:
        records: Number of staged rows or audit records.
        events: Number of events.
        digest: Sum modulo 2^64 that depends on all event ids and range ids; see
            `StagedGroup.low64_sum`.
        values: Sum modulo 2^64 of the value hashes that are known.
        unchecked: Number of events whose value hash is not known.
    """

    records: int = 0
    events: int = 0
    digest: int = 0
    values: int = 0
    unchecked: int = 0

    def __add__(self, other: EventTotals) -> EventTotals:
        return EventTotals(
            self.records + other.records,
            self.events + other.events,
            to_unsigned(self.digest + other.digest),
            to_unsigned(self.values + other.values),
            self.unchecked + other.unchecked,
        )

    def __sub__(self, other: EventTotals) -> EventTotals:
        return EventTotals(
            self.records - other.records,
            self.events - other.events,
            to_unsigned(self.digest - other.digest),
            to_unsigned(self.values - other.values),
            self.unchecked - other.unchecked,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class OriginHourTotals:
    """Counts of the events in a bucket whose timestamps lie in one particular hour.

    A bucket can contain late events, whose timestamps lie in earlier hours. When a bucket is
    closed, its events are compared with audit records, which state ("promise") how many events
    were sent.

    Attributes:
        hour_s: Unix seconds at the start of the hour.
        promised: Number of distinct events of this hour that the compared audit records promise.
        unaudited: Number of events of this hour in the bucket that no audit record had promised at
            the time of the comparison.
    """

    hour_s: int
    promised: int
    unaudited: int


@dataclasses.dataclass(frozen=True)
class IncompleteRanges:
    """Byte ranges of log files whose events closed buckets may lack, or contain in two versions.

    Manifests contain these ranges as `hourmark.records.manifest.MissingRanges`.

    Attributes:
        ranges: Ids of the byte ranges, 16 hex digits each.
        more: Whether other byte ranges, with unknown ids, are affected too.
    """

    ranges: tuple[str, ...] = ()  # range ids, hex
    more: bool = False

    def __or__(self, other: IncompleteRanges) -> IncompleteRanges:
        """Return the union of both sets of byte ranges.

        `more` is set if it is set in either of them.
        """
        return IncompleteRanges(
            tuple(dict.fromkeys((*self.ranges, *other.ranges))), self.more or other.more
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seal:
    """The evidence of a bucket's completeness, fixed before the bucket is written.

    It is copied into the manifest of the bucket. The evidence is a comparison of the staged events
    with audit records, which state ("promise") how many events were sent.

    Attributes:
        grade: `proved`, `timed_out` or `forced`.
        method: How events and audit records were compared: `sums` (counts and sums of ids), `join`
            (the distinct ids of each byte range) or `empty` (nothing was promised).
        cut_at_ms: Time at which the offsets in `audit_next` were determined, Unix milliseconds.
        audit_next: The comparison covers the audit records below these offsets.
        audit_records: Number of audit records that were compared.
        promised: Number of events that these audit records promise.
        unaudited: Number of events in the bucket that no audit record promises.
        waived: Human-readable descriptions of missing evidence that was waived, for example of a
            source that had not caught up.
        offsets: Staging positions (next offsets to stage) when the set of rows was fixed.
        books: Event counts by hour of the event timestamp.
        listed: Totals of the staged rows, including duplicates, that the bucket is written from.
        lost: Number of bytes that hosts reported as lost, by source.
        unknown: Number of losses of unknown size that hosts reported, by source.
        unrepeatable: Sources whose senders cannot resend data.
        checked: Number of promised events whose values were verified; None in seals of version
            0.3.0.
        leaves_out: Whether an override permits leaving out rows that cannot be written.
        gives_up: Whether an override permits skipping checks against an unreadable closed bucket.
        lacks: Byte ranges of log files whose events are missing from the bucket; None in seals of
            grade `proved` and of version 0.3.0.
        hour_s: Unix seconds at the start of the sealed hour; None in seals of version 0.3.0, whose
            hours follow each other without a gap.
    """

    grade: str
    method: str
    cut_at_ms: int
    audit_next: Annotated[
        AuditOffsets,
        PlainValidator(AuditOffsets.from_offsets),
        PlainSerializer(AuditOffsets.to_json),
    ]
    audit_records: int
    promised: int
    unaudited: int
    waived: tuple[str, ...]
    offsets: tuple[StagingPosition, ...]
    books: tuple[OriginHourTotals, ...] = ()  # by origin hour
    listed: EventTotals = dataclasses.field(
        default_factory=EventTotals
    )  # totals of listed rows with duplicates; exactly these are written
    lost: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # by source: bytes that hosts know to be lost
    unknown: Mapping[str, int] = dataclasses.field(
        default_factory=dict
    )  # by source: number of losses of unknown size
    unrepeatable: tuple[str, ...] = ()  # sources whose senders cannot resend
    checked: int | None = (
        None  # promised events whose values a checksum proved; None in seals of version 0.3.0
    )
    leaves_out: bool = False  # an override omits rows that cannot be written
    gives_up: bool = False  # set by an override after the seal: see `SealedHour`
    lacks: IncompleteRanges | None = (
        None  # None in seals of `proved`, and in those of version 0.3.0
    )
    hour_s: int | None = None  # None in seals of version 0.3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frontier:
    """The oldest hour of an event type whose bucket is not closed, with its processing state.

    The hourly buckets of a type are closed strictly in order. From `first_hour` on, every hour has
    a bucket. Earlier hours are back-filled: they have a bucket only if events or audit records of
    them existed. Audit records state how many events a byte range of a log file contains.

    Attributes:
        event_type: Name of the event type.
        first_hour: The hour from which on every hour of the type has a bucket.
        hour: The oldest hour that is not closed. Until the first bucket is closed, this is the
            oldest hour with events or audit records, but at most `first_hour`.
        state: State of this hour.
        sources: Names of the log sources that may deliver the type.
        settled_next: For each site (edge cluster), the offset (exclusive) in its audit topic up to
            which the audit records of earlier hours were compared with closed buckets.
        seal: The evidence that this hour's bucket is complete, fixed before the bucket is written;
            None unless the hour is sealed.
        alarm: Human-readable findings of the last failed proof, or the error of a damaged row;
            empty if there is none.
        shard: Name of the shard that stages the type.
        later_seals: Seals of the hours that follow, if several hours were sealed together.
        backfilled_hour: The newest closed hour before `first_hour`; None if there is none.
        noticed_ms: Time at which the closer noticed events or audit records of the oldest hour
            before `first_hour`, Unix milliseconds; 0 if this hour is not before `first_hour`, and
            in frontiers that were read from the ledger.
    """

    event_type: str
    first_hour: Hour
    hour: Hour
    state: HourState
    sources: frozenset[str]
    settled_next: AuditOffsets  # audit records below are settled for hours before `hour`
    seal: Seal | None
    alarm: tuple[str, ...]
    shard: str = DEFAULT_SHARD  # the shard whose query stages the type
    later_seals: tuple[
        Seal, ...
    ] = ()  # seals of the following hours, if a backlog was sealed together
    backfilled_hour: Hour | None = None
    noticed_ms: int = 0

    @property
    def previous_hour(self) -> Hour | None:
        """Return the hour of the last bucket before this hour.

        From `first_hour` on, buckets follow each other without a gap. Between earlier buckets,
        hours may be missing.

        Returns:
            The hour; None if the type has no earlier bucket.
        """
        return self.hour.previous() if self.hour > self.first_hour else self.backfilled_hour

    @property
    def awaited_ms(self) -> int:
        """Return the time up to which log sources must have delivered before this hour can close.

        Returns:
            Unix milliseconds: the end of the hour. For the oldest hour before `first_hour`, the
            time at which the closer noticed its events, so that a source that is still delivering
            an old log file is awaited.
        """
        is_oldest = self.previous_hour is None
        return max(self.hour.end_ms, self.noticed_ms if is_oldest else 0)

    @property
    def due_ms(self) -> int:
        """Return the time from which the closing delay of this hour is measured.

        Returns:
            Unix milliseconds: the end of the hour. For an hour before `first_hour`, the end of
            `first_hour`, because old log files may be delivered years after they were written.
        """
        return max(self.hour, self.first_hour).end_ms

    def times_out_ms(self, deadline_ms: int) -> int:
        """Return when this hour stops waiting for missing sources and events.

        The deadline of hours before `first_hour` starts when the closer notices events of the
        oldest one, because an old log file may be delivered long after the type's first hour.

        Args:
            deadline_ms: The setting `etl.deadline_seconds`, in milliseconds.

        Returns:
            Unix milliseconds.
        """
        return max(self.due_ms, self.noticed_ms) + deadline_ms

    @property
    def sealed_hours(self) -> tuple[Frontier, ...]:
        """Return one `Frontier` for each sealed hour of the event type.

        An hour is sealed if the content of its bucket is fixed, but the bucket is not closed yet.

        Returns:
            Copies of this object, each with one sealed hour as `hour`, in ascending order; empty if
            no hour is sealed.
        """
        hours: list[Frontier] = []
        at = self
        while at.seal is not None:
            hours.append(at)
            at = at.next_frontier
        return tuple(hours)

    @property
    def next_frontier(self) -> Frontier:
        """Return the frontier of the event type after the bucket of this hour is closed.

        Returns:
            A copy whose `hour` is the next sealed hour (whose bucket has a fixed content), or the
            following hour if no other hour is sealed.
        """
        hour, later = self.hour.next(), self.later_seals
        if later and later[0].hour_s is not None:
            hour = Hour(later[0].hour_s, hour.length_s)
        return dataclasses.replace(
            self,
            hour=hour,
            backfilled_hour=self.hour if self.hour < self.first_hour else self.backfilled_hour,
            seal=later[0] if later else None,
            later_seals=later[1:],
        )
