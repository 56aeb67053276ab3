"""JMX of the brokers, on loopback: who listens in may read metrics and change nothing.

JMX without a password lets any program of the machine run code in the broker. The password here is
no secret: what protects is the role, which only reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROLE: Final = "hourmark"
PASSWORD: Final = "reads-only"  # noqa: S105  # see above

ACCESS_FILE: Final = "jmx.access"
# a name; Java wants the file to be its owner's alone
PASSWORD_FILE: Final = "jmx.password"  # noqa: S105
FILES: Final = {ACCESS_FILE: f"{ROLE} readonly\n", PASSWORD_FILE: f"{ROLE} {PASSWORD}\n"}

_PREFIX: Final = "-Dcom.sun.management.jmxremote"


def jmx_options(settings: Path, port: int) -> tuple[str, ...]:
    """Of a Java whose metrics are told at this port of loopback; `FILES` are in `settings`."""
    return (
        f"{_PREFIX}.port={port}",
        f"{_PREFIX}.rmi.port={port}",
        f"{_PREFIX}.host=127.0.0.1",
        "-Djava.rmi.server.hostname=127.0.0.1",
        f"{_PREFIX}.ssl=false",
        f"{_PREFIX}.authenticate=true",
        f"{_PREFIX}.access.file={settings / ACCESS_FILE}",
        f"{_PREFIX}.password.file={settings / PASSWORD_FILE}",
    )
