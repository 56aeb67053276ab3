"""Small rules revisions, and the words of them that several tests share."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hourmark.avro.framing import canonical_json, digest
from hourmark.config.groups import ParsingSettings
from hourmark.records.hours import Hour
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, EventType, Source
from hourmark.rules.revision import Record, Rules, TypeVersion

HOUR = Hour(1_800_000_000, 3600)
LONG = {"name": "n", "type": "long"}
CLICK, VIEW, OTHER = (EventType(name=name, fields=[LONG]) for name in ("click", "view", "other"))
APP, WEB, OLD = (Source(name=name, types=["click"]) for name in ("app", "web", "old"))
IDS = {"dead-letters": 1, "click": 2, "view": 3}


def revision(sequence: int, *types: EventType, sources: tuple[Source, ...] = (APP,)) -> Rules:
    """With these types and dead letters, under fixed ids."""
    versions = {t.name: TypeVersion(t, IDS[t.name]) for t in (DEAD_LETTERS, *types)}
    return Rules(
        sequence=sequence,
        types=versions,
        sources={s.name: s for s in sources},
        parsing=ParsingSettings(),
    )


def declared(*types: EventType, sources: Sequence[Source] = (APP,)) -> Declarations:
    """These types and dead letters."""
    return Declarations(sorted([*types, DEAD_LETTERS], key=lambda t: t.name), [*sources])


def encoded(records: Sequence[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """As the topic has them."""
    return [(key.encode(), value.encode()) for key, value in records]


def of_newer_software(rules: Rules, sequence: int | None = None) -> Record:
    """The revision as a later Hourmark may write it: its sources know one more setting."""
    content = json.loads(rules.text)
    content["sources"] = {
        name: {**source, "sampling": 1} for name, source in content["sources"].items()
    }
    content["sequence"] = rules.sequence if sequence is None else sequence
    text = canonical_json(content)
    return f"rules/{content['sequence']}-{digest(text)}", text
