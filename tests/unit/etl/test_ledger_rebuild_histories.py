"""Any history of staging, orphans, takeovers, closing, crashes and cleaning: the rebuilt ledger is the lost one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.ledger import history as rules
from etl.ledger import remains
from etl.ledger.database import Database
from etl.ledger.rebuild import rebuild
from etl.ledger.rows import StagedBatch
from hourmark.hours import Hour
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.memory_storage import MemoryStorage
from tests.unit.etl.test_ledger_rebuild import dumped

TYPES = ("click", "view")
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.sampled_from(TYPES), st.integers(0, 3)),
        st.tuples(st.sampled_from(["close", "publish", "recover"]), st.sampled_from(TYPES), st.just(0)),
        st.tuples(st.sampled_from(["stage", "orphan"]), st.just(""), st.integers(1, 3)),
        st.tuples(st.sampled_from(["report", "take over", "clean"]), st.just(""), st.just(0)),
    ),
    max_size=25,
)
Action = tuple[str, str, int]


@dataclasses.dataclass
class Played:
    life: Life
    staged: list[StagedBatch] = dataclasses.field(default_factory=list)

    def act(self, action: str, event_type: str, number: int) -> None:
        life = self.life
        match action:
            case "produce":  # an hour from before the frontier to after it
                start = life.frontier(event_type).hour.start_s + (number - 2) * LENGTH_S
                life.produce(event_type, Hour(max(start, FIRST.start_s)), number + 1)
            case "close" | "publish":
                life.recover(event_type)
                life.close(event_type, in_ledger=action == "close")
            case "recover":
                life.recover(event_type)
            case "stage":
                self.staged.append(life.stage(at_most=number))
            case "orphan":
                life.stage(commit=False, at_most=number)
            case "report":
                life.report(f"host-{number}")
            case "take over":
                life.start_driver()
            case "clean":
                self.clean()

    def clean(self) -> None:
        """The oldest batch, once nothing asks for it: as the ETL's cleaning does."""
        if len(self.staged) < 2:
            return
        oldest = self.staged[0]
        frontier = {t: self.life.frontier(t) for t in TYPES}
        listed = {(g["file_id"], g["type"], g["hour"]): g["listed_hour"] for g in dumped(self.life.database)["staged_groups"]}
        hours = [(g.event_type, listed[g.path, g.event_type, g.hour_s]) for g in oldest.groups]
        closed = all(hour is not None and hour < frontier[t].hour.start_s for t, hour in hours)
        settled = all(
            g.hour_s < frontier[g.event_type].hour.start_s and g.last_offset < frontier[g.event_type].settled_next
            for g in oldest.audit_groups
        )
        if closed and settled:
            self.life.clean(self.staged.pop(0))


@contextlib.contextmanager
def rebuilt_beside(actions: list[Action], folder: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[str]]]:
    """What the lost ledger held, what the rebuilt one holds, and the rebuild's notes."""
    storage = MemoryStorage()
    played = Played(Life(storage, f"sqlite:///{folder}/lost.sqlite", TYPES))
    for action in actions:
        played.act(*action)
    for event_type in TYPES:
        played.life.recover(event_type)
    played.life.stage()  # whatever an orphan held is staged by now
    with contextlib.closing(played.life.database), contextlib.closing(Database(f"sqlite:///{folder}/new.sqlite")) as target:
        done = rebuild(played.life.outside(), target, lambda _: None)
        yield comparable(dumped(played.life.database)), comparable(dumped(target)), done.notes
    storage.forget()


def comparable(dump: dict[str, Any]) -> dict[str, Any]:
    """Without reports: the last batches may have held nothing else, and then they are simply read again."""
    positions = [p for p in dump["positions"] if p["topic"] != "hourmark.hosts"]
    return {name: rows for name, rows in dump.items() if name != "reporters"} | {"positions": positions}


@given(actions=ACTIONS)
@settings(max_examples=25, deadline=None)
def test_the_rebuilt_ledger_is_the_lost_one(actions: list[Action], tmp_path_factory: pytest.TempPathFactory) -> None:
    with rebuilt_beside(actions, str(tmp_path_factory.mktemp("life"))) as (lost, made, notes):
        assert made == lost
        assert notes == []


PRODUCE, STAGE, CLOSE = ("produce", "click", 2), ("stage", "", 3), ("close", "click", 0)
FAULTS = {
    "the earlier of two batches": [PRODUCE, ("orphan", "", 3), ("stage", "", 1), STAGE],
    "lists by hour alone": [PRODUCE, STAGE, CLOSE, ("produce", "click", 0), STAGE],
    "settles nothing": [PRODUCE, STAGE, CLOSE],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    match fault:
        case "the earlier of two batches":
            monkeypatch.setattr(rules, "_never_committed", lambda *_: "")
        case "lists by hour alone":
            monkeypatch.setattr("etl.ledger.rebuild.bucket_of", lambda hour, _, closed: closed[0].hour_s if closed else None)
        case "settles nothing":
            monkeypatch.setattr(remains.Chain, "settled_next", 0)
    with rebuilt_beside(FAULTS[fault], str(tmp_path)) as (lost, made, _):
        assert made != lost
