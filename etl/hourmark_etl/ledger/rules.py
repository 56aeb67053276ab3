"""Rules revisions: the ledger decides their order; the topic is a copy for services."""

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
    """The rules revisions stored in one ledger: declared event types, sources and schemas."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def book(self) -> RulesBook:
        """Return all rules revisions in the ledger.

        Raises:
            Finding: The rules were written by a newer version of the software.
            DamagedRow: A row differs from what was written.
        """
        with self._database.reading() as connection:
            return _book(connection)

    def schemas(self) -> dict[int, KnownSchema]:
        """Return the meaning of each schema id that was ever assigned to a type or control topic.

        Raises:
            DamagedRow: A row differs from what was written.
        """
        return known_schemas(self._database)

    def adopt(self, topic_rules: RulesBook, first_hour: Hour) -> int:
        """Add revisions that only the topic has, as after an older copy of the ledger was restored.

        Hours then wait for every source that these revisions let carry a type. If the ledger has no
        rules yet, no frontiers are created; `put` does that for the declared types.

        Args:
            topic_rules: Revisions from the topic.
            first_hour: First hour of types that are new.

        Returns:
            The number of records added.

        Raises:
            Finding: Ledger and topic contradict each other.
        """
        with self._database.transaction() as connection:
            book = _book(connection)
            begun, known = book.latest is not None, {r.id for r in book.revisions}
            added = _add(connection, book, topic_rules.records.items())
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
        expected: Rules | None,
        first_hour: Hour,
        control_schemas: Mapping[int, KnownSchema] = MappingProxyType({}),
    ) -> list[str]:
        """Put a revision in force, with its schemas and frontier rows, in one transaction.

        Putting the same revision again is harmless.

        Args:
            rules: Revision to put in force.
            expected: Revision that must be in force now; None if there must be none.
            first_hour: First hour of types that are new.
            control_schemas: Schemas of control topics, by schema id.

        Returns:
            The sorted names of the new types.

        Raises:
            UsageError: Another revision was put in force first; the message states the difference.
            Finding: A schema id already has another meaning.
        """
        with self._database.transaction() as connection:
            book = _book(connection)
            standing = book.latest
            if (
                standing is not None
                and standing.id != (expected.id if expected else None)
                and standing.id != rules.id
            ):
                raise UsageError(
                    f"another `types apply` came first: revision {standing.id} is in force now "
                    f"({describe_changes(expected, standing)}). "
                    "Nothing of this one was put in force; bring the declarations together, "
                    "and run it again"
                )
            _add(connection, book, rules.records(), control_schemas)
            types = [t.declaration for t in rules.types.values()]
            return put_frontiers(connection, types, [*rules.sources.values()], first_hour)


def merge_rules(connection: Connection, new_rules: RulesBook) -> None:
    """Add the rules revisions that the ledger lacks.

    Args:
        connection: The transaction.
        new_rules: Revisions to add.

    Raises:
        Finding: A schema id has two meanings.
    """
    _add(connection, _book(connection), new_rules.records.items())


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
