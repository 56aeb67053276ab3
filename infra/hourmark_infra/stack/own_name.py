"""Check that this machine's host name resolves, which Hadoop and Spark require at startup."""

from __future__ import annotations

import socket

from hourmark.errors import Unavailable


def check_own_name() -> None:
    """Check that this machine's host name resolves to an address.

    Raises:
        Unavailable: The name does not resolve. The message contains the line to add to
            `/etc/hosts`.
    """
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise Unavailable(
            f"this machine's own name, {name}, has no address ({error}), and HDFS and Spark do "
            "not start without: "
            f"add the line `127.0.1.1 {name}` to /etc/hosts, then repeat the command"
        ) from error
