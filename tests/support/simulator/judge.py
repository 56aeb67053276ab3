"""What must hold after every action, and at the end of a history."""

from __future__ import annotations

import collections
import io
from typing import Any

import fastavro
from tests.support.memory_storage import MemoryStorage
from tests.support.simulator.losses import ID_BYTES, Losses
from tests.support.simulator.producers import Producers
from tests.support.simulator.sites import ALIAS, FakeMirror
from tests.support.simulator.truth import (
    FIRST_HOUR,
    OLD_HOURS,
    TYPES,
    VALUE_CHANGED,
    Broken,
    Event,
    Range,
)

from hourmark.avro.framing import framing_header
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Grade, Manifest, PreviousMarker
from hourmark.records.record_key import RecordKey

# Hours of old files, and those after them, which an override may close.
_BACKFILLED = sorted(
    h
    for h in {Hour(old.start_s + 3600 * n) for old in OLD_HOURS for n in range(6)}
    if h < FIRST_HOUR
)
WOKEN = "closer woken"  # as the world counts it
LOST = (
    "may be missing",
    "are lost to retention",
    "are lost with the staged file",
    "its log lost records",
)  # as manifests say it


class Judge:
    """Looks at storage alone, and at what producers know to be true."""

    def __init__(
        self, producers: Producers, mirror: FakeMirror, storage: MemoryStorage, losses: Losses
    ) -> None:
        self._producers, self._mirror, self._storage, self._losses = (
            producers,
            mirror,
            storage,
            losses,
        )
        self._seen = producers.seen
        self.closed: dict[tuple[str, Hour], dict[str, bytes]] = {}
        self.where: dict[EventId, tuple[str, Hour]] = {}
        self.manifests: dict[tuple[str, Hour], Manifest] = {}
        self._woken = 0  # closers, when it was last looked
        self.given_up: set[EventId] = set()  # by an override, whose bucket names offsets

    def check(self) -> None:
        """After every action: no closed bucket changed, no event is in two, and `proved` is true of
        new ones.
        """
        for (event_type, hour), content in self.closed.items():
            if self._undamaged(
                self._storage.content(hour.bucket_path(event_type))
            ) != self._undamaged(content):
                raise Broken(f"the closed bucket {event_type} {hour} has changed")
        for event_type in TYPES:
            for hour in _BACKFILLED:
                path = hour.bucket_path(event_type)
                content = self._storage.content(path)
                if (event_type, hour) not in self.closed and content:
                    self._take_in(event_type, hour, content)
                    self._seen["back-filled buckets"] += 1
                    self._check_held(event_type, hour)
            hour = FIRST_HOUR
            while hour.end_ms <= self._producers.clock.now_ms():
                if (event_type, hour) not in self.closed:
                    content = self._storage.content(hour.bucket_path(event_type))
                    if content:
                        self._take_in(event_type, hour, content)
                hour = hour.next()
            if self._storage.exists(hour.bucket_path(event_type)):
                raise Broken(f"{event_type} {hour} was closed before its end")
        self._woken = self._seen[WOKEN]

    def _waived(self, event_type: str) -> list[str]:
        """What closed buckets of the type name."""
        return [
            text
            for (t, _), m in self.manifests.items()
            if t == event_type
            for text in m.evidence.waived
        ]

    def _undamaged(self, content: dict[str, bytes]) -> dict[str, bytes]:
        return {path: c for path, c in content.items() if path not in self._losses.markers}

    def _marker_of(self, event_type: str, hour: Hour) -> bytes:
        """As it was closed: nobody may follow another, or one that is gone.

        A closer that woke may have looked before.
        """
        path = f"{hour.bucket_path(event_type)}/{MARKER}"
        if path in self._losses.markers and self._seen[WOKEN] == self._woken:
            raise Broken(
                f"a bucket was closed while the marker before it, {event_type} {hour}, was damaged "
                "or gone"
            )
        return self.closed[event_type, hour][path]

    def _take_in(self, event_type: str, hour: Hour, content: dict[str, bytes]) -> None:
        folder = hour.bucket_path(event_type)
        if f"{folder}/_SUCCESS" not in content:
            raise Broken(f"{folder} stands without a marker")
        manifest = Manifest.decode(content[f"{folder}/_SUCCESS"])
        self._check_turn(event_type, hour, manifest)
        ids, numbers = [], list[tuple[EventId, int]]()
        for file in manifest.files:
            rows: Any = fastavro.reader(io.BytesIO(content[f"{folder}/{file.name}"]))
            for row in rows:
                ids.append(EventId(row["event_id"]))
                numbers.append((ids[-1], row["number"]))
        if len(ids) != manifest.events or set(content) != {
            f"{folder}/{f.name}" for f in manifest.files
        } | {f"{folder}/_SUCCESS"}:
            raise Broken(f"{event_type} {hour} does not hold what its manifest says")
        for event_id in ids:
            event = self._event(event_id, f"{event_type} {hour}")
            if event_id in self.where:
                raise Broken(
                    f"line {event.line} is in {self.where[event_id]} and in {event_type} {hour}"
                )
            if event.event_type != event_type or Hour.containing(event.time_ms) > hour:
                raise Broken(
                    f"line {event.line} is in {event_type} {hour}, where it does not belong"
                )
            self.where[event_id] = (event_type, hour)
        self.closed[event_type, hour] = content
        self.manifests[event_type, hour] = manifest
        grade = manifest.grade.value
        self._seen[f"buckets {grade}"] += 1
        self._seen["events in buckets"] += len(ids)
        self._seen["late events"] += sum(manifest.late.values())
        self._seen["unaudited"] += manifest.unaudited
        self._seen["duplicates removed"] += manifest.duplicates_removed
        if (grade == "proved") != (not manifest.evidence.waived):
            raise Broken(f"{event_type} {hour} is {grade}, and waives {manifest.evidence.waived}")
        self._check_values(event_type, hour, manifest, numbers)
        self._check_listed(event_type, hour, manifest)
        self._check_readings(event_type, hour, manifest, set(ids))
        self._check_conflicts(event_type, hour, manifest)
        if grade == "proved":
            self._check_proof(event_type, hour, manifest)

    def _check_turn(self, event_type: str, hour: Hour, manifest: Manifest) -> None:
        """Hours close in order, from the first one on without a gap, and each marker follows the
        one before it.
        """
        if hour > FIRST_HOUR and (event_type, hour.previous()) not in self.closed:
            raise Broken(f"{event_type} {hour} was closed before the hour that precedes it")
        before = max((h for t, h in self.closed if t == event_type), default=None)
        if before is not None and before > hour:
            raise Broken(f"{event_type} {hour} was closed after {before}")
        if manifest.previous != (
            None
            if before is None
            else PreviousMarker.from_marker(str(before), self._marker_of(event_type, before))
        ):
            raise Broken(
                f"{event_type} {hour} does not follow the marker before it, but {manifest.previous}"
            )

    def _check_held(self, event_type: str, hour: Hour) -> None:
        """An hour before the first one that holds nothing has a bucket only by an override."""
        manifest = self.manifests[event_type, hour]
        holds = any(book.rows or book.promised for book in manifest.books.values())
        if not holds and manifest.grade is not Grade.FORCED:
            raise Broken(f"{event_type} {hour} holds nothing, and was not skipped")

    def _event(self, event_id: EventId, bucket: str) -> Event:
        if event_id not in self._producers.events:
            raise Broken(
                f"{bucket} has an event of a record that no delivery service wrote: {event_id}"
            )
        return self._producers.events[event_id]

    def _check_values(
        self, event_type: str, hour: Hour, manifest: Manifest, numbers: list[tuple[EventId, int]]
    ) -> None:
        """A proved bucket has the values that were sent; nobody promised those of
        unaudited rows.
        """
        changed = [
            number
            for event_id, number in numbers
            if number != self._producers.events[event_id].line
        ]
        if changed and manifest.grade is Grade.PROVED and not manifest.unaudited:
            raise Broken(f"{event_type} {hour} is proved with changed values: {changed}")

    def _check_readings(
        self, event_type: str, hour: Hour, manifest: Manifest, ids: set[EventId]
    ) -> None:
        """Nothing of a range that was promised in two ways before the cut is in a bucket, unless an
        override names the range.

        Nor what a second reading, without a record of its own, made of an hour that the first one
        promised something of.
        """
        if (
            manifest.grade is Grade.FORCED
            or self._losses
            or self._mirror.skipped
            or self._seen["audit files cleaned"]
        ):
            return
        log = [r for r in self._producers.edge.logs[Partition(AUDIT, 0)].records if r is not None]
        waived = self._waived(event_type)
        if any(
            word in text for text in waived for word in LOST
        ):  # an override gave up offsets, perhaps those of outsiders alone
            return
        for x in (x for x in self._producers.ranges if x.otherwise):
            readings = {
                r.value
                for r in log
                if r.key == bytes(x.id) and r.at_ms < manifest.evidence.cut_at_ms
            }
            told = any(str(x.id) in text for text in waived)
            for e in {*x.events, *x.otherwise} if len(readings) > 1 else ():
                if e.id in ids and (Hour.containing(e.time_ms) == hour or not told):
                    raise Broken(
                        f"{event_type} {hour} is {manifest.grade.value} with line {e.line} of "
                        f"the range {x.id}, which was "
                        "read in two ways before its cut"
                    )
            for e in self._unpromised(x, readings) if len(readings) == 1 and not told else ():
                if e.id in ids:
                    raise Broken(
                        f"{event_type} {hour} is {manifest.grade.value} with line {e.line} of "
                        f"the range {x.id}, whose record "
                        "promised others of that hour before its cut"
                    )

    def _check_conflicts(self, event_type: str, hour: Hour, manifest: Manifest) -> None:
        """Nothing is called a second reading that is none: such an hour waits for an override."""
        if self._losses.shortest:  # what is in no bucket any more may look like it
            return
        otherwise = [str(x.id) for x in self._producers.ranges if x.otherwise]
        for text in manifest.evidence.waived:
            if text.startswith("read otherwise: ") and not any(of in text for of in otherwise):
                raise Broken(f"{event_type} {hour} was held for nothing: {text}")

    def _unpromised(self, x: Range, records: set[bytes]) -> set[Event]:
        """What the reading without a record brought of hours of which the one record of the range
        speaks, and no record has.
        """
        of_others = (
            reading for y in self._producers.ranges if y is not x for reading in y.recorded
        )
        promised = [*self._promised_by(x, *records), *(e for reading in of_others for e in reading)]
        keys = {(e.event_type, Hour.containing(e.time_ms)) for e in self._promised_by(x, *records)}
        brought = {e for e in {*x.events, *x.otherwise} if e.id in x.appended}
        return {
            e for e in brought - {*promised} if (e.event_type, Hour.containing(e.time_ms)) in keys
        }

    def _check_listed(self, event_type: str, hour: Hour, manifest: Manifest) -> None:
        """Whatever its grade, `forced` too: what was staged at its freeze is inside, or before,
        unless it was destroyed.
        """
        gone, junk = (
            self._losses.gone(staged_by(manifest)),
            {key for key, _ in self._producers.junk},
        )
        for o in manifest.offsets:
            p = Partition(o.topic, o.partition)
            staged = self._losses.central.logs[p].records[
                : min(o.next, self._losses.shortest.get(p, o.next))
            ]
            keys = [
                r.key
                for r in staged
                if r is not None and (r.key, r.value) not in self._producers.junk
            ]
            keys += [
                key
                for of, offset, key in self._losses.held
                if of == p and offset < o.next and key not in junk
            ]
            for e in (self._producers.events[RecordKey.decode(key).event_id] for key in keys):
                if e.id in self.where or e.id in self.given_up or bytes(e.id) in gone:
                    continue
                if Hour.containing(e.time_ms) <= hour:
                    raise Broken(
                        f"{event_type} {hour} is {manifest.grade.value} without line "
                        f"{e.line}, which was staged"
                    )

    def _check_proof(self, event_type: str, hour: Hour, manifest: Manifest) -> None:
        """Every event promised before its cut, of hours up to this one, is inside, or an earlier
        marker names its range.
        """
        waived = [
            e
            for (t, h), m in self.manifests.items()
            if t == event_type and h < hour
            for e in m.evidence.waived
        ]
        by_id = {bytes(x.id): x for x in self._producers.ranges}
        told = any(word in text for text in self._waived(event_type) for word in LOST)
        lost = {id(record) for record in self._mirror.skipped} if told else set()
        below = staged_by(manifest) | promised_by(manifest)
        gone = self._losses.gone(below) if told else ()
        for record in self._producers.edge.logs[Partition(AUDIT, 0)].records:
            if (
                record is None
                or record.at_ms >= manifest.evidence.cut_at_ms
                or id(record) in lost
                or record.key in gone
            ):
                continue
            for e in self._promised_by(by_id[record.key], record.value):
                if (
                    e.event_type != event_type
                    or Hour.containing(e.time_ms) > hour
                    or e.id in self.where
                    or e.id in self.given_up
                ):
                    continue
                if bytes(e.id) in gone or self._stands_otherwise(by_id[record.key], e):
                    continue
                if not any(record.key.hex() in text for text in waived):
                    raise Broken(
                        f"{event_type} {hour} is proved without line {e.line}, promised "
                        "before its cut"
                    )

    def _stands_otherwise(self, sent: Range, e: Event) -> bool:
        """Whether a row of a second reading takes its place in counts and sums of low 64 bits,
        which know no time of the hour.
        """
        return any(
            o.id.low64 == e.id.low64 and o.id in self.where
            for o in {*sent.events, *sent.otherwise} - {e}
        )

    def _promised_by(self, sent: Range, value: bytes) -> tuple[Event, ...]:
        other = (
            sent.otherwise
            and framing_header(1) + self._producers.audit_record(sent, sent.otherwise).encode()
            == value
        )
        return sent.otherwise if other else sent.events

    def check_end(self) -> None:
        """Every acknowledged line is in one closed bucket, once; what was lost on the
        way is named.
        """
        self.check()
        self._check_folders()
        lost = {r.key[:ID_BYTES] for r in self._mirror.skipped} | set(self._losses.gone())
        count = collections.Counter(self._producers.events[i].line for i in self.where)
        acked = (
            (x, r)
            for x in self._producers.ranges
            if x.acked
            for r in (x.recorded if x.otherwise else {x.events})
        )
        for x, e in ((x, e) for x, reading in acked for e in reading):
            if count[e.line] == 1 or e.id in self.given_up:
                continue
            if count[e.line] or bytes(e.id) not in lost:
                raise Broken(
                    f"the acknowledged line {e.line} is in closed buckets {count[e.line]} times"
                )
            if not self._is_named(e) and not self._stands_otherwise(x, e):
                raise Broken(
                    f"line {e.line} was destroyed, and no bucket of {e.event_type} says so"
                )
        if doubled := [line for line, times in count.items() if times > 1]:
            raise Broken(f"lines {doubled} are in closed buckets twice")
        twice = [
            str(x.id) for x in self._producers.ranges if x.otherwise
        ]  # what is there of both may keep neither promise
        for (event_type, hour), m in self.manifests.items():
            if (
                not self._mirror.skipped
                and not self._seen[VALUE_CHANGED]
                and not self._losses
                and m.grade is not Grade.FORCED
                and any(
                    "not kept" in e and not any(named in e for named in twice)
                    for e in m.evidence.waived
                )
            ):
                raise Broken(
                    f"nothing was lost, yet {event_type} {hour} waives {m.evidence.waived}"
                )

        self._check_set_aside()

    def _check_folders(self) -> None:
        """No hour has a bucket but those of the old files, and all from the first one on."""
        for event_type in TYPES:
            known = {h.bucket_path(event_type) for t, h in self.closed if t == event_type}
            files = self._storage.content(event_type)
            if strange := {path.rpartition("/")[0] for path in files} - known:
                raise Broken(f"buckets that nothing belongs into: {sorted(strange)}")

    def _check_set_aside(self) -> None:
        """Each record of an outsider that a bucket may have read is counted once; a ledger that was
        lost knows none.
        """
        if self._losses or self._seen["ledger lost"] or self._seen["older copy goes on"]:
            return
        for event_type in TYPES:
            of_type = [(hour, m) for (t, hour), m in self.manifests.items() if t == event_type]
            _, last = max(of_type, key=lambda item: item[0], default=(None, None))
            if last is None:
                continue
            read = {
                p: self._junk_of(p, len(self._losses.central.logs[p].records))
                for p in staged_by(last)
            }
            below = {p: self._junk_of(p, offset) for p, offset in staged_by(last).items()}
            counted = sum(m.set_aside for _, m in of_type)
            if not sum(below.values()) <= counted <= sum(read.values()):
                raise Broken(
                    f"buckets of {event_type} count {counted} records of outsiders, of at "
                    f"least {below} and at most {read}"
                )
            self._seen["records of outsiders counted"] += counted

    def _junk_of(self, p: Partition, below: int) -> int:
        records = self._losses.central.logs[p].records[:below]
        return sum(r is not None and (r.key, r.value) in self._producers.junk for r in records)

    def _is_named(self, e: Event) -> bool:
        later = (
            m
            for (t, hour), m in self.manifests.items()
            if t == e.event_type and hour >= Hour.containing(e.time_ms)
        )
        return any(
            word in text
            for m in later
            for text in m.evidence.waived
            for word in (*LOST, "not kept")
        )


def staged_by(manifest: Manifest) -> dict[Partition, int]:
    """To where its topics were staged when it was frozen."""
    return {Partition(o.topic, o.partition): o.next for o in manifest.offsets}


def promised_by(manifest: Manifest) -> dict[Partition, int]:
    """To where promises were staged when it was cut."""
    return {
        Partition(central_topic(AUDIT, ALIAS if site == "0" else site), 0): offset
        for site, offset in manifest.evidence.audit_next.items()
    }
