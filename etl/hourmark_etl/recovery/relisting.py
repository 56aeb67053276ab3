"""Adds staged files to a rebuilt ledger if staging cannot read their records again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.batches import put_staged
from hourmark_etl.model import OffsetSpan
from hourmark_etl.recovery.storage_scan import Key, batch_folders, read_notes, single_file_batch
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage


@dataclass(kw_only=True)
class Relisting:
    """Adds staged files of a lost ledger to the rebuilt one.

    Attributes:
        connection: Connection to the ledger, in the rebuild's transaction.
        storage: The storage with staged files.
        ledger: Id of the ledger; files of other ledgers are ignored.
        listed: Paths of the files that were added.
        spans: Needed offset ranges that these files hold, by topic id and partition.
        ends: Highest end offset in any file, by topic id and partition.
        epochs: By topic id and partition, the offset after each leader epoch's last record.
        unreadable: Errors by path of files that cannot be read.
    """

    connection: Connection
    storage: Storage
    ledger: str
    listed: set[str] = field(default_factory=set)  # paths
    spans: defaultdict[Key, list[OffsetSpan]] = field(
        default_factory=lambda: defaultdict(list)
    )  # needed ranges that these files hold
    ends: defaultdict[Key, int] = field(
        default_factory=lambda: defaultdict(int)
    )  # highest end in any file
    epochs: defaultdict[Key, dict[int, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # leader epoch → offset after it
    unreadable: dict[str, Unreadable] = field(default_factory=dict)  # by path

    def add_needed_files(self, is_needed: Callable[[OffsetSpan], bool]) -> None:
        """Add the staged files that hold needed offsets.

        Files are read one at a time, because all of them may exceed the memory.

        Args:
            is_needed: Returns whether the offsets of a span are needed.
        """
        for note in read_notes(self.storage, batch_folders(self.storage)):
            if isinstance(note, Unreadable):
                self.unreadable[note.path] = note
            elif note.ledger == self.ledger:
                self._put(note, [s for s in note.spans if is_needed(s)])

    def _put(self, note: StagedNote, needed: list[OffsetSpan]) -> None:
        for s in note.spans:
            key = s.topic_id, s.partition
            self.ends[key] = max(s.end, self.ends[key])
            if s.leader_epoch is not None and s.epoch_next is not None:
                self.epochs[key][s.leader_epoch] = max(
                    s.epoch_next, self.epochs[key].get(s.leader_epoch, 0)
                )
        if needed and note.path not in self.listed:
            put_staged(self.connection, single_file_batch(note))
            self.listed.add(note.path)
        for s in needed:
            self.spans[s.topic_id, s.partition].append(s)
