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
from hourmark_etl.operators.letters_read import Progress, Say
from hourmark_etl.operators.tracing.found import (
    Acknowledged,
    ById,
    ByPosition,
    Looked,
    Record,
    Site,
    T,
    asked,
)
from hourmark_etl.operators.tracing.question import OfPlace

RECORDS_MAX: Final = 200_000
_STALL_S: Final = 10.0
CHUNK_RECORDS: Final = 20_000  # audit records per chunk, the newest chunk first
_REQUEST_MS: Final = (
    600_000  # between the first and last record of a request, including clock differences
)
_ENVELOPE: Final = Datum(
    {"type": "record", "name": "envelope", "namespace": NAMESPACE, "fields": ENVELOPE}
)
_LETTER: Final = Datum(DEAD_LETTERS.schema())


class _Spans(NamedTuple):
    of: Mapping[Partition, tuple[int, int]]
    whole: bool = True  # nothing of the requested time was deleted or left out
    is_missing: bool = False  # the topic does not exist

    @property
    def records(self) -> int:
        return sum(end - start for start, end in self.of.values())


class Topics:
    """The Kafka clusters of one site as searched by a trace.

    If a cluster does not respond, or a record cannot be decoded, the methods return a result whose
    `failed` is set instead of raising an error. A cluster that did not respond is not asked again,
    except by `at`.

    Args:
        kafka: Settings of the edge cluster and the central cluster, which may be the same cluster.
        say: Function that is called with readable progress messages.
        now_ms: Current time, Unix milliseconds.
        records_max: Approximate maximum number of records that one step reads.
        chunk_records: Number of audit records that are read at a time, the newest first.

    Attributes:
        alias: MirrorMaker 2's alias of the edge cluster; None if there is no mirror.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        say: Say,
        *,
        now_ms: int,
        records_max: int = RECORDS_MAX,
        chunk_records: int = CHUNK_RECORDS,
    ) -> None:
        self.alias = kafka.edge_alias if kafka.mirrored else None
        self._clusters = {
            Site.EDGE: Cluster(kafka.edge, "edge"),
            Site.CENTRAL: Cluster(kafka.central_cluster, "central"),
        }
        self._say, self._records_max = say, records_max
        self._chunk_records = chunk_records
        self._latest_ms = now_ms + _REQUEST_MS  # allows for clocks that are ahead of this one
        self._away: dict[
            Site, str
        ] = {}  # errors of clusters that did not respond and are not asked again

    def topic_of(self, site: Site, event_type: str) -> str:
        """Return the name of an event type's topic on the edge or central cluster."""
        return (
            events_topic(event_type)
            if site is Site.EDGE
            else central_topic(events_topic(event_type), self.alias)
        )

    def audit_of_place(self, place: OfPlace, from_ms: int, to_ms: int) -> Looked[Acknowledged]:
        """Return the audit record of the byte range that contains a position of a file.

        The newest records of each partition are read first. If several files of the same path have
        the position, the latest file is preferred, and `other_files` counts the others. The edge
        cluster is searched first, then the mirrored topic if the edge may not have the record.

        Args:
            place: The position.
            from_ms: Start of the time span in which the record was written, Unix milliseconds.
            to_ms: End of the time span, Unix milliseconds.

        Returns:
            The result; its `found` is None if no such record was read.
        """
        return self._audit(
            lambda site, topic: self._newest_audit(site, topic, place, from_ms, to_ms)
        )

    def audit_of_range(self, range_id: RangeId, near_ms: int) -> Looked[Acknowledged]:
        """Return the audit record of a byte range.

        The record may be hours newer than the range's events, if the first attempt to write it
        failed. The edge cluster is searched first, then the mirrored topic if the record may be
        missing there.

        Args:
            range_id: Id of the range.
            near_ms: Time at which one of the range's events was written, Unix milliseconds.

        Returns:
            The result; its `found` is None if no such record was read.
        """

        def look(site: Site, topic: str) -> Looked[Acknowledged]:
            from_ms, to_ms = near_ms - _REQUEST_MS, self._latest_ms
            spans = self._spans(site, topic, None, from_ms, to_ms)
            first = self._first(site, spans, lambda m: m.key() == bytes(range_id))
            return Looked(
                None if first is None else _acknowledged(first),
                _where(topic, spans, from_ms, to_ms),
                spans.whole,
            )

        return self._audit(look)

    def _audit(self, look: Callable[[Site, str], Looked[Acknowledged]]) -> Looked[Acknowledged]:
        # The mirrored topic may still have records that the edge topic no longer has.
        edge = self._asked(Site.EDGE, AUDIT, lambda: look(Site.EDGE, AUDIT))
        if edge.found is not None or (edge.whole and edge.failed is None) or self.alias is None:
            return edge
        copied = central_topic(AUDIT, self.alias)
        central = self._asked(Site.CENTRAL, copied, lambda: look(Site.CENTRAL, copied))
        return central if central.found is not None else edge

    def at(self, site: Site, topic: str, partition: int, offset: int) -> Looked[Record]:
        """Return the event at an offset.

        Args:
            site: The cluster.
            topic: Name of the topic on that cluster.
            partition: Partition number.
            offset: Offset of the record.

        Returns:
            The result; its `found` is None if there is no record at the offset.
        """
        return asked(
            f"{topic}-{partition} of the {site.value} cluster",
            lambda: self._at(site, Partition(topic, partition), offset),
        )

    def find(
        self,
        site: Site,
        topic: str,
        sought: ById | ByPosition,
        from_ms: int,
        to_ms: int | None,
        partition: int | None = None,
    ) -> Looked[Record]:
        """Return the first event that matches, among those written in a time span.

        Args:
            site: The cluster.
            topic: Name of the topic on that cluster.
            sought: Id of the event, or its position in a byte range.
            from_ms: Start of the time span, Unix milliseconds.
            to_ms: End of the time span, Unix milliseconds; None means now.
            partition: The only partition to read; None reads all.

        Returns:
            The result; its `found` is None if no record read matches. The oldest records are read first.
        """
        until_ms = self._latest_ms if to_ms is None else to_ms

        def look() -> Looked[Record]:
            spans = self._spans(site, topic, partition, from_ms, until_ms)
            first = self._first(site, spans, lambda m: _is_sought(m, sought))
            return Looked(
                None if first is None else _record(first),
                _where(topic, spans, from_ms, until_ms),
                spans.whole,
            )

        return self._asked(site, topic, look)

    def of_request(self, topic: str, sought: ById | ByPosition, audited_ms: int) -> Looked[Record]:
        """Return an event of an acknowledged byte range from the edge cluster.

        Args:
            topic: Name of the topic on the edge cluster.
            sought: Id of the event, or its position in the range.
            audited_ms: Time at which the audit record was written, Unix milliseconds. Records up to
                ten minutes before or after it are searched.

        Returns:
            The result; its `found` is None if no record read matches.
        """
        return self.find(
            Site.EDGE, topic, sought, audited_ms - _REQUEST_MS, audited_ms + _REQUEST_MS
        )

    def last_of_request(
        self, topic: str, range_id: RangeId, position: int, audited_ms: int
    ) -> Looked[Record]:
        """Return the last event of a byte range that begins at or before a position.

        Args:
            topic: Name of the topic on the edge cluster.
            range_id: Id of the range.
            position: Byte offset in the file.
            audited_ms: Time at which the range's audit record was written, Unix milliseconds.
                Records up to ten minutes before or after it are searched.

        Returns:
            The result; its `found` is None if no event of the range begins there.
        """

        def look() -> Looked[Record]:
            from_ms, to_ms = audited_ms - _REQUEST_MS, audited_ms + _REQUEST_MS
            spans = self._spans(Site.EDGE, topic, None, from_ms, to_ms)
            messages = self._read(Site.EDGE, spans, Progress(spans.records, self._say))
            with contextlib.closing(messages):
                of_range = (
                    _record(m)
                    for m in messages
                    if (m.key() or b"")[-len(range_id) :] == bytes(range_id)
                )
                before = [r for r in of_range if r.event["position"] <= position]
            last = max(before, key=lambda r: int(r.event["position"]), default=None)
            return Looked(last, _where(topic, spans, from_ms, to_ms), spans.whole)

        return self._asked(Site.EDGE, topic, look)

    def mirrored_to(self, topic: str, partition: int) -> Looked[int]:
        """Return the next offset of an edge partition that the mirror will copy.

        There must be a mirror.

        Args:
            topic: Name of the topic on the edge cluster.
            partition: Partition number.

        Returns:
            The offset; 0 if the mirror has copied nothing from this partition.
        """

        def look() -> Looked[int]:
            assert self.alias is not None, "there is no mirror"
            with contextlib.closing(
                MirrorPositions(self._clusters[Site.CENTRAL].settings, self.alias)
            ) as positions:
                return Looked(
                    positions.refresh().get(Partition(topic, partition), 0),
                    "the mirror's positions",
                    whole=True,
                )

        return self._asked(Site.CENTRAL, "the mirror's positions", look)

    def _asked(self, site: Site, what: str, ask: Callable[[], Looked[T]]) -> Looked[T]:
        def known() -> Looked[T]:
            if site in self._away:
                raise Unavailable(self._away[site])
            try:
                return ask()
            except Unavailable as error:
                self._away[site] = str(error)
                raise

        return asked(f"{what} of the {site.value} cluster", known)

    def _newest_audit(
        self, site: Site, topic: str, place: OfPlace, from_ms: int, to_ms: int
    ) -> Looked[Acknowledged]:
        # Reads backwards in chunks, because most requests concern recent records.
        spans = self._spans(site, topic, None, from_ms, to_ms, newest=True)
        progress = Progress(spans.records, self._say)
        back_to = to_ms
        pieces = [
            (partition, max(start, high - self._chunk_records), high)
            for partition, (start, end) in spans.of.items()
            for high in range(end, start, -self._chunk_records)
        ]
        for partition, low, high in pieces:
            held = list[Acknowledged]()
            for message in self._read(site, _Spans({partition: (low, high)}), progress):
                back_to = min(back_to, message.timestamp()[1])
                if place.is_in((told := _acknowledged(message)).record):
                    held.append(told)
            if held:
                return Looked(_newest_of(held), _where(topic, spans, back_to, to_ms), spans.whole)
        return Looked(None, _where(topic, spans, back_to, to_ms), spans.whole)

    def _at(self, site: Site, place: Partition, offset: int) -> Looked[Record]:
        cluster = self._clusters[site]
        info = cluster.topics([place.topic]).get(place.topic)
        if info is None or place.partition not in info.partitions:
            return Looked(None, f"there is no {place} on the {site.value} cluster", whole=True)
        start, end = cluster.starts([place])[place], cluster.ends([place])[place]
        where = f"{place} of the {site.value} cluster, which has offsets {start} to {end - 1}"
        if not start <= offset < end:
            return Looked(None, where, whole=offset >= end)
        first = self._first(site, _Spans({place: (offset, offset + 1)}), lambda _: True)
        return Looked(None if first is None else _record(first), where, whole=True)

    def _spans(
        self,
        site: Site,
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
        self, site: Site, spans: _Spans, is_sought: Callable[[Message], bool]
    ) -> Message | None:
        with contextlib.closing(
            self._read(site, spans, Progress(spans.records, self._say))
        ) as messages:
            return next((m for m in messages if is_sought(m)), None)

    def _read(
        self, site: Site, spans: _Spans, progress: Progress
    ) -> Generator[Message, None, None]:
        reader = CommittedReader(self._clusters[site].settings, site.value, stall_s=_STALL_S)
        with contextlib.closing(reader), contextlib.closing(reader.read(spans.of)) as batches:
            for message in (message for runs in batches for run in runs for message in run.records):
                progress.step()
                yield message


