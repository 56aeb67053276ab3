"""Operators over time: they apply types, die half way, come two at once; the topic compacts, topic
and registry are lost; services restart; ranges are sent again days later. What must hold is in
`World.check`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import fastavro
from tests.support.rules_servers import Crash, MemoryRegistry, MemoryTopic, outside
from tools.keep_zone_data import installed_zones, zipped

from hourmark.avro.framing import Schema, unframe
from hourmark.errors import Finding, UsageError
from hourmark.records.hours import Hour
from hourmark.records.ranges import ByteRange
from hourmark.rules import change
from hourmark.rules.event_types import DEAD_LETTERS, Declarations, EventType, LineRule, Source
from hourmark.rules.revision import PARSER, ParserVersion
from hourmark_declare.apply import apply_declarations, repair_rules
from hourmark_delivery_service.metrics import ServiceMetrics
from hourmark_delivery_service.parsing import CompiledRules, ParsedRange, parse_range, zones
from hourmark_delivery_service.work.rules_store import RulesStore
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontier_rows import find_sources_of_type
from hourmark_etl.ledger.frontiers import frontiers
from hourmark_etl.ledger.rules import LedgerRules
from hourmark_etl.ledger.schemas import known_schemas

HOUR = Hour(1_800_000_000, 3600)
_N = {"name": "n", "type": "long"}
# In this order each can read all before it; the last two cannot live together.
FIELDS = (
    [{"name": "n", "type": "int"}],
    [_N],
    [_N, {"name": "word", "type": ["null", "string"]}],
    [_N, {"name": "size", "type": "long", "default": 0}],
    [_N, {"name": "size", "type": "string", "default": ""}],
)
NAMES = ("apple", "berry", "cherry")
TICK = EventType(
    name="tick",
    fields=[_N],
    line=LineRule(
        payload="pattern", pattern=r"(?P<time>\S+ \S+) (?P<n>\d+)", time_format="%Y-%m-%d %H:%M:%S"
    ),
)
LOCAL = Source(name="local", format="free", types=["tick"])
LATER = ParserVersion(PARSER.parser, "2027.1")


class Broken(AssertionError):
    """A promise does not hold."""


class Service:
    """A delivery service: what it knows of rules, and how far it read."""

    def __init__(self) -> None:
        self.store = RulesStore(ServiceMetrics())
        self._made, self._next = -1, 0

    def poll(self, topic: MemoryTopic) -> None:
        """As `TopicFollower` reads."""
        anew = self._made != topic.made
        if anew:
            self._made, self._next = topic.made, 0
        new = [(offset, record) for offset, record in topic.log if offset >= self._next]
        self.store.feed(
            [(key.encode(), value.encode()) for _, (key, value) in new], from_start=anew
        )
        self._next = max([self._next, *(offset + 1 for offset, _ in new)])


@dataclasses.dataclass(frozen=True)
class Sent:
    """An acknowledged range: what was sent, and what it became."""

    range: ByteRange
    body: bytes
    number: int
    result: ParsedRange


class World:
    """One history."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.parser = PARSER  # of what operators run
        self.zones = folder / f"zones-{seed}"  # at hand for services
        self.zones.mkdir()
        shutil.copy(zones.FOLDER / f"{PARSER.zones}.zip", self.zones)
        self.database = Database(f"sqlite:///{folder}/ledger-{seed}.sqlite")
        self.ledger = LedgerRules(self.database)
        self.registry, self.topic = MemoryRegistry(), MemoryTopic()
        self.services = [Service(), Service()]
        self.sent: list[Sent] = []
        self.refused = 0
        self.done: list[str] = []

    def end(self) -> None:
        """Let go of the ledger."""
        self.database.close()

    def step(self) -> None:
        """One thing that happens."""
        happen: Callable[[], None] = self.random.choices(
            [
                self.apply,
                self.apply_twice_at_once,
                self.repair,
                self.topic.compact,
                self.topic.lose,
                self.lose_registry,
                self.restart,
                self.poll,
                self.send,
                self.send_again,
                self.new_release,
            ],
            [10, 4, 2, 4, 1, 1, 2, 10, 14, 10, 1],
        )[0]
        self.done.append(happen.__name__)
        happen()
        self.check()

    def apply(self) -> None:
        """An operator applies, with luck."""
        self._applied(self._declarations(), self._maybe_crash())

    def apply_twice_at_once(self) -> None:
        """Another operator comes in after the first has read what is in force: one of the two is
        refused.
        """
        mine, others = self._declarations(), self._declarations()
        moment, came = self.random.choice(["registry.register", "ledger.put"]), [""]

        def meanwhile(step: str) -> None:
            if step == moment and len(came) == 1:
                before = self._latest()
                came.append(
                    self._latest() if self._applied(others) and self._latest() != before else ""
                )

        if self._applied(mine, meanwhile) and came[-1] not in ("", self._latest()):
            raise Broken("two operators were both first")

    def repair(self) -> None:
        """Whatever was lost is written again; a registry with other contents is emptied first, as
        the message says.
        """
        with contextlib.suppress(Crash):
            self._repaired(self._maybe_crash())

    def lose_registry(self) -> None:
        """Recreated, or an older copy."""
        self.registry.lose(
            self.random.choice([0, self.random.randrange(len(self.registry.by_id) + 1)])
        )

    def restart(self) -> None:
        """A service forgets all it knew."""
        self.services[self.random.randrange(len(self.services))] = Service()

    def new_release(self) -> None:
        """Services have zone data of a later version at hand, in which Berlin keeps another time;
        then operators name it.
        """
        if len(list(self.zones.iterdir())) == 1:
            (self.zones / f"{LATER.zones}.zip").write_bytes(later_zones())
        else:
            self.parser = LATER

    def poll(self) -> None:
        """Services read what is new.

        What they hand to tailers is awaited by hours: every source that may carry a type.
        """
        for service in self.services:
            service.poll(self.topic)
            if (latest := service.store.latest) is not None:
                awaited = {f.event_type: f.sources for f in frontiers(self.database, HOUR.length_s)}
                for name in latest.types:
                    if not find_sources_of_type(name, latest.sources.values()) <= awaited.get(
                        name, frozenset()
                    ):
                        raise Broken(
                            f"hours of {name} do not wait for all that {latest.id} lets carry it"
                        )

    def send(self) -> None:
        """A range of one line, acknowledged."""
        service = self.random.choice(self.services)
        rules = service.store.latest
        if rules is None:
            return
        number = len(self.sent) + 1
        source, name = self.random.choice([("local", ""), *(("app", name) for name in NAMES)])
        line = (
            f'<13>1 2027-01-15T08:00:00Z h a - {name} - {{"n":{number}}}\n'
            if name
            else f"2027-01-15 08:00:00 {number}\n"
        )
        body = line.encode()
        taken = ByteRange(
            host_id="a" * 32,
            file_id="b" * 32,
            generation=0,
            start=number * 1000,
            end=number * 1000 + len(body),
            observed_at_ms=HOUR.start_s * 1000,
            rules=rules.id,
            zone="Europe/Berlin",
            source=source,
            path="/log",
            host_name="h",
        )
        self.sent.append(Sent(taken, body, number, parse_range(taken, body, rules)))

    def send_again(self) -> None:
        """Any range, through any service: the same, byte for byte, or refused."""
        if self.sent:
            sent, service = self.random.choice(self.sent), self.random.choice(self.services)
            self._same(sent, service.store.get(sent.range.rules))

    def check(self) -> None:
        """What was acknowledged can be read under the ids it was written with, and with the newest
        schema of its type.
        """
        known = known_schemas(self.database)
        book = self.ledger.book()
        latest = book.latest.types if book.latest else {}
        for sent in (
            self.sent[-5:] if len(self.sent) > 5 and self.random.random() < 0.8 else self.sent
        ):
            for record in sent.result.records:
                schema_id, datum = unframe(record.value)
                if schema_id not in known or known[schema_id].event_type != record.event_type:
                    raise Broken(
                        f"id {schema_id} of {record.event_type} stands for {known.get(schema_id)}"
                    )
                written = _parsed(json.loads(known[schema_id].text))
                number = _number(datum, written, None)
                if record.event_type != DEAD_LETTERS.name and number != sent.number:
                    raise Broken(f"{record.event_type} {sent.number} reads as {number}")
                if record.event_type in latest:
                    _number(datum, written, _parsed(latest[record.event_type].schema))

    def settle(self) -> None:
        """In the end everything is repaired, and every range that was ever acknowledged is the same
        everywhere.
        """
        self._repaired()
        latest = self.ledger.book().latest
        types = [t.declaration for t in latest.types.values()] if latest else [DEAD_LETTERS]
        if not self._applied(Declarations(types, [*latest.sources.values()] if latest else [])):
            raise Broken("declarations that were in force cannot be applied after a repair")
        for service in [*self.services, Service()]:
            service.poll(self.topic)
            for sent in self.sent:
                rules = service.store.get(sent.range.rules)
                if rules is None:
                    raise Broken(
                        f"{sent.range.rules} stays unknown: "
                        f"{service.store.unavailable_reason(sent.range.rules)}"
                    )
                self._same(sent, rules)
        self.check()

    def _repaired(self, at: Callable[[str], None] | None = None) -> None:
        try:
            repair_rules(outside(self.ledger, self.registry, self.topic, at), HOUR)
        except Finding:
            self.registry = MemoryRegistry()
            repair_rules(outside(self.ledger, self.registry, self.topic), HOUR)

    def _same(self, sent: Sent, rules: CompiledRules | None) -> None:
        if rules is not None and parse_range(sent.range, sent.body, rules) != sent.result:
            raise Broken(f"range {sent.number} became something else under {sent.range.rules}")

    def _applied(self, declared: Declarations, at: Callable[[str], None] | None = None) -> bool:
        """Whether it was put in force; where it was refused or died, the next may go on."""
        try:
            with mock.patch.object(change, "PARSER", self.parser):
                apply_declarations(
                    outside(self.ledger, self.registry, self.topic, at),
                    declared,
                    HOUR,
                    may_remove=True,
                    may_refuse=True,
                )
        except (UsageError, Finding):
            self.refused += 1
            return False
        except Crash:
            return False
        return True

    def _declarations(self) -> Declarations:
        names = self.random.sample(NAMES, self.random.randint(1, len(NAMES)))
        types = [EventType(name=name, fields=self.random.choice(FIELDS)) for name in names]
        sources = [Source(name="app", types=names), LOCAL]
        if self.random.random() < 0.5:
            sources.append(Source(name="web", types=names[:1]))
        return Declarations([*types, TICK, DEAD_LETTERS], sources)

    def _maybe_crash(self) -> Callable[[str], None]:
        left = self.random.choice([1000, self.random.randrange(25)])

        def at(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash

        return at

    def _latest(self) -> str:
        latest = self.ledger.book().latest
        return latest.id if latest else ""


@functools.cache
def later_zones() -> bytes:
    """Zone data of a later version."""
    installed = installed_zones()
    return zipped({**installed, "Europe/Berlin": installed["Etc/GMT-2"]})


def _parsed(schema: Schema) -> Schema:
    parsed: Schema = fastavro.parse_schema(schema, named_schemas={})  # type: ignore[assignment]
    return parsed


def _number(datum: bytes, written: Schema, reader: Schema | None) -> int | None:
    stream = io.BytesIO(datum)
    row = fastavro.schemaless_reader(stream, written, reader)
    if stream.read():
        raise Broken("bytes are left over behind a datum")
    assert isinstance(row, dict)
    number = row.get("n")
    assert number is None or isinstance(number, int)
    return number
