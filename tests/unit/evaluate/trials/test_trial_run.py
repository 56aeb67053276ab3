"""A disturbance is one only where it was seen; whatever fails, what was done is undone, and later
trials go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.clock import FakeClock
from tests.support.evaluations import GOOD_TRIAL
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark_evaluate import evaluation
from hourmark_evaluate.clients.load_producer import LoadProducer, constant_rate
from hourmark_evaluate.execution import broker_outage, trial_run
from hourmark_evaluate.execution.environment import EvaluationOptions, TrialEnvironment
from hourmark_evaluate.execution.server_operations import ServerOperations, call_for_each_broker
from hourmark_evaluate.execution.trial_run import (
    EFFECT_SECONDS,
    RECOVERY_SECONDS,
    RecoveryFailed,
    TrialRun,
)
from hourmark_evaluate.record_format import RecordFormat, RecordPlacement
from hourmark_evaluate.results import Evaluation, TrialResult
from hourmark_evaluate.trials import brokers_replaced


class Servers:
    """Brokers that stop and start when they are told, but for those that do not."""

    def __init__(self) -> None:
        self.up = {1: True, 2: True, 3: True}
        self.deaf: set[int] = set()  # whom a command does not stop
        self.failing: dict[int, int] = {}  # starts that fail before one does not
        self.wiped: list[int] = []
        self.ids, self.replication, self.behind, self.alone, self.cluster = (1, 2, 3), 3, 0, 0, None

    def stop(self, broker: int) -> None:
        self.up[broker] = broker in self.deaf

    def start(self, broker: int) -> None:
        if self.failing.get(broker, 0):
            self.failing[broker] -= 1
            raise Unavailable(f"the command `start {broker}` failed with exit code 255")
        self.up[broker] = True

    def responds(self, broker: int) -> bool:
        return self.up[broker]

    def are_all_in_sync(self, topics: object) -> bool:
        return all(self.up.values())

    def count_out_of_sync(self) -> int:
        return self.behind

    def count_single_replica(self) -> int:
        return self.alone


class FakeLoad:
    """Everything is acknowledged at once."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.fatal, self.first_error, self.sent = clock, "", "", 10
        self.placement = RecordPlacement(("t",), (1,), 3)
        self.flags = np.ones(10, dtype=np.bool_)

    @property
    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def has_recovered_since(self, since_s: float) -> bool:
        return True

    def stop(self) -> None:
        pass

    def outcome_arrays(self) -> Any:
        return np.zeros(10), np.zeros(10), self.flags


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def staged(servers: Servers) -> TrialRun:
    clock = FakeClock()
    operations = ServerOperations(
        stop_broker=servers.stop, start_broker=servers.start, wipe_broker=servers.wiped.append
    )
    edge: Any = servers
    load: Any = FakeLoad(clock)
    environment = TrialEnvironment(
        edge=edge,
        central=None,
        alias="edge",
        operations=operations,
        options=EvaluationOptions(seconds=60.0),
        record_format=RecordFormat(b"12345678", 64),
        run_id="r",
        clock=clock,
        report_progress=lambda _: None,
    )
    return TrialRun(environment, "producers", "brokers come and go", load, None)


def test_a_broker_that_is_taken_away_and_comes_back_was_tried(
    staged: TrialRun, servers: Servers
) -> None:
    assert broker_outage.stop_brokers_temporarily(
        staged, [1, 2], "brokers 1 and 2 away", wiped=True
    )
    assert all(servers.up.values()) and servers.wiped == [1, 2]
    assert [fault.description for fault in staged._completed] == ["brokers 1 and 2 away"]
    assert not staged._why_inconclusive(any_acknowledged=True)


def test_a_command_that_takes_nobody_away_is_no_disturbance(
    staged: TrialRun, servers: Servers
) -> None:
    servers.deaf = {1}
    assert not broker_outage.stop_brokers_temporarily(
        staged, [1, 2], "brokers 1 and 2 away", wiped=True
    )
    assert not servers.wiped, "a disk that may be in use is left alone"
    assert all(servers.up.values()) and not staged._completed
    said = f"brokers 1 and 2 away was not tried: the fault was not in effect on all servers after {EFFECT_SECONDS:.0f} s"
    trial = staged.finish()
    assert not trial.tried and trial.not_tried == said


def test_a_broker_that_comes_back_by_itself_keeps_its_disk(
    staged: TrialRun, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "wait_under_load", lambda _: servers.start(1))
    assert broker_outage.stop_brokers_temporarily(staged, [1], "broker 1 killed", wiped=True)
    assert not servers.wiped
    assert staged.notes == ["broker 1 killed: the server recovered before it was started again"]


