"""Store the time zones of the installed `tzdata` permanently, for use by rules revisions.

Run as `python -m tools.keep_zone_data`. Stored zone data never changes, because ranges that name it
are parsed with it years later. An existing version is therefore not written again, and the digest
of its content becomes part of the contract's test vectors.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.resources
import io
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from hourmark.errors import UsageError
from hourmark.process.durable import write_durably

_ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = _ROOT / "delivery_service" / "hourmark_delivery_service" / "parsing" / "zone_data"
DIGESTS: Final = _ROOT / "tests" / "contract" / "vectors" / "zone_data.json"
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)  # a zip's first day: the same content is the same file


def main(folder: Path = FOLDER, digests: Path = DIGESTS) -> None:
    """Store the zone data of the installed `tzdata` version.

    Args:
        folder: Folder of the zip files.
        digests: File with the digest of each stored version.

    Raises:
        UsageError: The version is stored already.
    """
    version, zones = importlib.metadata.version("tzdata"), installed_zones()
    file = folder / f"{version}.zip"
    if file.exists():
        raise UsageError(
            f"{file} already exists, and rules revisions refer to it; it must not be written again"
        )
    write_durably(file, zipped(zones), mode=0o644)
    known = json.loads(digests.read_text()) if digests.exists() else {}
    write_durably(
        digests,
        (json.dumps({**known, version: digest_of(zones)}, indent=2) + "\n").encode(),
        mode=0o644,
    )
    print(
        f"{file.name}: {len(zones)} zones, {file.stat().st_size // 1000} kB\nnext step: add it "
        f"to hourmark.rules.revision.PARSER, ParserVersion(<the same parser>, {version!r}), and "
        "upgrade all services before `hourmark types apply` writes a revision that names it"
    )


def installed_zones() -> dict[str, bytes]:
    """Return the TZif data of each zone in the installed `tzdata` by zone name, sorted by name."""
    return dict(sorted(_zones(importlib.resources.files("tzdata").joinpath("zoneinfo"), "")))


def _zones(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _zones(entry, f"{prefix}{entry.name}/")
        elif (data := entry.read_bytes()).startswith(b"TZif"):
            yield prefix + entry.name, data


def zipped(zones: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of time zones; equal zones always give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(zones.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def digest_of(zones: Mapping[str, bytes]) -> str:
    """Return the digest of zone names and data, which does not depend on how they are stored."""
    whole = hashlib.blake2b(digest_size=16)
    for name, data in sorted(zones.items()):
        whole.update(f"{name}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(str(error))
