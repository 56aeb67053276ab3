"""The servers' settings, and `hourmark.toml`, which must load."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from hourmark.config.loading import load_config
from hourmark_infra.stack import hadoop, kafka
from hourmark_infra.stack.config_file import render_config
from hourmark_infra.stack.layout import DATANODES, MIRRORS, PORT_NAMES, SPREAD, Layout
from hourmark_infra.stack.servers import Programs, server_table
from hourmark_infra.stack.settings import write_settings

PORTS = {name: 20_000 + index for index, name in enumerate(PORT_NAMES)}
PROGRAMS = Programs(Path("/usr/bin/java"), Path("/c/kafka"), Path("/c/hadoop"), Path("/c/registry"))


@pytest.mark.parametrize("name", ["plain", "with space", 'quote"and\\slash', "grüße-𝄞"])
def test_the_written_configuration_loads_and_names_this_stack(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOURMARK_CONFIG", raising=False)
    layout = Layout(tmp_path / name, PORTS)
    write_settings(layout, render_config(layout, PROGRAMS, "me", 3600))
    config = load_config(layout.config_file)
    assert config.kafka.mirrored
    assert config.kafka.edge.bootstrap == "127.0.0.1:20000,127.0.0.1:20001,127.0.0.1:20002"
    assert (config.kafka.edge.replication_factor, config.kafka.edge.min_insync_replicas) == (3, 2)
    assert config.kafka.central_cluster.bootstrap == f"127.0.0.1:{PORTS['central-1']}"
    assert (
        config.kafka.central_cluster.replication_factor,
        config.kafka.central_cluster.min_insync_replicas,
    ) == (1, 1)
    assert config.registry.url.endswith(f":{PORTS['registry']}/apis/ccompat/v7")
    assert config.etl.ledger == f"sqlite:///{layout.state}/ledger.sqlite"
    assert config.tailer.service_urls == [f"http://127.0.0.1:{config.service.port}"]
    for folder in (
        config.service.state_dir,
        config.tailer.state_dir,
        config.mirror.work_dir,
        config.etl.scratch_dir,
    ):
        assert folder.is_relative_to(layout.home)


def test_the_broker_takes_the_longest_message_that_the_configuration_allows(tmp_path: Path) -> None:
    layout = Layout(tmp_path, PORTS)
    write_settings(layout, render_config(layout, PROGRAMS, "me", 3600))
    assert load_config(layout.config_file).kafka.max_message_bytes == kafka.MESSAGE_BYTES_MAX


@pytest.mark.parametrize(
    ("cluster", "node", "copies", "in_sync"), [("edge", 3, "3", "2"), ("central", 1, "1", "1")]
)
def test_internal_topics_are_as_safe_as_the_cluster_allows(
    cluster: str, node: int, copies: str, in_sync: str
) -> None:
    values = kafka.broker_properties(Layout(Path("/h"), PORTS), cluster, node)
    assert (
        values["offsets.topic.replication.factor"]
        == values["transaction.state.log.replication.factor"]
        == copies
    )
    assert values["transaction.state.log.min.isr"] == values["min.insync.replicas"] == in_sync
    assert (
        values["unclean.leader.election.enable"] == values["auto.create.topics.enable"] == "false"
    )
    assert values["message.max.bytes"] == values["replica.fetch.max.bytes"] == "8388608"
    assert all(
        part.split("://")[1].startswith("127.0.0.1:") for part in values["listeners"].split(",")
    )


def test_properties_keep_backslashes() -> None:
    assert kafka.render_properties({"b": "x\\y", "a": "1"}) == "a=1\nb=x\\\\y\n"


def test_hadoop_sites_are_xml_with_every_address_on_loopback() -> None:
    layout = Layout(Path("/h & <co>"), PORTS)
    root = ElementTree.fromstring(
        hadoop.render_site({**hadoop.core_site(layout), **hadoop.hdfs_site(layout, "datanode")})
    )
    values = {str(row.findtext("name")): str(row.findtext("value")) for row in root}
    assert values["hadoop.tmp.dir"] == "/h & <co>/stack/data/hadoop-tmp"
    assert all(
        value.startswith("127.0.0.1:") for name, value in values.items() if name.endswith("address")
    )


def test_servers_of_a_spread_stack_have_an_address_and_a_folder_each_and_keep_three_copies(
    tmp_path: Path,
) -> None:
    layout = Layout(tmp_path, PORTS, SPREAD)
    write_settings(layout, render_config(layout, PROGRAMS, "me", 3600))
    config = load_config(layout.config_file)
    assert (
        config.kafka.central_cluster.replication_factor,
        config.kafka.central_cluster.min_insync_replicas,
    ) == (3, 2)
    assert config.storage.replication == 3
    servers = server_table(layout, lambda: PROGRAMS, {"edge": "e", "central": "c"}, mirror=True)
    assert {"central-1", "central-2", "central-3"} <= {*servers["mirror"].depends_on}
    site = ElementTree.parse(layout.settings / "hadoop" / "hdfs-site.xml")
    first = {str(row.findtext("name")): str(row.findtext("value")) for row in site.getroot()}
    own = [first] + [
        dict(w.split("=", 1) for w in servers[name].command() if w.startswith("dfs."))
        for name in DATANODES[1:]
    ]
    for name in (
        "dfs.datanode.data.dir",
        "dfs.datanode.address",
        "dfs.datanode.http.address",
        "dfs.datanode.ipc.address",
    ):
        assert len({values[name] for values in own}) == 3, name


def test_the_mirror_and_its_watch_are_in_the_table_only_where_they_are_wanted(
    tmp_path: Path,
) -> None:
    ids = {"edge": "e", "central": "c"}
    with_mirror = server_table(Layout(tmp_path, PORTS), lambda: PROGRAMS, ids, mirror=True)
    without = server_table(Layout(tmp_path, PORTS), lambda: PROGRAMS, ids, mirror=False)
    assert set(with_mirror) - set(without) == {"mirror", "mirror-watch"}
    for name in ("mirror", "mirror-watch"):
        assert set(with_mirror[name].depends_on) == {"edge-1", "edge-2", "edge-3", "central-1"}
    old = {
        name: port for name, port in PORTS.items() if name != "mirror-watch"
    }  # of a stack of an earlier version
    assert "mirror-watch" not in server_table(
        Layout(tmp_path, old), lambda: PROGRAMS, ids, mirror=True
    )


def test_each_worker_of_a_mirror_has_a_port_a_folder_and_a_file_of_its_own_and_else_the_same(
    tmp_path: Path,
) -> None:
    layout, ids = (
        Layout(tmp_path, PORTS, SPREAD._replace(mirrors=MIRRORS)),
        {"edge": "e", "central": "c"},
    )
    write_settings(layout, render_config(layout, PROGRAMS, "me", 3600))
    servers = server_table(layout, lambda: PROGRAMS, ids, mirror=True)
    files = [Path(servers[name].command()[-1]) for name in MIRRORS]
    first, second = (load_config(file) for file in files)
    assert files == [layout.config_file, layout.settings / "mirror-2.toml"]
    assert (
        servers["mirror-2"].address
        == f"127.0.0.1:{second.mirror.rest_port}"
        != servers["mirror"].address
    )
    assert second.mirror.work_dir == layout.state / "mirror-2" == servers["mirror-2"].data
    assert (first.mirror.rest_port, first.mirror.work_dir) == (
        PORTS["mirror-rest"],
        layout.state / "mirror",
    )
    own = {"rest_port": first.mirror.rest_port, "work_dir": first.mirror.work_dir}
    assert second.model_copy(update={"mirror": second.mirror.model_copy(update=own)}) == first
    assert first.mirror.workers == 2, "its watch counts them"
    assert servers["mirror-watch"].command()[-1] == str(layout.config_file)


def test_brokers_tell_their_metrics_only_where_it_is_wanted_and_only_to_who_reads_on_loopback(
    tmp_path: Path,
) -> None:
    layout, ids = Layout(tmp_path, PORTS), {"edge": "e", "central": "c"}
    write_settings(layout, render_config(layout, PROGRAMS, "me", 3600))
    for wanted in (False, True):
        servers = server_table(layout, lambda: PROGRAMS, ids, mirror=False, jmx=wanted)
        options = {
            word.partition("=")[0]: word.partition("=")[2]
            for word in servers["edge-2"].command()
            if "jmxremote" in word
        }
        assert bool(options) is wanted
    assert options["-Dcom.sun.management.jmxremote.port"] == str(PORTS["edge-2-jmx"])
    assert options["-Dcom.sun.management.jmxremote.host"] == "127.0.0.1"
    assert options["-Dcom.sun.management.jmxremote.authenticate"] == "true"
    assert Path(options["-Dcom.sun.management.jmxremote.access.file"]).read_text().split()[1:] == [
        "readonly"
    ]
    assert (
        Path(options["-Dcom.sun.management.jmxremote.password.file"]).stat().st_mode & 0o077 == 0
    ), "Java wants it so"