def type_of_topic(topic: str, alias: str | None) -> tuple[Site, str] | None:
    """Return the cluster and the event type of a topic.

    Args:
        topic: Name of the topic on either cluster.
        alias: MirrorMaker 2's alias of the edge cluster; None if there is no mirror.

    Returns:
        The cluster that has a topic of this name, and the event type; None if it is not a topic of
        events.
    """
    if (event_type := event_type_of_topic(topic)) is not None:
        return Site.EDGE, event_type
    try:
        event_type = event_type_of_topic(edge_topic(topic, alias))
    except ValueError:
        return None
    return None if event_type is None else (Site.CENTRAL, event_type)


def decoded(event_type: str, datum: bytes) -> Event:
    """Decode the envelope of an event, or all fields of a dead letter.

    Args:
        event_type: Type of the event.
        datum: The Avro datum without framing.

    Returns:
        Values by field name. A dead letter with another schema is decoded as an envelope only.

    Raises:
        ValueError: The datum does not begin with an event's envelope.
    """
    for form in (_LETTER, _ENVELOPE) if event_type == dead_letters.TYPE else (_ENVELOPE,):
        with contextlib.suppress(ValueError):
            return form.decode(datum)
    raise ValueError("the datum does not begin with an event's envelope")


def _newest_of(held: Sequence[Acknowledged]) -> Acknowledged:
    # The newest file wins; if its range was sent twice, the first audit record.

    def file_of(told: Acknowledged) -> tuple[str, str, int]:
        return told.record.host_id, told.record.file_id, told.record.generation

    newest = next(told for told in held if file_of(told) == file_of(held[-1]))
    return dataclasses.replace(newest, other_files=len({file_of(told) for told in held}) - 1)


