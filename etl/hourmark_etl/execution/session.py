"""The Spark session of the ETL and the reasons for its settings."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from hourmark.config.loading import Config

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # sums of low 64 bits of an id are modulo 2^64: a 64-bit sum must wrap, not fail
    "spark.sql.ansi.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # jobs here are small and their plans known; it only adds stages
    "spark.sql.adaptive.enabled": "false",
    # closing must not wait behind staging, nor staging behind closing
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # its progress line would mix with log lines
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # by default, stopping a query waits without a limit for a batch that hangs
    "spark.sql.streaming.stopTimeout": "60s",
    # Staging and closing share their workers: Spark keeps those of SQL and of RDDs apart only where
    # their environments differ.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
_LOCAL: Final = {
    "spark.driver.memory": "1g",
    # No record passes the JVM, and its heap is small: a second compiler and a concurrent collector
    # cost more than they save.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # an executor elsewhere may get its modules after its daemon began
    "spark.python.daemon.module": "hourmark_etl.workers",
}


def spark_session(config: Config, *, submitted: bool) -> SparkSession:
    """Return the Spark session of this process, and create it if none exists.

    A new session gets the ETL's default settings.

    Args:
        config: The configuration; `etl.spark_conf` overrides the default settings.
        submitted: Whether spark-submit started this process. If so, the master and the memory
            settings of spark-submit apply.

    Returns:
        The active session. The caller must stop it.
    """
    builder = SparkSession.builder.appName("hourmark-etl")
    settings = dict(_SETTINGS)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers import what the driver does
    if not submitted:
        builder = builder.master(config.etl.master)
        settings |= _LOCAL if config.etl.master.startswith("local") else {}
    settings["spark.sql.shuffle.partitions"] = str(config.etl.tasks)
    for name, value in (settings | config.etl.spark_conf).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def submitted_settings() -> dict[str, str]:
    """Return the Spark settings that spark-submit passed to this process.

    The function works before a Spark session exists. Call it only in a process that spark-submit
    started.

    Returns:
        Values by the names of Spark's settings, such as `spark.master`.
    """
    SparkContext._ensure_initialized()  # the JVM that started this process knows them
    return dict(SparkConf().getAll())


def task_attempts_max(spark: SparkSession) -> int:
    """Return how many times Spark runs a failing task before it fails the job.

    Args:
        spark: The Spark session, which determines the master.

    Returns:
        1 for a local master, or F for `local[N,F]`. For any other master, the value of
        `spark.task.maxFailures` (default 4).
    """
    context = spark.sparkContext
    if local := re.fullmatch(r"local(?:\[[^,\]]+(?:,\s*(\d+))?\s*\])?", context.master or ""):
        return int(local[1] or 1)
    return int(context.getConf().get("spark.task.maxFailures") or 4)
