"""The ETL with Spark's dynamic allocation, on a standalone cluster: hours come to hold ten times
the events, executors become more, and fewer once hours are as before; every event is in its bucket
once.

Took 12 minutes beside much other work, most of it Java that starts.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene, scene
from tests.support.spark_cluster import SparkCluster
from tests.support.submitted_etl import SubmittedEtl

from hourmark_infra.stack import LocalStack

pytestmark = LONG

USUAL: Final = 1500  # events of an hour, each sent three times
LEAST, MOST = 1, 4  # executors
ALLOCATION: Final = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": str(LEAST),
    "spark.dynamicAllocation.maxExecutors": str(MOST),
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "20s",
    "spark.cores.max": str(MOST),
}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's."""
    return tmp_path_factory.mktemp(f"dynamic-{uuid.uuid4().hex[:6]}-")


@pytest.fixture
def cluster(folder: Path) -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, cores=2, memory_mb=1000, hidden=folder) as made:
        yield made


@pytest.fixture
def running(stack: LocalStack, cluster: SparkCluster, folder: Path) -> Iterator[Scene]:
    """With units so small that ten times the events are ten times the tasks, as large hours have
    them with large units.
    """
    make = functools.partial(SubmittedEtl, cluster, conf=ALLOCATION)
    settings = {"unit_bytes_max": 1 << 20, "tasks": MOST}
    with scene(stack.layout.config_file, folder, ("one", "two"), etl=settings, make=make) as made:
        yield made


def test_executors_become_more_with_ten_times_the_events_and_fewer_after_them(
    running: Scene, cluster: SparkCluster
) -> None:
    closes(running, USUAL)
    running.wait(lambda: len(cluster.executors()) == LEAST, "as few executors as may be")
    begun = [running.begin_hour(events=10 * USUAL) for _ in range(4)]
    running.wait(lambda: len(cluster.executors()) >= LEAST + 2, "executors have become more")
    for hour in begun:
        running.closed(hour)
    closes(running, USUAL)
    running.wait(lambda: len(cluster.executors()) == LEAST, "executors have become fewer")
    closes(running, USUAL)  # with whom are left


def closes(running: Scene, on_time: int) -> None:
    closed = running.closed(running.begin_hour(events=on_time))
    assert (closed.events, closed.grade.value) == (on_time + 1, "proved")
