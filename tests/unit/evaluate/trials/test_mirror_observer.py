"""What the mirror claims, against what the target holds: a false claim is seen once and for all."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.evaluations import GOOD_TRIAL

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Offset, Partition
from hourmark.kafka.committed_reader import CommittedReader, MessageRun
from hourmark.kafka.partitions_reader import RecordRun
from hourmark_evaluate.clients.mirror_observer import PositionChecker, merge_sample
from hourmark_evaluate.clients.readers import IncrementalReader
from hourmark_evaluate.record_format import RUN_BYTES, RecordFormat
from hourmark_evaluate.results import MirrorPositionResult
from hourmark_evaluate.verdicts import find_property_faults as found_in

NONE = MirrorPositionResult(samples=0, false_records=0, waiting_max=0, early_max=0)
A, B = Partition("edge.a", 0), Partition("edge.a", 1)


def test_a_claim_beyond_what_is_held_is_false_however_much_more_another_partition_holds() -> None:
    found = merge_sample(NONE, {A: 10, B: 5}, {A: 7, B: 100}, 3)
    assert (found.samples, found.false_records, found.waiting_max) == (1, 3, 3)
    later = merge_sample(found, {A: 10, B: 5}, {A: 10, B: 100}, 0)
    assert (later.samples, later.false_records, later.waiting_max) == (2, 3, 3), (
        "once false stays told"
    )


def test_a_claim_of_what_was_never_seen_on_the_target_is_false() -> None:
    assert merge_sample(NONE, {A: 4}, {}, 4).false_records == 4


def test_who_claims_nothing_was_not_asked() -> None:
    assert merge_sample(NONE, {}, {A: 4}, 0).samples == 0


def test_a_claim_is_told_once_the_transactions_are_over_that_were_under_way_when_it_was_made() -> (
    None
):
    account, held = PositionChecker(), {A: 4}
    account.add_sample(7.0, {A: 10}, {A: 12}, held, 3)
    account.evaluate_completed(7.0, {A: 5}, lambda _: held)
    early = dataclasses.replace(NONE, early_max=6)
    assert account.result == early, "a marker is on its way"
    held[A] = 10
    account.evaluate_completed(7.5, {A: 11}, lambda _: held)
    assert account.result == dataclasses.replace(early, early_s=0.5), (
        "all that was claimed is given"
    )
    account.evaluate_completed(97.0, {A: 12}, lambda _: held)
    assert account.result == dataclasses.replace(early, early_s=0.5, samples=1, waiting_max=3)


def test_what_came_after_a_claim_makes_it_no_truer() -> None:
    account, offsets = PositionChecker(), [0, 1, 2, 3, 20, 21, 22]
    account.add_sample(0.0, {A: 6}, {A: 12}, {}, 0)
    account.evaluate_completed(
        1.0, {A: 30}, lambda ends: {A: sum(offset < ends[A] for offset in offsets)}
    )
    assert account.result.false_records == 2


def test_of_transactions_that_never_end_nothing_is_there() -> None:
    account = PositionChecker()
    account.add_sample(0.0, {A: 10}, {A: 12}, {A: 4}, 0)
    account.evaluate_completed(1.0, {A: 4}, lambda _: {A: 4})
    account.evaluate_remaining(lambda _: {A: 4})
    assert account.result.false_records == 6


def test_who_claims_long_before_readers_are_given_it_claims_falsely() -> None:
    account = PositionChecker()
    for second in range(90):
        account.add_sample(second, {A: 1000}, {A: 1001}, {A: 0}, 0)
        account.evaluate_completed(second, {A: 0}, lambda _: {A: 0})
    account.evaluate_completed(90.0, {A: 1001}, lambda _: {A: 1000})
    assert (account.result.false_records, account.result.early_max, account.result.early_s) == (
        0,
        1000,
        90.0,
    )
    (found,) = [
        f for f in found_in(dataclasses.replace(GOOD_TRIAL, claims=account.result)) if f.faults
    ]
    assert found.faults == ("records committed 90 s before readers of the target received them",)


class Log(Cluster):
    """A cluster whose partition ends where it is told."""

    def __init__(self, end: int) -> None:
        self.settings, self.name, self.end = KafkaCluster(), "central", end

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, Offset]:
        return {p: Offset(0) for p in partitions}

    def ends(
        self, partitions: Sequence[Partition], *, committed: bool = True
    ) -> dict[Partition, Offset]:
        return {p: Offset(self.end) for p in partitions}


class Record:
    """As a consumer gives it."""

    def __init__(self, offset: int, value: bytes) -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value


class Breaks(CommittedReader):
    """Gives two records at a time, and fails once, after the first two. Of `numbers`, by offset."""

    def __init__(self, record_format: RecordFormat, numbers: Sequence[int]) -> None:
        self._format, self._numbers, self._broke = record_format, numbers, False

    def read(
        self, spans: Mapping[Partition, tuple[int, int]], **_: Any
    ) -> Generator[list[MessageRun], None, None]:
        ((partition, (start, end)),) = spans.items()
        for at in range(start, end, 2):
            if at > start and not self._broke:
                self._broke = True
                raise Unavailable("the target is away")
            records: Any = [
                Record(n, self._format.encode(self._numbers[n]))
                for n in range(at, min(at + 2, end))
            ]
            yield [RecordRun(partition, records, min(at + 2, end))]

    def close(self) -> None:
        pass


def follower(numbers: Sequence[int]) -> IncrementalReader:
    record_format = RecordFormat(b"r" * RUN_BYTES, 100)
    made = IncrementalReader(Log(len(numbers)), record_format, ["edge.a"], 1)
    made._reader.close()
    made._reader = Breaks(record_format, numbers)
    return made


def test_what_was_read_before_reading_failed_is_not_read_again() -> None:
    reading = follower(range(10))
    with pytest.raises(Unavailable):
        reading.poll()
    reading.poll()
    assert reading.records_read.numbers == {("edge.a", 0): [*range(10)]}
    assert reading.count_below({A: 3}) == {A: 3}


def test_a_copy_of_a_record_is_none_more_that_is_held() -> None:
    reading = follower([0, 1, 2, 3, 0, 1])
    with pytest.raises(Unavailable):
        reading.poll()
    reading.poll()
    assert len(reading.records_read) == 6 and reading.distinct_count == 4
    assert reading.count_below({A: 6}) == {A: 4}


@given(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 100)), st.integers(0, 9))
def test_who_claims_no_more_than_is_held_claims_nothing_false(
    held: dict[Partition, int], less: int
) -> None:
    assert (
        merge_sample(NONE, {p: max(0, n - less) for p, n in held.items()}, held, 0).false_records
        == 0
    )
