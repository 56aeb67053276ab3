"""Drives closing, one look at a time, and picks up whatever a crash left.

A frozen hour without a proof was interrupted: it is unfrozen and proved anew. A sealed hour is written and published again; if
its bucket stands already, its marker is the truth. So every step may be cut off anywhere and repeated.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from etl.closing.cut import Cut, CutTaker, Waiting
from etl.closing.edge import TwoSites
from etl.closing.engine import Engine
from etl.closing.ownership import refuse_foreign_root, refuse_other_seal, refuse_published
from etl.closing.proof import Proof
from etl.closing.publishing import ATTEMPTS_FOLDER, manifest_of, publish, standing_marker
from etl.closing.writing import SealedHour, WrittenFile
from etl.ledger import frontiers as ledger
from etl.ledger import staging as staged
from etl.ledger.database import Database
from etl.ledger.rows import Frontier, Position, Reporter, Seal, State
from etl.ledger.schemas import remembered_schema
from etl.metrics import Metrics
from etl.storage import open_storage
from etl.topics import CentralTopics
from hourmark.avro import Schema
from hourmark.clock import Clock
from hourmark.config import Config
from hourmark.errors import Finding, Unavailable
from hourmark.kafka import Partition
from hourmark.manifest import Grade, Manifest
from hourmark.topics import CONTROL, events_topic

RETRY_SECONDS: Final = 10.0  # after a proof that failed: what is missing may be on its way
_PUBLISHERS: Final = 8
_CAUSE_MAX: Final = 1500
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class LedgerProgress:
    """What a cut asks of the ledger: the real `Progress`."""

    database: Database
    cluster_id: str

    def reporters(self) -> list[Reporter]:
        """Latest staged reports."""
        return staged.reporters(self.database)

    def not_staged(self, ends: Mapping[Partition, int]) -> list[str]:
        """What is below these central ends and not yet staged."""
        positions = {Partition(p.topic, p.partition): p.next_offset for p in staged.positions(self.database, self.cluster_id)}
        return [
            f"staging: {p} is staged up to {positions.get(p, 0)}, the cut is {end}"
            for p, end in sorted(ends.items())
            if positions.get(p, 0) < end
        ]


class Closer:
    """Closes hours of all types of the ledger; one at work at a time, fenced by its lease."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        database: Database,
        cluster_id: str,
        fetch_schema: Callable[[int], Schema],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._engine, self._config, self._database, self._clock = engine, config, database, clock
        self._fetch_schema, self._metrics = fetch_schema, metrics
        self._lease = database.acquire("closer")
        self._storage = open_storage(config.storage)
        self._sites = TwoSites(config.kafka, database, self._lease, clock)
        audit = CentralTopics.of(config.kafka, ()).audit
        self._taker = CutTaker(self._sites, LedgerProgress(database, cluster_id), audit, clock)
        self._not_before_s: dict[str, float] = {}
        self._interrupted = True  # by a crash, for all this closer knows

    def close(self) -> None:
        """Let go of the clusters."""
        self._sites.close()

    def step(self) -> Waiting | int:
        """One look: how many hours it closed, or what it waits for.

        Unavailable where a server does not answer; the next look picks up what this one left.
        """
        try:
            if self._interrupted:
                self._recover()
            self._interrupted = True
            outcome = self._look()
        except (PySparkException, Py4JError) as error:
            raise Unavailable(f"a Spark job of closing failed, and is tried again: {str(error)[-_CAUSE_MAX:]}") from error
        self._interrupted = False
        return outcome

    def _look(self) -> Waiting | int:
        if any(f.state is State.SEALED and self._may_try(f) for f in self._frontiers()):
            return self._write_sealed()
        open_frontiers = self._frontiers()
        self._sites.check([f.event_type for f in open_frontiers])
        cut = self._taker.poll([f for f in open_frontiers if self._may_try(f)])
        if isinstance(cut, Waiting):
            return cut
        self._sites.check(cut.horizons_ms)  # again, as a topic may have been made anew while the cut was taken
        holes = self._sites.holes()
        if any(topic in holes for topic in CONTROL):
            return 0
        return self._close_under(cut.without({t for t in cut.horizons_ms if events_topic(t) in holes}))

    def _close_under(self, cut: Cut) -> int:
        """All hours that the cut allows, each type's in turn."""
        closed = 0
        while chosen := [
            f
            for f in self._frontiers()
            if f.state is State.OPEN and f.hour.end_ms <= cut.horizons_ms.get(f.event_type, 0) and self._may_try(f)
        ]:
            closed += self._close_hours(chosen, cut)
        return closed

    def _close_hours(self, chosen: Collection[Frontier], cut: Cut) -> int:
        refuse_published(self._storage, chosen)
        topics = {event_type: topic for topic, event_type in self._topics(chosen).types.items()}
        offsets = ledger.freeze(self._database, self._lease, chosen, topics)
        frozen = [f for f in self._frontiers() if f.state is State.FROZEN]
        proofs = self._engine.prove(frozen, cut.audit_next)
        proved = [f for f in frozen if not proofs[f.event_type].findings]
        for f in frozen:
            if f not in proved:
                self._refuse(f, proofs[f.event_type])
        seals = {f.event_type: _seal(proofs[f.event_type], cut, offsets[f.event_type]) for f in proved}
        ledger.seal(self._database, self._lease, seals, proved)
        return self._write_sealed()

    def _refuse(self, frontier: Frontier, proof: Proof) -> None:
        ledger.unfreeze(self._database, self._lease, frontier, proof.findings)
        self._not_before_s[frontier.event_type] = self._clock.monotonic_s() + RETRY_SECONDS
        _LOG.error(
            "%s %s is not proved and stays open; trying again in %.0f s. Missing:\n  %s",
            frontier.event_type, frontier.hour, RETRY_SECONDS, "\n  ".join(proof.findings),
        )  # fmt: skip

    def _recover(self) -> None:
        refuse_foreign_root(self._storage, self._frontiers(), ledger.closed_types(self._database))
        for f in self._frontiers():
            if f.state is State.FROZEN:
                _LOG.info("%s %s was frozen when a closer ended: unfrozen, to be proved anew", f.event_type, f.hour)
                ledger.unfreeze(self._database, self._lease, f, ())
        if recovered := self._write_sealed():
            _LOG.info("%d hours that were sealed when a closer ended are closed", recovered)
        with self._database.transaction(self._lease):
            pass  # a closer that was taken over stops here, and deletes nothing
        self._storage.delete(ATTEMPTS_FOLDER)  # of closers that were interrupted

    def _write_sealed(self) -> int:
        """Write, publish and close every sealed hour; returns how many. One that cannot be published holds up its type alone."""
        sealed = [f for f in self._frontiers() if f.state is State.SEALED and self._may_try(f)]
        unwritten, closed = [], 0
        for f in sealed:
            try:
                standing = standing_marker(self._storage, f)
            except Finding as error:
                self._set_back(f, error)
                continue
            if standing is None:
                unwritten.append(f)
            else:
                closed += self._finish(f, standing)
        return closed + (self._write_and_publish(unwritten) if unwritten else 0)

    def _write_and_publish(self, sealed: Collection[Frontier]) -> int:
        attempt = uuid.uuid4().hex
        folder = f"{ATTEMPTS_FOLDER}/{attempt}"
        hours = {f.event_type: self._sealed_hour(f) for f in sealed}
        schema_ids = {s for h in hours.values() for g in h.listed for s in g.schema_ids}
        schemas = {s: remembered_schema(self._database, self._lease, s, self._fetch_schema) for s in sorted(schema_ids)}
        written = self._engine.write(list(hours.values()), {s: text for s, (text, _) in schemas.items()}, f"{folder}/tasks")
        files: dict[str, list[WrittenFile]] = {f.event_type: [] for f in sealed}
        for w in written:
            files[w.event_type].append(w)
        identity = self._database.identity()

        def publish_one(f: Frontier) -> Manifest | Finding:
            manifest = manifest_of(
                f, files[f.event_type], listed_rows=sum(g.rows for g in hours[f.event_type].listed),
                fingerprints={s: mark for s, (_, mark) in schemas.items()}, ledger=identity, attempt=attempt,
                now_ms=self._clock.now_ms(),
            )  # fmt: skip
            try:
                return publish(self._storage, f, files[f.event_type], manifest)
            except Finding as error:
                return error

        with ThreadPoolExecutor(_PUBLISHERS) as pool:
            outcomes = list(pool.map(publish_one, sealed))
        closed = 0
        for f, outcome in zip(sealed, outcomes, strict=True):
            if isinstance(outcome, Finding):
                self._set_back(f, outcome)
            else:
                closed += self._finish(f, outcome)
        self._storage.delete(folder)
        return closed

    def _sealed_hour(self, f: Frontier) -> SealedHour:
        listed = tuple(ledger.listed_groups(self._database, f.event_type, f.hour))
        late = {g.hour_s for g in listed if g.hour_s < f.hour.start_s}
        earlier = tuple(ledger.listed_before(self._database, f.event_type, f.hour, late))
        return SealedHour(f.event_type, f.hour, listed, earlier)

    def _set_back(self, frontier: Frontier, error: Finding) -> None:
        self._not_before_s[frontier.event_type] = self._clock.monotonic_s() + RETRY_SECONDS
        _LOG.error("%s %s is sealed and cannot be published: %s", frontier.event_type, frontier.hour, error)

    def _finish(self, frontier: Frontier, manifest: Manifest) -> int:
        assert frontier.seal is not None
        refuse_other_seal(manifest, frontier.seal, self._database.identity()[0])
        ledger.close(self._database, self._lease, frontier, manifest)
        self._not_before_s.pop(frontier.event_type, None)
        self._metrics.closed(frontier.hour, manifest)
        _LOG.info(
            "%s %s closed as %s: %d events, %d late, %d duplicates removed, %d surplus, %.1f s after its end",
            frontier.event_type, frontier.hour, manifest.grade.value, manifest.events, sum(manifest.late.values()),
            manifest.duplicates_removed, manifest.surplus, (manifest.closed_at_ms - frontier.hour.end_ms) / 1000,
        )  # fmt: skip
        return 1

    def _frontiers(self) -> list[Frontier]:
        return ledger.frontiers(self._database, self._config.parsing.bucket_seconds)

    def _topics(self, chosen: Collection[Frontier]) -> CentralTopics:
        return CentralTopics.of(self._config.kafka, [f.event_type for f in chosen])

    def _may_try(self, frontier: Frontier) -> bool:
        return self._clock.monotonic_s() >= self._not_before_s.get(frontier.event_type, 0.0)


def _seal(proof: Proof, cut: Cut, offsets: tuple[Position, ...]) -> Seal:
    return Seal(
        grade=Grade.PROVED.value,
        method=proof.method,
        cut_at_ms=cut.taken_at_ms,
        audit_next=cut.audit_next,
        audit_records=proof.audit_records,
        promised=proof.promised,
        surplus=proof.surplus,
        excused=(),
        offsets=offsets,
    )
