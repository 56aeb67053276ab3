"""Commits of the consumer: positions by compare-and-set, with the groups staged up to them."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import zstandard
from sqlalchemy import ColumnElement, Connection, Table, insert, select, union

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition, TopicInfo
from hourmark.kafka.topic_names import AUDIT, CONTROL
from hourmark_etl.errors import StaleDriver, TopicReplaced
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, select_by_names
from hourmark_etl.ledger.digests import check_digest, update_rows, with_digest
from hourmark_etl.ledger.hosts.reporters import put_reports
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap, open_gaps, put_gaps
from hourmark_etl.ledger.partitions.read_errors import (
    ReadError,
    delete_passed_read_errors,
    delete_read_error,
    put_read_errors,
)
from hourmark_etl.ledger.staged.set_aside import put_set_aside
from hourmark_etl.model import (
    DEFAULT_SHARD,
    FIRST_SITE,
    AuditGroup,
    StagedBatch,
    StagedFile,
    StagedGroup,
    StagingPosition,
    from_columns,
    to_columns,
    to_signed,
)

_LOG = logging.getLogger(__name__)


def positions(database: Database, cluster_id: str) -> list[StagingPosition]:
    """Return the staging position of every known partition of a Kafka cluster.

    A staging position is the next offset of a topic-partition to stage, that is, to copy from Kafka
    to files on storage. It moves only when a batch is committed.

    Args:
        database: The ledger (the ETL's state database).
        cluster_id: Id of the Kafka cluster.

    Returns:
        One position per topic-partition; empty if nothing has been staged from the cluster.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    query = select(tables.positions).where(tables.positions.c.cluster_id == cluster_id)
    return [decode_position(row) for row in database.fetch(query).mappings()]


def read_partition_positions(database: Database, partition: Partition) -> list[StagingPosition]:
    """Return the staging positions (next offset to copy to storage) of one topic-partition.

    A topic that was deleted and recreated under the same name has one position per topic id.

    Args:
        database: The ledger (the ETL's state database).
        partition: Topic name and partition number on the central cluster.

    Returns:
        The positions; empty if the partition has never been staged.

    Raises:
        DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
    """
    kept = tables.positions
    query = select(kept).where(
        kept.c.topic == partition.topic, kept.c.partition == partition.partition
    )
    return [decode_position(row) for row in database.fetch(query).mappings()]


def decode_position(row: Mapping[Any, Any]) -> StagingPosition:
    """Convert a row of the table `positions` to a staging position.

    A staging position is the next offset of a topic-partition to copy from Kafka to storage.

    Args:
        row: Values by column name; all columns must be present.

    Returns:
        The staging position of one topic-partition.

    Raises:
        DamagedRow: The row does not match its digest; restore or rebuild the ledger.
    """
    check_digest(tables.positions, row)
    return from_columns(StagingPosition, row)


def insert_positions(connection: Connection, new_positions: Iterable[StagingPosition]) -> None:
    """Insert the staging positions (next offset to copy to storage) of new partitions.

    Args:
        connection: The caller's transaction.
        new_positions: Positions of partitions that the ledger does not have yet.
    """
    if rows := [with_digest(tables.positions, dataclasses.asdict(p)) for p in new_positions]:
        connection.execute(insert(tables.positions), rows)


def _change_positions(
    connection: Connection, *where: ColumnElement[bool], **values: str | int | None
) -> int:
    table = tables.positions
    found = connection.execute(select(table).where(*where)).mappings().all()
    for row in found:
        check_digest(table, row)
    update_rows(connection, table, [(row, values) for row in found])
    return len(found)


def insert_new_positions(
    database: Database, lease: Lease, wanted: Collection[StagingPosition]
) -> None:
    """Insert the staging positions of partitions that the ledger does not have yet.

    A staging position is the next offset to copy from Kafka to storage. The positions of known
    partitions are not changed.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the consumer (streaming query) that stages the partitions.
        wanted: Initial positions of all partitions to stage.

    Raises:
        TopicReplaced: The id of a topic or of the cluster differs from the ledger, so the ledger's
            offsets refer to other records. Nothing was changed.
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        clusters = set(
            connection.execute(select(tables.positions.c.cluster_id).distinct()).scalars()
        )
        if other := clusters - {p.cluster_id for p in wanted}:
            raise TopicReplaced(
                f"the positions in the ledger belong to cluster {', '.join(sorted(other))}, but "
                "kafka.central is a different cluster; restore the previous setting, or use a "
                "new ledger and a new storage root"
            )
        for p in wanted:
            of_topic = (
                tables.positions.c.cluster_id == p.cluster_id,
                tables.positions.c.topic == p.topic,
            )
            known = [
                decode_position(row)
                for row in connection.execute(select(tables.positions).where(*of_topic)).mappings()
            ]
            if any(k.topic_id != p.topic_id for k in known):
                raise TopicReplaced(
                    f"topic {p.topic} has id {p.topic_id}, but in the ledger it has id "
                    f"{known[0].topic_id}: it was deleted and recreated, and records of the old "
                    "topic may be missing. Restore the old topic; no bucket closes until this "
                    "is resolved"
                )
            if not any(k.partition == p.partition for k in known):
                insert_positions(connection, [p])


def skip_expired_offsets(
    database: Database,
    lease: Lease,
    to_edge_topic: Callable[[str], str],
    starts: Mapping[StagingPosition, int],
) -> None:
    """Advance staging positions past records that retention deleted before they were staged.

    A staging position is the next offset to copy from Kafka to storage. The skipped offsets are
    stored as an open offset gap of the topic, which keeps buckets from being closed until an
    operator's override accepts it.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the consumer (streaming query) that stages the partitions.
        to_edge_topic: Function that maps a topic name on the central cluster to its name at the
            edge.
        starts: Maps each current position to the partition's log start offset. Positions at or
            after the log start are left unchanged.

    Raises:
        StaleDriver: Another process has taken over the lease, or a position has changed; nothing
            was changed.
    """
    passed = {p: start for p, start in starts.items() if start > p.next_offset}
    if passed:
        with database.transaction(lease) as connection:
            _compare_and_set(
                connection, [(p, p.with_next_offset(start)) for p, start in passed.items()]
            )
            put_gaps(
                connection,
                [
                    create_retention_gap(to_edge_topic(p.topic), p, start)
                    for p, start in passed.items()
                ],
            )


def restart_truncated_logs(
    database: Database,
    lease: Lease,
    to_edge_topic: Callable[[str], str],
    starts: Mapping[StagingPosition, int],
    now_ms: int,
) -> None:
    """Adjust the staging positions of partitions whose logs have lost records at their end.

    Such a log ends before its staging position (next offset to copy from Kafka to storage), so new
    records will reuse the offsets of lost ones.

    - Topics of events and host reports are staged again from the log start. Duplicate events are
      dropped later. A lost range of events is stored as an accepted offset gap, which does not keep
      hours from closing.
    - Audit topics keep their position, because closed buckets refer to audit offsets. The loss is
      stored as an open offset gap, which keeps the hours of every event type from closing until an
      operator's override accepts it.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the consumer that stages the partitions.
        to_edge_topic: Maps a topic name on the central cluster to its name at the edge.
        starts: Maps each affected staging position to the log start offset.
        now_ms: Current time, Unix milliseconds.

    Raises:
        StaleDriver: Another process has taken over the lease, or a position has changed.
    """
    again = {p: start for p, start in starts.items() if to_edge_topic(p.topic) != AUDIT}
    held = starts.keys() - again.keys()
    record_truncated_audit_logs(database, lease, held)
    if known := [p for p in held if p.leader_epoch is not None]:
        with database.transaction(
            lease
        ) as connection:  # its epoch has been compared; what comes is read on
            _compare_and_set(connection, [(p, p.with_next_offset(p.next_offset)) for p in known])
    if not again:
        return
    for p, start in again.items():
        _LOG.error(
            "topic %s partition %d was staged up to offset %d, but its log ends before this "
            "offset: it lost records. It is staged again from offset %d. `hourmark mirror "
            "verify` lists the missing records; docs/runbooks/mirror-target-truncated.md "
            "describes how to recover them",
            p.topic,
            p.partition,
            p.next_offset,
            start,
        )
    with database.transaction(lease) as connection:
        _compare_and_set(connection, [(p, p.with_next_offset(start)) for p, start in again.items()])
        gaps = [
            create_truncation_gap(to_edge_topic(p.topic), p)
            for p in again
            if to_edge_topic(p.topic) not in CONTROL
        ]
        put_gaps(
            connection,
            [
                dataclasses.replace(gap, accepted_at_ms=now_ms, reason="staged again")
                for gap in gaps
            ],
        )


def record_truncated_audit_logs(
    database: Database, lease: Lease, truncated_positions: Collection[StagingPosition]
) -> None:
    """Store an open gap for each audit partition whose log ends before its staging position.

    Such a log has lost records that were already staged. The open gap keeps the buckets of every
    event type from being closed until an operator's override accepts it. A gap that is already open
    is not stored again.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease under which the ledger is changed.
        truncated_positions: Staging positions of the affected partitions. If empty, nothing is
            stored.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    known = open_gaps(database)
    if gaps := [
        gap for p in truncated_positions if (gap := create_truncation_gap(AUDIT, p)) not in known
    ]:
        with database.transaction(lease) as connection:
            put_gaps(connection, gaps)


def create_truncation_gap(topic: str, position: StagingPosition) -> OffsetGap:
    """Create an offset gap for a log that has lost records after they were staged.

    Staging copies Kafka records to storage; a staging position is the next offset to copy. The gap
    is returned, not stored.

    Args:
        topic: Name of the topic on the edge cluster.
        position: Staging position of the partition on the central cluster. The log ends before it.

    Returns:
        An open gap, which keeps hours from closing once it is stored.
    """
    what = (
        f"topic {position.topic} partition {position.partition}: it was staged to offset {position.next_offset}, "
        "and its log lost records before"
    )
    return OffsetGap(topic=topic, accepted_at_ms=None, what=what, lost_end=True)


def create_retention_gap(topic: str, position: StagingPosition, end: int) -> OffsetGap:
    """Create an offset gap for records that retention deleted before they were staged.

    Staging copies Kafka records to storage; a staging position is the next offset to copy. The gap
    is returned, not stored.

    Args:
        topic: Name of the topic on the edge cluster.
        position: Staging position of the partition on the central cluster. Its offset is the first
            missing one.
        end: Offset after the last missing record.

    Returns:
        An open gap, which keeps hours from closing once it is stored.
    """
    what = (
        f"topic {position.topic} partition {position.partition}: offsets [{position.next_offset}, {end}) are lost "
        "to retention"
    )
    return OffsetGap(topic=topic, accepted_at_ms=None, what=what, lost_end=False)


def check_topic_ids(database: Database, infos: Iterable[TopicInfo]) -> None:
    """Check that topics of the central cluster still have the ids that are stored in the ledger.

    Args:
        database: The ledger (the ETL's state database).
        infos: Metadata of the topics; topics that the ledger does not have are ignored.

    Raises:
        TopicReplaced: The id of a topic has changed, so the topic was deleted and recreated.
    """
    known = dict(
        database.fetch(select(tables.positions.c.topic, tables.positions.c.topic_id)).all()
    )
    for info in infos:
        if known.get(info.name, info.topic_id) != info.topic_id:
            raise TopicReplaced(
                f"topic {info.name} has id {info.topic_id}, but staging uses id "
                f"{known[info.name]}: the topic was deleted and recreated on the central "
                "cluster. No bucket closes until this is resolved"
            )


def read_type_shards(database: Database) -> dict[str, str]:
    """Return the name of the shard that stages each event type.

    A shard is a set of topics that one consumer stages.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Shard name by event type; empty if the ledger has no event types.
    """
    return dict(database.fetch(select(tables.frontiers.c.type, tables.frontiers.c.shard)).all())


def shards(database: Database) -> frozenset[str]:
    """Return the names of all shards in the ledger, including the default shard.

    A shard is a set of topics that one consumer stages. The default shard always exists. It also
    stages the audit records and the host reports.

    Args:
        database: The ledger (the ETL's state database).
    """
    found = database.fetch(
        union(select(tables.frontiers.c.shard), select(tables.positions.c.shard))
    ).scalars()
    return frozenset({DEFAULT_SHARD, *found})


def assign_topics_to_shards(database: Database, lease: Lease, shards: Mapping[str, str]) -> None:
    """Assign the partitions of topics to other shards (sets of topics that one consumer stages).

    Only the consumer that stages the topics may call this, between two batches.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of this consumer.
        shards: Maps each topic name on the central cluster to the name of its new shard.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        for topic, shard in shards.items():
            _change_positions(connection, tables.positions.c.topic == topic, shard=shard)


def skip_unreadable(
    database: Database, to_edge_topic: Callable[[str], str], error: ReadError, end: int
) -> OffsetGap:
    """Skip Kafka offsets that cannot be read, and store them as an open offset gap.

    The gap keeps the hourly buckets of the topic's event type open until an operator's override
    accepts it. A gap in a topic of audit records or host reports keeps the buckets of every type
    open.

    Args:
        database: The ledger (the ETL's state database).
        to_edge_topic: Function that maps a topic name on the central cluster to its name at the
            edge.
        error: The stored read error of the partition. Its offset is the first one to skip.
        end: Offset at which staging continues, that is, the offset after the last skipped one.

    Returns:
        The stored gap.

    Raises:
        UsageError: Staging of the partition no longer waits at the error's offset; nothing was
            changed.
    """
    rows = tables.positions
    what = (
        f"topic {error.topic} partition {error.partition}: offsets [{error.offset}, {end}) "
        "could not be read, and an operator "
        "skipped them"
    )
    gap = OffsetGap(
        topic=to_edge_topic(error.topic), accepted_at_ms=None, what=what, lost_end=False
    )
    with database.transaction() as connection:
        delete_read_error(connection, error)
        here = (
            rows.c.topic == error.topic,
            rows.c.partition == error.partition,
            rows.c.next_offset == error.offset,
        )
        if (
            _change_positions(
                connection, *here, next_offset=end, leader_epoch=None, epoch_next=None
            )
            != 1
        ):
            raise UsageError(
                f"topic {error.topic} partition {error.partition} is no longer at offset "
                f"{error.offset}; run the command again"
            )
        put_gaps(connection, [gap])
    return gap


def commit_batch(
    database: Database,
    lease: Lease,
    batch: StagedBatch,
    unread: Sequence[ReadError] = (),
    *,
    now_ms: int = 0,
) -> list[ReadError]:
    """Commit a staged batch to the ledger in one transaction.

    The transaction advances the staging positions (next offsets to copy from Kafka to storage) from
    the batch's start to its end. It also stores the batch's files and host reports, the records
    that were set aside because no bucket can contain them, and the current read errors.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the consumer (streaming query) that stages the partitions.
        batch: The batch.
        unread: Read errors, one for each partition in which reading failed.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The new errors in `unread`, that is, those for which the ledger had no error at the same
        offset; empty if there are none.

    Raises:
        StaleDriver: Another process has taken over the lease, or a position in the ledger differs
            from the batch's start; nothing was changed.
    """
    with database.transaction(lease) as connection:
        moved = list(zip(batch.starts, batch.ends, strict=True))
        assert all(end.next_offset >= start.next_offset for start, end in moved), (
            "a batch cannot end before it begins"
        )
        _compare_and_set(connection, moved, keep_epochs=True)
        insert_staged_files(connection, batch)
        put_set_aside(connection, batch.set_aside, now_ms)
        put_reports(connection, batch.reports)
        delete_passed_read_errors(
            connection, {end.topic_partition: end.next_offset for end in batch.ends}
        )
        return put_read_errors(connection, unread)


def insert_staged_files(connection: Connection, batch: StagedBatch) -> None:
    """Insert ledger rows for the staged files of a batch and for their groups.

    A staged file contains records that were copied from Kafka. A group is the part of a file with
    the rows of one event type and hour. New groups are not assigned to a bucket. The batch's
    positions, set-aside records and reports are not stored.

    Args:
        connection: The caller's transaction.
        batch: The batch.
    """
    file_ids = {f.path: _insert_file(connection, batch.folder, f) for f in batch.files}
    for table, groups in ((tables.groups, batch.groups), (tables.audit_groups, batch.audit_groups)):
        if groups:
            connection.execute(
                insert(table),
                [{"file_id": file_ids[g.path], **_group_row(table, g)} for g in groups],
            )


def _group_row(table: Table, g: StagedGroup | AuditGroup) -> dict[str, Any]:
    value_sum = None if g.value_sum is None else to_signed(g.value_sum)
    row = to_columns(g, low64_sum=to_signed(g.low64_sum), value_sum=value_sum)
    path = row.pop("path")
    if isinstance(g, StagedGroup):
        row["schema_ids"] = json.dumps(g.schema_ids)
    else:
        row["site"] = None if g.site == FIRST_SITE else g.site
    return with_digest(table, row, path)


def _compare_and_set(
    connection: Connection,
    moved: Sequence[tuple[StagingPosition, StagingPosition]],
    *,
    keep_epochs: bool = False,
) -> None:
    # With keep_epochs, an end without epoch_next keeps the epoch: no record was staged. An end with
    # epoch_next but without an epoch clears it: the leader of the last record is unknown, and with
    # the old epoch a reader would report a truncated log.
    topic_ids = sorted({start.topic_id for start, _ in moved})
    of_clusters = tables.positions.c.cluster_id.in_({start.cluster_id for start, _ in moved})
    rows = select_by_names(
        connection,
        select(tables.positions).where(of_clusters),
        tables.positions.c.topic_id,
        topic_ids,
    )
    known = {(row["cluster_id"], row["topic_id"], row["partition"]): row for row in rows}
    changes = []
    for start, end in moved:
        key = (start.cluster_id, start.topic_id, start.partition)
        assert key == (end.cluster_id, end.topic_id, end.partition)
        row = known.get(key)
        if row is None or row["next_offset"] != start.next_offset:
            raise StaleDriver(
                f"topic {start.topic} partition {start.partition}: this batch began at offset "
                f"{start.next_offset}, which is no longer the position in the ledger; the batch "
                "is discarded. Start the driver again; it continues from the ledger"
            )
        check_digest(tables.positions, row)
        at: dict[str, int | None] = {"next_offset": end.next_offset}
        if not (keep_epochs and end.epoch_next is None):
            at |= {"leader_epoch": end.leader_epoch, "epoch_next": end.epoch_next}
        changes.append((row, at))
    update_rows(connection, tables.positions, changes)


def _insert_file(connection: Connection, folder: str, file: StagedFile) -> int:
    observed_from_ms, observed_to_ms = file.observed_ms or (None, None)
    row = {
        "path": file.path,
        "batch": folder,
        "kind": file.kind,
        "rows": file.rows,
        "compared": False,
        "spans": zstandard.compress(json.dumps([s.to_list() for s in file.spans]).encode()),
        "observed_from_ms": observed_from_ms,
        "observed_to_ms": observed_to_ms,
    }
    key = connection.execute(
        insert(tables.staged_files).values(with_digest(tables.staged_files, row))
    ).inserted_primary_key
    assert key is not None
    return int(key[0])
