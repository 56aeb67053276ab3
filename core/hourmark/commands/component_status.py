"""Status of Hourmark's components, as shown by `hourmark status`.

Each component has a status function, which is loaded by name. It takes the configuration and the
time, and returns whether the component runs, as visible from this machine, when it last reported,
and the problems that the operator must resolve. Aspects that are no component of their own, such as
the event types in the ledger, have functions of the same form. All functions run in parallel with a
time limit; an error is reported as the status.
"""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.request import ProxyHandler, build_opener

from hourmark.clock import Clock
from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.config.redaction import redact
from hourmark.errors import HourmarkError, Unavailable
from hourmark.process.parallel_calls import call_all

ANSWER_SECONDS: Final = 12.0  # a driver of another machine is observed for 7 s before it is missed
LOOPBACK: Final = build_opener(ProxyHandler({}))  # requests to this machine must not use a proxy
# A component that reported within this time is running. Components report every two seconds, and one
# that died is to be named within 30 seconds.
FRESH_MS: Final = 20_000
NOT_RESOLVED: Final = "does not resolve"

COMPONENTS: Final[Mapping[str, str]] = {
    # component: module:function
    "service": "hourmark_delivery_service.component_status:service_status",
    "mirror": "hourmark_mirror.component_status:mirror_status",
    "etl": "hourmark_etl.telemetry.component_status:driver_status",
    "tailers": "hourmark_delivery_service.component_status:tailers_status",
}
_THIS_HOST: Final = "this host"
ASPECTS: Final[Mapping[str, str]] = {
    # aspect: module:function
    "types": "hourmark_etl.operators.trouble:types_status",
    _THIS_HOST: "hourmark_producer.report.component_status:local_tailer",
}


class ComponentState(StrEnum):
    """The run state of a component of Hourmark, as far as this machine can determine.

    Attributes:
        RUNNING: The component is running.
        SILENT: The component has not reported recently, and has not announced a shutdown.
        NOT_RUNNING: The component is not running.
        UNKNOWN: The state of the component could not be determined.
    """

    RUNNING = "running"
    SILENT = "silent"  # it has not reported lately, and sent no goodbye
    NOT_RUNNING = "not running"
    UNKNOWN = "unknown"  # its status could not be determined


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """The status of one component, such as the delivery service or the ETL.

    Attributes:
        state: Whether the component is running.
        detail: Human-readable description of the state.
        pid: Process id if the component runs on this machine; None otherwise.
        heard_at_ms: Time of the component's latest report or other sign of life, in Unix
            milliseconds; None if there is none.
        problems: Problems of the component. Empty if it works, was never started, or was shut down
            cleanly.
    """

    state: ComponentState
    detail: str
    pid: int | None = None
    heard_at_ms: int | None = None
    problems: tuple[Problem, ...] = ()


StatusFunction = Callable[[Config, int], ComponentStatus]


def list_problems(statuses: Mapping[str, ComponentStatus]) -> list[Problem]:
    """Collect the problems of all components and other checks into one list.

    Args:
        statuses: Maps the name of each component or check to its status.

    Returns:
        The problems, those found on this host first. `order_problems` then sorts them and, among
        problems of the same object, keeps the first one.
    """
    # What this host knows of its own tailer is more precise than that no reports arrive.
    names = sorted(statuses, key=lambda name: name != _THIS_HOST)
    return [problem for name in names for problem in statuses[name].problems]


def component_statuses(
    config: Config,
    clock: Clock,
    table: Mapping[str, str] = COMPONENTS,
    seconds: float = ANSWER_SECONDS,
) -> dict[str, ComponentStatus]:
    """Query the status of all components in parallel.

    Failures do not raise exceptions. If a query fails, the state of the component is `UNKNOWN`, and
    its detail contains the reason. Secrets are redacted.

    Args:
        config: The configuration.
        clock: Source of the current time.
        table: Maps each component name to its status function, as `module:function`.
        seconds: Time limit. A component that exceeds it has the state `UNKNOWN` and a problem.

    Returns:
        A dict that maps each component name to its status, in the order of `table`.
    """
    # Importing a component may take seconds on a busy machine, which is no fault of a server.
    functions = {name: _load(place) for name, place in table.items()}
    found = call_all(
        {
            name: functools.partial(_component_status, name, function, config, clock)
            for name, function in functions.items()
        },
        seconds,
    )
    return {name: found.get(name) or _late(name, seconds) for name in table}


