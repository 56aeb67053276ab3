"""Histories that hold say little unless a fault turns them red: each fault is planted in the real
code, and must be found.

Seeds are fixed, so a fault is found by the same history each time, unless histories or code have
changed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import select, update
from tests.simulation.histories import WEIGHTS, first_broken
from tests.support.simulator.world import World
from tests.support.tiers import representative

from hourmark.avro.datum_check import DatumVerdict
from hourmark.records.audit import AuditRecord
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.manifest import Manifest
from hourmark_etl import arrow
from hourmark_etl.closing import attempts, sealing
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.ids.lookups import IdQuery
from hourmark_etl.ledger import batches, tables
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.model import EventTotals, Frontier, HourState, StagedBatch
from hourmark_etl.staging import stage
from hourmark_etl.storage import Storage

pytestmark = pytest.mark.slow

HISTORIES_MAX = 40
# The rules of a cut know no leaders, no values and no records of outsiders, and each action more
# makes the others rarer.
NEWER = ("elect", "change_value", "change_key", "outsider", "older_service")
# Faults of the closing core show in histories where nobody leaves and the ledger stays; see
# test_planted_world_faults too.
CALM = {
    **{name: weight for name, weight in WEIGHTS.items() if name not in NEWER},
    **dict.fromkeys(
        (
            "host_leaves",
            "service_leaves",
            "second_service",
            "all_leave",
            "lose_ledger",
            "keep_checks",
            "read_otherwise",
        ),
        0,
    ),
    "read_unrecorded": 0,
}
Plant = Callable[[pytest.MonkeyPatch], None]


def stage_into_frozen(patch: pytest.MonkeyPatch) -> None:
    """Staging gives a group its bucket at once, also while that bucket is frozen."""
    real = batches.commit_batch

    def commit(database: Database, lease: Lease, batch: StagedBatch, *more: Any) -> None:
        real(database, lease, batch, *more)
        with database.transaction(lease) as connection:
            states = select(
                tables.frontiers.c.type, tables.frontiers.c.hour, tables.frontiers.c.state
            )
            for event_type, hour, state in connection.execute(states).all():
                if state != HourState.OPEN.value:
                    groups = tables.groups.c
                    connection.execute(
                        update(tables.groups)
                        .where(
                            groups.type == event_type,
                            groups.listed_hour.is_(None),
                            groups.hour <= hour,
                        )
                        .values(listed_hour=hour)
                    )

    patch.setattr(batches, "commit_batch", commit)


def no_cross_bucket(patch: pytest.MonkeyPatch) -> None:
    """Late events are not looked up in closed buckets."""

    def held(storage: Storage, asked: Sequence[IdQuery]) -> list[npt.NDArray[np.bool_]]:
        return [np.zeros(len(of.ids), bool) for of in asked]

    patch.setattr("hourmark_etl.closing.write.writing.find_contained_ids", held)


def mirror_gap(patch: pytest.MonkeyPatch) -> None:
    """Source retention overtakes the mirror, which skips ahead, and nobody compares log starts."""
    patch.setattr("hourmark_etl.closing.cut.edge.find_gaps", lambda previous, starts: [])


def zombie_closer(patch: pytest.MonkeyPatch) -> None:
    """Publishing overwrites what is there."""
    real = attempts.publish_prepared

    def publish(storage: Storage, frontier: Frontier, manifest: Manifest) -> Manifest:
        storage.delete(frontier.hour.bucket_path(frontier.event_type))
        return real(storage, frontier, manifest)

    patch.setattr("hourmark_etl.closing.publishing.publish_prepared", publish)


def cut_by_time(patch: pytest.MonkeyPatch) -> None:
    """The closer does not wait until the ledger reaches the central ends taken after the mirror."""
    patch.setattr(
        "hourmark_etl.closing.cut.clusters.LedgerProgress.find_unstaged_partitions",
        lambda self, ends: {},
    )


def count_only(patch: pytest.MonkeyPatch) -> None:
    """A mirror that drops and doubles, and a proof that counts rows instead of distinct ids with a
    digest.
    """

    def by_sums(listed: Mapping[int, EventTotals], promised: Mapping[int, EventTotals]) -> Proof:
        rows, wanted = (sum(s.events for s in side.values()) for side in (listed, promised))
        return Proof(
            method="sums",
            audit_records=0,
            promised=wanted,
            unaudited=0,
            findings=() if wanted <= rows else ("fewer rows than promised",),
            listed=sum(listed.values(), EventTotals()),
        )

    patch.setattr("hourmark_etl.closing.proof.proof.prove_by_sums", by_sums)


def no_proof(patch: pytest.MonkeyPatch) -> None:
    """The same mirror, and hours are closed when the offsets arrived."""
    real: Any = sealing.decide_seal

    def decide(frontier: Frontier, proof: Proof, *rest: Any) -> Any:
        return real(
            frontier,
            Proof(
                method=proof.method,
                audit_records=proof.audit_records,
                promised=proof.promised,
                unaudited=proof.unaudited,
            ),
            *rest,
        )

    patch.setattr("hourmark_etl.closing.sealing.decide_seal", decide)


def recut_new_id(patch: pytest.MonkeyPatch) -> None:
    """A lost checkpoint makes new ids."""
    real, count = LineIds.make, itertools.count()

    def make(self: LineIds, time_ms: int, offset: int, line: bytes) -> EventId:
        return real(self, time_ms, offset, line + str(next(count)).encode())

    patch.setattr(LineIds, "make", make)


def copies_believed(patch: pytest.MonkeyPatch) -> None:
    """Late rows of a range that was settled are taken for copies of what stands in closed
    buckets.
    """
    patch.setattr("hourmark_etl.closing.proof.proof.check_late_rows", lambda *_: {})


def checksums_ignored(patch: pytest.MonkeyPatch) -> None:
    """Promises are staged without their checksums, so the proof compares ids alone."""

    def decode(value: bytes) -> AuditRecord:
        record = AuditRecord.decode(value)
        promised = tuple(dataclasses.replace(p, checksum=None) for p in record.promised)
        return dataclasses.replace(record, promised=promised)

    patch.setattr(stage, "AuditRecord", SimpleNamespace(decode=decode))


def ids_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Staging does not compare the event id in a value with the one in its key."""
    real = arrow.datum_verdicts

    def verdicts(*of: Any) -> npt.NDArray[np.uint8]:
        found = real(*of)
        return np.where(found == DatumVerdict.OTHER_ID, np.uint8(DatumVerdict.VALID), found)

    patch.setattr("hourmark_etl.staging.records.datum_verdicts", verdicts)


