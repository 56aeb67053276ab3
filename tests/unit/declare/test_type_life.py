"""How a type lives: each change of docs/how-to/change-a-type.md, from its declaration to what readers of all
its buckets see.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pytest
from tests.support.bucket_world import World, frontier, hour_at, publish
from tests.support.rules_servers import MemoryRegistry, MemoryTopic, outside

from hourmark.errors import UsageError
from hourmark.kafka.topic_names import events_topic
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import (
    DEAD_LETTERS,
    Declarations,
    EventType,
    LineRule,
    Source,
)
from hourmark_declare.apply import apply_declarations
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import CompiledRules, parse_range
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.engine import Engine
from hourmark_etl.closing.write.writing import SealedHour
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.rules import LedgerRules
from hourmark_etl.ledger.schemas import known_schemas
from hourmark_etl.model import FIRST_SITE
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

N = {"name": "n", "type": "long"}


class TypeLife:
    """The type `click`, from operator to bucket."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.ledger = LedgerRules(self.world.database)
        self.registry, self.topic = MemoryRegistry(), MemoryTopic()
        self.service = RulesStore(ServiceMetrics())
        self.closed = 0

    def apply(
        self,
        *fields: dict[str, Any],
        line: LineRule | None = None,
        remove: bool = False,
        may_refuse: bool = True,
    ) -> None:
        """`hourmark types apply` with these fields, or with `--remove` and without the type."""
        click = EventType(name="click", fields=list(fields), line=line or LineRule())
        types = [] if remove else [click]
        form: Literal["syslog", "rfc5424"] = "syslog" if line else "rfc5424"
        sources = [Source(name="app", format=form, types=["click"])] if types else []
        ports = outside(self.ledger, self.registry, self.topic)
        apply_declarations(
            ports,
            Declarations([*types, DEAD_LETTERS], sources),
            hour_at(0),
            may_remove=remove,
            may_refuse=may_refuse,
        )
        records = [(key.encode(), value.encode()) for _, (key, value) in self.topic.log]
        self.service.feed(records, from_start=True)

    def close(self, **values: Any) -> list[str]:
        """A line with these values, delivered, and the next hour, closed with its event; the types
        of what it became.
        """
        return self.close_line(json.dumps(values))

    def close_line(self, message: str, under: CompiledRules | None = None) -> list[str]:
        """The same with a line that has this message, parsed by the rules in force or `under`."""
        hour = hour_at(self.closed)
        line = f"<13>1 {hour}:00:00Z h a - click - {message}\n".encode()
        rules = under or self.service.latest
        assert rules is not None
        taken = ByteRange(
            host_id="a" * 32,
            file_id="b" * 32,
            generation=0,
            start=0,
            end=len(line),
            observed_at_ms=hour.end_ms,
            rules=rules.id,
            zone="UTC",
            source="app",
            path="/log",
            host_name="h",
        )
        records = parse_range(taken, line, rules).records
        table = pa.table(
            {
                "key": pa.array([r.key for r in records], pa.binary()),
                "value": pa.array([r.value for r in records], pa.binary()),
                "topic": pa.array([events_topic(r.event_type) for r in records]),
                "partition": pa.array([0] * len(records), pa.int32()),
                "offset": pa.array(range(len(records)), pa.int64()),
            }
        )
        topics = {events_topic(t): t for t in ("click", DEAD_LETTERS.name)}
        ids = {
            schema_id: of.event_type for schema_id, of in known_schemas(self.world.database).items()
        }
        plan = StagePlan(
            folder=f"_staging/{self.closed}",
            bucket_seconds=3600,
            types=topics,
            audits={"audit": FIRST_SITE},
            hosts={"hosts"},
            ledger="",
            schema_types=ids,
        )
        listed = [
            g
            for g in stage_table(table, (), plan, self.world.storage).groups
            if g.event_type == "click"
        ]
        if listed:
            self._write(listed)
        return [r.event_type for r in records]

    def _write(self, listed: list[Any]) -> None:
        hour, attempt = hour_at(self.closed), f"attempt{self.closed}"
        known = known_schemas(self.world.database)
        engine = Engine(self.world.storage, self.world.database, self.world.config)
        texts, marks = ({n: s[at] for n, s in known.items()} for at in (2, 1))
        (written,) = engine.write(
            [SealedHour("click", hour, tuple(listed))],
            texts,
            f"{ATTEMPTS_FOLDER}/{attempt}/_tasks",
            "deflate",
        )
        made = build_manifest(
            frontier(hour),
            written,
            listed=listed,
            fingerprints=marks,
            previous=None,
            ledger=self.world.database.identity(),
            attempt=attempt,
            now_ms=hour.end_ms,
        )
        publish(self.world.storage, frontier(hour), written, made)
        self.closed += 1

    def read(self) -> list[dict[str, Any]]:
        """The own fields of every event of every closed bucket, as a stock reader with the newest
        schema sees them.
        """
        newest = max(
            (
                v
                for r in self.ledger.book().revisions
                for v in r.types.values()
                if v.declaration.name == "click"
            ),
            key=lambda v: v.schema_id,
        )
        latest = self.ledger.book().latest
        assert latest is not None
        schema = fastavro.parse_schema(latest.types.get("click", newest).schema, named_schemas={})
        rows = []
        for file in sorted((self.world.root / "click").rglob("*.avro")):
            with file.open("rb") as stream:
                rows += [
                    dict(row) for row in fastavro.reader(stream, schema) if isinstance(row, dict)
                ]
        own = [f["name"] for f in latest.types.get("click", newest).declaration.fields]
        return [{name: row[name] for name in own} for row in rows]


