"""Time and CPU of the closer for a backlog of hours of one type, by phase, on HDFS or local disk.

    python -m bench.closing_hours --hours 400 [--config hourmark.toml] [--bare]

The closer runs in this process, with a real ledger and the storage of the configuration (by default
a temporary folder). Kafka, the mirror and staging are simulated, and there is no Spark, so the
result is what proof, writing and publication cost by themselves. For HDFS, start a stack with
`hourmark up`; CPU of its servers is counted, if they run on this machine. `--bare` also measures a
bare WebHDFS client that creates, reads and renames as many files of this size (`hdfs_bare`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from tests.support.closing import arrive, send_old, settle
from tests.support.simulator.truth import CLUSTER, FIRST_HOUR, make_template
from tests.support.simulator.world import Metrics, World

from bench.hdfs_bare import seconds_for, sizes_of
from hourmark.config.groups import StorageSettings
from hourmark.config.loading import load_config
from hourmark.records.hours import Hour
from hourmark_etl.closing.closer import Closer
from hourmark_etl.closing.cut.clusters import LedgerProgress
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.ports import CloserDependencies
from hourmark_etl.closing.publishing import Publisher
from hourmark_etl.closing.sealing import Sealer
from hourmark_etl.storage import Storage, open_storage

# By phase, the method that takes it. Publication includes writing, which is subtracted.
_PHASES: Final = {
    "proof": (Sealer, "prove_round"),
    "write": (Engine, "write"),
    "publish": (Publisher, "publish"),
}
_SERVERS: Final = ("NameNode", "DataNode")


class PhaseCosts:
    """Sums the wall time and the CPU time of phases, in seconds.

    Args:
        stack: Folder of the local stack whose servers are measured; None measures no server.
    """

    def __init__(self, stack: Path | None) -> None:
        self._stack = stack
        self.seconds = defaultdict[tuple[str, str], float](float)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count all calls of the phases' methods in the block."""
        originals = {phase: getattr(*where) for phase, where in _PHASES.items()}
        for phase, (owner, name) in _PHASES.items():
            setattr(owner, name, self._counting(phase, originals[phase]))
        try:
            yield
        finally:
            for phase, (owner, name) in _PHASES.items():
                setattr(owner, name, originals[phase])

    def _counting(self, phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            before = used_seconds(self._stack)
            try:
                return original(*args, **kwargs)
            finally:
                for what, seconds in used_seconds(self._stack).items():
                    self.seconds[phase, what] += seconds - before.get(what, 0.0)

        return call

    def per_hour_ms(self, hours: int) -> dict[str, dict[str, float]]:
        """Return the milliseconds per hour by phase: `wall`, `closer`, and each server."""
        found: dict[str, dict[str, float]] = {phase: {} for phase in _PHASES}
        for (phase, what), seconds in self.seconds.items():
            if phase == "publish":
                seconds -= self.seconds["write", what]
            found[phase][what] = round(1000 * seconds / hours, 2)
        return found


def used_seconds(stack: Path | None) -> dict[str, float]:
    """Return the time, and the CPU seconds of this process and of the servers of a stack so far."""
    used = {"wall": time.monotonic(), "closer": time.process_time()}
    for process in psutil.process_iter(["name", "cmdline"]) if stack else ():
        command = process.info["cmdline"] or [""]
        server = command[-1].rpartition(".")[2]
        if server in _SERVERS and any(str(stack) in word for word in command):
            times = process.cpu_times()
            used[server] = times.user + times.system
    return used


def _closer_on(storage: Storage, world: World) -> Closer:
    database, clock = world.database, world.driver_clock
    return Closer(
        CloserDependencies(
            engine=Engine(storage, database, world.config),
            storage=storage,
            database=database,
            sites=lambda lease: world.pipeline.clusters(database, lease, clock),
            progress=LedgerProgress(database, CLUSTER),
            restage=world.pipeline.restage,
            metrics=Metrics(),
            clock=clock,
        ),
        world.config,
    )


def measure(folder: Path, storage: Storage, hours: int, stack: Path | None) -> dict[str, Any]:
    """Close a backlog on an empty storage.

    Args:
        folder: Folder for the ledger.
        storage: Storage for staged files and buckets.
        hours: Number of hours with one event, every second hour before the first hour of a type.
        stack: Folder of the local stack whose servers are measured; None measures no server.

    Returns:
        The number of buckets, the hours per minute, and milliseconds per hour by phase.
    """
    world, costs = World(folder, make_template(folder)), PhaseCosts(stack)
    world.pipeline.storage = storage  # type: ignore[assignment]  # only staged files are written
    world.closer = _closer_on(storage, world)
    for n in range(hours, 0, -1):
        send_old(world, Hour(FIRST_HOUR.start_s - 7200 * n))
    settle(world)
    world.clock.advance(12)
    world.producers.report(0)
    arrive(world)
    began, closed = time.monotonic(), 0
    with costs.measured():
        while isinstance(outcome := world.closer.step(), int):
            closed += outcome
    seconds = time.monotonic() - began
    world.end()
    assert closed == hours, f"{closed} of {hours} hours were closed"
    return {
        "buckets": hours,
        "hours_per_minute": round(60 * hours / seconds),
        "ms_per_hour": costs.per_hour_ms(hours),
        "load": round(os.getloadavg()[0], 1),
    }


def _bare(
    settings: StorageSettings, storage: Storage, hours: int, stack: Path | None
) -> dict[str, float]:
    days = storage.list("click")
    folders = [
        f"click/{day.name}/{hour.name}"
        for day in days
        for hour in storage.list(f"click/{day.name}")
    ]
    sizes, before = sizes_of(storage, folders), used_seconds(stack)
    seconds_for(settings, "bare", sizes)
    return {
        what: round(1000 * (seconds - before[what]) / hours, 2)
        for what, seconds in used_seconds(stack).items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=400)
    parser.add_argument("--config", type=Path, help="its storage is used, in a folder of its own")
    parser.add_argument("--bare", action="store_true", help="also a bare WebHDFS client")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        settings, stack = StorageSettings(root=f"file://{temporary}/root"), None
        if asked.config:
            stack = asked.config.resolve().parent
            settings = load_config(asked.config).storage
            root = f"{settings.root.rstrip('/')}-bench-{uuid.uuid4().hex}"
            settings = settings.model_copy(update={"root": root})
        storage = open_storage(settings)
        try:
            result = measure(Path(temporary), storage, asked.hours, stack)
            if asked.bare:
                result["bare_ms_per_hour"] = _bare(settings, storage, asked.hours, stack)
        finally:
            for entry in storage.list(""):
                if not entry.name.startswith("."):  # unfinished files: there are none
                    storage.delete(entry.name)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
