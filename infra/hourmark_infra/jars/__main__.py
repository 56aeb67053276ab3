"""`python -m hourmark_infra.jars`: download Java and the jars of all servers to the user's cache.

Files that are in the cache already are not downloaded again.
"""

from __future__ import annotations

from hourmark_infra import jars
from hourmark_infra.jars.lockfile import set_names
from hourmark_infra.java.find import java_executable

for name in set_names():
    jars.ensure(name, java_executable)
