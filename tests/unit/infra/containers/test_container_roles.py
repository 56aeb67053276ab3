"""What a container renders for its role: settings that load, and name the other containers."""

from __future__ import annotations

import random
import resource
import shutil
import ssl
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from tests.support.clock import FakeClock

from hourmark.config.loading import Config, load_config
from hourmark.errors import ConfigError, UsageError
from hourmark_declare.cli import types
from hourmark_infra.containers import roles, site_setup
from hourmark_infra.containers.roles import Container
from hourmark_infra.containers.settings import connection_limit, render_settings
from hourmark_infra.containers.site import ContainerSite, read_site
from hourmark_infra.stack import kafka
from hourmark_infra.stack.servers import Programs
from hourmark_infra.stack.settings import write_settings

PROGRAMS = Programs(Path("/java"), Path("/kafka"), Path("/hadoop"), Path("/registry"))
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes certificates, is not installed"
)
FILES = 1024  # as some engines have it
FULL = read_site({})
SMALL = read_site(
    dict.fromkeys(("SITE_EDGE_BROKERS", "SITE_CENTRAL_BROKERS", "SITE_DATANODES"), "1")
)


def loaded(
    site: ContainerSite, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Config:
    monkeypatch.delenv("HOURMARK_CONFIG", raising=False)
    (tmp_path / "ledger-password").write_text("hidden")
    layout = site.layout(tmp_path)
    write_settings(
        layout,
        render_settings(site, tmp_path, PROGRAMS, role, tmp_path, FILES),
        layout.shape.datanodes[-1],
    )
    return load_config(layout.config_file)


def test_a_full_site_survives_the_loss_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(FULL, "mirror-2", tmp_path, monkeypatch)
    for name, cluster in (("edge", config.kafka.edge), ("central", config.kafka.central_cluster)):
        assert cluster.bootstrap == f"{name}-1:9092,{name}-2:9092,{name}-3:9092"
        assert (cluster.replication_factor, cluster.min_insync_replicas) == (3, 2)
    assert (
        config.storage.replication == 3 and config.storage.root == "hdfs://namenode:8020/hourmark"
    )
    assert config.mirror.rest_host == "mirror-2", "the other worker reaches this one by it"
    assert config.etl.ledger == "postgresql://hourmark:hidden@postgres/hourmark"
    assert "hidden" not in (FULL.layout(tmp_path).config_file).read_text()


def test_a_small_site_asks_for_no_copies_that_it_cannot_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(SMALL, "etl", tmp_path, monkeypatch)
    for cluster in (config.kafka.edge, config.kafka.central_cluster):
        assert (cluster.replication_factor, cluster.min_insync_replicas) == (1, 1)
    assert config.storage.replication == 1


def test_events_are_posted_with_certificates_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(FULL, "delivery-1", tmp_path, monkeypatch)
    assert (
        config.service.tls.client_ca == tmp_path / "tls/ca.pem"
        and config.service.tls.client_required
    )
    assert (
        config.tailer.service_urls == ["https://balancer:8780"]
        and config.tailer.tls.certificate == tmp_path / "tls/client.pem"
    )


@pytest.mark.parametrize(
    ("files", "most"), [(1024, 768), (2304, 2048), (1 << 20, 2048), (resource.RLIM_INFINITY, 2048)]
)
def test_a_service_takes_as_many_connections_as_its_container_has_files_for(
    files: int, most: int
) -> None:
    """With 1,024 it refused to start, and its container began again and again."""
    assert connection_limit(files) == most


@pytest.mark.parametrize(("cluster", "node"), [("edge", 2), ("central", 3)])
def test_a_broker_listens_at_every_address_is_named_by_its_host_and_knows_the_other_voters(
    cluster: str, node: int
) -> None:
    values = kafka.broker_properties(FULL.layout(Path("/h")), cluster, node)
    name = f"{cluster}-{node}"
    assert values["listeners"] == "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093", (
        "its address may change while it runs"
    )
    assert values["advertised.listeners"] == f"PLAINTEXT://{name}:9092"
    assert values["controller.quorum.voters"] == ",".join(
        f"{n}@{cluster}-{n}:9093" for n in (1, 2, 3)
    )
    assert values["min.insync.replicas"] == "2"


def test_a_datanode_has_a_name_that_writers_are_sent_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(FULL, "datanode-3", tmp_path, monkeypatch)
    root = ElementTree.parse(FULL.layout(tmp_path).settings / "hadoop" / "hdfs-site.xml").getroot()
    values = {str(row.findtext("name")): str(row.findtext("value")) for row in root}
    assert (
        values["dfs.datanode.hostname"] == "datanode-3"
        and values["dfs.datanode.http.address"] == "0.0.0.0:9864"
    )
    assert (
        values["dfs.namenode.rpc-bind-host"] == values["dfs.namenode.http-bind-host"] == "0.0.0.0"
    )
    assert (
        values["dfs.namenode.http-address"] == "namenode:9870" and values["dfs.replication"] == "3"
    )


@pytest.mark.parametrize("value", ["0", "-1", "three", "²"])
def test_a_size_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(ConfigError, match="SITE_DATANODES"):
        read_site({"SITE_DATANODES": value})


@needs_openssl
def test_ids_and_certificates_are_made_once(tmp_path: Path) -> None:
    assert site_setup.create_site_files(tmp_path)
    made = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert not site_setup.create_site_files(tmp_path)
    assert made == {path: path.read_bytes() for path in made}
    assert {path.name for path in made} == {
        "clusters.json",
        "ledger-password",
        "ready",
        "ca.pem",
        "service.pem",
        "client.pem",
    }
    assert all(
        path.stat().st_mode & 0o077 == 0
        for path in made
        if path.name.endswith(("service.pem", "client.pem", "password"))
    )
    (tmp_path / site_setup.READY).unlink()  # as if it had been cut short
    assert site_setup.create_site_files(tmp_path)
    assert (tmp_path / "tls/ca.pem").read_bytes() != made[tmp_path / "tls/ca.pem"]


@needs_openssl
def test_a_container_of_another_size_than_the_first_start_is_refused(tmp_path: Path) -> None:
    # After the start with small.env, a command without `--env-file` has the full size.
    started, clock = tmp_path / "site", FakeClock()
    started.mkdir()
    roles.run_role(Container("setup", SMALL, tmp_path, started, clock), [])
    refused = "started with SITE_EDGE_BROKERS=1, SITE_CENTRAL_BROKERS=1.*not 3, 3.*--env-file"
    for role in ("types", "operator", "edge-2", "setup"):
        with pytest.raises(ConfigError, match=refused):
            roles.run_role(Container(role, FULL, tmp_path, started, clock), ["bucket", "ls"])
    with pytest.raises(ConfigError, match=r"SITE_BUCKET_SECONDS=60.*not 3600"):
        roles.run_role(
            Container("setup", SMALL._replace(bucket_seconds=3600), tmp_path, started, clock), []
        )
    other = SMALL._replace(canary=True, mirrors=2, datanodes=3, spark_master="spark://a:7077")
    roles.run_role(Container("setup", other, tmp_path, started, clock), [])


@needs_openssl
def test_a_site_of_0_3_0_gets_the_size_of_its_next_start(tmp_path: Path) -> None:
    roles.run_role(Container("setup", SMALL, tmp_path, tmp_path, FakeClock()), [])
    (tmp_path / site_setup.SIZE).unlink()
    site_setup.check_size(tmp_path, FULL)  # 0.3.0 did not record it
    roles.run_role(Container("setup", SMALL, tmp_path, tmp_path, FakeClock()), [])
    with pytest.raises(ConfigError, match="SITE_EDGE_BROKERS=1"):
        site_setup.check_size(tmp_path, FULL)


@needs_openssl
def test_the_certificates_are_of_the_services_and_their_balancer(tmp_path: Path) -> None:
    site_setup.create_site_files(tmp_path)
    tls = tmp_path / "tls"
    for name in ("service", "client"):
        ssl.create_default_context(cafile=tls / "ca.pem").load_cert_chain(tls / f"{name}.pem")
        verify = ["openssl", "verify", "-CAfile", str(tls / "ca.pem"), str(tls / f"{name}.pem")]
        subprocess.run(verify, check=True, capture_output=True)
    for host in ("balancer", "delivery-1", "delivery-2", "localhost"):
        command = ["openssl", "x509", "-in", str(tls / "service.pem"), "-noout", "-checkhost", host]
        assert (
            "does match"
            in subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )


def test_a_role_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="unknown role 'broker-1'; valid roles are setup, whole, edge"
    ):
        roles.run_role(Container("broker-1", FULL, tmp_path, tmp_path, FakeClock()), [])


