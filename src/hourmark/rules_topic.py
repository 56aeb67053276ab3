"""The topic of rules revisions: read all of it, publish the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Producer

from hourmark.config import KafkaCluster, Parsing
from hourmark.errors import Unavailable, UsageError
from hourmark.event_types import EventType, Source
from hourmark.kafka import client_settings, quiet_logger
from hourmark.rules import Rules, RulesBook, TypeVersion
from hourmark.topic_follower import read_topic
from hourmark.topics import TYPES

_FLUSH_S: Final = 30.0


def read_rules(cluster: KafkaCluster) -> RulesBook:
    """Every revision published so far."""
    book = RulesBook()
    for key, value in read_topic(cluster, TYPES, cluster_name="edge"):
        if key is not None and value is not None:
            book.add(key.decode(), value)
    return book


def check_change(
    latest: Rules | None, types: Sequence[EventType], sources: Sequence[Source], parsing: Parsing, *, may_remove: bool
) -> None:
    """Whether these declarations may follow the revision in force. UsageError if not:

    the bucket length would change (promises are counted by bucket, and closed ones never change), or types or sources in force
    are missing and `may_remove` is not set (their new lines would become dead letters).
    """
    if latest is None:
        return
    if latest.parsing.bucket_seconds != parsing.bucket_seconds:
        raise UsageError(
            f"parsing.bucket_seconds is {parsing.bucket_seconds}, but types were applied with "
            f"{latest.parsing.bucket_seconds}; a root's bucket length is fixed: set it back, or begin a new root and cluster"
        )
    missing = (set(latest.types) - {t.name for t in types}) | (set(latest.sources) - {s.name for s in sources})
    if missing and not may_remove:
        raise UsageError(
            f"{', '.join(sorted(missing))}: in force, but not declared here; their new lines would become dead letters. "
            "Declare them, or mean it with --remove"
        )


def next_rules(
    latest: Rules | None, types: Sequence[EventType], sources: Sequence[Source], schema_ids: dict[str, int], parsing: Parsing
) -> Rules:
    """The revision that these declarations make; the very same as `latest` if nothing changed."""
    versions = {t.name: TypeVersion(t, schema_ids[t.name]) for t in types}
    proposed = Rules((latest.sequence if latest else 0) + 1, versions, {s.name: s for s in sources}, parsing)
    return latest if latest is not None and proposed.same_content(latest) else proposed


def publish(cluster: KafkaCluster, rules: Rules) -> None:
    """Append the revision's records, in order, and return once all in-sync replicas have them."""
    failures: list[str] = []
    producer = Producer(
        client_settings(cluster, acks="all", enable_idempotence=True, delivery_timeout_ms=int(_FLUSH_S * 1000)),
        logger=quiet_logger(),
    )
    for key, value in rules.records():
        producer.produce(TYPES, key=key, value=value, on_delivery=lambda error, _: failures.append(str(error)) if error else None)
    unsent = producer.flush(_FLUSH_S + 5)
    if unsent or failures:
        raise Unavailable(f"rules revision {rules.id} was not published ({failures or unsent}); run `hourmark types apply` again")
