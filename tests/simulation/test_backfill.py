"""Histories in which hosts find files that are older than their types' first hour: hours that hold
something are back-filled in order, and the others are skipped.
"""

from __future__ import annotations

import collections
import random
from pathlib import Path
from typing import Final

import pytest
from tests.simulation.histories import LOSSES, WEIGHTS, play, random_history

pytestmark = pytest.mark.slow

HISTORIES: Final = 3
HISTORIES_LONG: Final = 100
OLD: Final = {**WEIGHTS, "cut_old_range": 8, "tick": 4, "force": 0}
SEED: Final = random.Random(37).randrange(1 << 16)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("losses", "count"),
    [
        ({}, HISTORIES),
        (LOSSES, HISTORIES),
        pytest.param({}, HISTORIES_LONG, marks=pytest.mark.long),
        pytest.param(LOSSES, HISTORIES_LONG, marks=pytest.mark.long),
    ],
    ids=["nothing is lost", "with losses", "nothing is lost, many", "with losses, many"],
)
def test_every_history_with_old_files_keeps_the_promise(
    losses: dict[str, int], count: int, ledgers: Path, template: Path
) -> None:
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(SEED, SEED + count):
        seen.update(play(random_history(seed, {**OLD, **losses}), ledgers, template).seen)
    for kind in ("old range", "back-filled buckets", "buckets proved", "closer killed"):
        assert seen[kind] > 0, f"{kind}: never, so the histories cover too little"
