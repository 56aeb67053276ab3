"""The steps of a trace: from an id, a record or a position to everything that is known about it.

Each step uses the results of others and is skipped if its input is unknown. If a server does not
respond, only its own step fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final, Protocol

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import events_topic
from hourmark.records import dead_letters
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark_etl.model import ReportedSource
from hourmark_etl.operators.tracing.found import (
    Acknowledged,
    ById,
    ByPlace,
    ByPosition,
    Facts,
    InBucket,
    Looked,
    Record,
    Site,
    Sought,
    Staged,
    Standing,
    found,
)
from hourmark_etl.operators.tracing.question import OfEvent, OfPlace, OfRecord, Question
from hourmark_etl.operators.tracing.topics import type_of_topic

# An event's time is at most 15 minutes after its observation; clocks differ by at most five.
_EARLY_MS: Final = 1_200_000
_LATE_MS: Final = 8 * 86_400_000  # its record is usually written within the allowed lateness


class Topics(Protocol):
    """The searches in Kafka that a trace uses; implemented by `tracing.topics.Topics`."""

    @property
    def alias(self) -> str | None: ...
    def topic_of(self, site: Site, event_type: str) -> str: ...
    def audit_of_place(self, place: OfPlace, from_ms: int, to_ms: int) -> Looked[Acknowledged]: ...
    def audit_of_range(self, range_id: RangeId, near_ms: int) -> Looked[Acknowledged]: ...
    def at(self, site: Site, topic: str, partition: int, offset: int) -> Looked[Record]: ...
    def find(
        self,
        site: Site,
        topic: str,
        sought: ById | ByPosition,
        from_ms: int,
        to_ms: int | None,
        partition: int | None = None,
    ) -> Looked[Record]: ...
    def of_request(
        self, topic: str, sought: ById | ByPosition, audited_ms: int
    ) -> Looked[Record]: ...
    def last_of_request(
        self, topic: str, range_id: RangeId, position: int, audited_ms: int
    ) -> Looked[Record]: ...
    def mirrored_to(self, topic: str, partition: int) -> Looked[int]: ...


class Kept(Protocol):
    """The searches in ledger and storage that a trace uses; implemented by `tracing.kept.Kept`."""

    def reported(self, host: str) -> Looked[tuple[ReportedSource, ...]]: ...
    def standing(self, event_type: str) -> Looked[Standing]: ...
    def staging(self, central: Partition) -> Looked[int]: ...
    def staged(self, event_type: str, hour: Hour, sought: ById | ByPosition) -> Looked[Staged]: ...
    def bucket(self, event_type: str, hour: Hour, sought: Sought) -> Looked[InBucket]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time span in which the traced object was sent, as far as the operator knows.

    Attributes:
        since_ms: Start, Unix milliseconds; 0 if unknown.
        until_ms: End, Unix milliseconds.
    """

    since_ms: int
    until_ms: int


