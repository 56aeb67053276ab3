"""Extraction of tar archives on all supported Python versions."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract all members of a trusted `archive` into `folder`.

    The caller must have verified or created the archive: Python versions before 3.11.4 extract it
    without the `data` filter.
    """
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:  # before Python 3.11.4
        archive.extractall(folder)  # noqa: S202
