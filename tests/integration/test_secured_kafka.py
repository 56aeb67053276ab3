"""A broker that demands a password or a certificate: what Hourmark does with Kafka, it does there;
and tokens in their topic.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.secure_broker import PASSWORD, SecureBroker, secure_broker
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.topic_names import TOKENS
from hourmark_delivery_service.access.cli import token as token_command
from hourmark_delivery_service.access.token import token_digest
from hourmark_delivery_service.access.token_store import TokenStore
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.process.store_follower import StoreFollower
from hourmark_delivery_service.queue.kafka_queue import KafkaQueue
from hourmark_infra.stack import LocalStack

pytestmark = pytest.mark.stack

WITHIN_S = 5.0


@pytest.fixture(scope="module")
def broker(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure"), stack.programs) as broker:
        yield broker


def run(config_file: Path, *arguments: str) -> dict[str, object]:
    """`hourmark token …`, its answer as JSON."""
    result = CliRunner().invoke(
        token_command, [*arguments, "--json", "--config", str(config_file)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def written(folder: Path, cluster: KafkaCluster) -> Path:
    """A configuration of this cluster, whose password stands in a file."""
    (folder / "password").write_text(PASSWORD + "\n")
    properties = {
        **cluster.properties,
        **(
            {"sasl.password": f"${{file:{folder}/password}}"}
            if "sasl.password" in cluster.properties
            else {}
        ),
    }
    lines = "".join(
        f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in properties.items()
    )
    file = folder / "hourmark.toml"
    file.write_text(
        f'[kafka.edge]\nbootstrap = "{cluster.bootstrap}"\nreplication_factor = '
        "1\nmin_insync_replicas = 1\n"
        f"[kafka.edge.properties]\n{lines}"
    )
    return file


@pytest.mark.parametrize("way", ["scram", "mtls"])
def test_tokens_are_created_followed_and_revoked_within_five_seconds(
    tmp_path: Path, broker: SecureBroker, way: str
) -> None:
    cluster: KafkaCluster = getattr(broker, way)
    file = written(tmp_path, cluster)
    made = run(file, "create", f"by {way}", "--type", "click", "--expires-in", "1h")
    text, token_id = str(made["token"]), str(made["id"])
    books = [TokenStore(SystemClock(), ServiceMetrics()) for _ in range(3)]
    followers = [StoreFollower(Config(kafka={"edge": cluster}), TOKENS, book) for book in books]
    for follower in followers:
        follower.start()
    try:
        wait_for(lambda: all(book.get(token_id) for book in books), "all know it")
        known = books[0].get(token_id)
        assert (
            known is not None
            and known.digest == token_digest(text)
            and not known.revoked
            and known.types == ("click",)
        )
        run(file, "revoke", token_id)
        began_s = time.monotonic()
        wait_for(
            lambda: all(getattr(book.get(token_id), "revoked", False) for book in books),
            "all refuse it",
            WITHIN_S,
        )
        assert time.monotonic() - began_s < WITHIN_S
    finally:
        for follower in followers:
            follower.stop()
    listed = {str(row["id"]): row for row in run(file, "list")["tokens"]}  # type: ignore[attr-defined]
    assert listed[token_id]["revoked_at_ms"] is not None
    secret = text.removeprefix(f"hmk_{token_id}_")  # it may hold "_" itself
    assert len(secret) > 20
    assert not any(
        secret.encode() in (value or b"")
        for _, value in read_topic(cluster, TOKENS, cluster_name="edge")
    )
    assert Cluster(cluster, "edge").topic_configs([TOKENS])[TOKENS]["cleanup.policy"] == "compact"


@pytest.mark.parametrize("way", ["scram", "mtls"])
def test_the_service_s_queue_appends_there(broker: SecureBroker, way: str) -> None:
    cluster: KafkaCluster = getattr(broker, way)

    async def main() -> None:
        queue = KafkaQueue(Config(kafka={"edge": cluster}), ServiceMetrics())
        await queue.append({TOKENS: [{"key": b"x" * 16, "value": b"{}"}]})
        assert await queue.problems([TOKENS]) == []
        await queue.close(10)

    asyncio.run(main())


def test_who_is_not_let_in_is_told_so_without_the_password(
    broker: SecureBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark.kafka.clients.TIMEOUT_S", 3.0)
    wrong = broker.scram.model_copy(
        update={"properties": {**broker.scram.properties, "sasl.password": PASSWORD + "x"}}
    )
    in_clear = broker.scram.model_copy(update={"properties": {}})
    with caplog.at_level(logging.DEBUG):
        for cluster in (wrong, broker.plain, in_clear):
            with pytest.raises(Unavailable) as refused:
                Cluster(cluster, "edge").names()
            assert PASSWORD not in str(refused.value) + caplog.text + repr(cluster)