def test_a_command_that_fails_leaves_nobody_away(staged: TrialRun, servers: Servers) -> None:
    def refuse(broker: int) -> None:
        servers.stop(broker)
        raise Unavailable("the command `stop` failed with exit code 1")

    assert not staged.inject_fault(
        "broker 1 away", lambda: refuse(1), lambda: servers.start(1), 5.0, lambda: servers.up[1]
    )
    assert servers.up[1]
    assert (
        staged._why_inconclusive(any_acknowledged=True)
        == "broker 1 away was not tried: the command `stop` failed with exit code 1"
    )


def test_one_that_cannot_be_started_does_not_keep_the_others_down(
    staged: TrialRun, servers: Servers
) -> None:
    servers.failing = {1: 2}
    assert broker_outage.stop_brokers_temporarily(staged, [1, 2, 3], "all 3 brokers away at once")
    assert all(servers.up.values())
    servers.failing, servers.up = {1: 1}, dict.fromkeys(servers.up, False)
    with pytest.raises(Unavailable, match="`start 1` failed"):
        call_for_each_broker(servers.start, [1, 2, 3])
    assert servers.up == {1: False, 2: True, 3: True}


def test_servers_that_cannot_be_started_are_told_with_the_reason(
    staged: TrialRun, servers: Servers
) -> None:
    servers.failing = {1: 1000}
    with pytest.raises(
        RecoveryFailed,
        match=rf"did not recover within {RECOVERY_SECONDS:.0f} s after .* \(the command `start 1` failed",
    ):
        broker_outage.stop_brokers_temporarily(staged, [1], "broker 1 away")


@pytest.mark.parametrize("where", ["away", "starting"])
def test_ctrl_c_leaves_no_broker_away(
    staged: TrialRun, servers: Servers, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    starts: list[Callable[[int], None]] = [servers.start, servers.start]
    if where == "away":
        monkeypatch.setattr(staged, "wait_under_load", pressed)
    else:
        starts[0] = pressed
    with pytest.raises(KeyboardInterrupt):
        staged.inject_fault(
            "broker 1 away",
            lambda: servers.stop(1),
            lambda: starts.pop(0)(1),
            5.0,
            lambda: servers.up[1],
        )
        raise AssertionError("it goes on")
    assert servers.up[1]


def test_no_broker_is_taken_while_anybodys_partitions_are_behind(
    staged: TrialRun, servers: Servers
) -> None:
    servers.behind = 4
    assert not broker_outage.stop_brokers_temporarily(staged, [1], "broker 1 away")
    assert (
        "broker 1 away was not tried: partitions of the edge cluster are not fully in sync"
        in staged._why_inconclusive(any_acknowledged=True)
    )


def test_no_disk_is_emptied_that_may_hold_the_only_copy(staged: TrialRun, servers: Servers) -> None:
    servers.alone = 2
    assert (
        "2 partitions of the edge cluster have only one replica"
        in brokers_replaced.why_unavailable(staged.environment)
    )


def test_a_client_without_rights_is_no_verdict_on_kafka(staged: TrialRun) -> None:
    load: Any = staged.load
    load.flags, load.first_error = (
        np.zeros(10, dtype=np.bool_),
        "Broker: Topic authorization failed",
    )
    assert (
        staged.finish().not_tried
        == "the edge cluster accepted no record: Broker: Topic authorization failed"
    )


def test_what_cannot_be_read_after_an_outage_is_broken_off(
    staged: TrialRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("the edge cluster does not answer")

    monkeypatch.setattr(trial_run, "read_all", away)
    with pytest.raises(
        RecoveryFailed,
        match="the sent records could not be read back: the edge cluster does not answer",
    ):
        staged.finish()


def test_a_trial_that_is_hindered_costs_no_other_its_result(
    staged: TrialRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(environment: TrialEnvironment, name: str) -> TrialResult:
        if name == "backlog":
            raise Unavailable(
                "the consumer group could not read: Broker: Group authorization failed"
            )
        return GOOD_TRIAL

    kept: list[Evaluation] = []
    monkeypatch.setattr(evaluation, "run_trial_by_name", play)
    monkeypatch.setattr(evaluation, "_delete_topics", lambda *_: [])
    result = evaluation.evaluate(
        staged.environment,
        ["load", "backlog", "producers"],
        "here",
        "hourmark evaluate",
        kept.append,
    )
    assert [trial.not_tried for trial in result.trials] == [
        "",
        "the consumer group could not read: Broker: Group authorization failed",
        "",
    ]
    assert [len(one.trials) for one in kept] == [1, 2, 3] and kept[-1] == result


def test_the_smallest_load_sends() -> None:
    options = EvaluationOptions(rate=10)
    cluster = KafkaCluster(bootstrap="127.0.0.1:1", properties={"log_level": "0"})
    load = LoadProducer(
        cluster,
        RecordFormat(b"12345678", 64),
        RecordPlacement(("t",), (1,), 1),
        constant_rate(options.steady_rate),
        SystemClock(),
        options.delivery_timeout_s,
    )
    load.start()
    wait_for(lambda: load.sent > 0, "a record to be sent", 10.0)
    load.abort()
    assert 1 <= load.sent <= 4, "two and a half a second"
