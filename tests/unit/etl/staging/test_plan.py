"""The planner: whatever the backlogs, everybody gets a share, limits hold, nothing is planned
twice.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import position

from hourmark.kafka.clients import Partition
from hourmark_etl.staging.plan import (
    TASK_RECORDS_MIN,
    PlannedBatch,
    ReadSpan,
    assign_to_tasks,
    plan_spans,
)

backlogs = st.dictionaries(
    st.tuples(st.sampled_from("abcdefg"), st.integers(0, 3)),
    st.tuples(st.integers(0, 50), st.integers(0, 60_000)),
    max_size=20,
)
Backlogs = dict[tuple[str, int], tuple[int, int]]


def planned(drawn: Backlogs, records_max: int = 10**9, bytes_max: int = 1 << 30) -> list[ReadSpan]:
    starts = [
        position(start, topic, partition=number) for (topic, number), (start, _) in drawn.items()
    ]
    ends = {Partition(*of): start + backlog for of, (start, backlog) in drawn.items()}
    return plan_spans(starts, ends, records_max=records_max, type_bytes_max=bytes_max)


@given(backlogs, st.integers(1, 200_000), st.integers(1, 1 << 30))
def test_shares_are_fair_within_the_limit_and_begin_at_the_positions(
    drawn: Backlogs, records_max: int, bytes_max: int
) -> None:
    spans = planned(drawn, records_max, bytes_max)
    behind = {key: backlog for key, (_, backlog) in drawn.items() if backlog}
    assert {(s.span.topic, s.span.partition) for s in spans} == set(behind)
    assert len(spans) == len(behind)
    assert all(
        s.span.start == drawn[s.span.topic, s.span.partition][0] and s.bytes_max >= 1 for s in spans
    )
    assert sum(s.records for s in spans) <= max(records_max, len(behind))
    cut = [s for s in spans if s.records < behind[s.span.topic, s.span.partition]]
    assert all(1 <= s.records <= behind[s.span.topic, s.span.partition] for s in spans)
    if cut:  # whoever was cut got as much as anybody, but for the rounding
        assert min(s.records for s in cut) >= max(s.records for s in spans) - 1
        assert sum(s.records for s in spans) >= min(records_max, sum(behind.values()))
    for topic in {s.span.topic for s in spans}:
        own = [s.bytes_max for s in spans if s.span.topic == topic]
        assert sum(own) <= bytes_max + len(own)


def test_a_small_type_beside_a_giant_backlog_is_staged_whole_at_once() -> None:
    drawn = {("giant", n): (0, 10**9) for n in range(8)} | {("small", 0): (5, 1_000)}
    spans = planned(drawn, 1_000_000)
    (small,) = [s for s in spans if s.span.topic == "small"]
    assert (small.span.start, small.span.end) == (5, 1_005)


@given(backlogs, st.integers(1, 8))
def test_every_span_goes_to_one_task_and_tasks_are_balanced(
    drawn: Backlogs, tasks_max: int
) -> None:
    spans = planned(drawn)
    tasks = assign_to_tasks(spans, tasks_max)
    assert sorted((s.span.topic, s.span.partition) for task in tasks for s in task) == sorted(
        (s.span.topic, s.span.partition) for s in spans
    )
    assert len(tasks) <= tasks_max and all(tasks)
    total, largest = sum(s.records for s in spans), max((s.records for s in spans), default=0)
    if tasks:
        share = -(-total // min(tasks_max, -(-total // TASK_RECORDS_MIN)))
        assert max(sum(s.records for s in task) for task in tasks) <= share + max(largest, share)
    if total <= TASK_RECORDS_MIN:
        assert len(tasks) <= 1


def test_partitions_of_a_topic_stay_together_where_balance_allows() -> None:
    drawn = {(topic, n): (0, 10_000) for topic in "abcd" for n in range(3)}
    spans = planned(drawn)
    for task in assign_to_tasks(spans, 4):
        assert len({s.span.topic for s in task}) == 1
    alone = {("a", n): (0, 10_000) for n in range(4)}
    assert [len(t) for t in assign_to_tasks(planned(alone, bytes_max=1), 2)] == [2, 2]


@given(backlogs, st.integers(1, 8))
def test_a_plan_travels_as_json(drawn: Backlogs, tasks_max: int) -> None:
    spans = planned(drawn, 10**6, 1 << 20)
    batch = PlannedBatch("_staging/one", assign_to_tasks(spans, tasks_max))
    assert PlannedBatch.from_json(json.loads(json.dumps(batch.to_json()))) == batch
