"""Searches Kafka for a trace: one record by its offset, or records written in a time span.

Timestamps come from the delivery services' clocks. The records of a byte range and its audit record
are written within one request, so the time of one of them limits where the others are searched. No
step reads more than `records_max` records, and each result states what was read.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Message

from hourmark.avro.datum import Datum
from hourmark.avro.framing import ENVELOPE, NAMESPACE, unframe
from hourmark.config.groups import KafkaSettings
from hourmark.errors import Finding, Unavailable
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.mirror import MirrorPositions
from hourmark.kafka.topic_names import (
    AUDIT,
    central_topic,
    edge_topic,
    event_type_of_topic,
    events_topic,
)
from hourmark.records import dead_letters
from hourmark.records.audit import AuditRecord
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import KEY_SIZE, RecordKey
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark_etl.buckets.reader import Event
from hourmark_etl.humanize import format_count, format_iso
from hourmark_etl.operators.dead_letter_reader import PrintMessage, ReadProgress
from hourmark_etl.operators.tracing.query import FilePositionQuery
from hourmark_etl.operators.tracing.results import (
    ByEventId,
    ByRangePosition,
    ClusterRole,
    FoundAuditRecord,
    FoundKafkaRecord,
    SearchResult,
    T,
    run_search,
)

RECORDS_MAX: Final = 200_000
_STALL_S: Final = 10.0
_AT_ONCE: Final = 20_000  # audit records per chunk, the newest chunk first
_REQUEST_MS: Final = (
    600_000  # between the first and last record of a request, including clock differences
)
_ENVELOPE: Final = Datum(
    {"type": "record", "name": "envelope", "namespace": NAMESPACE, "fields": ENVELOPE}
)
_LETTER: Final = Datum(DEAD_LETTERS.schema())


class _Spans(NamedTuple):
    of: Mapping[Partition, tuple[int, int]]
    is_complete: bool = True  # nothing of the requested time was deleted or left out
    is_missing: bool = False  # the topic does not exist

    @property
    def records(self) -> int:
        return sum(end - start for start, end in self.of.values())


class KafkaSearch:
    """Search for the records of a traced event in the Kafka clusters of one site.

    If a cluster does not respond or a record cannot be decoded, the methods do not raise an
    exception. They return a result whose `error` is set. A cluster that did not respond is not
    queried again, except by `read_record`.

    Args:
        kafka: Settings of the edge cluster and the central cluster, which may be the same cluster.
        print_message: Function that prints a human-readable progress message.
        now_ms: Current time, Unix milliseconds.
        records_max: Approximate maximum number of records that one search reads.

    Attributes:
        alias: MirrorMaker 2's alias of the edge cluster; None if there is no mirror.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        print_message: PrintMessage,
        *,
        now_ms: int,
        records_max: int = RECORDS_MAX,
    ) -> None:
        self.alias = kafka.edge_alias if kafka.mirrored else None
        self._clusters = {
            ClusterRole.EDGE: Cluster(kafka.edge, "edge"),
            ClusterRole.CENTRAL: Cluster(kafka.central_cluster, "central"),
        }
        self._print_message, self._records_max = print_message, records_max
        self._latest_ms = now_ms + _REQUEST_MS  # allows for clocks that are ahead of this one
        # Errors of clusters that did not respond and are not queried again.
        self._unavailable: dict[ClusterRole, str] = {}

    def topic_name(self, cluster: ClusterRole, event_type: str) -> str:
        """Return the name of the topic that holds an event type's records on a cluster.

        Args:
            cluster: The edge cluster or the central cluster. With a mirror, the topic on the
                central cluster has the edge alias as prefix.
            event_type: Name of the event type.

        Returns:
            Topic name, such as `events.click` or `edge.events.click`.
        """
        return (
            events_topic(event_type)
            if cluster is ClusterRole.EDGE
            else central_topic(events_topic(event_type), self.alias)
        )

    def find_audit_record_of_line(
        self, place: FilePositionQuery, from_ms: int, to_ms: int
    ) -> SearchResult[FoundAuditRecord]:
        """Search for the audit record of the byte range that contains a position of a log file.

        An audit record confirms that the delivery service acknowledged a byte range. The newest
        records of each topic-partition are read first. If several files of the same path contain
        the position, the latest file is preferred, and `other_files` counts the others. The edge
        cluster is searched first, then the mirrored topic if the edge may no longer have the
        record.

        Args:
            place: Host, file and byte offset to find.
            from_ms: Start of the time span in which the record was written, Unix milliseconds.
            to_ms: End of the time span, Unix milliseconds.

        Returns:
            The search result. Its `value` is None if no matching record was read.
        """
        return self._audit(
            lambda site, topic: self._newest_audit(site, topic, place, from_ms, to_ms)
        )

    def find_audit_record_of_range(
        self, range_id: RangeId, near_ms: int
    ) -> SearchResult[FoundAuditRecord]:
        """Search for the audit record that confirms the delivery of a byte range.

        The record may be hours newer than the range's events if the first attempt to write it
        failed. The edge cluster is searched first, then the mirrored topic if the record may be
        missing there.

        Args:
            range_id: Id of the byte range.
            near_ms: Time at which one of the range's events was written, Unix milliseconds.

        Returns:
            The search result. Its `value` is None if no matching record was read.
        """

        def search(site: ClusterRole, topic: str) -> SearchResult[FoundAuditRecord]:
            from_ms, to_ms = near_ms - _REQUEST_MS, self._latest_ms
            spans = self._spans(site, topic, None, from_ms, to_ms)
            first = self._first(site, spans, lambda m: m.key() == bytes(range_id))
            return SearchResult(
                None if first is None else _acknowledged(first),
                _where(topic, spans, from_ms, to_ms),
                spans.is_complete,
            )

        return self._audit(search)

    def _audit(
        self, search: Callable[[ClusterRole, str], SearchResult[FoundAuditRecord]]
    ) -> SearchResult[FoundAuditRecord]:
        # The mirrored topic may still have records that the edge topic no longer has.
        edge = self._query_cluster(ClusterRole.EDGE, AUDIT, lambda: search(ClusterRole.EDGE, AUDIT))
        if (
            edge.value is not None
            or (edge.is_complete and edge.error is None)
            or self.alias is None
        ):
            return edge
        copied = central_topic(AUDIT, self.alias)
        central = self._query_cluster(
            ClusterRole.CENTRAL, copied, lambda: search(ClusterRole.CENTRAL, copied)
        )
        return central if central.value is not None else edge

    def read_record(
        self, cluster: ClusterRole, topic: str, partition: int, offset: int
    ) -> SearchResult[FoundKafkaRecord]:
        """Read the event at one offset of a topic-partition.

        Unlike the other methods, this one also queries a cluster that did not respond before.

        Args:
            cluster: Cluster to read from.
            topic: Name of the topic on that cluster.
            partition: Partition number.
            offset: Offset of the record.

        Returns:
            The search result. Its `value` is None if there is no record at the offset.
        """
        return run_search(
            f"{topic}-{partition} of the {cluster.value} cluster",
            lambda: self._at(cluster, Partition(topic, partition), offset),
        )

    def find_event(
        self,
        cluster: ClusterRole,
        topic: str,
        criterion: ByEventId | ByRangePosition,
        from_ms: int,
        to_ms: int | None,
        partition: int | None = None,
    ) -> SearchResult[FoundKafkaRecord]:
        """Search a topic for the oldest event that matches a criterion, within a time span.

        Args:
            cluster: Cluster to read from.
            topic: Name of the topic on that cluster.
            criterion: Id of the event, or its position in a byte range.
            from_ms: Earliest time at which the record was written, Unix milliseconds.
            to_ms: Latest time at which the record was written, Unix milliseconds; None means the
                current time.
            partition: Number of the partition to read; None reads all partitions.

        Returns:
            The search result. Its `value` is None if no record that was read matches.
        """
        until_ms = self._latest_ms if to_ms is None else to_ms

        def search() -> SearchResult[FoundKafkaRecord]:
            spans = self._spans(cluster, topic, partition, from_ms, until_ms)
            first = self._first(cluster, spans, lambda m: _matches(m, criterion))
            return SearchResult(
                None if first is None else _record(first),
                _where(topic, spans, from_ms, until_ms),
                spans.is_complete,
            )

        return self._query_cluster(cluster, topic, search)

    def find_event_near_audit(
        self, topic: str, criterion: ByEventId | ByRangePosition, audit_written_at_ms: int
    ) -> SearchResult[FoundKafkaRecord]:
        """Search the edge cluster for an event of an acknowledged byte range.

        All records of a range are written in one request, so only records from ten minutes before
        to ten minutes after the range's audit record are read.

        Args:
            topic: Name of the topic on the edge cluster.
            criterion: Id of the event, or its position in the range.
            audit_written_at_ms: Time at which the audit record was written, Unix milliseconds.

        Returns:
            The search result. Its `value` is None if no record that was read matches.
        """
        return self.find_event(
            ClusterRole.EDGE,
            topic,
            criterion,
            audit_written_at_ms - _REQUEST_MS,
            audit_written_at_ms + _REQUEST_MS,
        )

    def find_last_event_before(
        self, topic: str, range_id: RangeId, position: int, audit_written_at_ms: int
    ) -> SearchResult[FoundKafkaRecord]:
        """Search the edge cluster for the last event of a byte range at or before a file position.

        Use this method to find the event that contains a position, if no event begins at the
        position itself. Only records from ten minutes before to ten minutes after the range's audit
        record are read.

        Args:
            topic: Name of the topic on the edge cluster.
            range_id: Id of the byte range.
            position: Byte offset in the file.
            audit_written_at_ms: Time at which the range's audit record was written, Unix
                milliseconds.

        Returns:
            The search result. Its `value` is None if no event of the range begins at or before the
            position.
        """

        def search() -> SearchResult[FoundKafkaRecord]:
            from_ms, to_ms = audit_written_at_ms - _REQUEST_MS, audit_written_at_ms + _REQUEST_MS
            spans = self._spans(ClusterRole.EDGE, topic, None, from_ms, to_ms)
            messages = self._read(
                ClusterRole.EDGE, spans, ReadProgress(spans.records, self._print_message)
            )
            with contextlib.closing(messages):
                of_range = (
                    _record(m)
                    for m in messages
                    if (m.key() or b"")[-len(range_id) :] == bytes(range_id)
                )
                before = [r for r in of_range if r.event["position"] <= position]
            last = max(before, key=lambda r: int(r.event["position"]), default=None)
            return SearchResult(last, _where(topic, spans, from_ms, to_ms), spans.is_complete)

        return self._query_cluster(ClusterRole.EDGE, topic, search)

    def mirror_offset(self, topic: str, partition: int) -> SearchResult[int]:
        """Return the next offset of an edge topic-partition that the mirror will copy.

        Do not call this method for a site without a mirror.

        Args:
            topic: Name of the topic on the edge cluster.
            partition: Partition number.

        Returns:
            The search result. Its `value` is 0 if the mirror has copied nothing from this
            topic-partition.
        """

        def search() -> SearchResult[int]:
            assert self.alias is not None, "there is no mirror"
            with contextlib.closing(
                MirrorPositions(self._clusters[ClusterRole.CENTRAL].settings, self.alias)
            ) as positions:
                return SearchResult(
                    positions.refresh().get(Partition(topic, partition), 0),
                    "the mirror's positions",
                    is_complete=True,
                )

        return self._query_cluster(ClusterRole.CENTRAL, "the mirror's positions", search)

    def _query_cluster(
        self, site: ClusterRole, what: str, search: Callable[[], SearchResult[T]]
    ) -> SearchResult[T]:
        def known() -> SearchResult[T]:
            if site in self._unavailable:
                raise Unavailable(self._unavailable[site])
            try:
                return search()
            except Unavailable as error:
                self._unavailable[site] = str(error)
                raise

        return run_search(f"{what} of the {site.value} cluster", known)

    def _newest_audit(
        self, site: ClusterRole, topic: str, place: FilePositionQuery, from_ms: int, to_ms: int
    ) -> SearchResult[FoundAuditRecord]:
        # Reads backwards in chunks, because most requests concern recent records.
        spans = self._spans(site, topic, None, from_ms, to_ms, newest=True)
        progress = ReadProgress(spans.records, self._print_message)
        back_to = to_ms
        pieces = [
            (partition, max(start, high - _AT_ONCE), high)
            for partition, (start, end) in spans.of.items()
            for high in range(end, start, -_AT_ONCE)
        ]
        for partition, low, high in pieces:
            held = list[FoundAuditRecord]()
            for message in self._read(site, _Spans({partition: (low, high)}), progress):
                back_to = min(back_to, message.timestamp()[1])
                if place.matches_range((audit := _acknowledged(message)).record):
                    held.append(audit)
            if held:
                return SearchResult(
                    _newest_of(held), _where(topic, spans, back_to, to_ms), spans.is_complete
                )
        return SearchResult(None, _where(topic, spans, back_to, to_ms), spans.is_complete)

    def _at(
        self, site: ClusterRole, place: Partition, offset: int
    ) -> SearchResult[FoundKafkaRecord]:
        cluster = self._clusters[site]
        info = cluster.topics([place.topic]).get(place.topic)
        if info is None or place.partition not in info.partitions:
            return SearchResult(
                None, f"{place} does not exist on the {site.value} cluster", is_complete=True
            )
        start, end = cluster.starts([place])[place], cluster.ends([place])[place]
        where = f"{place} of the {site.value} cluster, which has offsets {start} to {end - 1}"
        if not start <= offset < end:
            return SearchResult(None, where, is_complete=offset >= end)
        first = self._first(site, _Spans({place: (offset, offset + 1)}), lambda _: True)
        return SearchResult(None if first is None else _record(first), where, is_complete=True)

    def _spans(
        self,
        site: ClusterRole,
        topic: str,
        partition: int | None,
        from_ms: int,
        to_ms: int,
        *,
        newest: bool = False,
    ) -> _Spans:
        cluster = self._clusters[site]
        info = cluster.topics([topic]).get(topic)
        if info is None:
            return _Spans({}, is_missing=True)
        partitions = [Partition(topic, n) for n in info.partitions if partition in (None, n)]
        starts, froms = cluster.starts(partitions), cluster.at_time(partitions, max(0, from_ms))
        ends = cluster.at_time(partitions, to_ms)
        share = -(-self._records_max // max(1, len(partitions)))
        wanted = {
            p: (int(max(starts[p], froms[p])), int(max(ends[p], froms[p]))) for p in partitions
        }
        if newest:
            cut = {p: (max(start, end - share), end) for p, (start, end) in wanted.items()}
        else:
            cut = {p: (start, min(end, start + share)) for p, (start, end) in wanted.items()}
        return _Spans(
            cut, cut == wanted and all(starts[p] == 0 or froms[p] > starts[p] for p in partitions)
        )

    def _first(
        self, site: ClusterRole, spans: _Spans, matches: Callable[[Message], bool]
    ) -> Message | None:
        with contextlib.closing(
            self._read(site, spans, ReadProgress(spans.records, self._print_message))
        ) as messages:
            return next((m for m in messages if matches(m)), None)

    def _read(
        self, site: ClusterRole, spans: _Spans, progress: ReadProgress
    ) -> Generator[Message, None, None]:
        reader = CommittedReader(self._clusters[site].settings, site.value, stall_s=_STALL_S)
        with contextlib.closing(reader), contextlib.closing(reader.read(spans.of)) as batches:
            for message in (message for runs in batches for run in runs for message in run.records):
                progress.count_step()
                yield message


def parse_events_topic(topic: str, alias: str | None) -> tuple[ClusterRole, str] | None:
    """Parse the name of a Kafka topic that contains events.

    Args:
        topic: Name of a topic on the edge cluster or the central cluster.
        alias: MirrorMaker 2's alias of the edge cluster; None if there is no mirror.

    Returns:
        The role of the cluster that holds the topic, and the event type. None if the name is not
        the name of an events topic.
    """
    if (event_type := event_type_of_topic(topic)) is not None:
        return ClusterRole.EDGE, event_type
    try:
        event_type = event_type_of_topic(edge_topic(topic, alias))
    except ValueError:
        return None
    return None if event_type is None else (ClusterRole.CENTRAL, event_type)


def decode_envelope(event_type: str, datum: bytes) -> Event:
    """Decode the fields that every event type has in common, such as time, host and position.

    These fields precede the fields of the type, so the schema of the type is not needed. For a dead
    letter, all fields are decoded.

    Args:
        event_type: Type of the event.
        datum: Avro datum of the event, without the schema-id prefix of the record's value.

    Returns:
        Values by field name. If a dead letter has an unknown schema, only the common fields are
        decoded.

    Raises:
        ValueError: The datum does not begin with the common fields.
    """
    for form in (_LETTER, _ENVELOPE) if event_type == dead_letters.TYPE else (_ENVELOPE,):
        with contextlib.suppress(ValueError):
            return form.decode(datum)
    raise ValueError("the datum does not begin with the envelope of an event")


def _newest_of(held: Sequence[FoundAuditRecord]) -> FoundAuditRecord:
    # The newest file wins; if its range was sent twice, the first audit record.

    def file_of(audit: FoundAuditRecord) -> tuple[str, str, int]:
        return audit.record.host_id, audit.record.file_id, audit.record.generation

    newest = next(audit for audit in held if file_of(audit) == file_of(held[-1]))
    return dataclasses.replace(newest, other_files=len({file_of(audit) for audit in held}) - 1)


def _acknowledged(message: Message) -> FoundAuditRecord:
    try:
        record = AuditRecord.decode(unframe(message.value() or b"")[1])
    except ValueError as error:
        raise Finding(
            f"{_place(message)} is not an audit record that this version of Hourmark can read "
            f"({error!r:.200})"
        ) from error
    return FoundAuditRecord(
        record=record,
        at_ms=message.timestamp()[1],
        topic=str(message.topic()),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


def _record(message: Message) -> FoundKafkaRecord:
    topic = str(message.topic())
    try:
        key = RecordKey.decode(message.key() or b"")
        event = decode_envelope(topic.rpartition(".")[2], unframe(message.value() or b"")[1])
    except ValueError as error:
        raise Finding(
            f"{_place(message)} is not an event: {error}; only delivery services may write there"
        ) from error
    return FoundKafkaRecord(
        topic=topic,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        at_ms=message.timestamp()[1],
        event_id=key.event_id,
        range_id=key.range_id,
        event=event,
    )


def _matches(message: Message, criterion: ByEventId | ByRangePosition) -> bool:
    key = message.key() or b""
    if isinstance(criterion, ByEventId):
        return key[: len(criterion.event_id)] == bytes(criterion.event_id)
    if len(key) != KEY_SIZE or key[-8:] != bytes(criterion.range_id):
        return False
    return bool(_record(message).event["position"] == criterion.position)


def _where(topic: str, spans: _Spans, from_ms: int, to_ms: int) -> str:
    if spans.is_missing:
        return f"{topic}: the topic does not exist"
    span = f"written from {format_iso(max(0, from_ms))} to {format_iso(to_ms)}"
    left = (
        ""
        if spans.is_complete
        else "; some are no longer in the log, or were not read (--since, --until, --records-max)"
    )
    return f"{topic}: {format_count(spans.records, 'record')} {span}{left}"


def _place(message: Message) -> str:
    return f"topic {message.topic()} partition {message.partition()} offset {message.offset()}"
