"""`hourmark.commands.component_status`: every component is answered for, in bounded time, whatever
keeps it from answering.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import pytest
from tests.support.clock import FakeClock

from hourmark.commands.component_status import (
    ASPECTS,
    COMPONENTS,
    ComponentState,
    ComponentStatus,
    check_listening,
    component_statuses,
    format_age,
)
from hourmark.commands.server_status import LOCAL, SERVERS, ServerStatus, remote_server_statuses
from hourmark.config.groups import KafkaCluster, KafkaSettings, MirrorSettings
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.state_folder import StateFolder
from hourmark_mirror.component_status import describe_lag, mirror_status
from hourmark_mirror.lag import Lag

HERE = "tests.unit.core.commands.test_component_status"
DEAF = KafkaCluster(bootstrap="127.0.0.1:1, 127.0.0.1:2")


def runs(_: Config, now_ms: int) -> ComponentStatus:
    return ComponentStatus(ComponentState.RUNNING, "well", 7, now_ms)


def is_away(_: Config, now_ms: int) -> ComponentStatus:
    raise Unavailable("nobody answers; start it")


def hangs(_: Config, now_ms: int) -> ComponentStatus:
    time.sleep(5)
    return ComponentStatus(ComponentState.RUNNING, "too late")


def test_each_component_has_a_function_in_its_room() -> None:
    assert set(COMPONENTS) == {"service", "mirror", "etl", "tailers"}
    for place in (*COMPONENTS.values(), *ASPECTS.values(), *SERVERS.values(), LOCAL):
        module, function = place.split(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_what_keeps_one_from_answering_is_told_and_the_others_answer() -> None:
    table = {name: f"{HERE}:{name}" for name in ("hangs", "runs", "is_away")} | {
        "absent": "no_such_room.standing:it"
    }
    began_s = time.monotonic()
    found = component_statuses(Config(), FakeClock(5), table, seconds=0.5)
    assert time.monotonic() - began_s < 4
    assert list(found) == list(table)
    assert found["runs"] == ComponentStatus(ComponentState.RUNNING, "well", 7, 5)
    assert found["is_away"] == ComponentStatus(ComponentState.UNKNOWN, "nobody answers; start it")
    hangs = found["hangs"]
    assert (hangs.state, hangs.detail) == (ComponentState.UNKNOWN, "no answer within 0.5 s")
    assert [problem.subject for problem in hangs.problems] == ["hangs"]
    assert (
        found["absent"].state is ComponentState.UNKNOWN and "no_such_room" in found["absent"].detail
    )


def refused(config: Config, now_ms: int) -> ComponentStatus:
    raise PermissionError(13, "Permission denied", "/var/lib/hourmark/tailer")


def broken(config: Config, now_ms: int) -> ComponentStatus:
    raise ValueError("password=hush")


def test_a_status_that_fails_is_not_taken_for_a_server_that_hangs() -> None:
    table = {name: f"{__name__}:{name}" for name in ("refused", "broken")}
    found = component_statuses(Config(), FakeClock(5), table, seconds=5)
    assert found["refused"].problems == () and found["refused"].detail == (
        "this user may not read /var/lib/hourmark/tailer: ask as its owner, or as root"
    )
    (problem,) = found["broken"].problems
    assert "ValueError: password=" in problem.what and "report this error" in problem.do
    assert "no answer within" not in str(found)


def servers_broken(config: Config) -> list[ServerStatus]:
    raise ValueError("no number")


def test_a_check_of_servers_that_fails_is_not_taken_for_one_that_hangs() -> None:
    config = Config(kafka=KafkaSettings(edge=DEAF))
    (found,) = remote_server_statuses(config, {"kafka": f"{__name__}:servers_broken"}, 5)
    assert found.detail == "the check failed: ValueError: no number" and not found.healthy


def test_a_cluster_where_nobody_listens_is_told_at_once() -> None:
    began_s = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"no broker of the edge cluster listens at 127\.0\.0\.1:1"
    ):
        check_listening(DEAF, "edge")
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize(
    ("bootstrap", "why"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("kafka.invalid:9092", r"the name kafka\.invalid does not resolve \("),
        ("127.0.0.1:port", "127.0.0.1:port has no port"),
    ],
)
def test_a_broker_that_cannot_be_reached_says_why(bootstrap: str, why: str) -> None:
    with pytest.raises(Unavailable, match=f"listens at {bootstrap}: {why}"):
        check_listening(KafkaCluster(bootstrap=bootstrap), "edge")


@pytest.mark.parametrize("held", [True, False])
def test_a_mirror_is_known_by_who_holds_its_folder_also_while_kafka_is_away(
    tmp_path: Path, held: bool
) -> None:
    config = Config(
        kafka=KafkaSettings(edge=DEAF, central=DEAF), mirror=MirrorSettings(work_dir=tmp_path)
    )
    lock = StateFolder(tmp_path, "mirror").lock()
    if not held:
        lock.close()
    found = mirror_status(config, 5)
    lock.close()
    assert found.state is (ComponentState.RUNNING if held else ComponentState.NOT_RUNNING)
    assert (found.pid is not None) is held
    assert "no broker of the edge cluster listens" in found.detail


def test_positions_past_the_edges_end_are_not_called_all_copied() -> None:
    def lag(edge_end: int, position: int) -> Lag:
        return Lag(
            topic="events.a",
            partition=0,
            edge_start=0,
            edge_end=edge_end,
            position=position,
            central_end=None,
        )

    stale = (
        "2 positions are past the edge's log end, so nothing is copied there (`hourmark "
        "mirror lag`)"
    )
    assert describe_lag([]) == describe_lag([lag(5, 5)]) == "all records of the edge are copied"
    assert describe_lag([lag(3, 9), lag(0, 9)]) == stale
    assert (
        describe_lag([lag(3, 9), lag(0, 9), lag(2000, 0)])
        == f"2,000 records of 1 topic-partitions not copied yet; {stale}"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 days")],
)
def test_ages_are_told_in_the_largest_unit_of_which_there_are_two(seconds: int, words: str) -> None:
    assert format_age(1_000_000_000, 1_000_000_000 + seconds * 1000) == words
