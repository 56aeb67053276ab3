"""Rendering of the local stack's `hourmark.toml`, which the other commands read by default."""

from __future__ import annotations

import tomllib
from typing import Any

from hourmark.config.toml_text import render_toml
from hourmark_infra.stack.layout import CLUSTERS, METRICS, MIRRORS, SERVICE, Layout, replication
from hourmark_infra.stack.options import Clusters
from hourmark_infra.stack.registry import CONFLUENT_PATH
from hourmark_infra.stack.servers import Programs

_HEAD = """# Written by `hourmark up`, and again by the next one: to change a setting, use the environment
# (HOURMARK_SERVICE__PORT=8080) or a copy of this file named with --config.
"""


def render_config(
    layout: Layout, programs: Programs, user: str, bucket_seconds: int, clusters: Clusters = 2
) -> str:
    """Render the file `hourmark.toml` for a local stack.

    Other commands read this file to find the servers of the stack.

    Args:
        layout: Paths and ports of the stack.
        programs: Programs that run the servers.
        user: Name of the operating system user, used as HDFS user.
        bucket_seconds: Length of a bucket in seconds.
        clusters: Number of Kafka clusters: 2 (edge and central) or 1.
    """
    return _HEAD + render_toml(stack_settings(layout, programs, user, bucket_seconds, clusters))


def stack_settings(
    layout: Layout, programs: Programs, user: str, bucket_seconds: int, clusters: Clusters = 2
) -> dict[str, dict[str, Any]]:
    """Return the settings of a local stack as a dict with the structure of `hourmark.toml`.

    Args:
        layout: Paths and ports of the stack.
        programs: Programs that run the servers.
        user: Name of the operating system user, used as HDFS user.
        bucket_seconds: Length of a bucket in seconds.
        clusters: Number of Kafka clusters: 2 (edge and central) or 1.

    Returns:
        Maps each group to its setting names and values.
    """
    return {
        "kafka": {cluster: _cluster_settings(layout, cluster) for cluster in CLUSTERS[:clusters]},
        "parsing": {"bucket_seconds": bucket_seconds},
        "registry": {"url": f"http://{layout.address('registry')}{CONFLUENT_PATH}"},
        "storage": {
            "root": f"hdfs://{layout.address('namenode')}/hourmark",
            "webhdfs": f"http://{layout.address('namenode-http')}",
            "user": user,
            "replication": replication(len(layout.shape.datanodes))[0],
        },
        "mirror": {
            "java": str(programs.java),
            "classpath": programs.kafka_classpath,
            **_worker_settings(layout, MIRRORS[0]),
            **({"workers": len(layout.shape.mirrors)} if len(layout.shape.mirrors) > 1 else {}),
        },
        "etl": {
            "ledger": f"sqlite:///{layout.state / 'ledger.sqlite'}",
            "scratch_dir": str(layout.state / "etl-scratch"),
            "metrics_port": layout.ports[METRICS],
        },
        "service": {"port": layout.ports[SERVICE], "state_dir": str(layout.state / SERVICE)},
        "tailer": tailer_settings(layout),
    }


def tailer_settings(layout: Layout) -> dict[str, Any]:
    """Return the group `tailer` of the settings of a local stack.

    Args:
        layout: Paths and ports of the stack.
    """
    return {
        "state_dir": str(layout.state / "tailer"),
        "service_urls": [f"http://{layout.address(SERVICE)}"],
        "sources": [],
    }


def render_worker_config(layout: Layout, config_text: str, worker: str) -> str:
    """Render the configuration file of an additional MirrorMaker 2 worker.

    The settings are the same as in `hourmark.toml`, except for the worker's working folder and the
    port of its REST server.

    Args:
        layout: Paths and ports of the stack.
        config_text: Text of `hourmark.toml`.
        worker: Name of the worker, such as `mirror-2`.

    Raises:
        KeyError: The layout contains no REST port for this worker.
    """
    settings = tomllib.loads(config_text)
    settings["mirror"] |= _worker_settings(layout, worker)
    return _HEAD + render_toml(settings)


def _worker_settings(layout: Layout, worker: str) -> dict[str, Any]:
    return {"work_dir": str(layout.state / worker), "rest_port": layout.ports[f"{worker}-rest"]}


def _cluster_settings(layout: Layout, cluster: str) -> dict[str, Any]:
    copies, in_sync = replication(len(layout.nodes(cluster)))
    return {
        "bootstrap": layout.bootstrap(cluster),
        "replication_factor": copies,
        "min_insync_replicas": in_sync,
    }
