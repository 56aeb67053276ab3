"""Syslog over UDP (RFC 5426): a message a datagram, and nobody waits for anybody.

What finds no room is read and counted, in bytes; what the kernel dropped is counted by the kernel (SO_RXQ_OVFL, socket(7)) in
datagrams, so of bytes nothing is known. What comes while no tailer runs is known to nobody: each start after the first says so.
"""

from __future__ import annotations

import logging
import socket
import struct
from typing import TYPE_CHECKING, Final

from hourmark_producer.spool.messages import line_of
from hourmark_producer.spool.receiver import Polled
from hourmark_producer.spool.streams import listening

if TYPE_CHECKING:
    from hourmark_producer.spool.receiver import Receiver

_DATAGRAM_BYTES_MAX: Final = 1 << 16
_A_ROUND: Final = 1000  # datagrams
_SO_RXQ_OVFL: Final = 40  # linux/socket.h; Python has no name for it
_KERNEL_BYTES: Final = 8 << 20  # asked for; the system gives net.core.rmem_max at most
_COUNT: Final = struct.Struct("=I")
_LOG = logging.getLogger(__name__)


class Datagrams:
    """One address to listen at."""

    is_lost_in_between = True
    is_at_hand = True
    has_end = False
    resumes = False

    def __init__(self, address: tuple[str, int], message_bytes_max: int) -> None:
        self._asked, self._message_bytes_max = address, message_bytes_max
        self._dropped = 0  # by the kernel, since the socket is there

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._socket = listening(self._asked, socket.SOCK_DGRAM, receiver.source)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        receiver.watch(self._socket.fileno(), Polled(self._read, when_held=True))
        _LOG.info("source %s listens for syslog over UDP at %s port %d", receiver.source, *self.address)

    def tend(self, now_s: float) -> None:
        pass

    def close(self) -> None:
        self._receiver.unwatch(self._socket.fileno())
        self._socket.close()

    def _read(self) -> bool:
        for _ in range(_A_ROUND):
            try:
                message, told, _, _ = self._socket.recvmsg(_DATAGRAM_BYTES_MAX, socket.CMSG_SPACE(_COUNT.size))
            except BlockingIOError:
                return True
            self._count_dropped(told)
            self._take(message)
        return False

    def _take(self, message: bytes) -> None:
        losses, limit = self._receiver.losses, self._message_bytes_max
        if len(message) > limit:
            losses.add(f"messages longer than {limit} bytes (tailer.syslog.message_bytes_max)", lost_bytes=len(message))
        elif self._receiver.is_held:
            losses.add("datagrams for which there was no room (tailer.spool.bytes_max)", lost_bytes=len(message))
        else:
            self._receiver.receive(line_of(message))

    def _count_dropped(self, told: list[tuple[int, int, bytes]]) -> None:
        """The kernel tells with a datagram how many it had dropped before it took that one."""
        for level, kind, content in told:
            if level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL:
                (count,) = _COUNT.unpack(content[: _COUNT.size])
                if more := (count - self._dropped) % (1 << 32):
                    self._receiver.losses.add(
                        "datagrams that the kernel dropped, coming faster than they were read", unknown=more
                    )
                self._dropped = count
