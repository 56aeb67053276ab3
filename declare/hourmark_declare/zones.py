"""Time zones that commands are given: one that the service knows, and that of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hourmark.errors import UsageError
from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing.zones import load_zone

_LINK: Final = Path("/etc/localtime")
_FOLDER: Final = "/zoneinfo/"


def checked_zone(name: str) -> str:
    """The same name; UsageError where the service knows no such zone."""
    if load_zone(name, PARSER.zones) is None:
        raise UsageError(f"--zone {name}: allowed: an IANA time zone, such as Europe/Vienna")
    return name


def machine_zone(link: Path = _LINK) -> str:
    """Of this machine, as its link says; UTC where it says none that the service knows."""
    _, _, name = str(link.resolve()).partition(_FOLDER)
    return name if name and load_zone(name, PARSER.zones) is not None else "UTC"
