"""JMX access to the brokers on the loopback interface, read-only.

JMX without a password lets any program on the machine run code in the broker. The password is not a
secret: the protection is the role, which can only read.
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
    """Return the JVM options that enable read-only JMX on the loopback interface.

    Args:
        settings: Folder with the access and password files of `FILES`.
        port: TCP port of JMX and RMI.
    """
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
