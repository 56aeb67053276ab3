"""Real tailers through random histories of a log host, judged by a model that knows what was
written.

    pytest tests/integration/test_tailer_histories.py -m "not long"                twenty
    pytest tests/integration/test_tailer_histories.py -m long                      two thousand
    HOURMARK_SEED=17 HOURMARK_HISTORIES=1 pytest …                                one again

A history is its seed's alone but for how fast things go: the same seed may take another way, so
what fails is printed whole.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tailer_model.histories import play, random_history
from tests.support.tailer_model.planted import FAULTS, SHOWN_BY
from tests.support.tailer_model.spawner import Spawner
from tests.support.tailer_model.world import World
from tests.support.tiers import representative

SEED = int(os.environ.get("HOURMARK_SEED", str(random.randrange(1 << 32))))
SAME = int(
    os.environ.get("HOURMARK_SEED", "2000")
)  # the same histories in each run; new ones are for the long form
FEW = int(os.environ.get("HOURMARK_HISTORIES", "20"))
MANY = int(os.environ.get("HOURMARK_HISTORIES", "2000"))
UNTIL_FOUND = 30
# Faults that are found after many histories only: each takes over a minute beside other tests.
LATE_FOUND = {
    "measures_time_by_the_wall_clock",
    "opens_what_has_the_inode_of_a_log",
    "takes_a_copy_in_the_making_for_whole",
    "trusts_a_damaged_log",
}


@pytest.fixture(scope="module")
def spawner() -> Iterator[Spawner]:
    spawner = Spawner()
    yield spawner
    spawner.close()


def played(seed: int, folder: Path, spawner: Spawner) -> World:
    world = play(random_history(random.Random(seed)), seed, made(folder), spawner)
    if not world.services.findings:
        shutil.rmtree(folder)
    return world


def hold(first: int, count: int, tmp_path: Path, spawner: Spawner) -> None:
    for seed in range(first, first + count):
        world = played(seed, tmp_path / str(seed), spawner)
        findings = world.services.findings
        assert not findings, (
            f"HOURMARK_SEED={seed}: {findings} after {world.done}; doubts: "
            f"{world.doubts}; see {world.folder}"
        )


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * FEW)
def test_some_histories_keep_every_line_and_every_word(tmp_path: Path, spawner: Spawner) -> None:
    hold(SAME, FEW, tmp_path, spawner)


@pytest.mark.long
@pytest.mark.timeout(60 + 30 * MANY)
def test_two_thousand_histories_keep_every_line_and_every_word(
    tmp_path: Path, spawner: Spawner
) -> None:
    hold(SEED, MANY, tmp_path, spawner)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", representative([*FAULTS], long=LATE_FOUND))
def test_a_planted_fault_is_found(fault: str, tmp_path: Path, spawner: Spawner) -> None:
    for seed in range(UNTIL_FOUND):
        history = ["append", "start", *SHOWN_BY[fault]]
        if play(history, seed, made(tmp_path / str(seed)), spawner, fault).services.findings:
            assert not play(
                history, seed, made(tmp_path / f"{seed}-sound"), spawner
            ).services.findings
            return
    raise AssertionError(f"{fault} was not found in {UNTIL_FOUND} histories")


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
