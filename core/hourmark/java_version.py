"""Detection of a Java executable's version.

Kafka 4, Spark 4.1 and Hadoop 3.5 are tested with the versions in `ALLOWED`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

ALLOWED: Final = (17, 21)


def java_major_version(java: Path) -> int | None:
    """Run `java -version` and return the major version of Java.

    Args:
        java: Path of the Java executable.

    Returns:
        The major version, such as 17, or 8 for Java 1.8. None if the executable cannot be run,
        exits with an error, or does not answer within 30 s.
    """
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_version(done.stderr + done.stdout) if done.returncode == 0 else None


def parse_java_version(output: str) -> int | None:
    """Extract the major version from the output of `java -version`.

    Args:
        output: Text such as `openjdk version "17.0.15" …` or `java version "1.8.0_202"`.

    Returns:
        The major version, such as 17 or 8. None if the text contains no version.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None
