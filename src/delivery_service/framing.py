"""Schema ids of audit records and host reports: asked of the registry at start, again and again while it is away."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Final, Protocol

from hourmark import audit, host_reports
from hourmark.avro import Schema, frame
from hourmark.errors import Unavailable, UsageError
from hourmark.topics import AUDIT, HOSTS

log = logging.getLogger(__name__)

_PAUSE_MAX_S: Final = 10.0


class Registrar(Protocol):
    """What is needed of a registry: `hourmark.registry.SchemaRegistry` has it."""

    def register(self, topic: str, schema: Schema) -> int:
        """The schema's id; Unavailable, or UsageError if it does not fit the registered ones."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Framing:
    """What stands before each datum."""

    audit: bytes
    hosts: bytes


async def register(registry: Registrar) -> Framing:
    """Both ids, however long it takes."""
    pause_s = 0.5
    while True:
        try:
            return await asyncio.to_thread(_register, registry)
        except (Unavailable, UsageError) as error:
            log.warning("audit and report schemas are not registered yet: %s", error)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, _PAUSE_MAX_S)


def _register(registry: Registrar) -> Framing:
    return Framing(
        audit=frame(registry.register(AUDIT, audit.SCHEMA)),
        hosts=frame(registry.register(HOSTS, host_reports.SCHEMA)),
    )
