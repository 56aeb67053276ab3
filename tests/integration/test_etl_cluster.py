"""The ETL by spark-submit on a real standalone cluster: executors need nothing of the driver's
disk, and may be killed.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.delivered import ids_in, ids_of
from tests.support.delivery import DirectDelivery, Range
from tests.support.spark_cluster import SparkCluster
from tests.support.submitted_etl import SubmittedEtl
from tests.support.waiting import wait_for

from hourmark.records.hours import Hour
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

TYPE = f"clustered-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's: ledger, settings, checkpoint, temporary files."""
    return tmp_path_factory.mktemp(f"driver-{uuid.uuid4().hex[:6]}-")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, memory_mb=512, hidden=folder) as made:
        yield made


@pytest.fixture(scope="module")
def run(
    stack: LocalStack, cluster: SparkCluster, folder: Path, first_hour: Hour
) -> Iterator[SubmittedEtl]:
    made = SubmittedEtl(cluster, stack.layout.config_file, folder, [TYPE], first_hour)
    with made:
        made.wait_until_staging()
        yield made


def delivered(delivery: DirectDelivery, hour: Hour, ranges: int) -> list[Range]:
    """Ranges of 500 events, every tenth of them twice, all promised."""
    made = []
    for n in range(ranges):
        one = delivery.make(
            TYPE, [hour.start_s * 1000 + (500 * n + i) % 60_000 for i in range(500)]
        )
        delivery.deliver(one)
        if n % 10 == 0:
            delivery.deliver(delivery.recut(one))
        made.append(one)
    return made


def kill_one(executors: list[psutil.Process]) -> None:
    executors[0].send_signal(signal.SIGKILL)


def test_an_hour_with_duplicates_closes_on_executors_that_see_nothing_of_the_drivers_folder(
    run: SubmittedEtl, cluster: SparkCluster, delivery: DirectDelivery, first_hour: Hour
) -> None:
    sent = delivered(delivery, first_hour, 20)
    delivery.report(first_hour.end_ms)
    manifest = run.closed(TYPE, first_hour)
    assert ids_in(run, TYPE, first_hour) == ids_of(*sent)
    assert (manifest.events, manifest.duplicates_removed, manifest.grade.value) == (
        10_000,
        1000,
        "proved",
    )
    assert verify_bucket(run.storage, TYPE, first_hour).findings == ()
    executors = cluster.at_work()
    assert executors, "nothing was done by an executor"
    seen = [f"/proc/{e.pid}/root{run.file}" for e in executors]  # as the executor sees it
    assert run.file.exists() and not (cluster.hides and any(Path(path).exists() for path in seen))


def test_an_executor_killed_in_the_middle_costs_time_and_no_event(
    run: SubmittedEtl, cluster: SparkCluster, delivery: DirectDelivery, first_hour: Hour
) -> None:
    second = first_hour.next()
    before = ids_in(run, TYPE, first_hour)
    wait_for(lambda: len(cluster.executors()) == 2, "both executors are there")
    sent = delivered(delivery, second, 40)
    kill_one(cluster.at_work())  # while what was just sent is being staged
    sent += delivered(delivery, second, 20)
    delivery.report(second.end_ms)
    wait_for(lambda: run.storage.exists("_attempts"), "writing has begun", 120)
    kill_one(cluster.executors())
    manifest = run.closed(TYPE, second)
    assert ids_in(run, TYPE, second) == ids_of(*sent)
    assert (manifest.events, manifest.grade.value) == (30_000, "proved")
    assert verify_bucket(run.storage, TYPE, second).findings == ()
    assert ids_in(run, TYPE, first_hour) == before
    assert run.running()
