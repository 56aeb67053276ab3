"""The real engine in this process, and beside it the plainest proof there can be: the two must agree.

The plain one: every promise below the cut, of the frontier's hour, or earlier and not settled, against distinct ids of all rows
that are listed, here or before. It needs every staged file for ever, which the real one does not.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Mapping

import pyarrow.parquet as pq
from sqlalchemy import select

from etl.closing.comparing import Compared
from etl.closing.containers import WrittenHour
from etl.closing.engine import LocalEngine
from etl.closing.proof import Proof
from etl.closing.writing import SealedHour
from etl.errors import Unreadable
from etl.ledger import tables
from etl.ledger.database import Database
from etl.ledger.rows import AUDIT, Frontier, StagedGroup
from etl.storage import Storage
from hourmark.config import Config
from tests.property.truth import Broken
from tests.support import ledger_queries as ledger

_Key = tuple[int, bytes]  # hour, range id


@dataclasses.dataclass(frozen=True)
class ComparedEngine:
    """`LocalEngine`; Broken where the plain proof says otherwise."""

    local: LocalEngine
    plain: PlainProof
    blind: Callable[[], bool]  # whether files were damaged or cleaned up: then there is nothing to compare with

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        """See `etl.closing.engine.Engine`."""
        proofs = self.local.prove(frozen, audit_next)
        for f in frozen if not self.blind() else ():
            found = self.plain.unkept(f, audit_next)
            if bool(found) != bool(proofs[f.event_type].findings) and not self.plain.excused_before(f):
                raise Broken(f"{f.event_type} {f.hour}: the proof says {proofs[f.event_type]}, plainly there is {found}")
        return proofs

    def compare(self, without: Collection[str]) -> Compared | None:
        """See `etl.closing.engine.Engine`."""
        return self.local.compare(without)

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenHour]:
        """See `etl.closing.engine.Engine`."""
        return self.local.write(sealed, schemas, folder)


@dataclasses.dataclass(frozen=True)
class PlainProof:
    """Reads everything, every time."""

    storage: Storage
    database: Database
    config: Config

    def excused_before(self, f: Frontier) -> bool:
        """Whether a bucket of the type was closed without a proof: what it excused may be told apart in more than one way."""
        query = select(tables.buckets.c.grade).where(tables.buckets.c.type == f.event_type, tables.buckets.c.grade != "proved")
        with self.database.reading() as connection:
            return connection.execute(query).first() is not None

    def unkept(self, f: Frontier, audit_next: int) -> list[str]:
        """Promises that are not kept, for people."""
        promises = self._promises(f, audit_next)
        listed = ledger.listed_groups(self.database, f.event_type, f.hour)
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

    def _promises(self, f: Frontier, below: int) -> dict[_Key, tuple[int, int]]:
        query = select(tables.staged_files.c.path).where(tables.staged_files.c.kind == AUDIT)
        with self.database.reading() as connection:
            paths = list(connection.execute(query).scalars())
        found: dict[_Key, tuple[int, int]] = {}
        for path in paths:
            with self.storage.open(path) as file:
                rows = pq.read_table(file).to_pylist()
            for row in rows:
                counts = row["hour"] == f.hour.start_s or (row["hour"] < f.hour.start_s and row["offset"] >= f.settled_next)
                if row["type"] == f.event_type and row["offset"] < below and counts:
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
