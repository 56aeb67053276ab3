"""The supervisor, over real processes that do nothing but tell."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.service.teller import tell

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark_delivery_service.metrics import METRICS_VARIABLE
from hourmark_delivery_service.process.supervisor import HANGS_S, SERVES_S, WorkerSupervisor
from hourmark_delivery_service.process.worker_status import WorkerStatusTable


def settings(workers: int, log_level: str = "info") -> Config:
    return Config(service={"workers": workers}, log_level=log_level)


def slot_of(worker: str) -> int:
    """The slot of the worker process with this name."""
    return int(worker.rpartition("-")[2])


class Scene:
    """A supervisor of two workers, looked after as `_supervise` does."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        serves_s: float = SERVES_S,
        hangs_s: float = HANGS_S,
    ) -> None:
        self.claims = WorkerStatusTable(folder / "claims", SystemClock(), create=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.supervisor = WorkerSupervisor(
            config, self.listener, self.claims, SystemClock(), tell, serves_s, hangs_s
        )

    def until(self, met: Callable[[], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < deadline
            self.supervisor.check_workers()
            time.sleep(0.02)

    def pids(self) -> set[int]:
        """Of the workers that tell."""
        return {
            child.pid
            for child in multiprocessing.active_children()
            if self.claims.get(slot_of(child.name)).heartbeats and child.pid is not None
        }

    def end(self) -> None:
        self.supervisor.drain()
        self.until(lambda: self.supervisor.worker_count == 0)
        self.listener.close()


@pytest.fixture
def scene(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    (tmp_path / "metrics").mkdir()
    monkeypatch.setenv(METRICS_VARIABLE, str(tmp_path / "metrics"))
    given = getattr(request, "param", {})
    config = settings(2, given.get("log_level", "info"))
    scene = Scene(tmp_path, config, **given.get("limits", {}))
    scene.until(lambda: len(scene.pids()) == 2)
    yield scene
    scene.end()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again_in_a_slot_that_is_free(scene: Scene) -> None:
    first = scene.pids()
    os.kill(min(first), signal.SIGKILL)
    scene.until(lambda: len(scene.pids()) == 2 and scene.pids() != first)
    assert max(first) in scene.pids()
    next_slot = scene.claims.allocate_slot()
    assert next_slot == 2, "the claim of the one that is gone went with it"
    scene.claims.release_slot(next_slot)
    scene.end()
    assert scene.claims.requests == 0, "it was drained well: there may be a goodbye"


# longer than a worker that is well waits for a processor, on a loaded machine
@pytest.mark.slow
@pytest.mark.parametrize("scene", [{"limits": {"hangs_s": 3.0}}], indirect=True)
def test_a_worker_that_hangs_holds_the_claim_and_is_killed_in_the_end(scene: Scene) -> None:
    first = scene.pids()
    os.kill(min(first), signal.SIGSTOP)
    scene.until(lambda: True)
    # that of the stopped one is among these; the other one may be behind it for a while
    held = max(scene.claims.get(slot).oldest_ms for slot in range(2))
    time.sleep(0.3)
    assert scene.claims.oldest_ms() <= held
    scene.until(lambda: len(scene.pids()) == 2 and scene.pids() != first)
    assert max(first) in scene.pids(), "the other one told all the time"


@pytest.mark.slow
@pytest.mark.parametrize("scene", [{"log_level": "error"}], indirect=True)
def test_a_worker_that_leaves_requests_unanswered_at_the_end_forbids_the_goodbye(
    scene: Scene,
) -> None:
    scene.end()
    assert scene.claims.requests == 2, "one of each"


@pytest.mark.slow
def test_a_worker_killed_while_all_drain_forbids_the_goodbye(scene: Scene) -> None:
    for pid in scene.pids():
        os.kill(pid, signal.SIGSTOP)
    scene.supervisor.drain()
    for child in multiprocessing.active_children():
        child.kill()
    scene.until(lambda: scene.supervisor.worker_count == 0)
    assert scene.claims.requests == 2


def test_a_worker_that_did_not_serve_yet_has_nothing_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics").mkdir()
    monkeypatch.setenv(METRICS_VARIABLE, str(tmp_path / "metrics"))
    scene = Scene(tmp_path, settings(1))
    scene.supervisor.check_workers()
    scene.supervisor.drain()
    scene.until(lambda: scene.supervisor.worker_count == 0)
    scene.end()
    assert scene.claims.requests == 0


async def replaced(scene: Scene, config: Config) -> None:
    async def look() -> None:
        while True:
            scene.supervisor.check_workers()
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        await scene.supervisor.replace(config)
    finally:
        looking.cancel()


@pytest.mark.slow
def test_workers_are_replaced_one_after_the_other(scene: Scene) -> None:
    first = scene.pids()
    asyncio.run(replaced(scene, settings(1)))
    scene.until(lambda: scene.supervisor.worker_count == 1)
    assert not scene.pids() & first


@pytest.mark.slow
@pytest.mark.parametrize("scene", [{"limits": {"serves_s": 5.0}}], indirect=True)
def test_a_configuration_with_which_none_serves_changes_nothing(
    scene: Scene,
) -> None:
    first = scene.pids()
    with pytest.raises(TimeoutError):
        asyncio.run(replaced(scene, settings(2, "debug")))
    assert scene.pids() == first
    scene.until(lambda: scene.supervisor.worker_count == 2)


@pytest.mark.slow
def test_workers_that_end_at_once_are_started_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics").mkdir()
    monkeypatch.setenv(METRICS_VARIABLE, str(tmp_path / "metrics"))
    scene = Scene(tmp_path, settings(1, "debug"))
    scene.until(lambda: scene.supervisor.worker_count == 1)
    scene.until(lambda: scene.supervisor.worker_count == 0)
    scene.supervisor.check_workers()
    assert scene.supervisor.worker_count == 0, "not at once"
    scene.until(lambda: scene.supervisor.worker_count == 1)
    scene.until(lambda: "a new one starts in 2 s" in caplog.text)
    scene.end()
