"""The way of an event in the model: hosts, service, mirror, retention and staging."""

from __future__ import annotations

import collections
import random

from tests.simulation.model.parts import (
    PARTITIONS,
    Audit,
    Broken,
    Event,
    File,
    Group,
    Known,
    Ledger,
    Log,
    Range,
    Record,
    Row,
    Store,
    audit_of,
    sums_of,
)


class Path:
    """Everything that exists, and what happens to an event until it is staged."""

    def __init__(self, seed: int, breaks: str | None, verbose: bool) -> None:
        self.rnd = random.Random(seed)
        self.breaks, self.verbose = breaks, verbose
        self.seen: collections.Counter[str] = collections.Counter()
        # Hours from this one on have a bucket each; of earlier ones only those that hold something.
        self.first_hour = 5 if seed % 7 == 3 and seed % 16 != 3 else 0
        self.hour = self.first_hour  # the wall clock
        self.ranges: dict[int, Range] = {}
        self.edge = {p: Log() for p in PARTITIONS}
        self.central = {p: Log() for p in PARTITIONS}
        self.mirrored = dict.fromkeys(PARTITIONS, 0)
        self.dropped = False  # the mirror lost something, which its checks cannot see
        self.destroyed = (
            False  # something that closing may need was damaged, deleted, or never staged in time
        )
        self.away_to = 0  # hour to which the mirror copies nothing
        self.gentle = False  # nothing is destroyed in this history
        self.faulty_mirror = breaks in ("count-only", "no-proof", "faulty-mirror")
        self.ledger, self.store = Ledger(frontier=self.first_hour), Store()
        self.appended = 0

    def note(self, what: str) -> None:
        """For coverage, and human-readable."""
        self.seen[what.split(":")[0]] += 1
        if self.verbose:
            print(f"  h{self.hour} f{self.ledger.frontier} {self.ledger.state:6} {what}")

    def unknown(self) -> bool:
        """Whether a cluster has no leader for what it is asked: its answer is no number."""
        return self.rnd.random() < 0.03

    def cut_range(self) -> None:
        """A host writes lines: of now, of some hours ago, by a clock that is a few minutes ahead,
        of the hour to come, or finds an old file, of hours before the type's first one.
        """
        r = self.rnd
        hours = []
        for _ in range(r.randint(1, 4)):
            ago = 0 if r.random() < 0.8 else r.choice((-1, -1, 1, 2, 3))
            old = self.first_hour and r.random() < 0.1
            hours.append(r.choice((0, 2)) if old else max(0, self.hour - ago))
        self._take(
            r.randint(0, 2), tuple(Event(i, h, i) for h in hours for i in [r.getrandbits(40)])
        )

    def _take(self, host: int, events: tuple[Event, ...]) -> None:
        cut = Range(id=self.rnd.getrandbits(40), host=host, events=events)
        self.ranges[cut.id] = cut
        self.note(f"range cut: {len(events)}")

    def _append(self, partition: str, record: Record) -> None:
        self.appended += 1
        self.edge[partition].records.append((record, self.appended))

    def send(self) -> None:
        """A range is sent: acknowledged, or the ack is lost, or the service is killed before the
        audit record.
        """
        todo = [x for x in self.ranges.values() if not x.acked and not x.abandoned]
        if not todo:
            return None
        sent, fate = self.rnd.choice(todo), self.rnd.random()
        upto = len(sent.events) if fate > 0.2 else self.rnd.randint(0, len(sent.events))
        for e in sent.events[:upto]:
            self._append(self.rnd.choice(PARTITIONS[1:]), Row(e, sent.id))
        if fate <= 0.2:
            return self.note("service killed before the audit record")
        self._append("audit", audit_of(sent))
        if fate <= 0.35:
            return self.note("ack lost")
        sent.acked = True
        self.note("acked")
        return None

    def lose_checkpoint(self) -> None:
        """A host reads its last lines again, and cuts them differently."""
        host = self.rnd.randint(0, 2)
        mine = [x for x in self.ranges.values() if x.host == host and not x.abandoned][-3:]
        for x in mine:
            x.abandoned = x.abandoned or not x.acked  # the same lines come again below
        events = [e for x in mine for e in x.events]
        if self.breaks == "recut-new-id":
            events = [Event(self.rnd.getrandbits(40), e.hour, e.line) for e in events]
        at = self.rnd.randint(0, len(events))
        for part in (events[:at], events[at:]):
            if part:
                self._take(host, tuple(part))

    def host_dies(self) -> None:
        """For good, with a range that was not acknowledged."""
        todo = [x for x in self.ranges.values() if not x.acked and not x.abandoned]
        if todo and self.rnd.random() < 0.3:
            self.rnd.choice(todo).abandoned = True
            self.note("host gone for good")

    def mirror_rests(self) -> None:
        """It copies nothing for some hours."""
        self.away_to = self.hour + self.rnd.randint(1, 3)

    def mirror(self) -> None:
        """Copies some records of one partition."""
        if self.breaks == "mirror-gap" and not self.dropped and self.rnd.random() < 0.02:
            self.dropped = True
            self.mirrored = {p: log.end for p, log in self.edge.items()}
            return self.note("mirror skips to the end")
        if self.hour < self.away_to:
            return None
        p = self.rnd.choice(PARTITIONS)
        first = self.mirrored[p]
        for record in self.edge[p].records[first : first + self.rnd.randint(1, 6)]:
            copies = 1
            if self.faulty_mirror and p != "audit" and self.rnd.random() < 0.02:
                copies = self.rnd.choice((0, 2))
                self.dropped = self.dropped or not copies
            self.central[p].records += [record] * copies
            self.mirrored[p] += 1
        return None

    def retention(self) -> None:
        """The central cluster deletes what is older than a time, in all topics alike; rarely, what
        was not staged yet.
        """
        staged = [
            log.records[at][1]
            for p, log in self.central.items()
            if (at := self.ledger.offsets[p]) < log.end
        ]
        below = (
            min(staged, default=self.appended)
            if self.gentle or self.rnd.random() < 0.9
            else self.appended
        )
        below = self.rnd.randint(0, below)
        for p, log in self.central.items():
            while log.start < log.end and log.records[log.start][1] < below:
                log.start += 1
            if log.start > self.ledger.offsets[p]:
                self.destroyed = True
                self.note("retention overtook staging")
        self.note("retention")

    def stage(self) -> None:
        """A micro-batch; where the log begins past the ledger's offsets, only a rebuild finds what
        staged files still hold.
        """
        book = self.ledger
        if any(log.start > book.offsets[p] for p, log in self.central.items()):
            self.note("staging finds a gap")
            return self.rebuild()
        ends = {p: self.rnd.randint(book.offsets[p], log.end) for p, log in self.central.items()}
        spans = {p: (book.offsets[p], end) for p, end in ends.items() if end > book.offsets[p]}
        made = self._written(spans)
        if self.rnd.random() < 0.15:
            return self.note("driver killed before the ledger commit")
        book.offsets, book.batches = ends, book.batches + 1
        for file in made:
            self.list_file(file)
        if made:
            self.note("staged")
        return None

    def _written(self, spans: dict[str, tuple[int, int]]) -> list[File]:
        """A file of events and one of audit records, where there are any."""
        made = []
        for kind in (("audit",), PARTITIONS[1:]):
            own = {p: spans[p] for p in kind if p in spans}
            records = [
                (o, self.central[p].records[o][0])
                for p, (start, end) in own.items()
                for o in range(start, end)
            ]
            if records:
                name = f"{kind[0]}-{self.rnd.getrandbits(40):010x}"
                made.append(
                    File(
                        name=name,
                        spans=own,
                        records=records,
                        number=self.ledger.batches,
                        hour=self.hour,
                    )
                )
                self.store.files[name] = made[-1]
        return made

    def list_file(self, file: File) -> None:
        """What the ledger keeps of a staged file."""
        book = self.ledger
        for hour in sorted({r.event.hour for _, r in file.records if isinstance(r, Row)}):
            group = Group(file.name, hour, sums_of(file.rows(hour)))
            if self.breaks == "stage-into-frozen" and hour <= book.frontier:
                group.listed = book.frontier
            book.groups.append(group)
        known = {k.record.range_id: k.record for k in book.promises}
        for at, record in file.records:
            if isinstance(record, Audit):
                if known.get(record.range_id, record) != record:
                    raise Broken("two audit records with one key differ")
                book.promises.append(Known(at, record, file.name))

    def tick(self) -> None:
        """An hour passes."""
        self.hour = min(self.hour + 1, 8)

    def rebuild(self) -> None:
        """See `recovery`."""
        raise NotImplementedError
