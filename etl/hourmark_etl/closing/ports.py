"""All that a closer touches besides the ledger's own tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from hourmark.clock import Clock
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.cut.cut import Sites, StagingProgress
from hourmark_etl.closing.engine import Engine
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.storage import Storage


class ClosingMetrics(Protocol):
    """What closing counts; `hourmark_etl.telemetry.metrics.Metrics` is one."""

    def closed(self, hour: Hour, manifest: Manifest) -> None:
        """A bucket was closed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """See the module. `publishers`: how many types are published at once."""

    engine: Engine
    storage: Storage
    database: Database
    sites: Callable[[Lease], Sites]
    progress: StagingProgress
    restage: Callable[
        [Lease, str], str
    ]  # path of a staged file that cannot be read, and its new one; DataLoss if there is none
    metrics: ClosingMetrics
    clock: Clock
    publishers: int = 8
