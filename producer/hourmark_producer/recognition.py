"""Whether what a look finds at a path is what is known of it."""

from __future__ import annotations

import os

from hourmark_producer.discovery import Findings
from hourmark_producer.files import TrackedFile


def target(path: str) -> str:
    """Where links on this path lead; empty where there are none."""
    real = os.path.realpath(path)
    return real if real != path else ""


def is_as_it_was(file: TrackedFile, source: str, path: str, status: os.stat_result) -> bool:
    """Whether a look at it has nothing to add: of many files that is all of them, but for a few."""
    is_unchanged = file.observed.stamp == (status.st_size, status.st_mtime_ns)
    return is_unchanged and file.place.seen_at == path and file.place.source == source and file.is_at_rest


def is_still_at(file: TrackedFile, findings: Findings) -> bool:
    """Whether its last name still leads to it: then another one is a client."""
    status = findings.files.get(file.place.seen_at)
    return status is not None and (status.st_dev, status.st_ino) == (file.identity.device, file.identity.inode)
