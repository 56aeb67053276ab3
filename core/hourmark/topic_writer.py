"""Appends to a small topic, and returns once all in-sync replicas have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaException, Producer

from hourmark.config_groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import client_settings, quiet_logger

_FLUSH_S: Final = 30.0


def append_all(
    cluster: KafkaCluster, topic: str, records: Iterable[tuple[str, str | None]], bytes_max: int, *, as_java: bool = False
) -> None:
    """Append the records (key and value), of at most `bytes_max` bytes each. Unavailable says what was not taken.

    `as_java`: into the partitions in which Kafka's own programs put these keys.
    """
    failures: list[str] = []
    settings = {
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": int(_FLUSH_S * 1000),
        "message_max_bytes": bytes_max,
        "partitioner": "murmur2_random" if as_java else "consistent_random",
    }
    producer = Producer(client_settings(cluster, **settings), logger=quiet_logger())

    def delivered(error: object, _: object) -> None:
        if error:
            failures.append(str(error))

    for key, value in records:
        try:
            producer.produce(topic, key=key, value=value, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            failures.append(f"{key}: {error}")
        producer.poll(0)
    unsent = producer.flush(_FLUSH_S + 5)
    if unsent or failures:
        raise Unavailable(f"not everything was published to {topic}: {failures[0] if failures else f'{unsent} unsent'}")
