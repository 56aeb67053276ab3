"""Spark's own ways as contenders: from the same topics to Parquet by type and hour, in one process.

    plain   Kafka source to file sink, without deduplication, proof or completeness
    dedup   the same with `dropDuplicatesWithinWatermark` on the event id, with its state in RocksDB

Both use settings that make them fast: short fetch waits, a consumer cache above the number of
partitions, two shuffle partitions on two cores, the record's timestamp as event time, and one JVM
for all rounds. The process reads jobs from stdin, one JSON object per line, and answers each with
one on stdout.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from bench.etl_ours import Round, WrongOutput
from bench.etl_site import BUCKET_SECONDS, BenchSite
from bench.etl_traffic import Delivered
from bench.process_tree import ProcessTree
from hourmark.kafka.topic_names import EVENTS_PREFIX, events_topic
from hourmark_infra.jars.cache import IvyFetch, cache_root, ensure_jars, print_progress
from hourmark_infra.jars.lockfile import read_lock
from hourmark_infra.java.find import java_executable

JARS_LOCK: Final = Path(__file__).with_name("spark_jars.lock")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparkJob:
    """One data set; `kind` is `plain` or `dedup`."""

    kind: str
    topics: list[str]
    out: str
    checkpoint: str
    batch_records: int


class SparkWay:
    """One of Spark's own ways, which runs from the first round to the last."""

    def __init__(self, site: BenchSite, kind: str, batch_records: int) -> None:
        self.name = f"spark_{kind}"
        self._site, self._kind, self._batch_records = site, kind, batch_records
        self.log = site.folder / f"{self.name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.etl_spark", str(site.file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": "."},
            )
        self._tree = ProcessTree(self._process.pid)
        self._rounds = 0
        self._out = ""

    def round(self, delivered: Delivered) -> Round:
        """Run the query over the data set's topics from beginning to end."""
        self._rounds += 1
        label = f"{self.name}-{self._rounds}"
        self._out = self._site.root(label)
        checkpoint = (self._site.folder / f"{label}-checkpoint").as_uri()
        topics = [events_topic(t) for t in delivered.plan.types]
        job = SparkJob(
            kind=self._kind,
            topics=topics,
            out=self._out,
            checkpoint=checkpoint,
            batch_records=self._batch_records,
        )
        began, cpu = time.monotonic(), self._tree.cpu_seconds()
        answer = self._ask(dataclasses.asdict(job))
        used, wall = self._tree.cpu_seconds() - cpu, time.monotonic() - began
        return Round(used, wall, {"memory_mb_peak": round(self._tree.memory_mb_peak()), **answer})

    def check(self, delivered: Delivered) -> None:
        """Check the number of rows in the output: all records, or the distinct events with
        deduplication.

        Raises:
            WrongOutput: The number differs.
        """
        wanted = int((delivered.distinct if self._kind == "dedup" else delivered.records).sum())
        found = self._ask({"count": self._out})["rows"]
        if found != wanted:
            raise WrongOutput(f"{self.name} wrote {found} rows, not {wanted}; see {self.log}")

    def __enter__(self) -> SparkWay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tree.close()
        with contextlib.suppress(OSError):
            _stream(self._process.stdin).close()  # its end is the end of the jobs
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        stdin = _stream(self._process.stdin)
        stdin.write(json.dumps(job) + "\n")
        stdin.flush()
        answer = _stream(self._process.stdout).readline()
        if not answer:
            raise WrongOutput(f"{self.name} has ended; see {self.log}")
        found: dict[str, Any] = json.loads(answer)
        return found


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main() -> None:
    """Run jobs from stdin until its end, in the contender's process."""
    from pyspark.sql import SparkSession

    from hourmark.config.loading import load_config

    config = load_config(Path(sys.argv[1]))
    settings = {
        "spark.jars": ",".join(_jars()),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(config.etl.tasks),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.kafka.consumer.cache.capacity": "2048",
        "spark.hadoop.dfs.replication": str(config.storage.replication),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    os.environ["HADOOP_USER_NAME"] = config.storage.user or "root"
    builder = SparkSession.builder.master(config.etl.master).appName("hourmark-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for line in sys.stdin:
        job = json.loads(line)
        if "count" in job:
            answer: dict[str, Any] = {"rows": spark.read.parquet(job["count"]).count()}
        else:
            answer = _run(spark, SparkJob(**job), config.kafka.edge.bootstrap)
        print(json.dumps(answer), flush=True)
    spark.stop()


def _jars() -> list[str]:
    # Jars of Spark's Kafka connector, which Hourmark itself does not use.
    locked = read_lock("spark", JARS_LOCK)
    folder = ensure_jars(
        "spark", locked, cache_root() / "jars", IvyFetch(java_executable), print_progress
    )
    return [str(folder / jar.file_name) for jar in locked]


def _run(spark: Any, job: SparkJob, bootstrap: str) -> dict[str, Any]:
    from pyspark.sql import functions as F

    rows = (
        spark.readStream.format("kafka")
        .options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "kafka.isolation.level": "read_committed",
                "kafka.fetch.max.wait.ms": "10",
                "subscribe": ",".join(job.topics),
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(job.batch_records),
            }
        )
        .load()
        .select(
            F.substring("topic", len(EVENTS_PREFIX) + 1, 200).alias("type"),
            F.col("timestamp"),
            F.substring("key", 1, 16).alias("event_id"),
            F.col("value"),
        )
    )
    if job.kind == "dedup":
        rows = rows.withWatermark("timestamp", "10 minutes").dropDuplicatesWithinWatermark(
            ["event_id"]
        )
    assert BUCKET_SECONDS == 60, "the folders below are minutes"
    rows = rows.withColumn("hour", F.date_format("timestamp", "yyyyMMddHHmm"))
    query = (
        rows.writeStream.format("parquet")
        .partitionBy("type", "hour")
        .option("path", job.out)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {"batches": len(query.recentProgress)}


if __name__ == "__main__":
    main()
