"""Startup of the driver: opens the ledger, the storage and the central cluster.

Unavailable servers are retried for at most one minute. Then the driver exits, and its supervisor
starts another one, which reads the configuration again. The limit is one minute because YARN gives
a driver 100 s to start Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeVar

from hourmark.clock import Clock
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster
from hourmark_etl.closing.publication.choice import open_publication
from hourmark_etl.errors import DamagedRow, NoLedger
from hourmark_etl.ledger.batches import read_type_shards
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.ledger.frontier_rows import check_bucket_length
from hourmark_etl.ledger.maintenance.existing import open_existing_ledger
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.markers import check_older_copy
from hourmark_etl.recovery.offset_records import import_recorded_gaps
from hourmark_etl.storage import ObjectStorage, Storage, open_storage
from hourmark_etl.storage.race_probe import check_conditional_puts

WAIT_S: Final = 60.0
PAUSE_S: Final = 5.0  # between attempts to reach an unavailable server, also later
_LOG = logging.getLogger(__name__)
_NOT_RETRIED: Final = (NoLedger, DamagedRow)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class StartupResources:
    """The resources that an ETL driver opens at startup.

    Attributes:
        database: The ledger (the ETL's state database).
        storage: The storage at `storage.root`.
        types: Names of the event types in the ledger; never empty.
        cluster_id: Kafka cluster id of the central cluster.
    """

    database: Database
    storage: Storage
    types: frozenset[str]
    cluster_id: str


def wait_until_available(call: Callable[[], _Result], clock: Clock) -> _Result:
    """Call a function repeatedly until the server that it needs is available.

    The function is called every 5 seconds as long as it raises `Unavailable`. Each error is logged.

    Args:
        call: The function to call.
        clock: Clock for measuring and waiting.

    Returns:
        The result of the first successful call.

    Raises:
        Unavailable: The function still fails after one minute. `NoLedger` and `DamagedRow` are
            raised immediately, because waiting does not repair them.
    """
    until_s = clock.monotonic_s() + WAIT_S
    while True:
        try:
            return call()
        except _NOT_RETRIED:
            raise
        except Unavailable as error:
            if clock.monotonic_s() >= until_s:
                raise
            _LOG.warning("the driver is waiting to start: %s", error)
        clock.sleep(PAUSE_S)


def open_startup_resources(config: Config, exit_stack: ExitStack) -> StartupResources:
    """Open the ledger and the storage of a driver, and check that they belong together.

    The ledger is the state database of the ETL; an older schema version of it is migrated. The
    driver is the process that stages events and closes buckets.

    Args:
        config: The complete configuration.
        exit_stack: Receives the connections of the ledger and closes them at its exit.

    Returns:
        The opened resources.

    Raises:
        NoLedger: The ledger does not exist or contains no event types.
        ForeignLedger: Storage contains buckets that the ledger has not closed, so the ledger is an
            older copy or belongs to another installation.
        UnsafeStorage: The object store lets several writers create one object.
        Unavailable: A server does not respond.
    """
    length_s = config.parsing.bucket_seconds
    with ExitStack() as attempt:
        database = attempt.enter_context(open_existing_ledger(config, may_migrate=True))
        check_bucket_length(database, length_s)
        types = frozenset(read_type_shards(database))
        if not types:
            raise NoLedger(
                "the ledger has no event types yet; add them with `hourmark types apply --dir "
                "types`"
            )
        cluster_id = Cluster(
            config.kafka.central_cluster, "central"
        ).cluster_id()  # fail early, before slow steps that would be repeated
        storage = open_storage(config.storage)
        if isinstance(storage, ObjectStorage):
            check_conditional_puts(storage)
        open_publication(storage).complete_interrupted()
        check_older_copy(storage, database, length_s)
        for damaged in find_damaged_rows(
            database, is_start=True
        ):  # including rows that no query reads
            _LOG.error("%s", damaged)
        record_first_hours(storage, database, length_s)
        import_recorded_gaps(storage, database)
        exit_stack.push(attempt.pop_all())
    return StartupResources(database, storage, types, cluster_id)
