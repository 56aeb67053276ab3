"""MirrorMaker 2's properties."""

from __future__ import annotations

import pytest

from hourmark.config import Config
from hourmark.config_groups import Kafka, KafkaCluster, Mirror
from hourmark.errors import ConfigError
from hourmark_mirror.properties import properties, render

GOLDEN = r"""clusters=edge,central
edge.bootstrap.servers=e1\:9092,e2\:9092
edge.metadata.recovery.strategy=none
central.bootstrap.servers=c1\:9092
central.metadata.recovery.strategy=none
listeners=http\://127.0.0.1\:8783
dedicated.mode.enable.internal.rest=true
plugin.discovery=service_load
emit.heartbeats.enabled=false
central.exactly.once.source.support=enabled
central.plugin.discovery=service_load
central.scheduled.rebalance.max.delay.ms=0
central.session.timeout.ms=10000
central.heartbeat.interval.ms=3333
central.offset.storage.partitions=1
central.status.storage.partitions=1
central.offset.storage.segment.bytes=8388608
central.offset.storage.replication.factor=1
central.status.storage.replication.factor=1
central.config.storage.replication.factor=1
edge.consumer.isolation.level=read_committed
edge.consumer.auto.offset.reset=earliest
edge.consumer.max.partition.fetch.bytes=8388608
edge.consumer.fetch.max.bytes=16777216
edge.consumer.fetch.min.bytes=65536
edge.consumer.fetch.max.wait.ms=200
edge.consumer.max.poll.records=5000
central.producer.acks=all
central.producer.compression.type=zstd
central.producer.batch.size=262144
central.producer.max.request.size=16777216
central.producer.buffer.memory=33554432
central.producer.transaction.timeout.ms=60000
edge->central.enabled=true
edge->central.admin.metadata.recovery.strategy=none
edge->central.topics=events\\..*,hourmark\\.audit,hourmark\\.hosts
edge->central.tasks.max=2
edge->central.transaction.boundary=poll
edge->central.refresh.topics.interval.seconds=5
edge->central.replication.factor=1
edge->central.sync.topic.configs.enabled=false
edge->central.sync.topic.acls.enabled=false
edge->central.emit.heartbeats.enabled=false
edge->central.heartbeats.topic.replication.factor=1
edge->central.emit.checkpoints.enabled=false
edge->central.sync.group.offsets.enabled=false
edge->central.refresh.groups.enabled=false
edge->central.emit.offset-syncs.enabled=false
"""


def config(central: KafkaCluster | None, **kafka: object) -> Config:
    edge = KafkaCluster(bootstrap="e1:9092,e2:9092")
    return Config(kafka=Kafka.model_validate({"edge": edge, "central": central, **kafka}), mirror=Mirror())


def test_properties_are_as_they_were_tried() -> None:
    assert render(properties(config(KafkaCluster(bootstrap="c1:9092", replication_factor=1)))) == GOLDEN


def test_one_cluster_needs_no_mirror() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.central is absent.*no mirror needed"):
        properties(config(None))


def test_the_edge_cannot_have_the_targets_name() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.edge_alias"):
        properties(config(KafkaCluster(), edge_alias="central"))


def test_security_is_translated_and_what_cannot_be_is_refused() -> None:
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "mirror",
        "sasl.password": 'a"b\\',
        "ssl.ca.location": "/etc/ca.pem",
        "socket.keepalive.enable": "true",
    }
    values = properties(config(KafkaCluster(bootstrap="c:1", properties=login)))
    assert values["central.security.protocol"] == "SASL_SSL"
    assert values["central.ssl.truststore.type"] == "PEM"
    assert values["central.sasl.jaas.config"] == (
        r'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="a\"b\\";'
    )
    assert not any("keepalive" in name for name in values)
    with pytest.raises(ConfigError, match=r"ssl\.crl\.location"):
        properties(config(KafkaCluster(properties={"ssl.crl.location": "/x"})))


def test_rendering_escapes_what_java_would_read_otherwise() -> None:
    assert render({"a b": "x=y:z\\ \u00e9\n"}) == "a\\ b=x\\=y\\:z\\\\\\ \\u00e9\\n\n"
