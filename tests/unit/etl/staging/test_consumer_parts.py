"""What a batch commits, and where its scratch files are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.records import position, span

from hourmark.config.groups import KafkaSettings
from hourmark_etl.errors import StaleDriver
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import AUDIT, EVENTS
from hourmark_etl.staging.consumer import build_batch, checkpoint_dir
from hourmark_etl.staging.pieces import StagedChunk, StagedNote
from hourmark_etl.staging.stage import TaskResult
from hourmark_etl.topics import CentralTopicNames

NAMING = CentralTopicNames.from_settings(KafkaSettings(), ())
(AUDIT_TOPIC,) = NAMING.audits


def test_pieces_of_all_tasks_become_one_batch_whose_files_name_their_own_spans() -> None:
    click, audit = (span(0, 5), span(5, 9)), span(3, 4, AUDIT_TOPIC)
    files = (
        StagedNote(ledger="uuid", kind=EVENTS, rows=5, spans=(click[0],), path="_staging/f/a"),
        StagedNote(ledger="uuid", kind=AUDIT, rows=1, spans=(audit,), path="_staging/f/b"),
    )
    first = TaskResult(StagedChunk(files), (click[0], audit))
    last = StagedNote(ledger="uuid", kind=EVENTS, rows=4, spans=(click[1],), path="_staging/f/c")
    second = TaskResult(StagedChunk((last,)), (click[1],))
    batch = build_batch([second, first], "cluster", "default", 0)
    assert batch.folder == "_staging/f"
    assert {(p.topic, p.next_offset) for p in batch.starts} == {
        ("events.click", 0),
        (AUDIT_TOPIC, 3),
    }
    assert {(p.topic, p.next_offset) for p in batch.ends} == {("events.click", 9), (AUDIT_TOPIC, 4)}
    assert {f.path[-1]: f.spans for f in batch.files} == {
        "a": (click[0],),
        "b": (audit,),
        "c": (click[1],),
    }


def test_a_relative_scratch_folder_is_one_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        checkpoint_dir(Path("scratch"), "all").as_uri()
        == f"{tmp_path.as_uri()}/scratch/checkpoint-all"
    )
    assert checkpoint_dir(Path("/var/tmp/x"), "all").as_uri() == "file:///var/tmp/x/checkpoint-all"


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(f"sqlite:///{tmp_path}/ledger.sqlite")
    ledger.insert_new_positions(made, made.acquire("consumer:default"), [position(5)])
    return made


def test_topics_are_left_to_another_shard_only_under_the_lease(database: Database) -> None:
    stale, lease = database.acquire("consumer:default"), database.acquire("consumer:default")
    with pytest.raises(StaleDriver):
        ledger.assign_topics_to_shards(database, stale, {"events.click": "heavy"})
    ledger.assign_topics_to_shards(database, lease, {"events.click": "heavy"})
    assert [p.shard for p in ledger.positions(database, "cluster")] == ["heavy"]
