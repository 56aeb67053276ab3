"""What Spark shows and writes of a job, plans and event log, holds no password of Kafka or of the
ledger, and no delegation token of HDFS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.support.documents import ROOT

from hourmark.config.loading import Config
from hourmark_etl.execution.session import spark_session
from hourmark_etl.ledger.database import Lease
from hourmark_etl.staging.plan import PlannedBatch
from hourmark_etl.staging.planner import StreamReader, unpack_results
from hourmark_etl.staging.source import kafka_source, source_name
from hourmark_etl.staging.stage import TaskResult
from hourmark_etl.storage.kerberos import ReceivedToken
from hourmark_infra.java.find import export_java_home

# pyspark leaves the sockets by which results came to the garbage collector.
pytestmark = [
    pytest.mark.stack,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),
]

SECRET = "pl4nted-s3cret"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": SECRET,
    }
    (tmp_path / "log").mkdir()
    return Config(
        kafka={"edge": {"bootstrap": "127.0.0.1:1", "properties": properties}},
        etl={
            "ledger": f"postgresql://me:{SECRET}@127.0.0.1:1/x",
            "master": "local[1]",
            "spark_conf": {
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": f"file://{tmp_path}/log",
            },
        },
    )


@pytest.fixture
def spark(config: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # put back afterwards
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the readers below
    export_java_home()
    session = spark_session(config, submitted=False)
    yield session
    session.stop()


class TaskWithToken(InputPartition):
    """A task with the delegation token of its storage."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.token = ReceivedToken(SECRET, "hdfs://events")


class FailsInATask(StreamReader):
    """Plans one task, which fails."""

    def plan(self) -> PlannedBatch:
        return PlannedBatch("_staging/one", ())

    def tasks(self, planned: PlannedBatch) -> list[InputPartition]:
        return [TaskWithToken(1)]

    def stage(self, partition: InputPartition) -> Iterator[TaskResult]:
        raise RuntimeError("a task fails")


READERS: Final = {
    "planning": (StreamReader, "127.0.0.1:1"),  # nobody answers there
    "reading": (FailsInATask, "a task fails"),
}


def all_rows(batch: DataFrame, _: int) -> None:
    unpack_results(batch.collect())


def failing(writing: DataStreamWriter) -> tuple[str, str]:
    """The error and the progress of a query. On a busy machine, Spark may give up to wait for its
    Python process; the query is then started again, as the driver does.
    """
    failure = progress = ""
    for _ in range(4):
        query = writing.start()
        try:
            with pytest.raises(StreamingQueryException) as failed:
                query.awaitTermination(120)
                query.processAllAvailable()
        finally:
            query.stop()
        failure, progress = str(failed.value), str(query.lastProgress)
        if "Python worker failed to connect back" not in failure:
            break
    return failure, progress


def test_neither_plans_nor_the_event_log_hold_a_password(
    tmp_path: Path, config: Config, spark: SparkSession
) -> None:
    said = []
    for shard, (reader, cause) in READERS.items():
        spark.dataSource.register(
            kafka_source(shard, reader(config, Lease("consumer", 1), shard, "0" * 32))
        )
        rows = spark.readStream.format(source_name(shard)).load()
        said.append(str(rows._jdf.queryExecution()))
        writing = rows.writeStream.foreachBatch(all_rows).option(
            "checkpointLocation", f"{tmp_path}/checkpoint/{shard}"
        )
        failure, progress = failing(writing)
        assert cause in failure
        said += [failure, progress]
    spark.stop()
    written = [
        file
        for folder in ("log", "checkpoint")
        for file in (tmp_path / folder).rglob("*")
        if file.is_file()
    ]
    said += [file.read_text(errors="replace") for file in written]
    assert any("SparkListenerEnvironmentUpdate" in text for text in said), "there is an event log"
    assert any("SparkListenerTaskEnd" in text for text in said), "and a task in it"
    assert [text[:200] for text in said if SECRET in text] == []
