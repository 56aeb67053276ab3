"""A stack whose brokers give each of those who ask an address of its own: a link, which can be a
bad network.

A Kafka client connects to the addresses that a broker names on the listener it was asked on. So
each broker has a listener more for everybody who can be cut off from it, and names there the port
of a link to it. Who looks from outside uses the listener that the stack has anyway.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.faults.chaos.link import Link, Network

from hourmark.config.toml_text import render_toml
from hourmark.process.durable import write_durably
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.config_file import render_worker_config
from hourmark_infra.stack.kafka import broker_properties, render_properties
from hourmark_infra.stack.layout import CLUSTERS, MIRRORS, free_ports
from hourmark_infra.stack.servers import Programs

SERVICES: Final = "services"
MIRROR: Final = "mirror"
DRIVER: Final = "driver"
BROKERS: Final = "brokers"  # of each other: replication and transactions, not votes
ASKING: Final[Mapping[str, tuple[str, ...]]] = {
    "edge": (SERVICES, MIRROR, DRIVER, BROKERS),
    "central": (MIRROR, DRIVER, BROKERS),
}

_LINK: Final = "-link"


class Way(NamedTuple):
    """From somebody to a broker: where it listens for them, and the port of the link, which it
    names.
    """

    listens: int
    named: int


class LinkedStack(LocalStack):
    """Made by `load_or_create`, as any; before `up`, `link` says where all ways are."""

    ways: Mapping[str, Way] = {}

    def link(self, network: Network) -> dict[str, Link]:
        """A link for each way, by its name (`way_name`)."""
        names = tuple(
            way_name(who, cluster, node)
            for cluster in CLUSTERS
            for node in self.layout.nodes(cluster)
            for who in ASKING[cluster]
        )
        ports = self._free_ports((*(f"{name}{of}" for name in names for of in ("", _LINK)),))
        self.ways = {name: Way(ports[name], ports[f"{name}{_LINK}"]) for name in names}
        return {
            name: Link(way.named, ("127.0.0.1", way.listens), network)
            for name, way in self.ways.items()
        }

    def bootstrap(self, who: str, cluster: str) -> str:
        """As somebody's configuration has it."""
        return ",".join(
            _address(self.ways[way_name(who, cluster, node)].named)
            for node in self.layout.nodes(cluster)
        )

    def write_settings(self, programs: Programs) -> None:
        """As any stack's; brokers with a listener for each who asks, the mirror's workers by their
        own.
        """
        super().write_settings(programs)
        for cluster in CLUSTERS:
            for node in self.layout.nodes(cluster):
                file = self.layout.settings / f"{cluster}-{node}.properties"
                write_durably(file, render_properties(self._properties(cluster, node)).encode())
        settings = tomllib.loads(self.layout.config_file.read_text())
        for cluster in CLUSTERS:
            settings["kafka"][cluster]["bootstrap"] = self.bootstrap(MIRROR, cluster)
        text = render_toml(settings)
        write_durably(self.layout.worker_file(MIRRORS[0]), text.encode())
        for worker in self.layout.shape.mirrors[1:]:
            write_durably(
                self.layout.worker_file(worker),
                render_worker_config(self.layout, text, worker).encode(),
            )

    def _free_ports(self, names: tuple[str, ...]) -> dict[str, int]:
        """None of them one that a server of the stack will take."""
        while True:
            ports = free_ports(names)
            if not {*ports.values()} & {*self.layout.ports.values()}:
                return ports

    def _properties(self, cluster: str, node: int) -> dict[str, str]:
        values = broker_properties(self.layout, cluster, node)
        ways = {who: self.ways[way_name(who, cluster, node)] for who in ASKING[cluster]}
        more = {
            "listeners": [f"{who.upper()}://{_address(way.listens)}" for who, way in ways.items()],
            "advertised.listeners": [
                f"{who.upper()}://{_address(way.named)}" for who, way in ways.items()
            ],
            "listener.security.protocol.map": [f"{who.upper()}:PLAINTEXT" for who in ways],
        }
        joined = {name: ",".join((values[name], *entries)) for name, entries in more.items()}
        return {**values, **joined, "inter.broker.listener.name": BROKERS.upper()}


def way_name(who: str, cluster: str, node: int) -> str:
    """Of a link: "driver-central-2"."""
    return f"{who}-{cluster}-{node}"


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"
