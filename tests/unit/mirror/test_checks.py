"""What is remembered between two checks."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_another_clusters_checks_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    checks = Checks(tmp_path, "cluster-1")
    checks.topics["events.a"] = Check("id-1", {0: 5})
    checks.save()
    assert Checks(tmp_path, "cluster-2").topics == {}


def test_damage_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checks.json").write_text("{")
    with pytest.raises(UsageError, match=r"checks\.json is damaged"):
        Checks(tmp_path, "cluster-1")