def _late(name: str, seconds: float) -> ComponentStatus:
    what = f"no answer within {seconds:g} s"
    problem = Problem(
        cause=CauseClass.COMPONENT,
        key=f"late:{name}",
        subject=name,
        what=what,
        do="see whether a server hangs, or this machine is overloaded; then repeat the command",
        group="components that did not answer",
    )
    return ComponentStatus(ComponentState.UNKNOWN, what, problems=(problem,))


def _load(place: str) -> StatusFunction:
    try:
        loaded: StatusFunction = pkgutil.resolve_name(place)
        return loaded
    except ImportError:
        absent = ComponentStatus(
            ComponentState.UNKNOWN, f"not part of this installation ({place.partition(':')[0]})"
        )
        return lambda *_: absent


def _component_status(
    name: str, read_status: StatusFunction, config: Config, clock: Clock
) -> ComponentStatus:
    try:
        return _redacted(read_status(config, clock.now_ms()))
    except HourmarkError as error:
        return ComponentStatus(ComponentState.UNKNOWN, redact(str(error)))
    except PermissionError as error:
        detail = f"this user may not read {error.filename}: ask as its owner, or as root"
        return ComponentStatus(ComponentState.UNKNOWN, detail)
    except Exception as error:  # noqa: BLE001  # it must not look like a server that hangs
        return _failed(name, redact(f"{type(error).__name__}: {error}"))


def _failed(name: str, why: str) -> ComponentStatus:
    what = f"its status cannot be determined: {why}"
    problem = Problem(
        cause=CauseClass.COMPONENT,
        key=f"failed:{name}",
        subject=name,
        what=what,
        do="check it on its machine, and report this error",
    )
    return ComponentStatus(ComponentState.UNKNOWN, what, problems=(problem,))


def _redacted(status: ComponentStatus) -> ComponentStatus:
    # Texts may quote an error that contains a URL with a password.
    problems = tuple(
        dataclasses.replace(
            problem,
            subject=redact(problem.subject),
            what=redact(problem.what),
            do=redact(problem.do),
        )
        for problem in status.problems
    )
    return dataclasses.replace(status, detail=redact(status.detail), problems=problems)


def check_listening(cluster: KafkaCluster, name: str) -> None:
    """Check that at least one broker of a Kafka cluster accepts TCP connections.

    Call this function before creating a Kafka client, which would retry for a long time if the
    cluster is down. Each bootstrap address is tried once, with a timeout of 1 s, until one accepts
    a connection.

    Args:
        cluster: Settings of the cluster.
        name: Name of the cluster for the error message, such as "edge".

    Raises:
        Unavailable: No bootstrap address accepted a connection. The message states why, such as a
            name that does not resolve.
    """
    reasons = []
    for address in cluster.bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
                return
        except socket.gaierror as error:
            reasons.append(f"the name {host} {NOT_RESOLVED} ({error.strerror})")
        except TimeoutError:
            reasons.append("no answer within 1 s")
        except (OSError, ValueError) as error:
            reasons.append(getattr(error, "strerror", None) or f"{address} has no port")
    why = "; ".join(dict.fromkeys(reasons))
    raise Unavailable(f"no broker of the {name} cluster listens at {cluster.bootstrap}: {why}")


def format_age(since_ms: int, now_ms: int) -> str:
    """Format the elapsed time since a timestamp, such as `3 s`, `12 min`, `5 h` or `2 days`.

    Args:
        since_ms: The timestamp, in Unix milliseconds.
        now_ms: Current time in Unix milliseconds.

    Returns:
        The elapsed time, rounded down, in the largest unit that gives at least 2, or in seconds.
        `0 s` if the timestamp is in the future.
    """
    seconds = max(0, now_ms - since_ms) // 1000
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
