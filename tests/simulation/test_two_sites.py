"""Histories of two sites that one ledger closes for: ranges and reports go to either, and each has
a mirror of its own.

What could go wrong with a second site alone is planted, and must be found.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.simulation.histories import LOSSES, WEIGHTS, first_broken, play, random_history
from tests.support.simulator.sites import FURTHER
from tests.support.simulator.world import World

from hourmark_etl.closing.cut.cut import CutTaker
from hourmark_etl.closing.engine import Engine
from hourmark_etl.model import AuditOffsets

pytestmark = pytest.mark.slow

HISTORIES: Final = 10
HISTORIES_MAX: Final = 40
# Many moments at which one site is behind the other, and nobody leaves.
APART: Final = {
    **WEIGHTS,
    **dict.fromkeys(
        ("host_leaves", "service_leaves", "all_leave", "lose_ledger", "restore", "read_otherwise"),
        0,
    ),
    "read_unrecorded": 0,
    "damage": 0,
    "no_leader": 0,
    "mirror_some": 30,
    "mirror_all": 0,
    "haste": 0,
    "second_service": 4,
}
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "histories", [HISTORIES, pytest.param(HISTORIES_MAX, marks=pytest.mark.long)]
)
def test_every_history_of_two_sites_keeps_the_promise(
    ledgers: Path, template: Path, histories: int
) -> None:
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(histories):
        world = play(random_history(seed, {**WEIGHTS, **LOSSES}), ledgers, template, FURTHER)
        seen.update(world.seen)
    for kind in ("buckets proved", "late events", "closer killed", "duplicates removed"):
        assert seen[kind] > 0, f"{kind}: never, so the histories cover too little"


def greatest_of_both(patch: pytest.MonkeyPatch) -> None:
    """One offset for all sites: the greatest of their audit topics' ends."""
    real = AuditOffsets.from_offsets

    def of(offsets: Mapping[str, int] | int) -> AuditOffsets:
        known = real(offsets)
        return (
            real({site: max(offset for _, offset in known.by_site) for site, _ in known.by_site})
            if known.by_site
            else known
        )

    patch.setattr(AuditOffsets, "from_offsets", of)


def further_not_promised(patch: pytest.MonkeyPatch) -> None:
    """Promises of the first site alone count."""
    real = CutTaker._audit_end

    def end_of(self: CutTaker, audit: str) -> int:
        return 0 if audit.startswith(FURTHER) else real(self, audit)

    patch.setattr(CutTaker, "_audit_end", end_of)


PLANTS: Mapping[str, Plant] = {
    "greatest-of-both": greatest_of_both,
    "further-not-promised": further_not_promised,
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, ledgers: Path, template: Path
) -> None:
    monkeypatch.setattr(
        World, "engine", lambda world, database: Engine(world.storage, database, world.config)
    )
    PLANTS[name](monkeypatch)
    found = first_broken(range(HISTORIES_MAX), APART, ledgers, template, FURTHER)
    assert found is not None, (
        f"{name} ({PLANTS[name].__doc__}) was planted, and {HISTORIES_MAX} histories hold "
        "all the same"
    )
    print(f"{name}: history {found[0]}: {found[1]}")


def test_the_same_histories_hold_without_a_fault(ledgers: Path, template: Path) -> None:
    assert first_broken(range(5), APART, ledgers, template, FURTHER) is None
