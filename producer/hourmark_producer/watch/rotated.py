"""Files that were made and rotated away between two looks, under names that no pattern matches.

Under `app.log` or `*.log` a file that is rotated while the tailer runs is read to its end: it was
seen before. One that was made and rotated away while nobody looked was seen under no name. So where
something was found new, or gone, and at a start, folders are searched for names that rotation makes
of those that match (`app.log` → `app.log.1`, `app.log-20261124`, `app-20261124.log`, also packed).
What was made and written since the latest such search was the source's, and is followed; all else
is left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hourmark.config.groups import TailedSource
from hourmark_producer.files.former_names import DATE_DIGITS, without_numbers
from hourmark_producer.files.identity import Identity
from hourmark_producer.files.patterns import PACKED, Findings, entries, is_named_by
from hourmark_producer.files.tracked_file import TrackedFile

_COARSE_NS: Final = 20_000_000  # times of file systems are a tick of the kernel's behind


class Rotated:
    """Used by the scanning thread."""

    def __init__(
        self,
        sources: Sequence[TailedSource],
        looked_ms: Mapping[str, int],
        identify: Callable[[int], Identity],
    ) -> None:
        """`looked_ms`: when sources were last looked at, before this run.

        At its first look a source owns what matches alone.
        """
        self._sources = {source.name: source for source in sources}
        self._all_paths = [path for source in sources for path in source.paths]
        self._since_ms = dict(looked_ms)
        self._due = set(looked_ms)
        self._truncated = set[str]()  # these are due with the next look
        self._unfound = set[TrackedFile]()
        self._untold = dict[str, dict[str, os.stat_result]]()  # by source
        self._identify = identify

    def add_to(self, source: str, findings: Findings, now_ms: int) -> None:
        """Where it is due, add what a look at the patterns passed over."""
        if source in self._truncated:
            self._truncated.discard(source)
            self._due.add(source)
        if source not in self._due or source not in self._since_ms:
            return
        self._untold[source] = {}
        was_set_back = now_ms < self._since_ms[source]  # the clock: then times tell nothing
        since_ns = self._since_ms[source] * 1_000_000 - _COARSE_NS
        for folder in list(findings.folders):
            for entry in entries(folder, findings):
                if self._was_of(source, entry.path):
                    try:
                        if not was_set_back:
                            self._add(entry, since_ns, findings)
                        elif entry.is_file(follow_symlinks=False):
                            self._untold[source][entry.path] = entry.stat()
                    except FileNotFoundError:
                        findings.unsettled = True
                    except OSError as error:
                        findings.problems[entry.path] = error

    def found(self, added: Iterable[TrackedFile]) -> None:
        """These are new: what was there before may have been rotated away."""
        self._due.update(file.place.source for file in added)

    def truncated(self, file: TrackedFile) -> None:
        """And nothing was read of what it held, as far as is known: perhaps a copy has it."""
        self._truncated.add(file.place.source)

    def unfound(self, files: set[TrackedFile]) -> set[str]:
        """No pattern found these.

        Sources that are to be searched: where one was rotated, so may be what came after it.
        """
        sources = {file.place.source for file in files - self._unfound}
        self._due |= sources
        self._unfound = files
        return sources

    def looked(self, source: str, began_ms: int, *, again: bool) -> dict[str, os.stat_result]:
        """A search was whole. `again`: what was found packed is to be found by the next one, too.

        Files of which it could not be told whether they were made since the one before.
        """
        if again:
            self._due.add(source)
        elif source in self._due or source not in self._since_ms:
            self._since_ms[source] = began_ms
            self._due.discard(source)
        return self._untold.pop(source, {})

    def _was_of(self, source: str, path: str) -> bool:
        """Whether it had a name that this source's patterns match, and has one that no source's
        does.
        """
        settings = self._sources[source]
        formers = [
            name
            for name in without_numbers(path, digits_min=DATE_DIGITS)
            if is_named_by(name, settings.paths)
        ]
        return any(not is_named_by(name, settings.exclude) for name in formers) and not is_named_by(
            path, self._all_paths
        )

    def _add(self, entry: os.DirEntry[str], since_ns: int, findings: Findings) -> None:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns < since_ns:
            return
        if entry.name.endswith(PACKED):  # when it was made says nothing of what it holds
            findings.compressed.add(entry.path)
        elif self._made_ns(entry.path, status) >= since_ns:
            findings.files[entry.path] = status

    def _made_ns(self, path: str, status: os.stat_result) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return self._identify(descriptor).birth_ns or status.st_mtime_ns
        finally:
            os.close(descriptor)
