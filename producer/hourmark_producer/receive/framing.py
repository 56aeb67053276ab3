"""Streams and datagrams of syslog as lines (RFC 6587). Pure.

A stream of bytes as messages, as RFC 6587 has it. Pure.

The first byte of a connection tells which of two ways it uses. A digit: octet counting, `LENGTH SP
MESSAGE` (the only one of RFC 5425). Anything else: each message ends with a newline or a NUL. A
message that is too long is passed over and counted; a stream that is in neither form cannot be read
on.

A message as a line of a segment. Pure.

A line ends with a newline, so a message that holds some has them as `#012`, as rsyslog writes them.
Newlines, carriage returns and NULs at its end are part of nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_LENGTH_DIGITS_MAX: Final = 10


class FramingResult(NamedTuple):
    """What some bytes came to.

    `too_long`: how many messages; `skipped`: bytes of such messages, of parts too. `flaw`: why it
    cannot be read on.
    """

    messages: list[bytes]
    oversized: int = 0
    skipped_bytes: int = 0
    error: str = ""


class SyslogFramer:
    """Of one connection."""

    def __init__(self, message_bytes_max: int) -> None:
        self._max = message_bytes_max
        self._counted: bool | None = None  # unknown until the first byte
        self._partial = b""  # of a message that is not whole
        self._skip = 0  # so many bytes of a counted message are still passed over
        self._skipping = False  # a message without a count is passed over, up to its end

    @property
    def unfinished_bytes(self) -> int:
        """Of a message under way."""
        return len(self._partial)

    def feed(self, data: bytes) -> FramingResult:
        """Messages that are whole by now."""
        if self._counted is None and data:
            self._counted = data[:1].isdigit()
        return self._feed_counted(data) if self._counted else self._feed_lines(data)

    def finish(self) -> bytes:
        """The sender has said all: what is left is a message, too, but where it would be
        counted.
        """
        if self._counted:
            return b""
        rest, self._partial = self._partial, b""
        return rest

    def _feed_lines(self, data: bytes) -> FramingResult:
        *whole, rest = (self._partial + data.replace(b"\0", b"\n")).split(b"\n")
        too_long = skipped = 0
        if self._skipping and whole:
            skipped += len(whole.pop(0))
            self._skipping = False
        elif self._skipping:
            skipped, rest = len(rest), b""
        long = [message for message in whole if len(message) > self._max]
        if long:
            whole = [message for message in whole if len(message) <= self._max]
            too_long, skipped = len(long), skipped + sum(map(len, long))
        if len(rest) > self._max:
            too_long, skipped, rest, self._skipping = too_long + 1, skipped + len(rest), b"", True
        self._partial = rest
        return FramingResult(whole, too_long, skipped)

    def _feed_counted(self, data: bytes) -> FramingResult:
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        content, start, too_long = self._partial + data[skipped:], 0, 0
        messages: list[bytes] = []
        while start < len(content):
            begin = content.find(b" ", start, start + _LENGTH_DIGITS_MAX + 1)
            digits = content[start : begin if begin >= 0 else start + _LENGTH_DIGITS_MAX + 1]
            if not digits.isdigit() or digits.startswith(b"0") or len(digits) > _LENGTH_DIGITS_MAX:
                return FramingResult(
                    messages,
                    too_long,
                    skipped,
                    f"{content[start : start + 20]!r} is no length of a message",
                )
            if begin < 0:
                break
            begin, length = begin + 1, int(digits)
            if length > self._max:
                there = min(length, len(content) - begin)
                too_long, skipped, self._skip = too_long + 1, skipped + there, length - there
                start = begin + there
                continue
            if len(content) < begin + length:
                break
            messages.append(content[begin : begin + length])
            start = begin + length
        self._partial = content[start:]
        return FramingResult(messages, too_long, skipped)


_NEWLINE: Final = b"#012"


def message_to_line(message: bytes) -> bytes:
    """With its newline; nothing of a message that says nothing."""
    said = message.rstrip(b"\r\n\0")
    if b"\n" in said:
        said = said.replace(b"\n", _NEWLINE)
    return said + b"\n" if said else b""
