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

    The remainder is the unread content of a vanished or truncated file. Another file may contain
    it.

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
    """Known properties of the content of a vanished or truncated file.

    Candidate files are compared with these values.

    Attributes:
        head: First bytes of the content.
        offset: Offset up to which the content was read.
        anchor: The bytes just before `offset`.
        high: Largest observed size of the content, in bytes.
    """

    head: bytes
    offset: int
    anchor: bytes
    high: int  # the largest size that was seen


class CandidateContent(NamedTuple):
    """Size and completeness of the content of a matching candidate file.

    Attributes:
        readable: Size of the readable content in bytes; `NOTHING` (-1) if the file is damaged or
            could not be compared completely.
        flaw: Reason why the content is incomplete; empty if it is complete.
        grows: Whether the compressed data ends prematurely. A program may still be writing the
            file.
    """

    readable: int
    flaw: str = ""  # why it is not whole
    grows: bool = False  # its end is not there, or not there yet


NOTHING: Final = -1


def compare_content(
    plain: DecompressedReader, known: KnownContent, pause: Callable[[], object]
) -> CandidateContent | None:
    """Decompress a candidate file and compare it with the known content of another file.

    Args:
        plain: Reader at the start of the candidate. The caller closes it.
        known: First bytes, read position and size of the other file.
        pause: Function that is called after each block. It may raise an exception to stop the
            comparison.

    Returns:
        Size and completeness of the candidate's content, or None if the content differs. If damage
        or a premature end prevents the comparison, `readable` is -1 and `flaw` states the reason.

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
    """State of the search for the unread content of a vanished or truncated file.

    This content is called the remainder. Another file may contain it, such as a compressed copy.
    `ContentMatcher.match` compares the files. Only the worker thread to which the file is assigned
    changes `stage`; the scanning thread may read it.

    Attributes:
        candidates: Maps the path of each file that may contain the remainder to its inode.
        truncated_at: Size of the content before a truncation, in bytes; None if the file vanished.
        head: First bytes of the content before a truncation; empty if the file vanished.
        stage: Stage of the search.
        found_in: Path of the file that contains the remainder; empty until it is found.
        flaw: Reason why the remainder is incomplete or was not found; otherwise empty.
    """

    def __init__(
        self, candidates: Mapping[str, int], *, truncated_at: int | None = None, head: bytes = b""
    ) -> None:
        """Create a search in candidate files.

        Args:
            candidates: Maps the path of each compressed file or copy to its inode, most likely
                match first. If the inode at a path changes, another file was renamed to it.
            truncated_at: Size in bytes before the truncation; None if the file vanished.
            head: First bytes before the truncation; empty if the file vanished.
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
        """Return the inode of the file from which the remainder is being read.

        The value is None unless the search is in the stage READING.
        """
        return self.candidates.get(self.found_in) if self.stage is RemainderStage.READING else None

    @property
    def readable(self) -> int:
        """Return the size in bytes of the content that was found; 0 until it is found."""
        return self._readable

    def begin(
        self,
        found_in: str,
        plain: DecompressedReader | PlainFileReader,
        content: CandidateContent,
        start: int = 0,
    ) -> None:
        """Start reading the remainder from the file that contains it.

        Sets the stage to READING. The previous reader, if any, is closed.

        Args:
            found_in: Path of the file that contains the remainder.
            plain: Reader of this file. The search takes ownership and closes it.
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
            flaw: Reason why the remainder is incomplete or was not found. If empty, the previous
                value is kept.
        """
        self.flaw = flaw or self.flaw
        self.close()
        self.stage = stage

    def read_at(self, offset: int, count: int, pause: Callable[[], object]) -> bytes:
        """Read bytes of the remainder. Call this method only in the stage READING.

        Reading is forward only. The bytes from `offset` on are buffered, so that they can be read
        again.

        Args:
            offset: Offset of the first byte. It must not be lower than in an earlier call.
            count: Number of bytes.
            pause: Function that is called after each block. It may raise an exception to stop
                reading.

        Returns:
            The bytes. Fewer than `count` are returned only at the end of the content.

        Raises:
            OSError: The file changed after it was compared, or cannot be read.
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
        """Release the buffered bytes before an offset to free memory.

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