@pytest.fixture
def life(tmp_path: Path) -> TypeLife:
    return TypeLife(tmp_path)


def test_a_new_field_has_its_default_in_older_buckets(life: TypeLife) -> None:
    life.apply(N)
    life.close(n=1)
    life.apply(
        N,
        {"name": "word", "type": ["null", "string"]},
        {"name": "size", "type": "long", "default": 7},
    )
    life.close(n=2, word="w", size=8)
    assert life.close(n=3) == ["click"], "lines of programs that do not know the new fields yet"
    assert life.read() == [
        {"n": 1, "word": None, "size": 7},
        {"n": 2, "word": "w", "size": 8},
        {"n": 3, "word": None, "size": 7},
    ]


def test_a_field_that_is_taken_away_is_not_seen_any_more(life: TypeLife) -> None:
    life.apply(N, {"name": "word", "type": "string", "default": ""})
    life.close(n=1, word="w")
    life.apply(N)
    assert life.close(n=2, word="w") == ["dead-letters"], "programs first, then the declaration"
    life.close(n=2)
    assert life.read() == [{"n": 1}, {"n": 2}]


def test_an_int_is_promoted_to_long(life: TypeLife) -> None:
    life.apply({"name": "n", "type": "int"})
    life.close(n=1)
    life.apply(N)
    life.close(n=1 << 40)
    assert life.read() == [{"n": 1}, {"n": 1 << 40}]
    with pytest.raises(
        UsageError,
        match=r"events that were written with schema id \d+ cannot be read with this declaration: field n",
    ):
        life.apply({"name": "n", "type": "int"})


def test_a_field_is_renamed_with_an_alias(life: TypeLife) -> None:
    life.apply(N)
    life.close(n=1)
    life.apply({"name": "visits", "type": "long", "aliases": ["n"]})
    assert life.close(n=2) == ["dead-letters"], "lines bear the new name from now on"
    life.close(visits=2)
    assert life.read() == [{"visits": 1}, {"visits": 2}]
    with pytest.raises(
        UsageError, match="schema id 1 cannot be read with this declaration: field number"
    ):
        life.apply({"name": "number", "type": "long", "aliases": ["visits"]})
    life.apply({"name": "number", "type": "long", "aliases": ["visits", "n"]})
    assert life.read() == [{"number": 1}, {"number": 2}]


def test_a_group_of_a_pattern_is_renamed_while_ranges_of_the_older_rules_are_in_flight(
    life: TypeLife,
) -> None:
    def declared(name: str, *aliases: str) -> tuple[dict[str, Any], LineRule]:
        field = {"name": name, "type": "long"} | ({"aliases": [*aliases]} if aliases else {})
        pattern = f"visits=(?P<{name}>[0-9]+)"
        return field, LineRule(payload="pattern", pattern=pattern, time="observed")

    before, rule = declared("n")
    life.apply(before, line=rule, may_refuse=False)
    older = life.service.latest
    assert life.close_line("visits=1") == ["click"]
    after, rule = declared("visits", "n")
    life.apply(after, line=rule, may_refuse=False)
    assert life.close_line("visits=2", older) == ["click"], "spooled before the change"
    assert life.close_line("visits=3") == ["click"]
    assert life.read() == [{"visits": 1}, {"visits": 2}, {"visits": 3}]
    with pytest.raises(UsageError, match="field visits is no longer declared"):
        life.apply(before, line=declared("n")[1], may_refuse=False)
    back, rule = declared("n", "visits")
    life.apply(back, line=rule, may_refuse=False)
    assert life.close_line("visits=4") == ["click"]
    assert life.read() == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


def test_a_type_is_retired_and_brought_back(life: TypeLife) -> None:
    life.apply(N)
    life.close(n=1)
    before = life.registry.find("events.click", EventType(name="click", fields=[N]).schema())
    life.apply(remove=True)
    assert life.close(n=2) == ["dead-letters"]
    assert life.read() == [{"n": 1}], "its buckets stay, and its hours go on closing, empty"
    assert "click" in {f.event_type for f in frontiers(life.world.database, 3600)}
    with pytest.raises(
        UsageError, match="schema id 1 cannot be read with this declaration: field n"
    ):
        life.apply({"name": "n", "type": "string"})
    life.apply(N)
    assert (
        life.registry.find("events.click", EventType(name="click", fields=[N]).schema()) == before
    )
    life.close(n=3)
    assert life.read() == [{"n": 1}, {"n": 3}]


def test_a_name_that_was_given_up_keeps_its_type(life: TypeLife) -> None:
    """The version between reads both; the newest must read the oldest too."""
    life.apply(N, {"name": "size", "type": "long", "default": 0})
    life.close(n=1, size=2)
    life.apply(N)
    with pytest.raises(
        UsageError,
        match=r"schema id 1 cannot be read with this declaration: field size \(reader type: string",
    ):
        life.apply(N, {"name": "size", "type": "string", "default": ""})
    assert life.read() == [{"n": 1}]


def test_a_refused_change_leaves_nothing_behind(life: TypeLife) -> None:
    life.apply(N)
    registered, latest, published = (
        dict(life.registry.by_id),
        life.ledger.book().latest,
        list(life.topic.log),
    )
    with pytest.raises(UsageError):
        life.apply({"name": "n", "type": "string"})
    assert (life.registry.by_id, life.ledger.book().latest, life.topic.log) == (
        registered,
        latest,
        published,
    )
