"""A disturbance is one only where it was seen; whatever fails, what was done is undone, and later
trials go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.support.clock import FakeClock
from tests.support.evaluations import GOOD_TRIAL
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark_evaluate import run, stage
from hourmark_evaluate.accounting import Readings
from hourmark_evaluate.hands import Hands, each
from hourmark_evaluate.load import Load, steady
from hourmark_evaluate.records import Form, Plan
from hourmark_evaluate.results import Evaluation, Trial
from hourmark_evaluate.stage import BACK_SECONDS, GONE_SECONDS, NotBack, Stage
from hourmark_evaluate.trials import outage, replaced
from hourmark_evaluate.world import Wish, World


class Servers:
    """Brokers that stop and start when they are told, but for those that do not."""

    def __init__(self) -> None:
        self.up = {1: True, 2: True, 3: True}
        self.deaf: set[int] = set()  # whom a command does not stop
        self.failing: dict[int, int] = {}  # starts that fail before one does not
        self.wiped: list[int] = []
        self.ids, self.replication, self.behind, self.alone, self.cluster = (1, 2, 3), 3, 0, 0, self

    def stop(self, broker: int) -> None:
        self.up[broker] = broker in self.deaf

    def start(self, broker: int) -> None:
        if self.failing.get(broker, 0):
            self.failing[broker] -= 1
            raise Unavailable(f"the command `start {broker}` failed with exit code 255")
        self.up[broker] = True

    def answers(self, broker: int) -> bool:
        return self.up[broker]

    def all_there(self, topics: object) -> bool:
        return all(self.up.values())

    def out_of_sync(self) -> int:
        return self.behind

    def names(self) -> list[str]:
        return []

    def delete(self, names: Sequence[str]) -> None:
        assert not names

    def of_one_copy(self) -> int:
        return self.alone


class FakeLoad:
    """Everything is acknowledged at once."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.fatal, self.refused, self.sent = clock, "", "", 10
        self.plan = Plan(("t",), (1,), 3)
        self.flags = np.ones(10, dtype=np.bool_)

    @property
    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def through(self, since_s: float) -> bool:
        return True

    def stop(self) -> None:
        pass

    def arrays(self) -> Any:
        return np.zeros(10), np.zeros(10), self.flags


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def staged(servers: Servers) -> Stage:
    clock = FakeClock()
    hands = Hands(
        stop_broker=servers.stop, start_broker=servers.start, wipe_broker=servers.wiped.append
    )
    edge: Any = servers
    load: Any = FakeLoad(clock)
    world = World(
        edge=edge,
        central=None,
        alias="edge",
        hands=hands,
        wish=Wish(seconds=60.0),
        form=Form(b"12345678", 64),
        run="r",
        clock=clock,
        say=lambda _: None,
    )
    return Stage(world, "producers", "brokers come and go", load, None)


