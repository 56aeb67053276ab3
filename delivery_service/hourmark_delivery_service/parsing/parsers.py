"""The parser versions of this software. A rules revision names one, and its results never change.

A change that alters any result gets the next number. The previous code remains and is selected by
`CompiledRules.parser`; see docs/internals/decisions/2026-11-22-the-parser-is-versioned.md. `parser_check`
verifies each version against its recorded results.
"""

from __future__ import annotations

from typing import Final

from hourmark.rules.revision import ParserVersion
from hourmark_delivery_service.parsing.zones import load_zone, zone_versions

PARSERS: Final = (1, 2, 3)


def check_parser_available(version: ParserVersion) -> None:
    """Check that this software contains a parser version and its time zone data.

    Each rules revision (version of the declared event types) specifies its parser version.

    Args:
        version: Number of the parser and version of the time zone data.

    Raises:
        ValueError: If the parser or the time zone data is not available. The message lists the
            available versions and the next step.
    """
    zones = sorted(zone_versions())
    if version.parser not in PARSERS or version.zones not in zones:
        parsers = ", ".join(map(str, PARSERS))
        raise ValueError(
            f"it requires parser {version.parser!r:.40} with time zone data "
            f"{version.zones!r:.40}, but this version of Hourmark has the parsers {parsers} with "
            f"the time zone data {', '.join(zones)}; upgrade this service, its ranges wait until "
            "then"
        )
    load_zone("UTC", version.zones)  # it can be read
