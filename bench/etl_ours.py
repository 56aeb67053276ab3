"""Hourmark's own ETL as a contender: `hourmark etl run` as a process of its own, from topics to closed, proved buckets.

It runs from the first round to the last. A round gives it types that are new to its ledger, whose topics hold their events
already; it stages them from offset 0, proves and writes their hours, and the round ends when the last one is closed.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.etl_site import BUCKET_SECONDS, Site
from bench.etl_traffic import Delivered, declared, promise
from bench.process_tree import ProcessTree
from etl.bucket_checks import verify_bucket
from etl.buckets import read_manifest
from etl.ledger.database import Database
from etl.ledger.frontier_rows import ensure_frontier_rows
from etl.ledger.frontiers import frontiers
from hourmark.event_types import Source
from hourmark.hours import Hour
from tests.support.etl import EtlRun

_STAGED = re.compile(r"staged (\d+) events in ([0-9.]+) s")


@dataclasses.dataclass(frozen=True)
class Round:
    """What a contender used for one data set. `facts`: what else is worth a line."""

    cpu_s: float
    wall_s: float
    facts: Mapping[str, Any]


class WrongOutput(AssertionError):
    """A contender's output is not what was delivered."""


class OurEtl:
    """Started with the types of the first data set; see the module."""

    name = "hourmark"

    def __init__(self, site: Site, types: Sequence[str], first_hour: Hour, etl: Mapping[str, Any], label: str = "ours") -> None:
        self._site = site
        self.run = EtlRun(site.file, site.folder / label, list(types), first_hour, root=site.root(label), etl=dict(etl))
        self._first_hour = first_hour
        self._known = list(types)
        self._database = Database(self.run.config.etl.ledger)
        self.run.start()
        process = self.run._process  # the harness has no other word for it
        assert process is not None
        self._tree = ProcessTree(process.pid)
        self.run.wait_until_staging()

    def round(self, delivered: Delivered, within_s: float = 900.0) -> Round:
        """Promise the data set, declare its types, and wait until all its hours are closed."""
        plan = delivered.plan
        logged = self._log_size()
        began, cpu = time.monotonic(), self._tree.cpu_seconds()
        promise(self.run.config.kafka.edge, delivered)
        self._add(plan.types)
        closing_began = None
        while not self._closed(plan.types, plan.end):
            if closing_began is None and self._staged_since(logged)[0] >= int(delivered.records.sum()):
                closing_began = (time.monotonic(), self._tree.cpu_seconds())
            if not self.run.running() or time.monotonic() - began > within_s:
                raise WrongOutput(f"{self.name} did not close all hours within {within_s:.0f} s; see {self.run.log}")
            time.sleep(0.2)
        used, wall = self._tree.cpu_seconds() - cpu, time.monotonic() - began
        facts: dict[str, Any] = {"memory_mb": round(self._tree.memory_mb()), **self._batches(logged), **self._files()}
        if closing_began is not None:
            facts["staging_cpu_s"] = round(closing_began[1] - cpu, 2)
            facts["closing_wall_s"] = round(time.monotonic() - closing_began[0], 1)
        return Round(used, wall, facts)

    def check(self, delivered: Delivered, *, every_byte: bool = True) -> None:
        """WrongOutput unless each bucket holds exactly the distinct events delivered for it.

        Counts and id sums by the manifests; with `every_byte` each event of each bucket is read and decoded too.
        """
        plan = delivered.plan
        cells = [(t, h) for t in range(len(plan.types)) for h in range(plan.hours)]

        def one(cell: tuple[int, int]) -> str | None:
            t, h = cell
            name, hour = plan.types[t], plan.all_hours[h]
            manifest = read_manifest(self.run.storage, name, hour)
            expected: tuple[object, ...] = (int(delivered.distinct[cell]), f"{int(delivered.tail_sums[cell]):016x}", {}, "proved")
            found = (manifest.events, manifest.id_sum, manifest.late, manifest.grade.value)
            if found != expected:
                return f"{name} {hour}: {found}, not {expected}"
            findings = verify_bucket(self.run.storage, name, hour).findings if every_byte else ()
            return str(findings[0]) if findings else None

        with ThreadPoolExecutor(4) as pool:
            if wrong := [w for w in pool.map(one, cells) if w]:
                raise WrongOutput("\n".join(wrong[:5]))

    def close(self) -> None:
        """Kill the driver; drop the connection to its ledger."""
        self._tree.close()
        self._database.close()
        if self.run.running():
            self.run.kill()

    def __enter__(self) -> OurEtl:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _add(self, types: Sequence[str]) -> None:
        self._known += [t for t in types if t not in self._known]
        sources = [Source(name="app", types=self._known)]
        ensure_frontier_rows(self.run.config, [declared(t) for t in types], sources, self._first_hour)

    def _closed(self, types: Sequence[str], end: Hour) -> bool:
        wanted = set(types)
        return all(f.hour >= end for f in frontiers(self._database, BUCKET_SECONDS) if f.event_type in wanted)

    def _log_size(self) -> int:
        return self.run.log.stat().st_size

    def _staged_since(self, offset: int) -> tuple[int, list[float]]:
        with Path(self.run.log).open("rb") as log:
            log.seek(offset)
            found = _STAGED.findall(log.read().decode(errors="replace"))
        return sum(int(events) for events, _ in found), [float(seconds) for _, seconds in found]

    def _batches(self, offset: int) -> dict[str, Any]:
        seconds = self._staged_since(offset)[1]
        return {"batches": len(seconds), "batch_s_max": max(seconds, default=None)}

    def _files(self) -> dict[str, Any]:
        from sqlalchemy import func, select

        from etl.ledger import tables

        with self._database.reading() as connection:
            return {"staged_files": connection.execute(select(func.count()).select_from(tables.staged_files)).scalar()}
