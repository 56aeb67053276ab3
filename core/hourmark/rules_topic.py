"""The topic of rules revisions: read all of it, add to it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException, Producer

from hourmark.config import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import client_settings, quiet_logger
from hourmark.rules import Record, RulesBook
from hourmark.topic_follower import read_topic
from hourmark.topics import TYPES

_LOG = logging.getLogger(__name__)

_FLUSH_S: Final = 30.0


def read_rules(cluster: KafkaCluster) -> RulesBook:
    """Every revision published so far. What is not usable is said, and left out: the ledger has what counts."""
    book = RulesBook()
    for key, value in read_topic(cluster, TYPES, cluster_name="edge"):
        if key is not None and value is not None:
            try:
                book.add(key.decode(), value.decode())
            except ValueError as error:
                _LOG.warning("%s", error)
    return book


def publish(cluster: KafkaCluster, records: Iterable[Record], bytes_max: int) -> None:
    """Append the records, of at most `bytes_max` bytes, and return once all in-sync replicas have them."""
    failures: list[str] = []
    settings = {
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": int(_FLUSH_S * 1000),
        "message_max_bytes": bytes_max,
    }
    producer = Producer(client_settings(cluster, **settings), logger=quiet_logger())

    def delivered(error: object, _: object) -> None:
        if error:
            failures.append(str(error))

    for key, value in records:
        try:
            producer.produce(TYPES, key=key, value=value, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            failures.append(f"{key}: {error}")
        producer.poll(0)
    unsent = producer.flush(_FLUSH_S + 5)
    if unsent or failures:
        raise Unavailable(
            f"not all rules were published to {TYPES} ({failures[0] if failures else f'{unsent} unsent'}); the ledger has them: "
            "run `hourmark types apply` again"
        )
