"""The driver's main program: stages new records and closes hours until it is stopped.

    hourmark etl run --config hourmark.toml
    PYSPARK_PYTHON=.venv/bin/python spark-submit etl/job.py --config hourmark.toml

Both commands start the same driver. It can be killed at any time; the next driver resumes from the
ledger.
"""

from __future__ import annotations

import functools
import logging
import signal
import threading
from collections.abc import Collection
from contextlib import ExitStack

import click
from pyspark.sql import SparkSession

import hourmark_native as native
from hourmark.clock import SystemClock
from hourmark.config.loading import Config, config_option
from hourmark.errors import Finding, Unavailable
from hourmark.kafka.clients import Cluster
from hourmark.log import set_up_logging
from hourmark.process.metrics_server import serve_metrics
from hourmark.process.stopping import stop_on_signals
from hourmark_etl.closing.cleanup import Cleaner
from hourmark_etl.closing.closer import Closer
from hourmark_etl.closing.cut.clusters import KafkaSiteClusters, LedgerProgress
from hourmark_etl.closing.cut.cut import Waiting
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.ports import CloserDependencies
from hourmark_etl.closing.runner import SparkRunner
from hourmark_etl.execution.session import spark_session, submitted_settings
from hourmark_etl.ledger.batches import read_type_shards
from hourmark_etl.ledger.engines import check_driver_placement
from hourmark_etl.ledger.heartbeat import Heartbeat
from hourmark_etl.model import DEFAULT_SHARD
from hourmark_etl.options import shard_option
from hourmark_etl.recovery.first_hours import record_first_hours
from hourmark_etl.recovery.lost_ends import LostEndDetector
from hourmark_etl.recovery.offset_records import OffsetBackupWriter
from hourmark_etl.staging.consumer import Consumer, ShardConsumers
from hourmark_etl.staging.restage import Restager
from hourmark_etl.startup import PAUSE_S, open_startup_resources, wait_until_available
from hourmark_etl.telemetry.metrics import EtlMetrics
from hourmark_etl.telemetry.progress import BatchListener, DriverProgress
from hourmark_etl.topics import CentralTopicNames

_LOG = logging.getLogger(__name__)


