"""Any history of staging, orphans, takeovers, closing, crashes and retention: the rebuilt ledger
has all that open hours need.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.memory_storage import MemoryStorage

from hourmark.records.hours import Hour
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.partitions.offset_gaps import open_gaps
from hourmark_etl.model import AuditOffsets
from hourmark_etl.recovery import storage_scan
from hourmark_etl.recovery.rebuild import rebuild
from hourmark_etl.staging.files import RowSlice, read_all, read_rows
from hourmark_etl.storage import Storage

TYPES = ("click", "view")
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.sampled_from(TYPES), st.integers(0, 3)),
        st.tuples(
            st.sampled_from(["close", "publish", "recover"]), st.sampled_from(TYPES), st.just(0)
        ),
        st.tuples(st.sampled_from(["stage", "orphan"]), st.just(""), st.integers(1, 3)),
        st.tuples(st.sampled_from(["report", "take over"]), st.just(""), st.just(0)),
        st.tuples(st.just("retention"), st.just(""), st.integers(0, 3)),
    ),
    max_size=25,
)
Action = tuple[str, str, int]
Needed = Counter[tuple[str, int, bytes]]


@dataclasses.dataclass
class Played:
    life: Life

    def act(self, action: str, event_type: str, number: int) -> None:
        life = self.life
        match action:
            case (
                "produce"
            ):  # an hour from before the frontier to after it, of those that have begun
                start = life.frontier(event_type).hour.start_s + (number - 2) * LENGTH_S
                begun = Hour.containing(life.now_ms).start_s + LENGTH_S
                life.produce(event_type, Hour(min(max(start, FIRST.start_s), begun)), number + 1)
            case "close" | "publish":
                life.recover(event_type)
                life.close(event_type, in_ledger=action == "close")
            case "recover":
                life.recover(event_type)
            case "stage":
                life.stage(at_most=number)
            case "orphan":
                life.stage(commit=False, at_most=number)
            case "report":
                life.report(f"host-{number}")
            case "take over":
                life.start_driver()
            case "retention":  # of what is staged, as much as it likes
                for p in life.positions():
                    self.life.topics.log_starts[p.topic] = max(
                        p.next_offset - number, life.topics.log_starts.get(p.topic, 0)
                    )


def needed(database: Database, storage: Storage) -> tuple[Needed, Needed]:
    """What open hours need: events that stand in no bucket, and promises that are of open hours or
    not settled, each once.
    """
    groups, audits, files, frontiers = (
        tables.groups,
        tables.audit_groups,
        tables.staged_files,
        tables.frontiers,
    )
    events: set[tuple[str, int, bytes]] = set()
    promises: set[tuple[str, int, bytes]] = set()
    with database.reading() as connection:
        paths = {row.id: row.path for row in connection.execute(select(files))}
        frontier = {row.type: row for row in connection.execute(select(frontiers))}
        for g in connection.execute(select(groups)):
            if g.listed_hour is None or g.listed_hour >= frontier[g.type].hour:
                table, _ = read_rows(
                    storage, paths[g.file_id], [RowSlice(g.first_row, g.rows)], ["event_id"]
                )
                events |= {(g.type, g.hour, i) for i in table.column("event_id").to_pylist()}
        for path in {paths[a.file_id] for a in connection.execute(select(audits))}:
            for row in read_all(storage, path, ["type", "hour", "offset"]).to_pylist():
                if (
                    row["hour"] >= frontier[row["type"]].hour
                    or row["offset"] >= frontier[row["type"]].settled_next
                ):
                    promises.add((row["type"], row["hour"], row["offset"].to_bytes(8, "big")))
    return Counter(events), Counter(promises)


@dataclasses.dataclass(frozen=True)
class Compared:
    missing: Needed
    missing_promises: Needed
    held: bool
    frontiers_differ: bool


def compared(actions: list[Action], folder: str) -> Compared:
    """The lost ledger beside the rebuilt one, once both have staged all there is."""
    storage = MemoryStorage()
    played = Played(Life(storage, f"sqlite:///{folder}/lost.sqlite", TYPES))
    life = played.life
    for action in actions:
        played.act(*action)
    for event_type in TYPES:
        life.recover(event_type)
    life.stage()
    events, promises = needed(life.database, storage)
    frontiers = [life.frontier(t) for t in TYPES]
    with contextlib.closing(Database(f"sqlite:///{folder}/new.sqlite")) as target:
        rebuild(life.outside(), target, lambda _: None)
        life.go_on_with(target)
        life.stage()
        found, promised = needed(target, storage)
        differ = [(f.hour, f.settled_next) for f in frontiers] != [
            (life.frontier(t).hour, life.frontier(t).settled_next) for t in TYPES
        ]
        result = Compared(events - found, promises - promised, bool(open_gaps(target)), differ)
    storage.forget()
    return result


@pytest.mark.parametrize(
    "histories",
    [pytest.param(10, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.long)],
)
def test_nothing_that_an_open_hour_needs_is_missing(
    histories: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @given(actions=ACTIONS)
    @settings(max_examples=histories, deadline=None)
    def holds(actions: list[Action]) -> None:
        assert compared(actions, str(tmp_path_factory.mktemp("life"))) == Compared(
            Counter(), Counter(), False, False
        )

    holds()


PRODUCE, STAGE, CLOSE = ("produce", "click", 2), ("stage", "", 3), ("close", "click", 0)
NEXT = ("produce", "click", 3)
FAULTS = {
    "takes a marker's offset for all below it": [PRODUCE, NEXT, STAGE, STAGE, CLOSE],
    "lists no staged file": [PRODUCE, STAGE, ("retention", "", 0)],
    "looks for no promise": [PRODUCE, STAGE, ("retention", "", 0)],
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert compared(FAULTS[fault], str(tmp_path)) == Compared(Counter(), Counter(), False, False)
    (tmp_path / "again").mkdir()
    match fault:
        case "takes a marker's offset for all below it":
            monkeypatch.setattr(storage_scan, "EARLIEST_MS", -(1 << 60))
        case "lists no staged file":
            monkeypatch.setattr("hourmark_etl.recovery.rebuilt_offsets.read_notes", lambda *_: ())
        case "looks for no promise":
            monkeypatch.setattr("hourmark_etl.recovery.rebuilt_offsets.read_notes", lambda *_: ())
            monkeypatch.setattr(
                "hourmark_etl.recovery.rebuild._Rebuild._first_needed_promise",
                lambda _: AuditOffsets.from_offsets(1 << 60),
            )
    found = compared(FAULTS[fault], str(tmp_path / "again"))
    assert found.missing or found.missing_promises
    assert found.held == (fault == "lists no staged file"), (
        "where promises are looked for, a gap is told of"
    )
