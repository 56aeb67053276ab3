"""The ETL by spark-submit on a standalone cluster: an executor, and then the driver, killed at each
step of closing an hour.

The driver runs where spark-submit was called (Spark has no cluster mode for Python there), so
whoever supervises it starts it again; here that is the scene. Took 41 minutes beside much other
work (a load of 30 on two cores), most of it Java that starts.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.outcome import LONG, assert_whole
from tests.support.crash import CrashOrder
from tests.support.etl_scene import Scene, scene
from tests.support.spark_cluster import SparkCluster
from tests.support.submitted_etl import SubmittedEtl

from hourmark_infra.stack import LocalStack

pytestmark = LONG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's."""
    return tmp_path_factory.mktemp(f"standalone-{uuid.uuid4().hex[:6]}-")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, memory_mb=512, hidden=folder) as made:
        yield made


@pytest.fixture(scope="module")
def running(stack: LocalStack, cluster: SparkCluster, folder: Path) -> Iterator[Scene]:
    """An hour was closed."""
    make = functools.partial(SubmittedEtl, cluster)
    with scene(stack.layout.config_file, folder, ("one", "two"), crashing=True, make=make) as made:
        made.closed(made.begin_hour())
        yield made


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        pytest.param("staged-write", "before", marks=pytest.mark.acceptance),
        ("staged-write", "after"),
        ("attempt-file", "before"),
        ("attempt-file", "after"),
    ],
)
def test_an_executor_killed_at_a_file_costs_time_and_no_event(
    running: Scene, cluster: SparkCluster, step: str, moment: str
) -> None:
    running.run.revive()
    driver, before = running.run.pid, {e.pid for e in cluster.executors()}
    kill = CrashOrder(step, moment, victim="executor")  # type: ignore[arg-type]  # as parametrized
    running.run.order(kill)
    hour = running.begin_hour()
    running.crashed(kill)
    running.wait(lambda: not before <= {e.pid for e in cluster.executors()}, "an executor is gone")
    assert_whole(running.closed(hour))
    assert running.run.running() and running.run.pid == driver, "the driver went on"


@pytest.mark.parametrize("step", ["seal", "attempt", "rename", "ledger-close"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_killed_while_closing_is_started_again_and_closes_the_hour(
    running: Scene, step: str, moment: str
) -> None:
    running.run.revive()
    kill = CrashOrder(step, moment)  # type: ignore[arg-type]  # as parametrized
    running.run.order(kill)
    hour = running.begin_hour()
    running.crashed(kill)
    assert_whole(running.closed(hour))
