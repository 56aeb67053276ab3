"""Rules revisions: everything that parsing depends on, under one name.

`hourmark types apply` writes a revision to the ledger, then to the compacted topic `hourmark.types`
with one partition:

    key                      value (JSON)
    `type/<name>/<digest>`   a version of the type: its declaration and its Avro schema
    `rules/<id>`             the revision: types by digest and schema id, sources, limits, parser

Keys are derived from content. Compaction therefore never removes a record that a range may need
years later, publishing again changes nothing, and the order of records is irrelevant. A revision is
usable when the records of all its types have been read. A schema id permanently means one type and
one schema, as recorded in the revision, whatever the registry returns later.

A revision's id is `<sequence>-<digest>`. Services use the revision with the highest sequence.
Each range names the revision that it must be parsed under.
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
    """The version of the parser that a rules revision requires.

    A rules revision is one published version of the declared event types, sources and limits.

    Attributes:
        parser: Number of the parser. It increases with each change that may affect results.
        zones: Version of the IANA time zone data, such as `2026.6`.
    """

    parser: int
    zones: str

    @property
    def counts_blanks(self) -> bool:
        """Return whether the parser counts blank lines instead of storing them.

        Parser 1 stores each blank line as a dead letter, like other lines that are not valid
        events.
        """
        return self.parser >= 2

    @property
    def reads_json_bodies(self) -> bool:
        """Return whether the parser accepts API batches with JSON values that span several lines.

        Parser 1 parses each line of a batch separately.
        """
        return self.parser >= 2

    @property
    def reads_syslog_forms(self) -> bool:
        """Return whether the parser accepts the syslog variants that network devices send.

        The variants are accepted for sources with `format = "syslog"`. Parsers 1 and 2 accept only
        RFC 5424 and RFC 3164.
        """
        return self.parser >= 3


PARSER: Final = ParserVersion(
    3, "2026.6"
)  # of new revisions; the delivery service's `parsing` knows which older ones it supports


class SchemaMeaning(NamedTuple):
    """The event type and the Avro schema that a schema id of the registry refers to.

    Attributes:
        event_type: Name of the event type, or of a control topic (a topic with Hourmark's internal
            records, such as audit records).
        fingerprint: Fingerprint of the schema: 16 hex digits.
    """

    event_type: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.event_type} ({self.fingerprint})"


@dataclasses.dataclass(frozen=True)
class TypeVersion:
    """One published version of an event type: its declaration and the id of its Avro schema.

    A version is identified by a digest of its published text. The text is kept unchanged, so that
    the digest stays the same if a later release of Hourmark adds attributes to declarations.

    Attributes:
        declaration: Declaration of the type.
        schema_id: The registry's id of the type's schema.
        published: JSON text as read from the Kafka topic `hourmark.types`; None if it was not read
            from there.
    """

    declaration: EventType
    schema_id: int
    published: str | None = dataclasses.field(default=None, compare=False, repr=False)

    @functools.cached_property
    def text(self) -> str:
        """Return the JSON text of this version: the value of its record in Kafka.

        If the version was read from the topic `hourmark.types`, its published text is returned
        unchanged.
        """
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
        """Return the Avro schema of the type's events as parsed JSON."""
        schema: Schema = (
            self.declaration.schema()
            if self.published is None
            else json.loads(self.published)["schema"]
        )
        return schema

    @functools.cached_property
    def meaning(self) -> SchemaMeaning:
        """Return what `schema_id` refers to: the event type and the fingerprint of its schema.

        Use `check_same_meaning` to compare it with the meaning of the same id elsewhere.
        """
        return SchemaMeaning(self.declaration.name, fingerprint(self.schema))

    @functools.cached_property
    def digest(self) -> str:
        """Return the digest that identifies this version: 16 hex digits computed from its text."""
        return digest(self.text)

    @functools.cached_property
    def key(self) -> str:
        """Return the key of this version's record in the Kafka topic `hourmark.types`.

        Returns:
            A string of the form `type/<name>/<digest>`.
        """
        return f"type/{self.declaration.name}/{self.digest}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """A rules revision: one numbered version of the declared event types, sources and limits.

    Attributes:
        sequence: Number of the revision.
        types: Maps the name of each event type, including `dead-letters`, to its version.
        sources: Maps the name of each log source to its declaration.
        parsing: Bucket length and limits of event times.
        parser: The parser that the revision requires.
        published: JSON text as read from the Kafka topic `hourmark.types`; None if it was not read
            from there.
    """

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
        """Return the JSON text of the revision: the value of its record in Kafka.

        If the revision was read from the topic `hourmark.types`, its published text is returned
        unchanged.
        """
        return (
            self.published
            if self.published is not None
            else canonical_json({"sequence": self.sequence, **self._content()})
        )

    @functools.cached_property
    def id(self) -> str:
        """Return the id of the revision, as used in byte ranges and audit records.

        Returns:
            A string of the form `<sequence>-<digest>`, where the digest has 16 hex digits.
        """
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
        """Return whether two revisions are equal except for their sequence numbers.

        Args:
            other: The revision to compare with. Published texts are not compared.
        """
        return self._content() == other._content()

    def records(self) -> list[Record]:
        """Return the Kafka records that publish this revision in the topic `hourmark.types`.

        Returns:
            Pairs of key and value: one for each event type, then the record of the revision.
        """
        return [*((t.key, t.text) for t in self.types.values()), (f"rules/{self.id}", self.text)]


class KnownSchema(NamedTuple):
    """A schema that the ledger (the database of the ETL) stores for a schema id.

    Attributes:
        event_type: Name of the event type, or of a control topic (a topic with Hourmark's internal
            records, such as audit records).
        fingerprint: Fingerprint of the schema: 16 hex digits.
        text: The schema as JSON text. Empty if only its fingerprint is known, from the marker of a
            bucket.
    """

    event_type: str
    fingerprint: str
    text: str

    @classmethod
    def from_schema(cls, owner: str, schema: Schema) -> KnownSchema:
        """Create an entry from a parsed schema.

        Args:
            owner: Name of the event type or control topic whose values have the schema.
            schema: The schema as parsed JSON.
        """
        plain = plain_spelling(schema)
        return cls(owner, fingerprint(plain), canonical_json(plain))

    @property
    def meaning(self) -> SchemaMeaning:
        """Return what the schema id refers to: the owner's name and the schema's fingerprint.

        Use `check_same_meaning` to compare it with the meaning of the same id in a rules revision.
        """
        return SchemaMeaning(self.event_type, self.fingerprint)

    @property
    def schema(self) -> Schema:
        """Return the Avro schema as parsed JSON.

        Raises:
            ValueError: Only the fingerprint of the schema is known.
        """
        schema: Schema = json.loads(self.text)
        return schema

    @property
    def topic(self) -> str:
        """Return the name of the edge cluster's Kafka topic whose values have this schema."""
        return (
            self.event_type if self.event_type in (AUDIT, HOSTS) else events_topic(self.event_type)
        )


