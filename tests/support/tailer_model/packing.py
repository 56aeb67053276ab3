"""What packs logs: gzip, bzip2, xz and zstd, as their own programs do."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from typing import Final

import zstandard

_PACKERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    ".gz": lambda content: gzip.compress(content, 1),
    ".bz2": lambda content: bz2.compress(content, 1),
    ".xz": lambda content: lzma.compress(content, check=lzma.CHECK_CRC64, preset=0),
    ".zst": lambda content: zstandard.ZstdCompressor(level=1, write_checksum=True).compress(
        content
    ),
}
SUFFIXES: Final = tuple(_PACKERS)


def packed(content: bytes, suffix: str) -> bytes:
    """As a file whose name ends so holds it."""
    return _PACKERS[suffix](content)


def suffix_of(name: str | None) -> str:
    """How the name of a packed file ends; empty where it is not packed."""
    return next((suffix for suffix in SUFFIXES if name and name.endswith(suffix)), "")
