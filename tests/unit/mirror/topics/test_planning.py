"""What `mirror plan` names: differences of topics and workers, found in what was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hourmark.config.groups import KafkaCluster, KafkaSettings, MirrorSettings
from hourmark.config.loading import Config
from hourmark.kafka.clients import TopicInfo
from hourmark.kafka.mirror import MirrorWorkers
from hourmark.kafka.topic_setup import TopicSpec
from hourmark_mirror.plan_cli import format_plan, format_status, status_to_json
from hourmark_mirror.run.process import installed_version
from hourmark_mirror.run.task_status import TaskState
from hourmark_mirror.run.worker_group import WorkerGroup
from hourmark_mirror.settings.properties import TARGET_ALIAS, mirror_maker_properties
from hourmark_mirror.topics.planning import (
    DifferenceKind,
    connector_differences,
    connector_settings,
    missing_worker_differences,
    topic_differences,
    version_differences,
)

CLICK = "edge.events.click"
WANTED = TopicSpec(CLICK, 3, {"retention.ms": "3600000", "max.message.bytes": "8388608"})


def there(
    partitions: int, **settings: str
) -> tuple[dict[str, TopicInfo], dict[str, dict[str, str]]]:
    now = {**WANTED.settings, **{name.replace("_", "."): value for name, value in settings.items()}}
    return {CLICK: TopicInfo(CLICK, "id", tuple(range(partitions)))}, {CLICK: now}


def test_topics_that_are_as_they_should_be_differ_in_nothing() -> None:
    assert not list(topic_differences([WANTED], *there(3, segment_bytes="1")))


@pytest.mark.parametrize(
    ("partitions", "settings", "kind", "said"),
    [
        (2, {}, DifferenceKind.ADD_PARTITIONS, f"{CLICK}: partitions: 2 → 3"),
        (4, {}, DifferenceKind.TOO_MANY_PARTITIONS, f"{CLICK}: partitions: 4 → 3"),
        (3, {"retention_ms": "-1"}, DifferenceKind.SET, f"{CLICK}: retention.ms: -1 → 3600000"),
        (
            3,
            {"max_message_bytes": "1048576"},
            DifferenceKind.SET,
            f"{CLICK}: max.message.bytes: 1048576 → 8388608",
        ),
    ],
)
def test_each_difference_of_a_topic_is_named(
    partitions: int, settings: dict[str, str], kind: DifferenceKind, said: str
) -> None:
    (found,) = topic_differences([WANTED], *there(partitions, **settings))
    assert (found.kind, str(found), found.applicable) == (
        kind,
        said,
        kind is not DifferenceKind.TOO_MANY_PARTITIONS,
    )


def test_a_topic_that_is_missing_is_to_be_created() -> None:
    (found,) = topic_differences([WANTED], {}, {})
    assert str(found) == f"{CLICK}: to be created with 3 partitions"
    assert found.applicable


def settings(**mirror: int) -> dict[str, str]:
    central = KafkaCluster(
        bootstrap="c:9092", properties={"sasl.username": "u", "sasl.password": "planted-s3cret"}
    )
    config = Config(
        kafka=KafkaSettings(edge=KafkaCluster(bootstrap="e:9092"), central=central),
        mirror=MirrorSettings(**mirror),
    )
    return connector_settings(mirror_maker_properties(config), "edge", TARGET_ALIAS)


def test_the_settings_of_a_connector_are_named_as_mirror_maker_names_them() -> None:
    made = settings()
    assert made["tasks.max"] == "2"
    assert made["source.consumer.isolation.level"] == "read_committed"
    assert made["target.cluster.exactly.once.source.support"] == "enabled"
    assert made["target.producer.acks"] == "all"


def test_workers_that_run_with_other_settings_are_to_be_restarted() -> None:
    running = {
        **settings(),
        "name": "MirrorSourceConnector",
        "source.admin.bootstrap.servers": "e:9092",
        "source.cluster.x": "1",
    }
    assert [str(d) for d in connector_differences(settings(tasks_max=4), running)] == [
        "worker: source.cluster.x: 1 → absent",
        "worker: tasks.max: 2 → 4",
    ]
    assert not any(d.applicable for d in connector_differences(settings(tasks_max=4), running))
    assert not list(connector_differences(settings(), {})), (
        "no worker ever ran: there is none to be restarted"
    )


def test_a_mirror_that_nobody_runs_is_named() -> None:
    """What its workers ran with when they were there is as it should be: that is not `workers run
    with these settings`.
    """
    assert list(missing_worker_differences(["10.0.3.1"])) == []
    (nobody,) = missing_worker_differences([])
    assert (str(nobody), nobody.applicable) == ("worker: hosts: absent → at least one", False)
    assert (
        list(format_plan([nobody]))[-1]
        == "start `hourmark mirror run`: no worker is running, so nothing is copied"
    )
    assert "workers run with these settings" in next(format_plan([]))


def test_a_secret_is_shown_in_no_difference() -> None:
    running = {**settings(), "target.cluster.sasl.jaas.config": 'password="old-s3cret"'}
    (found,) = connector_differences(settings(), running)
    assert "s3cret" not in f"{found} {found.as_object()}"


def test_a_worker_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "connect-mirror-client-4.9.9.jar").touch()
    (tmp_path / "connect-mirror-4.3.0.jar").touch()
    installed = installed_version(f"/nowhere/x.jar:{tmp_path}/*")
    assert installed == "4.3.0"
    assert [d.now for d in version_differences(installed, ["4.3.0", "", "4.2.0"])] == ["4.2.0"]
    assert installed_version("") == ""
    assert not list(version_differences("", ["4.2.0"])), "what is installed here is not known"


def test_status_hides_secrets_and_says_when_nobody_is_there() -> None:
    states = {
        "MirrorSourceConnector-0": TaskState(
            "FAILED", "mirror-1:8783", 3, "4.3.0", "RecordTooLargeException"
        ),
        "MirrorSourceConnector-1": TaskState("UNASSIGNED", "mirror-1:8783", 3, "", ""),
    }
    settings = {"tasks.max": "2", "target.cluster.sasl.jaas.config": 'password="planted-s3cret"'}
    group = WorkerGroup(MirrorWorkers(), states, settings)
    text = "\n".join(format_status("edge", group, "4.3.0"))
    assert "no worker is running" in text
    assert (
        "FAILED     mirror-1:8783  4.3.0: RecordTooLargeException" in text
        and "UNASSIGNED" not in text
    )
    assert "tasks.max = 2" in text
    assert "s3cret" not in text + json.dumps(status_to_json("edge", group, "4.3.0"))
