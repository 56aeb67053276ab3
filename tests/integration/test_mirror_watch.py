"""The watch over a real mirror between real clusters: each fault is made, and named by its alarm
within the minute.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from tests.support.mirrored import (
    Sites,
    delete_records,
    java_of,
    make_anew,
    make_topics,
    numbered,
    set_topic,
    topic,
)
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.process.alarms import Alarm, AlarmName
from hourmark_infra.stack import LocalStack
from hourmark_mirror.settings.mirror_sites import MirrorSites as Clusters
from hourmark_mirror.watch.alarms import AlarmLimits
from hourmark_mirror.watch.metrics import MirrorMetrics
from hourmark_mirror.watch.observer import MirrorObserver
from hourmark_mirror.watch.watch_state_store import WatchStateStore
from hourmark_mirror.watch.watcher import OBSERVE_INTERVAL_S, MirrorWatcher

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("mirror_runs")]

TYPES = (
    "cutoff",
    "overtaken",
    "paused",
    "anew",
    "blocked",
    "near",
    "quiet",
    "shell",
    "sampled",
    "moment",
)
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def central(config: Config) -> KafkaCluster:
    """The central cluster; all topics of this module exist at both sites."""
    if config.kafka.central is None:
        pytest.skip("one cluster is both: there is no mirror")
    make_topics(config, config.kafka.central, [f"watch-{name}" for name in TYPES])
    return config.kafka.central


class Watched:
    """A watch of one test's topic alone, looked with when it is asked for."""

    def __init__(self, sites: Sites, name: str, expected_s: float | None) -> None:
        self.name, self.sites, self.metrics = f"watch-{name}", sites, MirrorMetrics()
        expected = {} if expected_s is None else {topic(self.name): expected_s}
        clusters = Clusters(sites.config)
        all_topics = clusters.topics
        clusters.topics = lambda: [t for t in all_topics() if t.name == topic(self.name)]  # type: ignore[method-assign]
        self.looker = MirrorObserver(
            clusters,
            SystemClock(),
            max_message_bytes=sites.config.kafka.max_message_bytes,
            expected=list(expected),
        )
        self.watch = MirrorWatcher(
            self.looker,
            WatchStateStore(sites.work_dir),
            AlarmLimits(24.0, expected),
            self.metrics,
            SystemClock(),
        )

    def names(self) -> list[AlarmName]:
        return [alarm.name for alarm in self.watch.observe().alarms]

    def until(self, name: AlarmName) -> Alarm:
        """The alarm, once it is there; looks as far apart as the watch's own."""
        began_s = time.monotonic()
        while True:
            for alarm in self.watch.observe().alarms:
                if alarm.name == name:
                    assert (
                        self.metrics.registry.get_sample_value(
                            "hourmark_mirror_alarms", {"name": name}
                        )
                        == 1
                    )
                    return alarm
            assert time.monotonic() - began_s < WITHIN_S, f"{name} is not named within a minute"
            time.sleep(OBSERVE_INTERVAL_S)


@pytest.fixture
def watched(
    config: Config, central: KafkaCluster, tmp_path: os.PathLike[str]
) -> Iterator[Callable[..., Watched]]:
    with contextlib.ExitStack() as opened:

        def make(name: str, expected_s: float | None = None) -> Watched:
            made = Watched(Sites(config, central, tmp_path), name, expected_s)  # type: ignore[arg-type]
            opened.callback(made.looker.close)
            return made

        yield make


@contextlib.contextmanager
def paused(stack: LocalStack) -> Iterator[None]:
    """MirrorMaker 2 stands still meanwhile."""
    java = java_of(stack)
    java.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        java.send_signal(signal.SIGCONT)


