"""The compacted topic `hourmark.tokens`, which exists at the edge site only.

It is created with the first token. Anyone who can write to the topic can create valid tokens, so
restrict it with Kafka ACLs.
"""

from __future__ import annotations

import logging
from typing import Final

from hourmark.config.groups import KafkaSettings
from hourmark.kafka.clients import Cluster, topic_settings
from hourmark.kafka.compacted_topic import append_all, read_topic
from hourmark.kafka.topic_names import TOKENS
from hourmark.kafka.topic_setup import TopicSpec, ensure_topics
from hourmark_delivery_service.access.token import Token

_LOG = logging.getLogger(__name__)

TOKEN_BYTES_MAX: Final = (
    1 << 20
)  # of a record; also what one poll of a topic of tokens may hold many of


def read_tokens(kafka: KafkaSettings) -> dict[str, Token]:
    """Read all tokens, including revoked ones, from the topic `hourmark.tokens`.

    Invalid records are logged and skipped.

    Args:
        kafka: Settings of the edge Kafka cluster.

    Returns:
        A dict that maps token ids to tokens. Empty if the topic does not exist.

    Raises:
        Unavailable: If Kafka cannot be reached.
    """
    found: dict[str, Token] = {}
    for key, value in read_topic(kafka.edge, TOKENS, cluster_name="edge"):
        token_id = (key or b"").decode("latin-1")
        found.pop(token_id, None)
        if value is None:
            continue
        try:
            found[token_id] = Token.from_json(token_id, value)
        except ValueError as error:
            _LOG.warning("the record %.40r of %s cannot be read: %.500s", token_id, TOKENS, error)
    return found


def write_token(kafka: KafkaSettings, token: Token) -> None:
    """Write a token to the topic `hourmark.tokens`, creating the topic if it does not exist.

    Returns once all in-sync replicas have stored the record. An existing record with the same token
    id is replaced.

    Args:
        kafka: Settings of the edge Kafka cluster.
        token: Token to write.

    Raises:
        Unavailable: If Kafka cannot be reached or does not store the record.
        Finding: If the topic exists but does not have the required settings.
    """
    ensure_topics(Cluster(kafka.edge, "edge"), [_wanted(kafka)])
    append_all(kafka.edge, TOKENS, [(token.id, token.to_json())], TOKEN_BYTES_MAX)


def _wanted(kafka: KafkaSettings) -> TopicSpec:
    settings = topic_settings(
        kafka.retention_hours, kafka.max_message_bytes, kafka.edge.min_insync_replicas
    )
    return TopicSpec(TOKENS, 1, {**settings, "cleanup.policy": "compact", "retention.ms": "-1"})
