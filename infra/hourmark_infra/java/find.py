"""Which Java runs the servers: `$JAVA_HOME`, then `java` on the PATH, if it is version 17 or 21;
else one is installed.

Other versions are passed over: Spark 4.1 and Hadoop 3.5 are tested with 17 and 21.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from hourmark.java_version import ALLOWED, java_major_version
from hourmark_infra.java.install import install_java


def java_executable() -> Path:
    """Path of a `java` of an allowed version, installed into the user's cache where the machine has
    none.
    """
    return find_java(os.environ) or install_java()


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The machine's own `java` of an allowed version, or None."""
    return next(
        (java for java in _candidates(environment) if java_major_version(java) in ALLOWED), None
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH")):
        yield Path(found)


def export_java_home() -> Path:
    """Make the processes started from here take the Java found here; returns it.

    Spark takes `$JAVA_HOME`, else `java` on the PATH, whatever its version; where that is another
    one, `$JAVA_HOME` is set.
    """
    java = java_executable()
    if next(_candidates(os.environ), None) != java:
        os.environ["JAVA_HOME"] = str(java.parent.parent)
    return java
