"""A rules revision: everything that parsing depends on, under one name.

`hourmark types apply` writes revisions to the ledger, and then to the topic `hourmark.types`
(compacted, one partition):

    key `type/<name>/<digest>`   value: that version of the type, JSON: its declaration and its Avro schema
    key `rules/<id>`             value: the revision, JSON: its types by digest and schema id, sources, limits, parser

Keys are made of content: compaction never removes what a range may name years later, repeating a
publication changes nothing, and the order of records means nothing. A revision whose types have not
all been seen waits for them. A schema id means one type and one schema for ever: the revision fixes
it, whatever a registry says later.

A revision's id is `<sequence>-<digest>`; services use the highest, ranges name the one they are to
be parsed under.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import Field

from hourmark.avro.framing import Schema, canonical_json, digest, fingerprint, plain_spelling
from hourmark.config.groups import FrozenModel, ParsingSettings
from hourmark.kafka.topic_names import AUDIT, HOSTS, events_topic
from hourmark.rules.event_types import EventType, Source

Record = tuple[str, str]  # key and value in the topic and in the ledger


class ParserVersion(NamedTuple):
    """What a revision is parsed by.

    `parser` counts up where a result may differ; `zones` is a version of the IANA zone data.
    """

    parser: int
    zones: str

    @property
    def counts_blanks(self) -> bool:
        """Whether a blank line is counted and makes no record. The first parser made a dead letter
        of it.
        """
        return self.parser >= 2

    @property
    def reads_json_bodies(self) -> bool:
        """Whether a batch may be one JSON value over several lines. To the first parser each of its
        lines was one.
        """
        return self.parser >= 2

    @property
    def reads_syslog_forms(self) -> bool:
        """Whether `format = "syslog"` takes what devices write (`parsing.syslog_forms`). Parsers 1
        and 2 know RFC 3164's form.
        """
        return self.parser >= 3


PARSER: Final = ParserVersion(
    3, "2026.6"
)  # of new revisions; the delivery service's `parsing` knows which it can still be


class SchemaMeaning(NamedTuple):
    """What a schema id stands for."""

    event_type: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.event_type} ({self.fingerprint})"


@dataclasses.dataclass(frozen=True)
class TypeVersion:
    """A type as a revision has it. `schema_id` is the registry's.

    `published` is its text in the topic, where it was read from there. Digests are of that text,
    and not of what this software would write: a later one, whose declarations or envelope know
    more, must still know old revisions by their names.
    """

    declaration: EventType
    schema_id: int
    published: str | None = dataclasses.field(default=None, compare=False, repr=False)

    @functools.cached_property
    def text(self) -> str:
        """The version as JSON."""
        if self.published is not None:
            return self.published
        return canonical_json(
            {
                "declaration": self.declaration.model_dump(mode="json"),
                "schema": self.declaration.schema(),
            }
        )

    @functools.cached_property
    def schema(self) -> Schema:
        """The Avro schema that its events are written with."""
        schema: Schema = (
            self.declaration.schema()
            if self.published is None
            else json.loads(self.published)["schema"]
        )
        return schema

    @functools.cached_property
    def meaning(self) -> SchemaMeaning:
        """What its schema id stands for."""
        return SchemaMeaning(self.declaration.name, fingerprint(self.schema))

    @functools.cached_property
    def digest(self) -> str:
        """Names this version by its content."""
        return digest(self.text)

    @functools.cached_property
    def key(self) -> str:
        """Its key in the topic."""
        return f"type/{self.declaration.name}/{self.digest}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """One revision. `types` and `sources` by name; `dead-letters` is always among the types."""

    sequence: int
    types: Mapping[str, TypeVersion]
    sources: Mapping[str, Source]
    parsing: ParsingSettings
    parser: ParserVersion = PARSER
    published: str | None = dataclasses.field(
        default=None, compare=False, repr=False
    )  # see `TypeVersion`

    @functools.cached_property
    def text(self) -> str:
        """The revision as JSON."""
        return (
            self.published
            if self.published is not None
            else canonical_json({"sequence": self.sequence, **self._content()})
        )

    @functools.cached_property
    def id(self) -> str:
        """`<sequence>-<digest>`: what ranges, audit records and answers name."""
        return f"{self.sequence}-{digest(self.text)}"

    def _content(self) -> dict[str, Any]:
        return {
            "types": {
                name: {"digest": t.digest, "schema_id": t.schema_id}
                for name, t in self.types.items()
            },
            "sources": {name: s.model_dump(mode="json") for name, s in self.sources.items()},
            "parsing": self.parsing.model_dump(mode="json"),
            "parser": self.parser._asdict(),
        }

    def same_content(self, other: Rules) -> bool:
        """Whether publishing this after `other` would change anything."""
        return self._content() == other._content()

    def records(self) -> list[Record]:
        """Keys and values; the revision's own comes last."""
        return [*((t.key, t.text) for t in self.types.values()), (f"rules/{self.id}", self.text)]


