"""The local stack's servers for `hourmark status`, if the configuration is that of the stack."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from pathlib import Path

from hourmark.commands.server_status import ServerStatus
from hourmark.config.loading import Config, stack_state_dir
from hourmark_infra.stack.control import LocalStack
from hourmark_infra.stack.state import state_file


def local_servers(config: Config | None) -> list[ServerStatus] | None:
    """Return the status of the local stack's servers if the configuration uses the local stack.

    Args:
        config: The configuration; None to use the local stack.

    Returns:
        The status of each server, in start order. A single entry for the whole stack if `hourmark
        down` has stopped it. None if there is no local stack, or if the configuration uses another
        edge cluster.

    Raises:
        HourmarkError: The state file of the stack cannot be read.
    """
    if (stopped := stopped_stack(config)) is not None:
        return [stopped]
    stack = _load_stack(config)
    return None if stack is None else [_with_next_step(server) for server in stack.status()]


def stopped_stack(config: Config | None) -> ServerStatus | None:
    """Return a single status entry for the local stack if `hourmark down` has stopped it.

    The state file of the stack contains this information, so no server is contacted.

    Args:
        config: The configuration; None to use the local stack.

    Returns:
        The entry, with the time of `hourmark down` and the next step. None if the stack was not
        stopped, there is no local stack, or the configuration uses another edge cluster.

    Raises:
        HourmarkError: The state file of the stack cannot be read.
    """
    stack = _load_stack(config)
    if stack is None or stack.stopped_at_ms is None:
        return None
    return _stopped(stack.home, stack.stopped_at_ms)


def _load_stack(config: Config | None) -> LocalStack | None:
    home = stack_state_dir()
    if not state_file(home).exists():
        return None
    stack = LocalStack.load(home)
    if config is not None and config.kafka.edge.bootstrap != stack.layout.bootstrap("edge"):
        return None
    return stack


def _stopped(home: Path, at_ms: int) -> ServerStatus:
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    return ServerStatus(
        name="local stack",
        address=str(home),
        healthy=False,
        is_stopped=True,
        detail=f"`hourmark down` stopped its servers at {at:%Y-%m-%d %H:%M:%S}Z; data is kept",
        do="`hourmark up` starts the servers; `hourmark run` also starts the components",
        since_ms=at_ms,
    )


def _with_next_step(server: ServerStatus) -> ServerStatus:
    if server.healthy or server.do:
        return server
    if server.pid is not None:
        do = (
            f"check its log {server.log}; if it hangs, end process {server.pid}, then run "
            "`hourmark up`"
        )
        return dataclasses.replace(server, do=do)
    logged = ""
    with contextlib.suppress(OSError):
        last = dt.datetime.fromtimestamp(Path(server.log).stat().st_mtime, dt.UTC)
        logged = f"; the last entry of its log was written at {last:%Y-%m-%d %H:%M:%S}Z"
    do = f"start it with `hourmark up`; its log: {server.log}"
    return dataclasses.replace(server, detail=f"{server.detail}{logged}", do=do)
