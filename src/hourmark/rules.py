"""A rules revision: everything that parsing depends on, under one name.

`hourmark types apply` publishes revisions to the topic `hourmark.types` (compacted, one partition):

    key `type/<name>/<digest>`   value: the declaration of that version of the type, JSON
    key `rules/<id>`             value: the revision, JSON: its types by digest and schema id, sources, parsing limits

The revision's record comes after those of its types, so whoever has it has all of it, or can say what is missing. Keys are
made of content, so compaction never removes what a range may name years later, and repeating a publication changes nothing.
A revision's id is `<sequence>-<digest>`; services use the highest, ranges name the one they are to be parsed under.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from hourmark.avro import canonical_json, digest
from hourmark.config import Parsing
from hourmark.event_types import EventType, Source


@dataclasses.dataclass(frozen=True)
class TypeVersion:
    """A type as a revision has it. `schema_id` is the registry's.

    `published` is its text in the topic, where it was read from there. Digests are of that text, and not of what this software
    would write: a later one, whose declarations know more settings, must still know old revisions by their names.
    """

    declaration: EventType
    schema_id: int
    published: str | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The declaration as JSON."""
        return self.published if self.published is not None else canonical_json(self.declaration.model_dump(mode="json"))

    @property
    def digest(self) -> str:
        """Names this version by its content."""
        return digest(self.text)

    @property
    def key(self) -> str:
        """Its key in the topic."""
        return f"type/{self.declaration.name}/{self.digest}"


@dataclasses.dataclass(frozen=True)
class Rules:
    """One revision. `types` and `sources` by name; `dead-letters` is always among the types."""

    sequence: int
    types: Mapping[str, TypeVersion]
    sources: Mapping[str, Source]
    parsing: Parsing
    published: str | None = dataclasses.field(default=None, compare=False, repr=False)  # see `TypeVersion`

    @property
    def text(self) -> str:
        """The revision as JSON."""
        return self.published if self.published is not None else canonical_json({"sequence": self.sequence, **self._content()})

    @property
    def id(self) -> str:
        """`<sequence>-<digest>`: what ranges, audit records and answers name."""
        return f"{self.sequence}-{digest(self.text)}"

    def _content(self) -> dict[str, Any]:
        return {
            "types": {name: {"digest": t.digest, "schema_id": t.schema_id} for name, t in self.types.items()},
            "sources": {name: s.model_dump(mode="json") for name, s in self.sources.items()},
            "parsing": self.parsing.model_dump(mode="json"),
        }

    def same_content(self, other: Rules) -> bool:
        """Whether publishing this after `other` would change anything."""
        return self._content() == other._content()

    def records(self) -> list[tuple[str, bytes]]:
        """Keys and values to publish, in this order."""
        return [*((t.key, t.text.encode()) for t in self.types.values()), (f"rules/{self.id}", self.text.encode())]


class RulesBook:
    """All revisions read from the topic so far. Feed it records in the topic's order; it never forgets one."""

    def __init__(self, records: Iterable[tuple[str, bytes]] = ()) -> None:
        self._types: dict[str, tuple[EventType, str]] = {}
        self._revisions: dict[str, Rules] = {}
        for key, value in records:
            self.add(key, value)

    def add(self, key: str, value: bytes) -> None:
        """Take one record. ValueError, naming the key, if it is not what `Rules.records` makes."""
        kind, _, rest = key.partition("/")
        try:
            if kind == "type":
                version = TypeVersion(EventType.model_validate_json(value), 0, value.decode())
                if version.key != key:
                    raise ValueError(f"its content has the key {version.key}")
                self._types[key] = version.declaration, version.text
            elif kind == "rules":
                rules = self._assemble(value.decode())
                if rules.id != rest:
                    raise ValueError(f"its content has the id {rules.id}")
                self._revisions[rules.id] = rules
            else:
                raise ValueError("keys begin with type/ or rules/")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"record {key!r} of the rules topic is not usable: {error}") from error

    def get(self, revision: str) -> Rules | None:
        """The revision of that id, or None where it has not been seen (yet)."""
        return self._revisions.get(revision)

    @property
    def latest(self) -> Rules | None:
        """The revision that new ranges are to name: the highest sequence, ties broken by id."""
        return max(self._revisions.values(), key=lambda r: (r.sequence, r.id), default=None)

    @property
    def revisions(self) -> list[Rules]:
        """All of them, in order."""
        return sorted(self._revisions.values(), key=lambda r: (r.sequence, r.id))

    def _assemble(self, text: str) -> Rules:
        content: dict[str, Any] = json.loads(text)
        types = {name: self._version(name, entry) for name, entry in content["types"].items()}
        sources = {name: Source.model_validate(source) for name, source in content["sources"].items()}
        return Rules(content["sequence"], types, sources, Parsing.model_validate(content["parsing"]), text)

    def _version(self, name: str, entry: Mapping[str, Any]) -> TypeVersion:
        declaration, text = self._types[f"type/{name}/{entry['digest']}"]
        return TypeVersion(declaration, entry["schema_id"], text)
