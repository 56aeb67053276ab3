"""What a scan came to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from hourmark.records.ranges import ByteRange
from hourmark_producer.files.fingerprints import Shrink, Verdict, judge
from hourmark_producer.files.identity import Identity
from hourmark_producer.files.patterns import PACKED

if TYPE_CHECKING:
    from hourmark_producer.files.remainder import Rest


class Place(NamedTuple):
    """Where a file is.

    `path` is where it was found first, and is what ranges name; `seen_at` is its latest name.
    """

    source: str
    path: str
    seen_at: str
    missing: bool = False  # it could not be found any more; it is known again should it come back


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next byte to cut, and what must stand before it."""

    generation: int = 0
    offset: int = 0
    in_line: bool = False  # the last cut was a chunk of an over-long line
    anchor: bytes = b""  # see `hourmark_producer.files.fingerprints`
    # the largest size known of this generation: what lies between is lost if the file is gone
    size_seen: int = 0
    head: bytes = b""  # its first bytes, as they were found
    settled: int = 0  # how often shrinks of this file were settled
    doubted: bool = False  # its lines are alike, and that was said
    marks: bytes = b""  # see `hourmark_producer.checkpoint.marks`


class Outgoing(NamedTuple):
    """A spooled range. `acknowledged`: the service has it, the checkpoint does not say so yet."""

    sequence: int
    range: ByteRange
    acknowledged: bool = False

    @property
    def bytes(self) -> int:
        return self.range.end - self.range.start


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One moment of a file's way."""

    position: Position = Position()
    in_flight: tuple[
        Outgoing, ...
    ] = ()  # in the order of the file, as far as they are of one generation
    quiet_to: int = 0  # no line ends between the position and here
    examined_scan: int = -1  # the scan whose observation was examined last
    examined_at_s: float = -1.0  # monotonic

    @property
    def is_untouched(self) -> bool:
        """Whether it was never examined, in this run or before."""
        return (
            self.examined_at_s < 0
            and self.position.offset == self.position.generation == 0
            and not self.in_flight
        )


class Fingerprints(NamedTuple):
    """What a look into a file found; see `hourmark_producer.files.fingerprints`.

    Sizes are taken after them, never before.
    """

    head: bytes
    anchored: bool


