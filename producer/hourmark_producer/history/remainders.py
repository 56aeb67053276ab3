"""Search for the remainders of files that vanished or were truncated unread.

A file that vanished is searched for among compressed files, in its former folders and where the
patterns of its source match. A candidate must have a related name, must not be older than the file,
and must contain the known head and the bytes before the position. The remainder of a truncated file
is searched for in copies. Its ranges have the file id, generation and offsets of the original file,
as if it had never been compressed. Meanwhile the source is not reported as caught up.

If less than 64 bytes are known, there must be only one candidate. Lines that are all equal prove
nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from hourmark.clock import Clock
from hourmark.config.groups import TailedSource
from hourmark_producer.checkpoint import archives, books
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.checkpoint.database import Checkpoint
from hourmark_producer.cut.lines import RangeCut
from hourmark_producer.cut.range_sizes import RangeSizes
from hourmark_producer.cut.sources import cut_for_source
from hourmark_producer.files import waits
from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
    UnfinishedFiles,
)
from hourmark_producer.files.fingerprints import are_lines_equal
from hourmark_producer.files.identity import FileIdentity, identify
from hourmark_producer.files.patterns import PACKED
from hourmark_producer.files.remainder import (
    NOTHING,
    CandidateContent,
    KnownContent,
    PlainFileReader,
    Remainder,
    RemainderStage,
    compare_content,
)
from hourmark_producer.files.schedule import Schedule
from hourmark_producer.files.tracked_file import TrackedFile, TrackedFiles
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.copies import (
    OFFSET_MIN,
    CopyCandidate,
    find_origin,
    is_identifying,
    skip_copied_bytes,
)
from hourmark_producer.history.read_state import (
    KnownPast,
    ReadState,
    determine_read_state,
    known_contents,
)

_ROOT: Final = re.compile(r"\.*[^.\d]*")
_SEPARATORS: Final = "._-~"
_DATED: Final = re.compile(r"[.\-_]\d")


def find_compressed_candidates(file: TrackedFile, paths: Iterable[str]) -> dict[str, int]:
    """Return compressed files whose names begin like a file's name, up to its first digit or dot.

    Args:
        file: The file.
        paths: Paths of compressed files; other paths are ignored.

    Returns:
        Inodes by path, the most recently modified first.
    """
    root = _root(file.place.seen_at)
    dated: list[tuple[int, str, int]] = []
    for path in dict.fromkeys(paths):
        if path.endswith(PACKED) and os.path.basename(path).startswith(root):  # noqa: PTH119
            with contextlib.suppress(OSError):
                _add(dated, path)
    return {path: inode for _, path, inode in sorted(dated, reverse=True)}


def find_copy_candidates(file: TrackedFile) -> dict[str, int]:
    """Return files whose names extend a file's name, compressed or not.

    The folders of all names of the file are searched for its name with a suffix, or with a number
    before its extension.

    Returns:
        Inodes by path, the most recently modified first.

    Raises:
        OSError: A folder cannot be listed, and the file is not deleted.
    """
    dated: list[tuple[int, str, int]] = []
    for place in dict.fromkeys(
        path
        for path in (file.place.seen_at, file.target, file.place.path, *file.other_names)
        if path
    ):
        folder, name = os.path.split(place)
        stem = name.rpartition(".")[0] or name
        with (
            contextlib.suppress(*([OSError] if file.deleted else [])),
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                if entry.name != name and _is_named_after(entry.name, name, stem):
                    with contextlib.suppress(OSError):
                        _add(dated, entry.path)
    return {path: inode for _, path, inode in sorted(dated, reverse=True)}


def _add(dated: list[tuple[int, str, int]], path: str) -> None:
    status = os.stat(path)  # noqa: PTH116
    if stat.S_ISREG(status.st_mode):
        dated.append((status.st_mtime_ns, path, status.st_ino))


def _is_named_after(name: str, live: str, stem: str) -> bool:
    return (name.startswith(live) and name[len(live)] in _SEPARATORS) or (
        _DATED.match(name, len(stem)) is not None and name.startswith(stem)
    )


def _root(path: str) -> str:
    match = _ROOT.match(os.path.basename(path))  # noqa: PTH119
    assert match is not None, "it matches nothing, too"
    return match[0].rstrip("-_~")


AT_ONCE_MAX: Final = 4  # each holds a descriptor and a window
TRUNCATED_MAX: Final = 16
_NOWHERE_MAX: Final = 64
_BLOCK_BYTES: Final = 1 << 16
_LOG = logging.getLogger(__name__)


class _NotTheRemainder(OSError):
    """Raised when a candidate cannot hold the remainder of a file."""


class _Found(NamedTuple):
    path: str
    content: CandidateContent


class _Claim(NamedTuple):
    """The file whose remainder a candidate holds, and the offset from which it holds it."""

    file_id: str
    offset: int
    of_truncated: bool


class _Opened(NamedTuple):
    """An open candidate, its status, and the claim on it, or None."""

    plain: DecompressedReader | PlainFileReader
    status: os.stat_result
    claim: _Claim | None


@dataclasses.dataclass(kw_only=True)
class RemainderFinder:
    """Finder and reader of the remainders of all files.

    The scanner calls `is_remainder_pending`; the worker that has a file calls `next_cut` and
    `next_cut_of_truncated`.

    Attributes:
        files: All tracked files.
        checkpoint: Where new positions are saved.
        schedule: Where files with a remainder are added.
        clock: Measures how long candidates have not changed.
        sizes: Size limits of ranges.
        sources: Configurations of the sources by name.
        stopping: Set to make searches raise RetryLater.
    """

    files: TrackedFiles
    checkpoint: Checkpoint
    schedule: Schedule
    clock: Clock
    sizes: RangeSizes
    sources: Mapping[str, TailedSource]

    def __post_init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._of_truncated: set[TrackedFile] = set()  # whose copies are open
        self._taken: dict[FileIdentity, _Claim] = {}  # packed files and copies
        self._unfinished = UnfinishedFiles(self.clock)
        self._nowhere = list[
            set[int]
        ]()  # inodes of compressed files per search that ended without a result

    def is_remainder_pending(self, file: TrackedFile, paths: Iterable[str]) -> bool:
        """Return whether the remainder of a vanished file is still being searched for or read.

        Starts a search if there are candidates and fewer than `AT_ONCE_MAX` searches are active.

        Args:
            file: The file.
            paths: Paths where its remainder may be.
        """
        if file.rest is None:
            shrinks = file.observed.account_since(file.progress).shrinks
            rest = _rest_of_truncated(file, shrinks[0].high) if shrinks else _rest_of(file, paths)
            if rest is None:
                return False
            if sum(_takes_room(other.rest) for other in self.files) < AT_ONCE_MAX:
                file.rest = rest
                self.schedule.add(file)
            return True
        return _is_at_work(file.rest)

    def next_cut(self, file: TrackedFile, rest: Remainder) -> RangeCut | None:
        """Return the next range of a file's remainder; None if there is none.

        Searches the candidates first, if that was not done yet.

        Args:
            file: The file.
            rest: Its remainder.

        Raises:
            RetryLater: It cannot be decided yet, or the tailer is stopping.
            OSError: A candidate cannot be read.
            CheckpointFailed: The new position cannot be saved.
        """
        if rest.stage is RemainderStage.LOOKING:
            (self._find_out if file.suspected else self._find)(file, rest)
        if rest.stage is not RemainderStage.READING:
            return None
        position = file.progress.position

        def read(skip: int, count: int) -> bytes:
            return rest.read_at(position.offset + skip, count, self._pause)

        try:
            found = cut_for_source(
                self.sources[file.place.source], read, self.sizes.limits, position, flush=True
            )
        except RetryLater:
            raise
        except OSError:
            rest.end(RemainderStage.LOOKING)
            raise
        if isinstance(found, RangeCut):
            return found
        rest.end(RemainderStage.FINISHED)
        return None

    def next_cut_of_truncated(self, file: TrackedFile, high: int) -> RangeCut | None:
        """Return the next range that a truncated file lost unread; None if no copy holds more.

        Args:
            file: The file.
            high: Largest content size seen before the truncation, in bytes.

        Raises:
            RetryLater: It cannot be decided yet, or too many other searches are active.
            OSError: A candidate cannot be read.
            CheckpointFailed: The former position cannot be saved.
        """
        if file.rest is None:
            if (rest := _rest_of_truncated(file, high)) is None:
                return None
            self._make_room()
            file.rest = rest
        found = self.next_cut(file, file.rest)
        if found is None:
            file.drop_remainder()
        with self._lock:
            (self._of_truncated.discard if found is None else self._of_truncated.add)(file)
        return found

    def _make_room(self) -> None:
        with self._lock:
            self._of_truncated = {file for file in self._of_truncated if _is_at_work(file.rest)}
            if len(self._of_truncated) >= TRUNCATED_MAX:
                raise RetryLater(
                    f"{TRUNCATED_MAX} others that were truncated are read in their copies first"
                )

    def _find(self, file: TrackedFile, rest: Remainder) -> None:
        position, account = file.progress.position, file.observed.account_since(file.progress)
        if rest.truncated_at is not None:
            known = KnownContent(rest.head, position.offset, position.anchor, rest.truncated_at)
        else:
            known = KnownContent(account.head, position.offset, position.anchor, account.high)
        found = [
            one
            for path in rest.candidates
            if (one := self._look_at(file, path, known, rest)) is not None
        ]
        few = min(len(known.head), max(known.offset, known.high)) < OFFSET_MIN
        readable = [one for one in found if one.content.readable != NOTHING]
        if not readable or (few and len(found) > 1):
            with self._lock:
                self._nowhere = [*self._nowhere[-_NOWHERE_MAX:], set(rest.candidates.values())]
            rest.end(
                RemainderStage.NOWHERE,
                "; ".join(f"{one.path}: {one.content.flaw or 'perhaps'}" for one in found[:3]),
            )
            return
        whole = (one for one in readable if not one.content.flaw)
        chosen = next(whole, max(readable, key=lambda one: one.content.readable))
        if rest.truncated_at is None and file.progress.is_untouched:
            self._pass_over(file, rest, chosen)
        self._begin(file, rest, chosen)

    def _pass_over(self, file: TrackedFile, rest: Remainder, found: _Found) -> None:
        size = found.content.readable

        def read(offset: int, count: int) -> bytes:
            try:
                plain = self._open(file, found.path, rest).plain
                with contextlib.closing(plain):
                    return _read_of(plain, offset, min(offset + count, size), self._pause)
            except (CompressedFileIncomplete, CompressedFileDamaged) as error:
                raise RetryLater(f"{found.path} was changed while it was read: {error}") from error

        if origin := find_origin(self.files, file, CopyCandidate(size, read)):
            end = (
                size if origin.reads_on else min(size, origin.known.offset)
            )  # no process writes to it any more
            position = skip_copied_bytes(self.checkpoint, file, origin, end, read)
            file.progress = dataclasses.replace(file.progress, position=position, quiet_to=end)

    def _find_out(self, file: TrackedFile, rest: Remainder) -> None:
        """Examine a new compressed file, and start reading it if it was never read before."""
        path = next(iter(rest.candidates))
        if (found := self._look_at(file, path, KnownContent(b"", 0, b"", 0), rest)) is None:
            return rest.end(RemainderStage.NOWHERE)  # the rest of one that is known is in it
        content = found.content
        plain, status, _ = self._open(file, path, rest)
        assert isinstance(plain, DecompressedReader), "it was found by its packed name"
        try:
            with contextlib.closing(plain):
                answer, past = determine_read_state(
                    plain,
                    known_contents(self.files, self.checkpoint.read(archives.read_departed), file),
                    self._pause,
                )
        except (CompressedFileIncomplete, CompressedFileDamaged):
            answer, past = ReadState.UNDECIDED, None
        if answer is ReadState.NOT_YET:
            raise RetryLater(f"{path} may be what another file held, which is looked at first")
        # than was read of it before it was over, or counted as lost
        has_more = past is not None and content.readable > max(past.offset, past.counted_to)
        if (answer is ReadState.READ and not has_more) or content.readable == 0:
            return rest.end(RemainderStage.NOWHERE)
        if answer is ReadState.UNDECIDED or content.flaw:
            if any(_is_sought(other) for other in self.files):
                raise RetryLater(f"{path} may be what a file that vanished was packed into")
            why = content.flaw or "too little is known to tell whether it was read before"
            if self._was_looked_for_in(
                rest.candidates[path]
            ):  # reported as unknown with the file that was looked for in it
                why = ""
            return rest.end(RemainderStage.NOWHERE, why)
        self._admit(file, past, content.readable, archives.ArchiveStamp.of(status))
        self._begin(file, rest, found)
        return None

    def _was_looked_for_in(self, inode: int) -> bool:
        """Return whether a remainder was searched for in this file without success.

        Each such search is reported only once.
        """
        with self._lock:
            found = next((inodes for inodes in self._nowhere if inode in inodes), None)
            if found is not None:
                self._nowhere.remove(found)
            return found is not None

    def _admit(
        self, file: TrackedFile, past: KnownPast | None, size: int, stamp: archives.ArchiveStamp
    ) -> None:
        known = past or KnownPast(b"", 0, b"")
        position = dataclasses.replace(
            file.progress.position,
            offset=known.offset,
            head=known.head,
            anchor=known.anchor,
            size_seen=size,
        )
        progress = dataclasses.replace(
            file.progress,
            position=position,
            quiet_to=known.offset,
            examined_at_s=self.clock.monotonic_s(),
        )
        file.progress = progress
        changed = [
            changes.save_account(file.file_id, position),
            archives.save_archive(stamp, file.file_id),
        ]
        changed += [books.count_skipped(file.place.source, known.offset)] if known.offset else []
        self.checkpoint.commit([changes.insert_file(file), *changed])
        file.suspected = False

    def _look_at(
        self, file: TrackedFile, path: str, known: KnownContent, rest: Remainder
    ) -> _Found | None:
        """Return the content of a candidate that matches; None if it does not match."""
        try:
            opened = self._open(file, path, rest)
        except (
            FileNotFoundError
        ) as error:  # renamed by now; where to, the next looks at its folder tell
            file.drop_remainder()
            file.unfound = 1  # it is not where it was, so the count starts again
            raise RetryLater(f"{path} was there, and is looked for again") from error
        except (CompressedFileIncomplete, CompressedFileDamaged, _NotTheRemainder):
            return None
        plain, status, _ = opened
        with contextlib.closing(plain):
            content = (
                plain.holds(known)
                if isinstance(plain, PlainFileReader)
                else compare_content(plain, known, self._pause)
            )
            if (
                content is not None
                and content.grows
                and self._unfinished.unchanged_s(status) < waits.PACKING_S
            ):
                raise RetryLater(
                    f"{path} has no end yet; perhaps {file.place.seen_at} is being packed"
                )
            if (
                content is not None
                and rest.truncated_at is not None
                and (passed := self._passed_over(file, opened))
            ):
                content = content._replace(
                    readable=min(content.readable, passed)
                )  # what is behind that, the copy sends itself
        return None if content is None else _Found(path, content)

    def _passed_over(self, file: TrackedFile, opened: _Opened) -> int:
        """Return the offset up to which a plain or compressed copy was skipped; 0 if none.

        Raises:
            RetryLater: Another search that affects the result is still active.
        """
        plain, status, claim = opened
        if isinstance(plain, PlainFileReader):
            copy = self.files.at_inode(status.st_dev, status.st_ino)
            return 0 if copy is None else copy.progress.position.offset
        if claim is not None:
            return 0 if claim.file_id == file.file_id else claim.offset
        if any(
            _is_sought(other) and not other.progress.is_untouched
            for other in self.files
            if other is not file
        ):
            raise RetryLater(
                "what is packed may be a copy that was passed over, which is looked for first"
            )
        return 0

    def _open(
        self, file: TrackedFile, path: str, rest: Remainder, *, take: bool = False
    ) -> _Opened:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status, identity = os.fstat(descriptor), identify(descriptor)
            older = 0 < identity.birth_ns < file.identity.birth_ns
            if status.st_ino != rest.candidates[path]:
                raise FileNotFoundError(errno.ENOENT, "it is another file by now", path)
            own = _Claim(file.file_id, file.progress.position.offset, rest.truncated_at is not None)
            claim = self._taken.setdefault(identity, own) if take else self._taken.get(identity)
            is_others = (
                claim is not None
                and claim.file_id != own.file_id
                and (file.suspected or claim.of_truncated == own.of_truncated)
            )
            if not stat.S_ISREG(status.st_mode) or older or is_others or identity == file.identity:
                raise _NotTheRemainder(path)
            if path.endswith(PACKED):
                return _Opened(DecompressedReader(descriptor, path), status, claim)
            return _Opened(PlainFileReader(descriptor, own.offset), status, claim)
        except BaseException:
            os.close(descriptor)
            raise

    def _begin(self, file: TrackedFile, rest: Remainder, found: _Found) -> None:
        path, content = found
        plain = self._open(file, path, rest, take=True).plain
        try:
            if rest.truncated_at is None:
                self._keep_size(file, content.readable)
            else:
                position = dataclasses.replace(file.progress.position, head=rest.head)
                self.checkpoint.commit(
                    [changes.save_former(file.file_id, position)]
                )  # looks know only its new head
        except BaseException:
            plain.close()
            raise
        offset = file.progress.position.offset
        rest.begin(path, plain, content, offset if isinstance(plain, PlainFileReader) else 0)
        _LOG.info(
            "%s (file %s) %s, and is what %s holds, of %d bytes; it is read on there "
            "from byte %d%s",
            file.place.seen_at,
            file.file_id,
            "vanished" if rest.truncated_at is None else "was truncated",
            path,
            content.readable,
            offset,
            f"; not whole: {content.flaw}" if content.flaw else "",
        )

    def _keep_size(self, file: TrackedFile, size: int) -> None:
        progress = file.progress
        account = file.observed.account_since(progress)
        position = dataclasses.replace(
            progress.position, size_seen=max(account.high, size), head=account.head
        )
        self.checkpoint.commit(
            [
                changes.save_position(file.file_id, position),
                changes.save_account(file.file_id, position),
            ]
        )
        file.progress = dataclasses.replace(
            progress, position=position, examined_at_s=self.clock.monotonic_s()
        )

    def _pause(self) -> None:
        if self.stopping.is_set():
            raise RetryLater("the tailer stops")


def _read_of(
    plain: DecompressedReader | PlainFileReader, start: int, end: int, pause: Callable[[], object]
) -> bytes:
    """Return the bytes from `start` to `end` of content that can only be read from its beginning.

    Raises:
        CompressedFileIncomplete: The content ends early.
        CompressedFileDamaged: The content is corrupt.
        OSError: The file cannot be read.
    """
    at, found = 0, b""
    while at < end and (block := plain.read(min(_BLOCK_BYTES, end - at))):
        found += block[max(0, start - at) :]
        at += len(block)
        pause()
    return found


def _is_at_work(rest: Remainder | None) -> bool:
    return rest is not None and rest.stage in (RemainderStage.LOOKING, RemainderStage.READING)


def _takes_room(rest: Remainder | None) -> bool:
    """Return whether a remainder uses a descriptor and a buffer."""
    return rest is not None and (
        rest.stage is RemainderStage.READING
        or (rest.stage is RemainderStage.LOOKING and rest.truncated_at is None)
    )


def _is_sought(file: TrackedFile) -> bool:
    """Return whether a file vanished and may still be found in a compressed file."""
    is_elsewhere = file.descriptor is None and not (file.is_gone or file.is_packed or file.is_blank)
    return is_elsewhere and (file.unfound > 0 or _is_at_work(file.rest))


def _rest_of(file: TrackedFile, paths: Iterable[str]) -> Remainder | None:
    account, candidates = (
        file.observed.account_since(file.progress),
        find_compressed_candidates(file, paths),
    )
    is_telling_at_all = bool(account.head) and not are_lines_equal(
        account.head, file.progress.position.anchor
    )
    return Remainder(candidates) if candidates and is_telling_at_all else None


def _rest_of_truncated(file: TrackedFile, high: int) -> Remainder | None:
    position = file.progress.position
    return (
        Remainder(find_copy_candidates(file), truncated_at=high, head=position.head)
        if is_identifying(position)
        else None
    )
