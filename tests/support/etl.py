"""Runs the real ETL as a process of its own, on one cluster, with a ledger and a root of its
own.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.crash import ORDER_VARIABLE, CrashOrder
from tests.support.waiting import wait_for

from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.kafka.clients import Cluster, Partition
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, EventType, Source
from hourmark_declare.apply import apply_declarations
from hourmark_declare.servers import open_targets
from hourmark_etl.ledger import batches
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import StagingPosition
from hourmark_etl.storage import NotFound, Storage, open_storage
from hourmark_etl.topics import CentralTopicNames


class EtlRun:
    """One ETL: `start`, `kill`, and what it closed.

    Types have one field, `number`; buckets last a minute.
    """

    killed = -signal.SIGKILL  # the exit code where a driver died of it

    def __init__(
        self,
        stack_config: Path,
        folder: Path,
        types: list[str],
        first_hour: Hour,
        *,
        root: str | None = None,
        etl: Mapping[str, Any] | None = None,
        cluster: str = "edge",
        crashing: bool = False,
        source: str = "app",
    ) -> None:
        """`cluster`: which of the stack's two is the one cluster; "both": as the stack has it, with
        the mirror between them.

        `crashing`: the driver dies, or pauses, when `order` says so. `source`: whose lines become
        events of the types.
        """
        self.file = folder / "hourmark.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(own_settings(stack_config, folder, root, etl or {}, cluster))
        self.config: Config = load_config(self.file)
        self.storage: Storage = open_storage(self.config.storage)
        self.log = folder / "etl.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._environment: dict[str, str] = {}
        self._crash_order = folder / "crash-order.json" if crashing else None
        self.declare(types, first_hour, source)
        self._skip_what_others_reported()

    def declare(self, types: list[str], first_hour: Hour, source: str = "app") -> None:
        """These types and no others are carried from now on; a new one's first bucket is
        `first_hour`.
        """
        declared = [EventType(name=t, fields=[{"name": "number", "type": "long"}]) for t in types]
        declarations = Declarations([*declared, DEAD_LETTERS], [Source(name=source, types=types)])
        with open_targets(self.config, lambda _: None) as outside:
            apply_declarations(
                outside, declarations, first_hour, may_remove=True, may_refuse=True
            )  # other tests' types on the same stack

    def start(self) -> None:
        """Start the driver; its log goes on in the same file."""
        assert self._process is None
        self._starts += 1
        environment = {**os.environ, **self._environment}
        command = ["hourmark", "etl", "run", "--config", str(self.file)]
        if self._crash_order is not None:
            environment |= {"PYTHONPATH": ".", ORDER_VARIABLE: str(self._crash_order)}
            command = ["tests.support.crashing_driver", str(self.file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stderr=log,
                stdout=log,
                env=environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to the driver and all it started (JVM and Python workers), or to what one that
        has ended left.
        """
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def terminate(self) -> None:
        """SIGTERM to the driver."""
        assert self._process is not None
        self._process.terminate()

    def order(self, crash: CrashOrder) -> None:
        """The next process of this ETL that comes to the step dies."""
        assert self._crash_order is not None, "this run was not made to crash"
        crash.place(self._crash_order)

    def took(self, crash: CrashOrder) -> bool:
        """Whether the order was carried out, and where it was for the driver, that has ended."""
        assert self._crash_order is not None
        if self._crash_order.exists():
            return False
        if not crash.ends_driver or crash.how == "SIGSTOP":
            return True
        assert self.exit_code() in (None, self.killed), (
            f"the driver ended otherwise than by {crash} (see {self.log})"
        )
        return self.exit_code() is not None

    def wake(self) -> None:
        """Let a driver go on that a crash order paused."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def duplicate(self) -> EtlRun:
        """A second driver with the same ledger and root, as on another machine: not yet started,
        with a log of its own.
        """
        made = copy.copy(self)
        made.log = self.log.with_name("etl-duplicate.log")
        made._process, made._starts, made._crash_order = None, 0, None
        made._environment = {
            "HOURMARK_ETL__SCRATCH_DIR": str(self.log.parent / "scratch-duplicate")
        }
        return made

    def revive(self) -> None:
        """Start the driver if it has ended, as a supervisor does."""
        if self._process is not None and not self.running():
            self.kill()
        if self._process is None:
            self.start()

    def wait_until_staging(self, within_s: float = 120.0) -> None:
        """Wait until the driver that was started last has begun its query."""
        wait_for(
            lambda: (
                self.log.read_text(errors="replace").count("from the ledger's offsets")
                >= self._starts
            ),
            f"staging begun (see {self.log})",
            within_s,
        )

    @property
    def pid(self) -> int:
        """Of the driver that was started last."""
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        """Whether the driver is alive."""
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int | None:
        """How the driver ended; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def manifest(self, event_type: str, hour: Hour) -> Manifest | None:
        """What the bucket's marker says; None while it is open."""
        try:
            return Manifest.decode(self.storage.read(f"{hour.bucket_path(event_type)}/{MARKER}"))
        except NotFound:
            return None

    def closed(self, event_type: str, hour: Hour, within_s: float = 120.0) -> Manifest:
        """Wait until the bucket is closed."""
        wait_for(
            lambda: self.manifest(event_type, hour) is not None,
            f"{event_type} {hour} closed (see {self.log})",
            within_s,
        )
        found = self.manifest(event_type, hour)
        assert found is not None
        return found

    def told(self, *arguments: str) -> dict[str, Any]:
        """What a command of the ETL's settings prints as JSON; it must end well."""
        command = [
            sys.executable,
            "-m",
            "hourmark",
            *arguments,
            "--json",
            "--config",
            str(self.file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed

    def logged(self, text: str) -> bool:
        """Whether the driver said so."""
        return text in self.log.read_text(errors="replace")

    def __enter__(self) -> EtlRun:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def _skip_what_others_reported(self) -> None:
        """Reports and promises of other tests on the same stack are none of this ETL's business."""
        cluster = Cluster(self.config.kafka.central_cluster, "central")
        topics = CentralTopicNames.from_settings(self.config.kafka, ())
        infos = cluster.topics([*topics.audits, *topics.hosts])
        ends = cluster.ends([Partition(t, 0) for t in infos])
        database = Database(self.config.etl.ledger)
        lease = database.acquire("consumer:default")
        cluster_id = cluster.cluster_id()
        batches.insert_new_positions(
            database,
            lease,
            [
                StagingPosition(
                    cluster_id=cluster_id,
                    topic_id=infos[p.topic].topic_id,
                    topic=p.topic,
                    partition=0,
                    next_offset=end,
                )
                for p, end in ends.items()
            ],
        )
        database.close()


def own_settings(
    stack_config: Path, folder: Path, root: str | None, etl: Mapping[str, Any], cluster: str
) -> str:
    """The stack's settings with this run's own ledger, root and scratch."""
    settings: dict[str, Any] = tomllib.loads(stack_config.read_text())
    if cluster != "both":
        settings["kafka"]["edge"] = settings["kafka"][cluster]
        settings["kafka"].pop("central", None)
    settings["storage"]["root"] = root or f"{settings['storage']['root']}-{folder.name}"
    settings["etl"] |= {
        "ledger": f"sqlite:///{folder}/ledger.sqlite",
        "scratch_dir": str(folder / "scratch"),
        "trigger_seconds": 0.5,
        "close_poll_seconds": 0.3,
        **etl,
    }
    settings["parsing"] = {"bucket_seconds": 60}
    return render_toml(settings)
