"""Programs that send syslog, and a source of a host that receives it."""

from __future__ import annotations

import socket
from typing import Any

from tests.support.tailer.host import Host
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark_producer.tailer import Tailer


def receives(host: Host, text: str, **settings: Any) -> None:
    """The host's source `app` receives this from now on."""
    host.settings["sources"] = [TailedSource(name="app", input=text)]
    host.settings |= settings


def address(tailer: Tailer, source: str = "app") -> tuple[str, int]:
    """Where a source listens, as soon as it does."""
    receiving: Any = tailer.receivers.receivers[source].input
    wait_for(lambda: hasattr(receiving, "address"), "it listens")
    found: tuple[str, int] = receiving.address
    return found


def connect(tailer: Tailer, source: str = "app") -> socket.socket:
    """A sender's connection, that holds little by itself."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    made.settimeout(20)
    made.connect(address(tailer, source))
    return made


def counted(content: bytes) -> bytes:
    """Lines with octet counts in place of their newlines."""
    return b"".join(b"%d %s" % (len(line), line) for line in content.splitlines())
