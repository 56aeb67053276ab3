"""Skips offsets that cannot be read, or control records that no delivery service wrote."""

from __future__ import annotations

import functools
import logging
from typing import Final

from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark.kafka.clients import Cluster, Partition
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.ledger.partitions.offset_gaps import OffsetGap
from hourmark_etl.ledger.partitions.read_errors import read_errors
from hourmark_etl.model import OffsetSpan
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.read import SpanReader, UnreadablePartition
from hourmark_etl.staging.stage import find_first_valid_offset
from hourmark_etl.topics import CentralTopicNames

_LOG = logging.getLogger(__name__)
_PROBE_STALL_S: Final = 5.0


def skip_unreadable(config: Config, topic: str, partition: int) -> OffsetGap:
    """Skip the records of a partition that cannot be read, so that staging can continue.

    Staging copies Kafka records to files on storage. The skipped offsets are recorded in the ledger
    (the ETL's state database) as a gap. Hours that may depend on these records stay open until an
    operator's override accepts the gap.

    Args:
        config: The configuration.
        topic: Name of the topic on the central cluster.
        partition: Partition number.

    Returns:
        The gap that was recorded.

    Raises:
        UsageError: Staging of this partition is not blocked, or the partition can be read again.
        NoLedger: The ledger does not exist.
    """
    with open_existing_ledger(config) as database:
        error = read_errors(database).get(Partition(topic, partition))
        if error is None:
            raise UsageError(
                f"staging does not wait for topic {topic} partition {partition}; `hourmark "
                "bucket why` shows what it waits for"
            )
        end = find_first_stageable_offset(config, error.topic_partition, error.offset)
        if end == error.offset:
            raise UsageError(
                f"topic {topic} partition {partition} can be read from offset {end} again; a "
                "running driver stages it"
            )
        gap = ledger.skip_unreadable(
            database, CentralTopicNames.from_settings(config.kafka).at_edge, error, end
        )
    _LOG.warning(
        "%s. Hours that may lack these records are closed only by an override (`hourmark bucket "
        "force`)",
        gap.what,
    )
    return gap


def find_first_stageable_offset(config: Config, partition: Partition, offset: int) -> int:
    """Return the first offset of a partition that can be read and staged (copied to storage).

    On event topics, this is the first readable offset, because malformed records do not block
    staging. On control topics (audit records, host reports), the record must also be well-formed.

    Args:
        config: The configuration.
        partition: Topic-partition on the central cluster.
        offset: Offset at which the search starts.

    Returns:
        The offset; the partition's end offset if no record can be staged.
    """
    offset, of = (
        find_first_readable_offset(config, partition, offset),
        CentralTopicNames.from_settings(config.kafka),
    )
    if partition.topic not in {*of.audits, *of.hosts}:
        return offset
    log_end = Cluster(config.kafka.central_cluster, "central").ends([partition])[partition]
    span = OffsetSpan(
        topic=partition.topic, topic_id="", partition=partition.partition, start=offset, end=log_end
    )
    plan = StagePlan(
        folder="",
        bucket_seconds=config.parsing.bucket_seconds,
        types={},
        audits=of.audits,
        hosts=of.hosts,
    )
    unread: list[UnreadablePartition] = []
    with SpanReader(
        config.kafka.central_cluster, config.kafka.max_message_bytes, stall_s=_PROBE_STALL_S
    ) as reader:
        for table, spans, _ in reader.read([ReadSpan(span, 1 << 62)], unread=unread):
            if (valid := find_first_valid_offset(table, plan)) is not None:
                return offset if valid == table.column("offset")[0].as_py() else valid
            if len(table):
                offset = spans[0].end
    return offset


def find_first_readable_offset(config: Config, partition: Partition, offset: int) -> int:
    """Return the first offset of a partition that can be read.

    Kafka consumers read whole record batches, so all offsets of a damaged batch are unreadable. The
    function searches with growing steps, and then by bisection.

    Args:
        config: The configuration.
        partition: Topic-partition on the central cluster.
        offset: Offset at which the search starts.

    Returns:
        The offset; the partition's end offset if nothing can be read.
    """
    log_end = Cluster(config.kafka.central_cluster, "central").ends([partition])[partition]
    reads = functools.partial(_can_read, config, partition, log_end)
    if offset >= log_end or reads(offset):
        return offset
    bad, step = offset, 1
    while (good := min(bad + step, log_end)) < log_end and not reads(good):
        bad, step = good, 2 * step
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if reads(middle) else (middle, good)
    return good


def _can_read(config: Config, partition: Partition, log_end: int, offset: int) -> bool:
    span = OffsetSpan(
        topic=partition.topic, topic_id="", partition=partition.partition, start=offset, end=log_end
    )
    unread: list[UnreadablePartition] = []
    kafka = config.kafka
    with SpanReader(
        kafka.central_cluster, kafka.max_message_bytes, stall_s=_PROBE_STALL_S
    ) as reader:
        return any(piece.spans for piece in reader.read([ReadSpan(span, 1)], unread=unread))