def _acknowledged(message: Message) -> Acknowledged:
    try:
        record = AuditRecord.decode(unframe(message.value() or b"")[1])
    except ValueError as error:
        raise Finding(
            f"{_place(message)} holds no audit record that this software can read ({error!r:.200})"
        ) from error
    return Acknowledged(
        record=record,
        at_ms=message.timestamp()[1],
        topic=str(message.topic()),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


def _record(message: Message) -> Record:
    topic = str(message.topic())
    try:
        key = RecordKey.decode(message.key() or b"")
        event = decoded(topic.rpartition(".")[2], unframe(message.value() or b"")[1])
    except ValueError as error:
        raise Finding(
            f"{_place(message)} holds no event: {error}; only delivery services may write there"
        ) from error
    return Record(
        topic=topic,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        at_ms=message.timestamp()[1],
        event_id=key.event_id,
        range_id=key.range_id,
        event=event,
    )


def _is_sought(message: Message, sought: ById | ByPosition) -> bool:
    key = message.key() or b""
    if isinstance(sought, ById):
        return key[: len(sought.event_id)] == bytes(sought.event_id)
    if len(key) != KEY_SIZE or key[-8:] != bytes(sought.range_id):
        return False
    return bool(_record(message).event["position"] == sought.position)


def _where(topic: str, spans: _Spans, from_ms: int, to_ms: int) -> str:
    if spans.is_missing:
        return f"{topic}: there is no such topic"
    span = f"written from {format_iso(max(0, from_ms))} to {format_iso(to_ms)}"
    left = (
        ""
        if spans.whole
        else "; the log has lost some, or more were not looked at (--since, --until, --records-max)"
    )
    return f"{topic}: {format_count(spans.records, 'record')} {span}{left}"


def _place(message: Message) -> str:
    return f"topic {message.topic()} partition {message.partition()} offset {message.offset()}"
