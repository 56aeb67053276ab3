"""A staged file that cannot be read is replaced by one that was staged again from the same spans: same groups, another file."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from typing import Final

import zstandard
from sqlalchemy import bindparam, or_, select, update

from etl.ledger import tables
from etl.ledger.database import Database, Lease
from etl.ledger.rows import Span, StagedFile, StagedGroup, to_unsigned
from hourmark.errors import Finding

_SUFFIX: Final = ".parquet"
_AGAIN: Final = re.compile(r"\.again-\d+-[0-9a-f]{32}(?=\.parquet$)")


@dataclasses.dataclass(frozen=True, slots=True)
class GroupSums:
    """What a group amounts to, wherever it stands: rows and sum of tails (of promises: promised counts and sums)."""

    rows: int
    tail_sum: int


@dataclasses.dataclass(frozen=True)
class KnownFile:
    """A staged file, its batch's folder, and its groups by (type, hour)."""

    file_id: int
    file: StagedFile
    folder: str
    groups: Mapping[tuple[str, int], GroupSums]


def path_again(path: str, made: str, number: int) -> str:
    """Where the file that was `made` in its place is to stand: beside it, so that a rebuilt ledger finds it by the old name. Its
    digest stays at the end."""
    return f"{_stem(path)}.again-{number}-{made.rpartition('-')[2]}"


def is_again(path: str) -> bool:
    """Whether the file was staged again once already."""
    return _AGAIN.search(path) is not None


def standing_again(path: str, standing: Collection[str]) -> str | None:
    """The file that stands in its place; None if it was not staged again. Whole files all of them, of the same rows."""
    prefix = f"{_stem(path)}.again-"
    return max((p for p in standing if p.startswith(prefix)), default=None)


def _stem(path: str) -> str:
    return _AGAIN.sub("", path).removesuffix(_SUFFIX)


def known_file(database: Database, path: str) -> KnownFile:
    """Finding if the ledger does not name the file."""
    with database.reading() as connection:
        row = connection.execute(select(tables.staged_files).where(tables.staged_files.c.path == path)).mappings().one_or_none()
        if row is None:
            raise Finding(f"the ledger names no staged file {path}; `hourmark ledger check` compares ledger and storage")
        spans = tuple(Span(*s) for s in json.loads(zstandard.decompress(row["spans"])))
        groups: dict[tuple[str, int], GroupSums] = {}
        for table in (tables.groups, tables.audit_groups):
            query = select(table.c.type, table.c.hour, table.c.rows, table.c.tail_sum).where(table.c.file_id == row["id"])
            for event_type, hour, rows, tail_sum in connection.execute(query):
                groups[event_type, hour] = GroupSums(rows, to_unsigned(tail_sum))
    return KnownFile(row["id"], StagedFile(path, row["kind"], row["rows"], spans), row["batch"], groups)


def types_in(database: Database, path: str) -> set[str]:
    """The types whose next buckets need events, or promises, of the file; none if the ledger does not name it any more."""
    groups, audits, frontiers = tables.groups.c, tables.audit_groups.c, tables.frontiers.c
    needed = (
        (groups, or_(groups.listed_hour.is_(None), groups.listed_hour >= frontiers.hour)),
        (audits, or_(audits.last_offset >= frontiers.settled_next, audits.hour >= frontiers.hour)),
    )
    with database.reading() as connection:
        return {
            event_type
            for columns, still in needed
            for event_type in connection.execute(
                select(columns.type)
                .join(tables.staged_files, tables.staged_files.c.id == columns.file_id)
                .join(tables.frontiers, frontiers.type == columns.type)
                .where(tables.staged_files.c.path == path, still)
            ).scalars()
        }


def replace_file(database: Database, lease: Lease, known: KnownFile, path: str, groups: Collection[StagedGroup]) -> None:
    """From now on the file's rows stand in `path`; `groups` say where (none for promises)."""
    table = tables.groups
    with database.transaction(lease) as connection:
        connection.execute(update(tables.staged_files).where(tables.staged_files.c.id == known.file_id).values(path=path))
        if groups:
            connection.execute(
                update(table)
                .where(
                    table.c.file_id == known.file_id,
                    table.c.type == bindparam("of_type"),
                    table.c.hour == bindparam("of_hour"),
                )
                .values(first_row=bindparam("row")),
                [{"of_type": g.event_type, "of_hour": g.hour_s, "row": g.first_row} for g in groups],
            )
