"""The mirror's positions, and what is concluded from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourmark.kafka.clients import Offset, Partition
from hourmark.kafka.mirror import (
    apply_positions,
    find_gaps,
    partitions_ahead,
    partitions_behind,
    position_keys,
    recreated_topics,
)

# As MirrorMaker 2 4.3.0 wrote them.
KEY = b'["MirrorSourceConnector",{"cluster":"edge","partition":0,"topic":"events.end-song"}]'
P = Partition("events.end-song", 0)


def test_the_position_is_one_past_the_last_record_copied() -> None:
    positions: dict[Partition, Offset] = {}
    apply_positions(positions, [(KEY, b'{"offset":3}'), (KEY, b'{"offset":497}')], "edge")
    assert positions == {P: 498}


def test_a_tombstone_and_the_reset_value_forget_the_position() -> None:
    for value in (None, b'{"offset":-1}', b"{}"):
        positions = {P: Offset(498)}
        apply_positions(positions, [(KEY, value)], "edge")
        assert positions == {}


def test_a_position_is_kept_under_the_key_that_it_was_written_with_last() -> None:
    spaced = KEY.replace(b",", b", ")
    assert position_keys(
        [(KEY, b'{"offset":3}'), (None, b""), (spaced, b'{"offset":4}')], "edge"
    ) == {P: spaced}
    assert position_keys([(KEY, b'{"offset":3}')], "other") == {}


def test_other_connectors_and_other_sites_are_not_taken_for_this_one() -> None:
    others = [
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"edge","targetClusterAlias":"central"}]',
        b'["MirrorCheckpointConnector",{"group":"g","partition":0,"topic":"events.end-song"}]',
        KEY.replace(b'"edge"', b'"other"'),
        None,
    ]
    positions: dict[Partition, Offset] = {}
    apply_positions(positions, [(key, b'{"offset":9}') for key in others], "edge")
    assert positions == {}


def test_what_is_no_position_is_passed_over_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody wrote there by hand: every reader would end at it, until it is compacted away."""
    positions: dict[Partition, Offset] = {}
    strange = [
        (b"no JSON", b'{"offset":1}'),
        (b"\xff", None),
        (KEY, b"no JSON"),
        (KEY, b"[1]"),
        (KEY, b""),
        (b"[" * 100_000, b"{}"),
    ]
    apply_positions(positions, [(KEY, b'{"offset":3}'), *strange], "edge")
    assert positions == {P: 4}
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "6 records" in caplog.text and "no JSON" in caplog.text


PARTITIONS = st.builds(
    Partition, st.sampled_from(["events.a", "events.b", "hourmark.audit"]), st.integers(0, 2)
)
OFFSETS = st.integers(0, 50)


@given(
    st.dictionaries(PARTITIONS, OFFSETS),
    st.dictionaries(PARTITIONS, OFFSETS),
    st.dictionaries(PARTITIONS, OFFSETS),
)
def test_reached_means_that_no_readable_offset_below_the_cut_is_uncopied(
    cut: dict[Partition, int], starts: dict[Partition, int], positions: dict[Partition, int]
) -> None:
    uncopied = {
        p
        for p, end in cut.items()
        if any(o >= positions.get(p, 0) for o in range(starts.get(p, 0), end))
    }
    assert {behind.partition for behind in partitions_behind(cut, starts, positions)} == uncopied


def test_an_empty_partition_has_reached_its_cut_without_a_position() -> None:
    assert partitions_behind({P: 0}, {P: 0}, {}) == []
    assert (
        partitions_behind({P: 7}, {P: 7}, {}) == []
    )  # all of it deleted by retention; `gaps` speaks of that
    assert [str(b) for b in partitions_behind({P: 7}, {P: 6}, {})] == [
        "events.end-song-0: the mirror has copied nothing, the cut is 7"
    ]


@given(st.data())
def test_a_gap_is_never_missed_and_without_retention_never_named(data: st.DataObject) -> None:
    """A small history: the mirror copies up to `previous` by the first check, then retention and
    the mirror race.
    """
    previous = data.draw(OFFSETS)
    copied_later = data.draw(st.integers(previous, 60))
    start = data.draw(OFFSETS)
    lost = start > previous and data.draw(st.booleans())  # the mirror was slower than retention
    found = find_gaps({P: previous}, {P: start})
    if lost or start > copied_later:
        assert [h.partition for h in found] == [P]
        assert (found[0].first, found[0].end) == (previous, start)
    if start <= previous:
        assert found == []


def test_a_partition_without_a_position_had_nothing_copied() -> None:
    assert find_gaps({}, {P: 0}) == []
    assert [str(h) for h in find_gaps({}, {P: 5})] == [
        "events.end-song-0: offsets 0 to 4 may be missing: the edge's log start passed "
        "the mirror's last known position"
    ]


def test_a_topic_recreated_or_deleted_is_named_and_a_new_one_is_not() -> None:
    assert recreated_topics({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9", "d": "4"}) == [
        "b",
        "c",
    ]


def test_a_position_past_the_end_is_stale() -> None:
    assert partitions_ahead({P: 10}, {P: 10}) == []
    assert partitions_ahead({P: 9}, {P: 10}) == [P]
