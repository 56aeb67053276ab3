"""Faults by the hundred, the smallest tier: about five minutes once the servers are up.

The schedule is the same each time, so that a fault found by one draw in a hundred does not make
another change's run red; new ones are `./hourmark chaos run`'s. A failure says the command that
plays it again. `HOURMARK_CHAOS_SEED=<seed>` draws another.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.chaos.__main__ import played
from tests.faults.chaos.faults import of_tier
from tests.faults.chaos.schedule import draw
from tests.faults.chaos.trials import read
from tests.faults.chaos.workloads import WORKLOADS

pytestmark = [
    pytest.mark.stack,
    pytest.mark.chaos,
    pytest.mark.alone,  # what was written is closed three minutes after a fault at most
    pytest.mark.long,
    pytest.mark.timeout(1500),
]

SEED = 11


def test_every_promise_holds_under_faults_that_are_drawn(tmp_path: Path) -> None:
    seed = int(os.environ.get("HOURMARK_CHAOS_SEED") or SEED)
    results = tmp_path / "trials.jsonl"
    kept = played(tmp_path / "home", draw("pr", seed, of_tier("pr"), WORKLOADS), results)
    (trial,) = read(results)
    assert kept, (
        f"HOURMARK_CHAOS_SEED={seed}: {trial.violations}; the output above says what, and "
        "how to play it again"
    )
    assert trial.compared > 0
    assert trial.planted > 0
    assert not trial.overlooked
