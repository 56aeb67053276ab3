"""Two clusters that let nobody in without a password or a certificate: MirrorMaker 2 between them,
and the ETL that reads there.

Each way is tried on each side: the mirror reads with a password and writes with a certificate, the
ETL asks the edge with a certificate and reads the centre with a password.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.delivered import times
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.secure_broker import PASSWORD, SecureBroker, secure_broker

from hourmark.config.groups import KafkaCluster
from hourmark.config.toml_text import render_toml
from hourmark.kafka.compacted_topic import read_topic
from hourmark.records.hours import Hour
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.layout import free_ports

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(600)]

TYPE = f"secured-{uuid.uuid4().hex[:8]}"
EVENTS = 50


@dataclasses.dataclass(frozen=True)
class Secured:
    """Both clusters. `folder`: of all that Hourmark writes; secrets stand outside of it."""

    edge: SecureBroker
    central: SecureBroker
    folder: Path
    stack: LocalStack

    def configured(
        self, name: str, edge: KafkaCluster, central: KafkaCluster, **groups: dict[str, Any]
    ) -> Path:
        """A configuration of these clusters, and otherwise of the stack; the password stands in a
        file.
        """
        secret = self.folder.parent / "password"
        secret.write_text(PASSWORD)
        settings = tomllib.loads(self.stack.layout.config_file.read_text())
        settings["kafka"] = {"edge": edge.model_dump(), "central": central.model_dump()}
        for cluster in settings["kafka"].values():
            cluster["properties"] |= (
                {"sasl.password": f"${{file:{secret}}}"}
                if "sasl.password" in cluster["properties"]
                else {}
            )
        for group, changed in groups.items():
            settings[group] |= changed
        file = self.folder / name
        file.write_text(render_toml(settings))
        return file

    def secrets(self) -> list[str]:
        """What nobody may find: the password, and a line of each private key."""
        keys = [
            Path(broker.mtls.properties["ssl.key.location"]) for broker in (self.edge, self.central)
        ]
        return [PASSWORD, *(key.read_text().splitlines()[1] for key in keys)]


@pytest.fixture(scope="module")
def secured(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    outside = tmp_path_factory.mktemp("secured")
    folder = outside / "hourmark"
    folder.mkdir()
    with contextlib.ExitStack() as ends:
        with ThreadPoolExecutor() as pool:  # both at once
            brokers = [
                secure_broker(outside / name, stack.programs) for name in ("edge", "central")
            ]
            edge, central = pool.map(ends.enter_context, brokers)
        yield Secured(edge, central, folder, stack)


@pytest.fixture(scope="module")
def run(secured: Secured, first_hour: Hour) -> EtlRun:
    """Its driver shows Spark's events."""
    shown = secured.folder / "spark-events"
    shown.mkdir()
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{shown}",
    }
    config = secured.configured("etl.toml", secured.edge.mtls, secured.central.scram)
    folder = secured.folder / "etl"
    return EtlRun(
        config,
        folder,
        [TYPE],
        first_hour,
        root=f"file://{folder}/root",
        etl={"spark_conf": spark},
        cluster="both",
    )


@pytest.fixture(scope="module")
def mirror(secured: Secured, run: EtlRun) -> Iterator[psutil.Process]:
    """`hourmark mirror run`, once topics are there."""
    folder = secured.folder / "mirror"
    own = {"work_dir": str(folder), "rest_port": free_ports(("rest",))["rest"]}
    config = secured.configured("mirror.toml", secured.edge.scram, secured.central.mtls, mirror=own)
    command = [sys.executable, "-m", "hourmark", "mirror", "run", "--config", str(config)]
    with (secured.folder / "mirror.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def test_an_hour_closes_and_nobody_tells_a_secret(
    secured: Secured, run: EtlRun, mirror: psutil.Process, first_hour: Hour
) -> None:
    with run:
        delivery = DirectDelivery(run.config)
        delivery.deliver(delivery.make(TYPE, times(first_hour, EVENTS)))
        delivery.report(first_hour.end_ms)
        assert run.closed(TYPE, first_hour, 300).events == EVENTS
        arguments = command_lines(mirror) + command_lines(psutil.Process(run.pid))
    assert any("MirrorMaker" in line for line in arguments) and any(
        "pyspark" in line for line in arguments
    )
    told = {"a process' arguments": "\n".join(arguments)}
    told |= {
        str(file): file.read_text(errors="replace")
        for file in secured.folder.rglob("*")
        if file.is_file()
    }
    assert any("SparkListenerEnvironmentUpdate" in text for text in told.values()), (
        "there is an event log"
    )
    configs = read_topic(secured.central.mtls, "mm2-configs.edge.internal", cluster_name="central")
    told["the mirror's topic of settings"] = "\n".join(
        (value or b"").decode() for _, value in configs
    )
    assert "sasl.jaas.config" in told["the mirror's topic of settings"]
    told_of = [
        (where, secret[:8])
        for where, text in told.items()
        for secret in secured.secrets()
        if secret in text
    ]
    assert told_of == [(str(secured.folder / "mirror" / "mm2-secrets.properties"), PASSWORD[:8])]


def command_lines(process: psutil.Process) -> list[str]:
    """Of the process and all that it started."""
    lines = []
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended a moment ago
            lines.append(" ".join(each.cmdline()))
    return lines
