"""Producers never need a restart: brokers away or standing still, a topic made anew, minutes of
kills; two workers.
"""

from __future__ import annotations

import functools
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from tests.support.forged_batches import Forgery, forge
from tests.support.service.live import CLICK, RAW, Serving, StockReader, serving
from tests.support.service.load import (
    LINES,
    Poster,
    acked_count,
    check_acknowledged,
    finish,
    loaded,
    served,
    wait_for_acks,
)
from tests.support.waiting import wait_for

from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster, topic_settings
from hourmark.kafka.topic_names import events_topic
from hourmark.kafka.topic_setup import TopicSpec, ensure_topics
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1200)]

KILLS_S = 300
GONE_S = (
    45  # clients doubt for half a minute that a topic is gone (topic.metadata.propagation.max.ms)
)


@pytest.fixture
def service(stack: LocalStack, config: Config, tmp_path: Path) -> Iterator[Serving]:
    with served(stack, config, tmp_path, workers=2) as serving:
        yield serving


@pytest.fixture
def load(service: Serving) -> Iterator[list[Poster]]:
    with loaded(service) as posters:
        yield posters


def all_gone(pids: list[int]) -> bool:
    return all(map(is_gone, pids))


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def others_go_on(service: Serving) -> None:
    line = f"<13>1 - - a p {RAW.name} - x\n".encode()
    for number in range(10):
        assert (
            service.post(
                service.range_of(line, start=number * 1000, file="d" * 32), line
            ).status_code
            == 200
        ), "others go on"


def acked_nothing(load: list[Poster], for_s: float) -> bool:
    before = acked_count(load)
    time.sleep(for_s)
    return acked_count(load) == before


def log_of(stack: LocalStack, broker: int) -> Path:
    return stack.layout.data / f"edge-{broker}" / "log"


def back(stack: LocalStack) -> None:
    for broker in stack.brokers:
        stack.start(broker)
    for broker in stack.brokers:
        stack.wait_ready(broker)


def test_all_brokers_killed_and_back(
    stack: LocalStack, config: Config, service: Serving, load: list[Poster]
) -> None:
    wait_for_acks(load, 10)
    before = set(service.workers())
    for broker in stack.brokers:
        stack.kill(broker)
    time.sleep(20)
    back(stack)
    wait_for_acks(load, 10, 120)
    assert set(service.workers()) == before, "no worker was started anew"
    check_acknowledged(StockReader(config), finish(load))


def test_all_brokers_stand_still_for_a_minute(
    stack: LocalStack, config: Config, service: Serving, load: list[Poster]
) -> None:
    wait_for_acks(load, 10)
    before = set(service.workers())
    processes = [
        process for broker in stack.brokers if (process := stack.process(broker)) is not None
    ]
    assert len(processes) == 3
    for process in processes:
        psutil.Process(process.pid).suspend()
    try:
        time.sleep(60)
    finally:
        for process in processes:
            psutil.Process(process.pid).resume()
    wait_for_acks(load, 10, 120)
    assert set(service.workers()) == before
    check_acknowledged(StockReader(config), finish(load))


