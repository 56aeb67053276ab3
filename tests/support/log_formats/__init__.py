"""A corpus of log formats: self-written samples, each with the structure that is expected for it."""

from __future__ import annotations

from typing import Final

from tests.support.log_formats import applications, services, system, web
from tests.support.log_formats.model import LogFormat

CORPUS: Final[list[LogFormat]] = [
    *web.FORMATS,
    *system.FORMATS,
    *services.FORMATS,
    *applications.FORMATS,
]
