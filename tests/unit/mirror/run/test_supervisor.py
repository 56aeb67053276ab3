"""The supervisor, with a fake clock: what fails is named and started again; the pause grows."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.clock import FakeClock

from hourmark.errors import ConfigError, Finding, Unavailable, UsageError
from hourmark_mirror.run.supervisor import MirrorSupervisor
from hourmark_mirror.run.task_status import ConnectorTaskFailure, TaskStates

KEY = b"status-task-MirrorSourceConnector-0"
TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: send failed\\n\\tat X\\nCaused by: "
    "RecordTooLargeException: 9437184 bytes"
)


class FakeProcess:
    """Ends by itself after `lives_s`, or never."""

    def __init__(self, clock: FakeClock, lives_s: float | None, code: int = 3) -> None:
        self.pid = 4711
        self.started_s = -1.0
        self.stopped = False
        self._clock, self._lives_s, self._code = clock, lives_s, code

    def start(self) -> None:
        self.started_s = self._clock.monotonic_s()

    def poll(self) -> int | None:
        ended = (
            self._lives_s is not None
            and self._clock.monotonic_s() - self.started_s >= self._lives_s
        )
        return self._code if ended else None

    def stop(self) -> int:
        self.stopped = True
        return 0


class FakeWatch:
    """Reports what `failing` says."""

    def __init__(self, failing: Callable[[], list[ConnectorTaskFailure]] = list) -> None:
        self._failing = failing
        self.begun = 0

    def start_run(self) -> None:
        self.begun += 1

    def failures(self) -> list[ConnectorTaskFailure]:
        return self._failing()


def supervise(
    clock: FakeClock, processes: list[FakeProcess], watch: FakeWatch, *, restart: bool = True
) -> int:
    """Runs until all processes were used."""
    stopping = threading.Event()
    left = iter(processes)

    def make() -> FakeProcess:
        process = next(left)
        if process is processes[-1] and restart:
            stopping.set()
        process.start()
        return process

    return MirrorSupervisor(
        start_process=make, detectors=[watch], clock=clock, stopping=stopping, restart=restart
    ).run()


def test_a_process_that_ends_is_started_again_after_a_growing_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    processes = [FakeProcess(clock, 5.0) for _ in range(8)]
    assert supervise(clock, processes, FakeWatch()) == 0
    pauses = [round(b.started_s - a.started_s - 5) for a, b in itertools.pairwise(processes)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert "exited unexpectedly: exit code 3" in caplog.text
    assert all(p.stopped for p in processes)


def test_a_long_good_run_makes_the_next_pause_short_again() -> None:
    clock = FakeClock()
    processes = [FakeProcess(clock, s) for s in (5.0, 5.0, 100.0, 5.0)]
    supervise(clock, processes, FakeWatch())
    assert round(processes[3].started_s - processes[2].started_s - 100) == 1


def test_a_failed_task_is_named_and_answered_by_a_new_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """strimzi#11037: a task fails on one oversize message, and the rest of its partitions stand
    still.
    """
    clock = FakeClock()
    states = TaskStates("127.0.0.1:8783")
    states.update([(KEY, f'{{"state":"FAILED","trace":"{TRACE}"}}'.encode())])
    processes = [FakeProcess(clock, None), FakeProcess(clock, None)]
    supervise(clock, processes, FakeWatch(lambda: states.failures))
    assert "MirrorSourceConnector-0 failed: RecordTooLargeException: 9437184 bytes" in caplog.text
    assert processes[0].stopped


def test_a_task_that_connect_starts_again_by_itself_is_left_alone() -> None:
    clock = FakeClock()
    born_s = clock.monotonic_s()
    watch = FakeWatch(
        lambda: (
            [ConnectorTaskFailure("t", "fenced")] if 2 < clock.monotonic_s() - born_s < 5 else []
        )
    )
    process = FakeProcess(clock, 30.0)
    assert supervise(clock, [process], watch, restart=False) == 3


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("no leader"),
        Finding("no"),
        UsageError("no"),
        KafkaException(KafkaError(KafkaError._TRANSPORT)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_poll_that_fails_is_said_once_and_ends_nothing(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is seen once the cluster answers again, and what the watch could not see is no
    failure.
    """
    clock = FakeClock()
    born_s, polls = clock.monotonic_s(), [0]

    def poll() -> list[ConnectorTaskFailure]:
        polls[0] += 1
        if clock.monotonic_s() - born_s < 300:
            raise error
        return [ConnectorTaskFailure("task", "it failed")]

    processes = [FakeProcess(clock, None), FakeProcess(clock, None)]
    supervise(clock, processes, FakeWatch(poll))
    assert caplog.text.count("cannot determine whether") == 1
    assert 300 < processes[1].started_s - born_s < 350
    assert polls[0] < 300 / 30 + 10, "it backs off"


