"""How an hour closes in the model: cut, freeze, prove, seal, write, publish; and what an operator's
order does.
"""

from __future__ import annotations

import collections

from tests.simulation.model.parts import (
    Broken,
    Bucket,
    Cut,
    Event,
    File,
    Group,
    Known,
    Row,
    Seal,
    Sums,
    Unaudited,
    Unreadable,
    add,
)
from tests.simulation.model.path import Path

Key = tuple[int, int]  # range id, hour


class Closing(Path):
    """One closer at a time, and perhaps one that stands still before its rename."""

    cut: Cut | None = None
    trouble = ""  # why the frontier hour takes an override
    ordered = False
    zombie: tuple[int, Bucket] | None = None

    def close_step(self) -> None:
        """As far as it goes without waiting."""
        getattr(self, f"_{self.ledger.state}")()

    def order(self) -> None:
        """An operator will not wait any longer for an hour that says why it cannot close."""
        if self.trouble and self.rnd.random() < 0.3:
            self.ordered = True
            self.note("ordered")

    def _live(self, hour: int) -> frozenset[int]:
        """Ranges that a live host has cut, holding hours up to this one, and not seen
        acknowledged.
        """
        todo = (x for x in self.ranges.values() if not x.acked and not x.abandoned)
        return frozenset(x.id for x in todo if any(e.hour <= hour for e in x.events))

    def _open(self) -> None:
        book = self.ledger
        if self._back_fill():
            self.cut = None
        if self.hour <= book.frontier:
            return None
        if book.frontier in self.store.closed and self.breaks != "older-copy-accepted":
            return self._foreign("the bucket of an open hour stands already")
        if self.cut is None:
            waiting = self._live(book.frontier)
            if waiting and self.rnd.random() > 0.03 and not self.ordered:
                return None
            self.cut = Cut(begun=self.hour, waived=waiting, edge_control=self.edge["audit"].end)
            self.note("cut begun")
        elif self._arrived(self.cut):
            if self._skip_empty_hours(self.cut):
                self.cut = None
                return None
            for g in book.groups:
                if g.listed is None and g.hour <= book.frontier:
                    g.listed = book.frontier
            book.state = "frozen"
            self.note("frozen")
        return None

    def _pending(self, below: int | None = None) -> set[int]:
        """Hours before the first one that hold rows of no bucket, or promises (below an offset)."""
        book = self.ledger
        rows = {g.hour for g in book.groups if g.listed is None}
        promised = {
            h
            for k in book.promises
            if below is None or k.at < below
            for h, _, _ in k.record.promised
        }
        return {h for h in rows | promised if h < self.first_hour}

    def _back_fill(self) -> bool:
        """While nothing is closed, the frontier is the oldest hour that holds something."""
        book, pending = self.ledger, self._pending()
        if book.last_closed is not None and (self.breaks != "back-fill-reopens" or not pending):
            return False
        oldest = min(pending | {self.first_hour})
        if moved := oldest != book.frontier:
            book.frontier = oldest
            self.note("back-fill begins at an older hour")
        return moved

    def _skip_empty_hours(self, cut: Cut) -> bool:
        """Before the first hour, the frontier passes hours that hold nothing below the cut, whose
        promises are all staged by then.
        """
        book = self.ledger
        if book.frontier >= self.first_hour:
            return False
        assert cut.audit_next is not None
        pending = {h for h in self._pending(cut.audit_next) if h >= book.frontier}
        if self.breaks == "skip-unlooked":
            pending = set()
        following = min(pending | {self.first_hour})
        if moved := following != book.frontier:
            self.note("empty hours skipped")
            book.frontier = following
        return moved

    def _arrived(self, cut: Cut) -> bool:
        """Phase by phase: promises first, then the events that they speak of."""
        if self.unknown():  # no leader: asked again later
            if self.breaks != "unknown-is-a-number":
                return False
            if cut.audit_next is None:
                cut.audit_next = -1
        if cut.audit_next is None:
            if self.mirrored["audit"] < cut.edge_control:
                return False
            cut.audit_next = self.central["audit"].end
        early = self.breaks == "cut-by-time"
        if cut.edge_events is None:
            if self.ledger.offsets["audit"] < cut.audit_next and not early:
                return False
            cut.edge_events = {p: self.edge[p].end for p in ("ev0", "ev1")}
        if any(self.mirrored[p] < end for p, end in cut.edge_events.items()):
            return False
        if cut.barrier is None:
            cut.barrier = {p: self.central[p].end for p in cut.edge_events}
        return early or all(self.ledger.offsets[p] >= end for p, end in cut.barrier.items())

    # what is read
    # ---------------------------------------------------------------------------------------------------

    def _file(self, name: str) -> File:
        file = self.store.files.get(name)
        if file is None or (file.damaged and self.breaks != "written-not-counted"):
            raise Unreadable(name)
        return file

    def _rows(self, group: Group) -> list[Row]:
        """With their digest compared, so that what is written is what was proved."""
        file = self._file(group.file)
        rows = file.rows(group.hour)
        return rows[: len(rows) // 2] if file.damaged else rows

    def _listed(self) -> list[Group]:
        return [g for g in self.ledger.groups if g.listed == self.ledger.frontier]

    def _counting(self, audit_next: int) -> list[Known]:
        """Promises below the cut with something that is not settled; each record counts, a second
        one of a range too.
        """
        return [k for k in self.ledger.promises if k.at < audit_next and self._hours(k)]

    def _hours(self, known: Known) -> list[tuple[int, int, int]]:
        h = self.ledger.frontier
        late = known.at >= self.ledger.settled_next
        return [p for p in known.record.promised if p[0] == h or (p[0] < h and late)]

    # prove
    # ----------------------------------------------------------------------------------------------------------

    def unmet(self, audit_next: int, unreadable: set[str]) -> set[Key]:
        """Promises without exactly their rows. Files that cannot be read are added to
        `unreadable`.
        """
        counting = self._counting(audit_next)
        promised: list[Sums] = [
            (n, total, n * k.record.range_id) for k in counting for _, n, total in self._hours(k)
        ]
        listed = [g.sums for g in self._listed()]
        if self.breaks == "no-proof":
            return set()
        if self.breaks == "count-only":
            return set() if add(promised)[0] <= add(listed)[0] else {(0, 0)}
        if add(promised) == add(listed):
            self.seen["proved by sums"] += 1
            return set()
        held = self._held(unreadable)
        older = {k.record.range_id for k in self.ledger.promises if k.at < self.ledger.settled_next}
        found = set()
        for k in counting:
            try:
                self._file(k.file)
            except Unreadable as error:
                unreadable.add(error.args[0])
            for hour, n, total in self._hours(k):
                ids = held[k.record.range_id, hour]
                second = hour < self.ledger.frontier and k.record.range_id in older
                if (len(ids), sum(ids)) != (n, total) and not second:
                    found.add((k.record.range_id, hour))
        self.seen["proved by join"] += not found
        return found

    def _held(self, unreadable: set[str]) -> dict[Key, set[int]]:
        """Ids that are listed now, and unaudited of closed buckets."""
        held: dict[Key, set[int]] = collections.defaultdict(set)
        for group in self._listed():
            try:
                for r in self._rows(group):
                    held[r.range_id, r.event.hour].add(r.event.id)
            except Unreadable as error:
                unreadable.add(error.args[0])
        for number in self.ledger.unaudited:
            if not self.store.unaudited[number].damaged:
                for range_id, hour, event_id in self.store.unaudited[number].rows:
                    held[range_id, hour].add(event_id)
        return held

    def _frozen(self) -> None:
        book, cut, unreadable = self.ledger, self.cut, set[str]()
        if cut is None or self.rnd.random() < 0.1:
            return self._unfreeze("a new closer finds a frozen hour")
        assert cut.audit_next is not None
        unmet = self.unmet(cut.audit_next, unreadable)
        unknown = book.frontier <= book.only_forced_to
        if (
            self.ordered
        ):  # a proof by sums reads nothing, so a file that is gone may be found only now
            unreadable |= {g.file for g in self._listed() if self._rows_or_none(g) is None}
        if not unmet and not unreadable and not unknown:
            return self._seal("timed_out" if cut.waived else "proved", frozenset())
        if unreadable and all(self.restage(name) for name in sorted(unreadable)):
            return self._unfreeze("staged again")
        if self.ordered:
            named = {("promise", *key) for key in unmet} | self._spans_of(unreadable)
            if unknown:
                named |= {("promises", "audit", start, end) for start, end in book.lost}
            return self._seal("forced", frozenset(named))
        self._unfreeze("not proved")
        if unreadable or unknown or (unmet and self.destroyed):
            self.trouble = f"{len(unmet)} promises, files {sorted(unreadable)}"
        if self.dropped:
            raise StopIteration  # a real gap: the hour stays open and alarms, which is right
        return None

    def _spans_of(self, names: set[str]) -> set[tuple[object, ...]]:
        """The offsets that the ledger remembers for these files."""
        return {
            ("promises" if p == "audit" else "rows", p, start, end)
            for name in names
            for p, (start, end) in self.spans[name].items()
        }

    @property
    def spans(self) -> dict[str, dict[str, tuple[int, int]]]:
        """See `recovery`."""
        raise NotImplementedError

    def _unfreeze(self, why: str) -> None:
        for g in self._listed():
            g.listed = None
        self.ledger.state, self.ledger.seal, self.cut = "open", None, None
        self.note(why)

    def _seal(self, grade: str, named: frozenset[tuple[object, ...]]) -> None:
        book, cut = self.ledger, self.cut
        assert cut is not None and cut.audit_next is not None
        if grade == "forced" and not self.destroyed:
            raise Broken(
                f"hour {book.frontier} can only be forced, and nothing was destroyed: "
                f"{sorted(map(str, named))}"
            )
        known = {k.record.range_id for k in book.promises if k.at < cut.audit_next}
        rows = [r for g in self._listed() for r in self._rows_or_none(g) or []]
        self.store.unaudited[len(self.store.unaudited)] = Unaudited(
            book.frontier,
            frozenset(
                (r.range_id, r.event.hour, r.event.id) for r in rows if r.range_id not in known
            ),
        )
        book.unaudited.append(len(self.store.unaudited) - 1)
        offsets = tuple(sorted(book.offsets.items()))
        book.seal = Seal(
            grade=grade,
            audit_next=cut.audit_next,
            edge_audit=cut.edge_control,
            begun=cut.begun,
            offsets=offsets,
            named=named,
        )
        book.state, self.ordered, self.trouble = "sealed", False, ""
        self.note(f"sealed: {grade}")

    def _rows_or_none(self, group: Group) -> list[Row] | None:
        try:
            return self._rows(group)
        except Unreadable:
            return None

    # write and publish
    # ----------------------------------------------------------------------------------------------

    def _content(self, seal: Seal) -> frozenset[Event]:
        rows = []
        for group in self._listed():
            try:
                rows += self._rows(group)
            except Unreadable as error:
                if (
                    not self._spans_of({error.args[0]}) <= seal.named
                    and self.breaks != "reseal-loses"
                ):
                    raise
        return frozenset(
            e
            for e in {r.event for r in rows}
            if not (e.hour < self.ledger.frontier and self._is_closed(e))
        )

    def _is_closed(self, event: Event) -> bool:
        """Told by an index of ids, whose digest the ledger has; where it does not match, by the
        bucket itself.
        """
        trusted = self.store.bad_indexes if self.breaks == "index-trusted" else set()
        return self.breaks != "no-cross-bucket" and any(
            event in b.events for h, b in self.store.closed.items() if h not in trusted
        )

    def _sealed(self) -> None:
        book = self.ledger
        seal, h = book.seal, book.frontier
        assert seal is not None
        try:
            bucket = Bucket(self._content(seal), seal, book.uuid, self.hour)
        except Unreadable as error:
            if not self.restage(
                error.args[0]
            ):  # the seal cannot be kept: the hour opens again, and takes an override
                self._unfreeze("a sealed hour misses a file")
                self.trouble = f"{error.args[0]} is gone"
            return None
        if self.rnd.random() < 0.1:
            self.zombie = h, bucket
            return self.note("closer paused before its rename")
        self.publish(h, bucket)
        if self.rnd.random() < 0.1:
            return self.note("closer killed after its rename")
        standing = self.store.closed[h]
        if (standing.ledger, standing.seal) != (
            book.uuid,
            seal,
        ) and self.breaks != "older-copy-accepted":
            return self._foreign("another ledger's bucket stands")
        book.settled_next, book.frontier, book.last_closed = seal.audit_next, h + 1, h
        book.state, book.seal, self.cut = "open", None, None
        self.note("closed")
        return None

    def publish(self, h: int, bucket: Bucket) -> None:
        """One rename, which fails if the target is there."""
        if h in self.store.closed and self.breaks != "zombie-closer":
            return self.note("rename refused: its marker is the truth")
        if h in self.store.closed:
            bucket = Bucket(
                frozenset(list(bucket.events)[1:]), bucket.seal, bucket.ledger, bucket.at
            )
        self.check_published(h, bucket)
        self.store.closed[h] = bucket
        self.note(f"published: {len(bucket.events)}")
        return None

    def wake_zombie(self) -> None:
        """The closer that stood still before its rename."""
        if self.zombie:
            self.publish(*self.zombie)
            self.zombie = None

    def _foreign(self, why: str) -> None:
        """The driver stops, and the operator has the ledger made from storage."""
        self.note(why)
        self.rebuild()

    def restage(self, name: str) -> bool:
        """See `recovery`."""
        raise NotImplementedError

    def check_published(self, h: int, bucket: Bucket) -> None:
        """See `judge`."""
        raise NotImplementedError
