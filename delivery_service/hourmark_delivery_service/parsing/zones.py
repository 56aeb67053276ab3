"""Time zones by their IANA name, from the version of the zone data that a rules revision names.

The versions are stored next to this module as `zone_data/<version>.zip`, for as long as any range
may name them. Neither the machine's zone files nor an installed `tzdata` package is used, so a
local time has the same meaning on every instance, years and releases later. `tools.keep_zone_data`
adds a version.
"""

from __future__ import annotations

import functools
import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

FOLDER = Path(__file__).parent / "zone_data"
_SUFFIX = ".zip"


def zone_versions() -> frozenset[str]:
    """Return the versions of the IANA time zone data that this software contains.

    Pass one of them to `load_zone` as `version`.
    """
    return frozenset(file.stem for file in FOLDER.glob(f"*{_SUFFIX}"))


def load_zone(name: str, version: str) -> ZoneInfo | None:
    """Return a time zone by its IANA name, from a given version of the time zone data.

    The data is part of this software. The zone files of the machine are not used.

    Args:
        name: IANA name, such as `Europe/Berlin`.
        version: Version of the time zone data, one of `zone_versions`.

    Returns:
        The time zone, or None if there is no zone with this name.

    Raises:
        ValueError: If this version of the data is missing or damaged.
    """
    return _zone(str(FOLDER), version, name)


@functools.lru_cache(maxsize=2048)  # of zones in use, of all versions
def _zone(folder: str, version: str, name: str) -> ZoneInfo | None:
    data = _files(Path(folder, version + _SUFFIX)).get(name)
    return None if data is None else ZoneInfo.from_file(io.BytesIO(data), key=name)


@functools.lru_cache(
    maxsize=8
)  # half a megabyte each; of a further one the names in use are read again
def _files(archive: Path) -> Mapping[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as kept:
            return {name: kept.read(name) for name in kept.namelist()}
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"the time zone data {archive.name} cannot be read: {error}; reinstall Hourmark"
        ) from error
