"""The result of `hourmark status`: a summary, the problems with their next steps, and all parts.

The module performs no I/O. The text fits on one screen: few problems are shown, and long details
are truncated; `--json` contains everything.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hourmark.commands.component_status import (
    ComponentState,
    ComponentStatus,
    format_age,
    list_problems,
)
from hourmark.commands.problems import Problem, order_problems
from hourmark.commands.server_status import ServerStatus
from hourmark.printing import cut_text

PROBLEMS_SHOWN: Final = 8
SERVERS_SHOWN: Final = 12
_DETAIL_SHOWN: Final = 160  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """A snapshot of the status of an installation, as shown by `hourmark status`.

    Attributes:
        now_ms: Time of the report, in Unix milliseconds.
        config: Path of the configuration file; None if there is none.
        servers: Status of each server that Hourmark uses, such as a Kafka broker.
        components: Maps the name of each component of Hourmark, such as `etl`, to its status.
        aspects: Maps the names of other checks to their results: `types` (whether the buckets of
            event types are closed in time) and `this host` (the log shipper on this machine).
        problems: The problems of all servers, components and aspects, without duplicates. Causes
            come before consequences. Problems of components and aspects are omitted if an operator
            has stopped all servers. Computed from the other attributes.
    """

    now_ms: int
    config: str | None
    servers: Sequence[ServerStatus]
    components: Mapping[str, ComponentStatus]
    aspects: Mapping[str, ComponentStatus]
    problems: Sequence[Problem] = field(init=False)

    def __post_init__(self) -> None:
        # The server of a local mirror knows its log, and the component since when it copies nothing.
        parts = {} if self.stopped else {**self.components, **self.aspects}
        found = order_problems(
            [
                *(server.to_problem() for server in self.servers if not server.healthy),
                *list_problems(parts),
            ]
        )
        object.__setattr__(self, "problems", found)

    @property
    def is_well(self) -> bool:
        """Return whether the report contains no problem."""
        return not self.problems

    @property
    def stopped(self) -> ServerStatus | None:
        """Return the entry that represents all servers if an operator has stopped them.

        Returns:
            The entry of `servers`. None if the servers were not stopped.
        """
        return next((server for server in self.servers if server.is_stopped), None)

    @property
    def unknown(self) -> list[str]:
        """Return the names of the components and other checks (aspects) with an unknown state.

        A state is unknown if it cannot be determined from this machine, for example because a
        client library is not installed. Returns an empty list if all states are known.
        """
        parts = {**self.components, **self.aspects}
        return [name for name, part in parts.items() if part.state is ComponentState.UNKNOWN]

    def verdict(self) -> str:
        """Return a one-line summary of the report for the operator.

        The summary begins with `TROUBLE:` and the first problem, with `WELL:` if there is none, or
        with `STOPPED:` if an operator has stopped all servers. It ends with the names of the
        components whose state is unknown.
        """
        if self.stopped is not None:
            return f"STOPPED: {self.stopped.name} ({self.stopped.address}): {self.stopped.detail}"
        unseen = f"; not known from here: {', '.join(self.unknown)}" if self.unknown else ""
        if self.problems:
            first, more = self.problems[0], len(self.problems) - 1
            others = f"; {more} more {'problem' if more == 1 else 'problems'}" if more else ""
            return f"TROUBLE: {first.subject}: {_cut(first.what)}{others}{unseen}"
        running = [n for n, c in self.components.items() if c.state is ComponentState.RUNNING]
        stopped = [n for n, c in self.components.items() if c.state is ComponentState.NOT_RUNNING]
        parts = [
            *([f"all {len(self.servers)} servers are healthy"] if self.servers else ()),
            *([f"running: {', '.join(running)}"] if running else ()),
            *([f"not running: {', '.join(stopped)}"] if stopped else ()),
        ]
        return f"WELL: {'; '.join(parts) or 'nothing is configured here'}{unseen}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict, the output of `hourmark status --json`."""
        return {
            "ok": self.is_well,
            "verdict": self.verdict(),
            "at_ms": self.now_ms,
            "config": self.config,
            "memory_mb": sum(server.memory_mb for server in self.servers),
            "problems": [problem.to_json() for problem in self.problems],
            "servers": [server.to_json() for server in self.servers],
            "components": [_part_json(name, part) for name, part in self.components.items()],
            "aspects": [_part_json(name, part) for name, part in self.aspects.items()],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text, the output of `hourmark status`.

        The summary comes first, then at most 8 problems with their next steps, then servers and
        components. If there are more than 12 servers, healthy ones are only counted.
        """
        yield self.verdict()
        if self.stopped is not None:
            yield f"    do: {self.stopped.do}"
            for name, part in self.components.items():
                if part.state is ComponentState.RUNNING:
                    yield f"{_part_line(name, part)}; it waits for the servers"
            return
        for n, problem in enumerate(self.problems[:PROBLEMS_SHOWN], 1):
            yield from _problem_lines(n, problem, self.now_ms)
        if (more := len(self.problems) - PROBLEMS_SHOWN) > 0:
            yield f"and {more} more problems: `hourmark status --json` has all"
        yield from self._server_lines()
        for name, part in (*self.components.items(), *self.aspects.items()):
            yield _part_line(name, part)

    def _server_lines(self) -> Iterator[str]:
        shown = [s for s in self.servers if not s.healthy or len(self.servers) <= SERVERS_SHOWN]
        for s in shown:
            pid = f"pid {s.pid} " if s.pid is not None else ""
            memory = f"{s.memory_mb} MB " if s.memory_mb else ""
            state = "healthy" if s.healthy else "NOT HEALTHY"
            yield f"{s.name:<12} {state:<11} {pid}{memory}{s.address} {_cut(s.detail)}"
        if len(shown) < len(self.servers):
            yield f"{len(self.servers) - len(shown)} other servers are healthy"


def _part_line(name: str, part: ComponentStatus) -> str:
    pid = f"pid {part.pid} " if part.pid is not None else ""
    return f"{name:<12} {part.state:<11} {pid}{_cut(part.detail)}"


def _part_json(name: str, part: ComponentStatus) -> dict[str, Any]:
    return {"name": name, **{k: v for k, v in asdict(part).items() if k != "problems"}}


def _problem_lines(number: int, problem: Problem, now_ms: int) -> Iterator[str]:
    since = ""
    if problem.since_ms is not None:
        at = dt.datetime.fromtimestamp(problem.since_ms / 1000, dt.UTC)
        since = f", since {at:%Y-%m-%d %H:%M:%S}Z ({format_age(problem.since_ms, now_ms)})"
    examples = f" (such as {', '.join(problem.examples)})" if problem.examples else ""
    yield f"{number:>2}. {problem.subject}{examples}{since}: {problem.what}"
    yield f"    do: {problem.do}"


def _cut(text: str) -> str:
    return cut_text(text, _DETAIL_SHOWN)
