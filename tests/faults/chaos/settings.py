"""What is configured: types and sources, and hourmark.toml of each host and of the center.

Pure, but for writing declarations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hourmark_verify.demo.configuration import (
    LINES_SOURCE,
    SERVER_LOG,
    SERVER_SOURCE,
    write_declarations,
)
from hourmark_verify.demo.log_lines import AD_SHOWN, TRACK_PLAYED
from hourmark_verify.demo.log_lines import LINES_TYPE as LINES

BUCKET_SECONDS: Final = 60
HOSTS: Final = ("a", "b")  # each has a tailer and a delivery service
EVENTS_SOURCE: Final = "app-events"
KINDS_SOURCE: Final = "kinds"
API_TYPE: Final = "pinged"


class Ports(NamedTuple):
    """Of one host: its service, the metrics of its tailer, and the links by which others reach what
    they need.
    """

    service: int
    tailer_metrics: int
    to_service: Mapping[str, int]  # of this host's tailer, by the service's host


def kind_names(count: int) -> list[str]:
    """The small types."""
    return [f"kind-{number:02d}" for number in range(1, count + 1)]


def declare(folder: Path, kinds: int) -> None:
    """The demo's two structured types, small ones, and one of the API."""
    write_declarations(folder)
    for unused in (LINES, SERVER_LOG):
        (folder / f"{unused}.toml").unlink()
    for name in (*kind_names(kinds), API_TYPE):
        (folder / f"{name}.toml").write_text(
            f'name = "{name}"\ndoc = "A small type."\nfields = [{{ name = "number", type '
            f'= "long" }}]\n'
        )
    sources = {EVENTS_SOURCE: [TRACK_PLAYED, AD_SHOWN], KINDS_SOURCE: kind_names(kinds)}
    assert not {LINES_SOURCE, SERVER_SOURCE} & sources.keys()
    (folder / "sources.toml").write_text(
        "\n".join(
            f'[[source]]\nname = "{name}"\ntypes = {types!r}\n'
            for name, types in sources.items()
            if types
        )
    )


def all_types(kinds: int) -> list[str]:
    """That close buckets, beside the dead letters."""
    return [TRACK_PLAYED, AD_SHOWN, *kind_names(kinds), API_TYPE]


def center_settings(
    stack: Mapping[str, Any], types: Path, ledger: str, links: Mapping[str, int]
) -> dict[str, Any]:
    """Of the driver, and of `types apply`: storage and registry by way of links."""
    return {
        **stack,
        "parsing": {"bucket_seconds": BUCKET_SECONDS},
        "types": {"dir": str(types)},
        "registry": _by_link(stack["registry"], links["registry"]),
        "storage": {**stack["storage"], "webhdfs": f"http://127.0.0.1:{links['namenode']}"},
        "etl": {**stack["etl"], "ledger": ledger, "trigger_seconds": 4.0},
    }


def with_bootstrap(settings: Mapping[str, Any], bootstrap: Mapping[str, str]) -> dict[str, Any]:
    """These, with other addresses of Kafka, by cluster."""
    kafka = settings["kafka"]
    return {
        **settings,
        "kafka": {
            **kafka,
            **{cluster: {**kafka[cluster], "bootstrap": at} for cluster, at in bootstrap.items()},
        },
    }


def second_driver_settings(center: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Of another driver of the same ledger, as on another machine."""
    return {
        **center,
        "etl": {**center["etl"], "scratch_dir": str(folder / "scratch"), "metrics_port": 0},
    }


def host_settings(
    center: Mapping[str, Any],
    host: str,
    ports: Ports,
    folder: Path,
    logs: Path,
    sources: Sequence[str],
) -> dict[str, Any]:
    """Of one host's tailer and service; its state is in `folder`, what it tails below `logs`."""
    return {
        **center,
        "service": {
            "port": ports.service,
            "state_dir": str(folder / "service"),
            "report_seconds": 1.0,
        },
        "tailer": {
            "state_dir": str(folder / "tailer"),
            "service_urls": [f"http://127.0.0.1:{port}" for port in ports.to_service.values()],
            "host_name": f"host-{host}",
            "report_seconds": 1.0,
            "metrics_port": ports.tailer_metrics,
            "sources": [{"name": name, "paths": [str(logs / name / "*")]} for name in sources],
        },
    }


def _by_link(registry: Mapping[str, Any], port: int) -> dict[str, Any]:
    path = registry["url"].split("://", 1)[1].partition("/")[2]
    return {**registry, "url": f"http://127.0.0.1:{port}/{path}"}
