"""Generation of the server settings, the folders that servers require, and `hourmark.toml`."""

from __future__ import annotations

from pathlib import Path

from hourmark.process.durable import write_durably
from hourmark_infra.stack import config_file, hadoop, kafka
from hourmark_infra.stack.layout import CLUSTERS, Layout


def write_settings(layout: Layout, config_text: str, datanode: str = "datanode") -> None:
    """Write the configuration files of all servers of a stack, and `hourmark.toml`.

    Folders are created if necessary. A file that already has the correct content is not changed.

    Args:
        layout: Paths, ports and number of the servers.
        config_text: Text of `hourmark.toml`, which tells commands where the servers are.
        datanode: Name of the DataNode whose settings are written to `hdfs-site.xml`.
    """
    for folder in (layout.logs, layout.data, layout.state):
        folder.mkdir(parents=True, exist_ok=True)
    for webapp in hadoop.WEBAPPS:
        (layout.settings / "hadoop" / "webapps" / webapp).mkdir(parents=True, exist_ok=True)
    texts: dict[str | Path, str] = {
        "kafka-log4j2.properties": kafka.LOG4J2,
        "hadoop/core-site.xml": hadoop.render_site(hadoop.core_site(layout)),
        "hadoop/hdfs-site.xml": hadoop.render_site(hadoop.hdfs_site(layout, datanode)),
        "hadoop/log4j.properties": hadoop.LOG4J,
        layout.config_file: config_text,
    }
    texts.update(kafka.FILES)
    for cluster in CLUSTERS:
        for node in layout.nodes(cluster):
            properties = kafka.broker_properties(layout, cluster, node)
            texts[f"{cluster}-{node}.properties"] = kafka.render_properties(properties)
    for worker in layout.shape.mirrors[1:]:
        texts[layout.worker_file(worker)] = config_file.render_worker_config(
            layout, config_text, worker
        )
    for name, text in texts.items():
        path = layout.settings / name  # the absolute one stays as it is
        if not path.is_file() or path.read_text() != text:
            write_durably(path, text.encode())
