"""Two drivers at once, a paused one that wakes, a lost checkpoint, an old copy of the ledger:
nothing is doubled or changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.outcome import LONG, assert_a_paused_closer_changes_nothing
from tests.support.crash import CrashOrder
from tests.support.etl import EtlRun
from tests.support.etl_scene import EVENTS, WITHIN_S, Scene
from tests.support.spark_python import kill_pythons

pytestmark = LONG
SCENE = {"names": ("one", "two"), "crashing": True}


@pytest.fixture
def duplicate(running: Scene) -> Iterator[EtlRun]:
    with running.run.duplicate() as made:
        yield made


def test_of_two_drivers_the_older_one_stops_and_nothing_is_doubled(
    running: Scene, duplicate: EtlRun
) -> None:
    duplicate.wait_until_staging(WITHIN_S)
    running.ended()
    assert running.run.logged("another driver has taken over the lease")
    hour = running.begin_hour()
    assert running.closed(hour, by=duplicate).events == EVENTS


def test_a_closer_paused_before_its_rename_and_woken_after_another_published_changes_nothing(
    running: Scene,
) -> None:
    assert_a_paused_closer_changes_nothing(running, CrashOrder("rename", "before", how="SIGSTOP"))


def test_a_checkpoint_deleted_while_running_or_stopped_costs_nothing(running: Scene) -> None:
    running.run.revive()
    running.closed(running.begin_hour())
    shutil.rmtree(running.run.config.etl.scratch_dir)
    running.closed(running.begin_hour())
    running.run.kill()
    shutil.rmtree(running.run.config.etl.scratch_dir, ignore_errors=True)
    running.closed(running.begin_hour())


def test_all_of_sparks_python_killed_is_begun_again_by_the_same_driver(running: Scene) -> None:
    running.run.revive()
    running.closed(running.begin_hour())
    driver = running.run.pid
    assert kill_pythons(driver) > 1
    assert running.closed(running.begin_hour()).events == EVENTS
    assert running.run.pid == driver and running.run.running()
    assert running.run.logged("failed and restarts from the ledger's offsets in")


def test_an_old_copy_of_the_ledger_stops_the_driver_and_a_rebuilt_one_goes_on(
    running: Scene, tmp_path: Path
) -> None:
    running.run.revive()
    ledger = Path(running.run.config.etl.ledger.removeprefix("sqlite:///"))
    running.run.kill()
    _copy(ledger, tmp_path / "yesterday.sqlite")
    running.closed(running.begin_hour())
    running.run.kill()
    _copy(tmp_path / "yesterday.sqlite", ledger)
    running.run.start()
    running.ended()
    assert running.run.logged("ForeignLedger") or running.run.logged("hourmark ledger rebuild")
    running.content_is_as_promised()
    rebuilt = tmp_path / "rebuilt.sqlite"
    running.run.told("ledger", "rebuild", "--into", f"sqlite:///{rebuilt}")
    _copy(rebuilt, ledger)
    closed = running.closed(running.begin_hour())
    assert (closed.events, closed.grade.value) == (EVENTS, "proved")


def _copy(source: Path, target: Path) -> None:
    """Of an SQLite ledger that nobody has open, with its log."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
        if Path(f"{source}{suffix}").exists():
            shutil.copy(f"{source}{suffix}", f"{target}{suffix}")
