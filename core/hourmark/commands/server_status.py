"""Status of the servers that Hourmark uses: Kafka brokers, schema registry, storage.

If the configuration is that of the local stack, the stack reports its servers. Otherwise the
servers named in the configuration are asked; groups that are not configured are omitted. Functions
are loaded by name, because a log host has neither a Kafka client nor the local stack. All run in
parallel with a time limit.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError
from hourmark.process.parallel_calls import call_all

ANSWER_SECONDS: Final = 10.0
LOCAL: Final = "hourmark_infra.stack.local_servers:local_servers"
STOPPED: Final = "hourmark_infra.stack.local_servers:stopped_stack"
SERVERS: Final[Mapping[str, str]] = {
    # group of the configuration: module:function
    "kafka": "hourmark.commands.kafka_servers:kafka_servers",
    "registry": "hourmark.commands.kafka_servers:registry_server",
    "storage": "hourmark_etl.telemetry.storage_server:storage_server",
}


LEAVE_SAFE_MODE: Final = (
    "see that its DataNodes run; if they do and it stays in safe mode: `hdfs dfsadmin -safemode "
    "leave` (docs/runbooks/hdfs-down.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The health of one server that Hourmark uses, such as a Kafka broker.

    Attributes:
        name: Name of the server, such as `edge-1`.
        pid: Process id; None if the server does not run on this machine, or not at all.
        address: Network address, such as `host:port` or a URL. Empty if the entry represents a
            group of servers.
        memory_mb: Resident memory of the server and its child processes, in megabytes; 0 if
            unknown.
        healthy: Whether the server passed its health check.
        detail: Description of the result of the health check.
        log: Path of the log file; empty if the server was not started by `hourmark up`.
        do: What the operator should do next; empty if the server is healthy.
        since_ms: Time at which the server became unhealthy, in Unix milliseconds; None if it is
            healthy or the time is unknown.
        is_stopped: Whether an operator has stopped all servers. The entry then represents all of
            them.
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
    is_stopped: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the status as a JSON-serializable dict.

        The attributes `do`, `since_ms` and `is_stopped` are omitted.
        """
        shown = ("name", "pid", "address", "memory_mb", "healthy", "detail", "log")
        return {name: getattr(self, name) for name in shown}

    def to_problem(self) -> Problem:
        """Create the `Problem` that `hourmark status` reports for this unhealthy server.

        Call this method only if `healthy` is false. `detail` becomes the description of the
        problem, and `do` its next step.
        """
        return Problem(
            cause=CauseClass.SERVER,
            # the component of the same name has the same key
            key="mirror" if self.name == "mirror" else f"server:{self.name}:{self.address}",
            subject=f"{self.name} ({self.address})" if self.address else self.name,
            what=self.detail,
            do=self.do,
            since_ms=self.since_ms,
            group=f"servers {self.name}",
        )


ServersFunction = Callable[[Config], "list[ServerStatus]"]
LocalFunction = Callable[[Config | None], "list[ServerStatus] | None"]


def local_server_statuses(config: Config | None) -> list[ServerStatus] | None:
    """Return the status of the servers that `hourmark up` started on this machine.

    These servers are called the local stack.

    Args:
        config: The configuration; None if there is no configuration file.

    Returns:
        One entry for each server. None if there is no local stack, the configuration refers to
        other servers, or the package that starts the stack is not installed.
    """
    local: LocalFunction | None = _load_local(LOCAL)
    return None if local is None else local(config)


def stopped_local_stack(config: Config) -> ServerStatus | None:
    """Return the status of the local stack if `hourmark down` has stopped it.

    The local stack consists of the servers that `hourmark up` started on this machine.

    Args:
        config: The configuration.

    Returns:
        One status for all servers of the stack, with the time and the next step. None if the stack
        was not stopped, there is no local stack, the configuration refers to other servers, or the
        package that starts the stack is not installed.

    Raises:
        HourmarkError: The state file of the stack cannot be read.
    """
    stopped: Callable[[Config], ServerStatus | None] | None = _load_local(STOPPED)
    return None if stopped is None else stopped(config)


def remote_server_statuses(
    config: Config, table: Mapping[str, str] = SERVERS, seconds: float = ANSWER_SECONDS
) -> list[ServerStatus]:
    """Check the health of all configured servers in parallel.

    Failures do not raise exceptions. If the check of a settings group fails or times out, the group
    has one unhealthy entry.

    Args:
        config: The configuration.
        table: Maps each settings group, such as `kafka`, to the function that checks its servers,
            as `module:function`.
        seconds: Time limit for all checks together.

    Returns:
        The entries of all groups, in the order of `table`. Groups that the configuration does not
        contain, or whose client library is not installed, are omitted.
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


def _load_local(place: str) -> Any:
    # None if the package that starts the local stack is not installed.
    try:
        return pkgutil.resolve_name(place)
    except ImportError:
        return None


def _load(place: str) -> ServersFunction:
    try:
        loaded: ServersFunction = pkgutil.resolve_name(place)
        return loaded
    except ImportError:
        return lambda _: []


def _ask(group: str, ask: ServersFunction, config: Config) -> list[ServerStatus]:
    try:
        return ask(config)
    except HourmarkError as error:
        return [_failed(group, redact(str(error)))]
    except Exception as error:  # noqa: BLE001  # it must not look like a server that hangs
        return [_failed(group, redact(f"the check failed: {type(error).__name__}: {error}"))]


def _failed(group: str, detail: str) -> ServerStatus:
    return ServerStatus(
        name=group,
        address="",
        healthy=False,
        detail=detail,
        do=f"see that the servers of the group `{group}` run and are reached from this machine: "
        "`hourmark doctor`",
    )
