"""The configuration of `hourmark run`: the local stack's, and over it what the user's own file says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WHOLE = ("storage",)  # groups of which a part makes no sense with parts of the stack's


def run_settings(stack: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of all components. Each setting of the user's is taken; of `storage` the whole group, or nothing."""
    groups = {
        name: {**stack.get(name, {}), **group} if isinstance(group, Mapping) and name not in _WHOLE else group
        for name, group in own.items()
    }
    return {**stack, **groups}


def has_servers(own: Mapping[str, Any]) -> bool:
    """Whether the file names servers of its own, so that no local stack is needed."""
    return "kafka" in own