class KnownSchema(NamedTuple):
    """What the ledger keeps of a schema id: its type (or `hourmark.audit`, `hourmark.hosts`),
    fingerprint, and text as JSON.

    `text` is empty where only a marker tells of it.
    """

    event_type: str
    fingerprint: str
    text: str

    @classmethod
    def from_schema(cls, owner: str, schema: Schema) -> KnownSchema:
        """Of a type, or of a control topic."""
        plain = plain_spelling(schema)
        return cls(owner, fingerprint(plain), canonical_json(plain))

    @property
    def meaning(self) -> SchemaMeaning:
        """What the id stands for."""
        return SchemaMeaning(self.event_type, self.fingerprint)

    @property
    def schema(self) -> Schema:
        """The text, read."""
        schema: Schema = json.loads(self.text)
        return schema

    @property
    def topic(self) -> str:
        """Whose values are written with it."""
        return (
            self.event_type if self.event_type in (AUDIT, HOSTS) else events_topic(self.event_type)
        )


class _TypeEntry(FrozenModel):
    digest: str
    schema_id: int = Field(ge=1, lt=1 << 31, strict=True)


class _Content(FrozenModel):
    """A revision's record."""

    sequence: int = Field(ge=1, strict=True)
    types: dict[str, _TypeEntry]
    sources: dict[str, Source]
    parsing: ParsingSettings
    parser: ParserVersion

    @property
    def schema_ids(self) -> dict[str, int]:
        """Keys of its types, and their schema ids."""
        return {
            f"type/{name}/{entry.digest}": entry.schema_id for name, entry in self.types.items()
        }


