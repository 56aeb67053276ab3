"""docs/concepts: ids are the parser's, and outputs are what the product prints.

Outputs of `bucket why` and `bucket show` are compared with those of played histories
(tests/support/simulator/world.py) after names and numbers are masked.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator

import pytest
from tests.support.closing import (
    append,
    arrive,
    frontier,
    hour,
    line,
    override,
    poll,
    send,
    settle,
    settle_old,
    until,
    wait_of,
)
from tests.support.documents import ROOT, console_commands
from tests.support.simulator import producers as played
from tests.support.simulator.sites import FURTHER
from tests.support.simulator.truth import EDGE_PARTITIONS, FIRST_HOUR, make_template
from tests.support.simulator.world import World

from hourmark.config.groups import ParsingSettings
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import CONTROL
from hourmark.records.host_reports import SourceReport
from hourmark.records.hours import Hour
from hourmark.records.ranges import ByteRange
from hourmark.records.record_key import RecordKey
from hourmark.records.wire import range_headers
from hourmark.rules.event_types import DEAD_LETTERS, EventType, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, ParsedRange, parse_range
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.ledger.heartbeat import DriverSigns
from hourmark_etl.operators.buckets.text import format_manifest
from hourmark_etl.operators.explain import explain_hour, format_explanation
from hourmark_etl.operators.hour_facts import read_hour_facts

FOLDER = ROOT / "docs" / "concepts"
PAGES = {page.stem: page.read_text() for page in FOLDER.glob("*.md") if page.stem != "rotation"}
BODY = b"""\
<134>1 2026-11-21T05:29:16.822Z web-1 shop 4711 page-viewed - {"page": "/start", "milliseconds": 31}
<134>1 2026-11-21T05:29:17.034Z web-1 shop 4711 page-viewed - {"page": "/cart", "milliseconds": "fast"}
<134>1 2026-11-21T05:29:18.250Z web-1 shop 4711 app-log - cart of 3 items restored
"""
FIRST_LINE = len(BODY.splitlines(keepends=True)[0])
OLD_HOUR = Hour(FIRST_HOUR.start_s - 3600 * 41)


def types() -> list[EventType]:
    """Those of the examples that the line's source may carry."""
    files = (ROOT / "examples" / "types" / f"{name}.toml" for name in ("page-viewed", "app-log"))
    return [EventType(**tomllib.loads(file.read_text())) for file in files]


RULES = Rules(
    sequence=1,
    types={t.name: TypeVersion(t, n) for n, t in enumerate([*types(), DEAD_LETTERS], 1)},
    sources={"app": Source(name="app", types=["page-viewed", "app-log"])},
    parsing=ParsingSettings(),
)


def byte_range(body: bytes, start: int) -> ByteRange:
    return ByteRange(
        host_id="5f1d3c9a7be24c0f8a6d2e41907b53c8",
        host_name="web-1",
        file_id="8c2e51d04b7f49a3860d9ce2f1a7403b",
        generation=0,
        start=start,
        end=start + len(body),
        observed_at_ms=1795238959107,
        rules=RULES.id,
        zone="Europe/Berlin",
        source="app",
        path="/var/log/app/app.log",
    )


def parsed(body: bytes = BODY, start: int = 98211) -> ParsedRange:
    return parse_range(byte_range(body, start), body, CompiledRules(RULES))


def event_ids(of: ParsedRange) -> list[str]:
    return [str(RecordKey.decode(record.key).event_id) for record in of.records]


def test_the_followed_line_has_the_headers_and_ids_that_the_pages_show() -> None:
    life, ids = PAGES["life-of-an-event"], PAGES["ranges-and-ids"]
    headers = re.findall(r"^(Hourmark-\S+): (\S+)$", life, re.MULTILINE)
    made = range_headers(byte_range(BODY, 98211))
    assert len(headers) == 8
    assert all(made[name] == value for name, value in headers)
    assert BODY.splitlines()[0].decode() in life
    for record, event_id in zip(parsed().records, event_ids(parsed()), strict=True):
        assert re.search(rf"^{record.event_type} +{event_id} ", life, re.MULTILINE)
    key = parsed().records[0].key
    assert f"{key[:16].hex()} {key[16:].hex()}" in ids
    for promise in parsed().audit.promised:
        row = f"| {promise.event_type} | 2026-11-21T05 | 1 | `{promise.sum:016x}` | "
        assert f"{row}`{promise.checksum:016x}` |" in ids


def test_lines_in_other_ranges_have_the_same_ids() -> None:
    first, rest = BODY[:FIRST_LINE], BODY[FIRST_LINE:]
    assert event_ids(parsed(first)) + event_ids(parsed(rest, 98211 + FIRST_LINE)) == event_ids(
        parsed()
    )
    for body, start in ((BODY, 98211), (first, 98211), (rest, 98211 + FIRST_LINE)):
        made = byte_range(body, start)
        shown = f"range {made.range_id(body)} [{made.start}, {made.end})"
        assert shown in PAGES["ranges-and-ids"]


def masked(text: str) -> str:
    """Without what differs from history to history: names, numbers, digests, units."""
    for pattern, mark in (
        (r"page-viewed|click", "TYPE"),
        (r"web-\d|host-\d", "HOST"),
        (r"/var/log/app/app\.log|/log\b", "FILE"),
        (r"range of \S+:", "range of HOST:"),
        (r"ada@ops-1: edge topic lost, ticket 17|ada: cannot wait", "OPERATOR"),
        (r"\b[0-9a-f]{12,}\b|\d+(\.\d+)?", "N"),
        (r"\bN (s|min|h)\b", "N t"),
        (r"\b(event|record|occasion)s?\b", r"\1s"),
    ):
        text = re.sub(pattern, mark, text)
    return " ".join(text.split())


