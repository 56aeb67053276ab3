"""The files that the glob patterns of a source match, and the folders that could not be listed.

Unlike `glob` of the standard library, a folder that is missing or unreadable is reported as a
problem, because a source that was not fully scanned must not be reported as caught up.

Patterns are absolute. `*`, `?` and `[...]` match within a name, `**` matches any number of folders
and does not follow symbolic links. Names that begin with a dot match only if the pattern does so,
too, except in `exclude`. Compressed files are listed separately: they are rotated logs. Whether one
holds the remainder of a tracked file is decided by `hourmark_producer.history.match`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fnmatch
import functools
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final

from hourmark.config.groups import COMPRESSED_SUFFIXES

PACKED: Final = (".gz", ".bz2", ".xz", ".zst")  # formats that can be decompressed here


@dataclasses.dataclass(slots=True)
class PatternFindings:
    """The files and errors that one scan of a source's glob patterns found.

    Attributes:
        files: Maps the path of each matching regular file to its status. Symbolic links are
            followed.
        problems: Maps each path that could not be scanned to its error.
        compressed: Matching paths with the suffix of a compressed file.
        folders: Folders that were listed, or in which a file was looked up by name.
        unsettled: Whether a folder changed during the scan, so that a file may have been missed. If
            True, scan again.
    """

    files: dict[str, os.stat_result] = dataclasses.field(
        default_factory=dict
    )  # regular files by path, links followed
    problems: dict[str, OSError] = dataclasses.field(default_factory=dict)  # by path
    compressed: set[str] = dataclasses.field(default_factory=set)
    folders: set[str] = dataclasses.field(
        default_factory=set
    )  # that were listed, or where a file was looked for
    # something was renamed, made or removed during the look: an entry may have been missed
    unsettled: bool = False


class PathPattern:
    """One absolute glob pattern, such as `/var/log/*/app.log`. `**` matches any number of folders.

    Args:
        pattern: The pattern.

    Raises:
        ValueError: The pattern is not an absolute path.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern.startswith("/"):
            raise ValueError(f"{pattern!r} is not absolute")
        self._parts = [part for part in pattern.split("/") if part]

    def add_matches(self, findings: PatternFindings) -> None:
        """Find the files that match the pattern, and add them to `findings`.

        File system errors are added to `findings.problems`. They are not raised.

        Args:
            findings: Result of the current scan, to which files and errors are added.
        """
        self._descend("", 0, findings, literal=True)

    def _descend(
        self, folder: str, index: int, findings: PatternFindings, *, literal: bool = False
    ) -> None:
        while index < len(self._parts) - 1 and not glob.has_magic(self._parts[index]):
            folder = f"{folder}/{self._parts[index]}"
            index += 1
        if index == len(self._parts):
            return
        part, last = self._parts[index], index == len(self._parts) - 1
        if part == "**":
            self._descend_all(folder, index, findings, literal=literal)
        elif last and not glob.has_magic(part):
            if literal:
                _name_missing(folder or "/", findings)
            findings.folders.add(folder or "/")
            self._add(f"{folder}/{part}", findings, listed=False)
        else:
            matches = _matcher(part)
            if literal:
                _name_missing(folder or "/", findings)
            for entry in list_folder(folder or "/", findings):
                if not matches(entry.name):
                    continue
                if last:
                    self._add(entry.path, findings, listed=not entry.is_symlink())
                elif _is_folder(entry, findings, follow=True):
                    self._descend(entry.path, index + 1, findings)

    def _descend_all(
        self, folder: str, index: int, findings: PatternFindings, *, literal: bool = False
    ) -> None:
        if literal:
            _name_missing(folder or "/", findings)
        last = index == len(self._parts) - 1
        if not last:
            self._descend(folder, index + 1, findings)
        for entry in list_folder(folder or "/", findings):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry, findings, follow=False):
                self._descend_all(entry.path, index, findings)
            elif last:
                self._add(entry.path, findings, listed=not entry.is_symlink())

    def _add(self, path: str, findings: PatternFindings, *, listed: bool) -> None:
        if path in findings.files:
            return
        if path.endswith(COMPRESSED_SUFFIXES):
            findings.compressed.add(path)
            return
        try:
            # thousands of files, twice a second: no Path objects
            status = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            findings.unsettled |= (
                listed  # it was there a moment ago, perhaps under its next name by now
            )
        except OSError as error:
            if (
                error.errno != errno.ELOOP
            ):  # links that lead in a circle lead to no content, as dangling ones
                findings.problems[path] = error
        else:
            if stat.S_ISREG(status.st_mode):
                findings.files[path] = status


def scan_patterns(patterns: list[PathPattern]) -> PatternFindings:
    """Find the files that match at least one of the given patterns.

    File system errors are part of the result. They are not raised.

    Args:
        patterns: Patterns of one source.

    Returns:
        The files and errors that were found. `files` is empty if no file matches.
    """
    findings = PatternFindings()
    for pattern in patterns:
        pattern.add_matches(findings)
    return findings


def _name_missing(folder: str, findings: PatternFindings) -> None:
    try:
        os.stat(folder)  # noqa: PTH116
    except OSError as error:
        findings.problems[folder] = error


def list_folder(folder: str, findings: PatternFindings) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, and record the folder and its errors in `findings`.

    Nothing is yielded if the folder does not exist. If it cannot be listed for another reason, the
    error is added to `findings.problems`. If the folder changes while it is listed,
    `findings.unsettled` is set to True.

    Args:
        folder: Path of the folder.
        findings: Result of the current scan, which is updated.
    """
    findings.folders.add(folder)
    try:
        before = os.stat(folder).st_mtime_ns  # noqa: PTH116
        with os.scandir(folder) as listing:
            entries = list(listing)
        # readdir may miss what is renamed meanwhile
        findings.unsettled |= os.stat(folder).st_mtime_ns != before  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        findings.problems[folder] = error
        return
    yield from entries


def check_mounted(folder: str, device: int) -> None:
    """Check that the file system of an empty folder is mounted.

    Call this function if a file is not found in an empty folder. If the folder has another device
    number than the file, the file system is not mounted, and the file was not deleted. A folder
    that does not exist is accepted.

    Args:
        folder: Path of the empty folder.
        device: Device number of the missing file.

    Raises:
        OSError: The device number of the folder differs (ENXIO), or stat(2) failed.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.stat(folder).st_dev != device:  # noqa: PTH116
            raise OSError(
                errno.ENXIO,
                "it is empty, and on another device than before; perhaps it is not mounted",
                folder,
            )


def _is_folder(entry: os.DirEntry[str], findings: PatternFindings, *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError as error:
        if error.errno != errno.ELOOP:
            findings.problems[entry.path] = error
        return False


@functools.lru_cache(maxsize=1000)
def _matcher(part: str) -> Callable[[str], bool]:
    # names that begin with a dot match only if the pattern does, too
    expression = re.compile(fnmatch.translate(part))
    hidden = part.startswith(".")
    return lambda name: (hidden or not name.startswith(".")) and expression.match(name) is not None
