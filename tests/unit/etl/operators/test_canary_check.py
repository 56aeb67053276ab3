"""`hourmark canary check` of two sites, on logs in memory: each is told by itself, whatever the
other does.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from tests.support.kafka_logs import Logs, of_two_sites
from tests.support.rules import put_rules

from hourmark.commands.canary import CANARY, DECLARATION
from hourmark.config.loading import load_config
from hourmark.errors import Unavailable
from hourmark.records.hours import Hour
from hourmark.rules.event_types import EventType
from hourmark_etl.operators import canary

NOW_MS = 1_800_000_600_000
Sites = dict[str, Logs]


@pytest.fixture
def sites(file: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
    """Both edges and the centre; the last canary of each came half a minute ago, and half an hour
    ago to Lyon's copy.
    """
    made = of_two_sites(file)
    put_rules(
        load_config(file),
        [EventType.model_validate(tomllib.loads(DECLARATION))],
        [],
        Hour(NOW_MS // 3_600_000 * 3600),
    )
    for edge in ("paris", "lyon"):
        made[f"{edge}:9092"].append(f"events.{CANARY}", NOW_MS - 30_000, b"", b"")
        made["central:9092"].append(
            f"{edge}.events.{CANARY}", NOW_MS - (30_000 if edge == "paris" else 1_800_000), b"", b""
        )
    monkeypatch.setattr(canary, "Cluster", lambda settings, _: made[settings.bootstrap])
    monkeypatch.setattr(canary, "CommittedReader", lambda logs, *_: logs)
    monkeypatch.setattr(canary, "SystemClock", lambda: SimpleNamespace(now_ms=lambda: NOW_MS))
    return made


def check(file: Path, *words: str) -> Result:
    return CliRunner().invoke(canary.check, [*words, "--config", str(file)])


def test_each_site_has_its_own_ages_and_alarm(file: Path, sites: Sites) -> None:
    said = json.loads(check(file, "--json").stdout)
    mirrored = {
        site: (ages["acknowledged"], ages["mirrored"]) for site, ages in said["age_seconds"].items()
    }
    assert mirrored == {"paris": (30.0, 30.0), "lyon": (30.0, 1800.0)}
    assert [
        (alarm["name"], alarm["subject"]) for alarm in said["alarms"] if "mirrored" in alarm["seen"]
    ] == [("canary-late", "lyon")]
    text = check(file).stdout
    assert text.index("site paris") < text.index("site lyon") < text.index("ALARM")


def test_an_edge_that_is_away_is_named(file: Path, sites: Sites) -> None:
    sites["lyon:9092"].is_away = True
    assert isinstance(check(file, "--json").exception, Unavailable)
