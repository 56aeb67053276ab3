"""Rules revisions: the ledger has them first, and decides who comes first; the topic is a copy of it for delivery services."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, insert, select

from etl.errors import DamagedRow
from etl.ledger import tables
from etl.ledger.database import Database
from etl.ledger.frontier_rows import put_frontiers
from etl.ledger.schemas import KnownSchema, put_schemas
from hourmark.avro import canonical_json
from hourmark.errors import Finding, UsageError
from hourmark.hours import Hour
from hourmark.rules import Rules, RulesBook, TypeVersion
from hourmark.rules_change import changes


class LedgerRules:
    """The rules of one ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def book(self) -> RulesBook:
        """Every revision that was ever put."""
        with self._database.reading() as connection:
            return _book(connection)

    def adopt(self, others: RulesBook) -> int:
        """Take what only the topic has, as after a rebuild or an older copy; how many records. Finding if the two contradict."""
        with self._database.transaction() as connection:
            book = _book(connection)
            new = {key: value for key, value in others.records.items() if key not in book.records}
            _add(connection, book, new)
        return len(new)

    def put(self, rules: Rules, after: Rules | None, first_hour: Hour) -> list[str]:
        """Put the revision in force, with its schemas and frontier rows, if `after` still is; the types that are new.

        All of it or nothing, and it can be repeated. UsageError, which says what changed, if another came first.
        """
        with self._database.transaction() as connection:
            book = _book(connection)
            standing = book.latest
            if standing is not None and standing.id != (after.id if after else None) and standing.id != rules.id:
                raise UsageError(
                    f"another `types apply` came first: revision {standing.id} is in force now ({changes(after, standing)}). "
                    "Nothing of this one was put in force; bring the declarations together, and run it again"
                )
            _add(connection, book, {key: value for key, value in rules.records() if key not in book.records})
            types = [t.declaration for t in rules.types.values()]
            return put_frontiers(connection, types, [*rules.sources.values()], first_hour)


def put_book(connection: Connection, book: RulesBook) -> None:
    """Fill an empty ledger's rules. Finding if ids have two meanings."""
    _add(connection, RulesBook(), book.records)


def known_schema(version: TypeVersion) -> KnownSchema:
    """What the ledger keeps of a version."""
    return KnownSchema(*version.meaning, canonical_json(version.schema))


def _book(connection: Connection) -> RulesBook:
    book = RulesBook()
    for key, value in connection.execute(select(tables.rules.c.key, tables.rules.c.value)):
        try:
            book.add(key, value)
        except ValueError as error:
            raise DamagedRow(tables.rules.name, key) from error
    return book


def _add(connection: Connection, book: RulesBook, new: Mapping[str, str]) -> None:
    for key, value in new.items():
        book.add(key, value)
    try:
        put_schemas(connection, ((schema_id, known_schema(version)) for schema_id, version in book.schemas().items()))
    except ValueError as error:
        raise Finding(str(error)) from error
    if new:
        connection.execute(insert(tables.rules), [{"key": key, "value": value} for key, value in new.items()])
