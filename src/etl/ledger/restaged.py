"""A staged file that cannot be read is replaced by one that was staged again from the same spans: same groups, another file.

Where that cannot be, an order gives the file up, for one type.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import zstandard
from sqlalchemy import delete, select, union, update

from etl.ledger import tables
from etl.ledger.database import Database, Lease
from etl.ledger.digests import check, with_digest
from etl.ledger.frontiers import force_sealed
from etl.ledger.holes import Hole, put_holes
from etl.ledger.leftovers import NEEDED
from etl.ledger.rows import Frontier, Span, StagedFile, StagedGroup, Sums, to_unsigned
from hourmark.errors import Finding

_PLACES_MAX: Final = 5


@dataclasses.dataclass(frozen=True)
class KnownFile:
    """A staged file, its batch's folder, and its groups by (type, hour)."""

    file_id: int
    file: StagedFile
    folder: str
    groups: Mapping[tuple[str, int], Sums]


def known_file(database: Database, path: str) -> KnownFile:
    """Finding if the ledger does not name the file."""
    with database.reading() as connection:
        row = connection.execute(select(tables.staged_files).where(tables.staged_files.c.path == path)).mappings().one_or_none()
        if row is None:
            raise Finding(f"the ledger names no staged file {path}; `hourmark ledger check` compares ledger and storage")
        check(tables.staged_files, row)
        spans = tuple(Span(*s) for s in json.loads(zstandard.decompress(row["spans"])))
        groups: dict[tuple[str, int], Sums] = {}
        for table in (tables.groups, tables.audit_groups):
            for of in connection.execute(select(table).where(table.c.file_id == row["id"])).mappings():
                check(table, of, path, of["type"])
                groups[of["type"], of["hour"]] = Sums(of["rows"], digest=to_unsigned(of["tail_sum"]))
    return KnownFile(row["id"], StagedFile(path, row["kind"], row["rows"], spans), row["batch"], groups)


def types_in(database: Database, path: str) -> set[str]:
    """The types whose next buckets need events, or promises, of the file; none if the ledger does not name it any more."""
    needed = (
        select(groups.c.type)
        .join(tables.staged_files, tables.staged_files.c.id == groups.c.file_id)
        .join(tables.frontiers, tables.frontiers.c.type == groups.c.type)
        .where(tables.staged_files.c.path == path, still)
        for groups, still in NEEDED.items()
    )
    return set(database.ask(union(*needed)).scalars())


def replace_file(database: Database, lease: Lease, known: KnownFile, path: str, groups: Collection[StagedGroup]) -> None:
    """From now on the file's rows stand in `path`; `groups` say where (none for promises)."""
    files, rows = tables.staged_files, {(g.event_type, g.hour_s): g.first_row for g in groups}
    with database.transaction(lease) as connection:
        for table in (tables.groups, tables.audit_groups):
            for row in connection.execute(select(table).where(table.c.file_id == known.file_id)).mappings().all():
                check(table, row, known.file.path, row["type"])
                moved = {**row, "first_row": rows[row["type"], row["hour"]]} if table is tables.groups else row
                connection.execute(update(table).where(table.c.id == row["id"]).values(**with_digest(table, moved, path)))
        row = connection.execute(select(files).where(files.c.id == known.file_id)).mappings().one()
        check(files, row)
        connection.execute(update(files).where(files.c.id == known.file_id).values(**with_digest(files, {**row, "path": path})))


def give_up(database: Database, lease: Lease, known: KnownFile, f: Frontier, hole: Hole, forced: str) -> None:
    """The type no longer waits for its rows of the file; hours that were sealed with them are forced. `forced`: whose word it is.

    Offsets and audit cut of a seal stay: a closer that has written such an hour whole may still publish it.
    """
    groups = tables.groups
    with database.transaction(lease) as connection:
        own = (groups.c.file_id == known.file_id, groups.c.type == f.event_type)
        lost = defaultdict[int, Sums](Sums)
        for hour_s, rows, tail_sum in connection.execute(
            select(groups.c.listed_hour, groups.c.rows, groups.c.tail_sum).where(*own)
        ):
            lost[hour_s] += Sums(rows, rows, to_unsigned(tail_sum))
        for table in (groups, tables.audit_groups):
            connection.execute(delete(table).where(table.c.file_id == known.file_id, table.c.type == f.event_type))
        force_sealed(connection, f, lost, (forced, hole.what))
        put_holes(connection, [hole])


def places(spans: Sequence[Span]) -> str:
    """Topics, partitions and offsets, as many as a person reads."""
    named = ", ".join(f"topic {s.topic} partition {s.partition} offsets [{s.start}, {s.end})" for s in spans[:_PLACES_MAX])
    return named if len(spans) <= _PLACES_MAX else f"{named} and {len(spans) - _PLACES_MAX} more partitions"
