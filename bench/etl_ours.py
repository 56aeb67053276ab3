"""Hourmark's ETL as a contender: `hourmark etl run` in its own process, from topics to proved
buckets.

The process runs from the first round to the last. A round consists of a few hours of its types:
their events are delivered while it stages what has arrived. Then audit records are sent, and the
round ends when the last of the hours is closed.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final

from sqlalchemy import func, select
from tests.support.etl import EtlRun
from tests.support.rules import put_rules

from bench.etl_site import BenchSite
from bench.etl_traffic import Delivered, TrafficPlan, benchmark_type, promise
from bench.process_tree import ProcessTree
from hourmark.kafka.topic_names import EVENTS_PREFIX
from hourmark.records.hours import Hour
from hourmark.rules.event_types import Source
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.buckets.verify import verify_bucket
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.storage import Storage

START_S: Final = 600.0  # on a machine that is busy with other things
PAUSE_S: Final = 0.1  # between looks at the ledger
_STAGED: Final = re.compile(r"staged (\d+) events in ([0-9.]+) s")


@dataclasses.dataclass(frozen=True)
class Round:
    """What a contender used for one data set.

    Attributes:
        facts: Further figures for the report.
    """

    cpu_s: float
    wall_s: float
    facts: Mapping[str, Any]


class WrongOutput(AssertionError):
    """An error for a contender whose output differs from the delivered events."""


def wrong_buckets(storage: Storage, delivered: Delivered) -> list[str]:
    """Describe buckets that are not proved, have late events, or differ from the delivered events.

    Returns:
        Descriptions; empty if every bucket holds exactly the distinct events, each once.
    """
    plan = delivered.plan

    def one(cell: tuple[int, int]) -> str | None:
        name, hour = plan.types[cell[0]], plan.all_hours[cell[1]]
        manifest = read_manifest(storage, name, hour)
        expected: tuple[object, ...] = (
            int(delivered.distinct[cell]),
            f"{int(delivered.low64_sums[cell]):016x}",
            {},
            "proved",
        )
        found = (manifest.events, manifest.id_sum, manifest.late, manifest.grade.value)
        if found != expected:
            return f"{name} {hour}: {found}, not {expected}"
        findings = verify_bucket(storage, name, hour).findings
        return str(findings[0]) if findings else None

    with ThreadPoolExecutor(4) as pool:
        return [
            w
            for w in pool.map(
                one, [(t, h) for t in range(len(plan.types)) for h in range(plan.hours)]
            )
            if w
        ]


class OurEtl:
    """A running ETL driver that is started with the types of the first data set."""

    name = "hourmark"

    def __init__(
        self,
        site: BenchSite,
        types: Sequence[str],
        first_hour: Hour,
        etl: Mapping[str, Any] | None = None,
        label: str = "ours",
    ) -> None:
        self.run = EtlRun(
            site.stack_config,
            site.folder / label,
            list(types),
            first_hour,
            cluster="central",
            root=site.root(label),
            etl=dict(etl or {}),
        )
        self._known, self._schema_ids = list(types), site.schema_ids
        self._database = Database(self.run.config.etl.ledger)
        self.run.start()
        process = self.run._process  # the harness has no other word for it
        assert process is not None
        self.tree = ProcessTree(process.pid)
        try:
            self.run.wait_until_staging(START_S)
        except BaseException:
            self.close()
            raise

    def round(
        self, delivering: Callable[[], Delivered], declare: bool = False
    ) -> tuple[Delivered, Round]:
        """Deliver a data set, send its audit records, and wait until all its hours are closed.

        Args:
            delivering: Function that delivers the data set.
            declare: Whether the types are new to the driver. They are then declared after all
                events are
                delivered, so that the events form a backlog.
        """
        began, cpu, kinds, logged = (
            time.monotonic(),
            self.tree.cpu_seconds(),
            self.tree.cpu_by_kind(),
            self.log_size(),
        )
        staged_before = self._staged_by_type()
        delivered = delivering()
        plan = delivered.plan
        before = sum(staged_before.get(t, 0) for t in plan.types)
        promise(self.run.config.kafka.edge, delivered)
        if declare:
            self.declare(plan)
        self.wait(
            lambda: self.staged(plan.types) >= before + int(delivered.records.sum()),
            "all events are staged",
        )
        staged_at, staged_cpu = time.monotonic(), self.tree.cpu_seconds()
        self.wait(lambda: self.closed(plan.types, plan.end), "all hours are closed")
        used, wall = self.tree.cpu_seconds() - cpu, time.monotonic() - began
        facts = {
            "cpu_s": {
                kind: round(now - kinds[kind], 2) for kind, now in self.tree.cpu_by_kind().items()
            },
            "staging_wall_s": round(staged_at - began, 1),
            "staging_cpu_s": round(staged_cpu - cpu, 2),
            "memory_mb_peak": round(self.tree.memory_mb_peak()),
            **self.batches(logged),
        }
        return delivered, Round(used, wall, facts)

    def check(self, delivered: Delivered) -> None:
        """Check that every bucket contains exactly the delivered events, each once.

        All records are read and decoded.

        Raises:
            WrongOutput: A bucket differs.
        """
        if wrong := wrong_buckets(self.run.storage, delivered):
            raise WrongOutput("\n".join(wrong[:5]))

    def wait(self, condition: Callable[[], bool], what: str, within_s: float = 1800.0) -> None:
        """Wait until `condition` returns true.

        Raises:
            WrongOutput: The driver exited, or the condition was not true in time.
        """
        began = time.monotonic()
        while not condition():
            if not self.run.running() or time.monotonic() - began > within_s:
                raise WrongOutput(f"not so: {what}; see {self.run.log}")
            time.sleep(PAUSE_S)

    def staged(self, types: Sequence[str]) -> int:
        """Return the number of records of these types below the ledger's positions.

        Producers here use no transactions, so offsets count records.
        """
        ends = self._staged_by_type()
        return sum(ends.get(t, 0) for t in types)

    def _staged_by_type(self) -> dict[str, int]:
        table = tables.positions
        query = select(table.c.topic, func.sum(table.c.next_offset)).group_by(table.c.topic)
        with self._database.reading() as connection:
            return {
                str(topic).removeprefix(EVENTS_PREFIX): int(end)
                for topic, end in connection.execute(query)
            }

    def staged_files(self) -> int:
        """Return how many files have been staged."""
        with self._database.reading() as connection:
            return connection.execute(select(func.max(tables.staged_files.c.id))).scalar() or 0

    def closed(self, types: Sequence[str], end: Hour) -> bool:
        """Return whether all hours of these types before `end` are closed.

        No row is decoded, so that the check takes no time from closing.
        """
        table = tables.frontiers
        with self._database.reading() as connection:
            rows = (
                connection.execute(select(table.c.type).where(table.c.hour >= end.start_s))
                .scalars()
                .all()
            )
        return set(types) <= {*rows}

    def batches(self, log_offset: int) -> dict[str, Any]:
        """Return the number and the seconds of micro-batches with events since a position of the
        driver's log.
        """
        with self.run.log.open("rb") as log:
            log.seek(log_offset)
            seconds = sorted(
                float(s) for _, s in _STAGED.findall(log.read().decode(errors="replace"))
            )
        return {
            "batches": len(seconds),
            "batch_s": seconds[len(seconds) // 2] if seconds else None,
            "batch_s_max": max(seconds, default=None),
        }

    def log_size(self) -> int:
        """Return the size of the driver's log in bytes."""
        return self.run.log.stat().st_size

    def __enter__(self) -> OurEtl:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the driver and all its child processes."""
        self.tree.close()
        self._database.close()
        if self.run.running():
            self.run.kill()

    def declare(self, plan: TrafficPlan) -> None:
        """Declare the types of the plan to the driver, in addition to its present types."""
        self._known += [t for t in plan.types if t not in self._known]
        sources = [Source(name="app", types=self._known)]
        types = [benchmark_type(name, payload=plan.payload) for name in plan.types]
        put_rules(self.run.config, types, sources, plan.first_hour, self._schema_ids)
