"""Selection of the Java that runs the servers: `$JAVA_HOME`, then `java` on the `PATH`.

Only versions 17 and 21 are accepted, because Spark 4.1 and Hadoop 3.5 are tested with them. If
neither is found, a Java is installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from hourmark.java_version import ALLOWED, java_major_version
from hourmark_infra.java.install import install_java


def java_executable() -> Path:
    """Return the path of a `java` executable of version 17 or 21.

    Java is downloaded to the user's cache if no such version is found on this machine.

    Raises:
        Unavailable: Java cannot be installed.
    """
    return find_java(os.environ) or install_java()


def find_java(environment: Mapping[str, str]) -> Path | None:
    """Find a `java` executable of version 17 or 21 on this machine.

    Args:
        environment: Names and values of environment variables. `JAVA_HOME` is tried first, then
            `PATH`.

    Returns:
        The path of the executable; None if no supported version is found.
    """
    return next(
        (java for java in _candidates(environment) if java_major_version(java) in ALLOWED), None
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Path(found)


def export_java_home() -> Path:
    """Set `JAVA_HOME` for child processes if necessary, and return the path of `java`.

    Spark uses the Java in `JAVA_HOME` or on the `PATH` without checking its version. If this
    version is not supported, the function sets `JAVA_HOME` to a supported one in the environment of
    this process.

    Raises:
        Unavailable: Java cannot be installed.
    """
    java = java_executable()
    if next(_candidates(os.environ), None) != java:
        os.environ["JAVA_HOME"] = str(java.parent.parent)
    return java
