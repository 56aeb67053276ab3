"""Several log files shown as one; each line is prefixed with the name of its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_PIECE: Final = 1 << 16  # read of one at a time; a line that is longer comes in pieces


class OneLog:
    """A merged view of lines appended to several log files after its creation."""

    def __init__(self, files: Mapping[str, Path], say: Callable[[str], None]) -> None:
        self._files, self._say = files, say
        self._at = {
            name: file.stat().st_size if file.exists() else 0 for name, file in files.items()
        }
        self._width = max(map(len, files), default=0)

    def follow(self) -> None:
        """Output all complete lines written since the last call, prefixed with the name of their file.

        An incomplete last line is kept for a later call. A missing file is skipped.
        """
        for name, file in self._files.items():
            while lines := self._next(name, file):
                for line in lines.splitlines():
                    self._say(f"{name:<{self._width}} | {line.decode(errors='replace')}")

    def _next(self, name: str, file: Path) -> bytes:
        try:
            with file.open("rb") as opened:
                opened.seek(self._at[name])
                piece = opened.read(_PIECE)
        except FileNotFoundError:  # it was not started yet
            return b""
        whole = piece[: piece.rfind(b"\n") + 1] or (piece if len(piece) == _PIECE else b"")
        self._at[name] += len(whole)
        return whole
