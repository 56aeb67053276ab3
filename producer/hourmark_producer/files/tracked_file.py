"""A tracked file: its location, position, progress and latest observation; and all of them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from hourmark.process.file_identity import FileIdentity
from hourmark.records.ranges import ByteRange
from hourmark_producer.files.fingerprints import (
    IDENTIFYING_BYTES,
    Truncation,
    TruncationVerdict,
    are_lines_equal,
    assess_truncations,
)
from hourmark_producer.files.patterns import PACKED

if TYPE_CHECKING:
    from hourmark_producer.files.remainder import RemainderSearch


class FileLocation(NamedTuple):
    """The paths of a tracked file, and the source to which it belongs.

    A source is a named group of log files in the configuration.

    Attributes:
        source: Name of the source.
        path: Path at which the file was first found. All byte ranges that are sent from the file
            carry this path, even after a rename.
        seen_at: Path at which the file was last found.
        missing: Whether the file can no longer be found. If it is found again, reading continues at
            the saved position.
    """

    source: str
    path: str
    seen_at: str
    missing: bool = False  # it could not be found any more; it is known again should it come back


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilePosition:
    """The offset of the next byte to read from a file, and fingerprints of the bytes before it.

    The fingerprints show whether the file, or a copy of it, still has the content that was read.

    Attributes:
        generation: Number of times the content was truncated or replaced. Offsets start at 0 again
            in each generation.
        offset: Offset of the next byte, within this generation.
        in_line: Whether the previous range ended within a line that exceeds the size limit.
        anchor: The last bytes before the offset.
        size_seen: Largest known content size of this generation, in bytes. If the file is deleted,
            the bytes from `offset` to `size_seen` are lost.
        head: First bytes of the file.
        settled: Number of truncations whose effect on the position and on the lost bytes is already
            recorded.
        doubted: Whether a warning was logged that all known lines are equal, so that the content
            cannot be recognized.
        marks: Recent offsets, each with a digest of the bytes just before it, in binary form. They
            identify a copy that is shorter than the part already read.
    """

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

    @property
    def is_identifying(self) -> bool:
        """Return whether the fingerprints are sufficient to recognize the content in another file.

        False if they are too short, or if all known lines are equal.
        """
        return (
            self.offset >= IDENTIFYING_BYTES
            and len(self.head) >= IDENTIFYING_BYTES
            and not are_lines_equal(self.head, self.anchor)
        )


class SpooledRange(NamedTuple):
    """A byte range of a file that is stored on disk until a delivery service acknowledges it.

    Attributes:
        sequence: Unique number of the range in the checkpoint (the tailer's database). Later ranges
            have higher numbers.
        range: The fields of the range, such as its offsets, without its bytes.
        acknowledged: Whether a service has acknowledged the range. It is then about to be removed
            from the checkpoint.
    """

    sequence: int
    range: ByteRange
    acknowledged: bool = False

    @property
    def bytes(self) -> int:
        """Return the size of the uncompressed range in bytes."""
        return self.range.end - self.range.start


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """An immutable snapshot of how far a file was read and acknowledged.

    Before a sender thread reads from a file, it examines whether the file grew or was truncated.

    Attributes:
        position: Position of the next byte to read from the file.
        in_flight: Byte ranges that were read and are stored on disk until a delivery service
            acknowledges them. The ranges of each generation are in file order.
        quiet_to: Offset up to which the unread bytes are known to contain no line end.
        examined_scan: Number of the latest scan that had detected a change when the file was last
            examined; -1 if it was not examined. If `TrackedFile.due` is higher, a later scan
            detected another change.
        examined_at_s: Time of the latest examination in monotonic seconds; -1 if there was none in
            this run.
    """

    position: FilePosition = FilePosition()
    in_flight: tuple[
        SpooledRange, ...
    ] = ()  # in the order of the file, as far as they are of one generation
    quiet_to: int = 0  # no line ends between the position and here
    examined_scan: int = -1  # the scan whose observation was examined last
    examined_at_s: float = -1.0  # monotonic

    @property
    def unacknowledged(self) -> tuple[SpooledRange, ...]:
        """Return the ranges in `in_flight` that no service has acknowledged, in the same order."""
        return tuple(sent for sent in self.in_flight if not sent.acknowledged)

    @property
    def is_untouched(self) -> bool:
        """Return whether the file has never been read, and no sender has examined it in this run.

        A sender examines a file for growth and truncation before it reads from the file.
        """
        return (
            self.examined_at_s < 0
            and self.position.offset == self.position.generation == 0
            and not self.in_flight
        )


class Fingerprints(NamedTuple):
    """Properties of an open file that show whether its content was replaced.

    To detect truncation as well, read the file size after the fingerprints.

    Attributes:
        head: First bytes of the content.
        anchored: Whether the bytes just before the read position are unchanged.
    """

    head: bytes
    anchored: bool


class FileAccount(NamedTuple):
    """Sizes and truncations of a file that scans observed since its latest examination.

    A sender thread examines a file before it reads from it. Until then, the account records what
    changed. It is saved in the checkpoint, so that bytes that are destroyed unread are counted as
    lost even after a restart.

    Attributes:
        high: Largest content size since the latest truncation, in bytes.
        shrinks: Truncations and replacements of the content, in chronological order; empty if the
            content only grew.
        head: First bytes of the content at the latest scan.
    """

    high: int
    shrinks: tuple[Truncation, ...] = ()
    head: bytes = b""

    def after_scan(
        self, size: int, found: Fingerprints | None, position: FilePosition
    ) -> FileAccount:
        """Return a copy of this account that includes the result of another scan.

        Args:
            size: Content size that the scan observed, in bytes.
            found: Fingerprints that the scan read; None if it did not open the file.
            position: Position up to which the file was read at its latest examination.

        Returns:
            The new account. If the content is smaller than before or was replaced, `shrinks` has
            one more entry.
        """
        head, other = self.head[:size], False
        if found is not None:
            void = (
                assess_truncations(position.offset, self.shrinks).verdict
                is TruncationVerdict.REPLACED
            )
            other = not found.head.startswith(head) or (not found.anchored and not void)
            head = found.head[:size]
        if other or size < self.high:
            return FileAccount(
                size, (*self.shrinks, Truncation(self.high, size, other, self.head)), head
            )
        return FileAccount(max(self.high, size), self.shrinks, head)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileObservation:
    """Size and modification time of a file at the latest scan, and changes before it.

    Attributes:
        size: Size of the content in bytes, without trailing NUL bytes; -1 if never observed.
        mtime_ns: Modification time in Unix nanoseconds; -1 if never observed.
        account: Sizes and truncations that scans observed since a sender thread last examined the
            file, which it does before reading.
        base_s: Time of this examination (`FileProgress.examined_at_s`). If the file was examined
            again since, `account` is outdated.
        allocated: Size of the file in bytes, including trailing NUL bytes; -1 if never observed.
    """

    # of the content: without the NULs at the end, see `hourmark_producer.files.examination`
    size: int
    mtime_ns: int
    account: FileAccount
    base_s: float
    allocated: int = -1  # the file's size

    def account_since(self, progress: FileProgress) -> FileAccount:
        """Return the sizes and truncations observed since the file was last examined.

        Args:
            progress: Progress of the file, which records its latest examination.

        Returns:
            The account. It has no truncations if this observation is older than that examination.
        """
        if self.base_s == progress.examined_at_s:
            return self.account
        return FileAccount(progress.position.size_seen, (), progress.position.head)

    def after_scan(
        self,
        status: os.stat_result,
        at_s: float,
        progress: FileProgress,
        found: Fingerprints | None,
        size: int | None = None,
    ) -> FileObservation:
        """Return a copy of this observation that includes the result of another scan.

        Args:
            status: Result of `os.stat` or `os.fstat`.
            at_s: Time at which the scan of this file began, in monotonic seconds.
            progress: Progress of the file, which records its latest examination.
            found: Fingerprints that the scan read; None if it did not open the file.
            size: Content size in bytes without trailing NUL bytes; None if the scan did not open
                the file.

        Returns:
            The new observation. If the scan detected a truncation, its account contains it.
        """
        account = self.account_since(progress)
        if size is None:
            size = (
                self.size if self.stamp == (status.st_size, status.st_mtime_ns) else status.st_size
            )
        if at_s > progress.examined_at_s:  # else the examination may have been the later look
            account = account.after_scan(size, found, progress.position)
        return FileObservation(
            size=size,
            mtime_ns=status.st_mtime_ns,
            account=account,
            base_s=progress.examined_at_s,
            allocated=status.st_size,
        )

    @property
    def ends_with_nuls(self) -> bool:
        """Return whether the file ends with NUL bytes, which shows that its writer preallocated it.

        When lines replace the NUL bytes, the file size does not change, and the modification time
        may stay the same. To detect changes, read the file.
        """
        return self.allocated > self.size

    @property
    def stamp(self) -> tuple[int, int]:
        """Return the size in bytes and the modification time in nanoseconds, to detect changes.

        A write that replaces trailing NUL bytes may change neither value.
        """
        return self.allocated, self.mtime_ns


NEVER = FileObservation(size=-1, mtime_ns=-1, account=FileAccount(0), base_s=-2.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlierGenerations:
    """How far a file was read before each of its truncations.

    The tailer uses these positions to recognize copies of the truncated content. The content of a
    file between two truncations is called a generation.

    Attributes:
        latest: Position up to which the previous generation was read; None if there is none.
        older: Positions up to which earlier generations were read, oldest first. Their `anchor` may
            be missing.
        kept: Number of a generation, and the number of bytes at its start that were already read
            before the truncation and remained in the file.
    """

    latest: FilePosition | None = None
    older: tuple[FilePosition, ...] = ()
    kept: tuple[int, int] = (0, 0)

    @property
    def positions(self) -> tuple[FilePosition, ...]:
        """Return all positions: first the latest one, then the others from oldest to newest.

        The result is empty if there are none.
        """
        return self.older if self.latest is None else (self.latest, *self.older)

    def with_ended_generation(self, position: FilePosition, older_max: int) -> EarlierGenerations:
        """Return a copy that also contains the position before the latest truncation.

        If a position of the same generation was already added, it is replaced.

        Args:
            position: Position up to which the file was read before the truncation. It becomes
                `latest`; the previous `latest` is appended to `older`.
            older_max: Maximum number of positions in `older`. The oldest ones are dropped.
        """
        if self.latest is not None and self.latest.generation == position.generation:
            return dataclasses.replace(self, latest=position)
        older = (*self.older, *([self.latest] if self.latest else []))[-older_max:]
        return dataclasses.replace(self, latest=position, older=older)


@dataclasses.dataclass(slots=True, kw_only=True)
class SenderState:
    """The state of sending one file, used only by the sender thread that has the file.

    It is not saved: each run of the tailer starts with the defaults.

    Attributes:
        failures: Number of consecutive failures to read or send the file; determines the retry
            delay.
        window: Maximum number of byte ranges of the file that may be unacknowledged. It starts at 1
            and grows by 1 with each acknowledgement.
        flush_at_s: Time in monotonic seconds at which an incomplete last record is sent anyway;
            None if there is no such record.
        nuls: The latest NUL bytes found in the file, which the writer may still replace with text:
            generation of the file, content size in bytes, and time of detection in monotonic
            seconds.
        counted_from: Number of completed scans when lost bytes were detected. The tailer waits some
            more scans for a copy of the file before it counts the bytes as lost. None if it is not
            waiting.
    """

    failures: int = 0
    window: int = 1
    flush_at_s: float | None = None
    nuls: tuple[int, int, float] = (-1, 0, 0.0)
    counted_from: int | None = None


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class TrackedFile:
    """A log file that the tailer follows, with all of its state in memory.

    Attributes:
        file_id: Id of the file, derived from device, inode and birth time when it was first seen.
        identity: Current device, inode and birth time.
        place: Source and paths.
        progress: How far the file was read and acknowledged.
        earlier: How far the content before each truncation was read.
        sender: State that only the sender thread uses.
        descriptor: File descriptor; None while the file is closed.
        opened_at_s: When the file was last opened, in monotonic seconds.
        observed: Size and changes that scans observed.
        due: Number of the scan that last detected a change; -1 if there was none.
        changed_at_s: Time of that scan in monotonic seconds.
        deleted: Whether the file is open but no longer has a name.
        retired: Whether nothing more will be read from the file.
        unfound: Number of consecutive scans that did not find the file.
        target: Path to which the latest path resolves if it is a symbolic link; otherwise empty.
        other_names: Other names of the same file, by hard or symbolic links.
        rest: Search for the unread content of a file that vanished or was truncated; None if there
            is none.
        saved: The observations that the checkpoint contains; None if it contains none.
        suspected: Whether it is a compressed file whose content may be unread. Such a file is not
            in the checkpoint yet.

    Two threads use a file at the same time: the scanning thread, and at most one sender thread, to
    which the schedule has assigned the file. Each field is written by one of them. A value that the
    other thread reads is an immutable snapshot, which is replaced as a whole, or a single value.

    | fields | written by |
    |---|---|
    | `file_id` | no thread |
    | `progress`, `earlier`, `sender` | the sender thread that has the file; the scanning thread while no sender has it |
    | `observed`, `due`, `changed_at_s`, `saved` | the scanning thread |
    | `identity`, `place`, `target`, `other_names`, `deleted`, `retired` | the scanning thread |
    | `descriptor`, `opened_at_s` | the scanning thread, which closes it only while no sender has the file |
    | `rest` | the thread that starts the search; then the sender thread, and the scanning thread while no sender has the file |
    | `suspected`, `unfound` | the scanning thread; the sender thread once, when it has examined a compressed file or a candidate was renamed |

    The fields in the last two rows are not snapshots, because a search is passed from one thread to
    the other together with an open reader.
    """

    file_id: str
    identity: FileIdentity
    place: FileLocation
    progress: FileProgress = dataclasses.field(default_factory=FileProgress)
    earlier: EarlierGenerations = EarlierGenerations()
    sender: SenderState = dataclasses.field(default_factory=SenderState)
    descriptor: int | None = None
    opened_at_s: float = 0.0
    observed: FileObservation = NEVER
    due: int = -1
    changed_at_s: float = 0.0
    deleted: bool = False
    retired: bool = False
    unfound: int = 0
    target: str = ""
    other_names: tuple[str, ...] = ()
    rest: RemainderSearch | None = None
    saved: FileAccount | None = None
    suspected: bool = False

    @property
    def kept_to(self) -> int:
        """Return how many bytes at the start of a truncated file were read before the truncation.

        These bytes do not count as lost if the file is truncated again. The value is 0 if the file
        was not truncated or none of these bytes are left.
        """
        generation, kept_to = self.earlier.kept
        return kept_to if generation == self.progress.position.generation else 0

    @property
    def names(self) -> frozenset[str]:
        """Return all known absolute paths of the file.

        These are the first and the latest path, the target of a symbolic link, and the paths of
        other links.
        """
        return frozenset(
            filter(None, (self.place.path, self.place.seen_at, self.target, *self.other_names))
        )

    @property
    def is_compressed(self) -> bool:
        """Return whether the file is compressed, judging by the suffix of its path.

        The tailer decompresses such a file when it reads it.
        """
        return self.place.path.endswith(PACKED)

    @property
    def never_had_content(self) -> bool:
        """Return whether the file was empty at every scan, and nothing was read from it.

        Such a file can be recognized only by its name.
        """
        progress = self.progress  # one consistent moment
        account = self.observed.account_since(progress)
        nothing = progress.position.offset == progress.position.generation == account.high == 0
        return nothing and not (account.shrinks or progress.in_flight)

    @property
    def is_gone(self) -> bool:
        """Return whether no more bytes can be read from the file, because it is retired or missing.

        A file is retired when tracking ends; it is missing while no scan finds it.
        """
        return self.retired or self.place.missing

    @property
    def is_settled(self) -> bool:
        """Return whether all detected changes are processed and all byte ranges are acknowledged.

        Bytes may still be unread, for example an unterminated last line.
        """
        progress = self.progress  # one consistent moment
        return not progress.in_flight and progress.examined_scan >= self.due

    @property
    def is_read(self) -> bool:
        """Return whether all observed content is acknowledged.

        An unterminated last line is ignored. Acknowledged means that a delivery service confirmed
        that Kafka stored the lines.
        """
        return self.is_settled and self.progress.quiet_to >= self.observed.size

    @property
    def is_up_to_date(self) -> bool:
        """Return whether the file is unchanged since its whole content was acknowledged.

        False if the file is missing, if it ends with an unterminated line or with NUL bytes, or
        while its unread content is being searched for in other files.
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
            and not self.observed.ends_with_nuls
        )

    @property
    def pending_bytes(self) -> int:
        """Return the number of unacknowledged bytes, including an unterminated last line.

        If the file is missing or no longer read, only the bytes stored for sending are counted.
        """
        progress = self.progress
        seen = (
            self.observed.size
            if self.observed.size >= 0
            else self.observed.account_since(progress).high
        )
        known = max(seen, progress.position.size_seen)
        unread = 0 if self.is_gone else max(0, known - progress.position.offset)
        return unread + sum(sent.bytes for sent in progress.in_flight)

    def close(self) -> None:
        """Close the file descriptor if it is open, and end the search for unread content.

        Safe to call repeatedly. The file stays tracked and can be opened again.
        """
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
        self.drop_remainder()

    def drop_remainder(self) -> None:
        """End the search for unread content of a vanished or truncated file, and close its reader.

        Does nothing if there is no search.
        """
        if self.rest is not None:
            self.rest.close()
            self.rest = None


