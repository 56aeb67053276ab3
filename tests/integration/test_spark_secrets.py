"""What Spark shows and writes of a job, plans and event log, holds no password of Kafka or of the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from hourmark.config import Config
from hourmark_etl.ledger.database import Lease
from hourmark_etl.spark import spark_session
from hourmark_etl.staging.planner import StreamReader
from hourmark_etl.staging.source import kafka_source, source_name
from hourmark_infra.java.find import export_java_home

# pyspark leaves the sockets by which results came to the garbage collector.
pytestmark = [
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
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
    export_java_home()
    session = spark_session(config, submitted=False)
    yield session
    session.stop()


def test_neither_plans_nor_the_event_log_hold_a_password(tmp_path: Path, config: Config, spark: SparkSession) -> None:
    spark.dataSource.register(kafka_source("all", StreamReader(config, Lease("consumer", 1), "all", "0" * 32)))
    rows = spark.readStream.format(source_name("all")).load()
    said = [str(rows._jdf.queryExecution())]
    query = rows.writeStream.foreachBatch(lambda *_: None).option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    try:
        with pytest.raises(StreamingQueryException) as failed:  # nobody answers there
            query.awaitTermination(120)
            query.processAllAvailable()
    finally:
        query.stop()
    said += [str(failed.value), str(query.lastProgress)]
    spark.stop()
    written = [file for folder in ("log", "checkpoint") for file in (tmp_path / folder).rglob("*") if file.is_file()]
    assert any("SparkListenerEnvironmentUpdate" in file.read_text(errors="replace") for file in written), "there is an event log"
    said += [file.read_text(errors="replace") for file in written]
    assert [text[:200] for text in said if SECRET in text] == []
