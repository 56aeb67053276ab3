"""The plainest proof there can be, over the real staged files: what the property tests prove with, beside the real one.

Every promise below the cut, of the frontier's hour, or earlier and not settled, against distinct ids of all rows that are listed,
here or before.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping

import pyarrow.parquet as pq

from etl.closing.proof import Proof
from etl.closing.runner import InProcess
from etl.closing.writing import SealedHour, WrittenFile, write_on
from etl.errors import Unreadable
from etl.ledger import frontiers as ledger
from etl.ledger.database import Database
from etl.ledger.rows import Frontier, StagedGroup, to_unsigned
from etl.storage import Storage
from hourmark.config import Config

_Key = tuple[int, bytes]  # hour, range id


@dataclasses.dataclass(frozen=True)
class PlainEngine:
    """See `etl.closing.engine.Engine`; in this process."""

    storage: Storage
    database: Database
    config: Config

    def prove(self, frozen: Collection[Frontier], audit_next: int) -> dict[str, Proof]:
        return {f.event_type: self._prove(f, audit_next) for f in frozen}

    def write(self, sealed: Collection[SealedHour], schemas: Mapping[int, str], folder: str) -> list[WrittenFile]:
        return write_on(InProcess(), self.storage, self.database, self.config, sealed, schemas, folder)

    def _prove(self, f: Frontier, audit_next: int) -> Proof:
        promises = self._promises(f, audit_next)
        listed = ledger.listed_groups(self.database, f.event_type, f.hour)
        hours = {hour for hour, _ in promises} | {g.hour_s for g in listed}
        before = ledger.listed_before(self.database, f.event_type, f.hour, hours)
        held: dict[_Key, set[bytes]] = collections.defaultdict(set)
        for group in [*listed, *before]:
            for range_id, event_id in self._rows(group):
                held[group.hour_s, range_id].add(event_id)
        findings = tuple(
            f"range {range_id.hex()}: {count} promised, {len(held[hour, range_id])} found"
            for (hour, range_id), (count, total) in sorted(promises.items())
            if (len(held[hour, range_id]), _sum(held[hour, range_id])) != (count, total)
        )
        return Proof("join", len({r for _, r in promises}), sum(c for c, _ in promises.values()), 0, findings)

    def _promises(self, f: Frontier, below: int) -> dict[_Key, tuple[int, int]]:
        groups = ledger.audit_groups(self.database, f.event_type, {f.hour.start_s}, below)
        groups += ledger.new_audit_groups(self.database, f.event_type, f.hour, f.settled_next, below)
        found: dict[_Key, tuple[int, int]] = {}
        for path in {g.path for g in groups}:
            with self.storage.open(path) as file:
                rows = pq.read_table(file).to_pylist()
            for row in rows:
                counts = row["hour"] == f.hour.start_s or (row["hour"] < f.hour.start_s and row["offset"] >= f.settled_next)
                if row["type"] == f.event_type and row["offset"] < below and counts:
                    found[row["hour"], row["range_id"]] = (row["count"], to_unsigned(row["sum"]))
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
