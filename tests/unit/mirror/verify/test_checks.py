"""What is remembered between two checks."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark.process.alarms import Alarm, AlarmName
from hourmark_mirror.state_lock import exclusive_lock
from hourmark_mirror.verify.verification_state import (
    CHECKS_FILE,
    TopicCheckpoint,
    VerificationState,
)


def test_checks_are_read_back(tmp_path: Path) -> None:
    checks = VerificationState(tmp_path, "cluster-1")
    checks.topics["events.a"] = TopicCheckpoint("id-1", {0: 5, 1: 7})
    checks.save()
    again = VerificationState(tmp_path, "cluster-1")
    assert again.ids == {"events.a": "id-1"}
    assert again.positions == {Partition("events.a", 0): 5, Partition("events.a", 1): 7}


def test_what_was_known_of_an_edge_is_kept_when_it_is_formatted_anew(tmp_path: Path) -> None:
    checks = VerificationState(tmp_path, "cluster-1")
    checks.topics["events.a"] = TopicCheckpoint("id-1", {0: 5})
    checks.save()
    assert VerificationState(tmp_path, "cluster-2").ids == {"events.a": "id-1"}, (
        "its topics have other ids: they were recreated"
    )


def test_an_alarm_is_kept_as_it_was_first_told_and_told_as_it_is_now(tmp_path: Path) -> None:
    def alarm(text: str) -> Alarm:
        return Alarm(AlarmName.CONTENTS_DIFFER, "events.a-0", text, "events.a")

    checks = VerificationState(tmp_path, "cluster-1")
    assert checks.raise_alarms([alarm("3 missing")]) == [alarm("3 missing")]
    assert checks.raise_alarms([alarm("1 missing")]) == [alarm("1 missing")]
    checks.save()
    assert VerificationState(tmp_path, "cluster-1").raise_alarms([]) == [alarm("3 missing")]


def test_what_an_earlier_version_remembered_is_read(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    old = (
        '{"edge_cluster_id": "c", "topics": {"events.a": {"topic_id": "id-1", "positions": '
        '{"0": 5}}}, "format": 1}'
    )
    (tmp_path / "state" / "checks.json").write_text(old)
    checks = VerificationState(tmp_path, "c")
    assert (checks.positions, checks.alarms, checks.accepted) == (
        {Partition("events.a", 0): 5},
        [],
        set(),
    )


def test_damage_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checks.json").write_text("{")
    with pytest.raises(UsageError, match=r"checks\.json is damaged"):
        VerificationState(tmp_path, "cluster-1")


def overtaken(topic: str) -> Alarm:
    return Alarm(AlarmName.OVERTAKEN, f"{topic}-0", "offsets 3 to 7 may be missing", topic)


def test_checks_beside_one_another_lose_nothing_of_each_other(tmp_path: Path) -> None:
    first, second = VerificationState(tmp_path, "c"), VerificationState(tmp_path, "c")
    for checks, topic in ((first, "events.a"), (second, "events.b")):
        checks.topics[topic] = TopicCheckpoint("id", {0: 5})
        checks.raise_alarms([overtaken(topic)])
        checks.accepted.add(f"topic edge.{topic}.old")
        checks.save()
    after = VerificationState(tmp_path, "c")
    assert {*after.topics} == {"events.a", "events.b"}
    assert {*after.alarms} == {overtaken("events.a"), overtaken("events.b")}
    assert after.accepted == {"topic edge.events.a.old", "topic edge.events.b.old"}


def test_an_alarm_that_came_meanwhile_is_not_accepted_by_who_did_not_know_it(
    tmp_path: Path,
) -> None:
    before = VerificationState(tmp_path, "c")
    before.raise_alarms([overtaken("events.a")])
    before.save()
    accepting, other = VerificationState(tmp_path, "c"), VerificationState(tmp_path, "c")
    other.raise_alarms([overtaken("events.b")])
    other.save()
    accepting.alarms = []
    accepting.save()
    assert VerificationState(tmp_path, "c").alarms == [overtaken("events.b")]


def test_what_was_accepted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    before = VerificationState(tmp_path, "c")
    before.topics["events.a"] = TopicCheckpoint("id", {0: 5})
    before.raise_alarms([overtaken("events.a")])
    before.save()
    slow, accepting = VerificationState(tmp_path, "c"), VerificationState(tmp_path, "c")
    accepting.alarms = []
    accepting.topics["events.a"] = TopicCheckpoint("id", {0: 9})
    accepting.save()
    slow.raise_alarms([])
    slow.save()
    after = VerificationState(tmp_path, "c")
    assert (after.alarms, after.topics) == ([], {"events.a": TopicCheckpoint("id", {0: 9})})


def test_of_positions_that_two_wrote_the_lower_is_known(tmp_path: Path) -> None:
    first, second = VerificationState(tmp_path, "c"), VerificationState(tmp_path, "c")
    first.topics["events.a"] = TopicCheckpoint("id", {0: 5, 1: 9, 2: 4})
    first.save()
    second.topics["events.a"] = TopicCheckpoint("id", {0: 7, 1: 8})
    second.save()
    assert VerificationState(tmp_path, "c").topics == {
        "events.a": TopicCheckpoint("id", {0: 5, 1: 8})
    }


def test_one_writes_while_no_other_does(tmp_path: Path) -> None:
    checks = VerificationState(tmp_path, "c")
    with exclusive_lock(tmp_path / CHECKS_FILE):
        saving = threading.Thread(target=checks.save)
        saving.start()
        saving.join(0.2)
        assert saving.is_alive() and not (tmp_path / CHECKS_FILE).exists()
    saving.join(10)
    assert (tmp_path / CHECKS_FILE).exists()


def test_a_file_that_cannot_be_read_or_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checks = VerificationState(tmp_path, "c")
    monkeypatch.setattr("hourmark_mirror.verify.verification_state.write_durably", refuses)
    with pytest.raises(
        UsageError, match=r"state/checks\.json cannot be written: No space left on device"
    ):
        checks.save()
    monkeypatch.setattr(Path, "read_bytes", refuses)
    with pytest.raises(UsageError, match=r"state/checks\.json cannot be read"):
        VerificationState(tmp_path, "c")
