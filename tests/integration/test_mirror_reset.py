"""A topic of the edge made again, and the old one's position forgotten by `mirror reset-offsets`,
on real servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.mirrored import Sites, make_anew, make_topics, numbered, topic
from tests.support.servers import come_back
from tests.support.waiting import wait_for

from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.mirror import read_workers
from hourmark_infra.stack import LocalStack
from hourmark_mirror.cli import mirror

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("mirror_runs")]

ANEW = "reset"


@pytest.fixture(scope="module")
def central(config: Config) -> KafkaCluster:
    if config.kafka.central is None:
        pytest.skip("one cluster is both: there is no mirror")
    make_topics(config, config.kafka.central, [ANEW])
    return config.kafka.central


@pytest.fixture
def sites(config: Config, central: KafkaCluster, tmp_path: Path) -> Sites:
    return Sites(config, central, tmp_path)


@pytest.fixture
def running_again(stack: LocalStack) -> Iterator[None]:
    yield
    come_back(stack, "mirror")


def reset(stack: LocalStack, *options: str) -> Result:
    return CliRunner().invoke(
        mirror, ["reset-offsets", *options, "--config", str(stack.layout.config_file)]
    )


@pytest.mark.usefixtures("running_again")
def test_a_topic_made_again_is_copied_from_its_beginning_once_the_old_position_is_forgotten(
    sites: Sites, stack: LocalStack
) -> None:
    sites.produce(ANEW, numbered(30), partition=0)
    sites.verified(ANEW)
    refused = reset(stack, "--topic", topic(ANEW), "--yes")
    assert refused.exit_code != 0 and "Stop `hourmark mirror run` on each host" in str(
        refused.exception
    )

    stack.stop("mirror")
    central, alias = Cluster(sites.central, "central"), sites.config.kafka.edge_alias
    wait_for(lambda: not read_workers(central, alias).hosts, "the worker has left its group", 60)
    nothing = json.loads(reset(stack, "--topic", topic(ANEW), "--json").stdout)
    assert nothing == {"reset": [], "recreated": []}, "a position that is well stays"
    make_anew(sites, ANEW)
    sites.produce(ANEW, numbered(40)[35:], partition=0)
    wait_for(
        lambda: reset(stack, "--topic", topic(ANEW)).exit_code == 1,
        "no broker answers for the deleted topic any more",
        30,
    )
    asked = reset(stack, "--topic", topic(ANEW))
    assert (
        asked.exit_code == 1
        and f"{topic(ANEW)}-0: the mirror's position is 30, the edge ends at 5" in asked.stderr
    ), asked.output
    done = reset(stack, "--topic", topic(ANEW), "--yes", "--json")
    expected = {"topic": topic(ANEW), "partition": 0, "position": 30, "edge_end": 5}
    assert done.exit_code == 0 and json.loads(done.stdout) == {"reset": [expected], "recreated": []}
    unknown = reset(stack, "--topic", topic(ANEW), "--json")
    assert unknown.exit_code != 0 and "has no position in" in str(unknown.exception), (
        "it is forgotten"
    )

    come_back(stack, "mirror")
    wait_for(
        lambda: not sites.verify(ANEW, timeout_s=5, accept=True).behind, "the new one is copied", 60
    )
    (compared,) = (c for c in sites.verified(ANEW).compared if c.partition.partition == 0)
    assert (compared.comparison.matched, compared.comparison.older) == (5, 30), (
        "records of the deleted topic are no fault once it is accepted that it was deleted"
    )
    copied = read_topic(sites.central, sites.remote(ANEW), cluster_name="central")
    assert sorted(copied) == sorted([*numbered(30), *numbered(40)[35:]])