@dataclasses.dataclass(slots=True)
class Walk:
    """A procedure that searches everything that is known about one event.

    Attributes:
        topics: Searches in Kafka.
        kept: Searches in the ledger and storage.
        bucket_seconds: Length of a bucket.
        window: Time span in which the event was sent.
    """

    topics: Topics
    kept: Kept
    bucket_seconds: int
    window: Window

    def of(self, question: Question) -> Facts:
        """Trace an event, a record or a line.

        Args:
            question: The object to trace.

        Returns:
            The results of all steps. Steps whose input is unknown are None; a step whose server did
            not respond has `failed` set.

        Raises:
            UsageError: The topic of a record is not a topic of events; or closed buckets must be
                searched for a line, and the window has no start.
        """
        if isinstance(question, OfEvent):
            return self._of_event(question.event_type, question.event_id, self._facts())
        if isinstance(question, OfRecord):
            return self._of_record(question)
        return self._of_place(question)

    def _facts(self) -> Facts:
        return Facts(mirrored=self.topics.alias is not None)

    def _of_record(self, asked: OfRecord) -> Facts:
        meant = type_of_topic(asked.topic, self.topics.alias)
        if meant is None:
            raise UsageError(
                f"{asked.topic} is no topic of events: those are called {events_topic('TYPE')}, "
                "and on the central cluster "
                f"{self.topics.topic_of(Site.CENTRAL, 'TYPE')}"
            )
        site, event_type = meant
        record = self.topics.at(site, asked.topic, asked.partition, asked.offset)
        facts = dataclasses.replace(self._facts(), event_type=event_type)
        facts = (
            dataclasses.replace(facts, edge=record)
            if site is Site.EDGE
            else dataclasses.replace(facts, central=record)
        )
        return (
            facts
            if record.found is None
            else self._of_event(event_type, record.found.event_id, facts)
        )

    def _of_place(self, place: OfPlace) -> Facts:
        audit = self.topics.audit_of_place(place, self.window.since_ms, self.window.until_ms)
        facts = dataclasses.replace(
            self._facts(), acknowledged=audit, reported=self.kept.reported(place.host)
        )
        if audit.found is None:
            return self._in_old_buckets(place, facts) if place.event_type is not None else facts
        record = audit.found.record
        sought = ByPosition(record.range_id, record.file_id, record.generation, place.offset)
        for event_type, hour in self._promised(record):
            facts = dataclasses.replace(facts, event_type=None, edge=None, staged=None, bucket=None)
            staged = self.kept.staged(event_type, hour, sought)
            if staged.found is not None:
                return self._of_event(event_type, staged.found.event_id, facts)
            edge = self.topics.of_request(events_topic(event_type), sought, audit.found.at_ms)
            if edge.found is not None:
                return self._of_event(
                    event_type, edge.found.event_id, dataclasses.replace(facts, edge=edge)
                )
            bucket = self.kept.bucket(event_type, hour, sought)
            if bucket.found is not None:
                return self._of_event(
                    event_type, bucket.found.event_id, dataclasses.replace(facts, bucket=bucket)
                )
            facts = dataclasses.replace(
                facts, event_type=event_type, edge=edge, staged=staged, bucket=bucket
            )
        return self._before(place, audit.found, facts)

    def _before(self, place: OfPlace, told: Acknowledged, facts: Facts) -> Facts:
        # The requested position may be inside a record that begins earlier. `facts` are the results
        # without that record.
        r = told.record
        last: tuple[int, str, Looked[Record]] | None = None
        for event_type, _ in self._promised(r):
            looked = self.topics.last_of_request(
                events_topic(event_type), r.range_id, place.offset, told.at_ms
            )
            if looked.found is not None and (
                last is None or looked.found.event["position"] > last[0]
            ):
                last = looked.found.event["position"], event_type, looked
        if last is None or last[2].found is None:
            return facts
        begins_at, event_type, edge = last
        known = dataclasses.replace(
            self._facts(),
            acknowledged=facts.acknowledged,
            reported=facts.reported,
            begins_at=begins_at,
            edge=edge,
        )
        return self._of_event(event_type, last[2].found.event_id, known)

    def _in_old_buckets(self, place: OfPlace, facts: Facts) -> Facts:
        # Buckets are kept longer than audit records. All buckets of the requested hours are read.
        assert place.event_type is not None
        if not self.window.since_ms:
            raise UsageError(
                "--type of a place reads the type's closed buckets: name their hours by "
                "--since and --until"
            )
        sought = ByPlace(place.host, place.file, place.generation, place.offset)
        hour, last = (
            Hour.containing(ms, self.bucket_seconds)
            for ms in (self.window.since_ms, self.window.until_ms)
        )
        seen = list[Looked[InBucket]]()
        while hour <= last:
            seen.append(self.kept.bucket(place.event_type, hour, sought))
            if (held := seen[-1].found) is not None:
                return self._of_event(place.event_type, held.event_id, facts)
            if seen[-1].failed is not None:
                break
            hour = hour.next()
        where = (
            f"closed buckets of {place.event_type} from "
            f"{Hour.containing(self.window.since_ms, self.bucket_seconds)} to {last}"
        )
        bucket: Looked[InBucket] = Looked(
            None, where, whole=all(s.whole for s in seen), failed=seen[-1].failed
        )
        return dataclasses.replace(facts, event_type=place.event_type, bucket=bucket)

    def _promised(self, record: AuditRecord) -> Iterator[tuple[str, Hour]]:
        # The types and hours to search; dead letters come last.
        for p in sorted(
            record.promised, key=lambda p: (p.event_type == dead_letters.TYPE, -p.count)
        ):
            yield p.event_type, Hour(p.hour_start_s, self.bucket_seconds)

    def _of_event(self, event_type: str, event_id: EventId, facts: Facts) -> Facts:
        sought, hour = ById(event_id), Hour.containing(event_id.time_ms, self.bucket_seconds)
        # The frontier is read first: an hour that is closed then has its bucket in all later steps.
        facts = dataclasses.replace(
            facts, event_type=event_type, event_id=event_id, standing=self.kept.standing(event_type)
        )
        staged = self.kept.staged(event_type, hour, sought)
        facts = dataclasses.replace(
            facts, staged=staged, bucket=self.kept.bucket(event_type, hour, sought)
        )
        facts = self._with_edge(self._with_central(facts, staged, sought), sought)
        if facts.mirrored and facts.central is None:
            at_edge = found(facts.edge)
            copied = (
                self._by_time(Site.CENTRAL, sought, facts)
                if at_edge is None
                else self._copy_of(at_edge, Site.CENTRAL, event_type, sought)
            )
            facts = dataclasses.replace(facts, central=copied)
        return self._with_audit(self._with_progress(facts))

    def _with_central(self, facts: Facts, staged: Looked[Staged], sought: ById) -> Facts:
        # The record at the offset from which the row was staged.
        if (
            facts.central is not None
            or staged.found is None
            or not (facts.mirrored or facts.edge is None)
        ):
            return facts
        assert facts.event_type is not None
        site = Site.CENTRAL if facts.mirrored else Site.EDGE
        record = self.topics.at(
            site,
            self.topics.topic_of(site, facts.event_type),
            staged.found.partition,
            staged.found.offset,
        )
        if (
            record.found is not None and record.found.event_id != sought.event_id
        ):  # the topic was recreated since
            record = Looked(
                None,
                f"{record.where}, where another event stands: the topic is not the one "
                "that was staged",
            )
        return (
            dataclasses.replace(facts, central=record)
            if facts.mirrored
            else dataclasses.replace(facts, edge=record)
        )

    def _with_edge(self, facts: Facts, sought: ById) -> Facts:
        if facts.edge is not None and facts.edge.found is not None:
            return facts
        assert facts.event_type is not None
        if facts.central is not None and facts.central.found is not None:
            copied = self._copy_of(facts.central.found, Site.EDGE, facts.event_type, sought)
            return dataclasses.replace(facts, edge=copied)
        if facts.edge is not None:
            return facts
        return dataclasses.replace(facts, edge=self._by_time(Site.EDGE, sought, facts))

    def _by_time(self, site: Site, sought: ById, facts: Facts) -> Looked[Record]:
        assert facts.event_type is not None
        time_ms = sought.event_id.time_ms
        from_ms, to_ms = (
            max(time_ms - _EARLY_MS, self.window.since_ms),
            min(time_ms + _LATE_MS, self.window.until_ms),
        )
        return self.topics.find(
            site, self.topics.topic_of(site, facts.event_type), sought, from_ms, to_ms
        )

    def _copy_of(self, record: Record, site: Site, event_type: str, sought: ById) -> Looked[Record]:
        # The mirror keeps partition and timestamp. Later records may precede it, because services'
        # clocks differ.
        return self.topics.find(
            site,
            self.topics.topic_of(site, event_type),
            sought,
            record.at_ms,
            None,
            record.partition,
        )

    def _with_progress(self, facts: Facts) -> Facts:
        # If the mirror or staging has passed the record by now, the next stage is searched again.
        edge = facts.edge.found if facts.edge is not None else None
        if (
            facts.mirrored
            and edge is not None
            and (facts.central is None or facts.central.found is None)
        ):
            mirror = self.topics.mirrored_to(edge.topic, edge.partition)
            facts = dataclasses.replace(facts, mirror=mirror)
            if (mirror.found or 0) > edge.offset:
                facts = dataclasses.replace(
                    facts, central=self._copy_of(edge, Site.CENTRAL, *self._known(facts))
                )
        last = facts.central if facts.mirrored else facts.edge
        if (
            last is None
            or last.found is None
            or (facts.staged is not None and facts.staged.found is not None)
        ):
            return facts
        staging = self.kept.staging(Partition(last.found.topic, last.found.partition))
        facts = dataclasses.replace(facts, staging=staging)
        return self._asked_again(facts) if (staging.found or 0) > last.found.offset else facts

    def _asked_again(self, facts: Facts) -> Facts:
        if facts.bucket is not None and facts.bucket.found is not None:
            return facts
        event_type, sought = self._known(facts)
        hour = Hour.containing(sought.event_id.time_ms, self.bucket_seconds)
        staged = self.kept.staged(event_type, hour, sought)
        return dataclasses.replace(
            facts, staged=staged, bucket=self.kept.bucket(event_type, hour, sought)
        )

    def _known(self, facts: Facts) -> tuple[str, ById]:
        assert facts.event_type is not None and facts.event_id is not None
        return facts.event_type, ById(facts.event_id)

    def _with_audit(self, facts: Facts) -> Facts:
        if facts.acknowledged is not None:
            return facts
        for step in (facts.edge, facts.central):
            if step is not None and (record := step.found) is not None:
                return dataclasses.replace(
                    facts, acknowledged=self.topics.audit_of_range(record.range_id, record.at_ms)
                )
        return facts
