"""Rules revisions: the ledger has them first, and decides who comes first; the topic is a copy of
it for delivery services.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection, insert, select

from hourmark.errors import Finding, UsageError
from hourmark.records.hours import Hour
from hourmark.rules.change import describe_changes
from hourmark.rules.revision import KnownSchema, Record, Rules, RulesBook, key_matches_content
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import put_frontiers
from hourmark_etl.ledger.schemas import known_schemas, put_schemas


class LedgerRules:
    """The rules of one ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def book(self) -> RulesBook:
        """Every revision that was ever put."""
        with self._database.reading() as connection:
            return _book(connection)

    def schemas(self) -> dict[int, KnownSchema]:
        """What each id stands for that was ever given to a type, or to a control topic."""
        return known_schemas(self._database)

    def adopt(self, others: RulesBook, first_hour: Hour) -> int:
        """Take what only the topic has, as after an older copy came back; how many records.

        Finding if the two contradict.

        Hours wait for every source that such a revision lets carry a type; types that are new begin
        at `first_hour`. An empty ledger takes the rules alone: nothing tells where types begin, and
        `put` says where the declared ones do.
        """
        with self._database.transaction() as connection:
            book = _book(connection)
            begun, known = book.latest is not None, {r.id for r in book.revisions}
            added = _add(connection, book, others.records.items())
            for rules in (r for r in book.revisions if begun and r.id not in known):
                put_frontiers(
                    connection,
                    [t.declaration for t in rules.types.values()],
                    [*rules.sources.values()],
                    first_hour,
                )
        return added

    def put(
        self,
        rules: Rules,
        after: Rules | None,
        first_hour: Hour,
        own: Mapping[int, KnownSchema] = MappingProxyType({}),
    ) -> list[str]:
        """Put the revision in force, with its schemas, those of control topics, and frontier rows,
        if `after` still is.

        All of it or nothing, and it can be repeated; the types that are new. UsageError, which says
        what changed, if another came first.
        """
        with self._database.transaction() as connection:
            book = _book(connection)
            standing = book.latest
            if (
                standing is not None
                and standing.id != (after.id if after else None)
                and standing.id != rules.id
            ):
                raise UsageError(
                    f"another `types apply` came first: revision {standing.id} is in force now "
                    f"({describe_changes(after, standing)}). "
                    "Nothing of this one was put in force; bring the declarations together, "
                    "and run it again"
                )
            _add(connection, book, rules.records(), own)
            types = [t.declaration for t in rules.types.values()]
            return put_frontiers(connection, types, [*rules.sources.values()], first_hour)


def put_book(connection: Connection, book: RulesBook) -> None:
    """Add what the ledger's rules lack of these. Finding if ids have two meanings."""
    _add(connection, _book(connection), book.records.items())


def _book(connection: Connection) -> RulesBook:
    book = RulesBook()
    for key, value in connection.execute(select(tables.rules.c.key, tables.rules.c.value)):
        try:
            book.add(key, value)
        except ValueError as error:
            if key_matches_content(key, value):
                raise Finding(
                    f"the ledger's rules were written by a later software: {error}; "
                    "upgrade this one"
                ) from error
            raise DamagedRow(tables.rules.name, key) from error
    return book


def _add(
    connection: Connection,
    book: RulesBook,
    records: Iterable[Record],
    own: Mapping[int, KnownSchema] = MappingProxyType({}),
) -> int:
    """Those that are new to the book; how many."""
    new = [(key, value) for key, value in records if key not in book.records]
    try:
        for record in new:
            book.add(*record)
        schemas = {
            i: KnownSchema.from_schema(version.declaration.name, version.schema)
            for i, version in book.schemas().items()
        }
        put_schemas(connection, [*schemas.items(), *own.items()])
    except ValueError as error:
        raise Finding(str(error)) from error
    if new:
        connection.execute(
            insert(tables.rules), [{"key": key, "value": value} for key, value in new]
        )
    return len(new)
