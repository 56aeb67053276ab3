"""Time zones by their IANA name, always from the locked `tzdata` package and never from the machine's own files.

So every instance that runs one version of Hourmark reads a local time alike, whatever its operating system has.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from zoneinfo import ZoneInfo

_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}")


@functools.lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo | None:
    """The zone of that name, or None where there is none."""
    if not _NAME.fullmatch(name):
        return None
    file = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    try:
        with file.open("rb") as stream:
            return ZoneInfo.from_file(stream, key=name)
    except (OSError, ValueError):
        return None
