"""`hourmark.toml` of the local stack, which every other command finds by itself. Pure."""

from __future__ import annotations

from hourmark.toml_text import render_toml
from hourmark_infra.stack.layout import METRICS, SERVICE, Layout
from hourmark_infra.stack.registry import CONFLUENT_PATH
from hourmark_infra.stack.servers import Programs

_HEAD = """# Written by `hourmark up`, and again by the next one: to change a setting, use the environment
# (HOURMARK_SERVICE__PORT=8080) or a copy of this file named with --config.
"""


def render_config(layout: Layout, programs: Programs, user: str, bucket_seconds: int) -> str:
    """The file's text; `hourmark.config.load_config` reads it."""
    groups = {
        "kafka": {
            "edge": {"bootstrap": layout.edge_bootstrap, "replication_factor": 3, "min_insync_replicas": 2},
            "central": {"bootstrap": layout.address("central-1"), "replication_factor": 1, "min_insync_replicas": 1},
        },
        "parsing": {"bucket_seconds": bucket_seconds},
        "registry": {"url": f"http://{layout.address('registry')}{CONFLUENT_PATH}"},
        "storage": {
            "root": f"hdfs://{layout.address('namenode')}/hourmark",
            "webhdfs": f"http://{layout.address('namenode-http')}",
            "user": user,
            "replication": 1,
        },
        "mirror": {
            "java": str(programs.java),
            "classpath": programs.kafka_classpath,
            "work_dir": str(layout.state / "mirror"),
            "rest_port": layout.ports["mirror-rest"],
        },
        "etl": {
            "ledger": f"sqlite:///{layout.state / 'ledger.sqlite'}",
            "scratch_dir": str(layout.state / "etl-scratch"),
            "metrics_port": layout.ports[METRICS],
        },
        "service": {"port": layout.ports[SERVICE], "state_dir": str(layout.state / SERVICE)},
        "tailer": {
            "state_dir": str(layout.state / "tailer"),
            "service_urls": [f"http://{layout.address(SERVICE)}"],
            "sources": [],
        },
    }
    return _HEAD + render_toml(groups)
