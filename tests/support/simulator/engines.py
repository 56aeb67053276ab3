"""The real engine in this process, and beside it the plainest proof there can be: the two must
agree.

The plain one: every promise below the cut, of the frontier's hour, or earlier and not settled,
against distinct ids of all rows that are listed, here or before. It needs every staged file for
ever, which the real one does not.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Sequence

import pyarrow.parquet as pq
from sqlalchemy import select
from tests.support import ledger_queries as ledger
from tests.support.simulator.truth import Broken

from hourmark.config.loading import Config
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.proof.proof import Proof
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import AUDIT, FIRST_SITE, AuditOffsets, Frontier, StagedGroup
from hourmark_etl.storage import Storage

_Key = tuple[int, bytes]  # hour, range id


class ComparedEngine(Engine):
    """Broken where the plain proof says otherwise; unless it is `blind`, as files were damaged or
    cleaned up.
    """

    def __init__(
        self, storage: Storage, database: Database, config: Config, blind: Callable[[], bool]
    ) -> None:
        super().__init__(storage, database, config)
        self.plain, self.blind = PlainProof(storage, database, config), blind

    def prove(self, frozen: Collection[Frontier], audit_next: AuditOffsets) -> dict[str, Proof]:
        """See `Engine`."""
        proofs = super().prove(frozen, audit_next)
        for f in frozen:
            self._compare(f, proofs[f.event_type], audit_next)
        return proofs

    def prove_by_sums(
        self, frozen: Sequence[Frontier], audit_next: AuditOffsets
    ) -> list[Proof | None]:
        """See `Engine`."""
        proofs = super().prove_by_sums(frozen, audit_next)
        for f, proof in zip(frozen, proofs, strict=True):
            if proof is not None:
                self._compare(f, proof, audit_next)
        return proofs

    def _compare(self, f: Frontier, proof: Proof, audit_next: AuditOffsets) -> None:
        if self.blind():
            return
        found = self.plain.unmet(f, audit_next)
        if bool(found) != bool(proof.findings) and not self.plain.waived_before(f):
            raise Broken(
                f"{f.event_type} {f.hour}: the proof says {proof}, plainly there is {found}"
            )


@dataclasses.dataclass(frozen=True)
class PlainProof:
    """Reads everything, every time."""

    storage: Storage
    database: Database
    config: Config

    def waived_before(self, f: Frontier) -> bool:
        """Whether a bucket of the type was closed without a proof: what it waived may be told apart
        in more than one way.
        """
        query = select(tables.buckets.c.grade).where(
            tables.buckets.c.type == f.event_type, tables.buckets.c.grade != "proved"
        )
        with self.database.reading() as connection:
            return connection.execute(query).first() is not None

    def unmet(self, f: Frontier, audit_next: AuditOffsets) -> list[str]:
        """Promises that are not kept, human-readable."""
        promises = self._promises(f, audit_next)
        listed = ledger.read_assigned_groups(self.database, f.event_type, f.hour)
        hours = {hour for hour, _ in promises} | {g.hour_s for g in listed}
        before = ledger.listed_before(self.database, f.event_type, f.hour, hours)
        held: dict[_Key, set[bytes]] = collections.defaultdict(set)
        for group in [*listed, *before]:
            for range_id, event_id in self._rows(group):
                held[group.hour_s, range_id].add(event_id)
        return [
            f"range {range_id.hex()}: {count} promised, {len(held[hour, range_id])} found"
            for (hour, range_id), (count, total) in sorted(promises.items())
            if (len(held[hour, range_id]), _sum(held[hour, range_id])) != (count, total)
        ]

    def _promises(self, f: Frontier, below: AuditOffsets) -> dict[_Key, tuple[int, int]]:
        files, groups = tables.staged_files, tables.audit_groups
        query = (
            select(files.c.path, groups.c.site)
            .join(groups, groups.c.file_id == files.c.id)
            .distinct()
        )
        with self.database.reading() as connection:
            paths = list(connection.execute(query.where(files.c.kind == AUDIT)))
        found: dict[_Key, tuple[int, int]] = {}
        for path, named in paths:
            site = named or FIRST_SITE
            settled, cut = f.settled_next.offset_of(site), below.offset_of(site)
            with self.storage.open(path) as file:
                rows = pq.read_table(file).to_pylist()
            for row in rows:
                counts = row["hour"] == f.hour.start_s or (
                    row["hour"] < f.hour.start_s and row["offset"] >= settled
                )
                if row["type"] == f.event_type and row["offset"] < cut and counts:
                    found[row["hour"], row["range_id"]] = (row["count"], row["sum"] % (1 << 64))
        return found

    def _rows(self, group: StagedGroup) -> list[tuple[bytes, bytes]]:
        try:
            with self.storage.open(group.path) as file:
                table = pq.read_table(file, columns=["range_id", "event_id"])
        except (OSError, ValueError) as error:
            raise Unreadable(group.path, str(error)) from error
        rows = table.slice(group.first_row, group.rows).to_pydict()
        return list(zip(rows["range_id"], rows["event_id"], strict=True))


def _sum(ids: Collection[bytes]) -> int:
    return sum(int.from_bytes(i[8:], "big") for i in ids) % (1 << 64)
