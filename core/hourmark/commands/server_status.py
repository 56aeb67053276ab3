"""Status of the servers that Hourmark uses: Kafka brokers, schema registry, storage.

If the configuration is that of the local stack, the stack reports its servers. Otherwise the
servers named in the configuration are asked; groups that are not configured are omitted. Functions
are loaded by name, because a log host has neither a Kafka client nor the local stack. All run in
parallel with a time limit.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError
from hourmark.process.parallel_calls import call_all

ANSWER_SECONDS: Final = 10.0
LOCAL: Final = "hourmark_infra.stack.local_servers:local_servers"
SERVERS: Final[Mapping[str, str]] = {
    # group of the configuration: module:function
    "kafka": "hourmark.commands.kafka_servers:kafka_servers",
    "registry": "hourmark.commands.kafka_servers:registry_server",
    "storage": "hourmark_etl.telemetry.storage_server:storage_server",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The state of one server, as `hourmark status` shows it.

    Attributes:
        name: Name of the server, for example `edge-1`.
        pid: Process ID; None if the server does not run on this machine, or not at all.
        address: Network address, such as `host:port` or a URL.
        memory_mb: Resident memory of the server and its child processes, in megabytes; 0 if
            unknown.
        healthy: Whether the server passed its health check.
        detail: Text that describes the result of the health check.
        log: Path of the log file; empty if the server is not of the local stack.
        do: Next step of the operator; empty if the server is healthy.
        since_ms: Unix milliseconds since when the server is not healthy; None if unknown.
    """

    name: str
    pid: int | None = None
    address: str
    memory_mb: int = 0
    healthy: bool
    detail: str
    log: str = ""
    do: str = ""
    since_ms: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the status as values that `json.dumps` accepts."""
        shown = ("name", "pid", "address", "memory_mb", "healthy", "detail", "log")
        return {name: getattr(self, name) for name in shown}

    def to_problem(self) -> Problem:
        """Return the problem of a server that is not healthy."""
        return Problem(
            cause=CauseClass.SERVER,
            # the component of the same name has the same key
            key="mirror" if self.name == "mirror" else f"server:{self.name}:{self.address}",
            subject=f"{self.name} ({self.address})" if self.address else self.name,
            what=self.detail,
            do=self.do,
            since_ms=self.since_ms,
        )


ServersFunction = Callable[[Config], "list[ServerStatus]"]
LocalFunction = Callable[[Config | None], "list[ServerStatus] | None"]


def local_server_statuses(config: Config | None) -> list[ServerStatus] | None:
    """Return the servers of the local stack.

    Args:
        config: The configuration; None if there is none, which means the local stack.

    Returns:
        None if there is no local stack, if the configuration names other servers, or if this
        installation has no local stack.
    """
    module, function = LOCAL.split(":")
    try:
        local: LocalFunction = getattr(importlib.import_module(module), function)
    except ImportError:
        return None
    return local(config)


def remote_server_statuses(
    config: Config, table: Mapping[str, str] = SERVERS, seconds: float = ANSWER_SECONDS
) -> list[ServerStatus]:
    """Ask the servers that the configuration names, in parallel.

    Args:
        config: The configuration.
        table: Function of each group of settings, as `module:function`.
        seconds: Time limit of all servers together.

    Returns:
        One entry per server, in the order of `table`. Groups that the configuration does not
        contain, or whose client is not installed, are omitted.
    """
    groups = [group for group in table if group in config.model_fields_set]
    functions = {group: _load(table[group]) for group in groups}
    found = call_all(
        {
            name: functools.partial(_ask, name, function, config)
            for name, function in functions.items()
        },
        seconds,
    )
    late = f"no answer within {seconds:g} s"
    return [server for group in groups for server in found.get(group, [_failed(group, late)])]


def _load(place: str) -> ServersFunction:
    module, function = place.split(":")
    try:
        loaded: ServersFunction = getattr(importlib.import_module(module), function)
        return loaded
    except ImportError:
        return lambda _: []


def _ask(group: str, ask: ServersFunction, config: Config) -> list[ServerStatus]:
    try:
        return ask(config)
    except HourmarkError as error:
        return [_failed(group, redact(str(error)))]


def _failed(group: str, detail: str) -> ServerStatus:
    return ServerStatus(
        name=group,
        address="",
        healthy=False,
        detail=detail,
        do=f"see that the servers of the group `{group}` run and are reached from this machine: "
        "`hourmark doctor`",
    )
