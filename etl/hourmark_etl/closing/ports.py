"""The interfaces through which a closer accesses everything except the ledger's own tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from hourmark.clock import Clock
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.cut.cut import SiteClusters, StagingProgress
from hourmark_etl.closing.engine import Engine
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.storage import Storage


class ClosingMetrics(Protocol):
    """The interface to which the closer reports each closed bucket.

    A bucket contains the events of one event type and hour.
    """

    def count_closed_bucket(self, due_ms: int, manifest: Manifest) -> None:
        """Record that a bucket was closed.

        Args:
            due_ms: Time from which the delay of closing counts (`Frontier.due_ms`), Unix
                milliseconds.
            manifest: The bucket's manifest, which contains the event type and the event counts.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class CloserDependencies:
    """The services that a closer uses: storage, ledger, Kafka clusters, metrics and clock.

    Attributes:
        engine: Proves and writes hours.
        storage: Storage with staged files and buckets.
        database: Database of the ledger.
        sites: Function that creates the queries of all Kafka clusters from the closer's lease.
        progress: Progress of staging, which copies Kafka records to files.
        restage: Function that stages the records of an unreadable file again. It receives a lease
            and the file's path, and returns the new path. It raises `DataLoss` if Kafka no longer
            has the records.
        metrics: Receives each closed bucket.
        clock: The closer's clock.
        publishers: Number of event types that are published in parallel.
    """

    engine: Engine
    storage: Storage
    database: Database
    sites: Callable[[Lease], SiteClusters]
    progress: StagingProgress
    restage: Callable[
        [Lease, str], str
    ]  # path of a staged file that cannot be read, and its new one; DataLoss if there is none
    metrics: ClosingMetrics
    clock: Clock
    publishers: int = 8
