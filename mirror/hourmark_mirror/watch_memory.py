"""What a watch remembers from one look to the next, durably (`work_dir/state/watch.json`): a restart forgets no alarm.

Looks of several processes, such as a watch and a `--once` or `--accept` beside it, take turns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from hourmark.durable import write_durably
from hourmark.errors import UsageError
from hourmark_mirror.memory_lock import held
from hourmark_mirror.observed import Memory

WATCH: Final = "state/watch.json"  # below the work folder
_MEMORY: Final = TypeAdapter(Memory)


class WatchMemory:
    """UsageError, naming the file, where it cannot be read or written."""

    def __init__(self, work_dir: Path) -> None:
        self.path = work_dir / WATCH

    @contextlib.contextmanager
    def turn(self) -> Iterator[Memory]:
        """What is remembered; nobody else looks meanwhile. It may take as long as another's look."""
        with held(self.path):
            yield self._read()

    def keep(self, memory: Memory) -> None:
        """Write it, within a turn."""
        write_durably(self.path, _MEMORY.dump_json(memory, indent=1))

    def _read(self) -> Memory:
        try:
            return _MEMORY.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return Memory()
        except ValidationError as error:
            raise UsageError(
                f"{self.path} is damaged ({error}); what it remembered is lost: remove it, and ask `hourmark mirror verify`"
            ) from error
