"""A Kafka record without its topic, as `produce_batch` of confluent_kafka takes it: `key` and `value`."""

from __future__ import annotations

Message = dict[str, bytes]
