"""How a driver begins: with a ledger of this root, its storage and the central cluster, which it
waits for.

No longer than a minute: its supervisor then begins another, with what is configured by then. YARN
gives a driver 100 s until Spark must run.
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
from hourmark_etl.errors import DamagedRow, NoLedger
from hourmark_etl.ledger.batches import type_shards
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import find_damaged_rows
from hourmark_etl.ledger.existing import open_existing_ledger
from hourmark_etl.ledger.frontier_rows import check_bucket_length
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.markers import check_older_copy
from hourmark_etl.recovery.offset_records import take_over_gaps
from hourmark_etl.storage import Storage, open_storage

WAIT_S: Final = 60.0
PAUSE_S: Final = 5.0  # between asks of a server that is away, later too
_LOG = logging.getLogger(__name__)
_NO_WAIT_MENDS: Final = (NoLedger, DamagedRow)
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Grounds:
    """`types`: those that the ledger knows. `cluster_id`: of the central cluster."""

    database: Database
    storage: Storage
    types: frozenset[str]
    cluster_id: str


def awaited(ask: Callable[[], _Found], clock: Clock) -> _Found:
    """What it gives.

    While a server does not answer, that is said, and asked again; after a minute it is raised.
    """
    until_s = clock.monotonic_s() + WAIT_S
    while True:
        try:
            return ask()
        except _NO_WAIT_MENDS:
            raise
        except Unavailable as error:
            if clock.monotonic_s() >= until_s:
                raise
            _LOG.warning("the driver waits to begin: %s", error)
        clock.sleep(PAUSE_S)


def grounds(config: Config, opened: ExitStack) -> Grounds:
    """Refuses a ledger that knows no types, or that is an older copy.

    The ledger is closed with `opened`.
    """
    length_s = config.parsing.bucket_seconds
    with ExitStack() as attempt:
        database = attempt.enter_context(open_existing_ledger(config, may_migrate=True))
        check_bucket_length(database, length_s)
        types = frozenset(type_shards(database))
        if not types:
            raise NoLedger(
                "the ledger knows no event types yet; `hourmark types apply --dir types` tells it"
            )
        cluster_id = Cluster(
            config.kafka.central_cluster, "central"
        ).cluster_id()  # before what takes long, and is asked again
        storage = open_storage(config.storage)
        check_older_copy(storage, database, length_s)
        for damaged in find_damaged_rows(database, is_start=True):  # also such as no question finds
            _LOG.error("%s", damaged)
        record_first_hours(storage, database, length_s)
        take_over_gaps(storage, database)
        opened.push(attempt.pop_all())
    return Grounds(database, storage, types, cluster_id)
