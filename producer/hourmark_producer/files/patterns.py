"""The files that a source's patterns match and do not exclude, and folders that could not be
listed.

Files by globs, and what could not be looked at.

Python's own `glob` passes over folders it may not read; here that is a problem to be named, because
a source that was not fully seen must not be called caught up; nor may one be whose folder is not
there. A pattern is absolute; `*`, `?`, `[…]` match within a name, `**` any folders (it does not
enter symbolic links, which may turn in circles). Hidden names match only where the pattern begins
with a dot. Names of compressed files are passed over: they are old logs, packed by rotation.
Whether one holds the rest of a followed file is another question
(`hourmark_producer.history.remainders`).

Which paths globs name, those of a source's `exclude` above all (pure).

`*`, `?`, `[…]` match within a name, hidden ones too; `**` any folders.
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
from collections.abc import Callable, Iterator, Sequence
from typing import Final

PACKED: Final = (".gz", ".bz2", ".xz", ".zst")  # their content can be looked at
COMPRESSED: Final = (*PACKED, ".lz4", ".Z")


@dataclasses.dataclass(slots=True)
class Findings:
    """What one look at a source's patterns found."""

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


class Pattern:
    """One absolute glob. ValueError where it is not absolute."""

    def __init__(self, pattern: str) -> None:
        if not pattern.startswith("/"):
            raise ValueError(f"{pattern!r} is not absolute")
        self._parts = [part for part in pattern.split("/") if part]

    def look(self, findings: Findings) -> None:
        """Add what matches now to `findings`."""
        self._descend("", 0, findings, literal=True)

    def _descend(
        self, folder: str, index: int, findings: Findings, *, literal: bool = False
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
            for entry in entries(folder or "/", findings):
                if not matches(entry.name):
                    continue
                if last:
                    self._add(entry.path, findings, listed=not entry.is_symlink())
                elif _is_folder(entry, findings, follow=True):
                    self._descend(entry.path, index + 1, findings)

    def _descend_all(
        self, folder: str, index: int, findings: Findings, *, literal: bool = False
    ) -> None:
        if literal:
            _name_missing(folder or "/", findings)
        last = index == len(self._parts) - 1
        if not last:
            self._descend(folder, index + 1, findings)
        for entry in entries(folder or "/", findings):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry, findings, follow=False):
                self._descend_all(entry.path, index, findings)
            elif last:
                self._add(entry.path, findings, listed=not entry.is_symlink())

    def _add(self, path: str, findings: Findings, *, listed: bool) -> None:
        if path in findings.files:
            return
        if path.endswith(COMPRESSED):
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


def look(patterns: list[Pattern]) -> Findings:
    """Everything that matches one of the patterns now."""
    findings = Findings()
    for pattern in patterns:
        pattern.look(findings)
    return findings


def _name_missing(folder: str, findings: Findings) -> None:
    """A folder that a pattern names, and that is not there, was not looked at: perhaps it is not
    mounted, or mistyped.
    """
    try:
        os.stat(folder)  # noqa: PTH116
    except OSError as error:
        findings.problems[folder] = error


def entries(folder: str, findings: Findings) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where it is not there, or where a problem says why it cannot be
    listed.
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
    """OSError where an empty folder is not on the device that its file was on: what was mounted
    there is not.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.stat(folder).st_dev != device:  # noqa: PTH116
            raise OSError(
                errno.ENXIO,
                "it is empty, and on another device than before; perhaps it is not mounted",
                folder,
            )


def _is_folder(entry: os.DirEntry[str], findings: Findings, *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError as error:
        if error.errno != errno.ELOOP:
            findings.problems[entry.path] = error
        return False


@functools.lru_cache(maxsize=1000)
def _matcher(part: str) -> Callable[[str], bool]:
    """Whether a name matches a part of a pattern."""
    expression = re.compile(fnmatch.translate(part))
    hidden = part.startswith(".")
    return lambda name: (hidden or not name.startswith(".")) and expression.match(name) is not None


def is_named_by(path: str, globs: Sequence[str]) -> bool:
    """Whether one of the globs is this absolute path.

    A glob without a slash is of the name, in any folder.
    """
    names = _names(path)
    return any(
        _matches(names, _names(glob)) if "/" in glob else fnmatch.fnmatchcase(names[-1], glob)
        for glob in globs
    )


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not names or not parts:
        return not names and not parts
    if parts[0] == "**":  # the last part of all: any file below; else no folder, or one more
        return len(parts) == 1 or _matches(names, parts[1:]) or _matches(names[1:], parts)
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])
