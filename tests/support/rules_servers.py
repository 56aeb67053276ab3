"""A registry and a topic of rules in memory: as real ones give ids, lose what they hold, and
compact.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from hourmark.avro.framing import Schema
from hourmark.errors import UsageError
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import Record, RulesBook
from hourmark_declare.apply import ApplyTargets
from hourmark_declare.avro_evolution import find_incompatibility
from hourmark_etl.ledger.rules import LedgerRules


class Crash(Exception):
    """The operator's process is gone."""


class MemoryRegistry:
    """Gives ids in the order of first registration, to contents; refuses what cannot read all
    versions before it.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Schema] = {}
        self.subjects: dict[str, list[Schema]] = {}

    def register(self, topic: str, schema: Schema) -> int:
        """As the real one."""
        versions = self.subjects.get(topic, [])
        if schema not in versions:
            if any(find_incompatibility(old, schema) for old in versions):
                raise UsageError(f"the schema of {topic} cannot read what was written before")
            self.subjects[topic] = [*versions, copy.deepcopy(schema)]
        for schema_id, known in self.by_id.items():
            if known == schema:
                return schema_id
        self.by_id[len(self.by_id) + 1] = copy.deepcopy(schema)
        return len(self.by_id)

    def find(self, topic: str, schema: Schema) -> int | None:
        """As the real one."""
        if schema not in self.subjects.get(topic, []):
            return None
        return next(schema_id for schema_id, known in self.by_id.items() if known == schema)

    def schema(self, schema_id: int) -> Schema | None:
        """As the real one."""
        return self.by_id.get(schema_id)

    def lose(self, keep: int = 0) -> None:
        """All but the first `keep` ids: 0 is a new registry, more an older copy."""
        self.by_id = {n: s for n, s in self.by_id.items() if n <= keep}
        kept = [*self.by_id.values()]
        self.subjects = {
            t: [s for s in versions if s in kept] for t, versions in self.subjects.items()
        }


class MemoryTopic:
    """One partition."""

    def __init__(self) -> None:
        self.log: list[tuple[int, Record]] = []  # with offsets
        self.made = 0  # how often it was recreated
        self._end = 0

    def read(self) -> RulesBook:
        """As the real one."""
        return RulesBook(record for _, record in self.log)

    def publish(self, records: Sequence[Record]) -> None:
        """As the real one."""
        for record in records:
            self.log.append((self._end, record))
            self._end += 1

    def compact(self) -> None:
        """The last record of each key stays, at its place."""
        last = {key: offset for offset, (key, _) in self.log}
        self.log = [(offset, record) for offset, record in self.log if last[record[0]] == offset]

    def lose(self) -> None:
        """Deleted, and recreated by whoever looks."""
        self.log, self.made, self._end = [], self.made + 1, 0


class Stepped:
    """Calls of ports, counted; `at(step)` is asked before each, and may raise `Crash` or do
    something else first.
    """

    def __init__(self, at: Callable[[str], None]) -> None:
        self._at = at

    def around(self, name: str, port: Any) -> Any:
        """The same port, each of whose methods is a step."""
        stepped = self

        class Port:
            def __getattr__(self, method: str) -> Any:
                stepped._at(f"{name}.{method}")
                return getattr(port, method)

        return Port()


def outside(
    ledger: LedgerRules,
    registry: MemoryRegistry,
    topic: MemoryTopic,
    at: Callable[[str], None] | None = None,
) -> ApplyTargets:
    """What declarations are applied to. `publish` is torn at any record: it is one step for
    each.
    """
    steps = Stepped(at or (lambda _: None))

    class Torn:
        def read(self) -> RulesBook:
            return topic.read()

        def publish(self, records: Sequence[Record]) -> None:
            for record in records:
                (at or (lambda _: None))("publish")
                topic.publish([record])

    def make_topics(types: Sequence[EventType]) -> list[str]:
        return []

    return ApplyTargets(
        ledger=steps.around("ledger", ledger),
        registry=steps.around("registry", registry),
        topics=[steps.around("topic", Torn())],
        create_topics=make_topics,
        report=lambda _: None,
        record_bytes_max=8 << 20,
    )
