"""Unpacking, on every Python that is supported."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """All of an archive whose content is known: its digest was checked, or it was made here."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:  # before Python 3.11.4
        archive.extractall(folder)  # noqa: S202
