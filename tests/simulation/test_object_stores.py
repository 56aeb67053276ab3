"""Histories on an object store, where a selection and copies publish a bucket: closers are killed
and paused between any two of its steps.

What could go wrong with selections alone is planted, and must be found.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.simulation.histories import LOSSES, WEIGHTS, play, random_history
from tests.support.simulator.objects import SimulatedObjects
from tests.support.simulator.truth import Broken

from hourmark.errors import HourmarkError
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.selections import SelectedHour
from hourmark_etl.closing.publication.port import PreparedBucket
from hourmark_etl.closing.publication.selection import SelectPublication
from hourmark_etl.storage import AlreadyExists, ObjectStorage

HISTORIES: Final = 4
HISTORIES_MAX: Final = 60
# Many moments at which a closer ends or waits in the middle of a publication.
INTERRUPTED: Final = {**WEIGHTS, "kill_at": 20, "pause": 16, "wake": 8, "close_step": 12}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "histories",
    [
        1,
        pytest.param(HISTORIES, marks=pytest.mark.slow),
        pytest.param(HISTORIES_MAX, marks=pytest.mark.long),
    ],
)
def test_every_history_on_an_object_store_keeps_the_promise(
    ledgers: Path, template: Path, histories: int
) -> None:
    seen = collections.Counter[str]()
    for seed in range(histories):
        weights = INTERRUPTED if seed % 2 else {**WEIGHTS, **LOSSES}
        storage = SimulatedObjects()
        seen += play(random_history(seed, weights), ledgers, template, storage=storage).seen
    if histories >= HISTORIES_MAX:
        assert seen["closer killed"] and seen["older copy refused"] and seen["ledger lost"], seen


def overwrites_selections(patch: pytest.MonkeyPatch) -> None:
    """The store ignores the condition of a put."""
    real = ObjectStorage.write_new

    def write(self: ObjectStorage, path: str, content: bytes, *, unpublished: bool = False) -> None:
        try:
            real(self, path, content, unpublished=unpublished)
        except AlreadyExists:
            self.client.delete([path])
            real(self, path, content, unpublished=unpublished)

    patch.setattr(ObjectStorage, "write_new", write)


def publishes_its_own(patch: pytest.MonkeyPatch) -> None:
    """A closer that was not selected copies its files nevertheless."""

    def select(self: SelectPublication, prepared: PreparedBucket) -> Manifest:
        hour = SelectedHour(prepared.frontier.event_type, prepared.frontier.hour)
        folder = hour.hour.bucket_path(hour.event_type)
        for name, path in prepared.sources.items():
            self.storage.copy_file(path, f"{folder}/{name}")
        self.storage.client.delete([f"{folder}/_SUCCESS"])
        self.storage.write_new(f"{folder}/_SUCCESS", prepared.manifest.encode())
        return prepared.manifest

    patch.setattr(SelectPublication, "_select", select)
    patch.setattr(SelectPublication, "find", lambda self, frontier: None)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", [overwrites_selections, publishes_its_own])
def test_what_is_planted_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    ledgers: Path,
    template: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    for seed in range(HISTORIES_MAX):
        try:
            play(random_history(seed, INTERRUPTED), ledgers, template, storage=SimulatedObjects())
        except (Broken, HourmarkError):
            return
    pytest.fail("no history found it")
