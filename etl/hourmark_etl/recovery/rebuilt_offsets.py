"""Determines staging positions, reusable staged files and offset gaps of a rebuilt ledger.

No assumption is made about which batches had been committed. Staging resumes

- for events, at the offset below which the type's markers show that all records are in closed
  buckets, or at the log start;
- for audit records and host reports, at the log start. Events that are staged twice are dropped by
  their ids, and audit records by their ranges.

Offsets that Kafka no longer holds, at either end of a log, are covered by staged files: each file
states its offsets, and the digest in its name verifies the statement. Offsets that neither has are
gaps. Gaps in audit records count from the first promise that may count for an open hour, and block
every type until an override accepts them. Gaps in events are only reported: promises show whether
anything is missing, and then the hour must be forced.

A log that ends before what was staged, settled or closed has lost records, and new records take
their offsets. It is handled as in `batches.restart_truncated_logs`. Staged files of such audit
records are used as if Kafka held none of them. Once the log has grown again, only the recorded gap
shows the loss: for such a log of events the offsets in markers mean nothing, and all staged files
are used.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection

from hourmark.errors import Finding
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.batches import (
    create_retention_gap,
    create_truncation_gap,
    insert_positions,
    insert_staged_files,
)
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap, has_lost_end, put_checks, put_gaps
from hourmark_etl.model import (
    DEFAULT_SHARD,
    FIRST_SITE,
    NO_AUDIT_OFFSETS,
    AuditOffsets,
    OffsetSpan,
    StagingPosition,
)
from hourmark_etl.recovery.offset_records import OffsetBackup, read_offset_backup
from hourmark_etl.recovery.rebuild_result import RebuildResult, RebuildSources
from hourmark_etl.recovery.storage_scan import (
    BucketChain,
    Key,
    find_uncovered_offsets,
    list_batch_folders,
    make_single_file_batch,
    read_notes,
)
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage
from hourmark_etl.topics import CentralTopicNames


@dataclasses.dataclass(kw_only=True)
class StagedFileRecovery:
    """Adds the staged files that are still needed to a rebuilt ledger.

    A staged file contains records that were copied from Kafka. The ledger is the state database of
    the ETL. The mappings have pairs of topic id and partition number as keys.

    Attributes:
        connection: Connection to the rebuilt ledger, in the rebuild's transaction.
        storage: Storage with the staged files.
        ledger: Id of the ledger. Files of other ledgers are ignored.
        added_paths: Paths of the files that were added.
        spans: Offset ranges in the added files that are needed.
        ends: Highest end offset (exclusive) of the partition in any file.
        epochs: Maps each leader epoch of the partition to the offset after the last record of this
            epoch in any file.
        unreadable: Errors of files that cannot be read, by path.
    """

    connection: Connection
    storage: Storage
    ledger: str
    added_paths: set[str] = dataclasses.field(default_factory=set)
    spans: defaultdict[Key, list[OffsetSpan]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )
    ends: defaultdict[Key, int] = dataclasses.field(default_factory=lambda: defaultdict(int))
    epochs: defaultdict[Key, dict[int, int]] = dataclasses.field(
        default_factory=lambda: defaultdict(dict)
    )
    unreadable: dict[str, Unreadable] = dataclasses.field(default_factory=dict)

    def add_needed_files(self, is_needed: Callable[[OffsetSpan], bool]) -> None:
        """Add all staged files that contain needed offsets to the ledger.

        A staged file contains records that were copied from Kafka. The ledger is the state database
        of the ETL. The method reads the descriptions of all staged files on storage, and records
        what it finds in the attributes. It can be called again with a different condition. Each
        file is added only once.

        Args:
            is_needed: Function that returns whether an offset range contains a needed offset.

        Raises:
            StorageError: Storage is unavailable.
        """
        for note in read_notes(self.storage, list_batch_folders(self.storage)):
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
        if needed and note.path not in self.added_paths:
            insert_staged_files(self.connection, make_single_file_batch(note))
            self.added_paths.add(note.path)
        for s in needed:
            self.spans[s.topic_id, s.partition].append(s)


@dataclasses.dataclass(frozen=True)
class PartitionLogs:
    """The existing partitions of the central Kafka cluster and the bounds of their logs.

    The keys of all mappings are pairs of topic id and partition number.

    Attributes:
        live: Topic name and partition number of each existing partition.
        starts: Log start offset.
        ends: Last stable offset.
        epochs: Current leader epoch; 0 if the broker does not report it.
    """

    live: Mapping[Key, Partition]
    starts: Mapping[Key, int]
    ends: Mapping[Key, int]
    epochs: Mapping[Key, int]  # current leader epochs; 0 if the broker does not report them


@dataclasses.dataclass(kw_only=True)
class OffsetRebuilder:
    """Rebuilds the staging positions, staged files, edge checks and offset gaps of a lost ledger.

    A staging position is the next offset of a partition to copy to storage. An edge check records
    that a partition of an edge cluster has lost no records. An offset gap is a range of offsets
    whose records are missing.

    Attributes:
        connection: Connection to the rebuilt ledger (the ETL's state database), in the rebuild's
            transaction.
        sources: The sources to read.
        result: Result of the rebuild, to which notes, gaps and counts are added.
        topics: Names of the topics on the central cluster.
        chains: Closed buckets by event type.
        shards: Name of the shard of each event type. A shard is a set of event types that one
            streaming query stages.
        first_audit_offsets: For each site (edge cluster), the first offset in its audit topic whose
            record may be needed to verify an open hour.
        truncated_topics: Names at the edge of topics that are known to have lost records at the end
            of their log.
    """

    connection: Connection
    sources: RebuildSources
    result: RebuildResult
    topics: CentralTopicNames
    chains: Mapping[str, BucketChain]
    shards: Mapping[str, str]  # by type
    first_audit_offsets: AuditOffsets
    truncated_topics: set[str] = dataclasses.field(
        default_factory=set
    )  # edge names of topics with a recorded lost end

    def run(self) -> tuple[OffsetBackup, list[OffsetGap]]:
        """Store staging positions, staged files, edge checks and offset gaps in the rebuilt ledger.

        Call this method only once. A staging position is the next offset to copy from Kafka to
        storage. An edge check records that a partition of an edge cluster has lost no records. An
        offset gap is a range of offsets whose records are missing.

        Returns:
            A pair of the content of the lost ledger's backup files, and the offset gaps at the ends
            of logs that these files do not contain.

        Raises:
            Finding: Buckets or staged files refer to a topic or an edge cluster that does not
                exist.
            Unavailable: Storage or the cluster does not respond.
        """
        known, logs = self._put_known_offsets(), self._read_logs()
        self.truncated_topics = {gap.topic for gap in known.gaps if has_lost_end(gap)}
        closed = self._closed_next(self.truncated_topics)
        staged = StagedFileRecovery(
            connection=self.connection, storage=self.sources.storage, ledger=self.result.ledger
        )
        shorter = self._put_staged(logs, closed, staged, known)
        positions = self._put_positions(logs, closed, shorter)
        ends = self._lost_ends(positions, shorter, known.gaps)
        recorded = {(gap.topic, gap.what) for gap in known.gaps}
        found = [
            *ends,
            *(
                gap
                for gap in self._missing_offsets(positions, staged)
                if (gap.topic, gap.what) not in recorded
            ),
        ]
        found += [
            gap
            for gap in self._unproven_logs(logs, staged, known, shorter)
            if (gap.topic, gap.what) not in recorded
        ]
        put_gaps(self.connection, found)
        self.result.lost += [
            gap.what for gap in (*known.gaps, *found) if gap.accepted_at_ms is None
        ]
        return known, [gap for gap in ends if (gap.topic, gap.what) not in recorded]

    def _put_known_offsets(self) -> OffsetBackup:
        found = read_offset_backup(self.sources.storage, self.result.ledger)
        self.result.notes += found.notes
        if found.checks is None:
            self.result.notes.append("the gaps that the lost ledger contained are unknown")
            if self.sources.kafka.mirrored:
                self.result.notes[-1] += (
                    ", and so are the offsets that the mirror had copied: if an edge cluster "
                    "has deleted records of a type's topic, the type stays open until `hourmark "
                    "bucket force` accepts this, even if the records were copied"
                )
        put_checks(self.connection, found.checks or ())
        put_gaps(self.connection, found.gaps)
        return found

    def _read_logs(self) -> PartitionLogs:
        central = self.sources.central
        live = {
            (info.topic_id, n): Partition(info.name, n)
            for info in central.topics(self.topics.all).values()
            for n in info.partitions
        }
        starts, ends = central.starts([*live.values()]), central.ends([*live.values()])
        epochs = {key: getattr(ends[p], "leader_epoch", None) or 0 for key, p in live.items()}
        return PartitionLogs(
            live,
            {key: starts[p] for key, p in live.items()},
            {key: ends[p] for key, p in live.items()},
            epochs,
        )

    def _closed_next(self, changed: Collection[str] = ()) -> dict[Key, int]:
        # `changed`: edge names of topics to omit, because their offsets now refer to other records.
        sure = [chain for t, chain in self.chains.items() if events_topic(t) not in changed]
        return {key: offset for chain in sure for key, offset in chain.closed_next.items()}

    def _put_staged(
        self,
        logs: PartitionLogs,
        closed: Mapping[Key, int],
        staged: StagedFileRecovery,
        known: OffsetBackup,
    ) -> dict[Key, int]:
        # Returns, for each log that has lost its end, the offset up to which it was staged, settled
        # or closed.
        audits = self.topics.audits

        def counts_from(s: OffsetSpan) -> int:
            return (
                self.first_audit_offsets.offset_of(audits[s.topic])
                if s.topic in audits
                else closed.get((s.topic_id, s.partition), 0)
            )

        def is_needed(s: OffsetSpan) -> bool:
            key = s.topic_id, s.partition
            if key not in logs.live and s.topic in audits:
                raise Finding(
                    f"topic {s.topic} partition {s.partition} is not the topic whose promises "
                    f"were staged (id {s.topic_id}), so the offsets in markers do not apply to "
                    "it. Restore that topic, or use a new ledger and a new storage root"
                )
            if not (counts_from(s) < s.end and key in logs.live):
                return False
            is_there = logs.starts[key] <= s.start and s.end <= logs.ends[key]
            return not is_there or (
                s.topic not in audits and self.topics.at_edge(s.topic) in self.truncated_topics
            )

        staged.add_needed_files(is_needed)
        if shorter := self._find_shorter(logs, staged, known):
            staged.add_needed_files(
                lambda s: (s.topic_id, s.partition) in shorter and counts_from(s) < s.end
            )
        self.result.staged_files = len(staged.added_paths)
        self.result.notes += [
            f"{path} cannot be read ({error.why})" for path, error in staged.unreadable.items()
        ]
        return shorter

    def _find_shorter(
        self, logs: PartitionLogs, staged: StagedFileRecovery, offsets: OffsetBackup
    ) -> dict[Key, int]:
        settled = functools.reduce(
            AuditOffsets.maximum, (c.settled_next for c in self.chains.values()), NO_AUDIT_OFFSETS
        )
        self._check_sites(settled)
        audits = {
            key: site
            for key, p in logs.live.items()
            if (site := self.topics.audits.get(p.topic)) is not None
        }
        known = {
            (o.topic_id, o.partition): o.next
            for chain in self.chains.values()
            for o in chain.last.offsets
        }
        known |= {key: settled.offset_of(site) for key, site in audits.items()}
        reached = {key: max(known.get(key, 0), staged.ends[key]) for key in logs.live}
        truncated = self._truncated_logs(logs, staged, offsets)
        return {key: to for key, to in reached.items() if logs.ends[key] < to or key in truncated}

    def _staged_epochs(
        self, staged: StagedFileRecovery, known: OffsetBackup
    ) -> dict[Key, dict[int, int]]:
        # By partition and leader epoch: the offset after the last known staged record.
        found = {key: dict(epochs) for key, epochs in staged.epochs.items()}
        for at in known.staged:
            epochs = found.setdefault((at.topic_id, at.partition), {})
            epochs[at.leader_epoch] = max(at.epoch_next, epochs.get(at.leader_epoch, 0))
        return found

    def _truncated_logs(
        self, logs: PartitionLogs, staged: StagedFileRecovery, known: OffsetBackup
    ) -> set[Key]:
        # The broker can only compare leader epochs before the current one.
        by_epoch = defaultdict[int, dict[Partition, tuple[int, int]]](dict)
        keys = {p: key for key, p in logs.live.items()}
        for key, epochs in self._staged_epochs(staged, known).items():
            for epoch, after in epochs.items() if key in logs.live else ():
                if epoch < logs.epochs[key] and logs.starts[key] <= after:
                    by_epoch[epoch][logs.live[key]] = (after, epoch)
        found = (p for begins in by_epoch.values() for p in self.sources.central.truncated(begins))
        return {keys[p] for p in found}

    def _unproven_logs(
        self,
        logs: PartitionLogs,
        staged: StagedFileRecovery,
        known: OffsetBackup,
        shorter: Mapping[Key, int],
    ) -> list[OffsetGap]:
        # If an audit log's leader has changed since the last record known to be staged, the new
        # leader may have started without the end of the log.
        evidence, gaps = self._staged_epochs(staged, known), []
        for key, p in sorted(logs.live.items()):
            last = max(evidence.get(key, {}), default=0)
            if p.topic in self.topics.audits and key not in shorter and logs.epochs[key] > last:
                what = (
                    f"topic {p.topic} partition {p.partition}: its leader epoch is "
                    f"{logs.epochs[key]}, and the last record known "
                    f"to be staged has {last}: nothing shows that no promises were lost between"
                )
                gaps.append(OffsetGap(topic=AUDIT, accepted_at_ms=None, what=what, lost_end=False))
        return gaps

    def _check_sites(self, settled: AuditOffsets) -> None:
        # The audit records of a site that is not configured would be ignored.
        if gone := sorted(settled.further_sites.keys() - set(self.topics.audits.values())):
            raise Finding(
                f"markers refer to the sites {', '.join(gone)}, which are missing from "
                "kafka.further_edges; add them again"
            )
        first = self.topics.aliases[FIRST_SITE]
        for event_type, chain in self.chains.items() if len(self.topics.aliases) > 1 else ():
            own = central_topic(events_topic(event_type), first)
            if chain.last.offsets and own not in {o.topic for o in chain.last.offsets}:
                raise Finding(
                    f"the last bucket of {event_type} contains no records of {own}; set "
                    "kafka.edge to the original site"
                )

    def _put_positions(
        self, logs: PartitionLogs, closed: Mapping[Key, int], shorter: Mapping[Key, int]
    ) -> dict[Key, StagingPosition]:
        begins = {key: max(start, closed.get(key, 0)) for key, start in logs.starts.items()}
        for key, to in shorter.items():
            begins[key] = to if logs.live[key].topic in self.topics.audits else logs.starts[key]
        gone = {  # also for deleted topics, which the driver reports
            (o.topic_id, o.partition): Partition(o.topic, o.partition)
            for chain in self.chains.values()
            for o in chain.last.offsets
        }
        cluster_id = self.sources.central.cluster_id()
        shards = {topic: self.shards[event_type] for topic, event_type in self.topics.types.items()}
        positions = {
            key: StagingPosition(
                cluster_id=cluster_id,
                topic_id=key[0],
                topic=p.topic,
                partition=p.partition,
                next_offset=begins.get(key, closed.get(key, 0)),
                shard=shards.get(p.topic, DEFAULT_SHARD),
            )
            for key, p in {**gone, **logs.live}.items()
        }
        insert_positions(self.connection, positions.values())
        return positions

    def _lost_ends(
        self,
        positions: Mapping[Key, StagingPosition],
        shorter: Mapping[Key, int],
        known: Sequence[OffsetGap],
    ) -> list[OffsetGap]:
        held = {(gap.topic, gap.what) for gap in known if gap.accepted_at_ms is None}
        moved = [dataclasses.replace(positions[key], next_offset=to) for key, to in shorter.items()]
        gaps = [
            create_truncation_gap(self.topics.at_edge(p.topic), p)
            for p in moved
            if p.topic not in self.topics.hosts
        ]
        self.result.notes += [
            f"{gap.what}: it is staged again from its start" for gap in gaps if gap.topic != AUDIT
        ]
        return [self._accept_if_events(gap) for gap in gaps if (gap.topic, gap.what) not in held]

    def _missing_offsets(
        self, positions: Mapping[Key, StagingPosition], staged: StagedFileRecovery
    ) -> Iterator[OffsetGap]:
        closed = self._closed_next()
        for key, p in sorted(positions.items()):
            if p.topic in self.topics.hosts:
                continue  # later reports replace lost ones
            site = self.topics.audits.get(p.topic)
            needed = (
                closed.get(key, 0) if site is None else self.first_audit_offsets.offset_of(site)
            )
            for first, end in find_uncovered_offsets(
                needed, p.next_offset, staged.spans.get(key, ())
            ):
                yield self._accept_if_events(
                    create_retention_gap(
                        self.topics.at_edge(p.topic), dataclasses.replace(p, next_offset=first), end
                    )
                )

    def _accept_if_events(self, gap: OffsetGap) -> OffsetGap:
        # An accepted gap blocks no hour. Audit records show whether events are missing.
        if gap.topic == AUDIT:
            return gap
        return dataclasses.replace(
            gap, accepted_at_ms=self.sources.now_ms, reason="the ledger was rebuilt"
        )
