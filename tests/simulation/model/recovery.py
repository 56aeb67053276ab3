"""What is damaged, lost and restored in the model, and how it is healed.

A lost ledger is rebuilt thus. Frontiers, settled positions and unaudited come from the store. All
positions go back to where the logs begin; ids drop what is there twice. Staged files that reach
below that are listed again, if their digests hold. Promises that neither the logs nor an intact
file hold, and that an open hour may need, are lost: hours that have begun by then, or begin within
an hour, can only be forced.
"""

from __future__ import annotations

from tests.simulation.model.closer import Closing
from tests.simulation.model.parts import (
    PARTITIONS,
    Broken,
    Bucket,
    File,
    Known,
    Ledger,
    Record,
    copied,
    sums_of,
)


class Recovery(Closing):
    """Faults that destroy, and what is done about them."""

    backup: Ledger | None = None

    @property
    def spans(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Offsets of every staged file there ever was: the ledger has them in a row of
        their own.
        """
        return self._spans

    def __init__(self, seed: int, breaks: str | None, verbose: bool) -> None:
        super().__init__(seed, breaks, verbose)
        self._spans: dict[str, dict[str, tuple[int, int]]] = {}

    def list_file(self, file: File) -> None:
        """See `Path`."""
        super().list_file(file)
        self._spans[file.name] = file.spans

    # faults
    # ---------------------------------------------------------------------------------------------------------

    def damage(self) -> None:
        """A staged file is damaged or gone, or a file of unaudited rows, or an index of ids."""
        r = self.rnd
        kind = r.random()
        if kind < 0.6 and self.store.files:
            name = r.choice(sorted(self.store.files))
            if r.random() < 0.5:
                del self.store.files[name]
            else:
                self.store.files[name].damaged = True
            self.destroyed = True
        elif kind < 0.8 and self.store.unaudited:
            self.store.unaudited[r.choice(sorted(self.store.unaudited))].damaged = True
            self.destroyed = True
        elif self.store.closed:
            self.store.bad_indexes.add(r.choice(sorted(self.store.closed)))
        self.note("damage")

    def back_up(self) -> None:
        """A copy of the ledger."""
        self.backup = copied(self.ledger)

    def restore(self) -> None:
        """An older copy comes back; refused where a bucket stands that it has not sealed."""
        old = self.backup
        if old is None:
            return None
        if old.uuid != self.store.ledger and self.breaks != "copy-of-replaced-ledger":
            return self.note(
                "copy of a replaced ledger refused"
            )  # what it stages has been deleted as nobody's
        if (
            any(h >= old.frontier + (old.state == "sealed") for h in self.store.closed)
            and self.breaks != "older-copy-accepted"
        ):
            return self.note("restore refused")
        self.ledger, self.cut, self.ordered = copied(old), None, False
        self.note("older copy restored")
        return None

    def lose_ledger(self) -> None:
        """Nothing is left of it."""
        self.note("ledger lost")
        self.rebuild()

    def expire_and_lose(self) -> None:
        """Everything that is staged leaves the logs, and the ledger is lost."""
        for p, log in self.central.items():
            log.start = max(log.start, self.ledger.offsets[p])
        self.lose_ledger()

    def disaster(self) -> None:
        """The same, and a staged file or some with it."""
        names = sorted(self.store.files)
        for name in self.rnd.sample(
            names, min(len(names), self.rnd.choice((1, 1, 2, len(names) // 3)))
        ):
            self.store.files[name].damaged = True
        self.destroyed = True
        self.expire_and_lose()

    # healing
    # --------------------------------------------------------------------------------------------------------

    def restage(self, name: str) -> bool:
        """The file again, from the logs; False if they do not hold all of it any more."""
        spans = self._spans[name]
        if any(start < self.central[p].start for p, (start, _) in spans.items()):
            return False
        records: list[tuple[int, Record]] = [
            (o, self.central[p].records[o][0])
            for p, (start, end) in spans.items()
            for o in range(start, end)
        ]
        again = File(
            name=f"{name}+",
            spans=spans,
            records=records,
            number=self.ledger.batches,
            hour=self.hour,
        )
        self.store.files.pop(name, None)
        self.store.files[again.name], self._spans[again.name] = again, spans
        for g in self.ledger.groups:
            if g.file == name:
                g.file = again.name
                if g.sums != sums_of(again.rows(g.hour)):
                    raise Broken(f"{name} staged again has other rows")
        self.ledger.promises = [
            Known(k.at, k.record, again.name) if k.file == name else k for k in self.ledger.promises
        ]
        self.note("staged again from the log")
        return True

    def rebuild(self) -> None:
        """See the module."""
        closed, intact = self.store.closed, [f for f in self.store.files.values() if not f.damaged]
        book = Ledger(uuid=self.rnd.getrandbits(40), frontier=self.first_hour)
        self.store.ledger = book.uuid
        if closed:
            book.last_closed = max(closed)
            book.settled_next = closed[book.last_closed].seal.audit_next
            book.frontier = book.last_closed + 1
        if self.breaks != "unaudited-forgotten":
            book.unaudited = [n for n, s in self.store.unaudited.items() if s.hour < book.frontier]
        book.offsets = {p: log.start for p, log in self.central.items()}
        book.batches = max((f.number + 1 for f in intact), default=0)
        self.ledger, self.cut, self.trouble, self.ordered = book, None, "", False
        if self.breaks == "rebuild-covers-below-marker" and book.frontier:
            book.offsets = dict(closed[book.frontier - 1].seal.offsets)
        if self.breaks == "rebuild-by-sequence":
            intact = list({f.number: f for f in sorted(intact, key=lambda f: f.hour)}.values())
            book.offsets = {
                p: max([f.spans[p][1] for f in intact if p in f.spans], default=0)
                for p in PARTITIONS
            }
        for file in intact:
            if any(start < book.offsets[p] for p, (start, _) in file.spans.items()):
                self.list_file(file)
        if self.breaks != "missing-file-passed-over" and (lost := self._promises_lost(intact)):
            book.lost = lost
            book.only_forced_to = self.hour + (0 if self.breaks == "no-margin-ahead" else 1)
            self.note("promises lost")
        self.note("rebuilt")

    def _promises_lost(self, intact: list[File]) -> list[tuple[int, int]]:
        """Spans of promises that an open hour may need, and that are in no log and in no intact
        file.
        """
        at, lost = self._needed_from(), []
        begin = self.central["audit"].start
        for start, end in [
            *sorted(f.spans["audit"] for f in intact if "audit" in f.spans),
            (begin, begin),
        ]:
            if at < min(start, begin):
                lost.append((at, min(start, begin)))
            at = max(at, end)
        return lost

    def _needed_from(self) -> int:
        """Promises below are settled, or of hours before the frontier's: they were read an hour
        before it began.
        """
        book = self.ledger

        def old(b: Bucket) -> bool:
            return (
                b.seal.begun if self.breaks == "needed-by-the-cut's-begin" else b.at
            ) + 2 <= book.frontier

        older = [
            b.seal.audit_next for h, b in self.store.closed.items() if h < book.frontier and old(b)
        ]
        if self.breaks == "needed-by-settled":
            return book.settled_next
        return min(book.settled_next, max(older, default=0))

    def clean(self) -> None:
        """Files that nothing reads again, and those of batches that were never committed."""
        book = self.ledger
        needed = {g.file for g in book.groups if g.listed is None or g.listed >= book.frontier}
        known, below = book.files(), self._needed_from()
        for name, file in list(self.store.files.items()):
            if name not in known:
                gap = any(log.start > book.offsets[p] for p, log in self.central.items())
                doomed = not gap or self.breaks == "orphans-swept"
            elif "audit" in file.spans:
                doomed = self._is_settled(file, below)
            else:
                doomed = name not in needed
            if doomed:
                del self.store.files[name]
                self.seen["cleaned"] += 1
        gone = known - self.store.files.keys()
        book.groups = [g for g in book.groups if g.file in needed or g.file not in gone]
        self._forget(gone, below)

    def _is_settled(self, file: File, below: int) -> bool:
        """Whether no hour to come needs these promises, and no second copy of one can come (in
        truth: by age).
        """
        book = self.ledger
        end = file.spans["audit"][1]
        to_come = {r for r, _ in self.edge["audit"].records[book.offsets["audit"] :]}
        settled = all(
            k.record.promised[-1][0] < book.frontier for k in book.promises if k.file == file.name
        )
        if self.breaks == "promises-cleaned-early":
            return settled and end <= book.settled_next
        return (
            settled
            and end <= min(below, self.central["audit"].start)
            and not any(r in to_come for _, r in file.records)
        )

    def _forget(self, gone: set[str], below: int) -> None:
        """The ledger forgets promises whose file was cleaned; one that is needed stays, and is
        found missing.
        """
        book = self.ledger
        book.promises = [
            k
            for k in book.promises
            if k.file not in gone or k.at >= below or k.record.promised[-1][0] >= book.frontier
        ]
