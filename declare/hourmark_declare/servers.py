"""Opens the servers to which declarations are applied: registry, Kafka clusters and ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from hourmark.avro.registry import SchemaRegistry
from hourmark.config.groups import KafkaSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_setup import ensure_topics
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import Record, Rules, RulesBook
from hourmark.rules.rules_topic import publish_rules, read_rules
from hourmark.rules.topics import central_topics, edge_topics
from hourmark_declare.apply import ApplyTargets
from hourmark_etl.ledger.maintenance.existing import open_or_create_ledger
from hourmark_etl.ledger.rules import LedgerRules


class EdgeRulesTopic:
    """The Kafka topic `hourmark.types` on the edge cluster of one site.

    The topic contains all revisions of the rules: event types, sources and limits. Delivery
    services read the rules from this topic.

    Args:
        kafka: Kafka settings of the site.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._cluster, self._bytes_max = kafka.edge, kafka.max_message_bytes

    def read(self) -> RulesBook:
        """Read all records of the topic.

        Returns:
            All revisions of the rules; an empty `RulesBook` if the topic has no records.

        Raises:
            Unavailable: The Kafka cluster does not respond.
        """
        return read_rules(self._cluster)

    def publish(self, records: Sequence[Record]) -> None:
        """Append records to the topic and wait until all in-sync replicas have stored them.

        Args:
            records: Keys and values, in the order in which they are appended.

        Raises:
            Unavailable: The Kafka cluster does not acknowledge the records.
        """
        publish_rules(self._cluster, records, self._bytes_max)


@contextlib.contextmanager
def open_targets(config: Config, report: Callable[[str], None]) -> Iterator[ApplyTargets]:
    """Connect to the configured schema registry, Kafka clusters and ledger for a `with` block.

    The ledger is the database of the ETL, which is created if it does not exist. Connections are
    closed at the end of the block.

    Args:
        config: Configuration with the addresses of the servers.
        report: Function that receives one line of text for each completed step.

    Yields:
        The clients, to be passed to `apply_declarations` or `repair_rules`.

    Raises:
        NoLedger: The ledger is empty or missing although the storage contains closed buckets. It
            was lost and must be restored.
        Unavailable: A server does not respond.
    """
    with (
        contextlib.closing(SchemaRegistry(config.registry)) as registry,
        open_or_create_ledger(config) as ledger,
    ):

        def create_topics(types: Sequence[EventType]) -> list[str]:
            created: list[str] = []
            for kafka in config.kafka.sites:
                if (
                    kafka.central is not None
                ):  # before the edge's, or the mirror would create remote topics with other settings
                    created += ensure_topics(
                        Cluster(kafka.central, "central"), central_topics(kafka, types)
                    )
                created += ensure_topics(Cluster(kafka.edge, "edge"), edge_topics(kafka, types))
            return created

        yield ApplyTargets(
            ledger=LedgerRules(ledger),
            registry=registry,
            topics=[EdgeRulesTopic(kafka) for kafka in config.kafka.sites],
            create_topics=create_topics,
            report=report,
            record_bytes_max=config.kafka.max_message_bytes,
        )


def read_applied_rules(config: Config) -> Rules | None:
    """Read the active rules, with the declared types and sources, from the edge cluster.

    Args:
        config: Configuration with the address of the edge cluster.

    Returns:
        The latest revision in the Kafka topic `hourmark.types`; None if no types have been applied.

    Raises:
        Unavailable: The edge cluster does not respond.
    """
    return read_rules(config.kafka.edge).latest
