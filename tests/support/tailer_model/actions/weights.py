"""Which actions there are, and how often each is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.support.tailer_model.world import World

Action = Callable[[World], None]
PLAIN: Final[dict[Action, int]] = {}  # with these alone nothing is lost, and nothing is unknown
HARD: Final[dict[Action, int]] = {}


def plain(weight: int) -> Callable[[Action], Action]:
    """An action by which nothing is destroyed."""
    return lambda action: _among(PLAIN, action, weight)


def hard(weight: int) -> Callable[[Action], Action]:
    """One that may destroy what nobody has read yet, or what the tailer knows."""
    return lambda action: _among(HARD, action, weight)


def _among(weights: dict[Action, int], action: Action, weight: int) -> Action:
    weights[action] = weight
    return action
