"""A checkpoint as a tailer that ended leaves it, with ranges on their way."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.contract.test_kept_formats import FILE, HOST_ID, OUTGOING

from hourmark_producer.checkpoint.database import Checkpoint, insert_file
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.checkpoint.spooled_ranges import add_to_spool, raise_checkpoint_format
from hourmark_producer.files.tracked_file import SpooledRange, TrackedFile


def spooled(state_dir: Path, *files: TrackedFile, several: bool = False, **extras: str) -> Path:
    """Its path.

    `several`: two ranges of the file are on their way; `extras`: what the first one says beside the
    rest.
    """
    path = state_dir / CHECKPOINT
    Checkpoint.create(path, HOST_ID)
    checkpoint, _ = Checkpoint.open(path)
    # texts alone
    first = SpooledRange(1, dataclasses.replace(OUTGOING.range, **extras))  # type: ignore[arg-type]
    second = SpooledRange(2, dataclasses.replace(OUTGOING.range, start=99, end=120))
    ranges = [
        add_to_spool(first, b"body"),
        *([raise_checkpoint_format(), add_to_spool(second, b"more")] if several else []),
    ]
    checkpoint.commit([*map(insert_file, files or (FILE,)), *ranges])
    checkpoint.close()
    return path
