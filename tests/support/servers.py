"""Servers of the stack that are killed and come back."""

from __future__ import annotations

from hourmark.errors import Unavailable
from hourmark_infra.stack import Stack


def come_back(stack: Stack, *names: str) -> None:
    """Start the servers until all are well: a broker that finds no controller in time ends by itself."""
    for left in reversed(range(3)):
        for name in names:
            stack.start(name)
        try:
            for name in names:
                stack.wait_ready(name)
            return
        except Unavailable:
            if not left:
                raise
