"""The demo's hourmark.toml: the stack's, with buckets of a minute, quick reports, and sources of
the demo. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hourmark_verify.demo.declarations import EVENTS_SOURCE, LINES_SOURCE, SERVER_SOURCE
from hourmark_verify.demo.rendering import HOST

BUCKET_SECONDS: Final = 60
SERVER_LOGS: Final = (
    "edge-*.log",
    "central-*.log",
    "namenode.log",
    "datanode.log",
    "mirror.log",
    "registry.log",
)
ZONE: Final = "UTC"  # the demo starts its servers with TZ=UTC, so their logs need no guess


def demo_settings(
    stack: Mapping[str, Any], server_logs: Path, sources: Path, types: Path
) -> dict[str, Any]:
    """The settings of all components; `stack` is the parsed hourmark.toml of the stack."""
    tailed = [
        {
            "name": SERVER_SOURCE,
            "paths": [str(server_logs / pattern) for pattern in SERVER_LOGS],
            "zone": ZONE,
        },
        {"name": LINES_SOURCE, "paths": [str(sources / LINES_SOURCE / "*")]},
        {"name": EVENTS_SOURCE, "paths": [str(sources / EVENTS_SOURCE / "*")]},
    ]
    return {
        **stack,
        "parsing": {"bucket_seconds": BUCKET_SECONDS},
        "types": {"dir": str(types)},
        "service": {**stack["service"], "report_seconds": 1.0},
        "etl": {
            **stack["etl"],
            "trigger_seconds": 4.0,
        },  # a batch costs seconds of CPU, however small; the closer needs them too
        "tailer": {**stack["tailer"], "host_name": HOST, "report_seconds": 1.0, "sources": tailed},
    }
