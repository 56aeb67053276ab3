"""What tasks are given: they run elsewhere, and know of the cluster what they are told."""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hourmark.config.loading import Config
from hourmark.kafka.clients import remember_brokers
from hourmark_etl.ledger.database import Lease
from hourmark_etl.model import OffsetSpan
from hourmark_etl.staging.plan import PlannedBatch, ReadSpan
from hourmark_etl.staging.planner import StagingSchemas, StreamReader
from hourmark_etl.storage import LocalDisk, WebHdfs

BATCH = PlannedBatch(
    "_staging/one",
    ((ReadSpan(OffsetSpan(topic="t", topic_id="id", partition=0, start=0, end=5), 100),),),
)


def test_tasks_know_the_brokers_that_were_named_since_and_no_secret() -> None:
    properties = {"sasl.password": "pl4nted"}
    config = Config(
        kafka={"edge": {"bootstrap": f"{uuid.uuid4().hex}:9092", "properties": properties}}
    )
    reader: Any = StreamReader(config, Lease("consumer", 1), "all", "0" * 32)
    reader._planner = SimpleNamespace(schemas=lambda _: StagingSchemas({}, {}))
    remember_brokers(config.kafka.edge, ["later:9092"])
    (task,) = reader.partitions({}, BATCH.to_json())
    assert task.bootstrap == f"{config.kafka.edge.bootstrap},later:9092"
    assert b"pl4nted" not in pickle.dumps(task)


def test_a_file_of_the_storage_that_is_being_replaced_does_not_end_the_driver(
    tmp_path: Path,
) -> None:
    storage = {
        "principal": "hourmark@EXAMPLE.COM",
        "keytab": tmp_path / "none",
        "ca": tmp_path / "no",
    }
    config = Config(kafka={"edge": {"bootstrap": "nobody:9092"}}, storage=storage)
    reader: Any = StreamReader(config, Lease("consumer", 1), "all", "0" * 32)
    reader._planner = SimpleNamespace(schemas=lambda _: StagingSchemas({}, {}))
    (task,) = reader.partitions({}, BATCH.to_json())
    assert isinstance(task.storage, WebHdfs), "not a failed plan"


def test_a_process_of_the_driver_receives_its_storage(tmp_path: Path) -> None:
    config = Config(
        kafka={"edge": {"bootstrap": "nobody:9092"}}, storage={"root": f"file://{tmp_path}"}
    )
    reader: Any = StreamReader(config, Lease("consumer", 1), "all", "0" * 32)
    assert pickle.loads(pickle.dumps(reader))._driver_storage == LocalDisk(tmp_path)
