"""Adds log files to the checkpoint as they were when a user named them.

The checkpoint is then as if the tailer had scanned the source at that time. Files that were rotated,
compressed, truncated or deleted between are handled as after any other time in which no tailer ran.
"""

from __future__ import annotations

from collections.abc import Iterable

from hourmark.config.globs import matches_any_glob
from hourmark.config.groups import TailedSource
from hourmark.records.named_files import NamedFile
from hourmark.records.ranges import file_id
from hourmark_producer.checkpoint import archives
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Change, Checkpoint
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FileLocation,
    FilePosition,
    FileProgress,
    TrackedFile,
)


def add_named_files(
    checkpoint: Checkpoint, sources: Iterable[TailedSource], named: Iterable[NamedFile]
) -> list[NamedFile]:
    """Add log files to the checkpoint in the state in which `hourmark init` recorded them.

    The tailer then finds these files even if they were rotated before its first scan. Each file is
    added to the first source whose patterns match its path. A source is skipped if it was already
    scanned, or if its setting `read_from` or `ignore_older_seconds` excludes existing lines.

    Args:
        checkpoint: Open checkpoint that no running tailer uses.
        sources: Configurations of the sources.
        named: The recorded files, each with its identity, size and first bytes.

    Returns:
        The recorded files that were added; empty if there are none.

    Raises:
        CheckpointFailed: The checkpoint cannot be read or written. Files of earlier sources may
            have been added.
    """
    begun, known = checkpoint.scanned_sources(), {file.file_id for file in checkpoint.files()}
    added: list[NamedFile] = []
    for source in sources:
        if source.name in begun or source.read_from != "start" or source.ignore_older_seconds:
            continue
        mine = [
            one
            for one in named
            if matches_any_glob(one.path, source.paths)
            and not matches_any_glob(one.path, source.exclude)
            and file_id(*one.identity) not in known
        ]
        if not mine:
            continue
        known |= {file_id(*one.identity) for one in mine}
        scanned_ms = {source.name: min(one.at_ms for one in mine)}
        checkpoint.commit(
            [
                *(change for one in mine for change in _insert(source.name, one)),
                *archives.save_scan_times(scanned_ms),
                changes.mark_source_scanned(source.name),
            ]
        )
        added += mine
    return added


def _insert(source: str, named: NamedFile) -> list[Change]:
    position = FilePosition()
    file = TrackedFile(
        file_id=file_id(*named.identity),
        identity=named.identity,
        place=FileLocation(source, named.path, named.path),
        progress=FileProgress(position=position),
    )
    account = FileAccount(named.size, (), named.head)
    target = [changes.save_link_target(file.file_id, named.target)] if named.target else []
    return [
        changes.insert_file(file),
        changes.save_account(file.file_id, position, account),
        *target,
    ]
