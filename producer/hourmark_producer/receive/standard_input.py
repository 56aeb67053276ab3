"""What a program writes into this one. At its end the tailer ends, too, once all is
acknowledged.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hourmark_producer.receive.receiver import READ_BYTES, ReadCallback

if TYPE_CHECKING:
    from hourmark_producer.receive.receiver import SourceReceiver

_STDIN: Final = 0


class StandardInput:
    """Lines as they come; one that is too long goes on in pieces, as in any file.

    `descriptor`: another one, in tests.
    """

    is_lost_in_between = False
    is_at_hand = True
    has_end = True
    resumes = False

    def __init__(self, line_bytes_max: int, descriptor: int = _STDIN) -> None:
        self._line_bytes_max, self._descriptor = line_bytes_max, descriptor
        self._rest = b""

    def open(self, receiver: SourceReceiver) -> None:
        self._receiver = receiver
        receiver.watch(self._descriptor, ReadCallback(self._read))

    def tend(self, now_s: float) -> None:
        pass

    def close(self) -> None:
        if self._rest:
            self._receiver.losses.add("stopped within a line", lost_bytes=len(self._rest))
        self._receiver.unwatch(self._descriptor)

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:  # others may have made it so
            return True
        if not data:
            if self._rest:
                self._receiver.receive(self._rest + b"\n")
                self._rest = b""
            self._receiver.unwatch(self._descriptor)
            self._receiver.end()
            return True
        content = self._rest + data
        whole = (
            content.rfind(b"\n") + 1
            if len(content) - len(data) <= self._line_bytes_max
            else len(content)
        )
        self._receiver.receive(content[:whole])
        self._rest = content[whole:]
        return len(data) < READ_BYTES
