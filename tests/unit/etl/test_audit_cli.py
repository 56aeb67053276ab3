"""`hourmark audit` on a real ledger and real staged files: it adds up, and each difference planted names stage, hosts, ranges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete, update
from tests.support.rules import put_rules

from hourmark.audit import AuditRecord, promises
from hourmark.avro import frame
from hourmark.config import load_config
from hourmark.errors import Finding, UsageError
from hourmark.event_id import EventId, LineIds
from hourmark.event_types import EventType, Source
from hourmark.hours import Hour
from hourmark.manifest import Book, BucketFile, Evidence, Grade, Manifest, Offsets
from hourmark.ranges import RangeId
from hourmark.record_key import RecordKey
from hourmark_etl.ledger import frontiers as ledger
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import begin_positions, commit_batch
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import Frontier, OriginHourSums, Position, Seal, StagedBatch
from hourmark_etl.operators.audit import audit
from hourmark_etl.staging.pieces import StagePlan
from hourmark_etl.staging.stage import stage_table
from hourmark_etl.storage import open_storage

HOUR = Hour.parse("2026-01-05T07")
FROM = ("--from", str(HOUR))
IDS = LineIds("a" * 32, "b" * 32, 0)
EVENTS = Position(cluster_id="cluster", topic_id="id-e", topic="events.click", partition=0, next_offset=0)
AUDIT = Position(cluster_id="cluster", topic_id="id-a", topic="hourmark.audit", partition=0, next_offset=0)
ONE, TWO = RangeId(b"range--1"), RangeId(b"range--2")


def ids(*numbers: int, hour: Hour = HOUR) -> list[EventId]:
    return [IDS.make(hour.start_s * 1000 + n, n, b"line") for n in numbers]


class World:
    """One type, staged by the real staging function; closed without a proof, so that a test can lie."""

    def __init__(self, file: Path) -> None:
        self.config = load_config(file)
        self.storage = open_storage(self.config.storage)
        click = EventType(name="click", fields=[{"name": "n", "type": "long"}])
        put_rules(self.config, [click], [Source(name="app", types=["click"])], HOUR)
        self.database = Database(self.config.etl.ledger)
        self.consumer, self.closer = self.database.acquire("consumer:default"), self.database.acquire("closer")
        begin_positions(self.database, self.consumer, [EVENTS, AUDIT])
        self._next = {EVENTS.topic: 0, AUDIT.topic: 0}
        self._batches = 0

    def stage(
        self, sent: Sequence[tuple[RangeId, Sequence[EventId]]], promised: Sequence[tuple[RangeId, Sequence[EventId]]]
    ) -> None:
        """One batch: events of ranges, and audit records."""
        rows = [(RecordKey(i, r).encode(), frame(1) + b"datum", EVENTS.topic) for r, found in sent for i in found]
        for range_id, found in promised:
            record = AuditRecord(
                range_id=range_id,
                kind="range",
                host_id="a" * 32,
                host_name="web-7",
                file_id="b" * 32,
                generation=0,
                start=0,
                end=100,
                observed_at_ms=0,
                rules="1-0",
                source="app",
                path="/log/app.log",
                lines=len(found),
                promised=promises(("click", i.time_ms // 3_600_000 * 3600, i) for i in found),
            )
            rows.append((bytes(range_id), frame(1) + record.encode(), AUDIT.topic))
        starts = dict(self._next)
        offsets = []
        for _, _, topic in rows:
            offsets.append(self._next[topic])
            self._next[topic] += 1
        keys, values, topics = (list(column) for column in zip(*rows, strict=True))
        columns = [
            pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(topics), pa.array([0] * len(rows), pa.int32()),
            pa.array(offsets, pa.int64()),
        ]  # fmt: skip
        table = pa.table(columns, ["key", "value", "topic", "partition", "offset"])
        self._batches += 1
        folder = f"_staging/{self._batches}"
        plan = StagePlan(
            storage=self.config.storage,
            folder=folder,
            bucket_seconds=3600,
            types={EVENTS.topic: "click"},
            audit_topic=AUDIT.topic,
            hosts_topic="hourmark.hosts",
        )
        piece = stage_table(table, (), plan, self.storage)
        ends = [(p, self._next[p.topic]) for p in (EVENTS, AUDIT)]
        batch = StagedBatch(
            folder=folder,
            starts=tuple(_at(p, starts[p.topic]) for p in (EVENTS, AUDIT)),
            ends=tuple(_at(p, end) for p, end in ends),
            files=tuple(f.file for f in piece.files),
            groups=piece.groups,
            audit_groups=piece.audit_groups,
            reports=(),
        )
        commit_batch(self.database, self.consumer, batch)

    @property
    def frontier(self) -> Frontier:
        (found,) = ledger.frontiers(self.database, 3600)
        return found

    def close(self, book: Book, *, grade: Grade = Grade.PROVED) -> None:
        """Close the frontier hour, of which the bucket holds what the book says."""
        opened = self.frontier
        ledger.freeze(self.database, self.closer, [opened], {"click": EVENTS.topic})
        books = (OriginHourSums(opened.hour.start_s, book.promised, book.unaudited),)
        seal = Seal(
            grade=grade.value,
            method="join",
            cut_at_ms=1,
            audit_next=self._next[AUDIT.topic],
            audit_records=1,
            promised=book.promised,
            unaudited=book.unaudited,
            waived=(),
            offsets=(),
            books=books,
        )
        ledger.seal(self.database, self.closer, {"click": [seal]}, [self.frontier])
        file = BucketFile(name="part-00000.avro", records=book.events, bytes=1, blake2b="", schema_id=1, schema_fingerprint="")
        evidence = Evidence(
            method="join", cut_at_ms=1, audit_records=1, promised=book.promised, audit_next={"0": self._next[AUDIT.topic]}
        )
        manifest = Manifest(
            type="click", hour=str(opened.hour), bucket_seconds=3600, grade=grade, evidence=evidence, files=[file],
            events=book.events, late={}, books={str(opened.hour): book}, duplicates_removed=book.rows - book.events,
            unaudited=book.unaudited, id_sum="0" * 16,
            offsets=[Offsets(topic=EVENTS.topic, topic_id=EVENTS.topic_id, partition=0, next=self._next[EVENTS.topic])],
            ledger="l", ledger_commit=1, attempt="a", closed_at_ms=opened.hour.end_ms, software="test",
        )  # fmt: skip
        ledger.close_all(self.database, self.closer, [ledger.Closing(self.frontier, manifest)])


def _at(position: Position, next_offset: int) -> Position:
    return Position(
        cluster_id=position.cluster_id,
        topic_id=position.topic_id,
        topic=position.topic,
        partition=position.partition,
        next_offset=next_offset,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "hourmark.toml"
    made.write_text(f'[storage]\nroot = "file://{tmp_path}/root"\n[etl]\nledger = "sqlite:///{tmp_path}/ledger.sqlite"\n')
    return made


@pytest.fixture
def world(file: Path) -> Iterator[World]:
    made = World(file)
    yield made
    made.database.close()


@pytest.fixture
def run(file: Path) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(audit, [*arguments, "--config", str(file)])


Run = Callable[..., Result]


def hours(result: Result) -> dict[str, dict[str, Any]]:
    return {row["hour"]: row for row in json.loads(result.stdout)["hours"]}


def test_a_closed_hour_with_duplicates_and_unaudited_adds_up(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2, 3)), (ONE, ids(1, 2, 3)), (TWO, ids(4))], [(ONE, ids(1, 2, 3))])
    world.close(Book(rows=7, events=4, promised=3, unaudited=1))
    world.stage([(TWO, ids(9, hour=HOUR.next()))], [])
    result = run("click", *FROM, "--ranges", "--json")
    assert result.exit_code == 0, result.exception
    found = hours(result)[str(HOUR)]
    assert (found["promised"], found["staged"], found["closed"], found["open"]) == (3, 7, 4, 0)
    assert (found["duplicates_removed"], found["unaudited"], found["state"]) == (3, 1, "proved")
    assert hours(result)[str(HOUR.next())]["open"] == 1
    text = run("click", *FROM).stdout
    assert text.splitlines()[0].split()[:3] == ["hour", "state", "promised"]
    assert text.endswith(f"the books add up: of 2 hours of click from {HOUR} on, 1 is closed\n")
    assert json.loads(result.stdout)["looked_at"] == {
        "type": "click", "from": str(HOUR), "to": None, "types": 1, "hours": 2, "closed": 1, "verdict": "adds up",
    }  # fmt: skip
    assert run(*FROM).stdout.splitlines()[1].split()[:5] == ["click", "2", "3", "8", "4"]


def test_a_promise_on_its_way_is_no_difference_until_a_proof_has_failed_and_then_its_range_is_named(
    world: World, run: Run
) -> None:
    world.stage([(ONE, ids(1, 2)), (TWO, ids(4))], [(ONE, ids(1, 2, 3)), (TWO, ids(4))])
    result = run("click", *FROM, "--json")
    assert result.exit_code == 0 and hours(result)[str(HOUR)]["on_its_way"] == 1
    opened = world.frontier
    ledger.freeze(world.database, world.closer, [opened], {"click": EVENTS.topic})
    ledger.unfreeze_all(world.database, world.closer, [(world.frontier, ["range …"])])
    result = run("click", *FROM)
    assert isinstance(result.exception, Finding)
    assert f"click {HOUR} [arrival] 4 events are promised, 3 rows are staged, and the last proof failed" in result.stdout
    assert f"range {ONE.hex()} (range of web-7: /log/app.log [0, 100) generation 0): 3 promised, 2 found" in result.stdout
    assert TWO.hex() not in result.stdout


def test_a_group_that_is_missing_in_the_ledger_names_its_file(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2)), (ONE, ids(3, hour=HOUR.next()))], [])
    with world.database.transaction() as connection:
        connection.execute(delete(tables.groups).where(tables.groups.c.hour == HOUR.start_s))
    result = run(*FROM)
    assert isinstance(result.exception, Finding)
    assert "[staging] the file holds 3 rows of events, the ledger's groups of it 1" in result.stdout
    assert json.loads(run(*FROM, "--json").stdout)["files"][0]["in_groups"] == 1


def test_a_bucket_that_does_not_hold_what_it_took_in_is_told(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2, 3))], [(ONE, ids(1, 2, 3))])
    world.close(Book(rows=3, events=2, promised=3, unaudited=0))
    assert run(*FROM).exit_code == 0  # it says that one was a duplicate, and counts agree: …
    result = run(*FROM, "--ranges")
    assert result.exit_code == 0  # … what is staged keeps the promise. The bucket's own check and the proof compare ids
    with world.database.transaction() as connection:
        (text,) = connection.execute(tables.buckets.select().with_only_columns(tables.buckets.c.manifest)).one()
        lying = Manifest.decode(text.encode()).model_copy(update={"duplicates_removed": 0})
        connection.execute(update(tables.buckets).values(manifest=lying.encode().decode()))
    result = run(*FROM, "--json")
    assert isinstance(result.exception, Finding)
    (difference,) = json.loads(result.stdout)["differences"]
    assert (difference["stage"], difference["hour"]) == ("writing", str(HOUR))
    assert "it took in 3 rows, but accounts for 2 events and 0 duplicates removed" in difference["detail"]


def test_duplicates_that_hide_a_loss_from_counts_do_not_hide_it_from_ranges(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2)), (ONE, ids(1))], [(ONE, ids(1, 2, 3))])
    world.close(Book(rows=3, events=2, promised=3, unaudited=0))
    assert run(*FROM).exit_code == 0
    result = run(*FROM, "--ranges")
    assert isinstance(result.exception, Finding)
    assert "[proof] promises of a proved bucket are not kept by what is staged" in result.stdout
    assert f"range {ONE.hex()} (range of web-7: /log/app.log" in result.stdout


def test_a_settled_promise_without_rows_names_its_range(world: World, run: Run) -> None:
    world.stage([(TWO, ids(4))], [(ONE, ids(1, 2, 3)), (TWO, ids(4))])
    world.close(Book(rows=1, events=1, promised=4, unaudited=0))
    result = run(*FROM)
    assert isinstance(result.exception, Finding)
    assert "[proof] 4 events are promised and settled, buckets took in 1 rows only" in result.stdout
    assert f"range {ONE.hex()} (range of web-7" in result.stdout and "3 promised, 0 found" in result.stdout


def test_a_bucket_that_timed_out_waives_what_is_missing(world: World, run: Run) -> None:
    world.stage([(TWO, ids(4))], [(ONE, ids(1, 2, 3)), (TWO, ids(4))])
    world.close(Book(rows=1, events=1, promised=4, unaudited=0), grade=Grade.TIMED_OUT)
    result = run("click", *FROM, "--ranges", "--json")
    assert result.exit_code == 0, result.exception
    assert (hours(result)[str(HOUR)]["waived"], hours(result)[str(HOUR)]["state"]) == (3, "timed_out")


def test_the_books_of_hours_whose_staged_files_are_cleaned_away_come_from_manifests(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2, 3))], [(ONE, ids(1, 2, 3))])
    world.close(Book(rows=3, events=3, promised=3, unaudited=0))
    before = run("click", *FROM, "--json").stdout
    with world.database.transaction() as connection:
        for table in (tables.groups, tables.audit_groups, tables.staged_files):
            connection.execute(delete(table))
    after = run("click", *FROM, "--ranges", "--json")
    assert after.exit_code == 0 and after.stdout == before


def test_a_damaged_staged_file_is_said_where_ranges_cannot_be_told(world: World, run: Run, tmp_path: Path) -> None:
    world.stage([(TWO, ids(4))], [(ONE, ids(1, 2, 3))])
    world.close(Book(rows=1, events=1, promised=3, unaudited=1))
    for found in (tmp_path / "root" / "_staging").rglob("events-*"):
        found.write_bytes(b"damaged")
    result = run(*FROM)
    assert isinstance(result.exception, Finding)
    assert "ranges cannot be told: " in result.stdout and "events-" in result.stdout


def test_hours_outside_of_the_window_are_left_out(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1)), (ONE, ids(2, hour=HOUR.next()))], [])
    assert list(hours(run("click", *FROM, "--to", str(HOUR), "--json"))) == [str(HOUR)]
    assert list(hours(run("click", "--from", str(HOUR.next()), "--json"))) == [str(HOUR.next())]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clik"], "no event type clik"),
        (["--from", str(HOUR.next()), "--to", str(HOUR)], "lies before --from"),
        (["--from", "yesterday"], "no hour"),
    ],
)
def test_wrong_use_is_refused(world: World, run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, UsageError) and message in str(result.exception)


def looked_at(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)["looked_at"]
    return found


def test_on_the_first_day_there_is_nothing_to_compare_and_that_is_said(world: World, run: Run) -> None:
    result = run(*FROM)
    assert result.exit_code == 0
    assert "add up" not in result.stdout
    assert f"nothing to compare yet: of hours from {HOUR} on, no event, promise or bucket is known" in result.stdout
    assert "`hourmark bucket ls`" in result.stdout
    found = looked_at(run(*FROM, "--json"))
    assert (found["verdict"], found["hours"], found["closed"], found["from"]) == ("nothing to compare", 0, 0, str(HOUR))


def test_hours_that_are_open_alone_are_nothing_to_compare(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2))], [(ONE, ids(1, 2))])
    said = run(*FROM).stdout
    assert f"nothing to compare yet: 1 hour from {HOUR} on is open, and none is closed" in said and "add up" not in said
    found = looked_at(run(*FROM, "--json"))
    assert (found["verdict"], found["hours"], found["closed"]) == ("nothing to compare", 1, 0)


def test_closed_buckets_before_the_span_are_said_to_be_there_with_the_way_to_look_at_them(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2, 3))], [(ONE, ids(1, 2, 3))])
    world.close(Book(rows=3, events=3, promised=3, unaudited=0))
    later = HOUR.next()
    said = run("click", "--from", str(later), "--to", str(later)).stdout
    assert f"nothing to compare: of hours of click from {later} to {later}, no event, promise or bucket is known" in said
    assert f"the oldest bucket is of {HOUR}: `hourmark audit click --from {HOUR}` looks at all" in said
    said = run().stdout  # as far back as promises are kept
    assert "nothing to compare: " in said and f"`hourmark audit --from {HOUR}` looks at all" in said


def test_a_difference_is_no_reason_to_say_that_nothing_was_compared(world: World, run: Run) -> None:
    world.stage([(ONE, ids(1, 2)), (ONE, ids(3, hour=HOUR.next()))], [])
    with world.database.transaction() as connection:
        connection.execute(delete(tables.groups).where(tables.groups.c.hour == HOUR.start_s))
    result = run(*FROM, "--json")
    assert isinstance(result.exception, Finding) and looked_at(result)["verdict"] == "differences"
    assert "nothing to compare" not in run(*FROM).stdout
