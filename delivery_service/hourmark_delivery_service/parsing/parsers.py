"""Which parsers this software can be. A rules revision names one, and what it gives never changes.

Where a change alters any result, it gets the next number, and the code before it stays, chosen by
`CompiledRules.parser`: docs/decisions/2026-11-22-the-parser-is-versioned.md. `parser_check` holds
each to the results that it was kept with.
"""

from __future__ import annotations

from typing import Final

from hourmark.rules.revision import ParserVersion
from hourmark_delivery_service.parsing.zones import load_zone, zone_versions

PARSERS: Final = (1, 2, 3)


def check_parser_available(version: ParserVersion) -> None:
    """ValueError, naming what is at hand and the next step, if this software cannot be that
    parser.
    """
    zones = sorted(zone_versions())
    if version.parser not in PARSERS or version.zones not in zones:
        parsers = ", ".join(map(str, PARSERS))
        raise ValueError(
            f"it names the parser {version.parser!r:.40} with the zone data {version.zones!r:.40}, "
            "and this software has the parsers "
            f"{parsers} with the zone data {', '.join(zones)}; upgrade this service, ranges "
            "wait until then"
        )
    load_zone("UTC", version.zones)  # it can be read
