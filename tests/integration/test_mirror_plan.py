"""What changes at the edge and becomes of it at the centre: by itself, by `mirror plan` and `mirror
apply`, on real servers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.mirrored import Sites, make_topics, numbered, topic
from tests.support.waiting import wait_for

from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster
from hourmark.kafka.topic_setup import add_partitions, alter_topic
from hourmark_infra.stack import LocalStack
from hourmark_mirror.cli import mirror

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("mirror_runs")]

CHANGED, GONE, AS_IT_IS = "changed", "gone", "as-it-is"
BY_ITSELF_S = 30.0  # MirrorMaker 2 looks each five seconds


@pytest.fixture(scope="module")
def central(config: Config) -> KafkaCluster:
    if config.kafka.central is None:
        pytest.skip("one cluster is both: there is no mirror")
    make_topics(config, config.kafka.central, [CHANGED, GONE, AS_IT_IS])
    return config.kafka.central


@pytest.fixture
def sites(config: Config, central: KafkaCluster, tmp_path: Path) -> Sites:
    return Sites(config, central, tmp_path)


def asked(stack: LocalStack, *command: str, code: int, **environment: str) -> dict[str, Any]:
    """One of `hourmark mirror`'s commands with --json, which ends so."""
    done = CliRunner().invoke(
        mirror, [*command, "--config", str(stack.layout.config_file), "--json"], env=environment
    )
    assert done.exit_code == code, done.output
    return dict(json.loads(done.stdout))


def settings_of(found: dict[str, Any], key: str) -> dict[str, tuple[str, str]]:
    return {d["setting"]: (d["now"], d["wanted"]) for d in found[key]}


def test_what_changes_at_the_edge_is_carried_to_the_centre(sites: Sites, stack: LocalStack) -> None:
    edge, central, remote = (
        Cluster(sites.config.kafka.edge, "edge"),
        Cluster(sites.central, "central"),
        sites.remote(CHANGED),
    )
    only = ("--topic", topic(CHANGED))
    sites.produce(CHANGED, numbered(20))
    sites.verified(CHANGED)
    assert asked(stack, "plan", *only, code=0) == {"ok": True, "differences": []}

    add_partitions(edge, topic(CHANGED), 4)
    changed = {
        "retention.ms": "7200000",
        "max.message.bytes": "4194304",
        "cleanup.policy": "compact,delete",
    }
    before = central.topic_configs([remote])[remote]
    alter_topic(edge, topic(CHANGED), changed)
    wait_for(
        lambda: len(central.topics([remote])[remote].partitions) == 4,
        "the mirror adds partitions",
        BY_ITSELF_S,
        0.2,
    )
    planned = asked(stack, "plan", *only, code=1)
    assert settings_of(planned, "differences") == {
        name: (before[name], value) for name, value in changed.items()
    }

    refused = CliRunner().invoke(
        mirror, ["apply", *only, "--config", str(stack.layout.config_file)]
    )
    assert refused.exit_code == 1 and "Aborted" in refused.stderr, "it asks, and nobody answers"
    assert central.topic_configs([remote])[remote] == before

    applied = asked(stack, "apply", *only, "--yes", code=0)
    assert settings_of(applied, "applied").keys() == changed.keys() and applied["left"] == []
    now = central.topic_configs([remote])[remote]
    assert {name: now[name] for name in changed} == changed
    assert asked(stack, "apply", *only, "--yes", code=0) == {"ok": True, "applied": [], "left": []}

    for partition in range(4):
        sites.produce(
            CHANGED, [(b"k%d" % partition, b"in the new partitions too")], partition=partition
        )
    sites.produce(CHANGED, [(b"large", os.urandom(3 << 20))], partition=3)
    verdict = sites.verified(CHANGED)
    assert len(verdict.compared) == 4


def test_a_remote_topic_that_is_missing_is_planned_and_made(
    sites: Sites, stack: LocalStack
) -> None:
    """Made at once, before the mirror may: both are content with what the other made."""
    central, remote = Cluster(sites.central, "central"), sites.remote(GONE)
    central.admin.delete_topics([remote])[remote].result(15)
    wait_for(lambda: not central.topics([remote]), "the remote topic is gone", 20)
    applied = asked(stack, "apply", "--topic", topic(GONE), "--yes", code=0)
    assert applied["left"] == []
    assert remote in central.topics([remote])


def test_settings_that_workers_do_not_run_with_are_named_and_shown(
    sites: Sites, stack: LocalStack
) -> None:
    found = asked(stack, "plan", "--topic", topic(AS_IT_IS), code=1, HOURMARK_MIRROR__TASKS_MAX="5")
    assert settings_of(found, "differences") == {"tasks.max": ("2", "5")}
    assert not found["differences"][0]["applicable"]
    status = asked(stack, "status", code=0)
    assert status["settings"]["tasks.max"] == "2"
    assert status["workers"] == ["127.0.0.1"]
    assert status["leader"] == f"127.0.0.1:{sites.config.mirror.rest_port}"
    assert status["running"]["MirrorSourceConnector"]["version"] == status["installed_version"]
    assert status["running"]["MirrorSourceConnector"]["worker"] == status["leader"]