def test_a_broker_that_is_taken_away_and_comes_back_was_tried(
    staged: Stage, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outage.away(staged, [1, 2], "brokers 1 and 2 away", wiped=True)
    assert all(servers.up.values()) and servers.wiped == [1, 2]
    monkeypatch.setattr(stage, "read_all", lambda *_: Readings())
    trial = staged.conclude()
    assert [done.what for done in trial.disturbances] == ["brokers 1 and 2 away"]
    assert trial.tried and not trial.not_tried


def test_a_command_that_takes_nobody_away_is_no_disturbance(
    staged: Stage, servers: Servers
) -> None:
    servers.deaf = {1}
    assert not outage.away(staged, [1, 2], "brokers 1 and 2 away", wiped=True)
    assert not servers.wiped, "a disk that may be in use is left alone"
    assert all(servers.up.values())
    said = f"brokers 1 and 2 away was not tried: not all were away {GONE_SECONDS:.0f} s after it"
    trial = staged.conclude()
    assert not trial.tried and trial.not_tried == said
    assert not trial.disturbances


def test_a_broker_that_comes_back_by_itself_keeps_its_disk(
    staged: Stage, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "pause", lambda _: servers.start(1))
    assert outage.away(staged, [1], "broker 1 killed", wiped=True)
    assert not servers.wiped
    assert staged.notes == ["broker 1 killed: back by itself, before it was started again"]


def test_a_command_that_fails_leaves_nobody_away(staged: Stage, servers: Servers) -> None:
    def refuse(broker: int) -> None:
        servers.stop(broker)
        raise Unavailable("the command `stop` failed with exit code 1")

    assert not staged.disturb(
        "broker 1 away", lambda: refuse(1), lambda: servers.start(1), 5.0, lambda: servers.up[1]
    )
    assert servers.up[1]
    assert (
        staged.conclude().not_tried
        == "broker 1 away was not tried: the command `stop` failed with exit code 1"
    )


def test_one_that_cannot_be_started_does_not_keep_the_others_down(
    staged: Stage, servers: Servers
) -> None:
    servers.failing = {1: 2}
    assert outage.away(staged, [1, 2, 3], "all 3 brokers away at once")
    assert all(servers.up.values())
    servers.failing, servers.up = {1: 1}, dict.fromkeys(servers.up, False)
    with pytest.raises(Unavailable, match="`start 1` failed"):
        each(servers.start, [1, 2, 3])
    assert servers.up == {1: False, 2: True, 3: True}


def test_servers_that_cannot_be_started_are_told_with_the_reason(
    staged: Stage, servers: Servers
) -> None:
    servers.failing = {1: 1000}
    with pytest.raises(
        NotBack, match=rf"not back within {BACK_SECONDS:.0f} s \(the command `start 1` failed"
    ):
        outage.away(staged, [1], "broker 1 away")


@pytest.mark.parametrize("where", ["away", "starting"])
def test_ctrl_c_leaves_no_broker_away(
    staged: Stage, servers: Servers, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    starts: list[Callable[[int], None]] = [servers.start, servers.start]
    if where == "away":
        monkeypatch.setattr(staged, "pause", pressed)
    else:
        starts[0] = pressed
    with pytest.raises(KeyboardInterrupt):
        staged.disturb(
            "broker 1 away",
            lambda: servers.stop(1),
            lambda: starts.pop(0)(1),
            5.0,
            lambda: servers.up[1],
        )
        raise AssertionError("it goes on")
    assert servers.up[1]


def test_no_broker_is_taken_while_anybodys_partitions_are_behind(
    staged: Stage, servers: Servers
) -> None:
    servers.behind = 4
    assert not outage.away(staged, [1], "broker 1 away")
    assert (
        "broker 1 away was not tried: partitions of the edge are not fully in sync"
        in staged.conclude().not_tried
    )


def test_no_disk_is_emptied_that_may_hold_the_only_copy(staged: Stage, servers: Servers) -> None:
    servers.alone = 2
    assert "2 partitions of the edge have one copy" in replaced.why_not(staged.world)


def test_a_client_without_rights_is_no_verdict_on_kafka(staged: Stage) -> None:
    load: Any = staged.load
    load.flags, load.refused = np.zeros(10, dtype=np.bool_), "Broker: Topic authorization failed"
    assert (
        staged.conclude().not_tried == "the edge took no record: Broker: Topic authorization failed"
    )


def test_what_cannot_be_read_after_an_outage_is_broken_off(
    staged: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("the edge cluster does not answer")

    monkeypatch.setattr(stage, "read_all", away)
    with pytest.raises(
        NotBack, match="what was sent could not be read: the edge cluster does not answer"
    ):
        staged.conclude()


def test_a_trial_that_is_hindered_costs_no_other_its_result(
    staged: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(world: World, name: str) -> Trial:
        if name == "backlog":
            raise Unavailable(
                "the consumer group could not read: Broker: Group authorization failed"
            )
        return GOOD_TRIAL

    kept: list[Evaluation] = []
    monkeypatch.setattr(run, "play", play)
    result = run.evaluate(
        staged.world, ["load", "backlog", "producers"], "here", "hourmark evaluate", kept.append
    )
    assert [trial.not_tried for trial in result.trials] == [
        "",
        "the consumer group could not read: Broker: Group authorization failed",
        "",
    ]
    assert [len(one.trials) for one in kept] == [1, 2, 3] and kept[-1] == result


def test_the_smallest_load_sends() -> None:
    wish = Wish(rate=10)
    cluster = KafkaCluster(bootstrap="127.0.0.1:1", properties={"log_level": "0"})
    load = Load(
        cluster,
        Form(b"12345678", 64),
        Plan(("t",), (1,), 1),
        steady(wish.steady_rate),
        SystemClock(),
        wish.delivery_s,
    )
    load.start()
    wait_for(lambda: load.sent > 0, "a record to be sent", 10.0)
    load.abandon()
    assert 1 <= load.sent <= 4, "two and a half a second"
