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
    """Return the path of a `java` executable of version 17 or 21, installing one if necessary.

    Raises:
        Unavailable: Java cannot be installed.
    """
    return find_java(os.environ) or install_java()


def find_java(environment: Mapping[str, str]) -> Path | None:
    """Return the path of an installed `java` of version 17 or 21, or None.

    Args:
        environment: Environment variables; `JAVA_HOME` is tried before `PATH`.
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
    """Return the path of a supported `java` and make child processes use it.

    Sets `JAVA_HOME` in this process if the first Java found there or on the `PATH` is another one,
    because Spark uses that Java whatever its version.

    Raises:
        Unavailable: Java cannot be installed.
    """
    java = java_executable()
    if next(_candidates(os.environ), None) != java:
        os.environ["JAVA_HOME"] = str(java.parent.parent)
    return java
