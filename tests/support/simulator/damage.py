"""Faults in files as data: what may happen to which, and how often beside others."""

from __future__ import annotations

import collections
import dataclasses
import random

from tests.support.memory_storage import MemoryStorage
from tests.support.simulator.losses import Losses
from tests.support.simulator.truth import TYPES

from hourmark.records.manifest import MARKER
from hourmark_etl.errors import Unreadable
from hourmark_etl.staging.files import read_note


@dataclasses.dataclass(frozen=True)
class FileFault:
    """What may happen to a file, where, and how often beside others."""

    kind: str
    place: str
    weight: int

    @property
    def name(self) -> str:
        """In counts of what was seen."""
        return f"{self.kind} in {self.place}"


MARKERS = "markers"
FILE_FAULTS = tuple(
    FileFault(kind, place, weight)
    for place in ("_staging", "_index", "_unaudited", MARKERS)
    for kind, weight in (("flip", 3), ("remove", 2))
)


@dataclasses.dataclass(frozen=True)
class Damages:
    """Does it, and remembers what that costs."""

    storage: MemoryStorage
    losses: Losses
    seen: collections.Counter[str]

    def damage(self, draw: int) -> None:
        """A file that closing reads has a bit flipped, or is gone; see FILE_FAULTS."""
        r = random.Random(draw)
        found = {place: self._files(place) for place in {f.place for f in FILE_FAULTS}}
        faults = [f for f in FILE_FAULTS if found[f.place]]
        if not faults:
            return
        (fault,) = r.choices(faults, [f.weight for f in faults])
        path = r.choice(found[fault.place])
        self.spoil(
            fault, path, r.randrange(8 * self.storage.size(path)) if fault.kind == "flip" else 0
        )

    def spoil(self, fault: FileFault, path: str, bit: int = 0) -> None:
        """This file."""
        content = bytearray(self.storage.read(path))
        self._note(fault, path, bytes(content))
        self.storage.delete(path)
        if fault.kind == "flip":
            content[bit // 8] ^= 1 << bit % 8
            self.storage.write_new(path, bytes(content))
        self.seen[fault.name] += 1

    def lose(self, *paths: str) -> None:
        """These staged files."""
        for path in paths:
            self.spoil(FileFault("remove", "_staging", 0), path)

    def bring_back_markers(self) -> bool:
        """An operator puts copies of them in their places; whether there was need."""
        for path, content in self.losses.markers.items():
            self.storage.delete(path)
            self.storage.write_new(path, content)
        needed = bool(self.losses.markers)
        self.losses.markers.clear()
        return needed

    def _files(self, place: str) -> list[str]:
        if place == "_unaudited":  # some are written at once; their names end in a digest
            return sorted(self.storage.content(place), key=lambda path: path.rpartition("-")[0])
        if place != MARKERS:
            return list(self.storage.content(place))  # as they were written: their names are random
        return sorted(
            p
            for t in TYPES
            for p in self.storage.content(t)
            if p.endswith(f"/{MARKER}") and p not in self.losses.markers
        )

    def _note(self, fault: FileFault, path: str, content: bytes) -> None:
        if fault.place == "_staging":
            try:
                self.losses.damaged[path] = read_note(self.storage, path).spans
            except Unreadable:
                return  # damaged before, and noted then
        elif fault.place == "_unaudited":
            self.losses.unaudited = True
        elif fault.place == MARKERS:
            self.losses.markers[path] = content
