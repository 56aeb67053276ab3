"""What of a file's content is elsewhere, and so no loss."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.support.tailer.host import lines

from hourmark.process.file_identity import FileIdentity
from hourmark_producer.checkpoint.archives import save_departed
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.files.fingerprints import HEAD_BYTES
from hourmark_producer.files.tracked_file import (
    EarlierGenerations,
    FileLocation,
    FilePosition,
    FileProgress,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.history.lost_content import LostContentFinder

HEAD = lines(50)[:HEAD_BYTES]
ALIKE = b"one line\n" * 50


def followed(
    number: int,
    *,
    head: bytes = HEAD,
    offset: int = 0,
    source: str = "app",
    suspected: Path | None = None,
) -> TrackedFile:
    position = FilePosition(head=head, offset=offset, size_seen=offset)
    place = FileLocation(
        source, f"/logs/app.log.{number}", str(suspected or f"/logs/app.log.{number}")
    )
    identity = FileIdentity(1, number, number)
    progress = FileProgress(position=position)
    return TrackedFile(
        file_id=f"file-{number}",
        identity=identity,
        place=place,
        progress=progress,
        suspected=bool(suspected),
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    Checkpoint.create(tmp_path / "checkpoint", "host-1")
    return Checkpoint.open(tmp_path / "checkpoint")[0]


def test_a_file_accounts_for_one_content(checkpoint: Checkpoint) -> None:
    log = followed(0)
    search = LostContentFinder(
        TrackedFiles([log, followed(1, offset=700), followed(2, offset=500)]), checkpoint
    ).search_for(log)
    assert not search.was_used
    assert [search(HEAD, 0) for _ in range(3)] == [700, 500, 0]
    assert search.was_used


def test_what_was_read_in_generations_before_or_is_over_counts(checkpoint: Checkpoint) -> None:
    log, other = followed(0), followed(1, head=b"")
    other.earlier = EarlierGenerations(
        latest=FilePosition(head=HEAD, offset=300),
        older=(FilePosition(head=HEAD, offset=200),),
    )
    checkpoint.commit(save_departed(FilePosition(head=HEAD, offset=100, anchor=HEAD[:100])))
    search = LostContentFinder(TrackedFiles([log, other]), checkpoint).search_for(log)
    assert [search(HEAD, 0) for _ in range(4)] == [300, 200, 100, 0]


def test_what_is_over_and_was_one_line_without_its_end_was_not_read(checkpoint: Checkpoint) -> None:
    log = followed(0)
    checkpoint.commit(save_departed(FilePosition(), (HEAD, 1000)))
    assert LostContentFinder(TrackedFiles([log]), checkpoint).search_for(log)(HEAD, 0) == 0


def test_an_archive_that_is_to_be_looked_into_counts_if_it_begins_so(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    paths = [tmp_path / f"app.log.{number}.gz" for number in range(3)]
    for path, content in zip(paths, [lines(50), b"something else\n", lines(50)[:-10]], strict=True):
        path.write_bytes(gzip.compress(content))
    paths[2].write_bytes(paths[2].read_bytes()[:-12])  # cut off
    log = followed(0)
    files = TrackedFiles(
        [log, *(followed(number, head=b"", suspected=path) for number, path in enumerate(paths, 1))]
    )
    search = LostContentFinder(files, checkpoint).search_for(log)
    assert search(HEAD, 0) == len(lines(50))
    assert search(lines(50, 1000)[:HEAD_BYTES], 0) == 0


@pytest.mark.parametrize(
    "head", [b"", HEAD[:63], ALIKE[:HEAD_BYTES]], ids=["empty", "short", "alike"]
)
def test_what_anything_may_begin_with_is_nowhere(
    checkpoint: Checkpoint, tmp_path: Path, head: bytes
) -> None:
    for content in (lines(50), ALIKE):
        path = tmp_path / "app.log.9.gz"
        path.write_bytes(gzip.compress(content))
        log = followed(0)
        files = TrackedFiles(
            [
                log,
                followed(1, head=content[:HEAD_BYTES], offset=700),
                followed(9, head=b"", suspected=path),
            ]
        )
        assert LostContentFinder(files, checkpoint).search_for(log)(head, 0) == 0


def test_files_of_other_sources_do_not_count(checkpoint: Checkpoint) -> None:
    log = followed(0)
    assert (
        LostContentFinder(
            TrackedFiles([log, followed(1, offset=700, source="other")]), checkpoint
        ).search_for(log)(HEAD, 0)
        == 0
    )


def test_a_few_more_looks_are_waited_for(checkpoint: Checkpoint) -> None:
    log = followed(0)
    files = TrackedFiles([log])
    elsewhere, waited = LostContentFinder(files, checkpoint), 0
    while elsewhere.may_be_found_later(log):
        waited, files.scans_completed = waited + 1, files.scans_completed + 1
    assert waited == 3
