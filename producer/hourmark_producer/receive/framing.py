"""Syslog message framing of streams (RFC 6587) and conversion of messages to lines.

The first byte of a connection selects the framing. A digit means octet counting, `LENGTH SP
MESSAGE`, which is the only framing of RFC 5425; any other byte means messages that end with a
newline or NUL. Messages that are too long are skipped and counted. A stream that violates both
framings cannot be read further.

A message becomes one line of a segment: newlines inside it become `#012`, as rsyslog writes them,
and trailing newlines, carriage returns and NULs are removed. The module performs no I/O.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_LENGTH_DIGITS_MAX: Final = 10


class FramingResult(NamedTuple):
    """The messages that a chunk of a syslog stream completed.

    Attributes:
        messages: Complete messages without their framing, in order.
        oversized: Number of messages in this chunk that exceed the maximum length.
        skipped_bytes: Number of bytes of oversized messages in this chunk. A message may have begun
            in an earlier chunk.
        error: Reason why the stream is invalid; empty if it is valid.
    """

    messages: list[bytes]
    oversized: int = 0
    skipped_bytes: int = 0
    error: str = ""


class SyslogFramer:
    """Splits the byte stream of one syslog connection into messages (RFC 6587).

    Args:
        message_bytes_max: Maximum length of a message in bytes. Longer messages are skipped.
    """

    def __init__(self, message_bytes_max: int) -> None:
        self._max = message_bytes_max
        self._counted: bool | None = None  # unknown until the first byte
        self._partial = b""  # of an incomplete message
        self._skip = 0  # bytes of a counted message that are still to be skipped
        self._skipping = False  # skip up to the end of a message without a count

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of buffered bytes that belong to an incomplete message."""
        return len(self._partial)

    def feed(self, data: bytes) -> FramingResult:
        """Process the next chunk of the stream and return the messages that it completes.

        The first byte of the stream determines the framing for the whole connection: octet counting
        if it is a digit, otherwise one message per line (RFC 6587).

        Args:
            data: The next bytes of the stream. The chunk may end within a message.

        Returns:
            The completed messages. If `error` is not empty, the stream is invalid and the caller
            must close the connection.
        """
        if self._counted is None and data:
            self._counted = data[:1].isdigit()
        return self._feed_counted(data) if self._counted else self._feed_lines(data)

    def finish(self) -> bytes:
        """Return the unterminated last message at the end of the stream.

        Returns:
            The message, or `b""` if there is none. With octet counting, an incomplete message is
            discarded and `b""` is returned.
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
                    f"{content[start : start + 20]!r} is not a message length",
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
    """Convert a syslog message to one line that ends with a newline.

    Newlines inside the message become `#012`. Trailing newlines, carriage returns and NUL bytes are
    removed.

    Args:
        message: The message, without the framing of its transport.

    Returns:
        The line; `b""` if the message is empty after these bytes are removed.
    """
    said = message.rstrip(b"\r\n\0")
    if b"\n" in said:
        said = said.replace(b"\n", _NEWLINE)
    return said + b"\n" if said else b""
