"""Hosts and delivery services: what is written, sent and promised, with the faults that the path
allows.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import random
from typing import Any

import fastavro
from tests.support.clock import FakeClock
from tests.support.simulator.sites import FakeCluster, Record
from tests.support.simulator.truth import (
    EDGE_PARTITIONS,
    FIRST_HOUR,
    HOSTS_OF,
    OLD_HOURS,
    OUTSIDERS,
    PARSED,
    SCHEMA_IDS,
    SOURCES,
    TYPES,
    Event,
    Host,
    Range,
    Service,
)

from hourmark.avro.framing import framing_header
from hourmark.avro.value_hash import value_hash
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.records.audit import AuditRecord, Promise, digest_ids, promises
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.host_reports import API_SOURCE, HostReport, SourceReport
from hourmark.records.hours import Hour
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey


class Producers:
    """Tailers and one service. Every action takes a number from which it draws what it needs.

    With `further` sites a range, or a report, goes to any of them: tailers send to services of all.
    """

    def __init__(self, clock: FakeClock, seen: collections.Counter[str], *further: str) -> None:
        self.clock, self.seen = clock, seen
        self.edge = FakeCluster("edge", EDGE_PARTITIONS)
        self.edges = [
            self.edge,
            *(FakeCluster(f"{alias} edge", EDGE_PARTITIONS) for alias in further),
        ]
        self.at = self.edge  # where records are appended now
        self.hosts = [
            Host(number=n, source=s, caught_up_at_ms=clock.now_ms())
            for n, s in enumerate(s for s, count in HOSTS_OF.items() for _ in range(count))
        ]
        self.services = [Service(id="5" * 32)]
        self.lines = 0
        self.ranges: list[Range] = []
        self.events: dict[EventId, Event] = {}
        self.older_services = False
        self.junk: set[tuple[bytes, bytes]] = (
            set()
        )  # key and value of records that no bucket may have

    def older_service(self, draw: int) -> None:
        """From now on, or no longer, a service of an older version takes one range in three."""
        self.older_services = not self.older_services

    def outsider(self, draw: int) -> None:
        """A program that is no delivery service writes one to three records into a topic
        of events.
        """
        r = random.Random(draw)
        event_type, other = r.sample(TYPES, 2)
        self.at = r.choice(self.edges)
        for number in range(r.randint(1, 3)):
            event_id = LineIds("e" * 32, "f" * 32, draw % 256).make(
                self.clock.now_ms(), number + len(self.junk) + 1, b"line"
            )
            strange = RecordKey(event_id, RangeId(b"\0" * 8)).encode()
            of_type = [e.value for e in self.events.values() if e.event_type == event_type]
            own = framing_header(SCHEMA_IDS[event_type])
            records = [
                (b"k%d" % draw, b"text"),
                (strange, b"text"),
                (strange, own),
                (strange, own + b"\xff" * 40),
                (strange, framing_header(SCHEMA_IDS[other]) + b"\0" * 40),
                (
                    strange,
                    r.choice(of_type) if of_type else own,
                ),  # an event under the id of another
            ]
            key, value = r.choice(records)
            self.append_junk(event_type, key, value, r.randint(0, 1))

    def append_junk(self, event_type: str, key: bytes, value: bytes, partition: int = 0) -> None:
        """A record that no delivery service writes."""
        self.junk.add((key, value))
        self.append_record(Partition(events_topic(event_type), partition), key, value)
        self.seen[OUTSIDERS] += 1

    def cut_range(self, draw: int) -> None:
        """A host writes lines, of now or as of some hours ago, and cuts a range."""
        r = random.Random(draw)
        living = [h for h in self.hosts if not h.dead]
        if not living:
            return
        host = r.choice(living)
        if host.gone:
            host.gone, host.lives = False, host.lives + 1
        events = []
        for _ in range(r.randint(1, 4)):
            event_type = r.choice(next(s.types for s in SOURCES if s.name == host.source))
            late_ms = 0 if r.random() < 0.8 else r.randint(1, 4) * 3_600_000
            time_ms = max(FIRST_HOUR.start_s * 1000, self.clock.now_ms() - late_ms)
            self.lines += 1
            events.append(self.new_event(self.lines, host.number, event_type, time_ms))
        self.add_range(host.number, tuple(events))
        if len(self.ranges) % 7 == 0:
            self.add_range(host.number, ())  # of nothing but blank lines
            self.seen["range of blank lines"] += 1

    def cut_old_range(self, draw: int) -> None:
        """A host finds an old file, whose lines were written before its types' first hour."""
        r = random.Random(draw)
        if not (living := [h for h in self.hosts if not h.dead and not h.gone]):
            return
        host, events = r.choice(living), []
        for _ in range(r.randint(1, 4)):
            event_type = r.choice(next(s.types for s in SOURCES if s.name == host.source))
            time_ms = r.choice(OLD_HOURS).start_s * 1000 + r.randrange(3_600_000)
            self.lines += 1
            events.append(self.new_event(self.lines, host.number, event_type, time_ms))
        self.add_range(host.number, tuple(events))
        self.seen["old range"] += 1

    def send(self, draw: int) -> None:
        """A range is sent: it is acknowledged, or the ack is lost, or the service is killed before
        the audit record.
        """
        r = random.Random(draw)
        todo = [
            x
            for x in self.ranges
            if not x.acked and not x.abandoned and not self.hosts[x.host].dead
        ]
        if not todo or not self._live():
            return
        sent, fate = r.choice(todo), r.random()
        self.at = self.edges[draw % len(self.edges)]
        reading = sent.otherwise if sent.otherwise and r.random() < 0.5 else sent.events
        upto = len(reading) if fate > 0.2 else r.randint(0, len(reading))
        for e in reading[:upto]:
            self.append_row(sent, e, r.randint(0, 1))
        if fate <= 0.2:
            self.seen["service killed before the audit record"] += 1
            return
        self.promise(sent, reading)
        if fate <= 0.35:
            self.seen["ack lost"] += 1
            return
        sent.acked = True
        self.seen["acked"] += 1

    def append_row(self, sent: Range, e: Event, partition: int = 0) -> None:
        """The record of one event of a range."""
        self.append_record(
            Partition(events_topic(e.event_type), partition),
            RecordKey(e.id, sent.id).encode(),
            e.value,
        )
        sent.appended.add(e.id)

    def promise(self, sent: Range, reading: tuple[Event, ...]) -> None:
        """The audit record of a range, as it was read."""
        self.append_record(
            Partition(AUDIT, 0),
            bytes(sent.id),
            framing_header(1) + self.audit_record(sent, reading).encode(),
        )
        sent.recorded.add(reading)

    def read_otherwise(self, draw: int) -> None:
        """Some services run other software from now on, and read one of the last ranges in another
        way; it is sent again.
        """
        r = random.Random(draw)
        todo = [
            x
            for x in self.ranges[-4:]
            if x.events and not x.otherwise and not x.abandoned and not self.hosts[x.host].dead
        ]
        if todo:
            again = r.choice(todo)
            again.otherwise = self.other_reading(
                again, r.choice(("hour", "moment", "type", "fewer"))
            )
            again.acked = again.acked and not again.otherwise
            self.seen["range read otherwise"] += bool(again.otherwise)

    def read_unrecorded(self, draw: int) -> None:
        """A range that has its record comes once more, and other software reads it; that service
        dies before its record.

        The host has its answer, or gets it from a service that reads as the first did.
        """
        r = random.Random(draw)
        todo = [
            x
            for x in self.ranges
            if x.events and x.recorded and x.acked and not x.otherwise and not x.abandoned
        ]
        if not todo:
            return
        again = r.choice(todo)
        again.otherwise = self.other_reading(
            again, r.choice(("hour", "moment", "moment", "type", "fewer"))
        )
        for e in again.otherwise[: r.randint(1, 4)]:
            self.append_row(again, e, r.randint(0, 1))
        self.seen["range read otherwise"] += bool(again.otherwise)
        self.seen["second reading without a record"] += bool(again.otherwise)

    def other_reading(self, of: Range, how: str) -> tuple[Event, ...]:
        """The same lines in the hour before, a moment later, of another type, or without the last;
        none if that cannot be.

        What the first of them becomes has a number of its own, below 0: it is promised like a line.
        """
        host, first = self.hosts[of.host], of.events[0]
        time_ms = first.time_ms + (1 if how == "moment" else -3_600_000)
        others = [
            t for s in SOURCES if s.name == host.source for t in s.types if t != first.event_type
        ]
        in_an_hour = (
            time_ms >= FIRST_HOUR.start_s * 1000
            if how == "hour"
            else Hour.containing(time_ms) == Hour.containing(first.time_ms)
        )
        if how in ("hour", "moment") and in_an_hour:
            return (
                self.new_event(
                    -2 * first.line, of.host, first.event_type, time_ms, place=first.line
                ),
                *of.events[1:],
            )
        if how == "type" and others:
            other = self.new_event(
                -2 * first.line - 1, of.host, others[0], first.time_ms + 2, place=first.line
            )  # its id is its own
            return (other, *of.events[1:])
        return of.events[:-1]

    def send_all(self, draw: int) -> None:
        """Whatever hosts hold is acknowledged."""
        r = random.Random(draw)
        for _ in range(200):
            if all(x.acked or x.abandoned or self.hosts[x.host].dead for x in self.ranges):
                return
            self.send(r.getrandbits(32))

    def lose_checkpoint(self, draw: int) -> None:
        """A host reads its last lines again, and cuts them differently."""
        r = random.Random(draw)
        host = r.choice(self.hosts)
        mine = [x for x in self.ranges if x.host == host.number and not x.abandoned][-3:]
        if host.dead or host.gone or not mine:
            return
        for x in mine:
            x.abandoned = x.abandoned or not x.acked  # the same lines come again below
        again = [
            self.new_event(e.line, host.number, e.event_type, e.time_ms)
            for x in mine
            for e in x.events
        ]
        at = r.randint(0, len(again))
        for part in (again[:at], again[at:]):
            if part:
                self.add_range(host.number, tuple(part))
        self.seen["checkpoint lost"] += 1

    def host_dies(self, draw: int) -> None:
        """A host falls silent with what it holds."""
        host = self.hosts[draw % len(self.hosts)]
        if not host.dead:
            host.dead = True
            self.seen["host dead"] += 1

    def host_returns(self, draw: int) -> None:
        """It comes back with its old files."""
        dead = [h for h in self.hosts if h.dead]
        if dead:
            dead[draw % len(dead)].dead = False
            self.seen["host back"] += 1

    def host_leaves(self, draw: int) -> None:
        """A host that has drained says goodbye; or one that did so begins again."""
        host = self.hosts[draw % len(self.hosts)]
        if host.gone:
            host.gone, host.lives = False, host.lives + 1
        elif not host.dead and not self._holds(host) and (live := self._live()):
            self._say_of(host, live[0], goodbye=True)
            host.gone = True
            self.seen["host said goodbye"] += 1

    def service_leaves(self, draw: int) -> None:
        """A service says goodbye; or one that did so begins again."""
        service = self.services[draw % len(self.services)]
        if service.gone:
            service.gone, service.lives = False, service.lives + 1
        else:
            self._report_of(service, goodbye=True)
            service.gone = True
            self.seen["service said goodbye"] += 1

    def all_leave(self, draw: int) -> None:
        """Whoever can says goodbye, the services last."""
        for number, host in enumerate(self.hosts):
            if not host.gone:
                self.host_leaves(number)
        for number, service in enumerate(self.services):
            if not service.gone:
                self.service_leaves(number)

    def second_service(self, draw: int) -> None:
        """Another service begins, whose clock is up to two minutes wrong."""
        if len(self.services) < 2:
            self.services.append(
                Service(id="6" * 32, ahead_ms=random.Random(draw).randint(-120_000, 120_000))
            )
            self.seen["second service"] += 1

    def serve(self) -> None:
        """A service is live, whoever said goodbye."""
        if not self._live():
            self.service_leaves(0)

    def report(self, draw: int) -> None:
        """Every living host and service reports; nobody says that it caught up while it holds
        something.
        """
        live = self._live()
        for host in self.hosts if live else ():
            if not host.dead and not host.gone:
                self._say_of(host, live[(draw + host.number) % len(live)])
        for service in live:
            self._report_of(service)

    def _live(self) -> list[Service]:
        return [s for s in self.services if not s.gone]

    def _holds(self, host: Host) -> bool:
        return any(x.host == host.number and not x.acked and not x.abandoned for x in self.ranges)

    def _say_of(self, host: Host, service: Service, *, goodbye: bool = False) -> None:
        """Through this service, by whose clock it is told how far the host has caught up."""
        self.at = self._edge_of(service)
        if not self._holds(host):
            host.caught_up_at_ms = self.clock.now_ms() + service.ahead_ms
        host.sequence += 1
        self.say(
            "tailer",
            f"{host.number:032x}",
            host.sequence,
            host.source,
            host.caught_up_at_ms,
            ahead_ms=service.ahead_ms,
            incarnation=f"life {host.lives}",
            goodbye=goodbye,
        )

    def _report_of(self, service: Service, *, goodbye: bool = False) -> None:
        service.sequence += 1
        self.at = self._edge_of(service)
        self.say(
            "service",
            service.id,
            service.sequence,
            API_SOURCE,
            self.clock.now_ms() + service.ahead_ms,
            ahead_ms=service.ahead_ms,
            incarnation=f"life {service.lives}",
            goodbye=goodbye,
        )

    def say(
        self,
        kind: str,
        host_id: str,
        sequence: int,
        source: str,
        caught_up_at_ms: int,
        *,
        ahead_ms: int = 0,
        incarnation: str = "one",
        goodbye: bool = False,
    ) -> None:
        """One report; `ahead_ms`: how far the clock of the service that received it runs ahead."""
        report = HostReport(
            host_id=host_id,
            host_name=f"host-{host_id[-1]}",
            kind=kind,
            incarnation=incarnation,
            sequence=sequence,
            received_at_ms=self.clock.now_ms() + ahead_ms,
            goodbye=goodbye,
            sources=(SourceReport(source, caught_up_at_ms, 0, 0),),
        )
        self.append_record(
            Partition(HOSTS, 0), host_id.encode(), framing_header(1) + report.encode()
        )

    def new_event(
        self, line: int, host: int, event_type: str, time_ms: int, *, place: int | None = None
    ) -> Event:
        event_id = LineIds(f"{host:032x}", "f" * 32, 0).make(time_ms, place or line, b"line")
        row: dict[str, Any] = {
            "event_id": bytes(event_id),
            "event_time": time_ms,
            "host": "h",
            "source": "/log",
            "file": None,
            "position": line,
            "number": line,
        }
        buffer, schema_id = io.BytesIO(), SCHEMA_IDS[event_type]
        fastavro.schemaless_writer(buffer, PARSED[schema_id], row)
        event = Event(
            line=line,
            event_type=event_type,
            time_ms=time_ms,
            id=event_id,
            value=framing_header(schema_id) + buffer.getvalue(),
        )
        self.events[event_id] = event
        return event

    def add_range(self, host: int, events: tuple[Event, ...]) -> None:
        range_id = RangeId((len(self.ranges) + 1).to_bytes(8, "big"))
        is_old = self.older_services and range_id[7] % 3 == 0
        now_ms = self.clock.now_ms()
        self.ranges.append(
            Range(
                id=range_id,
                host=host,
                events=events,
                observed_at_ms=now_ms,
                has_checksums=not is_old,
            )
        )

    def audit_record(self, sent: Range, reading: tuple[Event, ...]) -> AuditRecord:
        blanks = (
            None
            if not sent.has_checksums and sent.id[7] % 5 == 0
            else sent.id[7] % 3 + (not reading)
        )  # by the range: a retry says the same
        return AuditRecord(
            range_id=sent.id,
            kind="range",
            host_id=f"{sent.host:032x}",
            host_name="host",
            file_id="f" * 32,
            generation=0,
            start=0,
            end=1,
            observed_at_ms=sent.observed_at_ms,
            rules="1-0",
            source="app",
            path="/log",
            lines=len(sent.events) + (blanks or 0),
            promised=self._promised(sent, reading),
            ids=digest_ids(e.id for e in reading),
            blanks=blanks,
        )

    def _promised(self, sent: Range, reading: tuple[Event, ...]) -> tuple[Promise, ...]:
        """With checksums, unless the range is served by an old service: by the range, so a retry
        says the same.
        """
        promised = promises(
            (e.event_type, Hour.containing(e.time_ms).start_s, e.id, value_hash(e.id, e.value))
            for e in reading
        )
        if sent.has_checksums:
            return promised
        return tuple(dataclasses.replace(p, checksum=None) for p in promised)

    def append_record(self, partition: Partition, key: bytes, value: bytes) -> None:
        self.clock.advance(0.001)
        self.at.append(partition, Record(key, value, self.clock.now_ms()))

    def _edge_of(self, service: Service) -> FakeCluster:
        return self.edges[self.services.index(service) % len(self.edges)]
