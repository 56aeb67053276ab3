"""Time zones for commands: validation of a given one, and the zone of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hourmark.errors import UsageError
from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing.zones import load_zone

_LINK: Final = Path("/etc/localtime")
_FOLDER: Final = "/zoneinfo/"


def validate_zone(name: str) -> str:
    """Check that the delivery service supports a time zone, and return its name unchanged.

    Args:
        name: Value of the option `--zone`, an IANA time zone name such as `Europe/Vienna`.

    Raises:
        UsageError: The name is not a known IANA time zone.
    """
    if load_zone(name, PARSER.zones) is None:
        raise UsageError(f"--zone {name}: allowed: an IANA time zone, such as Europe/Vienna")
    return name


def machine_zone(link: Path = _LINK) -> str:
    """Return the IANA name of this machine's time zone, such as `Europe/Vienna`.

    Args:
        link: Symbolic link to a file in the time zone database, by default `/etc/localtime`.

    Returns:
        The name of the zone; `UTC` if the link does not lead to a zone that the delivery service
        supports.
    """
    _, _, name = str(link.resolve()).partition(_FOLDER)
    return name if name and load_zone(name, PARSER.zones) is not None else "UTC"
