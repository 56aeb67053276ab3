"""Worlds at random: the judge is content with every right one, and with none in which one fault is
planted.

`HOURMARK_WORLDS` sets how many of each kind the long tier judges (default 3,000); a failure names
seed and fault.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.judged.world import World, small_world
from tests.support.tiers import representative
from tests.unit.verify.judge.false_worlds import FAULTS
from tests.unit.verify.judge.random_worlds import LocalHdfs, random_world

from hourmark_verify.judge.check import verify_delivery
from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.webhdfs import DownloadedFile

WORLDS = 60
WORLDS_LONG = int(os.environ.get("HOURMARK_WORLDS", "3000"))


def verdict(world: World, hdfs: LocalHdfs | None = None) -> JudgeReport:
    """The judge's, of a world as it is written."""
    with contextlib.closing(hdfs or LocalHdfs(world.hdfs)) as asked:
        return verify_delivery(Expectations.model_validate(world.expectations()), asked)


def right(folder: Path, seed: int) -> None:
    world = random_world(folder, seed)
    world.write()
    report = verdict(world)
    assert report.passed, f"seed {seed}\n{report.as_text()}"
    assert report.posted == len(world.api)


def planted(folder: Path, name: str, seed: int) -> bool:
    """Whether the fault found a place in the world of that seed; then it must be found."""
    world = random_world(folder, seed)
    if not FAULTS[name](world, random.Random(seed)):
        return False
    report = verdict(world)
    assert not report.passed, f"fault {name}, seed {seed}\n{report.as_text()}"
    assert sum(report.counts.values()) > 0, "for the fault, and not for having compared nothing"
    return True


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, WORLDS, 20))
def test_right_worlds_are_not_objected_to(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        right(tmp_path / str(seed), seed)


@pytest.mark.parametrize("name", representative(sorted(FAULTS), keep=30))
def test_a_planted_fault_is_objected_to(tmp_path: Path, name: str) -> None:
    assert any(planted(tmp_path / str(seed), name, seed) for seed in range(60)), (
        "no world had a place for it"
    )


class Busy(LocalHdfs):
    """HDFS in which something happens when the first data file has been read."""

    def __init__(self, world: World, happens: Callable[[], None]) -> None:
        super().__init__(world.hdfs)
        self._happens: Callable[[], None] | None = happens

    def open(self, file: str) -> DownloadedFile:
        opened = super().open(file)
        if file.endswith(".avro") and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return opened


@pytest.mark.parametrize("times", [1, 2])
def test_a_bucket_that_is_closed_while_the_judge_looks_is_judged_too(
    tmp_path: Path, times: int
) -> None:
    world = small_world(tmp_path)
    newest = world.plan("server-log", 3)
    world.plans.remove(newest)
    newest.late *= times
    world.write()
    report = verdict(world, Busy(world, lambda: world.write_bucket(newest)))
    assert (report.passed, report.counts[FindingKind.DOUBLED]) == (times == 1, times - 1)


def test_a_bucket_that_is_replaced_while_the_judge_looks_is_named(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    world.write()
    folder = world.folder(world.plan("dead-letters", 1))
    marker = (folder / "_SUCCESS").read_bytes()

    def replace() -> None:
        (folder / "_SUCCESS").unlink()
        (folder / "_SUCCESS").write_bytes(marker)

    assert verdict(world, Busy(world, replace)).counts[FindingKind.CHANGED] > 0


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_right_worlds_are_not_objected_to(tmp_path: Path, part: int) -> None:
    for seed in range(1000 + part, 1000 + WORLDS_LONG, 20):
        right(tmp_path / str(seed), seed)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", FAULTS)
def test_thousands_of_planted_faults_are_objected_to(tmp_path: Path, name: str) -> None:
    for seed in range(WORLDS_LONG // len(FAULTS) + 1):
        planted(tmp_path / str(seed), name, 10_000 + seed)
