"""`hourmark.toml` of the local stack, which every other command finds by itself. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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


def render_toml(settings: Mapping[str, Any], prefix: str = "") -> str:
    """A TOML document of tables, arrays of tables, strings, numbers and lists of strings."""
    scalars = {name: value for name, value in settings.items() if not _is_table(value)}
    text = f"\n[{prefix[:-1]}]\n" if prefix and scalars else ""
    for name, value in scalars.items():
        # A JSON string, number or list is TOML too, once DEL, which JSON leaves as it is, is escaped.
        text += f"{_key(name)} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007F")
    for name, value in settings.items():
        if isinstance(value, Mapping):
            text += render_toml(value, f"{prefix}{_key(name)}.")
        elif _is_table(value):
            text += "".join(f"\n[[{prefix}{_key(name)}]]\n{render_toml(row)}" for row in value)
    return text


def _key(name: str) -> str:
    """Quoted where it has to be: `spark.driver.memory` is one key, not three tables."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))