class Account(NamedTuple):
    """What looks found of a file since it was last examined.

    It is durable, so that a stop forgets nothing that was known.

    `high`: the largest size since the last of `shrinks`. `head`: the first bytes at the latest
    look.
    """

    high: int
    shrinks: tuple[Shrink, ...] = ()
    head: bytes = b""

    def next(self, size: int, found: Fingerprints | None, position: Position) -> Account:
        """After another look.

        `position`: up to where it was read before all this; its anchor says nothing once it is
        void.
        """
        head, other = self.head[:size], False
        if found is not None:
            void = judge(position.offset, self.shrinks).verdict is Verdict.REPLACED
            other = not found.head.startswith(head) or (not found.anchored and not void)
            head = found.head[:size]
        if other or size < self.high:
            return Account(size, (*self.shrinks, Shrink(self.high, size, other, self.head)), head)
        return Account(max(self.high, size), self.shrinks, head)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What scans saw of a file.

    The account is relative to the examination that ended at `base_s`: once there was another, it
    says nothing.
    """

    # of the content: without the NULs at the end, see `hourmark_producer.files.examination`
    size: int
    mtime_ns: int
    account: Account
    base_s: float
    allocated: int = -1  # the file's size

    def of(self, progress: Progress) -> Account:
        """The account since the examination that this is the progress of."""
        if self.base_s == progress.examined_at_s:
            return self.account
        return Account(progress.position.size_seen, (), progress.position.head)

    def next(
        self,
        status: os.stat_result,
        at_s: float,
        progress: Progress,
        found: Fingerprints | None,
        size: int | None = None,
    ) -> Observation:
        """Return the observation after another look.

        Args:
            status: Of the file.
            at_s: When the look began, monotonic seconds.
            progress: The file's.
            found: Fingerprints, where it was looked into.
            size: Of its content, where it was looked into.
        """
        account = self.of(progress)
        if size is None:
            size = (
                self.size if self.stamp == (status.st_size, status.st_mtime_ns) else status.st_size
            )
        if at_s > progress.examined_at_s:  # else the examination may have been the later look
            account = account.next(size, found, progress.position)
        return Observation(
            size=size,
            mtime_ns=status.st_mtime_ns,
            account=account,
            base_s=progress.examined_at_s,
            allocated=status.st_size,
        )

    @property
    def has_room(self) -> bool:
        """Whether the file ends with NULs: what is written there changes neither its size nor,
        perhaps, its time.
        """
        return self.allocated > self.size

    @property
    def stamp(self) -> tuple[int, int]:
        """Differs where a file has changed; but see `has_room`."""
        return self.allocated, self.mtime_ns


NEVER = Observation(size=-1, mtime_ns=-1, account=Account(0), base_s=-2.0)


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class TrackedFile:
    """One followed file."""

    file_id: str
    identity: Identity  # as of now; the file id was made from it when the file was first seen
    place: Place
    progress: Progress = dataclasses.field(default_factory=Progress)
    descriptor: int | None = None
    held_since_s: float = 0.0  # monotonic: when it was opened last
    observed: Observation = NEVER
    due: int = -1  # the scan that saw a change last
    changed_at_s: float = 0.0
    deleted: bool = False  # no name is left
    retired: bool = False  # nothing more will be read from it
    unfound: int = 0  # scans in a row that did not find it
    failures: int = 0  # in a row, of its current step
    # so many of its ranges may be on their way at a time; grows with each that is acknowledged
    window: int = 1
    target: str = ""  # where its latest name leads, if that is a link
    other_names: tuple[str, ...] = ()  # that it was seen under beside, as a hard link or a link
    rest: Rest | None = (
        None  # it vanished, or was truncated: what was unread of it may be in another file
    )
    former: Position | None = None  # of the generation before: a copy of it may yet be found
    older: tuple[Position, ...] = ()  # of some before that, without their anchors
    saved: Account | None = None  # what the checkpoint has of its account
    flush_at_s: float | None = (
        None  # monotonic: when a record that waits for its end is sent as it is
    )
    nuls: tuple[int, int, float] = (
        -1,
        0,
        0.0,
    )  # generation; up to there NULs in it were seen; first at, monotonic
    kept: tuple[int, int] = (
        0,
        0,
    )  # generation; up to there it holds what was left of the one before, which was read
    counted_from: int | None = None  # looks that were over when a loss was to be counted
    suspected: bool = (
        False  # packed, and perhaps never read: it is looked into, and not in the checkpoint yet
    )

    @property
    def kept_to(self) -> int:
        """Up to which byte its generation may hold what was read in the one before, as it was
        truncated in part.
        """
        generation, kept_to = self.kept
        return kept_to if generation == self.progress.position.generation else 0

    @property
    def is_packed(self) -> bool:
        """Whether it was never seen before it was packed, and is read as what is in there."""
        return self.place.path.endswith(PACKED)

    @property
    def is_blank(self) -> bool:
        """Whether it was never seen to hold anything."""
        progress = self.progress  # one consistent moment
        account = self.observed.of(progress)
        nothing = progress.position.offset == progress.position.generation == account.high == 0
        return nothing and not (account.shrinks or progress.in_flight)

    @property
    def is_gone(self) -> bool:
        """Whether nothing can be read from it: what was not read is counted as lost."""
        return self.retired or self.place.missing

    @property
    def is_settled(self) -> bool:
        """Whether what was last seen of it was examined, and nothing of it is on its way."""
        progress = self.progress  # one consistent moment
        return not progress.in_flight and progress.examined_scan >= self.due

    @property
    def is_read(self) -> bool:
        """Whether all that was last seen of it was examined, and is acknowledged or waits for the
        end of its line.
        """
        return self.is_settled and self.progress.quiet_to >= self.observed.size

    @property
    def is_at_rest(self) -> bool:
        """Whether it is here, and nothing seen of it is left to do: a look that finds it as it was
        has nothing to add.
        """
        progress, size = self.progress, self.observed.size  # one consistent moment
        position = progress.position
        return (
            size == position.offset == position.size_seen == progress.quiet_to
            and progress.examined_scan >= self.due
            and not (
                progress.in_flight
                or self.unfound
                or self.deleted
                or self.suspected
                or self.place.missing
                or self.retired
            )
            and self.rest is None
            and not self.observed.has_room
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes that are not yet acknowledged, an unterminated last line included."""
        progress = self.progress
        seen = self.observed.size if self.observed.size >= 0 else self.observed.of(progress).high
        known = max(seen, progress.position.size_seen)
        unread = 0 if self.is_gone else max(0, known - progress.position.offset)
        return unread + sum(sent.bytes for sent in progress.in_flight)

    def close(self) -> None:
        """Let go of the file."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        self.drop_rest()

    def drop_rest(self) -> None:
        """It is here after all, or its rest is read."""
        if self.rest is not None:
            self.rest.close()
            self.rest = None


_Index = dict[tuple[int, int], TrackedFile]
_OTHER_NAMES_MAX: Final = 8  # the latest: backups by hard link have a new name each day


class Files:
    """All followed files, by id and by inode. Changed by the scanner alone."""

    def __init__(self, files: Iterable[TrackedFile]) -> None:
        self.looks = 0  # at everything, that are over
        self.packed = set[TrackedFile]()  # that are read in archives, or looked into there
        self._by_id: dict[str, TrackedFile] = {}
        self._by_inode: _Index = {}
        self._by_birth: _Index = {}
        self._by_name: dict[str, list[TrackedFile]] = {}
        for file in files:
            self.add(file)

    def __iter__(self) -> Iterator[TrackedFile]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, file: TrackedFile) -> None:
        """Follow one more."""
        self._by_id[file.file_id] = file
        if file.is_packed:
            self.packed.add(file)
        if not file.retired:
            self._by_name.setdefault(file.place.path, []).append(file)
            self._index(file)

    def has(self, file_id: str) -> bool:
        """Whether one of this id is known."""
        return file_id in self._by_id

    def first_seen_at(self, path: str) -> Iterator[TrackedFile]:
        """Files whose first name this was, or another one beside; the latest first."""
        return reversed(self._by_name.get(path, ()))

    def also_at(self, file: TrackedFile, path: str) -> None:
        """It has another name beside its own."""
        if path == file.place.path or path in file.other_names:
            return
        if len(file.other_names) == _OTHER_NAMES_MAX:
            self._unname(file, file.other_names[0])
        file.other_names = (*file.other_names[1 - _OTHER_NAMES_MAX :], path)
        self._by_name.setdefault(path, []).append(file)

    def retire(self, file: TrackedFile) -> None:
        """Nothing more will be read from it; it stays as long as a range of it is on its way."""
        file.retired = True
        file.close()
        self._unname(file, file.place.path, *file.other_names)
        self._unindex(file)

    def remove(self, file: TrackedFile) -> None:
        """Forget one."""
        self._by_id.pop(file.file_id, None)
        self.packed.discard(file)
        self._unname(file, file.place.path, *file.other_names)
        self._unindex(file)

    def _unname(self, file: TrackedFile, *names: str) -> None:
        for name in names:
            named = self._by_name.get(name, [])
            if file in named:
                named.remove(file)
            if not named:
                self._by_name.pop(name, None)

    def at_inode(self, device: int, inode: int) -> TrackedFile | None:
        """The file last known to have this inode."""
        return self._by_inode.get((device, inode))

    def is_displaced(self, file: TrackedFile) -> bool:
        """Whether its inode is another file's by now."""
        return self.at_inode(file.identity.device, file.identity.inode) is not file

    def match(self, identity: Identity) -> TrackedFile | None:
        """The file that this is.

        Where birth times are known they decide. A device number may differ after a restart of the
        machine: then a file that is not open now and agrees in inode and birth time, to the
        nanosecond, is the same.
        """
        here = self.at_inode(identity.device, identity.inode)
        if here is not None and (
            here.identity.birth_ns in (0, identity.birth_ns) or identity.birth_ns == 0
        ):
            return here
        elsewhere = (
            self._by_birth.get((identity.inode, identity.birth_ns)) if identity.birth_ns else None
        )
        return elsewhere if elsewhere is not None and elsewhere.descriptor is None else None

    def moved(self, file: TrackedFile, identity: Identity) -> None:
        """The same file under another device number."""
        self._unindex(file)
        file.identity = identity
        self._index(file)

    def _indexes(self, file: TrackedFile) -> Iterator[tuple[_Index, tuple[int, int]]]:
        """Each index that knows it, and by which key."""
        if file.is_packed:  # the archive's own inode is no file's that is followed
            return
        device, inode, birth_ns = file.identity
        yield self._by_inode, (device, inode)
        if birth_ns:
            yield self._by_birth, (inode, birth_ns)

    def _index(self, file: TrackedFile) -> None:
        for index, key in self._indexes(file):
            if key not in index or index[key].identity.birth_ns <= file.identity.birth_ns:
                index[key] = file

    def _unindex(self, file: TrackedFile) -> None:
        for index, key in self._indexes(file):
            if index.get(key) is file:
                del index[key]


@dataclasses.dataclass(slots=True)
class Seen:
    """`complete`: the names of the sources that were fully seen. `problems`: path → why not, per
    source.
    """

    complete: set[str] = dataclasses.field(default_factory=set)
    problems: dict[str, dict[str, OSError]] = dataclasses.field(default_factory=dict)
    folders: set[str] = dataclasses.field(
        default_factory=set
    )  # that were listed, or where a file was looked for
    astir: list[TrackedFile] = dataclasses.field(default_factory=list)  # all but those at rest
    has_waiting: bool = False  # files wait for their turn to be opened

    def all_problems(self) -> dict[str, OSError]:
        """Of all sources, by path."""
        return {
            path: problem
            for problems in self.problems.values()
            for path, problem in problems.items()
        }
