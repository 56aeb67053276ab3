"""The remainder of a file that vanished or was truncated, read from a compressed file or a copy.

Positions are offsets of the uncompressed content. So a compressed file is decompressed once for
comparison and once more while its remainder is read, forward only. At most the longest line is held
in memory.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hourmark_producer.files.compressed import (
    CompressedFileDamaged,
    CompressedFileIncomplete,
    DecompressedReader,
)
from hourmark_producer.files.examination import read_at
from hourmark_producer.files.fingerprints import ANCHOR_BYTES

_BLOCK_BYTES: Final = 1 << 16


class RemainderStage(enum.Enum):
    """Stage of the search for the remainder of a file.

    The remainder is the unread content of a file that vanished or was truncated, if another file
    contains it.

    Attributes:
        LOOKING: Candidate files are being compared.
        READING: The remainder was found and is being read.
        FINISHED: The remainder was read to its end.
        NOWHERE: No candidate contains the remainder.
    """

    LOOKING = "looking"
    READING = "reading"
    FINISHED = "finished"
    NOWHERE = "nowhere"


class KnownContent(NamedTuple):
    """First bytes, read position and size of the content of a vanished or truncated file.

    Candidate files are compared with these values.

    Attributes:
        head: First bytes of the content.
        offset: Offset up to which the content was read.
        anchor: The bytes just before that offset.
        high: Largest content size observed, in bytes.
    """

    head: bytes
    offset: int
    anchor: bytes
    high: int  # the largest size that was seen


class CandidateContent(NamedTuple):
    """Size and completeness of a candidate file whose content matches.

    Attributes:
        readable: Number of bytes that can be read from the candidate; `NOTHING` (-1) if it is
            damaged or could not be compared completely.
        flaw: Why the content is incomplete; empty if it is complete.
        grows: Whether the candidate ends before its compressed content does, so that a program may
            still be writing it.
    """

    readable: int
    flaw: str = ""  # why it is not whole
    grows: bool = False  # its end is not there, or not there yet


NOTHING: Final = -1


def compare_content(
    plain: DecompressedReader, known: KnownContent, pause: Callable[[], object]
) -> CandidateContent | None:
    """Decompress a candidate file to its end and compare it with the content of a lost file.

    Args:
        plain: Reader of the candidate, at its start. The caller closes it.
        known: First bytes, read position and size of the content that is searched for.
        pause: Called after each block. It may raise an exception to stop the comparison.

    Returns:
        Size and completeness of the candidate's content, or None if the content differs. A
        candidate that is damaged, or that ends before it could be compared, is returned with
        `readable` -1 and the reason in `flaw`.

    Raises:
        OSError: The candidate cannot be read.
    """
    size, end, head, before, flaw, grows, damaged = (
        0,
        0,
        b"",
        b"",
        "",
        False,
        False,
    )  # `end`: without NULs behind
    try:
        while block := plain.read(_BLOCK_BYTES):
            head += block[: len(known.head) - len(head)]
            if not known.head.startswith(head):
                return None
            if size < known.offset:
                before = (before + block[: known.offset - size])[-ANCHOR_BYTES:]
                if size + len(block) >= known.offset and not before.endswith(known.anchor):
                    return None
            if left := block.rstrip(b"\0"):
                end = size + len(left)
            size += len(block)
            pause()
    except CompressedFileIncomplete as error:
        flaw, grows = str(error), True
    except CompressedFileDamaged as error:
        flaw, damaged = str(error), True
    is_it = head == known.head and size >= known.offset
    if not is_it and not flaw:
        return None
    if not flaw and size < known.high:
        flaw = f"it holds {size} bytes, and {known.high} had been seen"
    return CandidateContent(
        max(end, known.offset) if is_it and not damaged else NOTHING, flaw, grows
    )


class PlainFileReader:
    """Sequential reader of an uncompressed file, with the same interface as `DecompressedReader`.

    It owns the file descriptor and closes it in `close`.

    Args:
        descriptor: File descriptor, open for reading.
        start: Offset of the first byte that `read` returns.
    """

    def __init__(self, descriptor: int, start: int) -> None:
        self._descriptor, self._at = descriptor, start

    def read(self, count: int) -> bytes:
        """Return the next bytes of the file, or `b""` at its end.

        Args:
            count: Maximum number of bytes.

        Raises:
            OSError: The file cannot be read.
        """
        block = os.pread(self._descriptor, count, self._at)
        self._at += len(block)
        return block

    def compare(self, known: KnownContent) -> CandidateContent | None:
        """Compare the file with the known content of another file.

        Only the first bytes and the bytes before the read position are compared.

        Args:
            known: First bytes and read position of the other file.

        Returns:
            The size of this file, or None if its content differs.

        Raises:
            OSError: The file cannot be read.
        """
        size, length = os.fstat(self._descriptor).st_size, len(known.anchor)
        if (
            size < known.offset
            or read_at(self._descriptor, 0, len(known.head)) != known.head
            or read_at(self._descriptor, known.offset - length, length) != known.anchor
        ):
            return None
        return CandidateContent(size)

    def close(self) -> None:
        os.close(self._descriptor)


class RemainderSearch:
    """A search for the unread content of a vanished or truncated file, and the result.

    This content, the remainder, may be in another file, such as a compressed copy. The object
    stores the state of the search; `ContentMatcher.match` compares the files. Only the worker
    thread to which the file is assigned changes `stage`; the scanning thread may read it.

    Attributes:
        candidates: Inode of each file that may contain the remainder, by path.
        truncated_at: Size of the content before a truncation, in bytes; None if the file vanished.
        head: First bytes of the content before a truncation; empty if the file vanished.
        stage: Stage of the search.
        found_in: Path of the file that contains the remainder; empty until it is found.
        flaw: Why the remainder is incomplete or was not found; empty if there is no such problem.
    """

    def __init__(
        self, candidates: Mapping[str, int], *, truncated_at: int | None = None, head: bytes = b""
    ) -> None:
        """Create a search among candidate files.

        Args:
            candidates: Compressed files and copies: inode by path, most likely first. The inode
                detects that a rotation gave the path to another file.
            truncated_at: Size of the content before the truncation, if the file was truncated.
            head: First bytes of the content before the truncation, if the file was truncated.
        """
        self.candidates = candidates
        self.truncated_at = truncated_at
        self.head = head
        self.stage = RemainderStage.LOOKING
        self.found_in = ""
        self.flaw = ""  # why not all of it, or nothing, can be had
        self._plain: DecompressedReader | PlainFileReader | None = None
        self._readable = 0
        self._start, self._window = 0, b""  # of plain content

    @property
    def reading_inode(self) -> int | None:
        """Inode of the file from which the remainder is being read; None in any other stage."""
        return self.candidates.get(self.found_in) if self.stage is RemainderStage.READING else None

    @property
    def readable(self) -> int:
        """Size of the content in the file that was found, in bytes; 0 until it is found."""
        return self._readable

    def begin(
        self,
        found_in: str,
        plain: DecompressedReader | PlainFileReader,
        content: CandidateContent,
        start: int = 0,
    ) -> None:
        """Start reading the remainder from the file that contains it.

        The stage becomes READING. A reader that was in use is closed.

        Args:
            found_in: Path of the file that contains the remainder.
            plain: Reader of this file. This object closes it.
            content: Size and completeness of the content.
            start: Offset of the first byte that the reader returns.
        """
        self.close()
        self.found_in, self.flaw = found_in, content.flaw
        self._plain, self._readable, self._start, self._window = plain, content.readable, start, b""
        self.stage = RemainderStage.READING

    def end(self, stage: RemainderStage, flaw: str = "") -> None:
        """Close the reader and set the stage of the search.

        Use FINISHED or NOWHERE to end the search, or LOOKING to repeat it.

        Args:
            stage: The new stage.
            flaw: Why the remainder is incomplete or was not found. If empty, the earlier value is
                kept.
        """
        self.flaw = flaw or self.flaw
        self.close()
        self.stage = stage

    def read_at(self, offset: int, count: int, pause: Callable[[], object]) -> bytes:
        """Return bytes of the remainder from an offset. Call it only in the stage READING.

        The bytes are read forward and buffered until `forget_before` releases them.

        Args:
            offset: Offset of the first byte. It must not be lower than in an earlier call.
            count: Number of bytes.
            pause: Called after each block. It may raise an exception to stop reading.

        Returns:
            The bytes. Fewer than `count` are returned only at the end of the content.

        Raises:
            OSError: The file was changed after it was compared, or cannot be read.
        """
        assert self._plain is not None and offset >= self._start, "it is read forward only"
        end = min(offset + count, self._readable)
        try:
            while self._start + len(self._window) < end:
                block = self._plain.read(
                    min(_BLOCK_BYTES, self._readable - self._start - len(self._window))
                )
                if not block:
                    raise CompressedFileIncomplete("it ends before its end")
                self._window += block
                self._forget(min(offset, self._start + len(self._window)))
                pause()
        except (CompressedFileIncomplete, CompressedFileDamaged) as error:
            raise OSError(f"{self.found_in} was changed while it was read: {error}") from error
        return self._window[offset - self._start : max(offset, end) - self._start]

    def forget_before(self, offset: int) -> None:
        """Release the buffered bytes before an offset, to free memory.

        Args:
            offset: Offset of the first byte that may still be read.
        """
        self._forget(min(offset, self._start + len(self._window)))

    def _forget(self, offset: int) -> None:
        if offset > self._start:
            self._window = self._window[offset - self._start :]
            self._start = offset

    def close(self) -> None:
        """Close the reader if one is open. The stage does not change. Safe to call repeatedly."""
        if self._plain is not None:
            self._plain.close()
            self._plain = None