class _TypeEntry(FrozenModel):
    digest: str
    schema_id: int = Field(ge=1, lt=1 << 31, strict=True)


class _RevisionContent(FrozenModel):
    sequence: int = Field(ge=1, strict=True)
    types: dict[str, _TypeEntry]
    sources: dict[str, Source]
    parsing: ParsingSettings
    parser: ParserVersion

    @property
    def schema_ids(self) -> dict[str, int]:
        return {
            f"type/{name}/{entry.digest}": entry.schema_id for name, entry in self.types.items()
        }


class RulesBook:
    """A collection of rules revisions, built from records of the Kafka topic `hourmark.types`.

    A rules revision is one numbered version of the declared event types, sources and limits.
    Records may be added in any order. A revision is complete when the records of all its event
    types were added.

    Args:
        records: Initial records, as pairs of key and value. Invalid ones raise `ValueError`.

    Attributes:
        records: Maps the keys of all accepted records to their values.
        unusable: Maps revision ids to the reason why this software cannot read the revision.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: dict[str, str] = {}
        self.unusable: dict[str, str] = {}  # by revision id: why it cannot be read
        self._types: dict[str, EventType] = {}  # by key
        self._versions: dict[
            tuple[str, int], TypeVersion
        ] = {}  # by key and schema id; shared by revisions
        self._contents: dict[str, _RevisionContent] = {}
        self._revisions: dict[str, Rules] = {}
        self._missing: dict[
            str, set[str]
        ] = {}  # by id of an incomplete revision: keys of its missing types
        for key, value in records:
            self.add(key, value)

    def add(self, key: str, value: str) -> None:
        """Add one record of the Kafka topic `hourmark.types`.

        A record whose key has already been added is ignored.

        Args:
            key: Key of the record: `type/<name>/<digest>` or `rules/<id>`.
            value: Value of the record, as JSON text.

        Raises:
            ValueError: The record is invalid and was not added. The message contains its key.
        """
        if key in self.records:
            return
        if not key_matches_content(key, value):
            raise ValueError(
                f"record {key!r} of the rules is not usable: its content does not match its digest"
            )
        kind, _, rest = key.partition("/")
        try:
            if kind == "type":
                version = TypeVersion(
                    EventType.model_validate(json.loads(value)["declaration"]), 0, value
                )
                if version.key != key:
                    raise ValueError(f"its content has the key {version.key}")
                _ = version.meaning  # raises if the schema cannot be read
                self._types[key] = version.declaration
            else:
                self._contents[rest] = _RevisionContent.model_validate(json.loads(value))
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
        """Return a complete revision by its id.

        Args:
            revision: Id of the revision: `<sequence>-<digest>`.

        Returns:
            The revision. None if it is unknown or incomplete.
        """
        return self._revisions.get(revision)

    @property
    def ids(self) -> set[str]:
        """Return the ids of all revisions, including incomplete ones.

        Revisions that this software cannot read are not included; see `unusable`.
        """
        return {*self._revisions, *self._missing}

    @property
    def missing(self) -> dict[str, list[str]]:
        """Return the event type records that incomplete revisions still need.

        Returns:
            A dict that maps the ids of incomplete revisions to sorted record keys. Empty if all
            revisions are complete.
        """
        return {revision: sorted(keys) for revision, keys in self._missing.items()}

    @property
    def latest(self) -> Rules | None:
        """Return the complete revision with the highest sequence number.

        New byte ranges must be parsed with this revision.

        Returns:
            The revision. None if no revision is complete.
        """
        return max(self._revisions.values(), key=lambda r: revision_order(r.id), default=None)

    @property
    def revisions(self) -> list[Rules]:
        """Return all complete revisions, sorted by sequence number.

        Returns:
            The revisions, oldest first. Empty if no revision is complete.
        """
        return sorted(self._revisions.values(), key=lambda r: revision_order(r.id))

    @property
    def next_sequence(self) -> int:
        """Return the sequence number for the next revision.

        Returns:
            One more than the highest number of all revisions, including incomplete and unusable
            ones. 1 if there are no revisions.
        """
        return 1 + max((revision_order(r)[0] for r in self.ids | self.unusable.keys()), default=0)

    def schemas(self) -> dict[int, TypeVersion]:
        """Return the version of an event type for each schema id, over all complete revisions.

        Returns:
            A dict that maps schema ids of the registry to type versions. Empty if no revision is
            complete.

        Raises:
            ValueError: One schema id refers to two different schemas.
        """
        known: dict[int, TypeVersion] = {}
        for version in self._versions.values():
            _remember(known, version)
        return known

    def check_schema_ids(self, rules: Rules, among: Collection[str]) -> None:
        """Check that the schema ids of a revision have the same meaning as in earlier revisions.

        A schema registry that was recreated or restored from a backup may reuse an id.

        Args:
            rules: The revision to check.
            among: Ids of the revisions to compare with. Revisions after `rules` are ignored.

        Raises:
            ValueError: A schema id refers to another type or schema in an earlier revision, or to
                two different schemas within `rules`.
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
    """Return whether the digest in a rules record's key matches its value.

    Rules records are the records of the Kafka topic `hourmark.types`. They publish event types and
    rules revisions (versions of all declared types and sources).

    Args:
        key: A key of the form `type/<name>/<digest>` or `rules/<sequence>-<digest>`.
        value: The record's value.

    Returns:
        True if the digest is correct. False if it is not, or if the key has another form.
    """
    kind, _, rest = key.partition("/")
    sequence, _, of_rules = rest.partition("-")
    if kind == "rules":
        return sequence.isdecimal() and of_rules == digest(value)
    return kind == "type" and rest.rpartition("/")[2] == digest(value)


def revision_order(revision: str) -> tuple[int, str]:
    """Return the sort key of a rules revision id: its sequence number, then the id.

    A rules revision is one numbered version of the declared event types, sources and limits.

    Args:
        revision: Id of the revision: `<sequence>-<digest>`.

    Raises:
        ValueError: The id does not begin with a number.
    """
    return int(revision.partition("-")[0]), revision


def check_same_meaning(schema_id: int, known: SchemaMeaning, other: SchemaMeaning) -> None:
    """Check that a schema id refers to the same event type and schema in two places.

    The two can differ if the schema registry was recreated or restored from a backup.

    Args:
        schema_id: The schema id.
        known: The type and schema that the id refers to in the first place.
        other: The type and schema that the id refers to in the second place.

    Raises:
        ValueError: The two differ. The message contains the schema id.
    """
    if known != other:
        raise ValueError(
            f"schema id {schema_id} identifies {known}, and now {other} as well: check whether "
            "the schema registry was recreated or restored from an older copy, or "
            "hourmark.types belongs to another site"
        )
