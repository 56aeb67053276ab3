"""From batch files and markers alone: the very batches that a ledger committed, and the bucket of each group."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.ledger import history as module
from etl.ledger.history import ClosedHour, Gap, Key, Moves, bucket_of, history

A: Key = ("a", 0)
B: Key = ("b", 0)


def moves(number: int, start: int, end: int, key: Key = A) -> Moves:
    return Moves(f"batch-{number}", (1, number), {key: start}, {key: end})


@dataclasses.dataclass
class LostLedger:
    """A ledger that keeps what a rebuild must find, and the files that it can look at."""

    positions: dict[Key, int] = dataclasses.field(default_factory=lambda: {A: 0, B: 0})
    epoch: int = 1
    sequence: int = 0
    committed: list[str] = dataclasses.field(default_factory=list)
    files: list[Moves] = dataclasses.field(default_factory=list)
    marked: dict[Key, list[int]] = dataclasses.field(default_factory=lambda: {A: [], B: []})
    listed: dict[str, int] = dataclasses.field(default_factory=dict)  # batch → bucket, counted from 0
    closed: list[ClosedHour] = dataclasses.field(default_factory=list)

    def batch(self, steps: tuple[int, int], *, commit: bool) -> None:
        ends = {key: self.positions[key] + step for key, step in zip((A, B), steps, strict=True)}
        self.sequence += 1
        planned = Moves(f"batch-{self.epoch}-{self.sequence}", (self.epoch, self.sequence), dict(self.positions), ends)
        self.files.append(planned)
        if commit:
            self.positions = ends
            self.committed.append(planned.folder)

    def take_over(self) -> None:
        self.epoch, self.sequence = self.epoch + 3, 0

    def close(self) -> None:
        for key, offset in self.positions.items():
            self.marked[key].append(offset)
        hour = len(self.closed)
        self.closed.append(ClosedHour(hour, dict(self.positions)))
        for folder in self.committed:
            self.listed.setdefault(folder, hour)

    def clean(self) -> None:
        """Batches of closed buckets may go, the oldest first."""
        for file in [f for f in self.files if f.folder in self.listed][:1]:
            self.files.remove(file)


STEPS = st.tuples(st.integers(0, 3), st.integers(0, 3))
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), STEPS),
        st.tuples(st.just("orphan"), STEPS),
        st.tuples(st.sampled_from(["take over", "close", "clean"]), st.none()),
    ),
    max_size=30,
)


def lived(actions: list[tuple[str, tuple[int, int] | None]]) -> LostLedger:
    ledger = LostLedger()
    for action, steps in actions:
        match action:
            case "batch" | "orphan":
                assert steps is not None
                ledger.batch(steps, commit=action == "batch")
            case "take over":
                ledger.take_over()
            case "close":
                ledger.close()
            case "clean":
                ledger.clean()
    return ledger


def agrees(ledger: LostLedger) -> bool:
    """Whether the rebuild finds what the ledger had.

    It may take more only where that is whole and harmless: an orphan that no later batch contradicts, because it is the last, or
    because its successor was deleted; then all of it stands in buckets.
    """
    found = history(ledger.files, ledger.marked)
    kept = {f.folder: f for f in ledger.files}
    wanted = [folder for folder in ledger.committed if folder in kept]
    positions = dict(ledger.positions)
    for extra in (kept[folder] for folder in found.committed if folder not in wanted):
        for key in extra.moved:
            if extra.starts[key] == ledger.positions[key]:  # nothing was committed after it
                positions[key] = extra.ends[key]
            elif extra.ends[key] > max(ledger.marked[key], default=0):
                return False
    return [f for f in found.committed if f in wanted] == wanted and all(
        found.positions.get(key, 0) == offset for key, offset in positions.items()
    )


@given(ACTIONS)
def test_the_committed_batches_and_positions_are_found_again(actions: list[tuple[str, tuple[int, int] | None]]) -> None:
    assert agrees(lived(actions))


@given(ACTIONS)
def test_every_group_is_found_in_the_bucket_that_listed_it(actions: list[tuple[str, tuple[int, int] | None]]) -> None:
    ledger = lived(actions)
    for file in ledger.files:
        if file.folder in ledger.committed and file.moved:
            ends = {key: file.ends[key] for key in file.moved}
            assert bucket_of(0, ends, ledger.closed) == ledger.listed.get(file.folder)


@given(ACTIONS)
def test_gaps_are_offsets_whose_batches_were_deleted(actions: list[tuple[str, tuple[int, int] | None]]) -> None:
    ledger = lived(actions)
    for gap in history(ledger.files, {}).gaps:
        assert gap.start < gap.end
        committed = [f for f in ledger.files if f.folder in ledger.committed]
        covered = {(key, offset) for f in committed for key in f.moved for offset in range(f.starts[key], f.ends[key])}
        assert not covered & {(gap.key, offset) for offset in range(gap.start, gap.end)}
    assert history(ledger.files, ledger.marked).gaps == ()


@pytest.mark.parametrize("fault", ["_AGAIN", "_WITHIN"])
def test_a_rule_that_is_left_out_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(batch: Moves, *known: object) -> str:
        why = real(batch, *known)  # type: ignore[arg-type]
        return "" if why == getattr(module, fault) else why

    real = module._never_committed
    monkeypatch.setattr(module, "_never_committed", without)
    ledger = LostLedger()
    ledger.batch((10, 0), commit=False)
    ledger.batch((5 if fault == "_WITHIN" else 12, 0), commit=True)
    if fault == "_WITHIN":
        ledger.close()
        ledger.files.pop()  # cleaned: only the marker tells
    assert not agrees(ledger)


def test_of_two_batches_that_begin_at_one_offset_the_later_one_counts() -> None:
    found = history([moves(1, 0, 10), moves(2, 0, 5), moves(3, 5, 6)], {})
    assert found.committed == ("batch-2", "batch-3")
    assert found.given_up == {"batch-1": "the ledger stood within it"}
    assert found.positions == {A: 6}
    assert history([moves(1, 0, 5), moves(2, 0, 5)], {}).given_up == {"batch-1": "a later batch begins where it does"}


def test_shards_that_hand_a_partition_over_need_no_common_order() -> None:
    first, second, third = moves(9, 0, 4), moves(1, 4, 7), moves(10, 7, 9)  # to a shard with an older lease, and back
    assert set(history([first, second, third], {}).committed) == {"batch-9", "batch-1", "batch-10"}


def test_a_batch_with_a_marker_within_it_was_never_committed() -> None:
    found = history([moves(1, 0, 10)], {A: [4]})
    assert (found.committed, found.positions) == ((), {A: 4})


def test_a_deleted_batch_leaves_a_gap_unless_a_bucket_covers_it() -> None:
    batches = [moves(1, 3, 5), moves(4, 8, 9)]
    assert history(batches, {}).gaps == (Gap(A, 0, 3), Gap(A, 5, 8))
    assert history(batches, {A: [3, 8]}).gaps == ()
    assert history(batches, {A: [12]}).positions == {A: 12}


def test_a_late_group_is_in_the_first_bucket_past_it_and_an_early_one_waits() -> None:
    closed = [ClosedHour(10, {A: 5}), ClosedHour(20, {A: 9}), ClosedHour(30, {A: 9, B: 2})]
    assert bucket_of(10, {A: 5}, closed) == 10
    assert bucket_of(10, {A: 6}, closed) == 20
    assert bucket_of(30, {A: 5}, closed) == 30
    assert bucket_of(0, {A: 9, B: 1}, closed) == 30
    assert bucket_of(10, {A: 10}, closed) is None
    assert bucket_of(40, {A: 1}, closed) is None
