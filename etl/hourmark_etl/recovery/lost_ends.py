"""Logs that lost their end while no driver looked, told by staged files that the ledger does not
name.

An older copy of the ledger goes on behind what was staged since it was made. Where Kafka has lost
the end of that too (one power failure takes a disk of each), nothing is shorter than its positions,
and others take the lost records' places unseen. The files of what was staged stand still, and say
how far that was.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.batches import truncated_gap
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.offset_gaps import OffsetGap, all_gaps, put_gaps
from hourmark_etl.ledger.staged_files import folders_and_epochs
from hourmark_etl.model import Position
from hourmark_etl.recovery.storage_scan import Key, batch_folders, read_notes
from hourmark_etl.storage import Storage
from hourmark_etl.topics import Central, CentralTopics

_LOG = logging.getLogger(__name__)


class LostEnds:
    """Looks for them once, at a driver's start. `topics`: of all types."""

    def __init__(
        self, storage: Storage, database: Database, central: Central, topics: CentralTopics
    ) -> None:
        self._storage, self._database, self._central, self._topics = (
            storage,
            database,
            central,
            topics,
        )
        self._audit_ends: dict[
            Key, Position
        ] = {}  # the least that was seen: the mirror goes on while this waits
        self._epochs = defaultdict[Key, dict[int, int]](
            dict
        )  # of those files: leader epoch → offset after its last record
        self._reached: dict[Key, int] | None = (
            None  # to where files hold a partition; None: they are not read yet
        )
        self._staged: set[str] = set()  # topics of those
        self._unreadable: list[str] = []  # files of promises, perhaps
        self._events: set[str] | None = None  # topics to be compared yet; None: promises are first

    @property
    def is_done(self) -> bool:
        """Whether all is compared; until then nobody may delete what the ledger does not name."""
        return self._events is not None and not self._events

    def look(self, lease: Lease, now_ms: int) -> None:
        """What is found stands in the ledger then.

        Unavailable where promises cannot be compared: nothing may close before.

        Of promises the gap holds every type until an override accepts it. Of events, promises tell
        what is missing: the gap keeps the files, of which `hourmark ledger rebuild` lists what they
        hold. Topics that cannot be asked now are, later.
        """
        if self._events is None:
            if self._reached is None and (unnamed := self._unnamed()):
                self._ask_promises()  # first, as reading may take long
                self._read(unnamed)
            self._put(lease, self._shorter(self._audit_ends), now_ms)
            self._events = self._staged & self._topics.types.keys()
        for topic in sorted(self._events):
            try:
                ends = self._ask([topic])
            except Unavailable as error:
                _LOG.warning(
                    "whether topic %s ends before what was staged of it is asked again: %s",
                    topic,
                    error,
                )
                continue
            self._put(lease, self._shorter(ends), now_ms)
            self._events.discard(topic)

    def _unnamed(self) -> list[str]:
        standing = batch_folders(self._storage)
        named, _ = folders_and_epochs(
            self._database
        )  # after the listing: a folder's commit may come in between
        return [folder for folder in standing if folder not in named]

    def _read(self, unnamed: Collection[str]) -> None:
        reached, unreadable = dict[Key, int](), []
        ledger, _ = self._database.identity()
        for note in read_notes(self._storage, [*unnamed]):
            if isinstance(note, Unreadable):
                unreadable.append(note.path)
            elif note.ledger == ledger:
                for s in note.spans:
                    reached[s.topic_id, s.partition] = max(
                        s.end, reached.get((s.topic_id, s.partition), 0)
                    )
                    self._staged.add(s.topic)
                    if s.leader_epoch is not None and s.epoch_next is not None:
                        epochs = self._epochs[s.topic_id, s.partition]
                        epochs[s.leader_epoch] = max(s.epoch_next, epochs.get(s.leader_epoch, 0))
        if unreadable:
            _LOG.warning(
                "%d staged files that the ledger does not name cannot be read, as %s",
                len(unreadable),
                unreadable[0],
            )
        self._reached, self._unreadable = reached, unreadable

    def _ask_promises(self) -> None:
        away: Unavailable | None = None
        for topic in self._topics.audits:
            try:
                asked = self._ask([topic])
            except Unavailable as error:
                away = error
                continue
            for key, at in asked.items():
                self._audit_ends[key] = min(
                    at, self._audit_ends.get(key, at), key=lambda of: of.next_offset
                )
        if away is not None:
            raise away

    @functools.cached_property
    def _cluster_id(self) -> str:
        return self._central.cluster_id()

    def _ask(self, topics: Iterable[str]) -> dict[Key, Position]:
        """Where the logs end now; of high watermarks, as a last stable offset may lie before what
        was staged.
        """
        ids = {
            Partition(i.name, n): i.topic_id
            for i in self._central.topics(topics).values()
            for n in i.partitions
        }
        ends = self._central.ends([*ids], committed=False)
        return {
            (topic_id, p.partition): Position(
                cluster_id=self._cluster_id,
                topic_id=topic_id,
                topic=p.topic,
                partition=p.partition,
                next_offset=ends[p],
            )
            for p, topic_id in ids.items()
        }

    def _shorter(self, ends: Mapping[Key, Position]) -> list[OffsetGap]:
        reached = self._reached or {}
        truncated = self._truncated(ends)
        short = [
            dataclasses.replace(p, next_offset=reached[key])
            for key, p in ends.items()
            if p.next_offset < reached.get(key, 0) or key in truncated
        ]
        return [truncated_gap(self._topics.at_edge(p.topic), p) for p in short]

    def _truncated(self, ends: Mapping[Key, Position]) -> set[Key]:
        """Those that lost what files hold, by leader epochs: their logs may have grown beyond it
        since.
        """
        keys = {p.of: key for key, p in ends.items() if key in self._epochs}
        starts = self._central.starts([*keys])
        by_epoch = defaultdict[int, dict[Partition, tuple[int, int]]](dict)
        for of, key in keys.items():
            for epoch, after in self._epochs[key].items():
                if starts[of] <= after:
                    by_epoch[epoch][of] = (after, epoch)
        return {keys[of] for begins in by_epoch.values() for of in self._central.truncated(begins)}

    def _put(self, lease: Lease, found: Collection[OffsetGap], now_ms: int) -> None:
        if not found:
            return
        gaps = [
            g
            if g.topic == AUDIT
            else dataclasses.replace(g, accepted_at_ms=now_ms, reason="kept in files")
            for g in found
        ]
        if self._unreadable:
            what = (
                "staged files cannot be read that the ledger does not name "
                f"({self._unreadable[0]}), and logs lost records"
            )
            gaps.append(OffsetGap(topic=AUDIT, accepted_at_ms=None, what=what, lost_end=False))
        known = {(gap.topic, gap.what) for gap in all_gaps(self._database)}
        new = [gap for gap in gaps if (gap.topic, gap.what) not in known]
        with self._database.transaction(lease) as connection:
            put_gaps(connection, new)
        for gap in new:
            _LOG.error(
                "%s: is this ledger an older copy? `hourmark ledger rebuild` lists what "
                "staged files hold of it",
                gap.what,
            )
