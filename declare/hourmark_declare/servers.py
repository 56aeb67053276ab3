"""The servers that declarations are applied to: registry, the clusters of all sites, ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from hourmark.avro.registry import SchemaRegistry
from hourmark.config.groups import Kafka
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_setup import ensure_topics
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import Record, Rules, RulesBook
from hourmark.rules.rules_topic import publish, read_rules
from hourmark_declare.apply import Outside
from hourmark_declare.topics import central_topics, edge_topics
from hourmark_etl.ledger.existing import open_or_create_ledger
from hourmark_etl.ledger.rules import LedgerRules


class EdgeTopic:
    """The topic `hourmark.types` of the edge cluster."""

    def __init__(self, kafka: Kafka) -> None:
        self._cluster, self._bytes_max = kafka.edge, kafka.max_message_bytes

    def read(self) -> RulesBook:
        """All that it holds."""
        return read_rules(self._cluster)

    def publish(self, records: Sequence[Record]) -> None:
        """Return once all in-sync replicas have them."""
        publish(self._cluster, records, self._bytes_max)


@contextlib.contextmanager
def servers(config: Config, say: Callable[[str], None]) -> Iterator[Outside]:
    """Connections to all of them, as the configuration names them. The ledger is made where there
    is none, and none is lost.
    """
    with (
        contextlib.closing(SchemaRegistry(config.registry)) as registry,
        open_or_create_ledger(config) as ledger,
    ):

        def make_topics(types: Sequence[EventType]) -> list[str]:
            created: list[str] = []
            for kafka in config.kafka.sites:
                if (
                    kafka.central is not None
                ):  # before the edge's: the mirror would make a remote topic, with other settings
                    created += ensure_topics(
                        Cluster(kafka.central, "central"), central_topics(kafka, types)
                    )
                created += ensure_topics(Cluster(kafka.edge, "edge"), edge_topics(kafka, types))
            return created

        yield Outside(
            ledger=LedgerRules(ledger),
            registry=registry,
            topics=[EdgeTopic(kafka) for kafka in config.kafka.sites],
            make_topics=make_topics,
            say=say,
            record_bytes_max=config.kafka.max_message_bytes,
        )


def applied_rules(config: Config) -> Rules | None:
    """The revision that services use now, or None before the first `types apply`."""
    return read_rules(config.kafka.edge).latest
