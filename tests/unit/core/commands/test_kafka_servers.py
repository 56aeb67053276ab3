"""`hourmark.commands.kafka_servers`: why a broker does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from hourmark.commands.kafka_servers import (
    ask_brokers,
    broker_metadata,
    first_metadata,
    silent_broker_step,
)
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable


@pytest.fixture
def closing() -> Iterator[str]:
    """A server that closes each connection once something is sent, as a broker without TLS does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    accepted, _ = server.accept()
                    with accepted:
                        accepted.recv(16)
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_a_tls_handshake_that_fails_is_named(closing: str) -> None:
    settings = KafkaCluster(bootstrap=closing, properties={"security.protocol": "SSL"})
    with pytest.raises(Unavailable, match=r"transport failure; ssl://.*SSL_HANDSHAKE") as failed:
        broker_metadata(settings, 2)
    assert "security.protocol and the certificates" in silent_broker_step(
        closing, str(failed.value)
    )


def test_each_bootstrap_address_has_its_own_reason(closing: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        hangs = f"127.0.0.1:{hanging.getsockname()[1]}"
        settings = KafkaCluster(bootstrap=f"127.0.0.1:1,{hangs}, kafka.invalid:9092")
        answers = ask_brokers("edge", settings)
    assert first_metadata(answers) is None
    refused, silent, unknown = map(str, answers.values())
    assert refused.endswith("127.0.0.1:1: Connection refused")
    assert "Failed to get metadata" in silent and "does not resolve" in unknown
    assert list(answers) == ["127.0.0.1:1", hangs, "kafka.invalid:9092"]
