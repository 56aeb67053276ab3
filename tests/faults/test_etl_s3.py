"""The real driver on an object store: killed at each step of publishing, paused before it selects,
and its ledger lost. The buckets are judged through pyarrow, which shares no code with it.

`tests/faults/test_killed_at_each_step.py` is the same on HDFS.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.faults.outcome import LONG, assert_a_paused_closer_changes_nothing, assert_whole
from tests.support.arrow_s3 import ArrowS3, arrow_options
from tests.support.bucket_judge import BucketJudge
from tests.support.crash import OBJECT_STEPS, CrashOrder
from tests.support.etl_scene import Scene
from tests.support.waiting import wait_for

from hourmark.config.groups import StorageSettings
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.selections import selection_path
from hourmark_etl.telemetry.storage_server import storage_server
from hourmark_reading import open_buckets

pytestmark = [*LONG, pytest.mark.chaos]
SCENE = {
    "names": ("one", "two"),
    "crashing": True,
    "minutes_ago": 120,
    "etl": {"deadline_seconds": 14_400.0},
}
# "staged-write" and "attempt-file" are steps of Python workers: the driver dies of them.
ORDERS = (
    CrashOrder("staged-write", "after", "driver"),
    CrashOrder("attempt-file", "before", "driver"),
    CrashOrder("marker", "after"),
    *(CrashOrder(step, moment) for step in OBJECT_STEPS for moment in ("before", "after")),
    CrashOrder("ledger-close", "before"),
)


@pytest.fixture(scope="module")
def root(s3_root: str) -> str:
    return s3_root


@pytest.fixture(scope="module")
def outside(s3: StorageSettings, root: str) -> ArrowS3:
    return ArrowS3(s3, root)


@pytest.fixture(scope="module")
def running(fresh: Scene, outside: ArrowS3) -> Scene:
    fresh.judge = BucketJudge(outside)
    fresh.closed(fresh.begin_hour())
    return fresh


def printed(running: Scene, *arguments: str) -> str:
    """What a command prints with the driver's settings; it must end well."""
    command = [sys.executable, "-m", "hourmark", *arguments, "--config", str(running.run.file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def verified(running: Scene, hours: Sequence[Hour]) -> None:
    """Every file of these buckets is read again, by the command that users have."""
    for event_type in running.types:
        for hour in hours:
            printed(running, "bucket", "verify", event_type, str(hour))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_killed_at_this_step_nothing_is_lost_doubled_or_changed(
    running: Scene, outside: ArrowS3, order: CrashOrder
) -> None:
    running.run.revive()
    running.run.order(order)
    hour = running.begin_hour()
    running.crashed(order)
    if order.step == "copy" and order.moment == "after":
        assert not marked(outside, hour, running.types), "a bucket is not closed by its files"
    assert_whole(running.closed(hour))


def marked(outside: ArrowS3, hour: Hour, types: Sequence[str]) -> bool:
    """Whether all of these buckets have a marker."""
    return all(f"{hour.bucket_path(t)}/_SUCCESS" in outside.objects(t) for t in types)


def test_a_closer_paused_before_it_selects_and_woken_after_another_published_changes_nothing(
    running: Scene,
) -> None:
    assert_a_paused_closer_changes_nothing(
        running, CrashOrder("selection", "before", how="SIGSTOP")
    )


def test_what_was_published_is_read_by_commands_and_by_the_library(
    running: Scene, s3: StorageSettings, root: str
) -> None:
    running.run.revive()
    hour = running.begin_hour()
    closed = running.closed(hour)
    (event_type, *_) = running.types
    verified(running, running.hours[-3:])
    lines = printed(running, "bucket", "cat", event_type, str(hour), "--json").splitlines()
    assert len([json.loads(line) for line in lines]) == closed.events
    printed(running, "doctor", "--only", "storage")
    assert [server.healthy for server in storage_server(running.run.config)] == [True]
    buckets = open_buckets(root, **arrow_options(s3))
    events = buckets.read(event_type, str(hour), str(hour.next()), late=False)
    assert events.to_table().num_rows == closed.events - sum(closed.late.values())


def test_attempts_are_deleted_and_each_bucket_has_one_selection(
    running: Scene, outside: ArrowS3
) -> None:
    running.run.revive()
    last = running.begin_hour()
    running.closed(last)
    buckets = [
        Manifest.decode(outside.read(path))
        for path in outside.objects("")
        if path.endswith("/_SUCCESS") and not path.startswith("_")
    ]
    selected = {
        selection_path(m.type, Hour.parse(m.hour, m.bucket_seconds)): m.attempt for m in buckets
    }
    for path, attempt in selected.items():
        assert json.loads(outside.read(path))["attempt"] == attempt
    assert set(outside.objects("_selected")) == set(selected)
    wait_for(lambda: not outside.objects("_attempts"), "attempts are deleted", 60)


def test_a_rebuild_of_a_lost_ledger_completes_what_was_selected(
    running: Scene, outside: ArrowS3, tmp_path: Path
) -> None:
    running.run.revive()
    running.closed(running.begin_hour())
    crash = CrashOrder("bucket-marker", "before")
    running.run.order(crash)
    hour = running.begin_hour()
    running.crashed(crash)
    running.run.kill()  # what Spark left
    file = Path(running.run.config.etl.ledger.removeprefix("sqlite:///"))
    for part in file.parent.glob(f"{file.name}*"):
        part.rename(tmp_path / f"lost-{part.name}")
    told = running.run.told("ledger", "rebuild", "--into", running.run.config.etl.ledger)
    assert (told["notes"], told["lost"]) == ([], [])
    selections = outside.objects("_selected")
    selected = [t for t in running.types if selection_path(t, hour) in selections]
    assert selected and marked(outside, hour, selected)
    assert running.run.told("ledger", "check")["findings"] == []
    running.content_is_as_promised()
