"""The ETL by spark-submit on YARN, in cluster mode with a packed environment and its ledger in
PostgreSQL: executors, and then the driver, killed at each step of closing an hour. YARN starts the
driver again, nobody else.

Took 42 minutes beside much other work (a load of 25 to 30 on two cores), most of it Java that
starts; 4 GiB beside the stack.
"""

from __future__ import annotations

import functools
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faults.outcome import LONG, assert_whole
from tests.support import postgres
from tests.support.crash import CrashOrder
from tests.support.etl_scene import Scene, scene
from tests.support.ports import free_port
from tests.support.yarn_cluster import YarnCluster
from tests.support.yarn_etl import YarnEtl
from tools.pack_environment import main as pack_environment

from hourmark_infra.stack import LocalStack

pytestmark = [*LONG, pytest.mark.skipif(postgres.binaries() is None, reason=postgres.MISSING)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed for the Python that runs here, which stands at the same path on every node of this
    cluster.
    """
    made = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    done = CliRunner().invoke(
        pack_environment, [str(made), "--python", str(Path(sys.executable).resolve())]
    )
    assert done.exit_code == 0, done.output
    return made


@pytest.fixture(scope="module")
def cluster(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with YarnCluster(
        stack, tmp_path_factory.mktemp("yarn-cluster"), nodes=2, memory_mb=2600
    ) as made:
        yield made


@pytest.fixture(scope="module")
def running(
    stack: LocalStack,
    cluster: YarnCluster,
    environment: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    """An hour was closed."""
    folder = tmp_path_factory.mktemp(f"yarn-{uuid.uuid4().hex[:6]}-")
    make = functools.partial(YarnEtl, cluster, environment)
    with postgres.running(free_port()) as server:
        settings = {
            "ledger": server.new_database(),
            "scratch_dir": "scratch",
        }  # in the container's own folder
        with scene(
            stack.layout.config_file, folder, ("one", "two"), crashing=True, etl=settings, make=make
        ) as made:
            made.closed(made.begin_hour())
            yield made


@pytest.fixture
def etl(running: Scene) -> YarnEtl:
    assert isinstance(running.run, YarnEtl)
    return running.run


@pytest.mark.parametrize(
    "step", [pytest.param("staged-write", marks=pytest.mark.acceptance), "attempt-file"]
)
def test_an_executor_killed_at_a_file_costs_time_and_no_event(
    running: Scene, etl: YarnEtl, cluster: YarnCluster, step: str
) -> None:
    before, attempts = {e.pid for e in etl.executors()}, cluster.attempts(etl.app_id)
    kill = CrashOrder(step, "before", victim="executor")
    etl.order(kill)
    hour = running.begin_hour()
    running.crashed(kill)
    running.wait(lambda: not before <= {e.pid for e in etl.executors()}, "an executor is gone")
    assert_whole(running.closed(hour))
    assert cluster.attempts(etl.app_id) == attempts, "the driver went on"


@pytest.mark.parametrize(
    ("step", "moment"),
    [("seal", "after"), ("attempt", "before"), ("rename", "before"), ("rename", "after")],
)
def test_a_driver_killed_while_closing_is_started_again_by_yarn(
    running: Scene, etl: YarnEtl, cluster: YarnCluster, step: str, moment: str
) -> None:
    attempts = cluster.attempts(etl.app_id)
    kill = CrashOrder(step, moment)  # type: ignore[arg-type]  # as parametrized
    etl.order(kill)
    hour = running.begin_hour()
    running.crashed(kill)
    assert_whole(running.closed(hour))
    assert cluster.attempts(etl.app_id) == attempts + 1


def test_a_driver_whose_jvm_dies_before_the_rename_is_ended_by_yarn_and_another_publishes(
    running: Scene, etl: YarnEtl, cluster: YarnCluster
) -> None:
    """Its Python stands still, so that it cannot end by itself."""
    attempts = cluster.attempts(etl.app_id)
    pause = CrashOrder("rename", "before", how="SIGSTOP")
    etl.order(pause)
    hour = running.begin_hour()
    running.crashed(pause)
    (paused,), (master,) = etl.drivers(), etl.masters()
    master.send_signal(signal.SIGKILL)
    assert_whole(running.closed(hour))
    assert cluster.attempts(etl.app_id) == attempts + 1
    running.wait(lambda: paused not in etl.drivers(), "YARN ends what is left of the container")
    assert_whole(running.closed(running.begin_hour()))
