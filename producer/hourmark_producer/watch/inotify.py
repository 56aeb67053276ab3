"""Notifications from inotify(7) about files in a folder that were written, created or renamed.

The notifications are hints and never complete. They do not include writes through mmap, writes of
other machines on a network file system, targets of links in unwatched folders, and events after a
queue overflow. Scans find all changes; hints only cause some files to be scanned earlier. Each
folder needs one watch, regardless of the number of its files. Folders beyond the system limit
(fs.inotify.max_user_watches) are only scanned.

Uses libc through ctypes: three stable calls, instead of another package on each host.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _Q_OVERFLOW, _IGNORED, _ONLYDIR = (
    0x400,
    0x800,
    0x4000,
    0x8000,
    0x0100_0000,
)
_WATCHED: Final = (
    _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
)
_EVENT: Final = struct.Struct("=iIII")  # watch, what, cookie, length of the name behind it
_READ_BYTES: Final = 1 << 18
_READS_MAX: Final = (
    8  # at once: a queue holds 16,384 events, and who writes on must not keep us here
)
FOLDERS_MAX: Final = 8192
_LOG = logging.getLogger(__name__)


class FolderNotifications(NamedTuple):
    """Changes in watched folders, as returned by `InotifyWatcher.take_events`.

    Attributes:
        written: Paths of files that were written to. The folder is spelled as it was passed to
            `watch`.
        moved: Whether a file was created, deleted or renamed, or events were lost. If True, scan
            all folders.
    """

    written: set[str]
    moved: bool


class InotifyWatcher:
    """Watches folders for changes with inotify(7). Not thread-safe.

    Folders are not watched if inotify is unavailable or its limits are reached. The first failure
    is logged. No exception is raised.
    """

    def __init__(self) -> None:
        self._folders: dict[int, set[str]] = {}  # by watch: a folder may have several names
        self._watches: dict[str, int] = {}
        self._complained = False
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._opened()

    def _opened(self) -> int | None:
        if not hasattr(self._libc, "inotify_init1"):
            return None
        queue: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if queue < 0:
            self._complain(ctypes.get_errno())
            return None
        return queue

    def close(self) -> None:
        """Stop watching all folders. Later calls of `take_events` return no events."""
        if self._queue is not None:
            os.close(self._queue)
            self._queue = None

    def watch(self, folders: Collection[str]) -> bool:
        """Watch exactly the given folders, and stop watching all others.

        Args:
            folders: Paths of the folders. Subfolders are not watched.

        Returns:
            Whether the number of watched folders increased. If True, scan the folders once, because
            changes before this call are not reported.
        """
        if self._queue is None:
            return False
        for folder in self._watches.keys() - folders:
            watch = self._watches.pop(folder)
            self._folders[watch].discard(folder)
            if not self._folders[watch]:
                self._libc.inotify_rm_watch(self._queue, watch)
                del self._folders[watch]
        before, _ = len(self._watches), ctypes.set_errno(0)
        for folder in sorted(folders - self._watches.keys())[: FOLDERS_MAX - before]:
            watch = self._libc.inotify_add_watch(
                self._queue, os.fsencode(folder), ctypes.c_uint32(_WATCHED)
            )
            if watch >= 0:
                self._folders.setdefault(watch, set()).add(folder)
                self._watches[folder] = watch
            elif ctypes.get_errno() == errno.ENOSPC:
                break
        if len(self._watches) >= FOLDERS_MAX or ctypes.get_errno() == errno.ENOSPC:
            self._complain(errno.ENOSPC)
        return len(self._watches) > before

    def take_events(self) -> FolderNotifications:
        """Return all events since the previous call, without waiting.

        Returns:
            The events. If there were none, `written` is empty and `moved` is False.
        """
        written, moved = set[str](), False
        for watch, what, name in self._events():
            folders = self._folders.get(watch, ())
            if what & _MODIFY:
                written.update(f"{folder.rstrip('/')}/{name}" for folder in folders)
            if what & (_DELETE_SELF | _MOVE_SELF | _IGNORED):
                if what & _MOVE_SELF and self._queue is not None:
                    self._libc.inotify_rm_watch(self._queue, watch)
                self._forget(watch)
            if what & ~(_MODIFY | _IGNORED):
                moved = True
        return FolderNotifications(written, moved)

    def _events(self) -> Iterator[tuple[int, int, str]]:
        for _ in range(_READS_MAX if self._queue is not None else 0):
            assert self._queue is not None, "who reads events does not close meanwhile"
            try:
                read = os.read(self._queue, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(read):
                watch, what, _, length = _EVENT.unpack_from(read, at)
                at += _EVENT.size + length
                yield watch, what, os.fsdecode(read[at - length : at].rstrip(b"\0"))

    def _forget(self, watch: int) -> None:
        for folder in self._folders.pop(watch, ()):
            del self._watches[folder]

    def _complain(self, number: int) -> None:
        if not self._complained:
            self._complained = True
            _LOG.warning(
                "no more hints of inotify (%s): files of other folders are polled, and what is "
                "appended to idle ones may take "
                "half a minute; raise fs.inotify.max_user_watches or max_user_instances",
                os.strerror(number),
            )
