"""A corpus of log formats: self-written samples, each with the structure that is expected for it."""

from __future__ import annotations

from typing import Final

from tests.support.log_formats import (
    applications,
    further_apps,
    further_mixed,
    further_servers,
    further_systems,
    held_back,
    irregular,
    lacking,
    loggers,
    more_platforms,
    more_servers,
    more_sources,
    more_tools,
    partial,
    services,
    system,
    varied_apps,
    varied_servers,
    varied_systems,
    web,
)
from tests.support.log_formats.model import LogFormat

CORPUS: Final[list[LogFormat]] = [
    *web.FORMATS,
    *system.FORMATS,
    *services.FORMATS,
    *applications.FORMATS,
]

# Formats that the method was not written for: they show that it is a general one.
FURTHER: Final[list[LogFormat]] = [
    *more_servers.FORMATS,
    *more_sources.FORMATS,
    *more_tools.FORMATS,
    *more_platforms.FORMATS,
    *further_systems.FORMATS,
    *further_apps.FORMATS,
    *further_mixed.FORMATS,
    *further_servers.FORMATS,
    *held_back.FORMATS,
    *varied_servers.FORMATS,
    *varied_systems.FORMATS,
    *varied_apps.FORMATS,
    *loggers.FORMATS,
    *partial.FORMATS,
    *irregular.FORMATS,
    *lacking.FORMATS,
]
