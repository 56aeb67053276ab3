"""Brokers that clusters named to this process: who connects anew finds a cluster of which no configured address is left.

Brokers come and go while a process runs for months. Its clients follow, but a client made later knows the configuration alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from hourmark.config_groups import KafkaCluster

NAMED_MAX: Final = 16  # of a cluster, those named last: addresses may change for ever

_named: Final[dict[str, dict[str, None]]] = {}  # by the configured addresses, the latest last
_guard: Final = threading.Lock()


def learn(cluster: KafkaCluster, addresses: Iterable[str]) -> None:
    """The cluster named these just now."""
    with _guard:
        known = _named.setdefault(cluster.bootstrap, {})
        for address in addresses:
            known.pop(address, None)
            known[address] = None
        for oldest in list(known)[:-NAMED_MAX]:
            del known[oldest]


def bootstrap_of(cluster: KafkaCluster) -> str:
    """The configured addresses, then the others that the cluster named lately; as clients take them."""
    configured = cluster.bootstrap.split(",")
    with _guard:
        named = list(_named.get(cluster.bootstrap, ()))
    return ",".join([*configured, *sorted(set(named) - set(configured))])