def outputs(page: str) -> list[str]:
    """What `bucket why` and `bucket show` print in the page's console blocks."""
    return [
        text
        for command, output in console_commands(PAGES[page])
        if command.startswith(("hourmark bucket why", "hourmark bucket show"))
        for text in output.splitlines()
        if text.strip() != "…"
    ]


class Printed:
    """All lines that were printed of played hours."""

    def __init__(self) -> None:
        self.lines: set[str] = set()

    def why(self, world: World, at: Hour) -> None:
        now_ms = world.clock.now_ms()
        facts = read_hour_facts(world.database, world.config, "click", at, now_ms)
        facts = dataclasses.replace(facts, driver=DriverSigns(heartbeat_ms=now_ms))
        self.lines |= {*map(masked, format_explanation(explain_hour(facts), now_ms))}

    def both(self, world: World, at: Hour) -> None:
        """Of a closed bucket."""
        self.why(world, at)
        text = format_manifest(world.storage, at, read_manifest(world.storage, "click", at))
        self.lines |= {*map(masked, text.splitlines())}

    def has(self, text: str) -> bool:
        """Whether a line was printed; where it is cut, one that begins so."""
        wanted = masked(text)
        if wanted.endswith("…"):
            return any(known.startswith(wanted.removesuffix("…").rstrip()) for known in self.lines)
        return wanted in self.lines


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Printed]:
    folder, told = tmp_path_factory.mktemp("concepts"), Printed()
    template = make_template(folder)
    with pytest.MonkeyPatch.context() as patch:
        for play in (play_grades, play_losses, play_old_hours):
            world = World(folder, template)
            play(world, told, patch)
            world.end()
        world = World(folder, template, FURTHER)
        play_two_sites(world, told)
        world.end()
    yield told


def play_grades(world: World, told: Printed, _: pytest.MonkeyPatch) -> None:
    """A host is behind; buckets close as proved, with late events, as timed out and as forced."""
    send(world, ["click"] * 3)
    until(world, FIRST_HOUR, 4)
    for seed in range(10):
        world.producers.cut_range(seed)
    world.producers.report(0)
    poll(world)
    told.why(world, FIRST_HOUR)
    for held in world.producers.ranges[1:]:  # each once: a duplicate takes a proof by join
        append(world, held, held.events)
        world.producers.promise(held, held.events)
        held.acked = True
    settle(world)
    told.both(world, FIRST_HOUR)
    send(world, ["click"], FIRST_HOUR.start_s * 1000)
    settle(world, hour(1))
    told.both(world, hour(1))
    world.producers.host_dies(0)
    settle(world, hour(2), 600)
    told.why(world, hour(2))
    settle(world, hour(2), 7201)
    told.both(world, hour(2))
    world.producers.host_returns(0)
    settle(world)
    at = frontier(world).hour
    until(world, at, -60)
    send(world, ["click", "click"])
    clicks = Partition("events.click", 0)
    world.pipeline.mirror.copy(clicks, world.pipeline.mirror.lag(clicks), drop=1)
    settle(world, at)
    assert wait_of(world).phase == "proof"
    told.why(world, at)
    override(world)
    world.clock.advance(15)
    settle(world)
    told.both(world, at)


def play_losses(world: World, told: Printed, patch: pytest.MonkeyPatch) -> None:
    """Hosts report losses; then the mirror is behind."""
    line(world, 6)
    settle(world)

    def losing(source: str, caught_up_at_ms: int, pending: int, _: int) -> SourceReport:
        return SourceReport(source, caught_up_at_ms, pending, 1834, 1)

    with patch.context() as patched:
        patched.setattr(played, "SourceReport", losing)
        settle(world, FIRST_HOUR)
    told.both(world, FIRST_HOUR)
    line(world, 6)
    until(world, hour(1), 5)
    for _ in range(8):
        world.producers.report(0)
        arrive(world, *CONTROL)
        world.closer.step()
        world.clock.advance(5)
    assert wait_of(world).phase == "events"
    told.why(world, hour(1))


def play_old_hours(world: World, told: Printed, _: pytest.MonkeyPatch) -> None:
    """Two old hours are back-filled, and those between them are skipped."""
    for at in (OLD_HOUR, FIRST_HOUR.previous()):
        send(world, ["click"], at.start_s * 1000)
    settle_old(world)
    told.why(world, OLD_HOUR.next())


def play_two_sites(world: World, told: Printed) -> None:
    """The mirror of the second site copies nothing."""
    world.producers.at = world.producers.edges[1]
    send(world, ["click"])
    until(world, FIRST_HOUR, 5)
    for _ in range(8):
        world.producers.report(0)
        for p in EDGE_PARTITIONS:
            world.pipeline.mirror.copy(p, world.pipeline.mirror.lag(p))
        world.pipeline.stage_all(0)
        world.closer.step()
        world.clock.advance(5)
    told.why(world, FIRST_HOUR)


@pytest.mark.parametrize("page", [page for page in PAGES if outputs(page)])
def test_outputs_are_what_the_product_prints(page: str, printed: Printed) -> None:
    assert [text for text in outputs(page) if not printed.has(text)] == []


def test_an_output_that_the_product_does_not_print_is_noticed(printed: Printed) -> None:
    assert printed.has("  unaudited   0 events without an audit record so far")
    assert not printed.has("  unaudited   0 events that nobody promised")
    assert not printed.has("  because   evidence (magic): 8 …")
