"""Hours, bucket paths, topic names: golden vectors, round trips, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.kafka.topic_names import (
    AUDIT,
    central_topic,
    edge_topic,
    event_type_of_topic,
    events_topic,
)
from hourmark.records.hours import Hour, hour_start_s

VECTORS = json.loads((Path(__file__).parent / "vectors" / "hours.json").read_text())
LENGTHS = st.sampled_from([60, 120, 300, 900, 3600])
TIMES = st.integers(0, 4_000_000_000_000)


@pytest.mark.parametrize("vector", VECTORS)
def test_labels_and_paths_are_the_golden_ones(vector: dict[str, Any]) -> None:
    hour = Hour.containing(vector["time_ms"], vector["length_s"])
    assert str(hour) == vector["label"]
    assert hour.bucket_path("click") == vector["path"]


@given(TIMES, LENGTHS)
def test_an_hour_holds_its_time_and_comes_back_from_its_label(time_ms: int, length_s: int) -> None:
    hour = Hour.containing(time_ms, length_s)
    assert hour.start_s * 1000 <= time_ms < hour.end_ms
    assert Hour.parse(str(hour), length_s) == hour
    assert hour.next().start_s == hour.end_s
    assert hour_start_s(time_ms, length_s) == hour.start_s


@given(st.lists(TIMES, min_size=2, max_size=50), LENGTHS)
def test_different_hours_have_different_paths(times: list[int], length_s: int) -> None:
    hours = {Hour.containing(t, length_s) for t in times}
    assert len({h.bucket_path("click") for h in hours}) == len(hours)


@pytest.mark.parametrize("length_s", [0, 1, 61, 7, 7200, 2400])
def test_other_bucket_lengths_are_refused(length_s: int) -> None:
    with pytest.raises(ValueError, match="whole minutes that divide an hour"):
        Hour(0, length_s)


@pytest.mark.parametrize(
    "label", ["2026-11-21", "2026-11-21T5", "x", "2026-13-01T00", "2026-11-21T05:07:00"]
)
def test_labels_of_another_form_are_refused(label: str) -> None:
    with pytest.raises(ValueError):  # the message is Python's own for impossible dates
        Hour.parse(label)


def test_topic_names_come_from_the_type_alone() -> None:
    assert events_topic("end-song") == "events.end-song"
    assert central_topic("events.end-song", "edge") == "edge.events.end-song"
    assert central_topic("events.end-song", None) == "events.end-song"
    assert edge_topic("edge.events.end-song", "edge") == "events.end-song"
    assert event_type_of_topic("events.end-song") == "end-song"
    assert event_type_of_topic(AUDIT) is None
    with pytest.raises(ValueError, match="not mirrored from edge"):
        edge_topic("west.events.end-song", "edge")