def test_records_taken_from_the_targets_beginning_are_named(
    watched: Callable[..., Watched],
) -> None:
    w = watched("cutoff")
    w.sites.produce(w.name, numbered(50), partition=1)
    w.sites.verified(w.name)
    assert w.names() == []
    delete_records(w.sites.central, TopicPartition(w.sites.remote(w.name), 1, 7))
    alarm = w.until(AlarmName.TARGET_TRUNCATED)
    assert alarm.subject == f"{topic(w.name)}-1" and "edge offset 0" in alarm.seen
    assert w.names() == [AlarmName.TARGET_TRUNCATED], "it stands"
    w.watch.observe(accept=True)
    assert AlarmName.OVERTAKEN not in w.names()


def test_retention_that_overtook_the_mirror_is_named_with_its_offsets(
    watched: Callable[..., Watched], stack: LocalStack
) -> None:
    w = watched("overtaken")
    w.sites.produce(w.name, numbered(30), partition=0)
    w.sites.verified(w.name)
    assert w.names() == []
    with paused(stack):
        w.sites.produce(w.name, numbered(30), partition=0)
        delete_records(w.sites.config.kafka.edge, TopicPartition(topic(w.name), 0, 45))
        assert "offsets 30 to 44 may be missing" in w.until(AlarmName.OVERTAKEN).seen


def test_a_mirror_that_stands_still_is_named_within_a_minute_and_over_when_it_goes_on(
    watched: Callable[..., Watched], stack: LocalStack
) -> None:
    w = watched("paused")
    w.sites.produce(w.name, numbered(10), partition=0)
    w.sites.verified(w.name)
    assert w.names() == []
    with paused(stack):
        w.sites.produce(w.name, numbered(10), partition=0)
        assert "have not moved for 40 s" in w.until(AlarmName.TASK_STOPPED).seen
        assert (w.metrics.registry.get_sample_value("hourmark_mirror_lag_records") or 0) == 10
    w.sites.verified(w.name, timeout_s=120)
    assert w.names() == []


def test_a_topic_made_again_is_named_and_so_is_the_position_of_the_old_one(
    watched: Callable[..., Watched], stack: LocalStack
) -> None:
    w = watched("anew")
    w.sites.produce(w.name, numbered(30), partition=0)
    w.sites.verified(w.name)
    assert w.names() == []
    with paused(
        stack
    ):  # else it may have begun anew, at a position of the new topic, before anybody looks
        make_anew(w.sites, w.name)
        w.sites.produce(w.name, numbered(3), partition=0)
        assert f"{topic(w.name)}-0 up to 30" in w.until(AlarmName.TOPIC_RECREATED).seen
        assert w.names() == [AlarmName.STALE_OFFSETS, AlarmName.TOPIC_RECREATED]


def test_an_oversize_record_is_named_by_offset_and_size(watched: Callable[..., Watched]) -> None:
    w = watched("blocked")
    remote, large = w.sites.remote(w.name), os.urandom(256 * 1024)
    w.sites.produce(w.name, numbered(10), partition=0)
    w.sites.verified(w.name)
    assert w.names() == []
    set_topic(w.sites.central, remote, "max.message.bytes", str(64 * 1024))
    try:
        w.sites.produce(
            w.name, [(b"before", b"it"), (b"large", large), (b"after", b"it")], partition=0
        )
        alarm = w.until(AlarmName.RECORD_BLOCKS)
        assert (
            f"offset 11 has {len(large) + 5} bytes" in alarm.seen
            and "accepts at most 65536" in alarm.seen
        )
    finally:
        set_topic(
            w.sites.central,
            remote,
            "max.message.bytes",
            str(w.sites.config.kafka.max_message_bytes),
        )
    w.sites.verified(w.name, timeout_s=120)
    assert w.names() == []


