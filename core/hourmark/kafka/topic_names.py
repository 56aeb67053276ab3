"""Names of topics; the type's name is the only source of them.

On the central cluster a topic carries the source cluster's alias, as MirrorMaker 2's default
replication policy has it (`edge.events.click`), so that each site can be verified on its own. Where
one cluster is both, names stay as they are.
"""

from __future__ import annotations

import functools
from typing import Final

EVENTS_PREFIX: Final = "events."
AUDIT: Final = "hourmark.audit"
HOSTS: Final = "hourmark.hosts"
TYPES: Final = "hourmark.types"
TOKENS: Final = "hourmark.tokens"  # at the edge alone: no mirror carries it
CONTROL: Final = (HOSTS, AUDIT)  # in the order in which a cut takes their ends


@functools.lru_cache(maxsize=4096)
def events_topic(event_type: str) -> str:
    """The topic of a type at the edge."""
    return EVENTS_PREFIX + event_type


def central_topic(topic: str, edge_alias: str | None) -> str:
    """The topic's name on the central cluster; `edge_alias` None where there is no mirror."""
    return topic if edge_alias is None else f"{edge_alias}.{topic}"


def edge_topic(central: str, edge_alias: str | None) -> str:
    """The inverse of `central_topic`; ValueError for a topic of another site."""
    if edge_alias is None:
        return central
    if not central.startswith(f"{edge_alias}."):
        raise ValueError(f"topic {central} was not mirrored from {edge_alias}")
    return central.removeprefix(f"{edge_alias}.")


def event_type_of_topic(edge_name: str) -> str | None:
    """The type whose topic this is (edge name), or None for a control topic."""
    return edge_name.removeprefix(EVENTS_PREFIX) if edge_name.startswith(EVENTS_PREFIX) else None
