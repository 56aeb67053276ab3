"""MirrorMaker 2 as Hourmark runs it, on the real stack: what is copied, what a kill does, and that
the verifier sees faults.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from tests.support import tracing
from tests.support.mirrored import (
    Sites,
    delete_records,
    java_of,
    make_anew,
    make_topics,
    mirror_process,
    numbered,
    set_topic,
    start_mirror,
    topic,
)
from tests.support.waiting import wait_for

from hourmark.avro.framing import framing_header
from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.kafka.clients import Cluster, Partition, client_settings
from hourmark.records.event_id import LineIds
from hourmark.records.hours import Hour
from hourmark.records.record_key import RecordKey
from hourmark_etl.operators.tracing.kafka_search import KafkaSearch
from hourmark_etl.operators.tracing.query import EventQuery, KafkaRecordQuery
from hourmark_etl.operators.tracing.results import found_value
from hourmark_etl.operators.tracing.summary import summarize_trace
from hourmark_etl.operators.tracing.tracer import EventTracer, SendWindow
from hourmark_infra.stack import LocalStack
from hourmark_mirror.verify.verification import VerificationResult

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("mirror_runs")]

TYPES = (
    "copied",
    "traced",
    "large",
    "killed",
    "lost",
    "altered",
    "foreign",
    "replaced",
    "empty",
    "refused",
)


@pytest.fixture(scope="module")
def central(config: Config) -> KafkaCluster:
    """The central cluster; all topics of this module exist at both sites."""
    if config.kafka.central is None:
        pytest.skip("one cluster is both: there is no mirror")
    make_topics(config, config.kafka.central, TYPES)
    return config.kafka.central


@pytest.fixture
def sites(config: Config, central: KafkaCluster, tmp_path: Path) -> Sites:
    return Sites(config, central, tmp_path)


def read_all(cluster: KafkaCluster, name: str) -> list[Message]:
    """Committed records of both partitions, up to the ends of now."""
    partitions = [Partition(name, 0), Partition(name, 1)]
    ends = Cluster(cluster, "named").ends(partitions)
    consumer = Consumer(
        client_settings(
            cluster,
            group_id="test",
            isolation_level="read_committed",
            enable_partition_eof=True,
            fetch_wait_max_ms=20,
        )
    )
    consumer.assign([TopicPartition(name, p.partition, OFFSET_BEGINNING) for p in partitions])
    messages, at_end, give_up = [], set[int | None](), time.monotonic() + 30
    while len(at_end) < len(ends):
        assert time.monotonic() < give_up, f"{name} could not be read to its end"
        message = consumer.poll(0.5)
        if message is not None and message.error():
            at_end.add(message.partition())
        elif message is not None:
            messages.append(message)
    consumer.close()
    return messages


def faults(verdict: VerificationResult) -> list[tuple[str, Partition, int | None, int | None, int]]:
    return [
        (s.kind, c.partition, s.edge_first, s.edge_last, s.count)
        for c in verdict.compared
        for s in c.comparison.spans
    ]


def test_records_reach_the_centre_as_they_are(sites: Sites) -> None:
    records = [*numbered(500), (b"", b"\x00\xff"), ("schlüssel".encode(), b"")]
    sites.produce("copied", records)
    sites.verified("copied")

    def content(message: Message) -> tuple[Any, ...]:
        return message.partition(), message.key(), message.value(), message.timestamp()

    edge = sorted(content(m) for m in read_all(sites.config.kafka.edge, topic("copied")))
    assert edge == sorted(content(m) for m in read_all(sites.central, sites.remote("copied")))
    assert len(edge) == len(records)


def test_an_event_is_traced_from_either_side_of_the_mirror_and_by_its_id(sites: Sites) -> None:
    now_ms, event_type = SystemClock().now_ms(), topic("traced").removeprefix("events.")
    ids = [LineIds("a" * 32, "b" * 32, 0).make(now_ms, n, b"line") for n in range(20)]
    records = [
        (RecordKey(i, tracing.RANGE).encode(), framing_header(1) + tracing.datum(tracing.event(i)))
        for i in ids
    ]
    sites.produce("traced", records, partition=1)
    sites.verified("traced")
    topics = KafkaSearch(sites.config.kafka, print, now_ms=now_ms)
    kept = tracing.Servers(event_type=event_type, frontier=Hour.containing(now_ms, 60))
    walk = EventTracer(topics, kept, 60, SendWindow(since_ms=0, until_ms=now_ms + 900_000))
    facts = walk.trace(KafkaRecordQuery(topic("traced"), 1, 7))
    copy = found_value(facts.central_record)
    assert facts.event_id == ids[7] and copy is not None
    assert (copy.topic, copy.partition, copy.event_id) == (sites.remote("traced"), 1, ids[7])
    for question in (KafkaRecordQuery(copy.topic, 1, copy.offset), EventQuery(ids[7], event_type)):
        again = walk.trace(question)
        at_edge = found_value(again.edge_record)
        assert at_edge is not None and (at_edge.offset, found_value(again.central_record)) == (
            7,
            copy,
        )
    assert summarize_trace(facts).verdict == "mirrored"
    assert (
        topics.mirror_offset(topic("traced"), 1).value,
        topics.mirror_offset(topic("traced"), 0).value,
    ) == (20, 0)
    marker = walk.trace(KafkaRecordQuery(copy.topic, 1, copy.offset + 1000))
    assert (
        marker.central_record is not None
        and marker.central_record.value is None
        and marker.central_record.is_complete
    )
    never = walk.trace(
        EventQuery(LineIds("a" * 32, "b" * 32, 0).make(now_ms, 99, b"line"), event_type)
    )
    assert (
        never.edge_record is not None
        and never.edge_record.value is None
        and never.edge_record.is_complete
    )


def test_a_record_of_seven_mebibytes_passes(sites: Sites) -> None:
    sites.produce("large", [(b"large", os.urandom(7 << 20)), (b"after", b"it")], partition=0)
    verdict = sites.verified("large")
    assert sum(c.comparison.matched for c in verdict.compared) == 2


def test_an_empty_topic_has_reached_its_cut(sites: Sites) -> None:
    verdict = sites.verified("empty", timeout_s=0)
    assert len(verdict.compared) == 2


def test_a_record_deleted_from_the_target_is_named(sites: Sites) -> None:
    """peers 34: the source's position is committed although the target does not hold the record."""
    sites.produce("lost", numbered(50), partition=1)
    sites.verified("lost")
    delete_records(sites.central, TopicPartition(sites.remote("lost"), 1, 7))
    kind, partition, first, last, count = faults(sites.verify("lost"))[0]
    assert (kind, partition, first) == ("missing", Partition(topic("lost"), 1), 0)
    assert last is not None and count == last + 1
    assert 1 <= count <= 7  # seven offsets of the target, of which markers are some


