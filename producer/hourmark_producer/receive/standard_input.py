"""Standard input as a source. After its end, the tailer ends once everything is acknowledged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hourmark_producer.receive.receiver import READ_BYTES, ReadCallback

if TYPE_CHECKING:
    from hourmark_producer.receive.receiver import SourceReceiver

_STDIN: Final = 0


class StandardInput:
    """Receives lines from standard input.

    A `SourceReceiver` calls its methods.

    Args:
        line_bytes_max: Maximum number of bytes of an incomplete line to keep in memory. A longer
            line is passed on in parts.
        descriptor: File descriptor to read from.
    """

    loses_while_stopped = False
    is_caught_up = True
    has_end = True
    is_resumable = False

    def __init__(self, line_bytes_max: int, descriptor: int = _STDIN) -> None:
        self._line_bytes_max, self._descriptor = line_bytes_max, descriptor
        self._partial = b""

    def open(self, receiver: SourceReceiver) -> None:
        self._receiver = receiver
        receiver.watch(self._descriptor, ReadCallback(self._read))

    def tick(self, now_s: float) -> None:
        pass

    def close(self) -> None:
        if self._partial:
            self._receiver.losses.add("stopped within a line", lost_bytes=len(self._partial))
        self._receiver.unwatch(self._descriptor)

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:  # another process may have made it non-blocking
            return True
        if not data:
            if self._partial:
                self._receiver.receive(self._partial + b"\n")
                self._partial = b""
            self._receiver.unwatch(self._descriptor)
            self._receiver.finish()
            return True
        content = self._partial + data
        whole = (
            content.rfind(b"\n") + 1
            if len(content) - len(data) <= self._line_bytes_max
            else len(content)
        )
        self._receiver.receive(content[:whole])
        self._partial = content[whole:]
        return len(data) < READ_BYTES
