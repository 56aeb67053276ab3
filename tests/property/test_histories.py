"""The real closing machine, the real ledger and the real staging function, through random histories.

    pytest tests/property                                  some hundred histories
    HOURMARK_HISTORIES=10000 pytest tests/property/test_histories.py
    HOURMARK_SEED=17 pytest tests/property/test_histories.py   the same histories again

A history that breaks the promise is shrunk, and printed as a list of actions for `histories.play`.
"""

from __future__ import annotations

import collections
import os
import random
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.property.histories import LOSSES, NUMBERS, WEIGHTS, History, play
from tests.property.world import World

HISTORIES = int(os.environ.get("HOURMARK_HISTORIES", "120"))
SECONDS_MAX = 600 + 10 * HISTORIES  # far more than they take
SEED = int(os.environ.get("HOURMARK_SEED", str(random.randrange(1 << 32))))

_NAMES = [name for name, weight in WEIGHTS.items() for _ in range(2 * weight)] + 2 * list(LOSSES)
_KIND = st.sampled_from(_NAMES)
HISTORY = st.lists(st.tuples(_KIND, st.integers(0, NUMBERS - 1)), min_size=30, max_size=120)


@pytest.mark.timeout(SECONDS_MAX)
def test_every_history_keeps_the_promise(ledgers: Path, template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: collections.Counter[str] = collections.Counter()
    began = time.monotonic()

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=HISTORIES,
        deadline=None,
        database=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(HISTORY)
    def holds(history: History) -> None:
        world: World = play(history, ledgers, template)
        seen.update(world.seen)
        seen["histories"] += 1

    with capsys.disabled():
        print(f"\nhistories of seed {SEED} (HOURMARK_SEED repeats them)")
    holds()
    with capsys.disabled():
        print(f"{seen['histories']} histories, {60 * seen['histories'] / (time.monotonic() - began):.0f} a minute")
        print("\n".join(f"{count:9} {what}" for what, count in sorted(seen.items())))
    if HISTORIES < 100:
        return  # somebody looks at a few
    for kind in ("proved", "timed_out", "forced"):
        assert seen[f"buckets {kind}"] > 0, f"no history closed an hour as {kind}: they cover too little"
    for kind in (
        "late events",
        "duplicates removed",
        "closer killed",
        "closer woken",
        "staged in the middle of a step",
        "staged again",
        "cleaned",
    ):
        assert seen[kind] > 0, f"{kind}: never, so the histories cover too little"
