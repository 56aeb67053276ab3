"""The decisions of `ContentMatcher.match`, one test for each kind of content and decision."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.tailer.host import lines

from hourmark.process.file_identity import FileIdentity, identify
from hourmark_producer.checkpoint.archives import save_departed
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES
from hourmark_producer.files.remainder import RemainderSearch
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FileLocation,
    FileObservation,
    FilePosition,
    FileProgress,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.match import (
    NEVER_READ,
    AlreadyRead,
    ContentMatcher,
    CopyOf,
    FoundInFile,
    LostContent,
    NewCompressedFile,
    NewContent,
    ReadFrom,
    Undecidable,
    UnreadFile,
)

CONTENT = lines(200)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    Checkpoint.create(tmp_path / "checkpoint", "host-1")
    checkpoint = Checkpoint.open(tmp_path / "checkpoint")[0]
    yield checkpoint
    checkpoint.close()


@pytest.fixture
def clock() -> FakeClock:
    """One by which every file is old enough to be complete."""
    return FakeClock(now_ms=4_000_000_000_000)


def position(content: bytes, offset: int) -> FilePosition:
    anchor = content[max(0, offset - ANCHOR_BYTES) : offset]
    head = content[: min(offset, HEAD_BYTES)]
    return FilePosition(offset=offset, head=head, anchor=anchor, size_seen=offset)


def tracked(path: Path, content: bytes, read_to: int) -> TrackedFile:
    """A file of this content, as it was seen and read up to there."""
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    identity = identify(descriptor)
    os.close(descriptor)
    progress = FileProgress(position=position(content, read_to), examined_at_s=1.0)
    if not read_to:
        progress = FileProgress()
    account = FileAccount(len(content), (), content[:HEAD_BYTES])
    return TrackedFile(
        file_id=path.name,
        identity=identity,
        place=FileLocation("app", str(path), str(path)),
        progress=progress,
        opened_at_s=-100.0,
        changed_at_s=-100.0,
        observed=FileObservation(
            size=len(content), mtime_ns=0, account=account, base_s=progress.examined_at_s
        ),
    )


def match_unread(matcher: ContentMatcher, file: TrackedFile) -> NewContent | CopyOf:
    descriptor = os.open(file.place.seen_at, os.O_RDONLY)
    try:
        return matcher.match(UnreadFile(file, descriptor))
    finally:
        os.close(descriptor)


def test_an_unread_file_is_new_if_no_file_of_a_former_name_holds_its_content(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, len(CONTENT))
    other = tracked(tmp_path / "app.log.1", lines(200, 9000), 0)
    unrelated = tracked(tmp_path / "copied.log", CONTENT, 0)
    matcher = ContentMatcher(TrackedFiles([log, other, unrelated]), checkpoint, clock)
    assert match_unread(matcher, other) == NewContent()
    assert match_unread(matcher, unrelated) == NewContent(), "its name derives from no other"


def test_a_copy_is_skipped_up_to_its_last_line_while_its_log_reads_on(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, 1000)
    copy = tracked(tmp_path / "app.log.1", CONTENT, 0)
    match = match_unread(ContentMatcher(TrackedFiles([log, copy]), checkpoint, clock), copy)
    assert isinstance(match, CopyOf)
    assert (match.origin.file, match.origin.is_still_read, match.end) == (log, True, len(CONTENT))


def test_a_copy_of_a_log_that_is_gone_is_skipped_up_to_where_the_log_was_read(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, 1000)
    log.place = log.place._replace(missing=True)
    copy = tracked(tmp_path / "app.log.1", CONTENT, 0)
    match = match_unread(ContentMatcher(TrackedFiles([log, copy]), checkpoint, clock), copy)
    assert isinstance(match, CopyOf)
    assert (match.origin.is_still_read, match.end) == (False, 1000)


def test_a_file_that_begins_like_an_unread_log_waits(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log, copy = (
        tracked(tmp_path / "app.log", CONTENT, 0),
        tracked(tmp_path / "app.log.1", CONTENT, 0),
    )
    with pytest.raises(RetryLater, match="which has not been read yet"):
        match_unread(ContentMatcher(TrackedFiles([log, copy]), checkpoint, clock), copy)


def match_lost(
    matcher: ContentMatcher, file: TrackedFile, *paths: Path
) -> FoundInFile | Undecidable:
    candidates = {str(path): path.stat().st_ino for path in paths}
    return matcher.match(LostContent(file, RemainderSearch(candidates)))


def test_lost_content_is_held_by_the_compressed_file_that_has_what_was_read(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, 1000)
    (other := tmp_path / "app.log.1.gz").write_bytes(gzip.compress(lines(200, 9000)))
    (packed := tmp_path / "app.log.2.gz").write_bytes(gzip.compress(CONTENT + lines(5, 200)))
    match = match_lost(ContentMatcher(TrackedFiles([log]), checkpoint, clock), log, other, packed)
    assert isinstance(match, FoundInFile)
    assert (match.holder.path, match.copy) == (str(packed), None)
    assert match.holder.content.readable == len(CONTENT + lines(5, 200))


def test_a_file_holds_the_lost_content_of_one_file_only(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    first = tracked(tmp_path / "app.log", CONTENT, 1000)
    second = tracked(tmp_path / "app.log.old", CONTENT, 1000)
    (packed := tmp_path / "app.log.2.gz").write_bytes(gzip.compress(CONTENT))
    matcher = ContentMatcher(TrackedFiles([first, second]), checkpoint, clock)
    matcher.open_and_reserve(
        first, RemainderSearch({str(packed): packed.stat().st_ino}), str(packed)
    ).close()
    assert match_lost(matcher, second, packed) == Undecidable()
    assert isinstance(match_lost(matcher, first, packed), FoundInFile)


def test_lost_content_whose_holder_is_cut_off_waits(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, 100)
    (packed := tmp_path / "app.log.1.gz").write_bytes(gzip.compress(CONTENT)[:-20])
    matcher = ContentMatcher(TrackedFiles([log]), checkpoint, clock)
    with pytest.raises(RetryLater, match="is incomplete"):
        match_lost(matcher, log, packed)


def compressed(path: Path, content: bytes) -> TrackedFile:
    path.write_bytes(gzip.compress(content))
    return TrackedFile(
        file_id=path.name,
        identity=FileIdentity(0, 0, 0),
        place=FileLocation("app", str(path), str(path)),
        suspected=True,
    )


def match_compressed(
    files: list[TrackedFile], file: TrackedFile, checkpoint: Checkpoint, clock: FakeClock
) -> ReadFrom | AlreadyRead | Undecidable:
    path = Path(file.place.seen_at)
    matcher = ContentMatcher(TrackedFiles([*files, file]), checkpoint, clock)
    search = RemainderSearch({str(path): path.stat().st_ino})
    return matcher.match(NewCompressedFile(file, search))


def test_a_compressed_file_that_begins_like_no_other_was_never_read(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", lines(200, 9000), 1000)
    match = match_compressed([log], compressed(tmp_path / "a.gz", CONTENT), checkpoint, clock)
    assert isinstance(match, ReadFrom)
    assert (match.history, match.holder.content.readable) == (NEVER_READ, len(CONTENT))


def test_a_compressed_file_of_a_log_that_is_read_on_needs_no_reading(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, 1000)
    log.descriptor = os.open(log.place.seen_at, os.O_RDONLY)
    file = compressed(tmp_path / "any-name.gz", CONTENT)
    assert match_compressed([log], file, checkpoint, clock) == AlreadyRead()
    log.close()


def test_a_compressed_file_is_read_from_where_reading_of_a_departed_file_stopped(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    checkpoint.commit(save_departed(position(CONTENT, 1000)))
    match = match_compressed([], compressed(tmp_path / "a.gz", CONTENT), checkpoint, clock)
    assert isinstance(match, ReadFrom)
    assert match.history.offset == 1000


def test_a_compressed_file_that_may_be_the_beginning_of_a_departed_one_is_undecidable(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    checkpoint.commit(save_departed(position(CONTENT, len(CONTENT))))
    match = match_compressed([], compressed(tmp_path / "a.gz", CONTENT[:500]), checkpoint, clock)
    assert match == Undecidable(
        "there is not enough information to decide whether it was read before"
    )


def test_nothing_is_compared_once_the_tailer_stops(
    tmp_path: Path, checkpoint: Checkpoint, clock: FakeClock
) -> None:
    log = tracked(tmp_path / "app.log", CONTENT, 1000)
    (packed := tmp_path / "app.log.1.gz").write_bytes(gzip.compress(CONTENT))
    matcher = ContentMatcher(TrackedFiles([log]), checkpoint, clock)
    matcher.stopping.set()
    with pytest.raises(RetryLater, match="the tailer is stopping"):
        match_lost(matcher, log, packed)
