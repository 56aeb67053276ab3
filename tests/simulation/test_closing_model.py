"""The rule of closing as a model: it holds over random histories, and every fault planted in it is
found.
"""

from __future__ import annotations

import collections

import pytest
from tests.simulation.model.closing_model import BREAKS, history
from tests.simulation.model.parts import Broken

pytestmark = pytest.mark.slow

HISTORIES = 300
# Where the search begins: not every history shows a fault.
SEEDS = {
    "mirror-gap": 12,
    "cut-by-time": 75,
    "count-only": 6,
    "no-proof": 6,
    "unknown-is-a-number": 62,
    "written-not-counted": 49,
    "reseal-loses": 85,
    "index-trusted": 83,
    "older-copy-accepted": 32,
    "copy-of-replaced-ledger": 6,
    "rebuild-covers-below-marker": 11,
    "unaudited-forgotten": 128,
    "needed-by-the-cut's-begin": 291,
    "no-margin-ahead": 33,
    "orphans-swept": 146,
    "promises-cleaned-early": 46,
    "back-fill-reopens": 10,
    "skip-unlooked": 10,
}


def test_every_history_of_the_model_keeps_the_promise() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(HISTORIES):
        try:
            seen += history(seed)
        except Broken as error:
            pytest.fail(f"python tests/simulation/model/closing_model.py --seed {seed} -v: {error}")
    for what in (
        "buckets proved",
        "buckets timed_out",
        "buckets forced",
        "late events",
        "proved by join",
        "rebuilt",
        "older copy restored",
        "promises lost",
        "staged again from the log",
        "a sealed hour misses a file",
        "retention overtook staging",
        "named: rows",
        "named: promises",
        "back-fill begins at an older hour",
        "empty hours skipped",
    ):
        assert seen[what] > 0, f"{what}: never, so the histories cover too little"


@pytest.mark.parametrize("name", BREAKS)
def test_a_fault_planted_in_the_model_is_found(name: str) -> None:
    first = SEEDS.get(name, 0)
    for seed in range(first, first + HISTORIES):
        try:
            history(seed, name)
        except Broken:
            return
    pytest.fail(f"{name} ({BREAKS[name]}) was planted, and {HISTORIES} histories hold all the same")
