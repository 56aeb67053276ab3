"""Faults by the hundred, the smallest tier: a schedule of its own each time, in about five minutes once the servers are up.

A failure says its seed, and the command that plays the very schedule again. `HOURMARK_CHAOS_SEED=<seed>` draws it again.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.faults.chaos.__main__ import played
from tests.faults.chaos.faults import FAULTS
from tests.faults.chaos.schedule import draw
from tests.faults.chaos.trials import read
from tests.faults.chaos.workloads import WORKLOADS


@pytest.mark.stack
@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_every_promise_holds_under_faults_that_are_drawn(tmp_path: Path) -> None:
    seed = int(os.environ.get("HOURMARK_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    results = tmp_path / "trials.jsonl"
    kept = played(tmp_path / "home", draw("pr", seed, FAULTS, WORKLOADS), results)
    (trial,) = read(results)
    assert kept, f"HOURMARK_CHAOS_SEED={seed}: {trial.violations}; the output above says what, and how to play it again"
    assert trial.compared > 0
    assert trial.planted > 0
    assert not trial.overlooked
