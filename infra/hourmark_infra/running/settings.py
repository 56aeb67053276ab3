"""The configuration of `hourmark run`: the local stack's, and over it what the user's own file
says. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hourmark.config.loading import Config
from hourmark.records.hours import Hour

_WHOLE = ("storage",)  # groups of which a part makes no sense with parts of the stack's


def run_settings(stack: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of all components.

    Each setting of the user's is taken; of `storage` the whole group, or nothing.
    """
    groups = {
        name: {**stack.get(name, {}), **group}
        if isinstance(group, Mapping) and name not in _WHOLE
        else group
        for name, group in own.items()
    }
    return {**stack, **groups}


def beginning(config: Config, now_ms: int) -> tuple[str, ...]:
    """Options of `types apply`: types that are new begin where the configuration says, so that
    lines that are there come into the hours of their own, while that is not too many buckets ago.
    What is no hour is for `types apply` to name.
    """
    first, length_s = config.types.first_hour, config.parsing.bucket_seconds
    if first is None:
        return ()
    try:
        begins = Hour.parse(first, length_s)
    except ValueError:
        return ()
    return (
        ("--first-hour", first)
        if begins >= Hour.containing(now_ms, length_s).earliest_chain_start()
        else ()
    )


def has_servers(own: Mapping[str, Any]) -> bool:
    """Whether the file names servers of its own, so that no local stack is needed."""
    return "kafka" in own