_Index = dict[tuple[int, int], TrackedFile]
_OTHER_NAMES_MAX: Final = 8  # the latest: backups by hard link have a new name each day


class TrackedFiles:
    """The collection of all tracked files, indexed by id, identity and name.

    Only the scanning thread modifies it. Iteration uses a snapshot, so files may be added or
    removed meanwhile.

    Args:
        files: Files to track from the start, usually those in the checkpoint.

    Attributes:
        scans_completed: Number of completed full scans, each of which checks all files of all
            sources.
        compressed: Compressed files that are being read, or examined for unread lines.
    """

    def __init__(self, files: Iterable[TrackedFile]) -> None:
        self.scans_completed = 0
        self.compressed = set[TrackedFile]()
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
        """Start tracking a file: add it to the collection and to all indexes.

        Args:
            file: The file. A retired file, from which nothing more is read, is added only to the id
                index.
        """
        self._by_id[file.file_id] = file
        if file.is_compressed:
            self.compressed.add(file)
        if not file.retired:
            self._by_name.setdefault(file.place.path, []).append(file)
            self._index(file)

    def has(self, file_id: str) -> bool:
        """Return whether a file with this id is in the collection.

        Args:
            file_id: Id of the file, as in its byte ranges.
        """
        return file_id in self._by_id

    def with_name(self, path: str) -> Iterator[TrackedFile]:
        """Yield the tracked files whose first path or additional name equals a path.

        The most recently added file comes first. Nothing is yielded if there is no such file.

        Args:
            path: Absolute path.
        """
        return reversed(self._by_name.get(path, ()))

    def add_other_name(self, file: TrackedFile, path: str) -> None:
        """Record an additional name of a file, such as a hard or symbolic link.

        The latest 8 additional names are kept.

        Args:
            file: A tracked file.
            path: The additional path.
        """
        if path == file.place.path or path in file.other_names:
            return
        if len(file.other_names) == _OTHER_NAMES_MAX:
            self._unname(file, file.other_names[0])
        file.other_names = (*file.other_names[1 - _OTHER_NAMES_MAX :], path)
        self._by_name.setdefault(path, []).append(file)

    def retire(self, file: TrackedFile) -> None:
        """Close a file from which nothing more will be read, and remove it from the indexes.

        The file stays in the collection until `remove` is called, because some of its ranges may be
        unacknowledged.

        Args:
            file: A tracked file.
        """
        file.retired = True
        file.close()
        self._unname(file, file.place.path, *file.other_names)
        self._unindex(file)

    def remove(self, file: TrackedFile) -> None:
        """Stop tracking a file: remove it from the collection and from all indexes.

        Args:
            file: A tracked file.
        """
        self._by_id.pop(file.file_id, None)
        self.compressed.discard(file)
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
        """Return the tracked file that was last seen with a device and inode number.

        Args:
            device: Device number.
            inode: Inode number.

        Returns:
            The file, or None if there is none.
        """
        return self._by_inode.get((device, inode))

    def is_displaced(self, file: TrackedFile) -> bool:
        """Return whether the inode of a deleted file has been reused by another tracked file.

        Also True for a retired file, which is a file from which nothing more is read.

        Args:
            file: A tracked file.
        """
        return self.at_inode(file.identity.device, file.identity.inode) is not file

    def match(self, identity: FileIdentity) -> TrackedFile | None:
        """Return the tracked file that has a given identity.

        Files with the same device and inode match, unless both birth times are known and differ. A
        closed file also matches by inode and birth time alone, because the device number may change
        when the machine restarts.

        Args:
            identity: Identity of an open file, from `identify`.

        Returns:
            The file, or None if no tracked file matches.
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

    def update_identity(self, file: TrackedFile, identity: FileIdentity) -> None:
        """Replace the identity of a tracked file after its device number or birth time changed.

        Args:
            file: A tracked file.
            identity: The new identity.
        """
        self._unindex(file)
        file.identity = identity
        self._index(file)

    def _indexes(self, file: TrackedFile) -> Iterator[tuple[_Index, tuple[int, int]]]:
        if file.is_compressed:  # the archive's own inode is no file's that is followed
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
class ScanResult:
    """The result of one scan of all sources.

    Attributes:
        complete: Names of the sources that were scanned completely.
        problems: Maps each source to the errors of its scan, by path.
        folders: Folders that were listed, or in which a file was looked up by name.
        active_files: Files that may have unread or unacknowledged bytes, and files that the scan
            did not find.
    """

    complete: set[str] = dataclasses.field(default_factory=set)
    problems: dict[str, dict[str, OSError]] = dataclasses.field(default_factory=dict)
    folders: set[str] = dataclasses.field(
        default_factory=set
    )  # that were listed, or where a file was looked for
    active_files: list[TrackedFile] = dataclasses.field(default_factory=list)

    def all_problems(self) -> dict[str, OSError]:
        """Return the errors of all sources in one dict.

        Returns:
            Maps each path that could not be scanned to its error. Empty if there were no errors.
        """
        return {
            path: problem
            for problems in self.problems.values()
            for path, problem in problems.items()
        }
