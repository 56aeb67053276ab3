"""`hourmark.toml` of the local stack, which every other command finds by itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from infra.stack.layout import Layout
from infra.stack.registry import CONFLUENT_PATH
from infra.stack.servers import Programs

Value: TypeAlias = str | int | Sequence[str]

_HEAD = """# Written by `hourmark up`, and again by the next one: to change a setting, use the environment
# (HOURMARK_SERVICE__PORT=8080) or a copy of this file named with --config.
"""


def render_config(layout: Layout, programs: Programs, spark_jars: Sequence[str], user: str) -> str:
    """The file's text; `hourmark.config.load_config` reads it."""
    groups: dict[str, Mapping[str, Value]] = {
        "kafka.edge": {"bootstrap": layout.edge_bootstrap, "replication_factor": 3, "min_insync_replicas": 2},
        "kafka.central": {"bootstrap": layout.address("central-1"), "replication_factor": 1, "min_insync_replicas": 1},
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
            "spark_jars": spark_jars,
            "scratch_dir": str(layout.state / "etl-scratch"),
        },
        "service": {"port": layout.ports["service"], "state_dir": str(layout.state / "service")},
        "tailer": {
            "state_dir": str(layout.state / "tailer"),
            "service_urls": [f"http://{layout.address('service')}"],
            "sources": [],
        },
    }
    return _HEAD + "".join(_group(name, values) for name, values in groups.items())


def _group(name: str, values: Mapping[str, Value]) -> str:
    # A JSON string, number or list of strings is TOML too, once DEL, which JSON leaves as it is, is escaped.
    rows = "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007F") for key, value in values.items()
    )
    return f"\n[{name}]\n{rows}"
