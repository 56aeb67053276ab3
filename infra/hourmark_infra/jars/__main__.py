"""`python -m hourmark_infra.jars`: fetch all that the servers are run from, Java first; with all of
it there, nothing is done.
"""

from __future__ import annotations

from hourmark_infra import jars
from hourmark_infra.jars.lockfile import set_names
from hourmark_infra.java.find import java_executable

for name in set_names():
    jars.ensure(name, java_executable)
