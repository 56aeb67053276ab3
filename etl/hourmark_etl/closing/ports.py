"""The interfaces through which a closer accesses everything except the ledger's own tables."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol

from hourmark.clock import Clock
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.cut.cut import SiteClusters, StagingProgress
from hourmark_etl.closing.engine import Engine
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.storage import Storage

_THREADS: Final = functools.partial(ThreadPoolExecutor, 8)


class ClosingMetrics(Protocol):
    """Interface that counts closed buckets for metrics.

    A bucket contains the events of one event type and hour.
    """

    def count_closed_bucket(self, due_ms: int, manifest: Manifest) -> None:
        """Update the metrics after a bucket was closed.

        Args:
            due_ms: Time from which the delay of closing counts (`Frontier.due_ms`), Unix
                milliseconds.
            manifest: Manifest of the bucket, which contains the event type and event counts.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class CloserDependencies:
    """Services that the closer uses to close hourly buckets.

    Attributes:
        engine: Verifies and writes buckets.
        storage: Storage with buckets and staged files (copies of Kafka records).
        database: Database of the ledger.
        sites: Function that returns the interface to the Kafka clusters, given the closer's lease.
        progress: Interface to the progress of staging (copying Kafka records to files).
        restage: Function that creates an unreadable staged file again from Kafka. It receives a
            lease and the path of the file, and returns the new path. It raises `DataLoss` if Kafka
            no longer has the records.
        metrics: Counts closed buckets.
        clock: Clock for the current time.
        executor: Creates an executor for calls of storage that are made in parallel.
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
    executor: Callable[[], Executor] = _THREADS
