"""What a driver needs before it begins: a ledger of this root, its storage, and the central cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.kafka import Cluster
from hourmark_etl.errors import DamagedRow, NoLedger, OlderLedger
from hourmark_etl.ledger.batches import type_shards
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.digests import damaged_rows
from hourmark_etl.ledger.existing import existing_ledger
from hourmark_etl.ledger.frontier_rows import check_other_bucket_length
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.markers import check_older_copy
from hourmark_etl.storage import Storage, open_storage

_LOG = logging.getLogger(__name__)
_NO_WAIT_MENDS: Final = (NoLedger, OlderLedger, DamagedRow)


@dataclass(frozen=True)
class Grounds:
    """`types`: those that the ledger knows. `cluster_id`: of the central cluster."""

    database: Database
    storage: Storage
    types: frozenset[str]
    cluster_id: str


def awaited_grounds(config: Config, opened: ExitStack, pause: Callable[[], object]) -> Grounds:
    """Those of `grounds`; while the ledger's server, storage or Kafka does not answer, that is said, and asked again."""
    while True:
        with ExitStack() as attempt:
            try:
                found = grounds(config, attempt)
            except _NO_WAIT_MENDS:
                raise
            except Unavailable as error:
                _LOG.warning("the driver waits to begin: %s", error)
            else:
                opened.push(attempt.pop_all())
                return found
        pause()


def grounds(config: Config, opened: ExitStack) -> Grounds:
    """Asked once. Refuses a ledger that knows no types, or that is an older copy; the ledger is closed with `opened`."""
    length_s = config.parsing.bucket_seconds
    database = opened.enter_context(existing_ledger(config, may_migrate=True))
    check_other_bucket_length(database, length_s)
    types = frozenset(type_shards(database))
    if not types:
        raise NoLedger("the ledger knows no event types yet; `hourmark types apply --dir types` tells it")
    storage = open_storage(config.storage)
    check_older_copy(storage, database, length_s)
    for damaged in damaged_rows(database):  # also such as no question finds
        _LOG.error("%s", damaged)
    record_first_hours(storage, database, length_s)
    return Grounds(database, storage, types, Cluster(config.kafka.central_cluster, "central").cluster_id())
