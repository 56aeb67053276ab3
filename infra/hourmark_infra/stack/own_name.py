"""Whether this machine's own name has an address: Hadoop and Spark ask for it at their start, and
end without one.
"""

from __future__ import annotations

import socket

from hourmark.errors import Unavailable


def check_own_name() -> None:
    """Raises Unavailable with what to do. Installers see to it; a machine made by hand may
    lack it.
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
