"""Failures of staging tasks and of planning on a real Spark: the driver gets the typed error, and
nothing of the batch is committed.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from tests.support.clock import FakeClock
from tests.support.documents import ROOT
from tests.support.records import position, span

from hourmark.config.groups import EtlSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.partitions_reader import PartitionError
from hourmark_etl.errors import BadRecord, EtlStop, StaleDriver
from hourmark_etl.execution.session import spark_session
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import EVENTS
from hourmark_etl.staging.consumer import PAUSE_S_MAX, Consumer
from hourmark_etl.staging.pieces import StagedChunk, StagedNote
from hourmark_etl.staging.plan import PlannedBatch, ReadSpan
from hourmark_etl.staging.planner import StreamReader
from hourmark_etl.staging.stage import TaskResult
from hourmark_infra.java.find import export_java_home

# PySpark leaves the sockets of results to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
ATTEMPTS: Final = 3
ENDED_WITHIN_S: Final = 240
Script = Callable[[Path], object]


def succeed(_: Path) -> None:
    """Do nothing."""


def find_a_bad_record(_: Path) -> None:
    raise BadRecord("hourmark.hosts", 3, 41, "not a report")


def fail_a_partition(_: Path) -> None:
    raise PartitionError("partition 3 cannot be read", Partition("events.click", 3), 41)


def fail_twice(folder: Path) -> None:
    """Fail the first two attempts of task 1."""
    if len([*folder.glob("1-*")]) < ATTEMPTS:
        fail_a_partition(folder)


def have_a_defect(_: Path) -> None:
    raise ZeroDivisionError("division by zero")


def lose_the_lease(_: Path) -> None:
    raise StaleDriver("another driver stages this shard")


def die(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class ScriptedReader(StreamReader):
    """Plans one batch of one task per script; each task has a span of its own and one file."""

    def __init__(
        self,
        *arguments: Any,
        folder: Path,
        planning: Script,
        tasking: Script,
        staging: list[Script],
    ) -> None:
        super().__init__(*arguments)
        self._folder, self._planning, self._tasking, self._staging = (
            folder,
            planning,
            tasking,
            staging,
        )

    def plan(self) -> PlannedBatch:
        self._planning(self._folder)
        spans = [span(10 * n, 10 * n + 10) for n in range(len(self._staging))]
        return PlannedBatch("_staging/one", tuple((ReadSpan(s, 1),) for s in spans))

    def tasks(self, planned: PlannedBatch) -> list[InputPartition]:
        self._tasking(self._folder)
        return [InputPartition(n) for n in range(len(planned.tasks))]

    def stage(self, partition: InputPartition) -> Iterator[TaskResult]:
        n = partition.value
        (self._folder / f"{n}-{uuid.uuid4().hex}").touch()  # one for each attempt
        first, last = span(10 * n, 10 * n + 5), span(10 * n + 5, 10 * n + 10)
        yield TaskResult(StagedChunk((note(f"{n}-first", first),)), (first,))
        self._staging[n](self._folder)
        yield TaskResult(StagedChunk((note(f"{n}-last", last),)), (last,))


def note(name: str, of: Any) -> StagedNote:
    return StagedNote(ledger="l", kind=EVENTS, rows=5, spans=(of,), path=f"_staging/one/{name}")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("etl")
    return Config(
        kafka={"edge": {"bootstrap": "127.0.0.1:1"}},
        storage=StorageSettings(root=f"file://{folder}/root"),
        etl=EtlSettings(
            ledger=f"sqlite:///{folder}/ledger.sqlite",
            scratch_dir=folder / "scratch",
            master=f"local[2,{ATTEMPTS}]",
            trigger_seconds=1,
            spark_conf={"spark.executorEnv.PYTHONPATH": str(ROOT)},
        ),
    )


@pytest.fixture(scope="module")
def spark(config: Config) -> Iterator[SparkSession]:
    patched = pytest.MonkeyPatch()
    patched.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # restored afterwards
    patched.setenv("PYTHONPATH", str(ROOT))  # of the reader above
    patched.setenv("PYSPARK_PYTHON", sys.executable)
    export_java_home()
    session = spark_session(config, submitted=False)
    yield session
    session.stop()
    patched.undo()


class Staging:
    """A consumer on Spark whose tasks follow scripts, and the ledger it commits to."""

    def __init__(
        self, spark: SparkSession, config: Config, folder: Path, log: pytest.LogCaptureFixture
    ) -> None:
        url = f"sqlite:///{folder}/ledger.sqlite"
        self._spark, self._log = spark, log
        self._config = config.model_copy(
            update={"etl": config.etl.model_copy(update={"ledger": url})}
        )
        self.database = Database(url)
        lease = self.database.acquire("consumer:default")
        ledger.insert_new_positions(self.database, lease, [position(0)])
        self.attempts = folder / "attempts"
        self.attempts.mkdir()
        self.committed: list[int] = []

    def run(
        self,
        *staging: Script,
        planning: Script = succeed,
        tasking: Script = succeed,
        kills: bool = False,
    ) -> HourmarkError | None:
        """Run the query until it commits or ends, and return the error that ended it.

        Unless the test itself `kills` a process, the query is restarted after Spark lost one: on a
        busy machine a Python process may take longer to start than Spark waits.
        """
        clock = FakeClock()
        consumer = Consumer(
            self._spark,
            self._config,
            self.database,
            "cluster",
            clock,
            lambda batch, _: self.committed.append(len(batch.files)),
            "default",
            make_reader=functools.partial(
                ScriptedReader,
                folder=self.attempts,
                planning=planning,
                tasking=tasking,
                staging=list(staging),
            ),
        )
        consumer.start()
        until_s = time.monotonic() + ENDED_WITHIN_S
        try:
            while time.monotonic() < until_s and not self.committed:
                consumer.check()
                if error := self._logged_error():
                    if kills or " was lost; " not in str(error):
                        return error
                    self._log.clear()
                    for attempt in self.attempts.iterdir():
                        attempt.unlink()
                    clock.advance(PAUSE_S_MAX)
                time.sleep(0.1)
        except HourmarkError as error:
            return error
        finally:
            consumer.stop()
        assert self.committed, "the query neither ended nor committed"
        return None

    def _logged_error(self) -> HourmarkError | None:
        for record in self._log.records:
            if "restarts from the ledger" in record.msg and isinstance(record.args, tuple):
                return next(a for a in record.args if isinstance(a, HourmarkError))
        return None

    @property
    def next_offset(self) -> int:
        (found,) = ledger.positions(self.database, "cluster")
        return found.next_offset


@pytest.fixture
def staging(
    spark: SparkSession, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[Staging]:
    made = Staging(spark, config, tmp_path, caplog)
    yield made
    made.database.close()


@pytest.mark.slow
def test_results_are_committed_once_if_every_task_succeeds_in_the_end(staging: Staging) -> None:
    assert staging.run(succeed, fail_twice) is None
    assert (staging.committed, staging.next_offset) == ([4], 20)
    assert len([*staging.attempts.glob("1-*")]) == ATTEMPTS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "kind", "fields", "attempts"),
    [
        (
            find_a_bad_record,
            BadRecord,
            {"topic": "hourmark.hosts", "partition": 3, "offset": 41, "why": "not a report"},
            1,
        ),
        (
            fail_a_partition,
            PartitionError,
            {"partition": Partition("events.click", 3), "offset": 41},
            ATTEMPTS,
        ),
        pytest.param(have_a_defect, EtlStop, {}, ATTEMPTS, marks=pytest.mark.long),
    ],
)
def test_a_failed_task_arrives_as_its_typed_error_and_nothing_of_the_batch_is_committed(
    staging: Staging,
    script: Script,
    kind: type[HourmarkError],
    fields: dict[str, Any],
    attempts: int,
) -> None:
    error = staging.run(succeed, script)
    assert type(error) is kind
    assert {name: getattr(error, name) for name in fields} == fields
    assert (staging.committed, staging.next_offset) == ([], 0)
    assert len([*staging.attempts.glob("1-*")]) == attempts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "script", "kind"),
    [
        ("planning", lose_the_lease, StaleDriver),
        pytest.param("tasking", fail_a_partition, PartitionError, marks=pytest.mark.long),
    ],
)
def test_a_batch_that_cannot_be_planned_arrives_as_its_typed_error(
    staging: Staging, where: str, script: Script, kind: type[HourmarkError]
) -> None:
    error = (
        staging.run(succeed, planning=script)
        if where == "planning"
        else staging.run(succeed, tasking=script)
    )
    assert type(error) is kind
    assert (staging.committed, [*staging.attempts.iterdir()]) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "lost"),
    [
        pytest.param(
            "planning",
            "the Python process that plans the staging query was lost",
            marks=pytest.mark.long,
        ),
        ("staging", "a Python worker of the staging query was lost"),
    ],
)
def test_a_process_that_dies_is_recognized_by_the_text_of_spark(
    staging: Staging, where: str, lost: str
) -> None:
    error = (
        staging.run(die, kills=True)
        if where == "staging"
        else staging.run(succeed, planning=die, kills=True)
    )
    assert type(error) is Unavailable
    assert lost in str(error)
