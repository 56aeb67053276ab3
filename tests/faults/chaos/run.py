"""One run of a schedule: the world stands, workloads begin, rounds of faults, all is drained,
checkers read what it came to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.faults.chaos.checkers import Findings, check
from tests.faults.chaos.evidence import Evidence, Injected
from tests.faults.chaos.eyes import Closings, readers
from tests.faults.chaos.faults import FAULTS
from tests.faults.chaos.flows import Flow, Watch
from tests.faults.chaos.planted import overlooked
from tests.faults.chaos.rounds import play
from tests.faults.chaos.schedule import Injection, Schedule
from tests.faults.chaos.settings import API_TYPE, BUCKET_SECONDS, HOSTS
from tests.faults.chaos.workloads import WORKLOADS, Workload
from tests.faults.chaos.world import World, standing
from tests.support import postgres

from hourmark.clock import Clock
from hourmark.errors import Unavailable, UsageError
from hourmark.rules.rules_topic import read_rules
from hourmark_infra.jars.cache import Reporter
from hourmark_verify.demo import configuration
from hourmark_verify.judge.buckets import group_by_bucket, read_tree
from hourmark_verify.judge.expectations import Expectations, read_expectations
from hourmark_verify.judge.webhdfs import HdfsEntry, WebHdfsReader, hdfs_path

# what comes after three minutes is a violation, and still the next round begins from there
_GIVEN_UP_S: Final = 600.0
_BEGUN_S: Final = 900.0  # on a busy machine; a minute or two on a free one
_CLOSED_S: Final = 900.0
_LOOK_S: Final = 0.25
_LENGTH_MS: Final = BUCKET_SECONDS * 1000
_OF_FILES: Final = frozenset((Flow.TAILER_A, Flow.TAILER_B))
_ALWAYS: Final = frozenset((Flow.MIRROR, Flow.STAGING, Flow.CLOSING))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """`overlooked`: by planted fault, whether nobody objected. `recoveries`: by injection, seconds;
    None: given up.

    `load`: processes of the whole machine that ran or wanted to, on average.
    """

    findings: Findings
    overlooked: dict[str, bool]
    recoveries: list[tuple[str, float | None]]
    written: int
    seconds: float
    load: float
    expectations_file: Path

    @property
    def missed(self) -> list[str]:
        """Planted faults to which nobody objected."""
        return [name for name, unseen in self.overlooked.items() if unseen]

    @property
    def violations(self) -> dict[str, int]:
        """By kind, of those that were found, and of faults that were overlooked."""
        return {
            **self.findings,
            **({"overlooked by the checkers": len(self.missed)} if self.missed else {}),
        }


@dataclasses.dataclass
class Run:
    """One run in `home`. `work`: what its world keeps; replaced by the next run."""

    home: Path
    schedule: Schedule
    clock: Clock
    say: Reporter
    minutes: float | None = None  # no round begins after so long

    def __post_init__(self) -> None:
        self._began_s, self._began_ms = self.clock.monotonic_s(), self.clock.now_ms()
        self._injected: list[Injected] = []
        self._loads: list[
            float
        ] = []  # of the machine, a look each round: others may work on it, too
        self._kept: dict[str, dict[str, HdfsEntry]] = {}
        self._undrained: str | None = None

    def play(self) -> Outcome:
        """All of it. HourmarkError where it cannot be played to its end."""
        drawn = [FAULTS[of.fault] for injections in self.schedule.rounds for of in injections]
        if any(fault.needs_postgres for fault in drawn) and not postgres.binaries():
            raise UsageError(f"{postgres.MISSING}; or choose other faults by --fault")
        spread = self.schedule.tier != "pr" or any(fault.needs_spread for fault in drawn)
        with (
            standing(
                self.home, self.schedule.kinds, self.clock, self._tell, spread=spread
            ) as world,
            closing(world.hdfs()) as hdfs,
            closing(world.hdfs()) as eyes,
        ):
            closings = Closings(eyes, world.config.storage.root, world.types, self.clock)
            loads = [
                WORKLOADS[name](world, self.schedule.rate, self.schedule.seed)
                for name in self.schedule.workloads
            ]
            reading = readers(world, lambda: sum(len(load.posted) for load in loads), closings)
            watches = [Watch(flow, read, self.clock) for flow, read in reading.items()]
            try:
                for watch in watches:
                    watch.start()
                for load in loads:
                    load.start()
                self._rounds(world, closings, hdfs)
            finally:
                for load in loads:
                    load.stop()
            told = self._drain(world, closings, loads)
            for watch in watches:
                watch.stop()
            return self._judged(
                world, self._evidence(world, hdfs, told, watches, closings, loads), loads
            )

    def _rounds(self, world: World, closings: Closings, hdfs: WebHdfsReader) -> None:
        world.wait(
            lambda: closings.closed_until_ms() > 0,
            "the first bucket of each type to be closed",
            _BEGUN_S,
        )
        self._tell(
            "each type has closed a bucket after "
            f"{self.clock.monotonic_s() - self._began_s:.0f} s; faults begin"
        )
        for number, injections in enumerate(self.schedule.rounds, 1):
            if (
                self.minutes is not None
                and self.clock.monotonic_s() - self._began_s >= 60 * self.minutes
            ):
                self._tell(
                    f"time is up: {number - 1} of {len(self.schedule.rounds)} rounds were played"
                )
                break
            self._tell(
                f"round {number} of {len(self.schedule.rounds)}: "
                f"{', '.join(i.fault for i in injections)}"
            )
            self._round(world, closings, injections)
            for path, entries in group_by_bucket(
                read_tree(hdfs, hdfs_path(world.config.storage.root))
            ).items():
                self._kept.setdefault(path, entries)

    def _round(self, world: World, closings: Closings, injections: Sequence[Injection]) -> None:
        """Faults begin and end at their moments; then all that was written before is closed."""
        self._loads.append(os.getloadavg()[0])
        played = play(world, injections, self.clock, self._tell)
        if not played:
            return
        healed_ms = self.clock.now_ms()
        recovered_s: float | None = None
        try:
            world.wait(
                lambda: closings.closed_until_ms() >= healed_ms,
                "all that was written to be closed",
                _GIVEN_UP_S,
            )
            recovered_s = self.clock.monotonic_s()
            self._tell(
                "closed up to the end of all faults, "
                f"{(self.clock.now_ms() - healed_ms) / 1000:.0f} s after it"
            )
        except Unavailable as error:
            self._tell(f"NOT DRAINED: {error}")
        all_healed_s = max(of.healed_s for of in played)
        self._injected += [
            Injected(
                fault=of.fault,
                goes_on=FAULTS[of.fault].goes_on,
                began_s=of.began_s,
                healed_s=of.healed_s,
                all_healed_s=all_healed_s,
                recovered_s=recovered_s,
                failed=of.failed,
            )
            for of in played
        ]

    def _drain(self, world: World, closings: Closings, loads: Sequence[Workload]) -> Expectations:
        """Everything is delivered and closed, or judged as far as it came; what the
        judge is told.
        """
        self._tell(
            f"{sum(load.written for load in loads):,} lines and events are written; "
            "tailers deliver what is left"
        )
        try:
            world.drain()
            end_ms = (self.clock.now_ms() // _LENGTH_MS + 1) * _LENGTH_MS
            world.wait(
                lambda: closings.closed_until_ms() >= end_ms,
                "the last minute to be closed",
                _CLOSED_S,
            )
        except Unavailable as error:
            self._undrained = str(error)
            self._tell(f"NOT DRAINED: {error}")
        return self._told(world, loads)

    def _told(self, world: World, loads: Sequence[Workload]) -> Expectations:
        types, sources, limits = configuration.declarations_for_judge(world.config.types.dir)
        host_ids = {
            host: (world.host_config(host).tailer.state_dir / "host-id").read_text().strip()
            for host in HOSTS
        }
        logs = [log for load in loads for log in load.logs]
        files = [
            {
                "path": f"{log.log.path}*",
                **sources[log.source],
                "host": f"host-{log.host}",
                "host_id": host_ids[log.host],
                "copied": True,
            }
            for log in logs
        ]
        files += [
            of.expectation(sources[of.source], host_ids[of.host]) for of in world.losses.vanished
        ]
        storage = world.config.storage
        content = {
            "webhdfs": f"http://{world.stack.layout.address('namenode-http')}",
            "root": storage.root,
            "user": storage.user,
            "files": files,
            "types": types,
            "line_bytes_max": world.config.tailer.line_bytes_max,
            "written": [record.model_dump() for log in logs for record in log.log.records],
            "api": [event.model_dump() for load in loads for event in load.posted],
            "observed_ms": (self._began_ms, self.clock.now_ms()),
            "rules": [revision.id for revision in read_rules(world.config.kafka.edge).revisions],
            **world.losses.told(world.copied_ids),
            **limits,
        }
        file = world.work / "expectations.json"
        file.write_text(json.dumps(content, indent=1))
        return read_expectations(file)

    def _evidence(
        self,
        world: World,
        hdfs: WebHdfsReader,
        told: Expectations,
        watches: Sequence[Watch],
        closings: Closings,
        loads: Sequence[Workload],
    ) -> Evidence:
        watched = (
            _ALWAYS
            | (_OF_FILES if told.files else frozenset())
            | ({Flow.API} if told.api else frozenset())
        )
        return Evidence(
            told=told,
            hdfs=hdfs,
            injected=self._injected,
            moved={watch.flow: watch.moved for watch in watches},
            watched=watched,
            first_seen=dict(closings.first_seen),
            kept=self._kept,
            may_be_late=sum(load.may_be_late for load in loads),
            api_types=frozenset((API_TYPE,)),
            ended=world.ended,
            undrained=self._undrained,
        )

    def _judged(self, world: World, evidence: Evidence, loads: Sequence[Workload]) -> Outcome:
        """Of all that will ever be closed: the driver is ended first."""
        world.hit.add("etl")
        world.center.stop("etl")
        self._tell("the judge compares every line and event with every bucket")
        findings = check(evidence)
        self._tell(
            f"compared {findings.compared:,}: {dict(findings) or 'nothing is wrong'}; "
            "planting faults for the checkers"
        )
        recoveries = [
            (
                of.fault,
                None if of.recovered_s is None else round(of.recovered_s - of.all_healed_s, 1),
            )
            for of in evidence.injected
        ]
        outcome = Outcome(
            findings=findings,
            overlooked=overlooked(evidence),
            recoveries=recoveries,
            written=sum(load.written for load in loads),
            seconds=round(self.clock.monotonic_s() - self._began_s, 1),
            load=round(statistics.mean(self._loads), 1) if self._loads else 0.0,
            expectations_file=world.work / "expectations.json",
        )
        if outcome.missed:
            self._tell(f"overlooked by the checkers: {', '.join(outcome.missed)}")
        return outcome

    def _tell(self, line: str) -> None:
        self.say(f"[{self.clock.monotonic_s() - self._began_s:5.0f} s] {line}")
