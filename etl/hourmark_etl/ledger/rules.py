"""Rules revisions: the ledger decides their order; the topic is a copy for services."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection, insert, select

from hourmark.config.groups import BucketFormat
from hourmark.errors import Finding, UsageError
from hourmark.records.hours import Hour
from hourmark.rules.change import describe_changes
from hourmark.rules.revision import (
    KnownSchema,
    Record,
    Rules,
    RulesBook,
    key_matches_content,
    revision_order,
)
from hourmark_etl.errors import DamagedRow
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import put_frontiers
from hourmark_etl.ledger.schemas import known_schemas, put_schemas


class LedgerRules:
    """Reads and writes the rules revisions in a ledger.

    A rules revision is one version of the complete declarations of event types, sources and
    schemas. All methods raise `Unavailable` if the database does not respond.

    Args:
        database: The ledger (the ETL's state database).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def book(self) -> RulesBook:
        """Return all rules revisions in the ledger.

        A rules revision is one version of the complete declarations of event types, sources and
        schemas. The ledger is the state database of the ETL.

        Returns:
            The revisions; none if the ledger has no rules yet.

        Raises:
            Finding: The rules were written by a newer version of the software.
            DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
        """
        with self._database.reading() as connection:
            return _book(connection)

    def schemas(self) -> dict[int, KnownSchema]:
        """Return the event type and schema of every schema id, including those of control topics.

        The ledger is the state database of the ETL. Control topics contain audit records and host
        reports.

        Returns:
            Event type and schema by schema id; empty if the ledger has no rules yet.

        Raises:
            DamagedRow: A ledger row does not match its digest; restore or rebuild the ledger.
        """
        return known_schemas(self._database)

    def adopt(self, topic_rules: RulesBook, first_hour: Hour) -> int:
        """Add the rules revisions that exist in the Kafka topic of rules but not in the ledger.

        A rules revision is one version of the complete declarations of event types, sources and
        schemas. Call this method after an older copy of the ledger (the ETL's state database) was
        restored, because the copy lacks later revisions. Open hours are then not closed before all
        log sources that the added revisions declare have delivered. If the ledger had no rules at
        all, no event types are created; call `put` to create the declared types.

        Args:
            topic_rules: All revisions in the Kafka topic of rules.
            first_hour: First hour of event types that the ledger does not have yet.

        Returns:
            The number of rules records that were added; 0 if the ledger is complete.

        Raises:
            Finding: The ledger and the topic contradict each other.
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
        """Make a rules revision current, and create the rows of new event types and schemas.

        A rules revision is one version of the complete declarations of event types, sources and
        schemas. All changes to the ledger (the ETL's state database) are made in one transaction. A
        repeated call with the same revision has no effect.

        Args:
            rules: The new revision.
            expected: The revision that the caller assumes to be current; None if the ledger must
                have no rules yet.
            first_hour: First hour of event types that the ledger does not have yet.
            control_schemas: Schemas of control topics, by schema id.

        Returns:
            The sorted names of the new event types.

        Raises:
            UsageError: Another revision has become current in the meantime; nothing was changed.
                The message describes the difference.
            Finding: The ledger has a different event type or schema for a schema id.
        """
        with self._database.transaction() as connection:
            book = _book(connection)
            active = book.latest
            if (
                active is not None
                and active.id != (expected.id if expected else None)
                and active.id != rules.id
            ):
                raise UsageError(
                    f"another `types apply` was faster: revision {active.id} is active now "
                    f"({describe_changes(expected, active)}). These declarations were not "
                    "applied; merge them with the active ones, and run the command again"
                )
            _add(connection, book, rules.records(), control_schemas)
            types = [t.declaration for t in rules.types.values()]
            return put_frontiers(connection, types, [*rules.sources.values()], first_hour)


def merge_rules(connection: Connection, new_rules: RulesBook) -> None:
    """Add the rules revisions and schemas that the ledger does not have yet.

    A rules revision is one version of the complete declarations of event types, sources and
    schemas. The ledger is the state database of the ETL.

    Args:
        connection: The caller's transaction.
        new_rules: Revisions to add. Those that are already in the ledger are skipped.

    Raises:
        Finding: A schema id has two different event types or schemas.
    """
    _add(connection, _book(connection), new_rules.records.items())


def read_bucket_formats(
    database: Database, event_types: Collection[str], default: BucketFormat
) -> dict[str, BucketFormat | DamagedRow]:
    """Return the formats in which the buckets of event types are written.

    The formats are those of the latest rules revision, which is one version of all declarations.

    Args:
        database: The ledger (the ETL's state database).
        event_types: Names of the event types.
        default: Format of types that do not declare one, or are no longer declared.

    Returns:
        For each event type, its format, or the error of the damaged ledger row that contains it.

    Raises:
        Unavailable: The database does not respond.
    """
    rules = tables.rules.c
    with database.reading() as connection:
        keys = connection.execute(select(rules.key).where(rules.key.like("rules/%"))).scalars()
        latest = max(keys, key=lambda key: revision_order(key.removeprefix("rules/")), default=None)
        if latest is None:
            return dict.fromkeys(event_types, default)
        revision = connection.execute(select(rules.value).where(rules.key == latest)).scalar_one()
        if not key_matches_content(latest, revision):
            return dict.fromkeys(event_types, DamagedRow(tables.rules.name, latest))
        entries = json.loads(revision)["types"]
        declared = {
            name: f"type/{name}/{entries[name]['digest']}"
            for name in event_types
            if name in entries
        }
        found = dict(
            connection.execute(
                select(rules.key, rules.value).where(rules.key.in_(declared.values()))
            ).all()
        )
    formats: dict[str, BucketFormat | DamagedRow] = dict.fromkeys(event_types, default)
    for name, key in declared.items():
        if not key_matches_content(key, found.get(key, "")):
            formats[name] = DamagedRow(tables.rules.name, key)
        else:
            formats[name] = json.loads(found[key])["declaration"].get("format") or default
    return formats


def _book(connection: Connection) -> RulesBook:
    book = RulesBook()
    for key, value in connection.execute(select(tables.rules.c.key, tables.rules.c.value)):
        try:
            book.add(key, value)
        except ValueError as error:
            if key_matches_content(key, value):
                raise Finding(
                    "the rules in the ledger were written by a later version of Hourmark: "
                    f"{error}; upgrade this installation"
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