def test_foreign_and_doubled_records_on_the_target_are_named(sites: Sites) -> None:
    sites.produce("foreign", numbered(20), partition=0)
    sites.verified("foreign")
    sites.write_by_hand("foreign", (b"k000003", b"value 000003"), (b"k000003", b"other"))
    verdict = sites.verify("foreign")
    assert [(f[0], f[1].partition, f[2]) for f in faults(verdict)] == [
        ("doubled", 0, 3),
        ("foreign", 0, None),
    ]
    sites.produce("foreign", [(b"next", b"one")], partition=0)  # what comes after is still matched
    assert [f[0] for f in faults(sites.verify("foreign"))] == ["doubled", "foreign"]


def test_the_command_names_an_altered_record_and_ends_with_1(
    sites: Sites, stack: LocalStack
) -> None:
    """The target is written by hand before the mirror gets the record's successor: it stands in the
    place of another.
    """
    sites.produce("altered", [(b"a", b"1"), (b"b", b"2")], partition=0)
    sites.verified("altered")
    delete_records(sites.central, TopicPartition(sites.remote("altered"), 0, -1))
    sites.write_by_hand("altered", (b"a", b"1"), (b"b", b"X"))
    command = [
        sys.executable,
        "-m",
        "hourmark",
        "mirror",
        "verify",
        "--config",
        str(stack.layout.config_file),
        "--json",
    ]
    done = subprocess.run(
        [*command, "--topic", topic("altered")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    partition = next(p for p in json.loads(done.stdout)["partitions"] if p["partition"] == 0)
    assert (partition["matched"], partition["altered"]) == (1, 1)
    assert partition["faults"][0]["edge_first"] == 1


def test_a_topic_recreated_at_the_edge_is_an_alarm_until_it_is_accepted(sites: Sites) -> None:
    """peers 30: `auto.offset.reset=earliest` hides the gap."""
    sites.produce("replaced", numbered(30), partition=0)
    sites.verified("replaced")
    make_anew(sites, "replaced")
    sites.produce("replaced", numbered(3), partition=0)
    for _ in range(2):  # it stays
        alarms = [alarm.seen for alarm in sites.verify("replaced").alarms]
        assert len(alarms) == 1
        assert f"topic {topic('replaced')} was deleted and recreated" in alarms[0]
        assert f"{topic('replaced')}-0 up to 30" in alarms[0]
    assert not any(
        "recreated" in alarm.seen
        for alarm in sites.verify("replaced", timeout_s=0, accept=True).alarms
    )


def test_after_a_kill_of_java_and_of_its_parent_nothing_is_missing_or_doubled(
    sites: Sites, stack: LocalStack
) -> None:
    with producing(sites, "killed"):
        java = java_of(stack)
        java.send_signal(signal.SIGKILL)
        wait_for(lambda: java_of(stack).pid != java.pid, "started again by its supervisor", 20)
        time.sleep(8)  # into the new process's start, or its first transactions
        java, parent = java_of(stack), mirror_process(stack)
        parent.send_signal(signal.SIGKILL)
        wait_for(
            lambda: not java.is_running() or java.status() == psutil.STATUS_ZOMBIE,
            "Java dies with its parent",
            20,
        )
        start_mirror(stack)
    verdict = sites.verified("killed", timeout_s=120)
    assert sum(c.comparison.matched for c in verdict.compared) > 500


def test_a_task_that_failed_is_named_and_goes_on_once_its_cause_is_gone(
    sites: Sites, stack: LocalStack
) -> None:
    """peers 31 (strimzi#11037): a task fails on one oversize record, and the rest of its partitions
    stand still.
    """
    log = stack.layout.logs / "mirror.log"
    size = log.stat().st_size
    remote = sites.remote("refused")
    set_topic(sites.central, remote, "max.message.bytes", str(64 * 1024))
    try:
        sites.produce(
            "refused",
            [(b"before", b"it"), (b"large", os.urandom(256 * 1024)), (b"after", b"it")],
            partition=0,
        )
        # its state is told once its producer is closed, which may take 30 s
        wait_for(
            lambda: b"has stalled: MirrorSourceConnector-" in log.read_bytes()[size:],
            "the failed task is named",
            90,
        )
        assert b"RecordTooLargeException" in log.read_bytes()[size:]
        assert sites.verify("refused", timeout_s=0).behind
    finally:
        set_topic(
            sites.central, remote, "max.message.bytes", str(sites.config.kafka.max_message_bytes)
        )
    sites.verified("refused", timeout_s=90)


@contextlib.contextmanager
def producing(sites: Sites, name: str) -> Iterator[None]:
    """Produces at the edge until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        producer, i = sites.edge_producer(), 0
        while not stop.wait(0.01):
            producer.produce(topic(name), b"value %d" % i, b"%d" % i)
            producer.poll(0)
            i += 1
        producer.flush(30)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
