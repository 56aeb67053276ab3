"""Which positions are of a topic that was there before, and what is believed to be copied once they
are forgotten.
"""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.mirror.watch.test_judging import WELL, P

from hourmark.kafka.clients import Partition, TopicInfo
from hourmark.kafka.mirror import find_gaps
from hourmark_mirror import reset
from hourmark_mirror.reset import (
    StoredPosition,
    describe_no_stale_positions,
    reset_positions,
    stale_positions,
)
from hourmark_mirror.settings.mirror_sites import MirrorSites
from hourmark_mirror.verify.verification_state import TopicCheckpoint, VerificationState
from hourmark_mirror.watch.alarms import AlarmLimits, evaluate_alarms
from hourmark_mirror.watch.observation import WatchState
from hourmark_mirror.watch.watch_state_store import WatchStateStore


def of(topic: str, partition: int, position: int, edge_end: int | None) -> StoredPosition:
    return StoredPosition(Partition(topic, partition), position, edge_end, b"")


def test_where_one_position_lies_past_the_edges_end_all_of_its_topic_are_forgotten() -> None:
    anew, outgrown = of("events.click", 0, 9, 8), of("events.click", 1, 5, 6)
    assert stale_positions(
        [anew, outgrown, of("events.view", 0, 3, 3), of("events.view", 1, 3, 400)]
    ) == [
        anew,
        outgrown,
    ]


def test_what_the_edge_does_not_tell_of_is_kept_and_said_so() -> None:
    away = of("events.click", 0, 9, None)
    assert stale_positions([away]) == []
    assert (
        str(away)
        == "events.click-0: the mirror's position is 9, the edge has no such topic-partition"
    )
    assert str(of("events.click", 0, 9, 8)).endswith("the edge ends at 8")


def test_for_a_recreated_topic_without_a_stale_position_the_next_step_is_a_comparison() -> None:
    """A running MirrorMaker 2 begins again by itself, or the new topic has outgrown the position."""
    said = describe_no_stale_positions(["events.click", "events.view"])
    assert "events.click" in said
    assert "events.view" in said
    assert "`hourmark mirror verify --topic events.click --accept`" in said
    assert "`hourmark mirror reset-offsets --topic events.click --all`" in said
    assert describe_no_stale_positions([]).startswith("nothing to do")


class Played:
    """A mirror that stood at 100 of 100, as a check and the watch saw it, of a topic that is kept
    from `start` on.
    """

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        topic_id: str = "id-1",
        start: int = 0,
    ) -> None:
        self.folder, self.forgotten = folder, False
        self.watched = evaluate_alarms(WELL, WatchState(), AlarmLimits(24.0, {})).state
        WatchStateStore(folder).save(self.watched)
        checks = VerificationState(folder, "c")
        checks.topics[P.topic] = TopicCheckpoint("id-1", {0: 100})
        checks.save()
        edge: Any = types.SimpleNamespace(
            starts=lambda partitions: dict.fromkeys(partitions, start), cluster_id=lambda: "c"
        )
        sites: Any = types.SimpleNamespace(
            topics=lambda: [TopicInfo(P.topic, topic_id, (0,))], edge=edge
        )
        monkeypatch.setattr(reset, "check_no_worker_runs", lambda _: None)
        monkeypatch.setattr(reset, "delete_positions", self.forget)
        reset_positions(
            folder,
            cast(MirrorSites, sites),
            [of(P.topic, 0, 100, 100), of("events.gone", 0, 9, None)],
        )
        assert self.forgotten

    def forget(self, *_: object) -> None:
        self.forgotten = True
        self.checked_at = VerificationState(self.folder, "c").positions

    def covered(self) -> int:
        with WatchStateStore(self.folder).locked() as memory:
            known = memory.partition_state(P)
        assert known is not None
        return known.covered


def test_what_is_copied_again_is_not_believed_to_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came to 40 when retention deleted up to 70: what was copied once, up to 100, says nothing
    of 40 to 69.
    """
    played = Played(tmp_path, monkeypatch)
    assert (played.checked_at, played.covered()) == ({P: 0}, 0), (
        "known before a position is forgotten"
    )
    assert [str(gap.partition) for gap in find_gaps(played.checked_at, {P: 70})] == ["events.a-0"]
    with WatchStateStore(tmp_path).locked() as memory:
        seen = dataclasses.replace(
            WELL, now_ms=WELL.now_ms + 1000, starts={P: 70}, positions={P: 75}
        )
        found = evaluate_alarms(seen, memory, AlarmLimits(24.0, {})).alarms
    assert ["offsets 0 to 69 may be missing" in alarm.seen for alarm in found] == [True]


def test_what_retention_had_deleted_before_is_no_hole_once_all_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, monkeypatch, start=30)
    assert (played.checked_at, played.covered()) == ({P: 30}, 30)
    assert find_gaps(played.checked_at, {P: 30}) == []


def test_of_a_topic_made_anew_it_stays_known_up_to_where_the_old_one_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, monkeypatch, topic_id="another")
    assert (played.checked_at, played.covered()) == ({P: 100}, 100)