def test_what_the_application_logs_is_events_of_the_example_types(tmp_path: Path) -> None:
    draw = random.Random(7)
    lines = b"".join(roles.render_line(number, 1_790_000_000_000, draw) for number in range(1, 21))
    arguments = [
        "try",
        "--dir",
        str(Path(__file__).parents[4] / "examples/types"),
        "--source",
        "app",
        "--lines",
        "-",
    ]
    command = [*arguments, "--observed-at", "2026-09-21T14:13:21Z"]
    told = CliRunner().invoke(types, command, input=lines, catch_exceptions=False).stdout
    assert told.endswith("events: 18 page-viewed, 2 app-log; dead letters: none\n")


def test_a_full_log_is_renamed_and_none_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    for number in range(3):
        log.write_bytes(b"%d" % number + b"x" * roles.ROTATE_BYTES)
        roles.rotate_if_full(log)
    assert not log.exists()
    assert [tmp_path.joinpath(f"app.log.{number}").read_bytes()[:1] for number in (1, 2, 3)] == [
        b"2",
        b"1",
        b"0",
    ]
    log.write_bytes(b"small")
    roles.rotate_if_full(log)
    assert log.read_bytes() == b"small"


def test_prometheus_reaches_the_metrics_from_other_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(FULL, "tailer", tmp_path, monkeypatch)
    hosts = (config.etl.metrics_host, config.tailer.metrics_host, config.mirror.metrics_host)
    assert {*hosts} == {"0.0.0.0"}
