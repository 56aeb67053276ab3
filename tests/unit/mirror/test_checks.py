"""What is remembered between two checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hourmark.alarm import Alarm, AlarmName
from hourmark.errors import UsageError
from hourmark.kafka import Partition
from hourmark_mirror.checks import Check, Checks


def test_checks_are_read_back(tmp_path: Path) -> None:
    checks = Checks(tmp_path, "cluster-1")
    checks.topics["events.a"] = Check("id-1", {0: 5, 1: 7})
    checks.save()
    again = Checks(tmp_path, "cluster-1")
    assert again.ids == {"events.a": "id-1"}
    assert again.positions == {Partition("events.a", 0): 5, Partition("events.a", 1): 7}


def test_what_was_known_of_an_edge_is_kept_when_it_is_formatted_anew(tmp_path: Path) -> None:
    checks = Checks(tmp_path, "cluster-1")
    checks.topics["events.a"] = Check("id-1", {0: 5})
    checks.save()
    assert Checks(tmp_path, "cluster-2").ids == {"events.a": "id-1"}, "its topics have other ids: they were recreated"


def test_an_alarm_is_kept_as_it_was_first_told_and_told_as_it_is_now(tmp_path: Path) -> None:
    def alarm(text: str) -> Alarm:
        return Alarm(AlarmName.CONTENTS_DIFFER, "events.a-0", text, "events.a")

    checks = Checks(tmp_path, "cluster-1")
    assert checks.raised([alarm("3 missing")]) == [alarm("3 missing")]
    assert checks.raised([alarm("1 missing")]) == [alarm("1 missing")]
    checks.save()
    assert Checks(tmp_path, "cluster-1").raised([]) == [alarm("3 missing")]


def test_what_an_earlier_version_remembered_is_read(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    old = '{"edge_cluster_id": "c", "topics": {"events.a": {"topic_id": "id-1", "positions": {"0": 5}}}, "format": 1}'
    (tmp_path / "state" / "checks.json").write_text(old)
    checks = Checks(tmp_path, "c")
    assert (checks.positions, checks.alarms, checks.accepted) == ({Partition("events.a", 0): 5}, [], set())


def test_damage_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checks.json").write_text("{")
    with pytest.raises(UsageError, match=r"checks\.json is damaged"):
        Checks(tmp_path, "cluster-1")
