"""Search for files that were created and rotated between two scans.

With a pattern such as `app.log` or `*.log`, a file that is rotated while the tailer runs is read to
its end, because it is already tracked. A file that was created and rotated between two scans is not
tracked, and no pattern matches its new name.

Folders are therefore searched for rotated forms of matching names, such as `app.log.1` and
`app-20261124.log`, which may be compressed. The search takes place when the tailer starts, and
after a file appeared, vanished or was truncated. A file that was created and written after the
previous search belongs to the source and is tracked. Other files are ignored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hourmark.config.globs import matches_any_glob
from hourmark.config.groups import TailedSource
from hourmark.process.file_identity import FileIdentity, open_without_waiting
from hourmark_producer.files.patterns import PACKED, PatternFindings, list_folder
from hourmark_producer.files.tracked_file import TrackedFile
from hourmark_producer.history.rotated_names import DATE_DIGITS, strip_rotation_suffixes

_COARSE_NS: Final = 20_000_000  # times of file systems are a tick of the kernel's behind


class RotatedFileSearch:
    """Finds log files that were created and rotated between two scans.

    Scans do not find such a file, because no configured pattern matches its new name, for example
    `app.log.1`. Not thread-safe.
    """

    def __init__(
        self,
        sources: Sequence[TailedSource],
        scanned_ms: Mapping[str, int],
        identify: Callable[[int], FileIdentity],
    ) -> None:
        """Create the search for all sources.

        Args:
            sources: Configurations of the sources.
            scanned_ms: Maps each source to the time at which an earlier run last scanned it, in
                Unix milliseconds. A source without an entry is not searched before its first scan
                has completed.
            identify: Function that returns the identity of an open file.
        """
        self._sources = {source.name: source for source in sources}
        self._all_paths = [path for source in sources for path in source.paths]
        self._since_ms = dict(scanned_ms)
        self._due = set(scanned_ms)
        self._truncated = set[str]()  # these are due with the next look
        self._unfound = set[TrackedFile]()
        self._untold = dict[str, dict[str, os.stat_result]]()  # by source
        self._identify = identify

    def add_rotated_files(self, source: str, findings: PatternFindings, now_ms: int) -> None:
        """Add the rotated files of a source to the findings of a scan, if a search is due.

        A search is due at the first scan of a run, and after a file of the source appeared,
        vanished or was truncated.

        Args:
            source: Name of the source.
            findings: Findings of the scan. Rotated files and file system errors are added.
            now_ms: Time at which the scan began, in Unix milliseconds.
        """
        if source in self._truncated:
            self._truncated.discard(source)
            self._due.add(source)
        if source not in self._due or source not in self._since_ms:
            return
        self._untold[source] = {}
        was_set_back = now_ms < self._since_ms[source]  # the clock: then times tell nothing
        since_ns = self._since_ms[source] * 1_000_000 - _COARSE_NS
        for folder in list(findings.folders):
            for entry in list_folder(folder, findings):
                if self._is_rotated_name(source, entry.path):
                    try:
                        if not was_set_back:
                            self._add(entry, since_ns, findings)
                        elif entry.is_file(follow_symlinks=False):
                            self._untold[source][entry.path] = entry.stat()
                    except FileNotFoundError:
                        findings.unsettled = True
                    except OSError as error:
                        findings.problems[entry.path] = error

    def search_for_new(self, added: Iterable[TrackedFile]) -> None:
        """Request that the next scan searches for rotated files in the sources of new files.

        A new file can mean that the earlier file was renamed by log rotation.

        Args:
            added: The new files.
        """
        self._due.update(file.place.source for file in added)

    def search_for_truncated(self, file: TrackedFile) -> None:
        """Request that the next scan searches for a copy of a truncated file.

        Args:
            file: The truncated file. All folders of its source are searched.
        """
        self._truncated.add(file.place.source)

    def search_for_unfound(self, files: set[TrackedFile]) -> set[str]:
        """Request a search in the sources of files that the latest scan did not find.

        These files may have been rotated. Only files that were not passed to the previous call
        cause a search.

        Args:
            files: All files that the latest scan did not find.

        Returns:
            Names of the sources to search; empty if no further file is missing.
        """
        sources = {file.place.source for file in files - self._unfound}
        self._due |= sources
        self._unfound = files
        return sources

    def complete_search(
        self, source: str, began_ms: int, *, repeat: bool
    ) -> dict[str, os.stat_result]:
        """Record that a scan of a source, including any search that was due, has completed.

        Args:
            source: Name of the source.
            began_ms: Time at which the scan began, in Unix milliseconds.
            repeat: Whether the next scan must repeat the search, for all files that were created
                since the previous completed search.

        Returns:
            Rotated files of which it is unknown whether they are new, because the clock was set
            back. Maps each path to its `os.stat` result. Empty if the clock was not set back.
        """
        if repeat:
            self._due.add(source)
        elif source in self._due or source not in self._since_ms:
            self._since_ms[source] = began_ms
            self._due.discard(source)
        return self._untold.pop(source, {})

    def _is_rotated_name(self, source: str, path: str) -> bool:
        settings = self._sources[source]
        formers = [
            name
            for name in strip_rotation_suffixes(path, digits_min=DATE_DIGITS)
            if matches_any_glob(name, settings.paths)
        ]
        return any(
            not matches_any_glob(name, settings.exclude) for name in formers
        ) and not matches_any_glob(path, self._all_paths)

    def _add(self, entry: os.DirEntry[str], since_ns: int, findings: PatternFindings) -> None:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns < since_ns:
            return
        if entry.name.endswith(PACKED):  # when it was made says nothing of what it holds
            findings.compressed.add(entry.path)
        elif self._made_ns(entry.path, status) >= since_ns:
            findings.files[entry.path] = status

    def _made_ns(self, path: str, status: os.stat_result) -> int:
        descriptor = open_without_waiting(path)
        try:
            return self._identify(descriptor).birth_ns or status.st_mtime_ns
        finally:
            os.close(descriptor)