class Driver:
    """The main process of the ETL, which turns records in Kafka into closed hourly buckets.

    It copies records from Kafka to files on storage (staging), closes the buckets that are
    complete, and deletes files that are no longer needed.

    Args:
        config: The complete configuration.
        exit_stack: Receives all opened resources and closes them, even if the constructor fails.
        submitted: Whether spark-submit started the process and therefore controls Spark's settings.
        shards: Names of the shards (groups of event types) to stage; empty means all. Only the
            driver that stages the default shard also closes hours and deletes files.
    """

    def __init__(
        self,
        config: Config,
        exit_stack: ExitStack,
        *,
        submitted: bool,
        shards: Collection[str] = (),
    ) -> None:
        self._config, self._clock, self._stopping = config, SystemClock(), threading.Event()
        check_driver_placement(config.etl.ledger, submitted_settings() if submitted else {})
        found = wait_until_available(
            lambda: open_startup_resources(config, exit_stack), self._clock
        )
        self._database, self._storage, self._recorded = found.database, found.storage, found.types
        spark = spark_session(config, submitted=submitted)
        exit_stack.callback(spark.stop)
        metrics = EtlMetrics()
        self._progress = DriverProgress(
            self._database, metrics, config.parsing.bucket_seconds, self._clock
        )
        spark.streams.addListener(BatchListener(metrics))
        exit_stack.callback(
            serve_metrics(metrics.registry, "etl", config.etl.metrics_host, config.etl.metrics_port)
        )
        self._closer = None  # another driver closes; taking its lease would stop it
        if not shards or DEFAULT_SHARD in shards:
            ports = self._ports(spark, found.cluster_id, metrics)
            self._closer = wait_until_available(lambda: Closer(ports, config), self._clock)
            exit_stack.callback(self._closer.close)
            heartbeat = Heartbeat(self._database, self._closer.lease, self._clock)
            heartbeat.start()
            exit_stack.push(lambda kind, *_: heartbeat.stop(goodbye=kind is None))
        central, topics = (
            Cluster(config.kafka.central_cluster, "central"),
            CentralTopicNames.from_settings(config.kafka, found.types),
        )
        self._lost_ends = LostEndDetector(self._storage, self._database, central, topics)
        self._recorder = OffsetBackupWriter(self._storage, self._database, self._clock)
        self._cleaner = Cleaner(self._storage, self._database, config, self._clock)
        make = functools.partial(
            Consumer,
            spark,
            config,
            self._database,
            found.cluster_id,
            self._clock,
            self._progress.record_batch,
        )
        self._consumers = ShardConsumers(make, self._database, shards)
        exit_stack.callback(self._consumers.stop)

    def stop(self) -> None:
        """Make `run` return after its current iteration.

        Safe to call from any thread, but not from a signal handler.
        """
        self._stopping.set()

    def run(self) -> None:
        """Copy records from Kafka to storage and close hourly buckets, until `stop` is called.

        If a server is unavailable, or closing fails with a `Finding`, the error is logged and the
        loop continues.

        Raises:
            EtlStop: The driver must end, for example because another driver has taken over.
            Finding: Staging found data that an operator must repair.
        """
        while not self._stopping.is_set():
            try:
                self._consumers.check()
                types = self._types()
            except (
                Unavailable
            ) as error:  # most likely the ledger; running queries continue and notice it too
                _LOG.warning("the driver is waiting: %s", error)
                self._stopping.wait(PAUSE_S)
                continue
            if self._recorded != types and self._record():
                self._recorded = types
            waits: str | None = ""
            if self._closer is not None:
                self._recorder.poll(self._closer.lease)
                waits = self._poll(self._closer)
                if (
                    self._lost_ends.is_done
                ):  # cleanup must not delete files that are still to be compared
                    self._cleaner.poll(self._closer.lease)
            self._progress.record_poll(waits or "")
            if waits is not None:
                self._stopping.wait(self._config.etl.close_poll_seconds)

    def _ports(
        self, spark: SparkSession, cluster_id: str, metrics: EtlMetrics
    ) -> CloserDependencies:
        config, database, storage = self._config, self._database, self._storage
        return CloserDependencies(
            engine=Engine(storage, database, config, SparkRunner(spark)),
            storage=storage,
            database=database,
            sites=lambda lease: KafkaSiteClusters.connect(
                config.kafka, database, lease, self._clock
            ),
            progress=LedgerProgress(database, cluster_id),
            restage=Restager(config, database, storage).restage,
            metrics=metrics,
            clock=self._clock,
        )

    def _poll(self, closer: Closer) -> str | None:
        try:
            if not self._lost_ends.is_done:
                self._lost_ends.poll(closer.lease, self._clock.now_ms())
            outcome = closer.step()
        except (
            Unavailable,
            Finding,
        ) as error:  # staging continues; closing is retried
            return str(error)
        if not isinstance(outcome, Waiting):
            return None
        return f"({outcome.phase.value}) {'; '.join(outcome.what[:5])}" if outcome.what else ""

    def _types(self) -> frozenset[str]:
        return frozenset(read_type_shards(self._database))

    def _record(self) -> bool:
        try:
            record_first_hours(self._storage, self._database, self._config.parsing.bucket_seconds)
        except Unavailable as error:
            _LOG.warning("first hours of new types are not recorded yet: %s", error)
            return False
        return True


def run(config: Config, *, submitted: bool, shards: Collection[str] = ()) -> None:
    """Run an ETL driver until SIGTERM or SIGINT is received, then release its resources.

    A driver copies records from Kafka to files on storage, and closes hourly buckets.

    Args:
        config: The complete configuration.
        submitted: Whether spark-submit started this process.
        shards: Names of the shards (groups of event types) to stage; empty means all.

    Raises:
        HourmarkError: The driver could not start, or must not continue. The message states the next
            step.
    """
    if native.WHY_NOT:
        _LOG.warning("%s", native.WHY_NOT)
    with ExitStack() as opened:
        driver = Driver(config, opened, submitted=submitted, shards=shards)

        def on_signal(number: int) -> None:
            _LOG.info("stopping on %s", signal.Signals(number).name)
            driver.stop()

        stop_on_signals(on_signal)  # after the Spark session, which installs its own handlers
        driver.run()


@click.command()
@shard_option
@config_option
def main(config: Config, shards: tuple[str, ...]) -> None:
    """Run the ETL driver as the main program of `spark-submit`, until SIGTERM or SIGINT."""
    set_up_logging(config.log_level)
    run(config, submitted=True, shards=shards)


if __name__ == "__main__":
    main()
