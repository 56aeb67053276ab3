"""What a driver keeps on storage of its ledger's offsets: one record that says what the ledger
does; of two, the gaps.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from sqlalchemy import select, update
from tests.support.closing import arrive, report, send
from tests.support.rebuilding import lose_ledger, staged_files
from tests.support.simulator.hooks import Killed
from tests.support.simulator.world import World

from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT, central_topic, events_topic
from hourmark_etl.errors import StaleDriver
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.batches import (
    create_retention_gap,
    create_truncation_gap,
    record_truncated_audit_logs,
)
from hourmark_etl.ledger.database import CLOSER
from hourmark_etl.ledger.partitions.offset_gaps import (
    OffsetGap,
    all_gaps,
    has_lost_end,
    open_gaps,
    put_gaps,
)
from hourmark_etl.model import StagingPosition
from hourmark_etl.recovery.offset_records import (
    OffsetBackupFile,
    OffsetBackupWriter,
    import_recorded_gaps,
    read_offset_backup,
    record_lost_ends,
)
from hourmark_etl.staging.verified import compute_digest
from hourmark_etl.storage import BadBlocks, StorageError


def live(world: World) -> None:
    """Events are staged, and the closer looks at the edge."""
    send(world, ["click", "view"])
    arrive(world)
    world.clock.advance(31)
    report(world)
    world.closer.step()


def records(world: World) -> list[str]:
    return [p for p in world.storage.content("_ledger") if "/offsets-" in p]


def test_a_record_takes_the_place_of_the_one_before_and_of_two_the_gaps_count(world: World) -> None:
    ledger, _ = world.database.identity()
    live(world)
    world.ledgers.keep_checks(0)
    (first,) = records(world)
    live(world)
    recorder = OffsetBackupWriter(world.storage, world.database, world.clock)
    recorder.poll(world.closer.lease)
    (second,) = records(world)
    assert first != second
    recorder.update(world.closer.lease)
    assert records(world) == [second], "nothing has changed"
    found = read_offset_backup(world.storage, ledger)
    assert found.checks and (found.gaps, found.notes) == ((), ())
    world.storage.write_new(second.replace("-", "-0", 1), b"of another ledger")
    assert read_offset_backup(world.storage, ledger) == found
    gap = OffsetGap(topic=AUDIT, accepted_at_ms=None, what="of a copy that went on")
    content = OffsetBackupFile(
        format=1, ledger=ledger, commit=1, checks=found.checks, gaps=(gap,)
    ).encode()
    world.storage.write_new(
        f"_ledger/offsets-{ledger}-{compute_digest(content).hex()}.json", content
    )
    both = read_offset_backup(world.storage, ledger)
    assert (both.commit, both.checks, both.gaps) == (
        found.commit,
        None,
        (gap,),
    ) and "only one of these files should exist" in both.notes[0]
    stale = world.database.acquire(CLOSER)
    world.database.acquire(CLOSER)
    with pytest.raises(StaleDriver):
        OffsetBackupWriter(world.storage, world.database, world.clock).update(stale)
    assert len(records(world)) == 3, "one that was replaced writes and deletes nothing"


def at(topic: str) -> StagingPosition:
    return StagingPosition(cluster_id="c", topic_id="t", topic=topic, partition=0, next_offset=9)


def test_whether_a_log_has_lost_its_end_is_a_field_of_its_gap(world: World) -> None:
    lost, retained = (
        create_truncation_gap(AUDIT, at(AUDIT)),
        create_retention_gap(AUDIT, at(AUDIT), 12),
    )
    told = [
        dataclasses.replace(gap, what=f"{number} reworded")
        for number, gap in enumerate((lost, retained))
    ]
    with world.database.transaction() as connection:
        put_gaps(connection, told)
    assert [has_lost_end(gap) for gap in all_gaps(world.database)] == [True, False]
    ledger, _ = world.database.identity()
    written = OffsetBackupFile(
        format=1, ledger=ledger, commit=1, checks=(), gaps=tuple(told)
    ).encode()
    assert [has_lost_end(gap) for gap in OffsetBackupFile.model_validate_json(written).gaps] == [
        True,
        False,
    ]


def test_a_gap_of_version_0_3_0_says_it_by_its_text_and_is_the_same_gap(world: World) -> None:
    lost, retained = (
        create_truncation_gap(AUDIT, at(AUDIT)),
        create_retention_gap(AUDIT, at(AUDIT), 12),
    )
    with world.database.transaction() as connection:
        put_gaps(connection, [lost, retained])
        connection.execute(update(tables.gaps).values(lost_end=None))
    assert [has_lost_end(gap) for gap in all_gaps(world.database)] == [True, False]
    record_truncated_audit_logs(world.database, world.closer.lease, [at(AUDIT)])
    assert len(open_gaps(world.database)) == 2, "it is not found a second time"
    ledger, _ = world.database.identity()
    content = json.loads(
        OffsetBackupFile(
            format=1, ledger=ledger, commit=1, checks=(), gaps=(lost, retained)
        ).encode()
    )
    for gap in content["gaps"]:
        del gap["lost_end"]
    kept = OffsetBackupFile.model_validate(content)
    assert [has_lost_end(gap) for gap in kept.gaps] == [True, False] and kept.gaps == (
        lost,
        retained,
    )


def test_a_gap_that_was_found_again_stays_open_beside_its_acceptance(world: World) -> None:
    found = OffsetGap(topic=AUDIT, accepted_at_ms=None, what="its log lost records")
    accepted = dataclasses.replace(found, accepted_at_ms=5, reason="cannot wait")
    with world.database.transaction() as connection:
        put_gaps(connection, [found, accepted])  # as a record has them: in either order
    assert set(all_gaps(world.database)) == {found, accepted}
    world.ledgers.keep_checks(0)
    with world.database.transaction() as connection:
        put_gaps(connection, [accepted])
    assert all_gaps(world.database) == [accepted]
    import_recorded_gaps(world.storage, world.database)
    assert set(all_gaps(world.database)) == {found, accepted}, (
        "the record has that acceptance too: it came before"
    )
    later = dataclasses.replace(accepted, accepted_at_ms=9)
    with world.database.transaction() as connection:
        put_gaps(connection, [later])
    import_recorded_gaps(world.storage, world.database)
    assert found not in all_gaps(world.database), "it was accepted since"


def test_one_that_cannot_be_written_leaves_the_one_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    recorder = OffsetBackupWriter(world.storage, world.database, world.clock)
    recorder.poll(world.closer.lease)
    before = records(world)
    live(world)
    world.clock.advance(60)

    def full(path: str, content: bytes) -> None:
        raise StorageError(path, path, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(world.storage, "write_new", full)
        recorder.poll(world.closer.lease)
    assert records(world) == before != []
    world.clock.advance(60)
    recorder.poll(world.closer.lease)
    assert len(records(world)) == 1 and records(world) != before


def test_bad_blocks_are_no_record_and_a_storage_that_is_away_is_awaited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    world.ledgers.keep_checks(0)
    ledger, _ = world.database.identity()

    def refuse(error: type[StorageError]) -> None:
        def read(path: str, *, size: int | None = None) -> bytes:
            raise error(path, path, "cannot be read")

        monkeypatch.setattr(world.storage, "read", read)

    refuse(BadBlocks)
    assert read_offset_backup(world.storage, ledger).checks is None
    refuse(StorageError)
    with pytest.raises(StorageError):
        read_offset_backup(world.storage, ledger)


def test_a_rebuild_keeps_ends_that_logs_have_lost_and_no_gap_that_the_next_would_find_too(
    world: World,
) -> None:
    """It may be thrown away, and a copy of the ledger go on that staged what the rebuild found
    nowhere.
    """
    ledger, _ = world.database.identity()
    send(world, ["click"])
    live(world)
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((events_topic("click"),), 1)
    world.damages.lose(*staged_files(world, "audit"))
    audit = world.pipeline.central.logs[
        Partition(central_topic(AUDIT, world.pipeline.mirror.alias or ""), 0)
    ]
    audit.start = len(audit.records)
    (lost,) = lose_ledger(world).lost
    assert "lost to retention" in lost
    (kept,) = read_offset_backup(world.storage, ledger).gaps
    assert has_lost_end(kept) and kept.topic == events_topic("click")
    assert lose_ledger(world).lost == [lost]
    assert len(records(world)) == 1


def test_a_record_that_cannot_be_read_is_told_of_by_each_rebuild(world: World) -> None:
    ledger, _ = world.database.identity()
    live(world)
    world.ledgers.keep_checks(0)
    (record,) = records(world)
    world.storage.delete(record)
    world.storage.write_new(record, b"{")
    world.pipeline.shorten((events_topic("click"),), 1)
    for _ in range(2):
        notes = lose_ledger(world).notes
        assert any("does not match its digest" in note for note in notes) and any(
            "the gaps that the lost ledger contained" in note for note in notes
        )
    assert record in records(world) and len(records(world)) == 2
    assert read_offset_backup(world.storage, ledger).checks is None


def test_a_rebuild_that_finds_no_lost_end_leaves_the_record_as_it_is(world: World) -> None:
    live(world)
    world.ledgers.keep_checks(0)
    before = records(world)
    lose_ledger(world)
    assert records(world) == before
    world.storage.delete(before[0])
    for _ in range(2):
        assert any(
            "the gaps that the lost ledger contained" in note for note in lose_ledger(world).notes
        )


def test_a_rebuild_that_is_killed_as_it_commits_has_kept_what_it_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = world.database.identity()
    live(world)
    world.ledgers.keep_checks(0)
    world.pipeline.shorten((AUDIT,), 1)

    def killed(*given: Any) -> None:
        record_lost_ends(*given)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("hourmark_etl.recovery.rebuild.record_lost_ends", killed)
        lose_ledger(world)
    assert world.database.fetch(select(tables.positions)).all() == [], "nothing of it is committed"
    (kept,) = read_offset_backup(world.storage, ledger).gaps
    assert kept.topic == AUDIT and kept.accepted_at_ms is None


def test_a_rebuild_that_cannot_keep_what_it_found_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    world.pipeline.shorten((AUDIT,), 1)

    def full(path: str, content: bytes) -> None:
        raise (
            StorageError(path, path, "no space left")
            if "/offsets-" in path
            else AssertionError(path)
        )

    monkeypatch.setattr(world.storage, "write_new", full)
    monkeypatch.setattr(
        "tests.support.rebuilding.begin", lambda _: None
    )  # a driver's first words there, too
    assert any(
        "not saved on storage" in note and "no space left" in note
        for note in lose_ledger(world).notes
    )