def test_a_watch_that_cannot_begin_ends_nothing() -> None:
    class Blind(FakeWatch):
        def start_run(self) -> None:
            raise Unavailable("no leader")

    clock = FakeClock()
    assert supervise(clock, [FakeProcess(clock, 5.0), FakeProcess(clock, 5.0)], Blind()) == 0


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("mirror.java = 'java' cannot be started"),
        Unavailable("no space left"),
        OSError(28, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_later_start_that_fails_is_a_failed_run(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Java is replaced by a package manager, or a key by a certificate tool: it was right before,
    and will be.
    """
    clock, stopping = FakeClock(), threading.Event()
    tries: list[float] = []

    def make() -> FakeProcess:
        tries.append(clock.monotonic_s())
        if 1 < len(tries) < 5:
            raise error
        if len(tries) == 5:
            stopping.set()
        process = FakeProcess(clock, 5.0)
        process.start()
        return process

    assert (
        MirrorSupervisor(
            start_process=make,
            detectors=[FakeWatch()],
            clock=clock,
            stopping=stopping,
            restart=True,
        ).run()
        == 0
    )
    assert [round(b - a) for a, b in itertools.pairwise(tries)] == [5 + 1, 2, 4, 8]
    assert caplog.text.count(f"could not be started: {error}") == 3


def test_what_keeps_the_first_process_from_being_started_ends_the_command() -> None:
    def make() -> FakeProcess:
        raise ConfigError("mirror.java = 'jav' cannot be started")

    with pytest.raises(ConfigError, match="jav"):
        MirrorSupervisor(
            start_process=make,
            detectors=[],
            clock=FakeClock(),
            stopping=threading.Event(),
            restart=True,
        ).run()


def test_without_restart_the_exit_code_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    clock = FakeClock()
    assert supervise(clock, [FakeProcess(clock, 1.0, code=7)], FakeWatch(), restart=False) == 7
    assert supervise(clock, [FakeProcess(clock, 1.0, code=-9)], FakeWatch(), restart=False) == 137


def test_states_follow_the_topic() -> None:
    states = TaskStates("127.0.0.1:8783")
    failed = (KEY, b'{"state":"FAILED","trace":null}')
    states.update([failed])
    assert states.failures == [ConnectorTaskFailure("MirrorSourceConnector-0", "no trace given")]
    states.update([(KEY, b'{"state":"RUNNING"}'), (b"other", b"{"), (None, None)])
    assert states.failures == []
    assert states.is_running("MirrorSourceConnector-0")
    states.update([failed, (KEY, None)])
    assert states.failures == []
    states.update([failed])
    states.mark_outdated()
    assert states.failures == []


def test_what_is_no_state_is_passed_over_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    states = TaskStates("127.0.0.1:8783")
    strange = [
        b"no JSON",
        b"[1]",
        b'{"state":"FAILED","generation":[1]}',
        b'{"state":"FAILED","trace":7}',
        b"\xff",
    ]
    states.update([(KEY, b'{"state":"RUNNING"}'), *((KEY, value) for value in strange)])
    assert states.is_running("MirrorSourceConnector-0")
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "5 records" in caplog.text


def said(state: str, worker: str, generation: int) -> tuple[bytes, bytes]:
    status = {
        "state": state,
        "trace": "fenced",
        "worker_id": f"{worker}/edge->central",
        "generation": generation,
    }
    return KEY, json.dumps(status).encode()


def test_a_task_that_failed_on_another_worker_is_for_its_own_supervisor() -> None:
    """Else one failed task starts all workers again, and nobody copies meanwhile."""
    here, there = TaskStates("mirror-1:8783"), TaskStates("mirror-2:8783")
    for states in (here, there):
        states.update([said("FAILED", "mirror-2:8783", 4)])
    assert not here.local_failures
    assert (
        there.local_failures
        == here.failures
        == [ConnectorTaskFailure("MirrorSourceConnector-0", "fenced")]
    )


def test_what_a_woken_zombie_says_of_its_old_task_is_not_believed() -> None:
    """It was away while its task went to another worker, does not know, and says that the task has
    failed.
    """
    states = TaskStates("mirror-1:8783")
    states.update(
        [
            said("RUNNING", "mirror-1:8783", 3),
            said("RUNNING", "mirror-2:8783", 4),
            said("FAILED", "mirror-1:8783", 3),
        ]
    )
    assert not states.failures
    assert states.is_running("MirrorSourceConnector-0")
    states.update([said("UNASSIGNED", "mirror-1:8783", 3), said("FAILED", "mirror-2:8783", 4)])
    assert states.failures == [ConnectorTaskFailure("MirrorSourceConnector-0", "fenced")], (
        "who runs it says so"
    )


def test_a_group_that_begins_at_its_first_generation_again_is_believed() -> None:
    states = TaskStates("mirror-1:8783")
    states.update(
        [
            said("RUNNING", "mirror-2:8783", 40),
            said("RUNNING", "mirror-1:8783", 1),
            said("FAILED", "mirror-1:8783", 1),
        ]
    )
    assert states.local_failures == [ConnectorTaskFailure("MirrorSourceConnector-0", "fenced")]


def test_a_connector_that_runs_on_another_worker_is_not_waited_for() -> None:
    key = b"status-connector-MirrorSourceConnector"
    states = TaskStates("mirror-2:8783")
    states.update([(key, b'{"state": "RUNNING", "worker_id": "mirror-1:8783/edge->central"}')])
    states.mark_outdated()
    assert states.is_running("MirrorSourceConnector"), (
        "it will not say so again because a second worker has come"
    )
    states.update([(key, b'{"state": "RUNNING", "worker_id": "mirror-2:8783/edge->central"}')])
    states.mark_outdated()
    assert not states.is_running("MirrorSourceConnector"), "that was the run before this one"
