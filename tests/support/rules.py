"""Rules put into a ledger, as `types apply` does, without the servers around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.records import APP, CLICK, HOUR

from hourmark.config.groups import EtlSettings
from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark.rules.change import next_rules
from hourmark.rules.event_types import Declarations, EventType, Source
from hourmark.rules.revision import TypeVersion
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.rules import LedgerRules


def put_rules(
    config: Config,
    types: Sequence[EventType],
    sources: Sequence[Source],
    first_hour: Hour,
    schema_ids: Mapping[str, int] | None = None,
) -> list[str]:
    """These types, beside those in force, and these sources alone; which types are new.

    Ids: the known, the given, the next.
    """
    with Database(config.etl.ledger) as database:
        ledger = LedgerRules(database)
        book = ledger.book()
        in_force = book.latest.types if book.latest else {}
        declared = {name: t.declaration for name, t in in_force.items()} | {
            t.name: t for t in types
        }
        known = {version.meaning: schema_id for schema_id, version in book.schemas().items()}
        for name, declaration in declared.items():
            meaning = TypeVersion(declaration, 0).meaning
            known.setdefault(
                meaning, (schema_ids or {}).get(name, max(known.values(), default=0) + 1)
            )
        ids = {
            name: known[TypeVersion(declaration, 0).meaning]
            for name, declaration in declared.items()
        }
        rules = next_rules(
            book, Declarations([*declared.values()], [*sources]), ids, first_hour.length_s
        )
        return ledger.put(rules, book.latest, first_hour)


def ledger_of_click(url: str, first_hour: Hour = HOUR) -> Database:
    """A ledger of one type and one source."""
    put_rules(Config(etl=EtlSettings(ledger=url)), [CLICK], [APP], first_hour)
    return Database(url)