def set_aside_unseen(patch: pytest.MonkeyPatch) -> None:
    """Records that fail are left out, and nothing counts them."""
    patch.setattr(batches, "put_set_aside", lambda *_: [])


# More of what a fault needs to show.
PLANTS: Mapping[str, tuple[Plant, Mapping[str, int]]] = {
    "stage-into-frozen": (stage_into_frozen, {"go_on_at": 20}),
    "no-cross-bucket": (no_cross_bucket, {}),
    "mirror-gap": (mirror_gap, {"retention_overtakes": 12}),
    "zombie-closer": (zombie_closer, {"pause": 12, "wake": 6}),
    "cut-by-time": (cut_by_time, {"send_all": 12, "haste": 24, "flow": 3}),
    "count-only": (count_only, {"mirror_drops": 10}),
    "no-proof": (no_proof, {"mirror_drops": 10}),
    "recut-new-id": (recut_new_id, {}),
    "copies-believed": (copies_believed, {"read_unrecorded": 10}),
    "checksums-ignored": (checksums_ignored, {"change_value": 10}),
    "ids-not-compared": (ids_not_compared, {"outsider": 10}),
    "set-aside-unseen": (set_aside_unseen, {"outsider": 10}),
}


@pytest.mark.parametrize("name", representative([*PLANTS]))
def test_a_planted_fault_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, ledgers: Path, template: Path
) -> None:
    plant, more = PLANTS[name]
    # The engine alone: what is promised must be seen to break, and not only that two proofs differ.
    monkeypatch.setattr(
        World, "engine", lambda world, database: Engine(world.storage, database, world.config)
    )
    plant(monkeypatch)
    found = first_broken(range(HISTORIES_MAX), {**CALM, **more}, ledgers, template)
    assert found is not None, (
        f"{name} ({plant.__doc__}) was planted, and {HISTORIES_MAX} histories hold all the same"
    )
    print(f"{name}: history {found[0]}: {found[1]}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    representative(
        [
            "stage-into-frozen",
            "mirror-gap",
            "zombie-closer",
            "count-only",
            "copies-believed",
            "checksums-ignored",
            "ids-not-compared",
        ]
    ),
)
def test_the_same_histories_hold_without_the_fault(
    name: str, ledgers: Path, template: Path
) -> None:
    _, more = PLANTS[name]
    assert first_broken(range(3), {**CALM, **more}, ledgers, template) is None
