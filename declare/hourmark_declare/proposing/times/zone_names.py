"""Time zones by the abbreviations and names that log files write, such as `CET` and `Europe/Berlin`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hourmark.rules.revision import PARSER
from hourmark_delivery_service.parsing.zones import load_zone

_ZONES: Final = {
    "CET": "Europe/Berlin",
    "CEST": "Europe/Berlin",
    "MET": "Europe/Berlin",
    "MEST": "Europe/Berlin",
    "WET": "Europe/Lisbon",
    "WEST": "Europe/Lisbon",
    "EET": "Europe/Helsinki",
    "EEST": "Europe/Helsinki",
    "MSK": "Europe/Moscow",
    "BST": "Europe/London",
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "MST": "America/Denver",
    "MDT": "America/Denver",
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "AKST": "America/Anchorage",
    "AKDT": "America/Anchorage",
    "HST": "Pacific/Honolulu",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "IST": "Asia/Kolkata",
    "HKT": "Asia/Hong_Kong",
    "PKT": "Asia/Karachi",
    "WIB": "Asia/Jakarta",
    "SAST": "Africa/Johannesburg",
    "AEST": "Australia/Sydney",
    "AEDT": "Australia/Sydney",
    "ACST": "Australia/Adelaide",
    "ACDT": "Australia/Adelaide",
    "AWST": "Australia/Perth",
    "NZST": "Pacific/Auckland",
    "NZDT": "Pacific/Auckland",
}
ABBREVIATION_PATTERN: Final = "|".join(("UTC", "GMT", *_ZONES))
NAME_PATTERN: Final = (
    r"(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific)"
    r"(?:/[A-Z][A-Za-z_-]+){1,2}"
)
_NAME_AT_END: Final = re.compile(rf"(?:{NAME_PATTERN})$")


def zone_of_abbreviation(stamps: Iterable[str]) -> list[str]:
    """Return the IANA time zones for abbreviations, such as `CET`, at the end of timestamps.

    Args:
        stamps: Timestamps of one format, such as `2026-11-21 05:07:11 CET`.

    Returns:
        Names of time zones without duplicates, most frequent first. An offset in hours is also
        converted: `+01` becomes `Etc/GMT-1`. Empty if the timestamps have no known abbreviations
        other than UTC and GMT.
    """
    found: dict[str, int] = {}
    for stamp in stamps:
        name = re.split(r"(?<=[\d ])(?=[A-Z]{3,4}$|[+-]\d\d$)", stamp)[-1]
        zone = _ZONES.get(name, "")
        if re.fullmatch(r"[+-]\d\d", name):
            hours = int(name)
            zone = "Etc/GMT" if hours == 0 else f"Etc/GMT{-hours:+d}"
        if zone:
            found[zone] = found.get(zone, 0) + 1
    return sorted(found, key=lambda zone: -found[zone])


def zone_in_format(time_format: str) -> str:
    """Return the IANA time zone whose name ends a time format as literal text.

    Args:
        time_format: Format such as `%d-%b-%Y %H:%M:%S Europe/Berlin`.

    Returns:
        The name of the zone; empty if the format does not end with the name of a known zone.
    """
    match = _NAME_AT_END.search(time_format)
    return match[0] if match and load_zone(match[0], PARSER.zones) is not None else ""
