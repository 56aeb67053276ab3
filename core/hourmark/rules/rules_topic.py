"""Reading and writing of rules revisions in the topic `hourmark.types`."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.compacted_topic import APPEND_S, append_all, read_topic
from hourmark.kafka.topic_names import TYPES
from hourmark.rules.revision import Record, RulesBook

_LOG = logging.getLogger(__name__)


def read_rules(cluster: KafkaCluster) -> RulesBook:
    """Read all rules revisions that have been published in the Kafka topic `hourmark.types`.

    A rules revision is one numbered version of the declared event types, sources and limits.
    Invalid records are skipped, and a warning is logged. The authoritative revisions are in the
    ledger (the database of the ETL).

    Args:
        cluster: The edge cluster.

    Returns:
        The revisions. Empty if none has been published.

    Raises:
        Unavailable: The cluster does not answer.
    """
    book = RulesBook()
    for key, value in read_topic(cluster, TYPES, cluster_name="edge"):
        if key is not None and value is not None:
            try:
                book.add(key.decode(), value.decode())
            except ValueError as error:
                _LOG.warning("%s", error)
    return book


def publish_rules(
    cluster: KafkaCluster,
    records: Iterable[Record],
    bytes_max: int,
    *,
    timeout_s: float = APPEND_S,
) -> None:
    """Append records of rules revisions to Kafka, and return when all in-sync replicas have them.

    A rules revision is one numbered version of the declared event types, sources and limits. The
    operation is idempotent, because readers ignore records with known keys.

    Args:
        cluster: The edge cluster.
        records: Key and value of each record; see `Rules.records`.
        bytes_max: Maximum size of a record, in bytes.
        timeout_s: Delivery timeout of a record, in seconds.

    Raises:
        Unavailable: Not all records were acknowledged. Run `hourmark types apply` again.
    """
    try:
        append_all(cluster, TYPES, records, bytes_max, timeout_s=timeout_s)
    except Unavailable as error:
        raise Unavailable(
            f"{error}; the ledger contains all records: run `hourmark types apply` again"
        ) from error