def test_a_foreign_record_among_those_just_copied_is_seen_by_a_sample_and_ends_what_is_verified(
    watched: Callable[..., Watched],
) -> None:
    w = watched("sampled")
    name = topic(w.name)
    w.sites.produce(w.name, numbered(10), partition=0)
    w.sites.verified(w.name)
    assert w.names() == []
    w.sites.produce(w.name, numbered(20)[10:], partition=0)
    w.sites.verified(w.name)
    found = w.watch.observe()
    assert (found.alarms, found.verified[name].compared, found.verified[name].passed) == (
        [],
        10,
        10,
    )
    assert time.time_ns() / 1e6 - found.verified[name].through_ms < 20_000
    w.sites.produce(w.name, numbered(25)[20:], partition=0)
    w.sites.verified(w.name)
    w.sites.write_by_hand(w.name, (b"foreign", b"one"))
    w.sites.produce(w.name, numbered(30)[25:], partition=0)
    wait_for(lambda: not w.sites.verify(w.name, timeout_s=5).behind, "all is copied", 60)
    alarm = w.until(AlarmName.CONTENTS_DIFFER)
    assert "edge offset 25" in alarm.seen
    assert name not in w.watch.observe().verified


def test_records_of_one_moment_are_found_in_their_place(watched: Callable[..., Watched]) -> None:
    """More of them than a window holds, as a delivery service writes a large range within a
    millisecond.
    """
    w = watched("moment")
    name, now_ms = topic(w.name), time.time_ns() // 1_000_000
    assert w.names() == []
    producer = w.sites.edge_producer()
    for key, value in numbered(2000):
        producer.produce(name, value, key, partition=0, timestamp=now_ms)
    assert producer.flush(30) == 0
    w.sites.verified(w.name)
    found = w.watch.observe()
    assert (found.alarms, found.verified[name].compared) == ([], 40)


def test_hours_until_retention_are_told_before_anything_is_lost(
    watched: Callable[..., Watched], stack: LocalStack
) -> None:
    w = watched("near")
    w.sites.produce(w.name, numbered(10), partition=0)
    w.sites.verified(w.name)
    assert w.names() == []
    with paused(stack):
        producer, written_ms = (
            w.sites.edge_producer(),
            time.time_ns() // 1_000_000 - 150 * 3_600_000,
        )
        producer.produce(topic(w.name), b"old", b"old", partition=0, timestamp=written_ms)
        assert producer.flush(30) == 0
        w.names()  # it may still be on its way
        alarm = w.until(AlarmName.RETENTION_NEAR)
        assert "offset 10 of" in alarm.seen and "in 18.0 hours" in alarm.seen
        left_s = w.metrics.registry.get_sample_value("hourmark_mirror_retention_left_seconds")
        assert left_s == pytest.approx(18 * 3600, abs=120)
    w.sites.verified(w.name, timeout_s=120)


def test_a_type_that_sends_nothing_is_named_until_it_sends(watched: Callable[..., Watched]) -> None:
    w = watched("quiet", 30.0)
    assert "the topic has no records" in w.until(AlarmName.NO_TRAFFIC).seen
    w.sites.produce(w.name, numbered(1))
    assert w.names() == []


def test_the_command_prints_what_stands_and_ends_with_1(
    stack: LocalStack, config: Config, central: KafkaCluster
) -> None:
    event_type = topic("watch-shell").removeprefix("events.")
    environment = {**os.environ, "HOURMARK_MIRROR__TRAFFIC_SECONDS": json.dumps({event_type: 5.0})}
    command = [
        sys.executable,
        "-m",
        "hourmark",
        "mirror",
        "watch",
        "--once",
        "--json",
        "--config",
        str(stack.layout.config_file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    (alarm,) = [
        a for a in json.loads(done.stdout)["alarms"] if a["subject"] == f"events.{event_type}"
    ]
    assert alarm["name"] == "no-traffic" and alarm["runbook"] == "docs/runbooks/no-traffic.md"
    without = subprocess.run(
        [*command[:-3], *command[-2:], "--accept"], capture_output=True, text=True, check=False
    )
    assert "no-traffic" not in without.stdout
