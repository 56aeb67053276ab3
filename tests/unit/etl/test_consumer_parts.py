"""What a batch commits, how a query's end is understood, how a type is set aside and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.errors import DataLoss, EtlStop, StaleDriver
from etl.ledger import staging as ledger
from etl.ledger.database import Database
from etl.ledger.overview import SetAside, set_aside
from etl.ledger.rows import AUDIT, EVENTS, Position, Span, StagedBatch
from etl.staging.consumer import batch_of, cause_of
from etl.staging.pieces import StagedNote, StagedPiece
from etl.staging.task import Answer
from etl.topics import CentralTopics
from hourmark.config import Kafka
from hourmark.errors import Unavailable, UsageError

NAMING = CentralTopics.of(Kafka(), ())
AT = Position("cluster", "id", "events.click", 0, 5)
BAD = SetAside("click", "events.click", 0, 5, "the key has not 24 bytes", 1)


def test_pieces_of_all_tasks_become_one_batch_whose_files_name_their_own_spans() -> None:
    click = [Span("events.click", "id", 0, 0, 5), Span("events.click", "id", 0, 5, 9)]
    audit = Span(NAMING.audit, "ida", 0, 3, 4)
    files = (
        StagedNote("uuid", EVENTS, 5, (click[0],), path="_staging/f/a"),
        StagedNote("uuid", AUDIT, 1, (audit,), path="_staging/f/b"),
    )
    first = Answer(StagedPiece(files), (click[0], audit))
    second = Answer(StagedPiece((StagedNote("uuid", EVENTS, 4, (click[1],), path="_staging/f/c"),)), (click[1],))
    batch = batch_of([second, first], "cluster", "default", 0)
    assert batch.folder == "_staging/f"
    assert {(p.topic, p.next_offset) for p in batch.starts} == {("events.click", 0), (NAMING.audit, 3)}
    assert {(p.topic, p.next_offset) for p in batch.ends} == {("events.click", 9), (NAMING.audit, 4)}
    assert {f.path[-1]: f.spans for f in batch.files} == {"a": (click[0],), "b": (audit,), "c": (click[1],)}


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("Traceback\netl.errors.DataLoss: topic x partition 1: gone\n SQLSTATE: 38000", DataLoss, "topic x partition 1: gone"),
        ("etl.storage.errors.SafeMode: /a (hdfs://x): read-only", Unavailable, "read-only"),
        ("hourmark.kafka._NoLeader: a\n\nhourmark.errors.Unavailable: the broker is away", Unavailable, "the broker is away"),
        ("Python worker exited unexpectedly (crashed)", Unavailable, "worker"),
        ("Python worker failed to connect back.\n=== Streaming Query ===", Unavailable, "worker"),
        ("KeyError: 'x'", EtlStop, "KeyError"),
    ],
)
def test_the_kind_of_error_is_found_in_what_spark_hands_on(text: str, kind: type[Exception], said: str) -> None:
    found = cause_of(text)
    assert type(found) is kind
    assert said in str(found)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    ledger.begin_positions(made, made.acquire("consumer:default"), [AT])
    return made


def test_a_type_is_set_aside_with_its_batch_and_resumed_past_its_record(database: Database) -> None:
    lease = database.acquire("consumer:default")
    empty = StagedBatch("", (), (), (), (), (), ())
    ledger.commit_batch(database, lease, empty, [BAD])
    ledger.commit_batch(database, lease, empty, [BAD])  # another partition of it: the first record stays named
    assert set_aside(database) == {"click": BAD}
    assert ledger.resume(database, "click", skip_record=True) == BAD
    assert set_aside(database) == {}
    assert [p.next_offset for p in ledger.positions(database, "cluster")] == [6]
    with pytest.raises(UsageError, match="is not set aside"):
        ledger.resume(database, "click", skip_record=False)


def test_only_the_one_record_is_ever_skipped(database: Database) -> None:
    lease = database.acquire("consumer:default")
    ledger.commit_batch(
        database, lease, StagedBatch("", (), (), (), (), (), ()), [SetAside("click", "events.click", 0, 4, "", 1)]
    )
    with pytest.raises(UsageError, match="is not at offset 4"):
        ledger.resume(database, "click", skip_record=True)
    assert [p.next_offset for p in ledger.positions(database, "cluster")] == [5]


def test_topics_are_left_to_another_shard_only_under_the_lease(database: Database) -> None:
    stale, lease = database.acquire("consumer:default"), database.acquire("consumer:default")
    with pytest.raises(StaleDriver):
        ledger.hand_over(database, stale, {"events.click": "heavy"})
    ledger.hand_over(database, lease, {"events.click": "heavy"})
    assert [p.shard for p in ledger.positions(database, "cluster")] == ["heavy"]
