"""Detects logs that lost records while no driver was running, from uncommitted staged files.

An older copy of the ledger has positions from before the copy was made. If Kafka also lost the end
of its logs (one power failure may affect the disks of both), no log is shorter than these
positions, and new records take the offsets of the lost ones unnoticed. The staged files still exist
and show up to which offsets records had been staged.
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
from hourmark_etl.ledger.batches import create_truncation_gap
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap, all_gaps, put_gaps
from hourmark_etl.ledger.staged.staged_files import read_folders_and_epochs
from hourmark_etl.model import StagingPosition
from hourmark_etl.recovery.storage_scan import Key, list_batch_folders, read_notes
from hourmark_etl.storage import Storage
from hourmark_etl.topics import CentralCluster, CentralTopicNames

_LOG = logging.getLogger(__name__)


class LostEndDetector:
    """Detects Kafka logs that have lost records at their end, by comparing them with staged files.

    Staged files contain copies of Kafka records, and so show how far a log once reached. If the
    ledger (the ETL's state database) is an older copy, it does not list the newest staged files,
    and the loss would not be detected otherwise. Only files that the ledger does not list are used.
    Each log is compared once after the ETL driver has started.

    Args:
        storage: Storage with the staged files.
        database: The ledger.
        central: The central cluster.
        topics: Names of the topics on the central cluster.
    """

    def __init__(
        self,
        storage: Storage,
        database: Database,
        central: CentralCluster,
        topics: CentralTopicNames,
    ) -> None:
        self._storage, self._database, self._central, self._topics = (
            storage,
            database,
            central,
            topics,
        )
        self._audit_ends: dict[
            Key, StagingPosition
        ] = {}  # the smallest ends observed, because the mirror continues in the meantime
        self._epochs = defaultdict[Key, dict[int, int]](
            dict
        )  # of those files: leader epoch → offset after its last record
        self._reached: dict[Key, int] | None = (
            None  # end of each partition in staged files; None until they are read
        )
        self._staged: set[str] = set()  # topics of these files
        self._unreadable: list[str] = []  # unreadable files, which may contain audit records
        self._events: set[str] | None = (
            None  # event topics still to compare; None until audit topics are compared
        )

    @property
    def is_done(self) -> bool:
        """Return whether all logs have been compared with the staged files.

        Call `poll` until this property is True. Do not delete staged files (copies of Kafka
        records) before then.
        """
        return self._events is not None and not self._events

    def poll(self, lease: Lease, now_ms: int) -> None:
        """Compare logs with staged files, and store lost records as offset gaps in the ledger.

        Staged files hold copies of Kafka records. An offset gap is a range of offsets whose records
        are missing. A gap in an audit topic keeps the hours of all event types open until an
        operator's override accepts it. A gap in an event topic is accepted automatically, because
        audit records show which events are missing.

        If an event topic cannot be read, the next call tries again. When all logs have been
        compared, further calls do nothing.

        Args:
            lease: Lease of the closer, the process that closes hours.
            now_ms: Current time in Unix milliseconds.

        Raises:
            Unavailable: An audit topic cannot be compared. Call again, and do not close any hour
                until the call succeeds.
            StaleDriver: Another process has taken over the lease.
        """
        if self._events is None:
            if self._reached is None and (unnamed := self._uncommitted_folders()):
                self._query_audit_ends()  # before reading files, which may take long
                self._read(unnamed)
            self._store_gaps(lease, self._shorter_logs(self._audit_ends), now_ms)
            self._events = self._staged & self._topics.types.keys()
        for topic in sorted(self._events):
            try:
                ends = self._query_ends([topic])
            except Unavailable as error:
                _LOG.warning(
                    "cannot determine whether topic %s ends before its staged offsets; "
                    "retrying: %s",
                    topic,
                    error,
                )
                continue
            self._store_gaps(lease, self._shorter_logs(ends), now_ms)
            self._events.discard(topic)

    def _uncommitted_folders(self) -> list[str]:
        standing = list_batch_folders(self._storage)
        named, _ = read_folders_and_epochs(
            self._database
        )  # read after the listing, because a folder may be committed in between
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
                "%d staged files that are not in the ledger cannot be read, such as %s",
                len(unreadable),
                unreadable[0],
            )
        self._reached, self._unreadable = reached, unreadable

    def _query_audit_ends(self) -> None:
        away: Unavailable | None = None
        for topic in self._topics.audits:
            try:
                asked = self._query_ends([topic])
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

    def _query_ends(self, topics: Iterable[str]) -> dict[Key, StagingPosition]:
        # Return the high watermarks of the topics' partitions. Last stable offsets are not used
        # because they may lie below what was staged.
        ids = {
            Partition(i.name, n): i.topic_id
            for i in self._central.topics(topics).values()
            for n in i.partitions
        }
        ends = self._central.ends([*ids], committed=False)
        return {
            (topic_id, p.partition): StagingPosition(
                cluster_id=self._cluster_id,
                topic_id=topic_id,
                topic=p.topic,
                partition=p.partition,
                next_offset=ends[p],
            )
            for p, topic_id in ids.items()
        }

    def _shorter_logs(self, ends: Mapping[Key, StagingPosition]) -> list[OffsetGap]:
        reached = self._reached or {}
        truncated = self._truncated_logs(ends)
        short = [
            dataclasses.replace(p, next_offset=reached[key])
            for key, p in ends.items()
            if p.next_offset < reached.get(key, 0) or key in truncated
        ]
        return [create_truncation_gap(self._topics.at_edge(p.topic), p) for p in short]

    def _truncated_logs(self, ends: Mapping[Key, StagingPosition]) -> set[Key]:
        # Return the partitions that lost staged records according to their leader epochs. It finds
        # lost records even if the log has grown beyond them since.
        keys = {p.topic_partition: key for key, p in ends.items() if key in self._epochs}
        starts = self._central.starts([*keys])
        by_epoch = defaultdict[int, dict[Partition, tuple[int, int]]](dict)
        for of, key in keys.items():
            for epoch, after in self._epochs[key].items():
                if starts[of] <= after:
                    by_epoch[epoch][of] = (after, epoch)
        return {keys[of] for begins in by_epoch.values() for of in self._central.truncated(begins)}

    def _store_gaps(self, lease: Lease, found: Collection[OffsetGap], now_ms: int) -> None:
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
                "%s. This ledger may be an older copy; `hourmark ledger rebuild` lists the "
                "affected records that staged files contain",
                gap.what,
            )
