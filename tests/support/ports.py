"""Ports of loopback."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Nobody listens there now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
