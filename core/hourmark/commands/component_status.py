"""How Hourmark's own components stand: each room tells of its own, and is found by name, as
commands are (`hourmark.cli`).

A room's function gets the configuration and the time, and answers what it knows: whether the
component runs, as this machine sees it, and when it was last heard of. All are asked at once, for a
bounded time; what keeps one from answering is told instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.request import ProxyHandler, build_opener

from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError, Unavailable
from hourmark.process.asking import ask_all

ANSWER_SECONDS: Final = 8.0
LOOPBACK: Final = build_opener(
    ProxyHandler({})
)  # a component of this machine is asked directly: a proxy has no business here
FRESH_MS: Final = 30_000  # heard of within this, it runs: reports and looks come every few seconds

COMPONENTS: Final[Mapping[str, str]] = {
    # component: module:function
    "service": "hourmark_delivery_service.component_status:service",
    "mirror": "hourmark_mirror.component_status:mirror_status",
    "etl": "hourmark_etl.telemetry.component_status:driver",
    "tailers": "hourmark_delivery_service.component_status:tailers",
}


class State(StrEnum):
    """What is known of a component."""

    RUNNING = "running"
    SILENT = "silent"  # it was heard of, but not lately, and said no goodbye
    NOT_RUNNING = "not running"
    UNKNOWN = "unknown"  # it could not be asked


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """Of one component. `pid`: on this machine; `heard_at_ms`: when it was last heard of, by
    whatever way.
    """

    state: State
    detail: str
    pid: int | None = None
    heard_at_ms: int | None = None


Ask = Callable[[Config, int], ComponentStatus]


def component_statuses(
    config: Config,
    now_ms: int,
    table: Mapping[str, str] = COMPONENTS,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, ComponentStatus]:
    """Of each component of the table, in its order. Takes no longer than `seconds`."""
    found = ask_all(
        {name: functools.partial(_answer, place, config, now_ms) for name, place in table.items()},
        seconds,
    )
    late = ComponentStatus(State.UNKNOWN, f"no answer within {seconds:g} s")
    return {name: found.get(name, late) for name in table}


def _answer(place: str, config: Config, now_ms: int) -> ComponentStatus:
    module, function = place.split(":")
    try:
        ask: Ask = getattr(importlib.import_module(module), function)
        status = ask(config, now_ms)
        return dataclasses.replace(status, detail=redact(status.detail))  # it may quote an error
    except ImportError:
        return ComponentStatus(State.UNKNOWN, f"this installation is without it ({module})")
    except HourmarkError as error:
        return ComponentStatus(State.UNKNOWN, redact(str(error)))


def must_listen(cluster: KafkaCluster, name: str) -> None:
    """Unavailable, at once, where no broker of the cluster listens: Kafka's own client would try
    for long.
    """
    for address in cluster.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        with (
            contextlib.suppress(OSError, ValueError),
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0),
        ):
            return
    raise Unavailable(f"no broker of the {name} cluster listens at {cluster.bootstrap}")


def age(since_ms: int, now_ms: int) -> str:
    """`3 s`, `12 min`, `5 h`, `2 days`: human-readable."""
    seconds = max(0, now_ms - since_ms) // 1000
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
