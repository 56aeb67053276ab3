"""MirrorMaker 2's properties."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from hourmark.config.groups import KafkaCluster, KafkaSettings, MirrorSettings
from hourmark.config.loading import Config
from hourmark.errors import ConfigError
from hourmark.kafka.clients import remember_brokers
from hourmark_mirror.run.process import prepare_command
from hourmark_mirror.settings.properties import (
    mirror_maker_properties,
    render_java_properties,
    secret_properties,
)

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
edge.consumer.check.crcs=true
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


def config(
    central: KafkaCluster | None, work_dir: Path = Path("/nowhere"), **kafka: object
) -> Config:
    edge = KafkaCluster(bootstrap="e1:9092,e2:9092")
    return Config(
        kafka=KafkaSettings.model_validate({"edge": edge, "central": central, **kafka}),
        mirror=MirrorSettings(work_dir=work_dir),
    )


def test_properties_are_as_they_were_tried() -> None:
    assert (
        render_java_properties(
            mirror_maker_properties(config(KafkaCluster(bootstrap="c1:9092", replication_factor=1)))
        )
        == GOLDEN
    )


def test_one_cluster_needs_no_mirror() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.central is not set.*no mirror is needed"):
        mirror_maker_properties(config(None))


def test_the_edge_cannot_have_the_targets_name() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.edge_alias"):
        mirror_maker_properties(config(KafkaCluster(), edge_alias="central"))


def test_a_login_is_translated_and_stands_in_a_file_of_its_own(tmp_path: Path) -> None:
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "mirror",
        "sasl.password": 'a"b\\',
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.keepalive.enable": "true",
    }
    made = config(KafkaCluster(bootstrap="c:1", properties=login), work_dir=tmp_path)
    values = mirror_maker_properties(made)
    assert values["central.security.protocol"] == "SASL_SSL"
    assert values["central.ssl.truststore.type"] == "PEM"
    assert values["central.ssl.endpoint.identification.algorithm"] == ""
    assert (
        values["central.sasl.jaas.config"]
        == "${file:mm2-secrets.properties:central.sasl.jaas.config}"
    ), "its own, for each worker"
    assert values["config.providers"] == "file,directory"
    assert not any("keepalive" in name for name in values)
    assert secret_properties(made) == {
        "central.sasl.jaas.config": (
            r"org.apache.kafka.common.security.scram.ScramLoginModule required "
            r'username="mirror" password="a\"b\\";'
        )
    }
    prepare_command(made)
    files = {file.name: file for file in tmp_path.iterdir()}
    assert [name for name, file in files.items() if "SCRAM" in file.read_text()] == [
        "mm2.properties"
    ]
    assert [name for name, file in files.items() if "password" in file.read_text()] == [
        "mm2-secrets.properties"
    ]
    assert files["mm2-secrets.properties"].stat().st_mode & 0o077 == 0


def test_certificates_are_read_where_they_are(tmp_path: Path) -> None:
    certificate = {
        "security.protocol": "SSL",
        "ssl.certificate.location": "/etc/mine.pem",
        "ssl.key.location": f"{tmp_path}/mine.key",
        "ssl.key.password": "secret",
    }
    made = config(KafkaCluster(bootstrap="c:1", properties=certificate), work_dir=tmp_path / "work")
    values = mirror_maker_properties(made)
    assert values["central.ssl.keystore.type"] == "PEM"
    assert values["central.ssl.keystore.certificate.chain"] == "${directory:/etc:mine.pem}"
    assert values["central.ssl.keystore.key"] == f"${{directory:{tmp_path}:mine.key}}"
    assert secret_properties(made) == {"central.ssl.key.password": "secret"}
    with pytest.raises(ConfigError, match=r"ssl\.key\.location.*No such file"):
        prepare_command(made)
    (tmp_path / "mine.key").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match=r"PKCS #8.*openssl pkcs8 -topk8"):
        prepare_command(made)
    (tmp_path / "mine.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    prepare_command(made)


def test_what_cannot_be_translated_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.crl\.location"):
        mirror_maker_properties(config(KafkaCluster(properties={"ssl.crl.location": "/x"})))


def test_a_new_start_knows_the_brokers_that_were_named_since() -> None:
    made = config(KafkaCluster(bootstrap=f"{uuid.uuid4().hex}:9092"))
    remember_brokers(made.kafka.central_cluster, ["later:9092"])
    assert mirror_maker_properties(made)["central.bootstrap.servers"].endswith(":9092,later:9092")


def test_rendering_escapes_what_java_would_read_otherwise() -> None:
    assert (
        render_java_properties({"a b": "x=y:z\\ \u00e9\n"}) == "a\\ b=x\\=y\\:z\\\\\\ \\u00e9\\n\n"
    )
