"""The topic of rules revisions: read all of it, add to it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.compacted_topic import append_all, read_topic
from hourmark.kafka.topic_names import TYPES
from hourmark.rules.revision import Record, RulesBook

_LOG = logging.getLogger(__name__)


def read_rules(cluster: KafkaCluster) -> RulesBook:
    """Every revision published so far.

    What is not usable is said, and left out: the ledger has what counts.
    """
    book = RulesBook()
    for key, value in read_topic(cluster, TYPES, cluster_name="edge"):
        if key is not None and value is not None:
            try:
                book.add(key.decode(), value.decode())
            except ValueError as error:
                _LOG.warning("%s", error)
    return book


def publish_rules(cluster: KafkaCluster, records: Iterable[Record], bytes_max: int) -> None:
    """Append the records, of at most `bytes_max` bytes, and return once all in-sync replicas have
    them.
    """
    try:
        append_all(cluster, TYPES, records, bytes_max)
    except Unavailable as error:
        raise Unavailable(
            f"{error}; the ledger has them all: run `hourmark types apply` again"
        ) from error
