"""Each who asks a broker is given the address of a link of theirs, and of nobody else's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.chaos.link import Network
from tests.faults.chaos.linked_stack import ASKING, LinkedStack

from hourmark_infra.stack.layout import CLUSTERS, MIRRORS
from hourmark_infra.stack.servers import Programs

PROGRAMS = Programs(Path("/java"), Path("/kafka"), Path("/hadoop"), Path("/registry"))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LinkedStack]:
    network = Network()
    made = LinkedStack.load_or_create(tmp_path, spread=True, workers=2, report=lambda _: None)
    made.link(network)
    made.write_settings(PROGRAMS)
    yield made
    network.stop()


def properties(stack: LinkedStack, broker: str) -> dict[str, str]:
    lines = (stack.layout.settings / f"{broker}.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def listeners(said: str) -> dict[str, int]:
    return {
        name: int(address.rpartition(":")[2])
        for name, address in (entry.split("://") for entry in said.split(","))
    }


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_broker_listens_for_each_who_asks_and_names_the_port_of_their_link(
    stack: LinkedStack, cluster: str
) -> None:
    named = set[int]()
    for node in stack.layout.nodes(cluster):
        of = properties(stack, f"{cluster}-{node}")
        listening, advertised = listeners(of["listeners"]), listeners(of["advertised.listeners"])
        assert advertised.keys() == {"PLAINTEXT", *(who.upper() for who in ASKING[cluster])}
        assert listening.keys() == {*advertised, "CONTROLLER"}
        assert listening["PLAINTEXT"] == advertised["PLAINTEXT"], (
            "who looks from outside goes by no link"
        )
        for who in ASKING[cluster]:
            way = stack.ways[f"{who}-{cluster}-{node}"]
            assert (listening[who.upper()], advertised[who.upper()]) == way
            assert f"127.0.0.1:{way.named}" in stack.bootstrap(who, cluster).split(",")
            named.add(way.named)
        assert of["inter.broker.listener.name"] == "BROKERS"
    assert len(named) == len(ASKING[cluster]) * len(stack.layout.nodes(cluster))


def test_both_workers_of_the_mirror_ask_by_its_links(stack: LinkedStack) -> None:
    for worker in MIRRORS:
        kafka = tomllib.loads(stack.layout.worker_file(worker).read_text())["kafka"]
        assert {cluster: kafka[cluster]["bootstrap"] for cluster in CLUSTERS} == {
            cluster: stack.bootstrap("mirror", cluster) for cluster in CLUSTERS
        }
