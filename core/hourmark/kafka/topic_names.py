"""Names of Kafka topics, derived from the names of event types.

On the central cluster, a topic's name has the alias of its source cluster as a prefix
(`edge.events.click`), as in MirrorMaker 2's default replication policy, so that each site can be
verified separately. Without a mirror, names are the same on both sides.
"""

from __future__ import annotations

import functools
from typing import Final

EVENTS_PREFIX: Final = "events."
AUDIT: Final = "hourmark.audit"
HOSTS: Final = "hourmark.hosts"
TYPES: Final = "hourmark.types"
TOKENS: Final = "hourmark.tokens"  # on the edge cluster only; not mirrored
CONTROL: Final = (HOSTS, AUDIT)  # in the order in which a cut takes their ends


@functools.lru_cache(maxsize=4096)
def events_topic(event_type: str) -> str:
    """Return the name of the Kafka topic of an event type on the edge cluster.

    Args:
        event_type: Name of the event type, such as `click`.

    Returns:
        A name such as `events.click`.
    """
    return EVENTS_PREFIX + event_type


def central_topic(topic: str, edge_alias: str | None) -> str:
    """Return the name that a topic of the edge cluster has on the central cluster.

    Args:
        topic: The topic's name on the edge cluster.
        edge_alias: MirrorMaker 2's alias of the edge cluster; None if there is no mirror.

    Returns:
        The name with the prefix `<alias>.`; the same name if there is no mirror.
    """
    return topic if edge_alias is None else f"{edge_alias}.{topic}"


def edge_topic(central: str, edge_alias: str | None) -> str:
    """Return the name that a topic of the central cluster has on the edge cluster.

    Args:
        central: The topic's name on the central cluster.
        edge_alias: MirrorMaker 2's alias of the edge cluster; None if there is no mirror.

    Returns:
        The name without the prefix `<alias>.`; the same name if there is no mirror.

    Raises:
        ValueError: The name lacks the prefix: the topic was not mirrored from this edge cluster.
    """
    if edge_alias is None:
        return central
    if not central.startswith(f"{edge_alias}."):
        raise ValueError(f"topic {central} was not mirrored from {edge_alias}")
    return central.removeprefix(f"{edge_alias}.")


def event_type_of_topic(edge_name: str) -> str | None:
    """Return the event type of a Kafka topic.

    Args:
        edge_name: The topic's name on the edge cluster, such as `events.click`.

    Returns:
        The event type, such as `click`. None if the topic is not an event topic.
    """
    return edge_name.removeprefix(EVENTS_PREFIX) if edge_name.startswith(EVENTS_PREFIX) else None
