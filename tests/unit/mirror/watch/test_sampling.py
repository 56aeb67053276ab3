"""Windows of both sides, compared: what is altered, doubled, missing or foreign in one is seen;
what is right never is.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.mirror.watch.test_judging import WELL, A, Looks, P

from hourmark.kafka.clients import Partition
from hourmark.process.alarms import AlarmName
from hourmark_mirror.record_digests import RecordDigest, content_digest
from hourmark_mirror.watch import sampling
from hourmark_mirror.watch.alarms import (
    AlarmLimits,
    UnverifiedReason,
    evaluate_alarms,
    unsampled_ranges,
    unverified_topics,
    verified_topics,
)
from hourmark_mirror.watch.observation import SampleResult, UnsampledRange, WatchState
from hourmark_mirror.watch.sampling import BEFORE_MAX, RecordSampler, first_difference


def records(contents: str, first: int = 0) -> list[RecordDigest]:
    return [
        RecordDigest(first + i, 1000, None, content_digest(None, c.encode()))
        for i, c in enumerate(contents)
    ]


def test_a_window_that_is_there_in_its_order_is_right_wherever_it_begins_and_whatever_follows() -> (
    None
):
    assert first_difference(records("cde"), records("abcdefg")) is None
    assert first_difference(records("aab"), records("aaab")) is None, "equal ones before it"


def test_what_is_wrong_is_named_by_the_first_offset_that_is_not_in_its_place() -> None:
    edge = records("cdef", first=100)
    assert first_difference(edge, records("abcdf")) == 102, "missing"
    assert first_difference(edge, records("abcddef")) == 102, "doubled"
    assert first_difference(edge, records("abcdXf")) == 102, "altered"
    assert first_difference(edge, records("abcXdef")) == 101, "foreign"
    assert first_difference(edge, records("abdef")) == 100, "its first is missing"
    assert first_difference(edge, records("abcd")) == 102, "the end is missing"
    assert first_difference(edge, []) == 100


@given(
    st.text("abc", max_size=8), st.text("abc", min_size=1, max_size=6), st.text("abc", max_size=8)
)
def test_a_right_target_is_never_called_wrong(before: str, window: str, after: str) -> None:
    assert first_difference(records(window), records(before + window + after)) is None


@given(st.text("abc", min_size=1, max_size=6), st.text("abc", max_size=10))
def test_a_target_without_the_window_is_never_called_right(window: str, target: str) -> None:
    assert (first_difference(records(window), records(target)) is None) == (window in target)


def test_stretches_follow_each_other_from_the_first_look_on() -> None:
    looks = Looks()
    assert unsampled_ranges(WELL, WatchState()) == {}, "what was there before is verify's"
    looks.observe(ends={P: 300}, positions={P: 250})
    assert unsampled_ranges(looks.now, looks.memory) == {P: UnsampledRange(100, 250)}
    sample = SampleResult(UnsampledRange(100, 250), 40, looks.now.now_ms - 5000, None)
    assert looks.observe(samples={P: sample}) == []
    assert unsampled_ranges(looks.now, looks.memory) == {}
    (through,) = verified_topics(looks.now, looks.memory).values()
    assert through == (sample.through_ms, 40, 150), "50 are not copied yet"
    looks.observe(
        positions={P: 300},
        samples={P: SampleResult(UnsampledRange(250, 300), 40, looks.now.now_ms, None)},
    )
    assert verified_topics(looks.now, looks.memory)[A] == (looks.now.now_ms, 80, 200), (
        "all that there is"
    )


def test_a_sample_that_differs_is_an_alarm_that_stands_and_its_topic_is_not_verified() -> None:
    looks = Looks()
    looks.observe(ends={P: 300}, positions={P: 300})
    (alarm,) = looks.observe(
        samples={P: SampleResult(UnsampledRange(100, 300), 40, looks.now.now_ms, 222)}
    )
    assert alarm.name == AlarmName.CONTENTS_DIFFER and "edge offset 222" in alarm.seen
    assert [a.name for a in looks.observe(samples={})] == [AlarmName.CONTENTS_DIFFER]
    assert verified_topics(looks.now, looks.memory) == {}
    assert unverified_topics(looks.now, looks.memory) == {A: UnverifiedReason.LOSS}


def test_nothing_is_verified_of_a_backlog_that_was_there_before_the_first_look_until_some_of_it_was_compared() -> (
    None
):
    """A mirror days behind, or one that is dead: it would be `verified through now`."""
    behind = dataclasses.replace(WELL, positions={P: 60})
    found = evaluate_alarms(behind, WatchState(), AlarmLimits(24.0, {}))
    assert (found.verified, found.unverified) == ({}, {A: UnverifiedReason.NOT_COMPARED})
    later = dataclasses.replace(behind, now_ms=behind.now_ms + 10_000)
    found = evaluate_alarms(later, found.state, AlarmLimits(24.0, {}))
    assert (found.verified, found.unverified) == ({}, {A: UnverifiedReason.NOT_COMPARED}), (
        "it stands still"
    )
    old_ms = behind.now_ms - 72 * 3_600_000
    copied = dataclasses.replace(
        later,
        positions={P: 80},
        samples={P: SampleResult(UnsampledRange(60, 80), 20, old_ms, None)},
    )
    found = evaluate_alarms(copied, found.state, AlarmLimits(24.0, {}))
    assert (found.verified, found.unverified) == ({A: (old_ms, 20, 20)}, {}), (
        "it is verified through what was compared"
    )


def test_where_no_record_came_since_the_first_look_nothing_is_verified_and_it_holds_no_other_partition_back() -> (
    None
):
    looks, q = Looks(), Partition(A, 1)
    assert unverified_topics(looks.now, looks.memory) == {A: UnverifiedReason.NOTHING_NEW}
    assert verified_topics(looks.now, looks.memory) == {}
    looks.observe(ends={P: 100, q: 50}, positions={P: 100, q: 50}, starts={P: 0, q: 0})
    looks.observe(
        ends={P: 100, q: 70},
        positions={P: 100, q: 70},
        samples={q: SampleResult(UnsampledRange(50, 70), 20, looks.now.now_ms, None)},
    )
    assert verified_topics(looks.now, looks.memory) == {A: (looks.now.now_ms, 20, 20)}


def test_a_topic_without_a_remote_topic_is_not_verified() -> None:
    looks = Looks()
    looks.observe(
        ends={P: 300},
        positions={P: 300},
        samples={P: SampleResult(UnsampledRange(100, 300), 40, looks.now.now_ms, None)},
    )
    assert verified_topics(looks.now, looks.memory) != {}
    looks.observe(remote_ids={}, remote_starts={}, remote_ends={}, samples={})
    assert verified_topics(looks.now, looks.memory) == {}
    assert unverified_topics(looks.now, looks.memory) == {A: UnverifiedReason.NO_REMOTE}


def test_a_record_that_is_stamped_ahead_verifies_nothing_through_a_time_to_come() -> None:
    looks = Looks()
    ahead_ms = looks.now.now_ms + 3_600_000
    looks.observe(
        ends={P: 300},
        positions={P: 200},
        samples={P: SampleResult(UnsampledRange(100, 200), 40, ahead_ms, None)},
    )
    sampled_ms = looks.now.now_ms
    looks.observe(samples={})
    assert verified_topics(looks.now, looks.memory)[A].through_ms == sampled_ms < looks.now.now_ms


@dataclasses.dataclass(frozen=True)
class Message:
    """A record of `Log`, as librdkafka gives it."""

    at: int
    stamp_ms: int

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.stamp_ms

    def key(self) -> bytes:
        return b"%d" % self.at

    value = key


class Log:
    """One topic-partition: a cluster, and its own reader."""

    def __init__(self, stamps_ms: Sequence[int]) -> None:
        self.records = [Message(at, stamp_ms) for at, stamp_ms in enumerate(stamps_ms)]

    def starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Sequence[Partition], *, committed: bool) -> dict[Partition, int]:
        return dict.fromkeys(partitions, len(self.records))

    def at_time(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, int]:
        first = next((r.at for r in self.records if r.stamp_ms >= time_ms), len(self.records))
        return dict.fromkeys(partitions, first)

    def read(self, spans: Mapping[Partition, tuple[int, int]]) -> Iterator[list[Any]]:
        for p, (start, end) in spans.items():
            yield [SimpleNamespace(partition=p, records=self.records[start:end])]

    def close(self) -> None:
        pass


def test_what_lies_too_far_behind_a_record_stamped_ahead_is_no_sample_until_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One service's clock is an hour ahead: the target would be asked for 5,000 records and more,
    so nothing is compared.
    """
    count = BEFORE_MAX + 1000
    stamps_ms = [1_800_000_000_000 + at * 10 for at in range(count)]
    stamps_ms[0] += 3_600_000
    log = Log(stamps_ms)
    monkeypatch.setattr(sampling, "open_reader", lambda cluster, _max_bytes: cluster)
    sites: Any = SimpleNamespace(edge=log, central=log)
    sampler = RecordSampler(sites, 1000, random.Random(1))
    assert sampler.sample({P: UnsampledRange(count - 500, count)}, {P: P}) == {}
    early = sampler.sample({P: UnsampledRange(100, 600)}, {P: P})[P]
    assert (early.covered, early.differs) == (UnsampledRange(100, 600), None)
    assert early.compared > 0
