"""The topic of rules revisions: read all of it, add to it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Producer

from hourmark.config import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import client_settings, quiet_logger
from hourmark.rules import Record, RulesBook
from hourmark.topic_follower import read_topic
from hourmark.topics import TYPES

log = logging.getLogger(__name__)

_FLUSH_S: Final = 30.0


def read_rules(cluster: KafkaCluster) -> RulesBook:
    """Every revision published so far. What is not usable is said, and left out: the ledger has what counts."""
    book = RulesBook()
    for key, value in read_topic(cluster, TYPES, cluster_name="edge"):
        if key is not None and value is not None:
            try:
                book.add(key.decode(), value.decode())
            except ValueError as error:
                log.warning("%s", error)
    return book


def publish(cluster: KafkaCluster, records: Iterable[Record]) -> None:
    """Append the records, and return once all in-sync replicas have them."""
    failures: list[str] = []
    producer = Producer(
        client_settings(cluster, acks="all", enable_idempotence=True, delivery_timeout_ms=int(_FLUSH_S * 1000)),
        logger=quiet_logger(),
    )
    for key, value in records:
        producer.produce(TYPES, key=key, value=value, on_delivery=lambda error, _: failures.append(str(error)) if error else None)
        producer.poll(0)
    unsent = producer.flush(_FLUSH_S + 5)
    if unsent or failures:
        raise Unavailable(
            f"not all rules were published to {TYPES} ({failures[0] if failures else f'{unsent} unsent'}); the ledger has them: "
            "run `hourmark types apply` again"
        )
