"""The driver's main program: stages what arrives and closes hours, until it is told to stop.

    hourmark etl run --config hourmark.toml
    PYSPARK_PYTHON=.venv/bin/python spark-submit src/etl/job.py --config hourmark.toml

Both are the same; it may be killed at any moment and started again: it goes on from the ledger.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Collection
from types import FrameType
from typing import Final

import click

from etl.closing.closer import Closer, Ports
from etl.closing.cut import Waiting
from etl.closing.edge import LedgerProgress, TwoSites
from etl.closing.engine import SparkEngine
from etl.ledger.database import Database
from etl.ledger.digests import damaged_rows
from etl.ledger.engines import refuse_moving_driver
from etl.ledger.first_hours import record_first_hours
from etl.ledger.frontier_rows import refuse_other_bucket_length
from etl.ledger.frontiers import frontiers
from etl.ledger.markers import refuse_older_copy
from etl.ledger.rows import DEFAULT_SHARD
from etl.metrics import Metrics, serve_metrics
from etl.options import shard_option
from etl.progress import BatchListener, Progress
from etl.spark import spark_session, submitted_settings
from etl.staging.cleanup import Cleaner
from etl.staging.consumer import Consumers
from etl.staging.restaging import Restager
from etl.storage import open_storage
from hourmark.clock import SystemClock
from hourmark.config import Config, config_option
from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.kafka import Cluster
from hourmark.log import set_up_logging

AWAY_SECONDS: Final = 5.0  # between looks while the ledger is away
_LOG = logging.getLogger("hourmark.etl")


def run(config: Config, *, submitted: bool, shards: Collection[str] = ()) -> None:
    """Run until SIGTERM or SIGINT. Raises what stops it.

    `shards`: what to stage; empty means all. Closing belongs to the driver that stages the default shard, and its control topics.
    """
    stopping = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        _LOG.info("stopping on %s", signal.Signals(number).name)
        stopping.set()

    refuse_moving_driver(config.etl.ledger, submitted_settings() if submitted else {})
    database = Database(config.etl.ledger)
    refuse_other_bucket_length(database, config.parsing.bucket_seconds)
    types = _types(database, config)
    if not types:
        raise UsageError("the ledger knows no event types; run `hourmark types apply --dir types` first")
    storage = open_storage(config.storage)
    refuse_older_copy(storage, database, config.parsing.bucket_seconds)
    for damaged in damaged_rows(database):  # also such as no question finds
        _LOG.error("%s", damaged)
    record_first_hours(storage, database, config.parsing.bucket_seconds)
    clock = SystemClock()
    spark = spark_session(config, submitted=submitted)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    central = Cluster(config.kafka.central_cluster, "central")
    metrics = Metrics()
    progress = Progress(database, metrics, config.parsing.bucket_seconds, clock)
    spark.streams.addListener(BatchListener(metrics))
    stop_metrics = serve_metrics(metrics, config.etl.metrics_host, config.etl.metrics_port)
    consumers = Consumers(spark, config, database, central.cluster_id(), clock, progress, shards)
    closer = None  # another driver's business: taking its lease would stop it
    if not shards or DEFAULT_SHARD in shards:
        restager = Restager(config, database, storage)
        ports = Ports(
            SparkEngine(storage, database, config, spark),
            storage,
            database,
            lambda lease: TwoSites.of(config.kafka, database, lease, clock),
            LedgerProgress(database, central.cluster_id()),
            restager.restage,
            metrics,
            clock,
        )
        closer = Closer(ports, config)
    cleaner = Cleaner(storage, database, config, clock)
    try:
        _loop(consumers, closer, cleaner, database, config, progress, stopping, types)
    finally:
        consumers.stop()
        if closer is not None:
            closer.close()
        stop_metrics()
        database.close()
        spark.stop()


def _loop(
    consumers: Consumers, closer: Closer | None, cleaner: Cleaner, database: Database, config: Config, progress: Progress,
    stopping: threading.Event, types: frozenset[str],
) -> None:  # fmt: skip
    recorded = types
    while not stopping.is_set():
        try:
            consumers.check()
            types = _types(database, config)
        except Unavailable as error:  # the ledger, most likely: what runs goes on, and meets it too
            _LOG.warning("the driver waits: %s", error)
            stopping.wait(AWAY_SECONDS)
            continue
        if recorded != types and _record(database, config):
            recorded = types
        waits = _look(closer) if closer is not None else ""
        if closer is not None:
            cleaner.look(closer.lease)
        progress.looked(waits or "")
        if waits is not None:
            stopping.wait(config.etl.close_poll_seconds)


def _record(database: Database, config: Config) -> bool:
    """Whether first hours of new types are on storage; where it is away, the next look tries again."""
    try:
        record_first_hours(open_storage(config.storage), database, config.parsing.bucket_seconds)
    except Unavailable as error:
        _LOG.warning("first hours of new types are not recorded yet: %s", error)
        return False
    return True


def _look(closer: Closer) -> str | None:
    """One look of the closer: what it waits for, for people ("": nothing worth a word); None after it closed something."""
    try:
        outcome = closer.step()
    except (Unavailable, Finding) as error:  # staging goes on; closing does when the server, or the operator, is back
        return str(error)
    if not isinstance(outcome, Waiting):
        return None
    return f"({outcome.phase.value}) {'; '.join(outcome.what[:5])}" if outcome.what else ""


def _types(database: Database, config: Config) -> frozenset[str]:
    return frozenset(f.event_type for f in frontiers(database, config.parsing.bucket_seconds))


@click.command()
@shard_option
@config_option
def main(config: Config, shards: tuple[str, ...]) -> None:
    """Stage and close, as spark-submit starts it."""
    set_up_logging(config.log_level)
    run(config, submitted=True, shards=shards)


if __name__ == "__main__":
    main()