@pytest.mark.parametrize("gone_s", [0, GONE_S], ids=["at once", "after it was gone for long"])
def test_a_topic_deleted_and_made_again_stops_its_type_alone(
    config: Config, service: Serving, load: list[Poster], gone_s: int
) -> None:
    wait_for_acks(load, 10)
    before, topic = set(service.workers()), events_topic(CLICK.name)
    admin = AdminClient({"bootstrap.servers": config.kafka.edge.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    if gone_s:
        wait_for(
            lambda: acked_nothing(load, 5), "nothing is acknowledged into a topic that is gone", 30
        )
    acks, until = acked_count(load), time.monotonic() + gone_s
    others_go_on(service)
    while time.monotonic() < until:
        others_go_on(service)
        assert acked_count(load) == acks, "nothing is acknowledged while its topic is gone"
    settings = topic_settings(
        config.kafka.retention_hours,
        config.kafka.max_message_bytes,
        config.kafka.edge.min_insync_replicas,
    )
    ensure_topics(Cluster(config.kafka.edge, "edge"), [TopicSpec(topic, 2, settings)])
    since, there_s = {id(poster): len(poster.acked) for poster in load}, time.monotonic()
    wait_for_acks(load, 10, 180)
    print(f"acknowledged again after {time.monotonic() - there_s:.1f} s")
    assert set(service.workers()) == before
    finish(load)
    later = [acked for poster in load for acked in poster.acked[since[id(poster)] + 1 :]]
    check_acknowledged(StockReader(config), later)


def test_a_deleted_topic_is_created_again_while_other_types_go_on(
    stack: LocalStack, config: Config, tmp_path: Path
) -> None:
    topic, cluster = events_topic(CLICK.name), Cluster(config.kafka.edge, "edge")
    settings = {"HOURMARK_SERVICE__CREATE_MISSING_TOPICS": "true"}
    with serving(stack, config, tmp_path, settings=settings) as service, loaded(service) as load:
        wait_for_acks(load, 10)
        before = cluster.topics([topic])[topic].topic_id
        cluster.admin.delete_topics([topic])[topic].result(30)
        began_s, acks = time.monotonic(), acked_count(load)
        while acked_count(load) < acks + 20:
            assert service.is_ready()
            others_go_on(service)
            assert time.monotonic() - began_s < 90, "the type goes on"
        print(f"acknowledged again after {time.monotonic() - began_s:.1f} s")
        assert cluster.topics([topic])[topic].topic_id != before
        finish(load)
        assert "created again" in (tmp_path / "service.log").read_text()


@pytest.mark.parametrize("forgery", Forgery)
def test_a_producer_that_the_broker_refuses_for_good_is_made_anew(
    stack: LocalStack, config: Config, service: Serving, load: list[Poster], forgery: Forgery
) -> None:
    """By real refusals: another writer took the producer's next sequence number, or a newer epoch
    of its id.
    """
    wait_for_acks(load, 10)
    before, topic, reader = set(service.workers()), events_topic(CLICK.name), StockReader(config)
    copied = next(reader.records(topic))
    for _ in range(3):
        forge(
            config.kafka.edge.bootstrap,
            lambda broker: log_of(stack, broker),
            topic,
            forgery,
            (copied.key, copied.value),
        )
        wait_for_acks(load, 10, 60)
    assert set(service.workers()) == before
    assert sum(poster.retries for poster in load) > 0, "some were under way"
    log = (service.folder / "service.log").read_text()
    assert "recreated: it had a fatal error" in log and "Traceback" not in log
    acked = finish(load)
    check_acknowledged(reader, acked)
    ranges = {byte_range.range_id(body) for byte_range, body in acked}
    distinct = {seen.key for seen in reader.records(topic) if seen.key[16:] in ranges}
    assert len(distinct) == len(acked) * LINES, "retries made the very same ids"


def test_audit_topics_and_acks_agree_after_minutes_of_kills(
    stack: LocalStack, config: Config, service: Serving, load: list[Poster]
) -> None:
    """Workers, the service and brokers at random; read by a stock consumer."""
    seed = random.randrange(1 << 30)
    print(f"kills {seed}")
    chance, until = random.Random(seed), time.monotonic() + KILLS_S
    kills = {"worker": 0, "broker": 0, "service": 0}
    while time.monotonic() < until:
        kind = chance.choice(("worker", "worker", "broker", "service"))
        kills[kind] += 1
        if kind == "worker" and (running := sorted(service.workers())):
            psutil.Process(chance.choice(running)).kill()
        elif kind == "broker":
            broker = chance.choice(stack.brokers)
            stack.kill(broker)
            time.sleep(chance.uniform(0, 5))
            stack.start(broker)
            stack.wait_ready(broker)
        elif kind == "service":
            theirs = service.workers()
            service.end(chance.choice((signal.SIGTERM, signal.SIGKILL)))
            wait_for(functools.partial(all_gone, theirs), "workers end with their supervisor", 30)
            service.start()
        time.sleep(chance.uniform(0, 4))
    print(kills)
    assert all(kills.values())
    wait_for_acks(load, 10, 120)
    check_acknowledged(StockReader(config), finish(load))