class RulesBook:
    """All revisions read so far, in whatever order their records came. It never forgets one."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: dict[str, str] = {}
        self.unusable: dict[str, str] = {}  # revisions that this software cannot read, and why
        self._types: dict[str, EventType] = {}  # by key
        self._versions: dict[
            tuple[str, int], TypeVersion
        ] = {}  # by key and schema id: revisions share them
        self._contents: dict[str, _Content] = {}
        self._revisions: dict[str, Rules] = {}
        self._missing: dict[
            str, set[str]
        ] = {}  # revisions that wait, and the keys of the types that they wait for
        for key, value in records:
            self.add(key, value)

    def add(self, key: str, value: str) -> None:
        """Take one record.

        ValueError, naming the key, if it is not what `Rules.records` makes; then it is not taken.
        """
        if key in self.records:
            return
        if not key_matches_content(key, value):
            raise ValueError(
                f"record {key!r} of the rules is not usable: its content has another digest"
            )
        kind, _, rest = key.partition("/")
        try:
            if kind == "type":
                version = TypeVersion(
                    EventType.model_validate(json.loads(value)["declaration"]), 0, value
                )
                if version.key != key:
                    raise ValueError(f"its content has the key {version.key}")
                _ = version.meaning  # its schema can be read
                self._types[key] = version.declaration
            else:
                self._contents[rest] = _Content.model_validate(json.loads(value))
                if not rest.startswith(f"{self._contents[rest].sequence}-"):
                    raise ValueError(
                        f"its content has the sequence {self._contents[rest].sequence}"
                    )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if kind == "rules":
                self.unusable[rest] = f"{error!s:.500}"
            raise ValueError(
                f"record {key!r} of the rules is not usable: {error!s:.500}"
            ) from error
        self.records[key] = value
        if kind == "rules":
            self._missing[rest] = self._contents[rest].schema_ids.keys() - self._types.keys()
        for missing in self._missing.values():
            missing.discard(key)
        for revision in [revision for revision, missing in self._missing.items() if not missing]:
            del self._missing[revision]
            self._assemble(revision)

    def get(self, revision: str) -> Rules | None:
        """The revision of that id, or None where not all of it has been seen (yet)."""
        return self._revisions.get(revision)

    @property
    def ids(self) -> set[str]:
        """Revisions whose own record was taken, whole or not."""
        return {*self._revisions, *self._missing}

    @property
    def missing(self) -> dict[str, list[str]]:
        """Revisions that wait, and the keys of the types that they wait for."""
        return {revision: sorted(keys) for revision, keys in self._missing.items()}

    @property
    def latest(self) -> Rules | None:
        """The revision that new ranges are to name: the highest sequence, ties broken by id."""
        return max(self._revisions.values(), key=lambda r: revision_order(r.id), default=None)

    @property
    def revisions(self) -> list[Rules]:
        """All of them that are whole, in order."""
        return sorted(self._revisions.values(), key=lambda r: revision_order(r.id))

    @property
    def next_sequence(self) -> int:
        """Above all that were seen, whole and usable or not."""
        return 1 + max((revision_order(r)[0] for r in self.ids | self.unusable.keys()), default=0)

    def schemas(self) -> dict[int, TypeVersion]:
        """What each schema id of a whole revision stands for.

        ValueError, naming the id, if it stands for two.
        """
        known: dict[int, TypeVersion] = {}
        for version in self._versions.values():
            _remember(known, version)
        return known

    def check(self, rules: Rules, among: Collection[str]) -> None:
        """ValueError if a schema id of this revision stood for something else in one of `among`
        before it, or twice in it.
        """
        known: dict[int, TypeVersion] = {}
        for earlier in self.revisions:
            if earlier.id in among and revision_order(earlier.id) < revision_order(rules.id):
                for version in earlier.types.values():
                    known.setdefault(version.schema_id, version)
        for version in rules.types.values():
            _remember(known, version)

    def _assemble(self, revision: str) -> None:
        content = self._contents[revision]
        versions = [
            self._versions.setdefault(
                (key, schema_id), TypeVersion(self._types[key], schema_id, self.records[key])
            )
            for key, schema_id in content.schema_ids.items()
        ]
        self._revisions[revision] = Rules(
            sequence=content.sequence,
            types={v.declaration.name: v for v in versions},
            sources=content.sources,
            parsing=content.parsing,
            parser=content.parser,
            published=self.records[f"rules/{revision}"],
        )


def _remember(known: dict[int, TypeVersion], version: TypeVersion) -> None:
    check_same_meaning(
        version.schema_id, known.setdefault(version.schema_id, version).meaning, version.meaning
    )


def key_matches_content(key: str, value: str) -> bool:
    """Whether the key is of the form that names rules, and this content."""
    kind, _, rest = key.partition("/")
    sequence, _, of_rules = rest.partition("-")
    if kind == "rules":
        return sequence.isdecimal() and of_rules == digest(value)
    return kind == "type" and rest.rpartition("/")[2] == digest(value)


def revision_order(revision: str) -> tuple[int, str]:
    """Ids of revisions in their order."""
    return int(revision.partition("-")[0]), revision


def check_same_meaning(schema_id: int, known: SchemaMeaning, other: SchemaMeaning) -> None:
    """ValueError, naming the id, if these are not one."""
    if known != other:
        raise ValueError(
            f"schema id {schema_id} stands for {known}, and now for {other} too: was the schema "
            "registry recreated or restored "
            "from an older copy, or is hourmark.types another site's?"
        )
