"""One real broker that demands of its clients a password (SCRAM over TLS) at one port, and a
certificate at another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.certificates import Authority
from tests.support.own_kafka import answers, new_cluster_id, own_server
from tests.support.waiting import wait_for

from hourmark.config.groups import KafkaCluster
from hourmark_infra.stack.kafka import MESSAGE_BYTES_MAX
from hourmark_infra.stack.layout import free_ports
from hourmark_infra.stack.servers import Programs

USER: Final = "hourmark"
PASSWORD: Final = "planted-scram-s3cret"


class SecureBroker(NamedTuple):
    """Where it is.

    `scram` and `mtls`: settings of a client that is let in; `plain`: of one that is not.
    """

    scram: KafkaCluster
    mtls: KafkaCluster
    plain: KafkaCluster


@contextmanager
def secure_broker(folder: Path, programs: Programs) -> Iterator[SecureBroker]:
    """It runs, and is gone afterwards."""
    authority = Authority(folder / "ca")
    ports = list(free_ports(("scram", "mtls", "controller")).values())
    scram_user = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    with own_server(
        programs,
        folder,
        _properties(folder, authority, ports),
        new_cluster_id(),
        "--add-scram",
        scram_user,
    ):
        broker = _clients(authority, ports)
        wait_for(lambda: answers(broker.scram), f"the broker of {folder} answers")
        yield broker


def _properties(folder: Path, authority: Authority, ports: list[int]) -> dict[str, str]:
    scram, mtls, controller = ports
    mine = authority.issue("broker")
    keystore = folder / "keystore.pem"  # as Java reads it: the key, then the certificates
    keystore.write_bytes(mine.key.read_bytes() + mine.certificate.read_bytes())
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"SCRAM://127.0.0.1:{scram},MTLS://127.0.0.1:{mtls},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "SCRAM:SASL_SSL,MTLS:SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "MTLS",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": login,
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MESSAGE_BYTES_MAX),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def _clients(authority: Authority, ports: list[int]) -> SecureBroker:
    mine = authority.issue("client")
    trust = {"ssl.ca.location": str(authority.ca)}
    by_password = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
    }
    by_certificate = {
        "ssl.certificate.location": str(mine.certificate),
        "ssl.key.location": str(mine.key),
    }
    scram, mtls = (f"127.0.0.1:{port}" for port in ports[:2])

    def cluster(bootstrap: str, properties: dict[str, str]) -> KafkaCluster:
        return KafkaCluster(
            bootstrap=bootstrap, replication_factor=1, min_insync_replicas=1, properties=properties
        )

    return SecureBroker(
        cluster(scram, trust | by_password | {"sasl.password": PASSWORD}),
        cluster(mtls, trust | {"security.protocol": "SSL"} | by_certificate),
        cluster(mtls, trust | {"security.protocol": "SSL"}),
    )
