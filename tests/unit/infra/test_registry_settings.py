"""The registry's settings."""

from __future__ import annotations

from pathlib import Path

from hourmark_infra.stack.layout import PORT_NAMES, Layout
from hourmark_infra.stack.registry import registry_options


def test_a_start_beside_other_work_is_slow_and_no_failure() -> None:
    """Its own defaults, twenty connections to a file of H2 at once and 5 s for each, ended it (seen
    at a load of 60).
    """
    values = dict(
        option.removeprefix("-D").split("=", 1)
        for option in registry_options(Layout(Path("/h"), dict.fromkeys(PORT_NAMES, 1)))
    )
    assert (
        values["apicurio.datasource.jdbc.initial-size"],
        values["apicurio.datasource.jdbc.min-size"],
    ) == ("1", "1")
    assert values["quarkus.datasource.h2.jdbc.acquisition-timeout"] == "60S"
